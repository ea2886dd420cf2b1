#!/usr/bin/env python3
"""Counts sentences that break the six rules of docs/internals/style.md, and fails above the limits below.

  python3 tools/check_prose.py [--list] [--commit REV] [PATH...]

Reads Markdown prose, comments of C, C++, CUDA, Rust, JavaScript, Python and shell, and C string literals that people
read (help and errors). Without PATH: every tracked file. --list prints each sentence with the rules it breaks;
--commit reads the files as they are in that commit, and checks no limit.
"""

import argparse
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import prose_text  # noqa: E402

# Highest share of flagged sentences, in per cent, for all files of a kind under a path. The first match counts.
LIMITS = [
    ("doc", "docs/internals/glossary.md", None),  # defines the old terms
    ("doc", "", 3.0),
    ("comment", "base/", 5.0),
    ("comment", "app/", 5.0),
    ("comment", "engine/", 5.0),
    ("comment", "files/", 5.0),
    ("comment", "kernels/", 5.0),
    ("comment", "memory/", 5.0),
    ("comment", "server/cache/", 5.0),
    ("comment", "server/daemon/", 5.0),
    ("comment", "server/front/", 5.0),
    ("comment", "server/http/", 5.0),
    ("comment", "server/link/", 5.0),
    ("comment", "server/similar/", 5.0),
    ("comment", "server/wire/", 5.0),
    ("comment", "tests/cache/", 5.0),
    ("comment", "tests/clients/", 5.0),
    ("comment", "tests/daemon/", 5.0),
    ("comment", "tests/engine/", 5.0),
    ("comment", "tests/front/", 5.0),
    ("comment", "tests/fuzz/", 5.0),
    ("comment", "tests/goldens/", 5.0),
    ("comment", "tests/isolated_tests.h", 5.0),
    ("comment", "tests/record/", 5.0),
    ("comment", "tests/sample", 5.0),
    ("comment", "tests/similar/", 5.0),
    ("comment", "tests/stress/", 5.0),
    ("comment", "tests/text/", 5.0),
    ("comment", "tests/tools/", 5.0),
    ("comment", "tests/wire/", 5.0),
    ("comment", "text/", 5.0),
    ("comment", "", 5.0),
    ("message", "engine/", 3.0),
    ("message", "files/", 3.0),
    ("message", "server/cache/", 3.0),
    ("message", "server/http/", 3.0),
    ("message", "server/similar/", 3.0),
    ("message", "", 3.0),
]

# Files that hold examples of what the rules forbid.
IGNORED = ("tests/tools/prose_labels.tsv", "tests/tools/prose_quotes.txt", "docs/internals/style.md")

PREPOSITION = r"(?:of|for|to|by|from|with|than|at|on|in|over|beyond|like|but|only|serves|is|not|whether|about)"

