#!/usr/bin/env python3
"""Records a command in a pseudo-terminal and writes it as an animated SVG.

  python3 tools/docs/terminal_svg.py OUT.svg 'SHOWN COMMAND' COMMAND [ARGUMENT...]
  python3 tools/docs/terminal_svg.py docs/start/generate.svg 'quire generate tools/demo_model/model "Tell me a story."' \\
      build/quire generate tools/demo_model/model "Tell me a story."

Each piece of output appears when it came, slowed down by SLOWER, and the picture stays when the last one is there.
The text is in the SVG itself, so it needs no script and no font file. Viewers that do not animate show all of it.
"""

import html
import os
import pty
import re
import sys
import time

COLUMNS = 96
SLOWER = 40  # the demo model answers in 40 ms
CHAR, LINE, MARGIN = 8.4, 20, 14


def record(command):
    """[(seconds, text)] of the command's output."""
    begin, pieces = time.monotonic(), []
    child, fd = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        pieces.append((time.monotonic() - begin, data.decode("utf-8", "replace").replace("\r\n", "\n")))
    os.waitpid(child, 0)
    return pieces


def words(pieces):
    """[(seconds, word)], a word being letters, blanks or one newline: what a piece holds shares the time since the piece before it."""
    out, before = [], 0.0
    for when, text in pieces:
        parts = re.findall(r"\n| +|[^ \n]+", text)
        for i, part in enumerate(parts):
            out.append((before + (when - before) * (i + 1) / len(parts), part))
        before = when
    return out


def lines_of(pieces):
    """Lines of [(seconds, word)], broken at COLUMNS."""
    lines, width = [[]], 0
    for when, word in words(pieces):
        if word == "\n" or (width + len(word) > COLUMNS and width):
            lines.append([])
            width = 0
        if word == "\n" or (not width and word.isspace()):
            continue
        lines[-1].append((when, word))
        width += len(word)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def svg(shown, pieces):
    lines = lines_of(pieces)
    height = MARGIN * 2 + LINE * (len(lines) + 2)
    width = MARGIN * 2 + CHAR * COLUMNS
    first = min((when for line in lines for when, _ in line), default=0.0)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">',
        f"<title>{html.escape(shown)}</title>",
        "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}"
        ".p{fill:#7ee787}.w{animation:a .01s both}@keyframes a{from{opacity:0}to{opacity:1}}"
        "@media(prefers-reduced-motion:reduce){.w{animation:none}}</style>",
        '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
        f'<text x="{MARGIN}" y="{MARGIN + LINE}"><tspan class="p">$ </tspan>{html.escape(shown)}</text>',
    ]
    for number, line in enumerate(lines, 2):
        spans = "".join(
            f'<tspan class="w" style="animation-delay:{0.8 + (when - first) * SLOWER:.2f}s">{html.escape(word)}</tspan>'
            for when, word in line
        )
        out.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * number}">{spans}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(svg(sys.argv[2], record(sys.argv[3:])))


if __name__ == "__main__":
    main()
