#!/usr/bin/env python3
"""Makes tests/goldens/models/*: tiny random checkpoints of every architecture, and the results of
transformers in fp32. README.md describes each file.

    python tests/goldens/make_goldens.py [NAME ...]     (torch, transformers 5, safetensors)

Seeded, on one thread: the same versions of the three libraries write the same files.
"""

import json
import math
import pathlib
import shutil
import sys
import zlib

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import naive

ROOT = pathlib.Path(__file__).resolve().parent / "models"
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
TOP = 20
GREEDY = 24
LIVELY = 8  # distinct tokens a greedy answer must have; a model that loops sooner is drawn again
CERTAIN = 8  # first steps of it whose margin must be above the tolerance, likewise
CAP = 0.02  # nats: docs/internals/numerics.md §15

BASE = {
    "hidden_act": "silu",
    "hidden_size": 96,
    "initializer_range": 0.02,
    "max_position_embeddings": 1024,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "use_cache": True,
}

# name → (config.json in today's hub layout, layout, prompt tokens)
MODELS = {
    # As many KV heads as query heads, which the file does not mention.
    "llama2": (
        dict(architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float16",
             vocab_size=320, num_attention_heads=6, intermediate_size=250, rope_scaling=None,
             attention_bias=False, bos_token_id=1, eos_token_id=2, pretraining_tp=1),
        "hub", 200),
    "llama3": (
        dict(architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16",
             vocab_size=384, num_attention_heads=12, num_key_value_heads=2, head_dim=16,
             intermediate_size=208, tie_word_embeddings=True, rope_theta=500000.0,
             max_position_embeddings=512, bos_token_id=3, eos_token_id=[4, 5, 6],
             attention_bias=False, mlp_bias=False,
             rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                               original_max_position_embeddings=64, rope_type="llama3")),
        "hub", 200),
    "llama_bias": (
        dict(architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float32",
             vocab_size=257, num_attention_heads=6, num_key_value_heads=2, intermediate_size=110,
             attention_bias=True, mlp_bias=True, bos_token_id=1, eos_token_id=2,
             rope_scaling=dict(type="linear", factor=2.0)),
        "sharded", 200),
    "mistral": (
        dict(architectures=["MistralForCausalLM"], model_type="mistral", torch_dtype="float16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=176,
             sliding_window=24, bos_token_id=1, eos_token_id=2),
        "hub", 200),
    # Long enough to cross from attention's first split of 512 positions into the second.
    "qwen2": (
        dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", torch_dtype="float32",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=98,
             tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6, bos_token_id=0,
             eos_token_id=1, use_sliding_window=False, sliding_window=16, max_window_layers=1),
        "hub", 600),
    "qwen2_yarn": (
        dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", torch_dtype="float16",
             vocab_size=352, num_attention_heads=6, num_key_value_heads=2, intermediate_size=144,
             rope_theta=10000.0, rms_norm_eps=1e-6, max_position_embeddings=64, bos_token_id=0,
             eos_token_id=1, use_sliding_window=False, sliding_window=64, max_window_layers=2,
             rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=64)),
        "hub", 200),
    # One full layer below two that slide: two KV groups.
    "qwen2_window": (
        dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=130,
             num_hidden_layers=3, tie_word_embeddings=True, rms_norm_eps=1e-6, bos_token_id=0,
             eos_token_id=1, use_sliding_window=True, sliding_window=24, max_window_layers=1),
        "hub", 200),
    "qwen3": (
        dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", torch_dtype="bfloat16",
             vocab_size=512, num_attention_heads=6, num_key_value_heads=2, head_dim=64,
             intermediate_size=118, tie_word_embeddings=True, rope_theta=1000000.0,
             rms_norm_eps=1e-6, attention_bias=False, bos_token_id=0, eos_token_id=1,
             use_sliding_window=False, sliding_window=None, max_window_layers=2),
        "transformers5", 200),
    # More query heads than hidden / head_dim, and the widest heads here.
    "qwen3_f16": (
        dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", torch_dtype="float16",
             vocab_size=320, num_attention_heads=12, num_key_value_heads=2, head_dim=64,
             intermediate_size=112, num_hidden_layers=1, tie_word_embeddings=True,
             rope_theta=1000000.0, rms_norm_eps=1e-6, attention_bias=True, bos_token_id=0,
             eos_token_id=1, use_sliding_window=False, sliding_window=None, max_window_layers=1),
        "hub", 120),
    # Norms after their blocks, q and k normed over all their heads.
    "olmo2": (
        dict(architectures=["Olmo2ForCausalLM"], model_type="olmo2", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=122,
             rope_theta=500000.0, rms_norm_eps=1e-6, attention_bias=False, bos_token_id=None,
             eos_token_id=1, pad_token_id=0, max_position_embeddings=512),
        "hub", 200),
    # As many KV heads as query heads; fp32, so that nothing is rounded on the way.
    "olmo2_f32": (
        dict(architectures=["Olmo2ForCausalLM"], model_type="olmo2", torch_dtype="float32",
             vocab_size=257, num_attention_heads=6, intermediate_size=98, rope_theta=500000.0,
             bos_token_id=None, eos_token_id=1, pad_token_id=0),
        "hub", 120),
    # The third of four layers has no RoPE.
    "smollm3": (
        dict(architectures=["SmolLM3ForCausalLM"], model_type="smollm3", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=118,
             num_hidden_layers=4, rope_theta=5000000.0, rms_norm_eps=1e-6,
             attention_bias=False, mlp_bias=False, bos_token_id=0, eos_token_id=1, pad_token_id=2,
             no_rope_layers=[1, 1, 0, 1], no_rope_layer_interval=4, use_sliding_window=False,
             sliding_window=None, layer_types=["full_attention"] * 4),
        "hub", 200),
    # Windows by layer_types; the layer without one has YaRN.
    "olmo3": (
        dict(architectures=["Olmo3ForCausalLM"], model_type="olmo3", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=122,
             num_hidden_layers=3, rope_theta=500000.0, rms_norm_eps=1e-6, attention_bias=False,
             bos_token_id=None, eos_token_id=1, pad_token_id=0, max_position_embeddings=512,
             sliding_window=24,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"],
             rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64,
                               attention_factor=1.2079441541679836, beta_fast=32.0, beta_slow=1.0)),
        "hub", 200),
    # Factors of embeddings, blocks and logits, and a scale of scores.
    "granite": (
        dict(architectures=["GraniteForCausalLM"], model_type="granite", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=134,
             attention_bias=False, mlp_bias=False, bos_token_id=0,
             eos_token_id=1, pad_token_id=0, embedding_multiplier=1.5, residual_multiplier=0.7,
             attention_multiplier=0.2, logits_scaling=1.25),
        "hub", 200),
    # Fused matrices, a rotated part of each head, and long factors: the prompt is longer than the original length.
    "phi3": (
        dict(architectures=["Phi3ForCausalLM"], model_type="phi3", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=3, num_key_value_heads=1,
             intermediate_size=118, bos_token_id=2, eos_token_id=1, pad_token_id=0,
             max_position_embeddings=512, original_max_position_embeddings=64, sliding_window=400,
             partial_rotary_factor=0.5,
             rope_scaling=dict(type="longrope", short_factor=[1 + i / 8 for i in range(8)],
                               long_factor=[1.5 + i * 0.75 for i in range(8)])),
        "hub", 200),
    "gemma": (
        dict(architectures=["GemmaForCausalLM"], model_type="gemma", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=1, head_dim=32,
             intermediate_size=118, hidden_act="gelu", rms_norm_eps=1e-6,
             bos_token_id=2, eos_token_id=1, pad_token_id=0),
        "hub", 200),
    # Norms before and after each block, both softcaps, and a scale that is no root of head_dim.
    "gemma2": (
        dict(architectures=["Gemma2ForCausalLM"], model_type="gemma2", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
             intermediate_size=118, hidden_activation="gelu_pytorch_tanh",
             rms_norm_eps=1e-6, bos_token_id=2, eos_token_id=1, pad_token_id=0,
             query_pre_attn_scalar=20, sliding_window=24, attn_logit_softcapping=3.0,
             final_logit_softcapping=10.0),
        "hub", 200),
    # Local and global layers with two θ, and norms of q and k.
    "gemma3": (
        dict(architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
             intermediate_size=118, num_hidden_layers=3, hidden_activation="gelu_pytorch_tanh",
             rms_norm_eps=1e-6, bos_token_id=2, eos_token_id=1,
             pad_token_id=0, query_pre_attn_scalar=40, sliding_window=24, sliding_window_pattern=3,
             rope_theta=100000.0, rope_local_base_freq=1000.0,
             rope_scaling=dict(rope_type="linear", factor=8.0)),
        "hub", 200),
    # Experts in float16 whose weights are normalised, and a prompt long enough that each of them has tokens.
    "mixtral": (
        dict(architectures=["MixtralForCausalLM"], model_type="mixtral", torch_dtype="float16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=58,
             num_local_experts=5, num_experts_per_tok=2, sliding_window=None, bos_token_id=1, eos_token_id=2),
        "hub", 90),
    # The first of three layers is dense.
    "qwen3_moe": (
        dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, head_dim=32, intermediate_size=118,
             num_hidden_layers=3, moe_intermediate_size=22, num_experts=18, num_experts_per_tok=4,
             norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0], tie_word_embeddings=False,
             rope_theta=1000000.0, rms_norm_eps=1e-6, attention_bias=False, bos_token_id=0, eos_token_id=1,
             use_sliding_window=False, sliding_window=None),
        "hub", 90),
    # q and k normed over all heads, norms before the blocks.
    "olmoe": (
        dict(architectures=["OlmoeForCausalLM"], model_type="olmoe", torch_dtype="float32",
             vocab_size=257, num_attention_heads=6, num_key_value_heads=6, intermediate_size=26, num_experts=9,
             num_experts_per_tok=3, norm_topk_prob=False, clip_qkv=None, attention_bias=False,
             bos_token_id=None, eos_token_id=1, pad_token_id=0),
        "hub", 90),
    # A shared expert with a gate; every second layer has experts.
    "qwen2_moe": (
        dict(architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=98,
             moe_intermediate_size=30, shared_expert_intermediate_size=70, num_experts=7, num_experts_per_tok=2,
             norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[], rms_norm_eps=1e-6,
             rope_theta=1000000.0, bos_token_id=0, eos_token_id=1, use_sliding_window=False),
        "hub", 90),
    # Sinks, alternating windows, biases everywhere, experts transposed with gate and up in turn, YaRN without truncation.
    "gpt_oss": (
        dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, head_dim=32, intermediate_size=26,
             num_hidden_layers=3, num_local_experts=7, num_experts_per_tok=3, attention_bias=True,
             swiglu_limit=2.0, sliding_window=24, rope_theta=150000.0, max_position_embeddings=256,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"],
             rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                               original_max_position_embeddings=64),
             bos_token_id=None, eos_token_id=1, pad_token_id=0),
        "hub", 120),
    # Fused experts in one tensor, and factors as Granite's dense models have them.
    "granite_moe": (
        dict(architectures=["GraniteMoeForCausalLM"], model_type="granitemoe", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, intermediate_size=34,
             num_local_experts=11, num_experts_per_tok=3, embedding_multiplier=3.0, residual_multiplier=0.75,
             attention_multiplier=0.3, logits_scaling=2.0, attention_bias=False, bos_token_id=0, eos_token_id=1,
             pad_token_id=2),
        "hub", 90),
    # The same with a shared expert without a gate.
    "granite_moe_shared": (
        dict(architectures=["GraniteMoeSharedForCausalLM"], model_type="granitemoeshared", torch_dtype="float16",
             vocab_size=257, num_attention_heads=6, num_key_value_heads=2, intermediate_size=34,
             num_hidden_layers=1, shared_intermediate_size=54, num_local_experts=5, num_experts_per_tok=2,
             embedding_multiplier=3.0, residual_multiplier=0.75, attention_multiplier=0.3, logits_scaling=2.0,
             attention_bias=False, bos_token_id=0, eos_token_id=1, pad_token_id=2),
        "hub", 90),
    # A dense layer below two with experts in groups, chosen with corrections; half of each head is rotated.
    "glm4_moe": (
        dict(architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", torch_dtype="bfloat16",
             vocab_size=320, num_attention_heads=6, num_key_value_heads=2, head_dim=32, intermediate_size=118,
             num_hidden_layers=3, moe_intermediate_size=22, n_routed_experts=15, num_experts_per_tok=4,
             n_shared_experts=2, n_group=5, topk_group=3, routed_scaling_factor=1.5, norm_topk_prob=True,
             first_k_dense_replace=1, use_qk_norm=True, partial_rotary_factor=0.5, attention_bias=True,
             num_nextn_predict_layers=0, bos_token_id=None, eos_token_id=1, pad_token_id=0),
        "hub", 90),
}

