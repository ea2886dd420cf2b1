"""Random answers under the grammar of each schema of tests/text/schemas, checked by `jsonschema`.

A random model chooses among the bytes that the mask allows, and prefers those that end strings, arrays and objects, so
that most answers finish. Every finished answer must be valid, formats included. Prints how many finished, what failed,
and the time to the normal text and to a compiled grammar (llguidance, in this process).

    v/bin/python tests/bench/structured/walks.py --archive build/cargo/release/libquire_text.a [--suite draft2020-12]

With --suite, the schemas are those of JSON-Schema-Test-Suite that Quire takes; with --random N, N random ones, made of
all keywords.
"""
import argparse
import glob
import json
import os
import random
import tempfile
import time

import jsonschema
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from engines import Quire, Refused, shared_library

# Parts of random schemas.
PARTS = [
    True, False, {}, {"type": "string"}, {"type": "integer"}, {"minimum": 3}, {"maximum": 9}, {"exclusiveMinimum": 2.5},
    {"multipleOf": 3}, {"const": "x"}, {"enum": [1, "a", None]}, {"not": {"const": "a"}}, {"minLength": 2},
    {"maxLength": 3}, {"pattern": "^a|b$"}, {"items": {"type": "integer"}}, {"minItems": 1}, {"maxItems": 2},
    {"prefixItems": [{"type": "string"}, {"type": "null"}]}, {"required": ["a"]}, {"minProperties": 1},
    {"maxProperties": 1}, {"properties": {"a": {"type": "integer"}}}, {"additionalProperties": False},
    {"unevaluatedProperties": False}, {"patternProperties": {"^a": {"type": "string"}}},
    {"propertyNames": {"pattern": "^[ab]$"}}, {"dependentRequired": {"a": ["b"]}}, {"nullable": True},
]
CLOSING = [ord(c) for c in '"]}']
PLAIN = [ord(c) for c in 'abcxyz0123456789-:.@/TZ {}[]",']
HERE = os.path.dirname(os.path.abspath(__file__))


def walk(engine, grammar, rng, limit):
    """The answer's bytes, or None if it did not finish."""
    matcher = engine.matcher(grammar)
    eos = engine.tokenizer.eos_token
    mask = allocate_token_bitmask(1, engine.tokenizer.vocab_size)
    out = bytearray()
    while len(out) < limit:
        fill_next_token_bitmask(matcher, mask)
        words = [int(w) & 0xFFFFFFFF for w in mask[0]]
        allowed = [i * 32 + b for i, w in enumerate(words) if w for b in range(32) if w >> b & 1]
        if not allowed:
            return None
        pool = allowed
        draw = rng.random()
        if eos in allowed and draw < 0.7:
            pool = [eos]
        elif draw < 0.35:
            pool = [t for t in allowed if t in CLOSING] or allowed
        elif draw < 0.95:
            pool = [t for t in allowed if t in PLAIN] or allowed
        token = rng.choice(pool)
        if token == eos:
            return bytes(out)
        if not matcher.consume_token(token):
            raise RuntimeError(matcher.get_error())
        out.append(token)
    return None


def suite(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        for case in json.load(open(path)):
            yield {"name": f"{os.path.basename(path)[:-5]}: {case['description']}", "schema": case["schema"]}


def made(rng, depth):
    """A random schema."""
    draw = rng.random()
    if depth == 0 or draw < 0.35:
        return rng.choice(PARTS)
    if draw < 0.55:
        return {rng.choice(["allOf", "anyOf", "oneOf"]): [made(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if draw < 0.62:
        return {"not": made(rng, depth - 1)}
    if draw < 0.70:
        return {key: made(rng, depth - 1) for key in ("if", "then", "else")}
    if draw < 0.80:
        out = {"type": "object", "properties": {k: made(rng, depth - 1) for k in "abc"[: rng.randint(1, 3)]}}
        out["required"] = rng.sample(["a", "b"], rng.randint(0, 2))
        return {**out, "additionalProperties": made(rng, depth - 1)} if rng.random() < 0.5 else out
    if draw < 0.86:
        return {"type": "array", "items": made(rng, depth - 1), "maxItems": 3}
    several = [made(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    return {k: v for s in several if isinstance(s, dict) for k, v in s.items()}


def widened(schema):
    """As JSON schema sees `nullable` of OpenAPI: the reference does not know it."""
    if isinstance(schema, list):
        return [widened(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: widened(v) for k, v in schema.items() if k != "nullable"}
    return {"anyOf": [out, {"type": "null"}]} if schema.get("nullable") is True else out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", default="build/cargo/release/libquire_text.a", help="libquire_text.a")
    parser.add_argument("--suite", help="the folder draft2020-12 of the suite")
    parser.add_argument("--random", type=int, metavar="N", help="so many random schemas")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--limit", type=int, default=600, help="bytes of an answer")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = Quire(shared_library(options.archive, os.path.join(folder, "normal.so")))
    rng = random.Random(options.seed)
    path = os.path.join(HERE, "../../text/schemas/schemas.jsonl")
    if options.random:
        schemas = ({"name": f"random {i}", "schema": made(rng, 3)} for i in range(options.random))
    else:
        schemas = suite(options.suite) if options.suite else map(json.loads, open(path))
    n, finished, wrong, refused, normal_ms, compile_ms = 0, 0, 0, [], [], []
    for item in schemas:
        start = time.perf_counter()
        try:
            engine.grammar(json.dumps(item["schema"]))
            normal_ms.append(1e3 * (time.perf_counter() - start))
            start = time.perf_counter()
            grammar = engine.compile(item["schema"])
            compile_ms.append(1e3 * (time.perf_counter() - start))
        except Refused as e:
            refused.append(f"{item['name']}: {str(e)[:150]}")
            continue
        plain = item["schema"] if isinstance(item["schema"], dict) else {}
        check = jsonschema.validators.validator_for(plain, jsonschema.Draft202012Validator)
        checker = None if options.suite else check.FORMAT_CHECKER
        validator = check(widened(item["schema"]), format_checker=checker)
        for _ in range(options.samples):
            n += 1
            text = walk(engine, grammar, rng, options.limit)
            if text is None:
                continue
            finished += 1
            try:
                errors = [e.message for e in validator.iter_errors(json.loads(text))]
            except ValueError as e:
                errors = [str(e)]
            if errors:
                wrong += 1
                print(f"INVALID {item['name']}: {text.decode()[:200]}\n    {errors[0][:200]}\n    {item['schema']}")
    p95 = lambda times: sorted(times)[int(0.95 * (len(times) - 1))]
    if not options.suite and not options.random:
        print("\n".join(refused))
    print(f"{len(compile_ms)} schemas, {len(refused)} refused, {n} answers, {finished} finished, {wrong} invalid")
    print(f"normal text p95 {p95(normal_ms):.2f} ms, with compilation p95 {p95(compile_ms):.2f} ms")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
