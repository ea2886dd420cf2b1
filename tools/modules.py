"""Checks includes, calls, and the sizes of folders and files. tools/check_modules.sh runs it.

docs/internals/architecture.md draws the modules and gives the reasons. A module is a path prefix; a file belongs to
the longest one that fits. A file sees its includes and their includes, recursively: a public header that includes a
lower module makes it visible to every includer.
"""
import collections
import os
import re
import subprocess
import sys

BASE = "base/"
# The engine's public headers, as app/ sees them: its options, to open an engine, to observe it, to plan its memory.
ENGINE_OPTIONS = "base/ memory/ scheduler/ speculation/ engine/"
ENGINE_OPEN = ENGINE_OPTIONS + " request/"
ENGINE_WATCH = ENGINE_OPEN + (" engine/model/model.h engine/model/config.h engine/model/facts.h engine/model/shard.h engine/model/layer.h engine/model/experts/experts.h"
                              " engine/model/outputs.h engine/model/rope.h engine/model/quantization/quantization.h"
                              " kernels/format.h kernels/gemm_form.h")
ENGINE_PLAN = ENGINE_WATCH + " engine/checkpoint/checkpoint.h engine/model/describe.h kernels/devices.h kernels/planner.h"
ENGINE_RECORDER = " engine/record/recorder.h engine/record/shadow.h engine/record/shadow_stats.h"
# front.h and front_model.h, and what they include.
FRONT = " text/ server/wire/ server/link/ server/front/front.h server/front/front_model.h server/front/model_about.h server/front/tenant/tenants.h server/front/tenant/bucket.h"
ENGINE_PARTS = "base/ files/ request/ memory/ scheduler/ speculation/ kernels/ text/"
# module: the modules and the single headers that its files may see besides itself. The modules that a module may include
# do not extend to inner modules with their own line, unless stated.
MODULES = {
    "base/": "",
    "request/": "base/",
    "files/": "base/",
    "memory/": "base/",
    "scheduler/": "base/ request/ memory/ scheduler/policies/",
    "scheduler/policies/": "base/ request/ memory/ scheduler/",
    "speculation/": "base/",
    "parallel/": "base/",
    "parallel/hosts/": "base/ parallel/",
    "text/": "base/ files/",
    # backend.h is the interface, and host/ is shared by backends on host memory; a backend includes no other, except
    # that cpu uses the reference code for what need not be fast. backend.c and plan.c find them.
    "kernels/": "base/ kernels/host/ kernels/ref/ kernels/cpu/ kernels/cuda/host/ kernels/cuda/plan/",
    "kernels/host/": "base/ kernels/",
    "kernels/ref/": "base/ kernels/ kernels/host/",
    "kernels/cpu/": "base/ kernels/ kernels/host/ kernels/ref/",
    "kernels/cuda/": "base/ kernels/ kernels/cuda/host/ kernels/cuda/plan/",
    "kernels/cuda/hopper/": "base/ kernels/ kernels/cuda/ kernels/cuda/host/ kernels/cuda/plan/",
    "kernels/cuda/host/": "base/ kernels/ kernels/cuda/ kernels/cuda/plan/",
    "kernels/cuda/plan/": "base/ kernels/",
    "kernels/cases/": "base/ kernels/",
    # engine.h and the headers beside it are the public ones; record/ observes through them and does not depend on run/.
    "engine/": ENGINE_PARTS + " engine/checkpoint/ engine/model/",
    "engine/checkpoint/": "base/ files/ kernels/",
    "engine/model/": "base/ files/ request/ kernels/ engine/checkpoint/",
    "engine/plan/": "base/ files/ request/ memory/ scheduler/ speculation/ kernels/ engine/ engine/checkpoint/ engine/model/",
    "engine/identity/": "base/ files/ request/ kernels/ engine/ engine/checkpoint/ engine/model/",
    "engine/forward/": "base/ files/ request/ memory/ scheduler/ speculation/ kernels/ engine/ engine/checkpoint/ engine/model/",
    # The public header grammars.h is all that it sees of a tokenizer.
    "engine/grammar/": "base/ kernels/ engine/",
    "engine/ranks/": "base/ files/ request/ memory/ scheduler/ speculation/ parallel/ parallel/hosts/ kernels/ engine/ engine/checkpoint/ engine/model/ engine/forward/",
    "engine/run/": ENGINE_PARTS + " parallel/ parallel/hosts/ engine/ranks/ engine/grammar/ engine/identity/ engine/ engine/checkpoint/ engine/model/ engine/forward/",
    "engine/record/": ENGINE_PARTS + " engine/ engine/checkpoint/ engine/model/",
    "server/http/": "base/",
    "server/wire/": "base/ request/",
    "server/link/": "base/ request/ server/wire/",
    "server/similar/": "base/",
    "server/cache/": "base/ request/ server/wire/ server/link/ server/similar/",
    "server/daemon/": "base/ request/ server/wire/ engine/ engine/record/",
    # Tenants and metrics do not depend on requests. Errors are the lowest layer of the front end.
    "server/front/api/api_error.": "base/ server/http/ server/front/output/json_out.",
    "server/front/api/ui_page.": "base/ server/http/",
    "server/front/output/json_out.": "base/",
    # Which web pages may use a server: the front end's and the gateway's.
    "server/front/api/cors.": "base/ server/http/",
    "server/front/api/foreign.": "base/ server/http/ server/front/api/cors. server/front/api/api_error. server/front/output/json_out.",
    # Notations of models: no request, no reply.
    "server/front/tools/": "base/ text/ server/front/output/json_out.",
    "server/front/tenant/": "base/ request/ server/http/ server/wire/ server/front/api/api_error. server/front/output/json_out.",
    "server/front/observe/": "base/ request/ server/wire/ server/link/ server/similar/ server/cache/ server/front/tenant/ server/front/output/json_out.",
    "server/front/": "base/ request/ speculation/ text/ server/http/ server/wire/ server/link/ server/similar/ server/cache/ server/front/tenant/ server/front/observe/"
                     " server/front/api/api_error. server/front/api/ui_page. server/front/api/cors. server/front/api/foreign. server/front/output/json_out. server/front/tools/",
    # The gateway. Its lower modules know neither a request nor a connection; the rest joins them.
    "server/gateway/file/": "base/",
    "server/gateway/experiment/assign.": "base/ server/gateway/file/",
    "server/gateway/experiment/": "base/ server/gateway/file/ server/gateway/experiment/assign.",
    "server/gateway/route/": "base/ server/gateway/file/ server/gateway/experiment/assign.",
    "server/gateway/target/": "base/",
    "server/gateway/remote/": "base/",
    "server/gateway/account/": "base/ server/http/ server/front/api/api_error. server/front/output/json_out. server/gateway/file/",
    "server/gateway/upstream_json.": "base/ text/",
    "server/gateway/messages/": "base/ text/ server/http/ server/front/api/api_error. server/front/output/json_out. server/gateway/upstream_json.",
    "server/gateway/batcher/": "base/ text/ server/front/output/json_out. server/gateway/upstream_json.",
    "server/gateway/": "base/ request/ text/ server/http/ server/wire/ server/front/tenant/ server/front/api/api_error. server/front/api/ui_page. server/front/api/cors. server/front/api/foreign."
                       " server/front/output/json_out."
                       " server/gateway/file/ server/gateway/experiment/ server/gateway/experiment/assign. server/gateway/route/ server/gateway/target/ server/gateway/remote/ server/gateway/account/"
                       " server/gateway/upstream_json. server/gateway/messages/ server/gateway/batcher/",
    # Work in bulk: run/ runs the lines of one batch, the rest keeps batches and has their routes.
    "server/bulk/run/": "base/ text/ server/front/output/json_out. server/gateway/remote/",
    "server/bulk/": "base/ text/ server/http/ server/wire/frame.h server/front/tenant/ server/front/api/api_error. server/front/api/ui_page. server/front/output/json_out. server/gateway/remote/ server/bulk/run/",
    # The program. A part sees no private header of the engine, of the front end or of another part, and no tool.
    "app/": "base/ request/ engine/ app/command/",
    "app/command/": "base/",
    "app/models/": "base/",
    "app/warm/": "base/",
    "app/flags/": ENGINE_OPTIONS + " kernels/format.h kernels/gemm_form.h kernels/open.h app/command/ app/models/",
    "app/watch/": ENGINE_WATCH + ENGINE_RECORDER + " app/command/",
    "app/serving/": ENGINE_WATCH + " files/ text/ server/front/model_about.h server/wire/frame.h server/front/tenant/tenants.h server/front/tenant/bucket.h server/bulk/bulk.h app/command/",
    "app/companion/": ENGINE_PLAN + ENGINE_RECORDER + FRONT + " files/ server/daemon/ app/command/ app/models/ app/serving/ app/watch/",
    "app/serve/": ENGINE_PLAN + ENGINE_RECORDER + FRONT + " server/daemon/ server/http/address.h server/http/tls.h server/similar/"
                  " server/cache/response_cache.h server/cache/similar.h server/cache/store/store.h server/cache/stats_rows.h server/cache/latency.h"
                  " server/cache/vector_stream.h"
                  " server/cache/redis/url.h server/front/api/cors. server/front/api/foreign. server/front/api/api_error."
                  " server/front/output/json_out. server/front/observe/cache_metrics.h"
                  " server/bulk/bulk.h server/http/local_listener.h app/companion/ app/command/ app/flags/ app/models/ app/serving/ app/warm/ app/watch/",
    "app/gateway/": ENGINE_PLAN + ENGINE_RECORDER + FRONT + " server/http/ server/cache/response_cache.h server/cache/similar.h server/cache/store/store.h"
                    " server/cache/stats_rows.h server/cache/latency.h server/cache/vector_stream.h server/cache/redis/url.h server/similar/"
                    " server/front/observe/cache_metrics.h server/front/api/api_error. server/front/api/cors. server/front/output/json_out."
                    " server/gateway/gateway.h server/gateway/file/ server/gateway/experiment/ server/gateway/experiment/assign. server/gateway/account/ server/gateway/route/"
                    " server/bulk/bulk.h app/serve/ app/companion/ app/command/ app/flags/ app/models/ app/serving/ app/warm/ app/watch/",
    # Lines of requests that a command runs: on a model in this process, whose options are those of a target, or at a URL.
    "app/bulk/": ENGINE_PLAN + ENGINE_RECORDER + FRONT + " server/cache/response_cache.h server/cache/similar.h server/cache/store/store.h"
                 " server/cache/stats_rows.h server/cache/latency.h server/cache/vector_stream.h server/cache/redis/url.h server/similar/"
                 " server/front/observe/cache_metrics.h server/front/output/json_out. server/http/address.h server/gateway/remote/ server/bulk/bulk.h server/bulk/run/ app/gateway/ app/serve/"
                 " app/companion/ app/command/ app/flags/ app/models/ app/serving/ app/watch/",
    "app/batch/": "base/ server/bulk/run/results.h app/bulk/ app/command/ app/warm/",
    "app/map_reduce/": "base/ server/bulk/run/results.h app/bulk/ app/command/",
    "app/engine/": ENGINE_WATCH + ENGINE_RECORDER + " engine/model/describe.h server/wire/ server/link/supervisor.h server/daemon/ server/front/tenant/tenants.h"
                   " server/front/tenant/bucket.h app/command/ app/flags/ app/models/ app/serving/ app/watch/",
    "app/generate/": ENGINE_PLAN + " text/ engine/record/shadow_stats.h server/wire/ server/link/completion_source.h server/link/engine_client.h"
                     " server/daemon/ app/command/ app/flags/ app/models/ app/serving/ app/watch/",
    "app/plan/": ENGINE_PLAN + FRONT + " app/companion/ app/command/ app/flags/ app/models/",
    "app/ps/": "base/ app/command/ app/serving/",
    "app/replay/": ENGINE_PLAN + " engine/record/recording.h engine/record/records.h engine/record/digest.h engine/record/seqs.h kernels/kv.h"
                   " app/command/ app/flags/ app/models/ app/serving/",
    # "*": every module, except those below the paths after a "!" that are not listed themselves. Tools for developers see
    # of app/ only what commands share.
    "tools/": "* !app/ app/command/ app/flags/ app/models/",
    "tools/eval/": "* !app/ app/command/ app/models/",
    "tools/cache/": "* !app/ app/command/ app/models/ app/warm/",
    # Numbers alone: no files, no model.
    "tools/quantize/methods/": "base/ kernels/ engine/model/quantization/row_threads.h",
    "tools/quantize/writer/": "base/ kernels/ tools/quantize/methods/",
    "tools/quantize/": "* !app/ app/command/ app/models/",
    "tools/hub/": "base/ app/command/ app/models/",
    "tests/": "*",
}

