#!/usr/bin/env python3
"""Makes tests/goldens/gguf/*: tiny random models as GGUF files of mixed types, what transformers computes in fp32 from the
weights that the `gguf` package reads out of them (golden.txt), and a SHA-256 of each matrix as that package dequantizes it
(dequantized.txt; rows in the file's order).

    python tests/goldens/make_gguf.py [NAME ...]     (gguf, torch, transformers 5, safetensors)

The package quantizes to blocks of 32; it cannot quantize to most others, so those are drawn: random elements and scales
with factors that give the matrix the spread that it should have. Seeded, on one thread.

Names, orders and keys are those of llama.cpp's convert_hf_to_gguf.py. What GGUF has no key for is as llama.cpp has it:
SmolLM 3 leaves out RoPE in every fourth layer, Gemma's query_pre_attn_scalar is a head's size.
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
DEQUANTIZED = ("qwen2", "llama", "qwen3", "olmo2", "codes")  # between them every type
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
    # Experts in one tensor in layer 0, and in one each in layer 1, as in files of before 2024; rows of q and k in another order.
    "mixtral": (dict(architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=128, intermediate_size=96,
                     num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2, sliding_window=None),
                "llama", "Q8_0 Q8_0 Q8_0 Q5_1 Q4_1 Q4_0 Q5_0 Q8_0 Q8_0"),
    # A shared expert with a gate, a layer without experts, no norm of a token's weights.
    "qwen2_moe": (dict(architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", hidden_size=128, intermediate_size=64,
                       moe_intermediate_size=32, shared_expert_intermediate_size=160, num_experts=7, num_experts_per_tok=3,
                       norm_topk_prob=False, use_sliding_window=False),
                  "qwen2moe", "F16 Q8_0 Q8_0 Q8_0 Q8_0 F16 Q8_0 Q5_0 F16"),
    # K types; every weight of a token's experts counts.
    "qwen3_moe": (dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", head_dim=32, attention_bias=False,
                       moe_intermediate_size=256, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
                       use_sliding_window=False, sliding_window=None),
                  "qwen3moe", "Q4_K Q4_K Q4_K Q6_K F16 Q4_K Q5_K Q6_K Q6_K"),
    "olmoe": (dict(architectures=["OlmoeForCausalLM"], model_type="olmoe", hidden_size=128, intermediate_size=26,
                   num_key_value_heads=4, num_experts=9, num_experts_per_tok=3, norm_topk_prob=False, attention_bias=False,
                   rms_norm_eps=1e-5, bos_token_id=None, pad_token_id=0),
              "olmoe", "F32 BF16 F16 F32 BF16 F16 BF16 F32 F32"),
    # Windows in three layers of four, and a scaled RoPE in the fourth.
    "olmo3": (dict(architectures=["Olmo3ForCausalLM"], model_type="olmo3", hidden_size=128, intermediate_size=96,
                   num_hidden_layers=4, attention_bias=False, bos_token_id=None, pad_token_id=0, sliding_window=20,
                   max_position_embeddings=512, rope_theta=500000.0,
                   rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64,
                                     attention_factor=1.2079441541679836, beta_fast=32.0, beta_slow=1.0)),
              "olmo2", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0"),
    "smollm3": (dict(architectures=["SmolLM3ForCausalLM"], model_type="smollm3", hidden_size=128, intermediate_size=96,
                     num_hidden_layers=4, tie_word_embeddings=True, attention_bias=False, mlp_bias=False, pad_token_id=2,
                     no_rope_layers=[1, 1, 1, 0], use_sliding_window=False, sliding_window=None),
                "smollm3", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q5_1 Q5_1 Q8_0 -"),
    # Four scales.
    "granite": (dict(architectures=["GraniteForCausalLM"], model_type="granite", hidden_size=128, intermediate_size=160,
                     num_hidden_layers=2, attention_bias=False, mlp_bias=False, pad_token_id=0, embedding_multiplier=1.5,
                     residual_multiplier=0.7, attention_multiplier=0.2, logits_scaling=1.25),
                "granite", "F16 Q8_0 Q8_0 Q8_0 Q8_0 Q5_0 Q5_0 Q8_0 Q8_0"),
    "granite_moe": (dict(architectures=["GraniteMoeForCausalLM"], model_type="granitemoe", hidden_size=128, intermediate_size=32,
                         num_local_experts=7, num_experts_per_tok=3, attention_bias=False, embedding_multiplier=3.0,
                         residual_multiplier=0.75, attention_multiplier=0.3, logits_scaling=2.0, pad_token_id=2),
                    "granitemoe", "F16 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q5_1 Q8_0 Q8_0"),
    # A shared expert without a gate.
    "granite_moe_shared": (dict(architectures=["GraniteMoeSharedForCausalLM"], model_type="granitemoeshared", hidden_size=64,
                                intermediate_size=32, shared_intermediate_size=96, num_local_experts=5, num_experts_per_tok=2,
                                attention_bias=False, embedding_multiplier=3.0, residual_multiplier=0.75,
                                attention_multiplier=0.3, logits_scaling=2.0, pad_token_id=2),
                           "granitemoe", "F16 Q8_0 Q8_0 F16 F16 Q8_0 F16 Q8_0 Q8_0"),
    # Sinks, biases of everything, a clamped gate, MXFP4.
    "gpt_oss": (dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=64, intermediate_size=96,
                     head_dim=32, num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2, attention_bias=True,
                     swiglu_limit=7.0,
                     sliding_window=20, rope_theta=150000.0, max_position_embeddings=256, bos_token_id=None, pad_token_id=0,
                     rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                       original_max_position_embeddings=64)),
                "gpt-oss", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 MXFP4 MXFP4 MXFP4 Q8_0"),
    # Norms' weights plus 1.
    "gemma": (dict(architectures=["GemmaForCausalLM"], model_type="gemma", hidden_size=96, intermediate_size=128, head_dim=32,
                   num_key_value_heads=1, tie_word_embeddings=True, hidden_act="gelu", pad_token_id=0),
              "gemma", "F16 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 -"),
    # Norms before and behind the blocks, caps, a window in every second layer.
    "gemma2": (dict(architectures=["Gemma2ForCausalLM"], model_type="gemma2", hidden_size=96, intermediate_size=128, head_dim=32,
                    num_hidden_layers=2, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", pad_token_id=0,
                    query_pre_attn_scalar=32, sliding_window=20, attn_logit_softcapping=3.0, final_logit_softcapping=10.0),
               "gemma2", "F16 Q8_0 Q8_0 Q8_0 F16 Q8_0 Q8_0 Q8_0 -"),
    # A RoPE of its own for layers with a window, which the sixth lacks.
    "gemma3": (dict(architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", hidden_size=64, intermediate_size=64,
                    head_dim=32, num_key_value_heads=1, num_hidden_layers=6, tie_word_embeddings=True,
                    hidden_activation="gelu_pytorch_tanh", pad_token_id=0, query_pre_attn_scalar=32, sliding_window=20,
                    sliding_window_pattern=6, rope_theta=100000.0, rope_local_base_freq=10000.0,
                    rope_scaling=dict(rope_type="linear", factor=8.0)),
               "gemma3", "F16 Q8_0 Q8_0 Q8_0 F16 Q8_0 Q8_0 Q8_0 -"),
    # q, k and v in one matrix, and gate and up; factors of long texts; half of a head turns.
    "phi3": (dict(architectures=["Phi3ForCausalLM"], model_type="phi3", hidden_size=128, intermediate_size=96,
                  num_hidden_layers=2, max_position_embeddings=512, original_max_position_embeddings=32, sliding_window=40,
                  pad_token_id=0, partial_rotary_factor=0.5, rms_norm_eps=1e-5,
                  rope_scaling=dict(type="longrope", short_factor=[1.0 + i / 8 for i in range(8)],
                                    long_factor=[1.5 + 0.75 * i for i in range(8)])),
             "phi3", "F16 Q8_0 - - Q5_1 Q8_0 - Q8_0 Q8_0"),
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
# Matrices that have the type of another one's place.
ALSO_TYPED = {"self_attn.qkv_proj": ("self_attn.q_proj", "attn_qkv"), "mlp.gate_up_proj": ("mlp.gate_proj", "ffn_up")}
ALSO_TYPED |= {f"mlp.shared_expert.{part}_proj": (f"mlp.{part}_proj", f"ffn_{part}_shexp") for part in ("gate", "up", "down")}
# Numbers that stay F32.
OTHERS = {"model.norm": "output_norm", "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm",
          "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
          "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.router": "ffn_gate_inp",
          "block_sparse_moe.router": "ffn_gate_inp"}
BEHIND = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm",
          "pre_feedforward_layernorm": "ffn_norm"}
INTERLEAVED = ("llama", "granite", "granitemoe", "smollm3")


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
        rows = value.reshape(-1, value.shape[-1])
        data = drawn_blocks(kind, rows.shape, float(rows.std()), random).reshape(*value.shape[:-1], -1)
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


def enliven_gemma(state, config):
    """Gemma's head is its embeddings, which are scaled on their way in: the blocks add so much that a token does not predict
    itself."""
    state["model.embed_tokens.weight"] *= math.sqrt(config["hidden_size"])
    for key, value in state.items():
        if ".o_proj." in key or ".down_proj." in key:
            value *= 6.0
        elif key.endswith("post_feedforward_layernorm.weight") or (
                config["model_type"] != "gemma" and key.endswith("post_attention_layernorm.weight")):
            value += 8.0


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


# config.json's field: the writer's method.
FIELDS = {"num_experts": "expert_count", "num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
          "moe_intermediate_size": "expert_feed_forward_length", "sliding_window": "sliding_window",
          "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
          "shared_intermediate_size": "expert_shared_feed_forward_length", "embedding_multiplier": "embedding_scale",
          "residual_multiplier": "residual_scale", "attention_multiplier": "attention_scale", "logits_scaling": "logit_scale",
          "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}


def metadata_of_family(writer, config, arch):
    for field, method in FIELDS.items():
        if config.get(field):
            getattr(writer, f"add_{method}")(config[field])
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    scaling = config.get("rope_scaling")
    if arch in INTERLEAVED or arch == "phi3":
        writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1.0)))
    if arch == "phi3":
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        writer.add_tensor("rope_factors_long.weight", np.array(scaling["long_factor"], dtype=np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(scaling["short_factor"], dtype=np.float32))
    elif scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(scaling["factor"])
        if scaling["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
            if "attention_factor" in scaling:
                writer.add_rope_scaling_yarn_attn_factor(scaling["attention_factor"])
            writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
    if arch == "gpt-oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if config["model_type"] == "olmo3":
        writer.add_sliding_window_pattern([i % 4 != 3 for i in range(config["num_hidden_layers"])])


def name_in_file(key, arch):
    key = key.replace(".self_attn.sinks", ".sinks.weight")
    layer, end = key.rsplit(".", 1)
    prefix = ""
    if layer.startswith("model.layers."):
        _, _, number, layer = layer.split(".", 3)
        prefix = f"blk.{number}."
    known = TYPED | OTHERS | {key: name for key, (_, name) in ALSO_TYPED.items()}
    known |= BEHIND if arch in ("olmo2", "gemma2", "gemma3", "gpt-oss") else {}
    known["sinks"] = "attn_sinks"
    return layer, f"{prefix}{known[layer]}.{end}"


def split(key, value, arch):
    """[(part, matrices or biases)] of experts, or of a shared one, whose gate lies over up, or with it in turn."""
    if arch == "gpt-oss":
        rows = value if key.endswith("_bias") else value.transpose(1, 2)
        return [("gate", rows[:, ::2]), ("up", rows[:, 1::2])] if "gate_up" in key else [("down", rows)]
    if "gate_up_proj" in key or "input_linear" in key:
        return list(zip(("gate", "up"), value.chunk(2, dim=-2)))
    return [("down", value)]


def joined(key, parts, arch):
    """The reverse."""
    if arch != "gpt-oss":
        return torch.cat(parts, dim=-2)
    rows = torch.stack(parts, dim=2).flatten(1, 2)
    return rows if key.endswith("_bias") else rows.transpose(1, 2)


def put_experts(writer, key, value, types, random, arch):
    """Writes a tensor of the experts of a layer, or of the shared one; returns what it stands for."""
    worths, number = [], key.split(".")[2]
    place = "shexp" if ".shared_mlp." in key else "exps"
    for part, matrices in split(key, value, arch):
        name, kind = f"blk.{number}.ffn_{part}", types[list(TYPED).index(f"mlp.{part}_proj")]
        if key.endswith("_bias"):
            worths.append(matrices.float())
            writer.add_tensor(f"{name}_{place}.bias", np.ascontiguousarray(matrices.float().numpy()))
            continue
        data, worth = stored(kind, matrices.contiguous(), random)
        worths.append(torch.from_numpy(worth.copy()))
        if arch == "llama" and number == "1":  # as in files of before 2024
            for e, matrix in enumerate(data):
                writer.add_tensor(f"{name}.{e}.weight", np.ascontiguousarray(matrix), raw_dtype=TYPE[kind])
            continue
        writer.add_tensor(f"{name}_{place}.weight", np.ascontiguousarray(data), raw_dtype=TYPE[kind])
    return joined(key, worths, arch)


def write(path, config, arch, types, state, random):
    """The file; returns the matrices and vectors that it stands for, and a line of dequantized.txt for each matrix."""
    writer = gguf.GGUFWriter(path, arch)
    metadata(writer, config)
    plain, sums = {}, []
    if config["model_type"] == "llama":
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(head_dim)
        writer.add_tensor("rope_freqs.weight", rope_factors(config, head_dim))
    else:
        metadata_of_family(writer, config, arch)
    more = 1.0 if arch.startswith("gemma") else 0.0
    for key, value in sorted(state.items()):
        if ".experts." in key or "_linear." in key:
            plain[key] = put_experts(writer, key, value, types, random, arch)
            continue
        layer, name = name_in_file(key, arch)
        if value.ndim == 1 or layer in OTHERS:
            plain[key] = (value.float() * 4096).round() / 4096 if more else value.float()  # exact with 1 more
            writer.add_tensor(name, (plain[key] + more).numpy())
            continue
        kind = types[list(TYPED).index(ALSO_TYPED.get(layer, (layer,))[0])]
        data, worth = stored(kind, value, random)
        plain[key] = torch.from_numpy(worth.copy())
        if arch in INTERLEAVED and layer[-6:] in ("q_proj", "k_proj"):
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
        if arch.startswith("gemma"):
            enliven_gemma(state, config)
        plain, sums = write(directory / "model.gguf", config, arch, types.split(), state, np.random.default_rng(seed))
        if name in DEQUANTIZED:
            (directory / "dequantized.txt").write_text("".join(sums))
        plain = make_goldens.hub_names(plain, config["architectures"][0])
        save_file({k: v.contiguous() for k, v in plain.items()}, source / "model.safetensors", metadata={"format": "pt"})
        return make_goldens.golden(name, directory, PROMPT, generator, source, torch.float16)


if __name__ == "__main__":
    make_goldens.make_all(ROOT, CASES, make)
