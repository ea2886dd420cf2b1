#!/usr/bin/env python3
"""The effect of each dtype of --kv-cache-dtype on a model's distributions, compared with float16:
docs/benchmarks/kv-cache.jsonl and .md.

    python tests/bench/kv/kv_cache.py [--model DIR TEXT WINDOW]...

Runs build/tests/bench/kv_divergence over 8,000 tokens: the demo model and its draft model on stories and chats that they were not
trained on, four windows of what they take; each further DIR on the first tokens of TEXT, as many windows as make 8,000.

Outliers: keys of trained models often have dimensions that are much larger than the rest. `demo model, K outliers x
S` is the demo model with one pair of dimensions of every key (the two that RoPE rotates together) S times as large
and the query's S times as small: the same function, and in float16 the same roundings, S being a power of two. A
dtype with one scale per vector must then store the rest S times as coarsely. Needs numpy and safetensors.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys

import numpy
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO = ROOT / "tools" / "demo_model"
OUT = ROOT / "docs" / "benchmarks"
WORK = ROOT / "build" / "bench" / "kv_cache"
PROGRAM = ROOT / "build" / "tests" / "bench" / "kv_divergence"
DTYPES = ["float16", "int8", "fp8_e4m3", "fp8_e5m2"]
TOKENS, DEMO_WINDOW, SEED, PAIR = 8188, 2047, 4242, 20


def held_out_text(path):
    sys.path.insert(0, str(DEMO))
    from corpus import Corpus, chat_document
    from stories import story
    rng, held_out, text = random.Random(SEED), Corpus(SEED, "held_out"), ""
    names, weights = zip(*held_out.SKILLS)
    while len(text) < 80000:
        turns = getattr(held_out, rng.choices(names, weights)[0])()
        text += story(rng) + "<|endoftext|>" + "".join(part for part, _ in chat_document(turns))
    path.write_text(text)


def with_outliers(directory, scale):
    shutil.copytree(DEMO / "model", directory, dirs_exist_ok=True)
    config = json.loads((directory / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads
    weights = load_file(directory / "model.safetensors")
    for name, tensor in weights.items():
        factor = scale if ".k_proj." in name else 1 / scale if ".q_proj." in name else None
        if factor:
            n = heads if ".q_proj." in name else kv_heads
            rows = [h * size + d for h in range(n) for d in (PAIR, PAIR + size // 2)]
            tensor[rows] = (tensor[rows].astype(numpy.float32) * factor).astype(numpy.float16)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def measure(name, directory, text, window):
    tokens = TOKENS // window * window
    said = subprocess.run([PROGRAM, directory, text, str(window), str(tokens), *DTYPES], stdout=subprocess.PIPE, check=True)
    rows = [json.loads(line) | {"model": name} for line in said.stdout.splitlines()]
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def table(rows):
    plain = {row["model"]: row["bytes_a_token"] for row in rows if row["kv_dtype"] == "float16"}
    yield "| model | KV | KL mean | median | 99 % | worst | same best token | loss (float16's) | blocks of float16's memory |"
    yield "|---|---|---|---|---|---|---|---|---|"
    losses = {row["model"]: row["nll"] for row in rows if row["kv_dtype"] == "float16"}
    for row in rows:
        if row["kv_dtype"] == "float16":
            continue
        model = row["model"]
        yield (f"| {model} | {row['kv_dtype']} | {row['kl_mean']:.2g} | {row['kl_median']:.2g} | {row['kl_p99']:.2g} | "
               f"{row['kl_most']:.2g} | {100 * row['same_best']:.2f} % | {row['nll']:.4f} ({losses[model]:.4f}) | "
               f"{plain[model] / row['bytes_a_token']:.2f} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", nargs=3, action="append", default=[], metavar=("DIR", "TEXT", "WINDOW"))
    given = arguments.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    text = WORK / "held_out.txt"
    held_out_text(text)
    rows = measure("demo model", DEMO / "model", text, DEMO_WINDOW)
    for scale in (4, 16, 64):
        directory = WORK / f"outliers-{scale}"
        with_outliers(directory, scale)
        rows += measure(f"demo model, K outliers x {scale}", directory, text, DEMO_WINDOW)
    rows += measure("draft model", DEMO / "draft", text, DEMO_WINDOW)
    for directory, own_text, window in given.model:
        rows += measure(pathlib.Path(directory).name, directory, own_text, int(window))
    (OUT / "kv-cache.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = (OUT / "kv-cache.md").read_text().split("\n\n|")[0]
    (OUT / "kv-cache.md").write_text(page + "\n\n" + "\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