GENERATION = {
    "llama3": {"bos_token_id": 3, "do_sample": True, "eos_token_id": [4, 5], "temperature": 0.6,
               "top_p": 0.9},
    "qwen2": {"bos_token_id": 0, "do_sample": True, "eos_token_id": [1, 2], "repetition_penalty": 1.1,
              "temperature": 0.7, "top_k": 20, "top_p": 0.8},
}


def draw_weights(model, generator):
    """Sizes that make a lively model: attention scores with a spread of about 1.5, logits of 2.5.
    Tied embeddings would make a token predict itself, so there the layers add more to the residual."""
    state, tied = {}, model.config.tie_word_embeddings
    adds_one = model.config.model_type.startswith("gemma")
    lively = 2.5 * getattr(model.config, "logits_scaling", 1.0)
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float32)
        if name.endswith("norm.weight"):
            state[name] = (0.0 if adds_one else 1.0) + 0.2 * noise
        elif name.endswith("bias"):
            state[name] = 0.3 * noise
        elif name.endswith("sinks"):  # as large as scores are
            state[name] = 1.5 * noise
        elif "embed_tokens" in name or "lm_head" in name:
            scaled = math.sqrt(value.shape[1]) if adds_one and "embed_tokens" in name else 1.0
            state[name] = lively / scaled / math.sqrt(value.shape[1]) * noise
        elif "q_proj" in name or "k_proj" in name:
            state[name] = 1.25 / math.sqrt(value.shape[1]) * noise
        elif name.endswith(("mlp.gate.weight", "router.weight")):  # a router whose choices are clear
            state[name] = 2.0 / math.sqrt(value.shape[1]) * noise
        elif ".experts." in name:  # [experts, rows, columns], or gpt-oss's [experts, columns, rows]
            columns = value.shape[1 if model.config.model_type == "gpt_oss" else 2]
            state[name] = 1.4 / math.sqrt(columns) * noise
        elif tied and ("o_proj" in name or "down_proj" in name):
            state[name] = 2.5 / math.sqrt(value.shape[1]) * noise
        else:
            state[name] = 1.0 / math.sqrt(value.shape[1]) * noise
    if tied:
        state.pop("lm_head.weight")
    return state


