#!/usr/bin/env python3
"""Writes a BF16 checkpoint of random weights in the shape of a real model, with nothing but Python's own library.

    python3 tools/gpu_model.py qwen2.5-1.5b DIRECTORY
    python3 tools/gpu_model.py lengths FILE.csv     the 256 requests of nano-vllm's bench.py: 100 to 1,024 tokens in and out

For measuring speed, where weights need no meaning: tools/gpu_check.sh makes its models with it, on machines that may have no
torch (tools/bench/make_random_model.py is for peers that need a tokenizer). Weights are spread as a trained model's are, so
that activations keep a sane size. Never zeros: they use less power, and would be faster than any real model. Numbers
repeat after some millions, a prime, so that no two rows are alike: drawing the 8 billion of a large model would take
a minute, and writing them takes seconds.
"""
import json
import os
import pathlib
import random
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

# hidden, layers, heads, KV heads, head_dim, MLP width, vocabulary, family
SHAPES = {
    "qwen2.5-1.5b": (1536, 28, 12, 2, 128, 8960, 151936, "qwen2"),
    "qwen3-0.6b": (1024, 28, 16, 8, 128, 3072, 151936, "qwen3"),
    "qwen3-8b": (4096, 36, 32, 8, 128, 12288, 151936, "qwen3"),
    "llama-3.1-8b": (4096, 32, 32, 8, 128, 14336, 128256, "llama"),
    "tiny": (64, 2, 4, 2, 16, 96, 160, "qwen3"),
}
UNTIED = ("qwen3-8b", "llama-3.1-8b")  # logits have a matrix of their own
PERIOD = 4194301  # numbers that are drawn; a prime
WRITERS = 4


def names_and_sizes(shape):
    """Every tensor: its name, its dimensions, and the deviation of its numbers; None: ones."""
    hidden, layers, heads, kv_heads, head, mlp, vocab, family = SHAPES[shape]
    yield "model.embed_tokens.weight", (vocab, hidden), 0.02
    if shape in UNTIED:
        yield "lm_head.weight", (vocab, hidden), hidden**-0.5
    yield "model.norm.weight", (hidden,), None
    for i in range(layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,), None
        yield layer + "post_attention_layernorm.weight", (hidden,), None
        for name, outputs, inputs in (
            ("self_attn.q_proj", heads * head, hidden), ("self_attn.k_proj", kv_heads * head, hidden),
            ("self_attn.v_proj", kv_heads * head, hidden), ("self_attn.o_proj", hidden, heads * head),
            ("mlp.gate_proj", mlp, hidden), ("mlp.up_proj", mlp, hidden), ("mlp.down_proj", hidden, mlp),
        ):
            yield f"{layer}{name}.weight", (outputs, inputs), inputs**-0.5
            if family == "qwen2" and name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
                yield f"{layer}{name}.bias", (outputs,), 0.02
        if family == "qwen3":
            yield layer + "self_attn.q_norm.weight", (head,), None
            yield layer + "self_attn.k_norm.weight", (head,), None


def config(shape):
    hidden, layers, heads, kv_heads, head, mlp, vocab, family = SHAPES[shape]
    return {
        "architectures": [f"{family.capitalize()}ForCausalLM"], "model_type": family,
        "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": shape not in UNTIED, "torch_dtype": "bfloat16",
        "attention_bias": False, "use_sliding_window": False, "vocab_size": vocab, "bos_token_id": 0, "eos_token_id": 0,
    }


def high_bytes(deviation):
    """A table from a random byte to the high byte of a BF16 number: its sign and all of its exponent but one bit.

    A high byte of 0x3c is a magnitude in [2^-7, 2^-5), even over its mantissas: rms 2^-5 * 0.604. One lower is a quarter of that.
    Two neighbours in the right share have any deviation.
    """
    high, rms = 0x3F, 2.0 * 0.604
    while rms > deviation and high > 0x31:
        high, rms = high - 1, rms / 4
    share = min(1.0, max(0.0, (deviation**2 - rms**2) / (15 * rms**2)))  # of the larger neighbour, 16 times the square
    larger = round(128 * share)
    return bytes((i & 0x80) | (high + 1 if (i & 0x7F) < larger else high) for i in range(256))


def block(deviation, drawn):
    """PERIOD numbers of that deviation; the same ones whenever it is asked for again."""
    if deviation not in drawn:
        numbers = bytearray(2 * PERIOD)
        numbers[0::2] = os.urandom(PERIOD)
        numbers[1::2] = os.urandom(PERIOD).translate(high_bytes(deviation))
        drawn[deviation] = memoryview(numbers)
    return drawn[deviation]


def write(file, at, n_bytes, numbers):
    """A tensor's bytes: numbers, again and again."""
    end = at + n_bytes
    while at < end:
        piece = numbers[: min(len(numbers), end - at)]
        at += os.pwrite(file, piece, at)


def make(shape, directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(shape), indent=1))
    header, at, pieces, drawn = {"__metadata__": {"format": "pt"}}, 0, [], {}
    for name, size, deviation in names_and_sizes(shape):
        n_bytes = 2 * (size[0] * size[1] if len(size) == 2 else size[0])
        header[name] = {"dtype": "BF16", "shape": list(size), "data_offsets": [at, at + n_bytes]}
        pieces.append((at, n_bytes, memoryview(b"\x80\x3f" * size[0]) if deviation is None else block(deviation, drawn)))
        at += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    unfinished = directory / "model.safetensors.part"  # renamed only when complete
    with open(unfinished, "wb") as file, ThreadPoolExecutor(WRITERS) as writers:
        os.pwrite(file.fileno(), struct.pack("<Q", len(text)) + text, 0)
        for done in [writers.submit(write, file.fileno(), 8 + len(text) + at, n_bytes, numbers) for at, n_bytes, numbers in pieces]:
            done.result()
    unfinished.rename(directory / "model.safetensors")


def lengths(path):
    """The same as bench.py's: its seed, and its draws in its order."""
    random.seed(0)
    prompts = [len([random.randint(0, 10000) for _ in range(random.randint(100, 1024))]) for _ in range(256)]
    answers = [random.randint(100, 1024) for _ in range(256)]
    rows = [f"{prompt},{answer}\n" for prompt, answer in zip(prompts, answers)]
    pathlib.Path(path).write_text("num_prefill_tokens,num_decode_tokens\n" + "".join(rows))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in (*SHAPES, "lengths"):
        sys.exit(f"usage: gpu_model.py {'|'.join((*SHAPES, 'lengths'))} PATH")
    if sys.argv[1] == "lengths":
        lengths(sys.argv[2])
    else:
        make(sys.argv[1], sys.argv[2])
