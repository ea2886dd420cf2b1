"""GGUF keys that could change the arithmetic: each is read or rejected. One file per key and value."""

import json
import struct

import pytest

from test_commands import quire
from test_gguf import GOLDENS, MEASURE, Gguf, array, demo, f32, text_value, u32


def flag(value):
    return struct.pack("<IB", 7, value)


# The keys of llama.cpp's list (its llama-arch.cpp) that Quire reads: each value changes the model or is rejected.
READ = {
    "context_length": u32(77), "embedding_length": u32(32), "block_count": u32(2), "feed_forward_length": u32(32),
    "attention.head_count": u32(2), "attention.head_count_kv": u32(1), "attention.key_length": u32(32),
    "attention.value_length": u32(32), "attention.layer_norm_rms_epsilon": f32(0.5), "rope.dimension_count": u32(2),
    "attention.sliding_window": u32(5), "rope.scale_linear": f32(2.0), "rope.scaling.factor": f32(2.0),
    "rope.freq_base": f32(77.0), "rope.scaling.type": text_value("yarn"),
}

# A rejected value, and one that states the default.
U, F = u32, f32
REFUSED = {
    "attention.causal": (flag(0), flag(1)), "attention.clamp_kqv": (F(1.0), F(0.0)), "attention.max_alibi_bias": (F(8.0), F(0.0)),
    "attention.scale": (F(1.0), F(0.0)), "attention.output_scale": (F(0.5), F(1.0)), "attention.value_scale": (F(0.5), F(1.0)),
    "attention.temperature_length": (U(8192), U(0)), "attention.temperature_scale": (F(0.1), F(0.0)),
    "attention.relative_buckets_count": (U(32), U(0)), "attention.q_lora_rank": (U(8), U(0)), "attention.kv_lora_rank": (U(8), U(0)),
    "attention.key_length_mla": (U(8), U(0)), "attention.value_length_mla": (U(8), U(0)), "attention.shared_kv_layers": (U(1), U(0)),
    "attention.indexer.head_count": (U(1), U(0)), "attention.key_length_swa": (U(8), U(0)), "attention.value_length_swa": (U(8), U(0)),
    "attention.recurrent_layers": (array(4, [1]), array(4, [0])), "attention.compress_ratios": (array(4, [4]), array(4, [0])),
    "attn_logit_softcapping": (F(1.0), F(0.0)), "final_logit_softcapping": (F(30.0), F(0.0)), "router_logit_softcapping": (F(30.0), F(0.0)),
    "logit_scale": (F(0.0625), F(1.0)), "embedding_scale": (F(12.0), F(1.0)), "residual_scale": (F(0.22), F(1.0)),
    "rope.dimension_sections": (array(5, [16, 24, 24, 0]), array(5, [0, 0, 0, 0])), "rope.dimension_count_swa": (U(4), U(0)),
    "rope.freq_base_swa": (F(77.0), F(0.0)), "rope.scaling.alpha": (F(1000.0), F(1.0)), "rope.scaling.attn_factor": (F(0.5), F(1.0)),
    "rope.scaling.yarn_attn_factor": (F(0.5), F(1.0)), "rope.scaling.yarn_ext_factor": (F(0.5), F(1.0)),
    "rope.scaling.yarn_log_multiplier": (F(0.1), F(0.0)), "hidden_activation": (text_value("gelu"), text_value("silu")),
    "swiglu_clamp_exp": (array(6, [7.0]), array(6, [0.0])), "use_parallel_residual": (flag(1), flag(0)), "swin_norm": (flag(1), flag(0)),
    "norm_before_residual": (flag(1), flag(0)), "rescale_every_n_layers": (U(6), U(0)), "expert_weights_scale": (F(2.5), F(1.0)), "expert_gating_func": (U(2), U(1)), "leading_dense_block_count": (U(1), U(0)),
    "expert_used_count": (U(2), U(0)), "expert_shared_count": (U(1), U(0)), "expert_group_count": (U(2), U(0)),
    "expert_group_used_count": (U(1), U(0)), "interleave_moe_layer_step": (U(2), U(0)), "moe_every_n_layers": (U(2), U(0)),
    "nextn_predict_layers": (U(1), U(0)), "n_deepstack_layers": (U(1), U(0)), "full_attention_interval": (U(4), U(0)),
    "token_shift_count": (U(2), U(0)), "hash_layer_count": (U(1), U(0)), "hyper_connection.count": (U(4), U(0)),
    "shortconv.l_cache": (U(3), U(0)), "ssm.state_size": (U(16), U(0)), "wkv.head_size": (U(64), U(0)), "kda.head_dim": (U(64), U(0)),
    "embedding_length_out": (U(8), U(0)), "embedding_length_per_layer_input": (U(8), U(0)), "decoder_block_count": (U(1), U(0)),
    "classifier.output_labels": (array(8, ["yes", "no"]), array(8, [])), "dense_2_feat_out": (U(8), U(0)), "pooling_type": (U(1), U(3)),
}


