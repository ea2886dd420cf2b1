#!/usr/bin/env python3
"""Writes docs/reference/command-line.md from the program's own help texts, which come from its option tables.

  python3 tools/docs/command_line.py build/quire            write the page
  python3 tools/docs/command_line.py build/quire --check    status 1 if the page is out of date
"""

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/command-line.md"
SUBCOMMANDS = ("bench", "cache", "eval", "keys")  # commands whose help lists commands of their own

HEAD = """# Command line

<!-- Written by tools/docs/command_line.py from the help texts of the program. Do not edit. -->

All commands and options, as `quire COMMAND --help all` prints them. `quire COMMAND --help` shows the common ones.
"""


def help_of(program, words):
    """The complete help of a command; the plain one for a command that has no longer form."""
    for arguments in (["--help", "all"], ["--help"]):
        result = subprocess.run([program, *words, *arguments], capture_output=True, text=True, check=False)
        if result.returncode == 0 and result.stdout.strip():
            return result.stdout.rstrip()
    sys.exit(f"quire {' '.join(words)} --help failed: {result.stderr.strip()}")


def commands_in(text, command=""):
    """Names in the list of commands at the head of a help text, before its first examples."""
    head = re.split(r"^(?:Begin with|examples?:)", text, maxsplit=1, flags=re.M)[0]
    names = re.findall(rf"^  quire {command} ([a-z-]+) ", head, re.M) if command else []
    return list(dict.fromkeys(names)) or re.findall(r"^  ([a-z-]+) +\S", head, re.M)


def page(program):
    top = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout.rstrip()
    parts = [HEAD, "## quire\n", f"```text\n{top}\n```\n"]
    for command in commands_in(top):
        text = help_of(program, [command])
        parts += [f"## quire {command}\n", f"```text\n{text}\n```\n"]
        if command in SUBCOMMANDS:
            for name in commands_in(text, command):
                parts += [f"### quire {command} {name}\n", f"```text\n{help_of(program, [command, name])}\n```\n"]
    return "\n".join(parts)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    text = page(sys.argv[1])
    if "--check" in sys.argv:
        old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if text != old:
            print(f"docs/reference/command-line.md is out of date; run python3 tools/docs/command_line.py {sys.argv[1]}")
        return int(text != old)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
