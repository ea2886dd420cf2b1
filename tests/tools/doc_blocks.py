"""The blocks of a page of the documentation that tests run as they stand."""

import re
import typing


class Block(typing.NamedTuple):
    heading: str  # the last heading above it, without its marks
    line: int
    language: str
    text: str


def blocks(page):
    """All fenced blocks of a page, in their order."""
    found, heading, opened = [], "", None
    for number, line in enumerate(page.splitlines(keepends=True), 1):
        if opened:
            if line.startswith("```"):
                found.append(Block(heading, opened[0], opened[1], "".join(opened[2])))
                opened = None
            else:
                opened[2].append(line)
        elif fence := re.match(r"```(\w*)", line):
            opened = number + 1, fence.group(1), []
        elif mark := re.match(r"#+ (.*)", line):
            heading = mark.group(1)
    return found


def block(page, language):
    """The text of the first block of a language."""
    return next(b.text for b in blocks(page) if b.language == language)
