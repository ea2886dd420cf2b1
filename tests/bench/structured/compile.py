"""The time from a schema to a compiled grammar with its first mask: Quire, llguidance used directly, xgrammar.

    python3 tests/bench/structured/compile.py MODEL_DIR [OUT.jsonl]

The schemas are those of tests/text/schemas. MODEL_DIR has a byte-level tokenizer.json with <|im_end|>. Quire and
llguidance run in one process and in turns (tests/text/compile_bench.rs, by cargo), xgrammar in the virtual environment
of ../grammar/masks.py, which must have run. Each time is the median of five.
"""
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "tests/text/schemas/schemas.jsonl"
sys.path.insert(0, str(ROOT / "tests/bench/grammar"))
import masks  # noqa: E402


def quire(model):
    env = dict(os.environ, QUIRE_BENCH_TOKENIZER=str(model), QUIRE_BENCH_SCHEMAS=str(SCHEMAS),
               RUSTONIG_SYSTEM_LIBONIG="0", CARGO_TARGET_DIR=str(ROOT / "build/cargo"))
    command = ["cargo", "test", "--release", "--locked", "--quiet", "--manifest-path", str(ROOT / "text/Cargo.toml"),
               "--", "--ignored", "--nocapture", "compile_bench"]
    out = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def xgrammar(model):
    """In the virtual environment. A refused schema has the time null."""
    import numpy
    import tvm_ffi  # noqa: F401: it must not see the stand-ins
    masks.stand_ins()
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

    def once(schema):
        begin = time.perf_counter_ns()
        grammar = compiler.compile_json_schema(schema, any_whitespace=False, separators=(",", ":"), strict_mode=False)
        xgr.GrammarMatcher(grammar).fill_next_token_bitmask(mask)
        return (time.perf_counter_ns() - begin) / 1e6

    for line in SCHEMAS.read_text().splitlines():
        try:
            took = statistics.median(once(json.dumps(json.loads(line)["schema"])) for _ in range(5))
        except Exception:
            took = None
        print(json.dumps({"xgrammar_ms": took}), flush=True)


def main(model, out=None):
    rows = quire(model)
    command = [str(masks.VENV / "bin/python"), __file__, "--xgrammar", str(model)]
    peers = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for row, peer in zip(rows, peers, strict=True):
        row.update(json.loads(peer))
    if out:
        Path(out).write_text("".join(json.dumps(row) + "\n" for row in rows))
    print("| engine | schemas | p50 ms | p95 ms | most |\n|---|---|---|---|---|")
    for key in "normal_ms", "quire_ms", "llguidance_ms", "xgrammar_ms":
        times = sorted(row[key] for row in rows if row[key] is not None)
        p50, p95 = (times[(len(times) - 1) * p // 100] for p in (50, 95))
        print(f"| {key[:-3]} | {len(times)} | {p50:.2f} | {p95:.2f} | {times[-1]:.1f} |")


if __name__ == "__main__":
    xgrammar(sys.argv[2]) if sys.argv[1] == "--xgrammar" else main(*sys.argv[1:])
