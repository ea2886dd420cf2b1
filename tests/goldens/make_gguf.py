#!/usr/bin/env python3
"""Makes tests/goldens/gguf/*: tiny random models as GGUF files of mixed types, what transformers computes in fp32 from the
weights that the `gguf` package reads out of them (golden.txt), and a SHA-256 of each matrix as that package dequantizes it
(dequantized.txt; rows in the file's order).

    python tests/goldens/make_gguf.py [NAME ...]     (gguf, torch, transformers 5, safetensors)

The package quantizes to blocks of 32; it cannot quantize to most others, so those are drawn: random elements and scales
with factors that give the matrix the spread that it should have. Seeded, on one thread.
"""

import hashlib
import json
import math
import pathlib
import shutil
import tempfile
import zlib

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import make_goldens

ROOT = pathlib.Path(__file__).resolve().parent / "gguf"
PROMPT = 60
TYPE = gguf.GGMLQuantizationType

BASE = dict(make_goldens.BASE, torch_dtype="float32", vocab_size=96, hidden_size=256, intermediate_size=256, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=1)
# name: config.json's fields, GGUF's architecture, types in the order of TYPED
CASES = {
    # Biases, a tied output, columns that are five blocks.
    "qwen2": (dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=128, intermediate_size=160,
                   tie_word_embeddings=True, use_sliding_window=False),
              "qwen2", "Q8_0 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_0 Q5_1 -"),
    # Rows of q and k in another order; factors of RoPE's frequencies as a tensor.
    "llama": (dict(architectures=["LlamaForCausalLM"], model_type="llama", max_position_embeddings=512, rope_theta=500000.0,
                   rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=32, rope_type="llama3")),
              "llama", "Q4_K Q4_K Q6_K Q5_K Q3_K Q2_K Q4_K Q6_K Q6_K"),
    # Norms of q and k by head.
    "qwen3": (dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=32, attention_bias=False,
                   tie_word_embeddings=True, use_sliding_window=False),
              "qwen3", "Q6_K Q5_K Q3_K Q2_K F16 Q3_K Q5_K Q4_K -"),
    # Norms of q and k over all heads, norms behind the blocks; types of 16 and 32 bits between.
    "olmo2": (dict(architectures=["Olmo2ForCausalLM"], model_type="olmo2", hidden_size=128, intermediate_size=160,
                   attention_bias=False, bos_token_id=None, pad_token_id=0),
              "olmo2", "BF16 F16 Q5_0 F32 BF16 Q4_1 Q8_0 Q5_1 F16"),
    # 4-bit codes that a table gives a meaning.
    "codes": (dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", tie_word_embeddings=False, use_sliding_window=False),
              "qwen2", "IQ4_XS IQ4_NL MXFP4 IQ4_XS MXFP4 IQ4_XS IQ4_NL MXFP4 IQ4_NL"),
}
TYPED = {"model.embed_tokens": "token_embd", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "lm_head": "output"}
OTHERS = {"model.norm": "output_norm", "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm",
          "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm"}
OLMO = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}


# ---- types that the package cannot quantize to: random blocks --------------------------------------------------------

# Bytes before, between and behind d and dmin; what dmin is to d for a mean of zero.
DRAWN = {"Q2_K": (80, 1.5), "Q3_K": (108, None), "Q4_K": (0, 7.5), "Q5_K": (0, 15.5), "Q6_K": (208, None),
         "IQ4_NL": (0, None), "IQ4_XS": (0, None), "MXFP4": (0, None)}