# Known violations: includes, and files that call each other in a circle. This list must only become shorter.
KNOWN = set()
KNOWN_CIRCLES = []

PURE = ("memory/", "scheduler/", "speculation/")
NOT_PURE = re.compile(r"^(time|pthread|stdio|unistd|threads|sys/.*|fcntl|signal)\.h$")
SOURCES = (".c", ".h", ".cu", ".cuh", ".cc", ".rs", ".py", ".sh", ".js", ".css")
MAX_FILES = 29  # of a folder: sources that people write
MAX_LINES = 900
TOP = set("app base files request engine kernels memory parallel scheduler speculation server text tests tools docs packaging README.md LICENSE "
          "CHANGELOG.md CONTRIBUTING.md CMakeLists.txt CMakePresets.json .gitignore .dockerignore .ci .clang-format".split())

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)', re.M)
COMMENT = re.compile(r'/\*.*?\*/', re.S)
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
DEFINED = re.compile(r"^(?!static\b|return\b|else\b|typedef\b)[A-Za-z_][\w \t\*]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)
DECLARED = re.compile(r"\b(\w+)\([^;{}]*\)\s*(?:__attribute__[^;]*)?;")


class Tree:
    """files: path -> text, of everything under git."""

    def __init__(self, files):
        self.files = files
        self.c_files = [f for f in files if f.endswith((".c", ".h", ".cu", ".cuh", ".cc"))]
        self.own, self.system = {}, {}
        for f in self.c_files:
            found = INCLUDE.findall(files[f])
            self.own[f] = [own for own, _ in found if own]
            self.system[f] = [system for _, system in found if system]
        self.seen = {}

    def sees(self, f):
        """Every own header that f sees -> the file that includes it."""
        if f not in self.seen:
            found, todo = {}, [f]
            while todo:
                at = todo.pop()
                for header in self.own.get(at, ()):
                    if header not in found:
                        found[header] = at
                        todo.append(header)
            self.seen[f] = found
        return self.seen[f]


def module_of(path):
    fits = [module for module in MODULES if path.startswith(module)]
    return max(fits, key=len) if fits else None


def arrows(tree):
    told = set()
    for f in tree.c_files:
        module = module_of(f)
        if module is None:
            yield f"{f} is in no module"
            continue
        may = MODULES[module].split()
        closed = tuple(path[1:] for path in may if path.startswith("!"))
        if may == ["*"]:
            continue
        for header, by in sorted(tree.sees(f).items()):
            if "/" not in header:
                yield f'{f} includes "{header}" without its module'
                continue
            other = module_of(header)
            if "*" in may and not header.startswith(closed):
                continue
            if other == module or other in may or header in may or f"{module} -> {other}" in KNOWN:
                continue
            if (module, other) in told:
                continue
            told.add((module, other))
            way = "" if by == f else f", by way of {by}"
            yield f"{f} may not see {header} ({module} -> {other}){way}"


def purity(tree):
    for f in tree.c_files:
        if not f.startswith(PURE):
            continue
        for at in [f, *tree.sees(f)]:
            for header in tree.system.get(at, ()):
                if NOT_PURE.match(header):
                    yield f"{f} is in a pure module and sees <{header}>" + ("" if at == f else f", by way of {at}")


def cuda(tree):
    """CUDA, and the emulator behind its headers' names, are used in one folder."""
    for f in tree.c_files:
        if not f.startswith(("kernels/cuda/", "tests/", "tools/gpu_limits.cu")):
            for header in tree.system[f]:
                if header.startswith(("cuda", "cublas", "simt")):
                    yield f"{f} includes <{header}>: CUDA's headers are for kernels/cuda only"


def calls(tree):
    """source -> {other source: a function of it that the first one calls}, outside tests."""
    code = {f: NOT_CODE.sub(" ", t) for f, t in tree.files.items() if f in tree.own and not f.startswith("tests/")}
    defined, declared = collections.defaultdict(set), collections.defaultdict(set)
    for f, text in code.items():
        if f.endswith((".c", ".cu")):
            for name in DEFINED.findall(text):
                defined[name].add(f)
    for f, text in code.items():
        if f.endswith((".h", ".cuh")):
            for name in DECLARED.findall(text):
                declared[name].add(f)
    graph = {}
    for f, text in code.items():
        if f.endswith((".c", ".cu")):
            graph[f], sees = {}, tree.sees(f)
            for name in set(re.findall(r"(?<!struct )\b\w+\b", text)):
                if name in defined and f not in defined[name] and any(h in sees for h in declared[name]):
                    for other in defined[name]:
                        graph[f][other] = name
    return graph


def components(graph):
    """Tarjan's: sets of nodes that all reach each other."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for v in graph:
        if v not in index:
            visit(v)
    return found


def circles(tree):
    graph = calls(tree)
    for part in components(graph):
        steps = [f"{a} calls {graph[a][b]}() of {b}" for a in part for b in sorted(graph[a]) if b in part]
        if not any(set(part) <= set(known.split()) for known in KNOWN_CIRCLES):
            yield "these files call each other in a circle: " + "; ".join(steps)


def sizes(tree):
    folders = collections.Counter(os.path.dirname(f) for f in tree.files if f.endswith(SOURCES))
    for folder, n in sorted(folders.items()):
        if n > MAX_FILES and not folder.startswith("tests/fuzz/corpus"):
            yield f"{folder} has {n} source files: more than one module? (at most {MAX_FILES})"
    for f in tree.files:
        if f.endswith(SOURCES):
            n = tree.files[f].count("\n")
            if n > MAX_LINES:
                yield f"{f} has {n} lines: more than one job?"


def top(tree):
    for entry in sorted({f.split("/")[0] for f in tree.files}):
        if entry not in TOP:
            yield f"{entry} does not belong at the top"


def known_is_needed(tree):
    """Entries of the list of known violations that are fixed must be removed."""
    seen = {f"{module_of(f)} -> {module_of(h)}" for f in tree.c_files for h in tree.sees(f) if "/" in h}
    for known in sorted(KNOWN - seen):
        yield f"tools/modules.py: KNOWN: '{known}' is no longer so: take it off"
    in_circles = {f for part in components(calls(tree)) for f in part}
    for f in " ".join(KNOWN_CIRCLES).split():
        if f not in in_circles:
            yield f"tools/modules.py: KNOWN_CIRCLES: {f} calls in no circle any more: take it off"


def of_git():
    names = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
    files = {}
    for name in names:
        if os.path.isfile(name):
            with open(name, encoding="utf-8", errors="replace") as f:
                files[name] = f.read() if name.endswith(SOURCES) else ""
    return Tree(files)


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
    tree = of_git()
    bad = [line for check in (arrows, purity, cuda, circles, sizes, top, known_is_needed) for line in check(tree)]
    for line in bad:
        print(f"modules: {line}", file=sys.stderr)
    if not bad:
        print("modules: every arrow points down")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