def inspected(path):
    got = quire("inspect", path, "--json")
    return got.returncode, json.loads(got.stdout), got.stderr


def written(tmp_path, arch="llama", **keys):
    return Gguf(GOLDENS / arch / "model.gguf").write(tmp_path / "keyed.gguf", **keys)


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_changes_the_arithmetic(tmp_path, key):
    value, neutral = REFUSED[key]
    for arch in ("llama", "qwen3"):
        status, _, said = inspected(written(tmp_path, arch, **{f"{arch}.{key}": value}))
        assert status == 1 and f"keyed.gguf: {arch}.{key}: is not supported" in said, said
        status, _, said = inspected(written(tmp_path, arch, **{f"{arch}.{key}": neutral}))
        assert status == 0, said


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return demo(tmp_path_factory.mktemp("demo") / "demo.gguf")


def told(path):
    """The model's description and answer, or its rejection."""
    said = quire("generate", path, "Once upon a time there was a dog", "--raw", "--max-tokens", "24", "--temperature", "0")
    about = inspected(path)[1]
    return said.returncode, said.stdout, {k: v for k, v in about.items() if k != "model"}


@pytest.mark.parametrize("key", READ)
def test_a_key_that_is_read(tmp_path, model, key):
    changed = Gguf(model).write(tmp_path / "keyed.gguf", **{f"qwen2.{key}": READ[key]})
    before, after = told(model), told(changed)
    assert before[0] == 0 and before != after, after


def test_numbers_of_any_width(tmp_path, model):
    """Converters disagree about widths, signs, and one number a layer."""
    before = told(model)[:2]
    keys = {"general.sampling.top_k": struct.pack("<Ii", 5, -1), "general.sampling.temp": u32(1),
            "tokenizer.ggml.bos_token_id": struct.pack("<Iq", 11, -1), "tokenizer.ggml.scores": array(5, [1] * 10)}
    copy = Gguf(model).write(tmp_path / "keyed.gguf", **keys)
    assert told(copy)[:2] == before
    heads = struct.unpack_from("<I", Gguf(model).keys["qwen2.attention.head_count_kv"], 4)[0]
    for value in (array(5, [heads] * 4), struct.pack("<Ih", 3, heads), struct.pack("<Iq", 11, heads)):
        assert told(Gguf(model).write(copy, **{"qwen2.attention.head_count_kv": value}))[:2] == before
    kinds = Gguf(model).keys["tokenizer.ggml.token_type"]
    for key, value in (("tokenizer.ggml.add_bos_token", struct.pack("<IB", 0, 0)), ("tokenizer.ggml.add_bos_token", struct.pack("<Iq", 11, 0)),
                       ("tokenizer.ggml.token_type", struct.pack("<II", 9, 4) + kinds[8:])):
        assert told(Gguf(model).write(copy, **{key: value}))[:2] == before
    assert "add_bos_token: must be true or false" in quire("generate", Gguf(model).write(copy, **{"tokenizer.ggml.add_bos_token": u32(2)}), "x").stderr
    theta, = struct.unpack_from("<f", Gguf(model).keys["qwen2.rope.freq_base"], 4)
    assert told(Gguf(model).write(copy, **{"qwen2.rope.freq_base": struct.pack("<Id", 12, theta)}))[:2] == before
    for value, says in ((array(5, [heads, heads + 1]), "a non-negative integer"), (struct.pack("<Iq", 11, -1), "a non-negative")):
        status, _, said = inspected(Gguf(model).write(copy, **{"qwen2.attention.head_count_kv": value}))
        assert status == 1 and "head_count_kv: must be " + says in said, said


def test_experts(tmp_path):
    """An architecture without experts refuses them; llama with experts is Mixtral."""
    status, _, said = inspected(written(tmp_path, "qwen3", **{"qwen3.expert_count": u32(8)}))
    assert status == 1 and "qwen3.expert_count: is not supported" in said
    status, _, said = inspected(written(tmp_path, **{"llama.expert_count": u32(8)}))
    assert status == 1 and "llama.expert_used_count: is missing" in said
    changed = {"expert_used_count": (6, "num_experts_per_tok: is 6"), "expert_count": (4, "got [5, 96, 128]")}
    for key, (value, says) in changed.items():
        status, _, said = inspected(written(tmp_path, "mixtral", **{f"llama.{key}": u32(value)}))
        assert status == 1 and says in said, said
    status, about, said = inspected(written(tmp_path, "mixtral", **{"llama.expert_weights_norm": flag(0)}))
    assert status == 1 and "llama.expert_weights_norm: false is not supported" in said
    status, about, said = inspected(written(tmp_path, "mixtral", **{"llama.expert_weights_norm": flag(1)}))
    assert status == 0 and about["architecture"] == "MixtralForCausalLM", said


