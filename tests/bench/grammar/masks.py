"""Times the masks of one choice: Quire, llguidance used directly, xgrammar. docs/benchmarks/structured.md has results.

    python3 tests/bench/grammar/masks.py MODEL_DIR [OUT.jsonl]

MODEL_DIR has a byte-level tokenizer.json with <|im_end|>. Each case is a schema and a document that matches it. Quire
walks the document by the longest tokens that its mask allows, as does llguidance in the same process and in turns
(tests/text/grammar_bench.rs, by cargo). xgrammar walks the same ids in a virtual environment in build/bench/masks. It
imports torch and transformers for types only; stand-ins take their place.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VENV = ROOT / "build/bench/masks"
PEERS = ["xgrammar==0.2.8"]
NEEDS = ["apache-tvm-ffi>=0.1.11", "pydantic>=2", "numpy>=2", "typing-extensions>=4.9"]
ROUNDS = 20


def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def cases():
    text, whole, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    status = {"enum": ["in_stock", "back_ordered", "discontinued"]}
    item = closed(sku=text, quantity=whole, unit_price=number, status=status)
    node = closed(value=text, children={"type": "array", "items": {"$ref": "#/$defs/node"}})
    tags = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 20}, "minItems": 1, "maxItems": 5}
    formats = {k: {"type": "string", "format": f} for k, f in (("created", "date-time"), ("id", "uuid"), ("mail", "email"))}
    leaf = {"value": "deep down", "children": []}
    day = {"high": 24.5, "low": 16, "sky": "few clouds, a light breeze"}
    yield "person", closed(name=text, age=whole, email=text, is_member={"type": "boolean"}), {
        "name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "is_member": True}
    yield "order", closed(order_id={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{6}$"},
                          items={"type": "array", "items": item}, total=number, note={"type": ["string", "null"]}), {
        "order_id": "ABC-123456", "items": [
            {"sku": "kettle 2l", "quantity": 2, "unit_price": 19.95, "status": "in_stock"},
            {"sku": "green tea, 250 g", "quantity": 11, "unit_price": 3.5, "status": "back_ordered"},
        ], "total": 78.4, "note": None}
    yield "tree", {"$defs": {"node": node}, "$ref": "#/$defs/node"}, {
        "value": "root of it all", "children": [
            {"value": "a first leaf", "children": []}, {"value": "second", "children": [leaf]}]}
    yield "formats", closed(**formats, tags=tags), {
        "created": "2024-05-17T12:30:00Z", "id": "123e4567-e89b-12d3-a456-426614174000",
        "mail": "someone@example.org", "tags": ["kitchen", "tea", "new in"]}
    yield "any object", {"type": "object"}, {
        "weather": {"city": "Lisbon", "days": [day, day]}, "source": None, "ok": True}


def quire(model, path):
    env = dict(os.environ, QUIRE_BENCH_TOKENIZER=str(model), QUIRE_BENCH_CASES=str(path), RUSTONIG_SYSTEM_LIBONIG="0",
               CARGO_TARGET_DIR=str(ROOT / "build/cargo"))
    command = ["cargo", "test", "--release", "--locked", "--quiet", "--manifest-path", str(ROOT / "text/Cargo.toml"),
               "--", "--ignored", "--nocapture", "grammar_bench"]
    out = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def percentiles(times):
    times = sorted(times)
    return {"n": len(times), "p50": times[(len(times) - 1) // 2] / 1e3, "p99": times[(len(times) - 1) * 99 // 100] / 1e3}


def stand_ins():
    import types

    import numpy
    torch = types.ModuleType("torch")
    torch.int32, torch.Tensor, torch.LongTensor, torch.FloatTensor = numpy.int32, *[numpy.ndarray] * 3
    torch.tensor = lambda value, dtype=None: numpy.asarray(value, dtype)
    sys.modules["torch"] = torch
    transformers = types.ModuleType("transformers")
    for name in ("PreTrainedTokenizerBase", "PreTrainedTokenizerFast", "LogitsProcessor"):
        setattr(transformers, name, type(name, (), {}))
    sys.modules["transformers"] = transformers


def xgrammar(model, path):
    """In the virtual environment. path: the cases, each with its ids."""
    import numpy
    import tvm_ffi  # noqa: F401: it must not see the stand-ins
    stand_ins()
    import xgrammar as xgr
    tokenizer = json.loads((Path(model) / "tokenizer.json").read_text())
    vocab = dict(tokenizer["model"]["vocab"])
    vocab.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    words = [""] * (max(vocab.values()) + 1)
    for word, i in vocab.items():
        words[i] = word
    info = xgr.TokenizerInfo(words, xgr.VocabType.BYTE_LEVEL, stop_token_ids=[vocab["<|im_end|>"]])
    compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    mask = numpy.full((1, (len(words) + 31) // 32), -1, numpy.int32)
    for line in Path(path).read_text().splitlines():
        case = json.loads(line)
        begin = time.perf_counter_ns()
        grammar = compiler.compile_json_schema(json.dumps(case["schema"]), any_whitespace=False, separators=(",", ":"))
        compile_ms = (time.perf_counter_ns() - begin) / 1e6
        times = []
        for _ in range(ROUNDS):
            matcher = xgr.GrammarMatcher(grammar)
            for i in case["ids"]:
                begin = time.perf_counter_ns()
                matcher.fill_next_token_bitmask(mask)
                times.append(time.perf_counter_ns() - begin)
                if not matcher.accept_token(i):
                    times = None
                    break
            if not times:
                break
        print(json.dumps({"name": case["name"], "xgrammar_compile_ms": compile_ms,
                          "xgrammar": percentiles(times) if times else None}))


def main(model, out=None):
    if not (VENV / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [str(VENV / "bin/pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run(pip + NEEDS, check=True)
        subprocess.run(pip + ["--no-deps"] + PEERS, check=True)
    path = VENV / "cases.jsonl"
    rows = [{"name": name, "schema": schema, "document": json.dumps(document, separators=(",", ":"))}
            for name, schema, document in cases()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened, *results = quire(model, path)
    for row, result in zip(rows, results):
        row["ids"] = result.pop("ids")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [str(VENV / "bin/python"), __file__, "--xgrammar", str(model), str(path)]
    peers = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for result, peer in zip(results, peers):
        result.update(json.loads(peer))
    if out:
        Path(out).write_text("".join(json.dumps(row) + "\n" for row in [opened, *results]))
    print(f"opened in {opened['open_ms']:.0f} ms: {opened['n_vocab']} ids")
    print("| schema | Quire p50 | p99 | llguidance p50 | p99 | xgrammar p50 | p99 | compiled: Quire | xgrammar |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in results:
        masks = " | ".join(f"{r[who][p]:.1f}" if r[who] else "rejects"
                           for who in ("quire", "llguidance", "xgrammar") for p in ("p50", "p99"))
        print(f"| {r['name']} | {masks} | {r['compile_ms']:.1f} ms | {r['xgrammar_compile_ms']:.1f} ms |")


if __name__ == "__main__":
    xgrammar(*sys.argv[2:]) if sys.argv[1] == "--xgrammar" else main(*sys.argv[1:])