def drawn_blocks(kind, shape, spread, random):
    """[rows, bytes] whose elements have about this standard deviation."""
    at, least = DRAWN[kind]
    size, n_bytes = gguf.GGML_QUANT_SIZES[TYPE[kind]]
    blocks = random.integers(0, 256, (shape[0], shape[1] // size, n_bytes), dtype=np.uint8)
    factor = random.uniform(0.5, 1.5, blocks.shape[:2])

    def put(d):
        if kind == "MXFP4":  # a byte of exponent
            blocks[..., 0] = 127 + np.round(np.log2(d * factor))
            return blocks.reshape(shape[0], -1)
        values = [d * factor] + ([d * least * factor] if least else [])
        for i, value in enumerate(values):
            blocks[..., at + 2 * i:at + 2 * i + 2] = value.astype("<f2")[..., None].view(np.uint8)
        return blocks.reshape(shape[0], -1)

    return put(spread / gguf.dequantize(put(1.0), TYPE[kind]).std())


def stored(kind, value, random):
    """The file's array of a matrix, and the values that it represents."""
    if kind in DRAWN:
        data = drawn_blocks(kind, value.shape, float(value.std()), random)
    else:
        data = gguf.quantize(value.numpy(), TYPE[kind])
    return data, gguf.dequantize(data, TYPE[kind]).astype(np.float32)


# ---- the llama architecture's ---------------------------------------------------------------------------------------

def interleaved(data, n_heads):
    """Row i and row i + half of a head become neighbours."""
    return data.reshape(n_heads, 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)


def rope_factors(config, head_dim):
    scaling, out = config["rope_scaling"], []
    for i in range(0, head_dim, 2):
        turns = scaling["original_max_position_embeddings"] / (2 * math.pi * config["rope_theta"] ** (i / head_dim))
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        out.append(1.0 / ((1.0 - smooth) / scaling["factor"] + smooth))
    return np.array(out, dtype=np.float32)


# ---- files -----------------------------------------------------------------------------------------------------------

def metadata(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_eos_token_id(config["eos_token_id"])


def name_in_file(key, arch):
    layer, end = key.rsplit(".", 1)
    prefix = ""
    if layer.startswith("model.layers."):
        _, _, number, layer = layer.split(".", 3)
        prefix = f"blk.{number}."
    known = TYPED | OTHERS | (OLMO if arch == "olmo2" else {})
    return layer, f"{prefix}{known[layer]}.{end}"


def write(path, config, arch, types, state, random):
    """The file; returns the matrices and vectors that it stands for, and a line of dequantized.txt for each matrix."""
    writer = gguf.GGUFWriter(path, arch)
    metadata(writer, config)
    plain, sums = {}, []
    if arch == "llama":
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(head_dim)
        writer.add_tensor("rope_freqs.weight", rope_factors(config, head_dim))
    for key, value in sorted(state.items()):
        layer, name = name_in_file(key, arch)
        if value.ndim == 1:
            plain[key] = value.float()
            writer.add_tensor(name, value.float().numpy())
            continue
        kind = types[list(TYPED).index(layer)]
        data, worth = stored(kind, value, random)
        plain[key] = torch.from_numpy(worth.copy())
        if arch == "llama" and layer[-6:] in ("q_proj", "k_proj"):
            heads = config["num_attention_heads" if layer[-6] == "q" else "num_key_value_heads"]
            data, worth = interleaved(data, heads), interleaved(worth, heads)
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=TYPE[kind])
        digest = hashlib.sha256(np.ascontiguousarray(worth).tobytes()).hexdigest()
        sums.append(f"{key.removesuffix('.weight')} {value.shape[0]} {value.shape[1]} {digest}\n")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return plain, sums


def make(name, attempt):
    fields, arch, types = CASES[name]
    config = BASE | fields
    directory = ROOT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    seed = zlib.crc32(f"{name} {attempt}".encode())
    generator = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch)
        (source / "config.json").write_text(json.dumps(config))
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source), dtype=torch.float32)
        state = make_goldens.draw_weights(model, generator)
        plain, sums = write(directory / "model.gguf", config, arch, types.split(), state, np.random.default_rng(seed))
        (directory / "dequantized.txt").write_text("".join(sums))
        save_file({k: v.contiguous() for k, v in plain.items()}, source / "model.safetensors", metadata={"format": "pt"})
        return make_goldens.golden(name, directory, PROMPT, generator, source, torch.float16)


if __name__ == "__main__":
    make_goldens.make_all(ROOT, CASES, make)
