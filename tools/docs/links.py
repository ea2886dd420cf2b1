#!/usr/bin/env python3
"""Checks links: every relative link and anchor in Markdown files, and every docs/ path that a source file names.

  python3 tools/docs/links.py

It uses no network. Addresses on the web are not checked.
"""

import os
import posixpath
import re
import subprocess
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
NAMED = re.compile(r"(?<![\w/.])docs/[\w./-]+\.(?:md|json|svg|png|txt|yml)\b")
# Files that name documents of other repositories, of earlier versions, or as examples.
SKIP = ("docs/benchmarks/house/", "tests/speculation/pages/", "tests/tools/", "tools/docs/")


def anchors(path, cache={}):
    """The anchors of a page, as GitHub makes them from headings, and explicit ids."""
    if path not in cache:
        found, fenced = set(), False
        with open(path, encoding="utf-8") as file:
            for line in file:
                fenced ^= line.lstrip().startswith("```")
                found.update(re.findall(r'<a id="([^"]+)"', line))
                heading = re.match(r"#+ (.*)", line)
                if heading and not fenced:
                    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).strip().lower()
                    found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
        cache[path] = found
    return cache[path]


def without_code(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def check_page(path, text):
    for found in LINK.finditer(without_code(text)):
        target = found.group(1) or found.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
        if not os.path.exists(there):
            yield f"{path}: {target}: there is no such file"
        elif anchor and there.endswith(".md") and anchor not in anchors(there):
            yield f"{path}: {target}: there is no such heading"


def main():
    bad = []
    for path in subprocess.check_output(["git", "ls-files"], text=True).split("\n"):
        if not path or not os.path.isfile(path) or path.startswith(SKIP) or path.endswith((".json", ".jsonl", ".svg")):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue
        if path.endswith(".md"):
            bad += check_page(path, text)
        for name in sorted(set(NAMED.findall(text))):
            if not os.path.exists(name):
                bad.append(f"{path}: names {name}, which does not exist")
    print("\n".join(bad) if bad else "links: all lead somewhere")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