def hub_names(state, architecture):
    """Experts as checkpoints have them: a tensor for each matrix of each expert, or one for all."""
    if architecture == "GptOssForCausalLM":
        return state
    if architecture.startswith("GraniteMoe"):
        names = {".experts.gate_up_proj": ".input_linear.weight", ".experts.down_proj": ".output_linear.weight",
                 ".router.weight": ".router.layer.weight"}
        for end, other in names.items():
            state = {name.replace(end, other) if ".block_sparse_moe." in name else name: value
                     for name, value in state.items()}
        return state
    out = {}
    is_mixtral = architecture == "MixtralForCausalLM"
    gate, up, down = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    for name, value in state.items():
        block, what = name.rsplit(".", 1) if ".experts." in name else (name, "")
        if is_mixtral:
            block = block.replace(".mlp.", ".block_sparse_moe.")
        if what == "gate_up_proj":
            for e, matrix in enumerate(value):
                for part, rows in zip((gate, up), matrix.chunk(2)):
                    out[f"{block}.{e}.{part}.weight"] = rows.clone()
        elif what == "down_proj":
            for e, matrix in enumerate(value):
                out[f"{block}.{e}.{down}.weight"] = matrix.clone()
        else:
            out[block] = value
    return out


def write_checkpoint(name, config, layout, directory, attempt):
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {attempt}".encode()))
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    text = json.dumps(config, indent=2) + "\n"
    (directory / "config.json").write_text(text)
    parsed = AutoConfig.from_pretrained(directory)
    dtype = DTYPES[config["torch_dtype"]]
    model = AutoModelForCausalLM.from_config(parsed, dtype=torch.float32)
    state = {k: v.to(dtype) for k, v in draw_weights(model, generator).items()}
    if layout == "hub":
        save_file(hub_names(state, config["architectures"][0]), directory / "model.safetensors",
                  metadata={"format": "pt"})
    else:
        missing, unexpected = model.load_state_dict({k: v.float() for k, v in state.items()},
                                                    strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
        model.tie_weights()
        model.to(dtype)
        size = "200KB" if layout == "sharded" else "50GB"
        model.save_pretrained(directory, max_shard_size=size)
        if layout == "sharded":
            (directory / "config.json").write_text(text)
            (directory / "generation_config.json").unlink(missing_ok=True)
    if name in GENERATION:
        (directory / "generation_config.json").write_text(
            json.dumps(GENERATION[name], indent=2) + "\n")
    return generator


def reference_logits(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def log_softmax(logits):
    return torch.log_softmax(logits.double(), dim=-1)


def golden(name, directory, n_prompt, generator, source=None, kv_dtype=None, streaming=None):
    """source: where the weights are read from, if not from `directory`; kv_dtype: Quire's, where they do not show it;
    streaming: a changed attention, see make_streaming.py."""
    source = source or directory
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32,
                                                 attn_implementation="eager", experts_implementation="eager").eval()
    vocab = model.config.vocab_size
    assert (model.dtype, model.config.architectures) == (torch.float32, [type(model).__name__])
    ours = naive.Model(source)
    if streaming:
        streaming.install(model)
        ours.streaming = (streaming.sinks, streaming.window)
    ours.kv_dtype = kv_dtype or ours.kv_dtype
    prompt = torch.randint(0, vocab, (n_prompt,), generator=generator).tolist()

    ids, margins = list(prompt), []
    for _ in range(GREEDY):
        logits = reference_logits(model, ids)[-1]
        best = torch.topk(logits.double(), 2)
        margins.append((best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    if len(set(ids[n_prompt:])) < LIVELY:
        return False

    logits = reference_logits(model, ids)
    assert torch.isfinite(logits).all()
    spread = logits.std(dim=-1).mean().item()
    assert 1.5 < spread < 4.0, spread
    reference = log_softmax(logits)
    rounded = log_softmax(ours.forward(ids, torch.float32))
    exact = log_softmax(ours.forward(ids, torch.float64, kv_dtype=torch.float64))

    # Position p: the distribution of the token at p, given those before it.
    positions = [p for p in (1, 2, 16, 17, 24, 25, 26, 48, 63, 64, 65, 100, 128, 199, 511, 512, 513,
                             n_prompt - 1) if p < n_prompt] + [n_prompt]
    positions = sorted(set(positions))
    tops = {p: torch.topk(reference[p - 1], TOP).indices for p in positions}

    def worst(other):
        after = torch.tensor(ids[1:])
        error = (other - reference)[:-1].gather(1, after[:, None]).abs().max()
        for p, best in tops.items():
            error = torch.maximum(error, (other - reference)[p - 1, best].abs().max())
        return error.item()

    close = [m < ours.route_error for m in ours.route_margins]
    assert sum(close) <= 0.02 * max(1, len(close)), (sum(close), len(close))
    naive_error, noise = worst(rounded), worst(exact)
    if close and 2.0 * naive_error > CAP:  # a route went the other way
        return False
    floor = 4.0 * noise
    tolerance = min(CAP, max(2.0 * naive_error, floor))
    assert 2.0 * naive_error <= CAP, naive_error
    if min(margins[:CERTAIN]) < tolerance:
        return False

    def numbers(values):
        return " ".join(f"{v:.9g}" for v in values)

    lines = [
        "quire-golden 1",
        f"name {name}",
        f"naive_error {naive_error:.3g}",
        f"fp32_noise {noise:.3g}",
        f"tolerance {tolerance:.3g}",
        *([f"streaming {streaming.sinks} {streaming.window}"] if streaming else []),
        f"prompt {n_prompt} " + " ".join(map(str, prompt)),
        f"next {n_prompt - 1} " + numbers(reference[i, prompt[i + 1]].item()
                                          for i in range(n_prompt - 1)),
    ]
    for p, best in tops.items():
        lines.append(f"top {p} {TOP} " + " ".join(
            f"{t} {reference[p - 1, t].item():.9g}" for t in best.tolist()))
    lines += [
        f"greedy {GREEDY} " + " ".join(map(str, ids[n_prompt:])),
        f"greedy_logprob {GREEDY} " + numbers(
            reference[i - 1, ids[i]].item() for i in range(n_prompt, len(ids))),
        f"greedy_margin {GREEDY} " + numbers(margins),
        "end",
    ]
    (directory / "golden.txt").write_text("\n".join(lines) + "\n")
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name:13} logit std {spread:.2f}  naive {naive_error:.2e}  noise {noise:.2e}  "
          f"tolerance {tolerance:.2e}  least margin {min(margins):.2e}  "
          f"close routes {sum(close)} of {len(close)}  "
          f"distinct greedy {len(set(ids[n_prompt:]))}  {size / 1e3:.0f} kB")
    return True


def make(name, attempt):
    fields, layout, n_prompt = MODELS[name]
    generator = write_checkpoint(name, {**BASE, **fields}, layout, ROOT / name, attempt)
    return golden(name, ROOT / name, n_prompt, generator)


def make_all(root, names, make):
    """Makes the checkpoints that the command line names, or all. Each is drawn again until make(name, attempt) accepts
    it. safetensors writes files that only their owner can read; git makes them readable for all."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or list(names):
        attempt = 0
        while not make(name, attempt):
            attempt += 1
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    make_all(ROOT, MODELS, make)