RULES = {
    # 1. A free relative ("who waits", "what is kept") as the subject or object of a sentence.
    "free-relative": [
        r"^(?:who|whoever|whatever|whom)\b",
        r"^what (?!to\b|if\b|for\b)(?:\S+ ){3,}\S",
        r"^which (?:of\b|\w+ (?:\w+ )*?(?:is|are|say)\b)",
        r"[;:(] (?:who|whoever|whatever|whom)\b (?!to\b|if\b)",
        r", (?:and |but |or )?(?:what|whoever)\b (?!to\b|is said|happens)\w+ \w+ (?:is|are|was|were)\b",
        r"\b(?:and|but|so that|that|because|until) (?:who|what|whoever|whatever) (?!to\b)",
        rf"\b{PREPOSITION} (?:who|whoever|whom)\b (?!to\b)",
        r"\b(?:is|are|was) what (?:\w+ ){0,3}(?:is|are|was|says?|said)\b",
        r"^--\S+, who\b|^[A-Z][^,]{0,30}, who\b \w+s \w+s\b",
        r"^(?:given|taken)\b",
        r"^where (?!to\b)(?:it is|it does|they|there|a part|the weights)\b",
    ],
    # 2. A genitive or another prepositional phrase moved to the front ("Of a rank's description ...").
    "fronted": [
        r"^of (?!course\b|\d)(?:\S+ ){3,}\S",
        r"; of (?!course\b)(?:a|the|its|these|those|\w+s)\b",
        r", and of (?:these|those|a|the|its)\b",
        r"^(?:beside|but for|to whom|from whom)\b",
        r", of (?:these|those|several|which it|\w+'s)\b",
    ],
    # 3. The object before the subject, or the verb at the end of a clause.
    "order": [
        r"(?<!what )\b(?:all|each|none|both|every|only|others|nobody|and the|the tensors|a (?:stage|rank)) (?:\w+ ){0,4}(?:have|has|says?|gets?|knows?|takes?|makes?|brings?|copies)(?: alike)?[.)]?$",
        r"^[A-Z]\w+ (?:\w+ ){0,8}(?:each|all|both) (?:\w+ ){1,3}(?:copies|copy|have|has|makes?|reads?|gets?)\b",
        r"\bthat \w+ has not\b|\b(?:and|but) it not for\b|\b(?:are|is) when they\b",
        r"\bhad each \w+ for\b|\bcannot \w+ out them\b|\bonly the \w+ knows?\b",
        r"\b(?:has|have|had) nothing \w+(?:ed|pt)\b|\bmay tell\b",
        r"\b(?:may|might|can|need|could), or is not\b",
        r"\bis (?:the|an?) \w+'s, (?:which|who)\b|\bare the \w+'s\b(?! own)",
        r"\bexcepted\b|\bjust what\b|\bas which\b|\bas (?:its|the|a|everything) \w+ (?:is|are|do|does|has)\b|, as everything\b",
    ],
    # 4. Negative existentials and indefinite persons ("is none", "nobody", "as ever").
    "negative": [
        r"\b(?:nobody|somebody|everybody|anybody|nobody's|somebody's|everybody's)\b",
        r"\b(?:is|are|has|have|had|was|were|be|does|finds?|tells?|gets?|wants?) none\b",
        r"\bnone (?:is|are|was|yet|of them)\b|\bnone[.;,)]|, none \w+\b",
        r"\bas ever\b|\bknows? of no\b|\bno word of\b|\bor not one\b|\bis not there\b|\bmoves? no bit\b",
        r"\b(?:does|do) not mend\b|\bhas not[,.]|\bthe like\b|\bits like\b|\bis so\b|\bare so\b|\bin vain\b",
        r"\bnothing (?:is|was) (?:told|heard|said|here)\b|\bnothing of\b",
    ],
    # 5. Programs and data that act as persons ("a rank hears", "the engine is told").
    "person": [
        r"\b(?:told|hears?|heard|knocks?|wishes|begs)\b|\btells (?!whether|how|the reader|\")",
        r"\b(?:is|are|was|has|have|not) said\b|\bsaid (?:is|was|where|so)\b|\basks? (?:no|it|of|which|for all)\b|\bit asks\b",
        r"\bgives? way\b|\btakes? (?:its|their) leave\b|\bmakes? one up\b|\blets? go\b|\bis let go\b|\bits mouth\b|\bmouth\b",
        r"\b(?:says|say) (?:so|nothing|of|with|in its|for|where|beyond)\b|\bsays the\b",
        r"\bteaches\b|\bforgotten first\b|\bmeets? (?:in|them)\b|\bcarries$|\bof unseen$|\bwants what\b|\bthinks\b",
        r"\b(?:stand|stands) (?:in the|in it|at|between|before|around)\b|\bpays\b|\blooks? on\b|\banew\b|\bhanded? round\b",
    ],
    # 6. Private vocabulary and riddles; docs/internals/glossary.md has the standard term for each.
    "private": [
        r"\blaws?\b|\brooms\b|\b(?:a|the|its|one\'s|each|their|another|what|lower|same) (?:\w+ )?room\b|\bdoors?\b|\bbeside[.,;)]|\bmodels? beside\b|\btwins?\b|\bkeepers?\b|\bpulses?\b|\baskers?\b|\bpanels?\b",
        r"\bregroup(?:s|ed|ing)?\b|\banswers again\b|\bkept answers?\b|\bthe news\b|\bcomes? new\b|\bkept on\b",
        r"\bat work\b|\blenient\b|\bin its own right\b|\bby worth\b|\bpush(?:es)? out\b",
    ],
}
COMPILED = {name: [re.compile(p, re.I) for p in patterns] for name, patterns in RULES.items()}


