"""Takes sentences out of files: Markdown prose, comments, and the string literals of C that users see.

sentences(path, text) yields (kind, line, sentence); kind is "doc", "comment" or "message". Code spans become `x`.
"""

import re

C_LIKE = {".c", ".h", ".cc", ".cu", ".cuh", ".rs", ".js"}
HASH_LIKE = {".py", ".sh", ".cmake", ".yaml", ".yml"}

SPLIT = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z`\"'(\[]|[0-9]+ [a-z])")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|Fig|No|approx)\.$")
CODE_LIKE = re.compile(r"[;{}=]\s*$|^\s*(?:if|for|while|return|#include|struct|static)\b.*[;{(]")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
FENCE = re.compile(r"^\s*(```|~~~)")


def plain(text):
    """Prose without markup: code spans become `x`, links their text."""
    text = re.sub(r"``.+?``|`[^`]+`", "`x`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    text = re.sub(r"<https?://[^>]*>|https?://\S+", "`x`", text)
    text = re.sub(r"\*\*|__|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)", "", text)
    return re.sub(r"\s+", " ", text).strip()


def words(text):
    return re.findall(r"[A-Za-z][A-Za-z'’-]*", text)


def split(paragraph):
    start = 0
    for found in SPLIT.finditer(paragraph):
        if ABBREVIATION.search(paragraph[: found.start()]):
            continue
        yield paragraph[start : found.end()].strip()
        start = found.end()
    yield paragraph[start:].strip()


def blocks_of_markdown(text):
    """Paragraphs, list items, headings and table cells with the line each begins on."""
    block, begin, fenced, after_blank, in_list = [], 1, False, True, False
    for number, line in enumerate(text.split("\n"), 1):
        if FENCE.match(line):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        indented_code = re.match(r"^(    |\t)", line) and after_blank and not in_list
        if indented_code:
            continue
        starts_item = re.match(r"^\s*(?:[-*+]|\d+\.)\s+", line)
        is_table = line.lstrip().startswith("|")
        is_heading = re.match(r"^#+ ", line)
        if (not line.strip() or starts_item or is_table or is_heading) and block:
            yield begin, " ".join(block)
            block = []
        after_blank = not line.strip()
        if after_blank:
            continue
        if starts_item:
            in_list = True
            line = line[starts_item.end() :]
        elif not line.startswith(" "):
            in_list = False
        if is_table:
            if not re.match(r"^[\s|:-]+$", line):
                for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                    yield number, cell
            continue
        if is_heading:
            yield number, line.lstrip("# ")
            continue
        if line.startswith("<"):
            continue
        if not block:
            begin = number
        block.append(line.strip().lstrip("> "))
    if block:
        yield begin, " ".join(block)


def blocks_of_c(text):
    """Comments (consecutive // lines are one) and string literals (adjacent ones are one)."""
    comment, at, last_end = [], 0, -1
    literal, literal_at, literal_end = [], 0, -1
    for found in COMMENT_OR_STRING.finditer(text):
        piece = found.group(0)
        line = text.count("\n", 0, found.start()) + 1
        own_line = not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        if piece.startswith("//"):
            body = piece.lstrip("/!").strip()
            follows = comment and own_line and not text[last_end : found.start()].strip()
            if not follows or not body:
                if comment:
                    yield "comment", at, " ".join(comment)
                comment, at = [], line
            if body:
                comment.append(body)
            last_end = found.end()
        elif piece.startswith("/*"):
            body = "\n".join(part.strip().lstrip("*").strip() for part in piece[2:-2].split("\n"))
            for part in re.split(r"\n\s*\n", body):
                yield "comment", line, part.replace("\n", " ")
        elif piece.startswith('"'):
            gap = text[literal_end : found.start()] if literal else "x"
            if literal and not re.sub(r"\bPRI\w+\b|\\", "", gap).strip():
                literal.append(piece[1:-1])
            else:
                if literal:
                    yield "message", literal_at, "".join(literal)
                literal, literal_at = [piece[1:-1]], line
            literal_end = found.end()
    if comment:
        yield "comment", at, " ".join(comment)
    if literal:
        yield "message", literal_at, "".join(literal)


def blocks_of_script(text, python):
    comment, at = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r"^\s*#(?!!)\s?(.*)$", line) or re.match(r"^.*?\S\s{1,}# (.*)$", line)
        own = bool(re.match(r"^\s*#", line))
        if not found or not own or not found.group(1).strip():
            if comment:
                yield "comment", at, " ".join(comment)
            comment = []
        if found and found.group(1).strip():
            if not comment:
                at = number
            comment.append(found.group(1).strip())
    if comment:
        yield "comment", at, " ".join(comment)
    if python:
        for found in re.finditer(r'^\s*(?:r?)"""(.*?)"""', text, re.S | re.M):
            line = text.count("\n", 0, found.start(1)) + 1
            for part in re.split(r"\n\s*\n", found.group(1)):
                yield "comment", line, part.replace("\n", " ")


def is_message(text):
    """Whether a string literal of C is prose for people: words with spaces, not code, JSON, SQL or shaders."""
    if len(words(text)) < 4 or text.count(" ") < 3:
        return False
    if re.search(r'[{}<>]|\\"[a-z_]+\\":|SELECT |INSERT |CREATE |UPDATE |DELETE |asm|\bint\b.*\(|PRAGMA', text):
        return False
    letters = sum(c.isalpha() or c == " " for c in text)
    return letters >= 0.7 * len(text)


def clean_message(text):
    text = text.replace("\\n", " ").replace("\\t", " ").replace('\\"', '"')
    return re.sub(r"%[-+ #0-9.*]*(?:hh|h|ll|l|z|j|t)?[diouxXfFeEgGaAcspn]", "`x`", text)


def blocks(path, text):
    suffix = path[path.rfind(".") :] if "." in path.split("/")[-1] else ""
    if suffix == ".md":
        for line, block in blocks_of_markdown(text):
            yield "doc", line, block
    elif suffix in C_LIKE:
        for kind, line, block in blocks_of_c(text):
            if kind == "message":
                if suffix not in (".c", ".h") or not is_message(block):
                    continue
                block = clean_message(block)
            yield kind, line, block
    elif suffix in HASH_LIKE or path.endswith("CMakeLists.txt"):
        yield from blocks_of_script(text, suffix == ".py")


def sentences(path, text):
    for kind, line, block in blocks(path, text):
        for sentence in split(plain(block)):
            if not words(sentence) or (kind != "doc" and len(words(sentence)) < 3):
                continue
            if kind == "comment" and CODE_LIKE.search(sentence):
                continue
            yield kind, line, sentence
