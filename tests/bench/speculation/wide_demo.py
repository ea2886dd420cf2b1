#!/usr/bin/env python3
"""Writes the demo model inside the 24 layers of Qwen2.5-0.5B: the demo model's output at a larger model's cost.

    python tests/bench/speculation/wide_demo.py build/bench/models/wide-demo

A step of the demo model takes a quarter of a millisecond, much of it not arithmetic, so a draft model cannot be much
cheaper. Here the demo model's matrices are corners of larger ones: the first 256 of 896 dimensions, 4 of 14 heads,
640 of 4,864 of an MLP, 4 of 24 layers. All other weights are random, are multiplied like any weight, and write to
dimensions that the demo model does not read. The vocabulary stays at 2,048: 0.72 GB in all. Needs numpy and
safetensors.
"""
import argparse
import json
import pathlib
import shutil

import numpy
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO = ROOT / "tools" / "demo_model" / "model"
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP = 896, 24, 14, 2, 64, 4864


def wide(rng, rows, cols, corner=None, at_rows=None, at_cols=None, own=0):
    """Random numbers, with `corner` in its place. The rows that have a part of it, and the
    first `own`, which the demo model reads, are zero elsewhere."""
    out = (rng.standard_normal((rows, cols), dtype=numpy.float32) * cols ** -0.5 * 0.1).astype(numpy.float16)
    out[:own] = 0
    if corner is not None:
        out[at_rows, :] = 0
        out[numpy.ix_(at_rows, at_cols)] = corner
    return out


def weights(demo, c):
    rng, w = numpy.random.default_rng(18), {}
    hidden, layers, mlp = c["hidden_size"], c["num_hidden_layers"], c["intermediate_size"]
    first, ones = numpy.arange(hidden), numpy.float32((hidden / HIDDEN) ** 0.5)  # RMSNorm divides by a mean over more
    group, demo_group = HEADS // KV_HEADS, c["num_attention_heads"] // c["num_key_value_heads"]
    heads = numpy.concatenate([numpy.arange((kv * group + i) * HEAD, (kv * group + i + 1) * HEAD)
                               for kv in range(KV_HEADS) for i in range(demo_group)])
    kv, mlps = numpy.arange(KV_HEADS * HEAD), numpy.arange(mlp)

    def norm(name, of=None):
        w[name] = numpy.zeros(HIDDEN, numpy.float16)
        w[name][:hidden] = demo[of].astype(numpy.float32) * ones if of else 0
        w[name][hidden:] = 1 if name != "model.norm.weight" else 0

    table = numpy.zeros((c["vocab_size"], HIDDEN), numpy.float16)
    table[:, :hidden] = demo["model.embed_tokens.weight"]
    w["model.embed_tokens.weight"] = table
    for i in range(LAYERS):
        layer, known = f"model.layers.{i}.", i < layers
        for name, rows, at in (("q", HEADS * HEAD, heads), ("k", KV_HEADS * HEAD, kv), ("v", KV_HEADS * HEAD, kv)):
            name = f"{layer}self_attn.{name}_proj"
            w[name + ".weight"] = wide(rng, rows, HIDDEN, demo[name + ".weight"] if known else None, at, first)
            w[name + ".bias"] = numpy.zeros(rows, numpy.float16)
            if known:
                w[name + ".bias"][at] = demo[name + ".bias"]
        for name, rows, cols, at_rows, at_cols in (("self_attn.o_proj", HIDDEN, HEADS * HEAD, first, heads),
                                                   ("mlp.gate_proj", MLP, HIDDEN, mlps, first), ("mlp.up_proj", MLP, HIDDEN, mlps, first),
                                                   ("mlp.down_proj", HIDDEN, MLP, first, mlps)):
            name = f"{layer}{name}.weight"
            own = hidden if rows == HIDDEN else 0
            w[name] = wide(rng, rows, cols, demo[name] if known else None, at_rows, at_cols, own)
            if own:
                w[name][hidden:] *= numpy.float16(0.01)
        for name in ("input_layernorm", "post_attention_layernorm"):
            norm(f"{layer}{name}.weight", f"{layer}{name}.weight" if known else None)
    norm("model.norm.weight", "model.norm.weight")
    return w


def make(directory):
    directory = pathlib.Path(directory)
    if (directory / "model.safetensors").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    c = json.loads((DEMO / "config.json").read_text())
    w = weights(load_file(DEMO / "model.safetensors"), c)
    c |= {"rms_norm_eps": c["rms_norm_eps"] * c["hidden_size"] / HIDDEN, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": MLP}
    (directory / "config.json").write_text(json.dumps(c, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(DEMO / name, directory / name)
    save_file(w, directory / "model.part", metadata={"format": "pt"})
    (directory / "model.part").rename(directory / "model.safetensors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    make(parser.parse_args().directory)
