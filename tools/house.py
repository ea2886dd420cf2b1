#!/usr/bin/env python3
"""Measures the source tree: the size of its parts, and duplicated code.

    python3 tools/house.py                     the tree as it lies here
    python3 tools/house.py --tree REV          the tree of a commit
    python3 tools/house.py --change REV..REV   how many product files those commits changed
    python3 tools/house.py --json ...          for programs

The measures:

- **files**: what is under git. Product files are those outside tests/ and docs/.
- **largest folder**: source files (as tools/modules.py has them) that lie directly in one folder, tests included.
- **function lengths**: C and CUDA, outside tests/: from the first line of the definition to the brace in column 0 that
  ends it, both counted. Comments above it do not count, blank lines inside do.
- **leaf declarators of a struct**: C and CUDA, outside tests/. Fields of a nested struct that is held by value count, with or
  without a name of its own; an array counts as one of its elements, a pointer as one, a TAILQ or LIST macro as one. Structs that
  are made of a table's rows by a macro are not seen.
- **places that list a layer's tensors**: functions, structs and tables in engine/ (not enums) that name q/k/v and at least
  three more of a decoder layer's families: o, gate/up, down, its norms. Whoever names them has to change when a layer
  gets a tensor.
- **loops that drive steps**: functions outside tests/ that call sched_commit(), which ends a step.
- **a change**: product files outside kernels/{ref,cpu,cuda}/, where a kernel lives by its own rules. Build files
  (CMakeLists.txt) are counted separately.
"""
import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter

import modules

FAMILIES = {
    "qkv": re.compile(r"\b(\w*qkv\w*|q_proj)\b|SITE_QKV|[.\"]q_proj", re.I),
    "o": re.compile(r"o_proj|\bo_bias\b|(->|\.|\*)o\b|SITE_O\b|VEC_O\b"),
    "gate_up": re.compile(r"gate_up|gate_proj|has_gate|SITE_GATE", re.I),
    "down": re.compile(r"\bdown_bias\b|(->|\.|\*)down\b|down_proj|SITE_DOWN"),
    "norms": re.compile(r"(attention|attn|input|mlp|pre|post)_\w*norm|_NORM\b"),
}
KERNELS_OWN = ("kernels/ref/", "kernels/cpu/", "kernels/cuda/")


def product(path):
    return not path.startswith(("tests/", "docs/")) and not path.endswith(".md")


def blocks(text):
    """(first line, name, lines, text) of what stands at column 0 and ends with a brace there."""
    lines = text.split("\n")
    begin = None
    for i, line in enumerate(lines):
        if begin is None:
            if line and re.match(r"[A-Za-z_]", line) and not line.endswith((";", ":")):
                begin = i
        elif line.startswith("}"):
            body = "\n".join(lines[begin : i + 1])
            head = body.split("{", 1)[0]
            head = re.sub(r"__(launch_bounds|attribute)__\s*\(+[^()]*\)+", "", head)
            name = re.search(r"(\w+)\s*\(", head) or re.search(r"(\w+)\s*(\[[^]]*\]\s*)?=?\s*$", head)
            yield begin + 1, name.group(1) if name else "?", i + 1 - begin, body
            begin = None
        elif not line.startswith((" ", "\t", "{", "#", "/", "*")) and line.endswith(";"):
            begin = None
        elif line == "":
            # a declaration without braces has ended; inside braces a blank line is part of the block
            if "{" not in "\n".join(lines[begin:i]):
                begin = None


def is_function(body):
    head = body.split("{", 1)[0]
    return "(" in head and "=" not in head and not re.match(r"\s*(typedef|struct \w+\s*$|enum|union)", head)


def functions(files):
    for f, text in files.items():
        if product(f) and f.endswith((".c", ".h", ".cu", ".cuh")):
            for line, name, n, body in blocks(text):
                if is_function(body):
                    yield n, f, line, name, body


STRUCT = re.compile(r"^(?:typedef )?struct (\w+) \{[ \t]*\n(.*?)^\}", re.M | re.S)


def fields_of(body):
    """(struct held by value or None, number of declarators, inner body or None) of a struct's body without comments."""
    at = 0
    while at < len(body):
        inner = re.compile(r"\s*(?:struct|union)(?: \w+)? \{").match(body, at)
        if inner:
            depth, end = 1, inner.end()
            while depth:
                depth += {"{": 1, "}": -1}.get(body[end], 0)
                end += 1
            stop = body.index(";", end)
            yield None, 0, body[inner.end() : end - 1]
            at = stop + 1
            continue
        stop = body.find(";", at)
        if stop < 0:
            return
        text, at = body[at:stop].strip(), stop + 1
        if not text or text.startswith(("_Static_assert", "#")):
            continue
        flat, last = text, None
        while flat != last:
            last, flat = flat, re.sub(r"\([^()]*\)|\[[^]]*\]", "", flat)
        names = flat.split(",")
        held = re.match(r"(?:const )?struct (\w+) (?!\*)", text)
        if held and "(*" not in text:
            for name in names:
                yield (None if "*" in name else held.group(1)), 1, None
        else:
            yield None, len(names), None


