#!/usr/bin/env python3
"""Writes the licences of what a package of quire contains besides Quire: libraries that were copied or linked in, and crates.

  python3 tools/package/licences.py OUT.txt CARGO LIBRARY...

LIBRARY is a file of a package of this Debian or Ubuntu, whose copyright file is copied. CARGO lists the crates of
text/Cargo.lock; their licences come from their sources. A text that several have is printed once.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def package_of(path):
    """Returns the name, version and source of the distribution's package that has this file."""
    real = str(pathlib.Path(path).resolve())
    for name in (real, real.removeprefix("/usr"), "/usr" + real):  # /lib may be a link to /usr/lib
        found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            package = found.stdout.split(": ")[0].split(",")[0]
            form = "${Package} ${Version}, source ${source:Package} ${source:Version}"
            text = subprocess.run(["dpkg-query", "-W", "-f", form, package], capture_output=True, text=True, check=True).stdout
            return text.split()[0], text
    sys.exit(f"{path} is in no package of this distribution, so its licence is unknown")


def crates(cargo):
    """Yields name, version, licence and texts of each crate that is linked in, in the order of names."""
    command = [cargo, "metadata", "--format-version", "1", "--locked", "--manifest-path", str(ROOT / "text/Cargo.toml")]
    done = subprocess.run([*command, "--offline"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    tree = json.loads(done.stdout)
    nodes = {n["id"]: n for n in tree["resolve"]["nodes"]}
    reached, left = set(), [tree["resolve"]["root"]]
    while left:
        node = left.pop()
        if node not in reached:
            reached.add(node)
            left += [d["pkg"] for d in nodes[node]["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
    for p in sorted((p for p in tree["packages"] if p["id"] in reached and p["source"]), key=lambda p: (p["name"], p["version"])):
        folder = pathlib.Path(p["manifest_path"]).parent
        files = sorted(f for f in folder.iterdir() if f.is_file() and re.match(r"(?i)(licen[cs]e|copying|notice|copyright)", f.name))
        yield p["name"], p["version"], p["license"] or "see its text", [f.read_text(errors="replace").strip() for f in files]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, cargo, *libraries = sys.argv[1:]
    rows, texts = [], {}
    for package, about in sorted({package_of(library) for library in libraries}):
        rows.append(f"{about}: text of {package}")
        copyright_file = pathlib.Path("/usr/share/doc", package, "copyright")
        texts.setdefault(copyright_file.read_text(errors="replace").strip(), []).append(package)
    for name, version, licence, own in crates(cargo):
        rows.append(f"crate {name} {version}: {licence}")
        for text in own:
            texts.setdefault(text, []).append(f"{name} {version}")
    with open(out, "w", encoding="utf-8") as f:
        print("Quire has the licence Apache-2.0. This package also contains the following, under their own licences.\n"
              "The Rust standard library is in it too: MIT or Apache-2.0.\n", file=f)
        print(*rows, sep="\n", file=f)
        for text, names in texts.items():
            print("\n" + "=" * 100 + "\n" + ", ".join(names) + "\n" + "-" * 100 + "\n" + text, file=f)


if __name__ == "__main__":
    main()
