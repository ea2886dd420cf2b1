"""Writes a checkpoint of random weights in the shape of a real model: for measuring speed, where weights need no meaning.

    python tools/bench/make_random_model.py qwen2.5-0.5b build/bench/models/qwen2.5-0.5b-f16 --dtype f16

The weights are drawn as a trained model's are spread (norms of one, linear layers of 1/sqrt(inputs)), so that activations
keep a sane size and peers can be compared token for token. Never zeros: those are faster than any real model.
--tokenizer takes the tokenizer.json of the real model; without it, one of the same size is generated.
"""
import argparse
import json
import pathlib
import random
import shutil

import torch
from safetensors.torch import save_file

VOCAB_SIZE = 151936
MERGED_TOKENS = 151387  # Qwen2's: 256 bytes + these + 3 special tokens, padded to VOCAB_SIZE in the embedding
FIRST_SPECIAL = 151643  # <|endoftext|>, which is both BOS and EOS here

SHAPES = {  # hidden, layers, heads, KV heads, MLP width
    "qwen2.5-0.5b": (896, 24, 14, 2, 4864),
    "qwen2.5-1.5b": (1536, 28, 12, 2, 8960),
}
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def sizes(shape, layers=None):
    hidden, all_layers, heads, kv_heads, mlp = SHAPES[shape]
    return hidden, layers or all_layers, heads, kv_heads, mlp


def weights(shape, dtype, layers=None):
    hidden, layers, heads, kv_heads, mlp = sizes(shape, layers)
    head = hidden // heads
    rng = torch.Generator().manual_seed(0)
    out = {}

    def normal(name, deviation, *size):
        out[name] = (torch.randn(*size, generator=rng) * deviation).to(dtype)

    def linear(name, outputs, inputs, bias=False):
        normal(name + ".weight", inputs**-0.5, outputs, inputs)
        if bias:
            normal(name + ".bias", 0.02, outputs)

    normal("model.embed_tokens.weight", 0.02, VOCAB_SIZE, hidden)
    out["model.norm.weight"] = torch.ones(hidden, dtype=dtype)
    for i in range(layers):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[f"{layer}{norm}.weight"] = torch.ones(hidden, dtype=dtype)
        linear(layer + "self_attn.q_proj", heads * head, hidden, bias=True)
        linear(layer + "self_attn.k_proj", kv_heads * head, hidden, bias=True)
        linear(layer + "self_attn.v_proj", kv_heads * head, hidden, bias=True)
        linear(layer + "self_attn.o_proj", hidden, heads * head)
        linear(layer + "mlp.gate_proj", mlp, hidden)
        linear(layer + "mlp.up_proj", mlp, hidden)
        linear(layer + "mlp.down_proj", hidden, mlp)
    return out


def config(shape, dtype, layers=None):
    hidden, layers, heads, kv_heads, mlp = sizes(shape, layers)
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "use_sliding_window": False,
        "vocab_size": VOCAB_SIZE,
        "bos_token_id": FIRST_SPECIAL,
        "eos_token_id": FIRST_SPECIAL,
        "use_cache": True,
        "attention_dropout": 0.0,
    }


def made_up_tokenizer(merged_tokens=MERGED_TOKENS):
    """A byte-level BPE with as many tokens and merges as Qwen2's, of made-up words: it costs about the same to load."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    vocab = {c: i for i, c in enumerate(alphabet)}
    words, merges, rng = list(alphabet), [], random.Random(0)
    while len(merges) < merged_tokens:
        left, right = rng.choice(words), rng.choice(alphabet)
        if len(left) < 12 and left + right not in vocab:
            vocab[left + right] = len(vocab)
            words.append(left + right)
            merges.append([left, right])
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": FIRST_SPECIAL + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, token in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def make(shape, directory, dtype_name, tokenizer=None, layers=None):
    dtype, directory = DTYPES[dtype_name], pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(shape, dtype, layers), indent=1))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    if tokenizer:
        shutil.copyfile(tokenizer, directory / "tokenizer.json")
    else:
        (directory / "tokenizer.json").write_text(json.dumps(made_up_tokenizer(), ensure_ascii=False))
    # Last, and renamed only when complete: its presence marks the directory as finished.
    unfinished = directory / "model.safetensors.part"
    save_file(weights(shape, dtype, layers), unfinished, metadata={"format": "pt"})
    unfinished.rename(directory / "model.safetensors")


def with_small_tokenizer(directory):
    """The same checkpoint, in a second directory, with a tokenizer of 256 tokens. Returns its directory."""
    small = directory.with_name(directory.name + "-small-tokenizer")
    small.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copyfile(directory / name, small / name)
    (small / "tokenizer.json").write_text(json.dumps(made_up_tokenizer(0), ensure_ascii=False))
    (small / "model.safetensors").unlink(missing_ok=True)
    (small / "model.safetensors").hardlink_to(directory / "model.safetensors")
    return small


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("directory")
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--tokenizer", help="the real model's tokenizer.json")
    parser.add_argument("--layers", type=int, help="the first layers only; all by default")
    arguments = parser.parse_args()
    make(arguments.shape, arguments.directory, arguments.dtype, arguments.tokenizer, arguments.layers)
