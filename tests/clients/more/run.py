"""Runs the cases of this folder against build/quire and prints their results. Called by run.sh, which installs clients."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from conftest import MODEL, Server  # noqa: E402

FEATURES = ["chat", "stream", "JSON schema", "JSON schema, stream", "JSON mode", "prompted", "grammar", "tools",
            "tools, strict", "tools, stream", "thinking", "thinking, stream", "errors", "facts"]
CELLS = {"pass": "yes", "FAIL": "FAIL", "unsupported": "no"}


def options():
    p = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    p.add_argument("installed", type=pathlib.Path, help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true", help="a line of JSON for each case")
    p.add_argument("--markdown", action="store_true", help="the table of the documentation")
    p.add_argument("--only", default="", metavar="WORDS", help="cases whose client and feature contain WORDS")
    return p.parse_args()


def commands(installed):
    """The programs that run the cases, each with one client's name."""
    found = []
    for path in sorted(HERE.glob("with_*.py")):
        venv = "llamaindex" if path.stem == "with_llamaindex" else "python"
        found.append([str(installed.resolve() / venv / "bin" / "python"), str(path)])
    node = shutil.which("node")
    if node and (installed / "node" / "node_modules").is_dir():
        for path in sorted(HERE.glob("*.mjs")):
            shutil.copy(path, installed / "node")  # beside node_modules, where imports are looked up
            if path.stem != "cases":
                found.append([node, str(installed / "node" / path.name)])
    return found, bool(node)


def model_with_tools(folder):
    """The demo model with a chat template that shows tools, so that their format is detected."""
    for path in MODEL.iterdir():
        (folder / path.name).symlink_to(path)
    shutil.copy(HERE / "chat_template.jinja", folder)
    return folder


def results_of(command, url, only, installed):
    """The lines of one program. A program that ends early is a failed case."""
    name = pathlib.Path(command[-1]).name
    # Compiled modules make the second run faster; they stay out of the sources.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network otherwise
    environment["PYTHONPYCACHEPREFIX"] = str(installed.resolve() / "pycache")
    done = subprocess.run([*command, url, only], env=environment, capture_output=True, text=True, timeout=600)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"client"')]
    if done.returncode or any(line["result"] == "FAIL" for line in lines):
        print(f"== {name}\n{done.stderr}", file=sys.stderr)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        lines.append({"client": name, "version": "", "feature": "chat", "case": "", "result": "FAIL", "why": last[:300]})
    return lines


def cells(results):
    """{(client, version): {feature: result}}: the worst result of a feature's cases counts."""
    table = {}
    for r in results:
        row = table.setdefault((r["client"], r["version"]), {})
        order = list(CELLS)
        if r["feature"] not in row or r["result"] == "FAIL" or order.index(r["result"]) > order.index(row[r["feature"]]):
            row[r["feature"]] = r["result"]
    return table


def print_table(results):
    table = cells(results)
    width = max(len(f"{c} {v}") for c, v in table)
    print(" " * width, *FEATURES, sep="  ")
    for (client, version), row in table.items():
        print(f"{client} {version}".ljust(width), *(CELLS.get(row.get(f), "-").ljust(len(f)) for f in FEATURES), sep="  ")
    for r in results:
        if r["result"] == "unsupported":
            print(f"not supported by the server: {r['client']}, {r['feature']}: {r['why']}")
    for r in results:
        if r["result"] == "FAIL":
            print(f"FAIL: {r['client']}, {r['feature']} ({r['case']}): {r['why']}")


def print_markdown(results):
    print("| client |", " | ".join(FEATURES), "|")
    print("|---|" + "---|" * len(FEATURES))
    for (client, version), row in cells(results).items():
        print(f"| {client} {version} |", " | ".join(CELLS.get(row.get(f), "–") for f in FEATURES), "|")
    reasons = sorted({r["why"] for r in results if r["result"] == "unsupported"})
    if reasons:
        print(f"\n`no`: not supported by the server: {', '.join(reasons)}.")


def main():
    o = options()
    programs, has_node = commands(o.installed)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        model = model_with_tools(pathlib.Path(folder))
        server = Server("serve", model, "--port", "0", "--served-model-name", "demo", "--max-model-len", "2048")
        try:
            for command in programs:
                results += results_of(command, server.url, o.only, o.installed)
        finally:
            ended = server.stop()
    if o.json:
        print("\n".join(json.dumps(r) for r in results))
    elif results:
        (print_markdown if o.markdown else print_table)(results)
    failed = sum(r["result"] == "FAIL" for r in results)
    unsupported = sum(r["result"] == "unsupported" for r in results)
    print(f"{len(results) - failed - unsupported} passed, {failed} failed, {unsupported} not supported by the server"
          + ("" if has_node else "; without Node.js its clients did not run"), file=sys.stderr)
    if ended != 0:
        sys.exit(f"the server ended with {ended}:\n{server.output()}")
    sys.exit(1 if failed or not results else 0)


if __name__ == "__main__":
    main()