def rules_broken(sentence):
    """Names of the rules that a sentence breaks."""
    text = sentence.strip().lstrip("*-•>\"'([ ")
    if text.endswith("?"):  # a question is no free relative
        return [n for n in broken(text) if n != "free-relative"]
    return broken(text)


def broken(text):
    return [name for name, patterns in COMPILED.items() if any(p.search(text) for p in patterns)]


def limit_of(kind, path):
    for of_kind, prefix, limit in LIMITS:
        if kind == of_kind and path.startswith(prefix):
            return limit, prefix
    return None, ""


def tracked(commit):
    command = ["git", "ls-tree", "-r", "--name-only", commit] if commit else ["git", "ls-files"]
    return subprocess.check_output(command, text=True).split("\n")


def read(path, commit):
    if commit:
        return subprocess.check_output(["git", "show", f"{commit}:{path}"]).decode("utf-8", "replace")
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def is_prose(path):
    suffix = os.path.splitext(path)[1]
    known = suffix == ".md" or suffix in prose_text.C_LIKE or suffix in prose_text.HASH_LIKE
    return known and path not in IGNORED


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every flagged sentence")
    parser.add_argument("--files", action="store_true", help="print the share of each file that has a flagged sentence")
    parser.add_argument("--kind", choices=["doc", "comment", "message"], help="only sentences of this kind")
    parser.add_argument("--commit", help="read the files of this commit")
    parser.add_argument("paths", nargs="*", help="files or folders; all tracked files otherwise")
    args = parser.parse_args()

    paths = [p for p in tracked(args.commit) if p and is_prose(p)]
    if args.paths:
        wanted = tuple(p.rstrip("/") for p in args.paths)
        paths = [p for p in paths if p in wanted or p.startswith(tuple(w + "/" for w in wanted))]
    totals = {}
    for path in paths:
        if not args.commit and not os.path.exists(path):
            continue
        counts = {}
        for kind, line, sentence in prose_text.sentences(path, read(path, args.commit)):
            if args.kind and kind != args.kind:
                continue
            names = rules_broken(sentence)
            seen = counts.setdefault(kind, [0, 0])
            seen[0] += 1
            seen[1] += bool(names)
            if names and args.list:
                print(f"{path}:{line}: {kind}: {', '.join(names)}: {sentence}")
        for kind, (n, bad) in counts.items():
            limit, prefix = limit_of(kind, path)
            total = totals.setdefault((kind, prefix, limit), [0, 0])
            total[0] += n
            total[1] += bad
            if (args.files or args.paths) and bad:
                print(f"{100 * bad / n:5.1f} %  {bad:4d} of {n:4d}  {kind:7s}  {path}")

    failed = False
    for (kind, prefix, limit), (n, bad) in sorted(totals.items(), key=str):
        share = 100 * bad / n if n else 0.0
        over = limit is not None and share > limit and not args.commit
        failed |= over
        allowed = "no limit" if limit is None else f"limit {limit:g} %"
        print(f"{share:5.1f} %  {bad:4d} of {n:4d}  {kind:7s}  {prefix or 'everywhere'}  ({allowed})"
              + ("  ABOVE THE LIMIT" if over else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
