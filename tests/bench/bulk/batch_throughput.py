#!/usr/bin/env python3
"""quire batch against quire bench throughput on the same work, and against one request a line over HTTP, in turns.

  tests/bench/bulk/batch_throughput.py build/quire MODEL --lines 2000 --input 128 --output 64 --rounds 3 > raw.jsonl

All three compute prompts of random token ids of one length and answers of one length. HTTP is quire bench serve against
quire serve, with as many requests at a time as quire batch: the way of vllm run-batch, which sends each line to an API.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser()
p.add_argument("quire")
p.add_argument("model")
p.add_argument("--lines", type=int, default=2000)
p.add_argument("--input", type=int, default=128)
p.add_argument("--output", type=int, default=64)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--vocab", type=int, default=1000)
p.add_argument("engine", nargs="*", help="options of the engine, after --")
a = p.parse_args()
engine = a.engine


def loaded(*command):
    result = subprocess.run([a.quire, *command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def bench(round_number):
    got = loaded("bench", "throughput", a.model, "--num-prompts", str(a.lines), "--input-len", str(a.input), "--output-len",
                 str(a.output), "--json", "--seed", str(round_number), *engine)
    return got["elapsed_time"], got["total_num_tokens"]


def batch(round_number, folder):
    random.seed(round_number)
    path = folder / "lines.jsonl"
    with path.open("w") as f:
        for i in range(a.lines):
            body = {"prompt": [random.randrange(a.vocab) for _ in range(a.input)], "max_tokens": a.output, "ignore_eos": True, "temperature": 0}
            print(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}), file=f)
    got = loaded("batch", str(path), "--model", a.model, "--json", *engine)
    assert got["succeeded"] == a.lines, got
    return got["elapsed_s"], got["input_tokens"] + got["output_tokens"]


def http(round_number, concurrency):
    server = subprocess.Popen([a.quire, "serve", a.model, "--port", "0", *engine], stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            found = re.search(r"http://127.0.0.1:(\d+)", line)
            if found:
                break
        got = loaded("bench", "serve", "--url", f"http://127.0.0.1:{found[1]}", "--num-prompts", str(a.lines), "--input-len", str(a.input),
                     "--output-len", str(a.output), "--ignore-eos", "--max-concurrency", str(concurrency), "--json", "--seed", str(round_number))
    finally:
        server.terminate()
        server.communicate()
    return got["duration"], got["total_input_tokens"] + got["total_output_tokens"]


ratios = {"batch": [], "http": []}
with tempfile.TemporaryDirectory() as folder:
    for i in range(a.rounds):
        rows = {}
        order = ["bench", "batch", "http"]
        for kind in order if i % 2 == 0 else order[::-1]:
            seconds, tokens = bench(i) if kind == "bench" else batch(i, pathlib.Path(folder)) if kind == "batch" else http(i, 320)
            rows[kind] = tokens / seconds
            print(json.dumps({"round": i, "kind": kind, "seconds": round(seconds, 3), "tokens": tokens, "tokens_per_second": round(tokens / seconds, 1),
                              "load": os.getloadavg()[0]}), flush=True)
        for kind, values in ratios.items():
            values.append(rows[kind] / rows["bench"])
print(json.dumps({"lines": a.lines, "input": a.input, "output": a.output, "rounds": a.rounds,
                  **{f"{kind}_against_bench": [round(v, 3) for v in sorted(values)] for kind, values in ratios.items()},
                  **{f"{kind}_median": round(statistics.median(values), 3) for kind, values in ratios.items()}}))
sys.exit(0)