def test_windows(tmp_path):
    for arch in ("qwen2", "qwen3", "smollm3"):
        status, _, said = inspected(written(tmp_path, arch, **{f"{arch}.attention.sliding_window": u32(4)}))
        assert status == 1 and f"{arch}.attention.sliding_window: is not supported" in said
        status, _, said = inspected(written(tmp_path, arch, **{f"{arch}.attention.sliding_window": u32(1 << 20)}))
        assert status == 0, said
    keys = {"llama.attention.sliding_window": u32(4)}
    assert inspected(written(tmp_path, **keys))[1]["architecture"] == "MistralForCausalLM"
    status, _, said = inspected(written(tmp_path, **keys, **{"llama.attention.sliding_window_pattern": u32(6)}))
    assert status == 1 and "sliding_window_pattern" in said


def test_rope_scaling(tmp_path):
    """As in llama.cpp: a factor without a type is linear, and the type none has no factor."""
    def length(**keys):
        status, about, said = inspected(written(tmp_path, "qwen3", **{f"qwen3.rope.scaling.{k}": v for k, v in keys.items()}))
        assert status == 0, said
        return about["max_position"]
    whole = length()
    assert length(type=text_value("none"), factor=f32(4.0)) == length(factor=f32(0.0)) == length(type=text_value("linear")) == whole
    assert length(factor=f32(4.0)) == length(type=text_value("linear"), factor=f32(4.0)) == whole // 4 * 4
    assert length(type=text_value("yarn"), factor=f32(4.0)) == 4 * whole


def test_tokens_that_are_never_drawn(tmp_path):
    status, _, said = inspected(written(tmp_path, **{"tokenizer.ggml.suppress_tokens": array(5, [3])}))
    assert status == 1 and "tokenizer.ggml.suppress_tokens" in said


def test_the_scale_of_scores(tmp_path):
    file = Gguf(GOLDENS / "qwen3" / "model.gguf")
    head_dim, = struct.unpack_from("<I", file.keys["qwen3.attention.key_length"], 4)
    assert inspected(written(tmp_path, "qwen3", **{"qwen3.attention.scale": f32(head_dim ** -0.5)}))[0] == 0
    assert inspected(written(tmp_path, "gemma2", **{"gemma2.attention.scale": f32(20 ** -0.5)}))[0] == 0
    status, _, said = inspected(written(tmp_path, "gemma2", **{"gemma2.attention.scale": struct.pack("<Id", 12, 1e-200)}))
    assert status == 1 and "gemma2.attention.scale: is too small" in said, said


@pytest.mark.parametrize("arch, name, says", [
    ("phi3", "rope_factors_short.weight", "tensor 'rope_factors_short.weight': must be there"),
    ("phi3", "rope_factors_long.weight", "tensor 'rope_factors_long.weight': must be there"),
    ("qwen3_moe", "blk.0.ffn_up_exps.weight", "tensor 'model.layers.0.mlp.experts.0.up_proj.weight' is missing"),
    ("mixtral", "blk.1.ffn_down.3.weight", "tensor 'model.layers.1.mlp.experts.3.down_proj.weight' is missing"),
    ("qwen2_moe", "blk.0.ffn_gate_inp_shexp.weight", "tensor 'model.layers.0.mlp.shared_expert_gate.weight' is missing"),
    ("gpt_oss", "blk.0.ffn_down_exps.bias", "tensor 'model.layers.0.mlp.experts.0.down_proj.bias' is missing"),
    ("gpt_oss", "blk.1.attn_sinks.weight", "tensor 'model.layers.1.self_attn.sinks' is missing"),
    ("gemma3", "blk.2.post_ffw_norm.weight", "tensor 'model.layers.2.post_feedforward_layernorm.weight' is missing"),
])
def test_a_tensor_that_is_missing(tmp_path, arch, name, says):
    file = Gguf(GOLDENS / arch / "model.gguf")
    rest = [t for t in file.tensors if t[0] != name]
    assert len(rest) == len(file.tensors) - 1
    got = quire("bench", "latency", file.write(tmp_path / "less.gguf", rest), *MEASURE)
    assert got.returncode == 1 and got.stderr.count("\n") == 1 and says in got.stderr, got.stderr


def test_experts_twice_or_of_another_shape(tmp_path):
    file = Gguf(GOLDENS / "qwen3_moe" / "model.gguf")
    one = list(file.tensor("blk.0.ffn_up_exps.weight"))
    copy = ["blk.0.ffn_up.0.weight", one[1][:2], one[2], one[3][:len(one[3]) // one[1][2]]]
    status, _, said = inspected(file.write(tmp_path / "twice.gguf", [*file.tensors, copy]))
    assert status == 1 and "has the experts a second time" in said, said
    turned = [[n, [d[1], d[0] // 2, d[2] * 2], k, b] if n == one[0] else [n, d, k, b] for n, d, k, b in file.tensors]
    status, _, said = inspected(file.write(tmp_path / "turned.gguf", turned))
    assert status == 1 and "expected [5, 256, 256]" in said and "got [10, 128, 256]" in said, said
