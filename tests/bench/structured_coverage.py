"""Which keywords of JSON schema an engine accepts and enforces: quire, llguidance and xgrammar on JSON-Schema-Test-Suite.

A case of the suite is a schema with answers that are valid and answers that are not. An engine covers a case if it takes
the schema, accepts every valid answer and no invalid one. An object may be accepted in any order of its keys, because an
engine may require its own. A schema that an engine refuses is not covered, and does no harm. An engine that accepts an
invalid answer does not enforce the schema.

    python3 -m venv v && v/bin/pip install jsonschema llguidance==1.9.1 xgrammar
    v/bin/pip download --no-deps --no-binary jsonschema jsonschema && tar xzf jsonschema-*.tar.gz
    v/bin/python tests/bench/structured_coverage.py --suite jsonschema-*/json/tests/draft2020-12 \
        --archive build/cargo/release/libquire_text.a
"""
import argparse
import collections
import glob
import itertools
import json
import os
import signal
import tempfile

from structured_engines import Llguidance, Quire, Refused, Xgrammar, shared_library

COLUMNS = ["covered", "refused", "narrow", "not enforced"]


def orders(value):
    """The value with its keys in each order, nested objects as they are."""
    if not isinstance(value, dict) or len(value) > 5:
        return [value]
    return [dict(items) for items in itertools.permutations(value.items())]


def outcome(engine, case):
    try:
        grammar = engine.compile(case["schema"])
    except Refused as e:
        return "refused", str(e)
    narrow = None
    for test in case["tests"]:
        texts = [json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in orders(test["data"])]
        accepted = any(engine.accepts(grammar, text) for text in texts)
        if accepted and not test["valid"]:
            return "not enforced", f"{test['description']}: {texts[0]}"
        if test["valid"] and not accepted:
            narrow = f"{test['description']}: {texts[0]}"
    return ("narrow", narrow) if narrow else ("covered", "")


def table(results, engines):
    head = " | ".join(f"{e.name}: {', '.join(COLUMNS)}" for e in engines)
    lines = [f"| keyword | cases | {head} |", "|---" * (2 + len(engines)) + "|"]
    total = {e.name: collections.Counter() for e in engines}
    n_cases = 0
    for keyword, by_engine in results.items():
        n = sum(by_engine[engines[0].name].values())
        n_cases += n
        cells = []
        for e in engines:
            counts = by_engine[e.name]
            total[e.name].update(counts)
            cells.append(", ".join(str(counts[c]) for c in COLUMNS))
        lines.append(f"| {keyword} | {n} | " + " | ".join(cells) + " |")
    cells = [", ".join(str(total[e.name][c]) for c in COLUMNS) for e in engines]
    lines.append(f"| all | {n_cases} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", required=True, help="the folder draft2020-12 of the suite")
    parser.add_argument("--archive", default="build/cargo/release/libquire_text.a", help="libquire_text.a")
    parser.add_argument("--engines", default="quire,llguidance,xgrammar")
    parser.add_argument("--list", metavar="OUTCOME", help="print the cases of the first engine with this outcome")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = shared_library(options.archive, os.path.join(folder, "normal.so"))
        makers = {"quire": lambda: Quire(library), "llguidance": Llguidance, "xgrammar": Xgrammar}
        engines = [makers[name]() for name in options.engines.split(",")]
    results = {}
    for path in sorted(glob.glob(os.path.join(options.suite, "*.json"))):
        keyword = os.path.basename(path)[:-5]
        by_engine = results.setdefault(keyword, {e.name: collections.Counter() for e in engines})
        for case in json.load(open(path)):
            for i, engine in enumerate(engines):
                signal.alarm(60)
                what, why = outcome(engine, case)
                by_engine[engine.name][what] += 1
                if i == 0 and what == options.list:
                    print(f"{keyword}: {case['description']}: {why[:160]}\n    {json.dumps(case['schema'])[:200]}")
    print(table(results, engines))


if __name__ == "__main__":
    main()
