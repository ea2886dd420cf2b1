"""Checks that tools/modules.py finds its faults and tools/house.py counts its figures: each with a fault planted in a
small tree."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import house  # noqa: E402
import modules  # noqa: E402

modules.KNOWN, modules.KNOWN_CIRCLES = set(), []

SOUND = {
    "base/status.h": "int quire_fail(int status);\n",
    "base/status.c": '#include "base/status.h"\nint quire_fail(int status)\n{\n    return status;\n}\n',
    "memory/kv.h": '#include "base/status.h"\n#include <stdint.h>\nint kv_take(void);\n',
    "memory/kv.c": '#include "memory/kv.h"\nint kv_take(void)\n{\n    return quire_fail(1);\n}\n',
    "engine/engine.h": '#include "base/status.h"\n',
    "server/daemon/daemon.c": '#include "engine/engine.h"\n',
}
CHECKS = (modules.arrows, modules.purity, modules.cuda, modules.circles, modules.sizes, modules.top)


def complaints(**changes):
    files = dict(SOUND)
    files.update({name.replace("__", "/").replace("_h", ".h").replace("_c", ".c"): text for name, text in changes.items()})
    tree = modules.Tree(files)
    return [line for check in CHECKS for line in check(tree)]


class Modules(unittest.TestCase):
    def one(self, words, **changes):
        found = complaints(**changes)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_sound_tree_has_no_complaints(self):
        self.assertEqual(complaints(), [])

    def test_an_arrow_up(self):
        self.one("may not see engine/engine.h (memory/ -> engine/)", memory__more_c='#include "engine/engine.h"\n')

    def test_a_header_that_passes_a_lower_module_on(self):
        found = complaints(engine__engine_h='#include "memory/kv.h"\n')
        self.assertEqual(found, ["server/daemon/daemon.c may not see memory/kv.h (server/daemon/ -> memory/), by way of engine/engine.h"])

    def test_a_private_header_of_a_folder_with_a_public_one(self):
        plan = dict(engine__model__model_h="\n", engine__model__weights_h="\n")
        self.assertEqual(complaints(app__watch__a_c='#include "engine/model/model.h"\n', **plan), [])
        self.one("app/watch/a.c may not see engine/model/weights.h (app/watch/ -> engine/model/)",
                 app__watch__a_c='#include "engine/model/weights.h"\n', **plan)

    def test_a_tool_that_sees_a_command_of_the_program(self):
        app = dict(app__command__cli_h="\n", app__serve__values_h="\n")
        self.assertEqual(complaints(tools__sim__a_c='#include "app/command/cli.h"\n#include "memory/kv.h"\n', **app), [])
        self.one("tools/sim/a.c may not see app/serve/values.h (tools/ -> app/serve/)",
                 tools__sim__a_c='#include "app/serve/values.h"\n', **app)

    def test_a_header_without_its_module(self):
        self.one("without its module", memory__more_c='#include "kv.h"\n')

    def test_a_clock_in_a_pure_module(self):
        self.one("memory/more.c is in a pure module and sees <time.h>", memory__more_c="#include <time.h>\n")
        self.one("by way of base/clock.h", base__clock_h="#include <time.h>\n", memory__more_c='#include "base/clock.h"\n')

    def test_cuda_outside_its_folder(self):
        self.one("cuda_runtime", engine__more_c="#include <cuda_runtime.h>\n")

    def test_two_files_that_call_each_other(self):
        self.one("in a circle: memory/a.c calls b() of memory/b.c; memory/b.c calls a() of memory/a.c",
                 memory__both_h="int a(int x);\nint b(int x);\n",
                 memory__a_c='#include "memory/both.h"\nint a(int x)\n{\n    return b(x);\n}\n',
                 memory__b_c='#include "memory/both.h"\nint b(int x)\n{\n    return a(x);\n}\n')

    def test_a_struct_is_no_call(self):
        self.assertEqual(complaints(memory__both_h="struct a {int x;};\nint a(int x);\nint b(int x);\n",
                                    memory__a_c='#include "memory/both.h"\nint a(int x)\n{\n    return b(x);\n}\n',
                                    memory__b_c='#include "memory/both.h"\nint b(int x)\n{\n    struct a y = {x};\n    return y.x;\n}\n'), [])

    def test_a_folder_of_too_many_and_a_file_too_long(self):
        self.one("has 31 source files", **{f"engine__model__f{i}_c": "" for i in range(31)})
        self.one("has 901 lines", engine__more_c="\n" * 901)

    def test_what_does_not_belong_at_the_top(self):
        self.one("does not belong", junk="")


TABLE = """
static const struct row rows[] = {
    {"q_proj", SITE_QKV},
    {"o_proj", SITE_O},
    {"gate_proj", SITE_GATE},
    {"down_proj", SITE_DOWN},
};
"""


class House(unittest.TestCase):
    def test_functions_are_measured_from_their_first_line_to_their_brace(self):
        text = "/* why */\nstatic int f(int a,\n             int b)\n{\n    return a;\n\n}\n\nstruct s {\n    int x;\n};\n\nint g(void)\n{\n}\n"
        self.assertEqual([(n, name) for n, _, _, name, _ in house.functions({"base/a.c": text, "tests/t.c": text})],
                         [(6, "f"), (3, "g")])

    def test_tables_of_tensors_and_drivers_are_found(self):
        driver = "void run(struct s *s)\n{\n    sched_commit(s);\n}\n"
        comment = "/* sched_commit(s) is called elsewhere */\nvoid other(void)\n{\n}\n"
        found = house.measure({"engine/model/t.c": TABLE + driver, "engine/b.c": comment, "tests/t.c": TABLE + driver})
        self.assertEqual(found["places that list a layer's tensors"], ["engine/model/t.c:2 rows"])
        self.assertEqual(found["loops that drive steps"], ["engine/model/t.c:8 run"])
        self.assertEqual(found["largest folder"]["files"], 1)

    def test_leaves_of_structs(self):
        text = """struct inner {
    uint32_t a, b[4]; /* int c; */
    void (*call)(int x, int y), *p;
};
struct outer {
    struct inner held, *pointer;
    struct {
        bool yes, no;
    } own;
    TAILQ_HEAD(, inner) list;
    struct inner many[3];
    const struct inner *(*find)(struct outer *o);
};
"""
        found = house.leaves({"base/a.h": text, "tests/t.h": text.replace("outer", "other")})
        self.assertEqual(found, [(13, "base/a.h:5 outer"), (4, "base/a.h:1 inner")])

    def test_leaves_of_a_struct_whose_name_is_used_twice(self):
        inner = "struct inner {\n    int %s;\n};\n"
        files = {"app/inner.h": inner % "a, b, c", "base/inner.h": inner % "a",
                 "base/outer.h": '#include "base/inner.h"\n\nstruct outer {\n    struct inner held;\n};\n'}
        self.assertIn((1, "base/outer.h:3 outer"), house.leaves(files))

    def test_what_is_product(self):
        self.assertEqual([house.product(f) for f in ("engine/a.c", "tests/a.c", "docs/a.json", "README.md")],
                         [True, False, False, False])


if __name__ == "__main__":
    unittest.main()