def leaves(files):
    """Of each struct of the product: its leaf declarators, the largest first."""
    bodies = {}
    for f, text in sorted(files.items()):
        if product(f) and f.endswith((".c", ".h", ".cu", ".cuh")):
            plain = re.sub(r"//[^\n]*", "", modules.COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text))
            for m in STRUCT.finditer(plain):
                where = f"{f}:{plain[: m.start()].count(chr(10)) + 1}"
                bodies.setdefault(m.group(1), []).append((f, where, m.group(2)))

    def find(name, f):
        """Of several structs of that name: that of the file itself, else of a header that it includes."""
        known = bodies.get(name, [])
        near = [b for b in known if b[0] == f] + [b for b in known if f'#include "{b[0]}"' in files[f]]
        return next(iter(near + [b for b in known if b[0].endswith(".h")]), None)

    def count(body, f, above):
        n = 0
        for held, own, inner in fields_of(body):
            if inner is not None:
                n += count(inner, f, above)
                continue
            known = find(held, f) if held and held not in above else None
            n += count(known[2], known[0], above | {held}) if known else own
        return n

    return sorted(((count(body, f, {name}), f"{where} {name}") for name, all_ in bodies.items() for f, where, body in all_),
                  reverse=True)


def tensor_lists(files):
    for f, text in sorted(files.items()):
        if f.startswith("engine/") and f.endswith((".c", ".h")):
            for line, name, n, body in blocks(modules.COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)):
                named = [family for family, pattern in FAMILIES.items() if pattern.search(body)]
                if not body.startswith("enum") and "qkv" in named and len(named) >= 4:
                    yield f"{f}:{line} {name}"


def measure(files):
    folders = Counter(os.path.dirname(f) for f in files if f.endswith(modules.SOURCES))
    folder, n_folder = max(folders.items(), key=lambda item: item[1])
    found = sorted(functions(files), reverse=True)
    structs = leaves(files)
    drivers = [f"{f}:{line} {name}" for n, f, line, name, body in found
               if re.search(r"\bsched_commit\(", body.split("{", 1)[1])]
    return {
        "largest folder": {"folder": folder, "files": n_folder},
        "functions": len(found),
        "longest function": {"lines": found[0][0], "where": f"{found[0][1]}:{found[0][2]} {found[0][3]}"},
        "functions over 60 lines": [f"{n} {f}:{line} {name}" for n, f, line, name, _ in found if n > 60],
        "functions over 80 lines": [f"{n} {f}:{line} {name}" for n, f, line, name, _ in found if n > 80],
        "structs over 40 leaf declarators": sum(n > 40 for n, _ in structs),
        "largest structs": [f"{n} {where}" for n, where in structs[:20]],
        "places that list a layer's tensors": list(tensor_lists(files)),
        "loops that drive steps": sorted(drivers),
    }


def git(*args, **more):
    return subprocess.run(["git", *args], check=True, capture_output=True, **more).stdout


def of_commit(revision):
    files = {}
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", revision))) as tar:
        for member in tar:
            if member.isfile():
                text = tar.extractfile(member).read() if member.name.endswith(modules.SOURCES) else b""
                files[member.name] = text.decode(errors="replace")
    return files


def change(span):
    names = [n for n in git("diff", "--name-only", "--no-renames", "-z", span, text=True).split("\0") if n and product(n)]
    own = [n for n in names if n.startswith(KERNELS_OWN)]
    build = [n for n in names if n.endswith(("CMakeLists.txt", ".cmake")) and n not in own]
    return {"product sources": [n for n in names if n not in own and n not in build], "lists for the build": build,
            "kernels' own files": own}


def show(result):
    for name, value in result.items():
        if isinstance(value, list):
            print(f"{name}: {len(value)}")
            for line in value:
                print(f"    {line}")
        elif isinstance(value, dict):
            print(f"{name}: " + ", ".join(str(v) for v in value.values()))
        else:
            print(f"{name}: {value}")


def main():
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--tree", metavar="REV")
    about.add_argument("--change", metavar="REV..REV")
    about.add_argument("--json", action="store_true")
    options = about.parse_args()
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
    if options.change:
        result = change(options.change)
    else:
        result = measure(of_commit(options.tree) if options.tree else modules.of_git().files)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)


if __name__ == "__main__":
    sys.exit(main())
