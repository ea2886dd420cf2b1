"""Checkpoints with other tensors than their config.json describes: some are rejected, others are known to change
nothing."""

import json
import shutil
import struct

import pytest

from conftest import MODEL, ROOT
from test_commands import quire
from test_gguf import GOLDENS as GGUF
from test_gguf import Gguf, refusal

MODELS, VECTORS = ROOT / "tests" / "goldens" / "models", ROOT / "tests" / "goldens" / "vectors"
IGNORE = "--ignore-unused-tensors"


def tensors_of(path):
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def changed(tmp_path, model, tensors=None, **config):
    """A copy of a model with additional or other tensors, and other fields in its config.json."""
    copy = tmp_path / "model"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(model, copy)
    write(copy / "model.safetensors", tensors_of(model / "model.safetensors") | (tensors or {}))
    about = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(about | config))
    return copy


def f32(*values):
    return ("F32", [len(values)], struct.pack(f"<{len(values)}f", *values))


def inspected(model, *options):
    got = quire("inspect", model, "--json", *options)
    return got.returncode, json.loads(got.stdout), got.stderr.strip()


def must_refuse(model, name, *options):
    status, about, said = inspected(model, *options)
    assert status == 1 and f"tensor '{name}'" in said and IGNORE in said, said
    status, about, said = inspected(model, IGNORE, *options)
    assert status == 0, said
    ignored = [kind for kind in about["unused_tensors"] if IGNORE in kind["what"]]
    assert [kind["first"] for kind in ignored] == [name], about


def must_take(model, what, *options):
    status, about, said = inspected(model, *options)
    assert status == 0, said
    assert what in [kind["what"] for kind in about["unused_tensors"]], about["unused_tensors"]


N_LAYERS = json.loads((MODEL / "config.json").read_text())["num_hidden_layers"]


def test_more_layers_than_the_config_says(tmp_path):
    model = changed(tmp_path, MODEL, num_hidden_layers=N_LAYERS - 1)
    first = f"model.layers.{N_LAYERS - 1}.input_layernorm.weight"
    must_refuse(model, first)
    for command in ("plan", "doctor", ("generate", "x", "--max-tokens", "1"),
                    ("bench", "latency", "--input-len", "4", "--output-len", "1", "--num-iters", "1", "--num-iters-warmup", "0")):
        name, *options = (command,) if isinstance(command, str) else command
        arguments = (name, options[0], model, *options[1:]) if name == "bench" else (name, model, *options)
        got = quire(*arguments)
        assert got.returncode != 0 and first in got.stdout + got.stderr, (command, got)
        got = quire(*arguments, IGNORE)
        assert got.returncode == 0, (command, got)


def test_a_draft_model_is_looked_at_too(tmp_path):
    draft = changed(tmp_path, MODEL, num_hidden_layers=N_LAYERS - 1)
    ask = ("generate", MODEL, "x", "--max-tokens", "1", "--speculative-config",
           json.dumps({"method": "draft_model", "model": str(draft), "num_speculative_tokens": 2}))
    got = quire(*ask)
    assert got.returncode == 1 and f"model.layers.{N_LAYERS - 1}." in got.stderr, got
    assert quire(*ask, IGNORE).returncode == 0


@pytest.mark.parametrize("model,name", [
    ("llama2", "model.layers.0.self_attn.q_proj.bias"),  # attention_bias is false
    ("llama2", "model.layers.1.mlp.up_proj.bias"),
    ("llama2", "model.layers.0.self_attn.q_norm.weight"),
    ("qwen2", "model.layers.0.self_attn.o_proj.bias"),
    ("qwen3", "model.layers.1.post_feedforward_layernorm.weight"),
    ("olmo2", "model.layers.0.input_layernorm.weight"),
    ("llama2", "model.layers.0.mlp.experts.0.up_proj.weight"),
    ("llama2", "model.embed_positions.weight"),
    ("llama2", "model.layers.00.input_layernorm.weight"),
    ("llama2", "lm_head.bias"),
    ("llama2", "layers.0.input_layernorm.weight"),
])
def test_tensors_of_the_architecture_that_are_not_used(tmp_path, model, name):
    must_refuse(changed(tmp_path, MODELS / model, {name: f32(0.0, 1.0)}), name)


EXTRAS = [
    ("model.layers.0.self_attn.rotary_emb.inv_freq", "rotary tables"),
    ("model.rotary_emb.inv_freq", "rotary tables"),
    ("model.embeddings.position_ids", "position ids"),
    ("optimizer.state.0.exp_avg", "optimizer state"),
    ("model.layers.0.mlp.up_proj.weight.exp_avg_sq", "optimizer state"),
    ("model.vision_tower.blocks.0.weight", "vision parts"),
    ("visual.patch_embed.weight", "vision parts"),
    ("multi_modal_projector.weight", "vision parts"),
    ("model.mtp_layers.0.input_proj.weight", "layers that predict further tokens (MTP)"),
    ("mtp.fc.weight", "layers that predict further tokens (MTP)"),
    ("model.layers.0.self_attn.k_scale", "scales of a KV cache"),
    ("something.else", "unknown to this architecture"),
]


@pytest.mark.parametrize("name,what", EXTRAS)
def test_known_extras(tmp_path, name, what):
    must_take(changed(tmp_path, MODELS / "llama2", {name: f32(1.0)}), what)


def test_layers_that_predict_further_tokens(tmp_path):
    n = json.loads((MODELS / "llama2" / "config.json").read_text())["num_hidden_layers"]
    more = {f"model.layers.{n}.eh_proj.weight": f32(1.0)}
    must_take(changed(tmp_path, MODELS / "llama2", more, num_nextn_predict_layers=1), "layers that predict further tokens (MTP)")
    must_refuse(changed(tmp_path, MODELS / "llama2", more), f"model.layers.{n}.eh_proj.weight")


def test_biases_of_zeros(tmp_path):
    name = "model.layers.0.mlp.up_proj.bias"
    must_take(changed(tmp_path, MODELS / "llama2", {name: f32(0.0, -0.0)}), "biases of zeros")
    must_take(changed(tmp_path, MODELS / "llama2", {name: ("F16", [2], b"\0\0\0\x80")}), "biases of zeros")
    must_refuse(changed(tmp_path, MODELS / "llama2", {name: ("F16", [2], b"\0\0\1\0")}), name)


def test_a_head_beside_tied_embeddings(tmp_path):
    tensors = tensors_of(MODEL / "model.safetensors")
    dtype, shape, data = tensors["model.embed_tokens.weight"]
    must_take(changed(tmp_path, MODEL, {"lm_head.weight": (dtype, shape, data)}), "a copy of the embeddings")
    other = data[:-1] + bytes([data[-1] ^ 1])
    model = changed(tmp_path, MODEL, {"lm_head.weight": (dtype, shape, other)})
    must_refuse(model, "lm_head.weight")
    assert "tie_word_embeddings" in inspected(model)[2]
    # A model that returns vectors computes no logits.
    must_take(changed(tmp_path, VECTORS / "qwen3_last", {"lm_head.weight": f32(1.0)}), "the output head", "--task", "embed")


def test_encoders(tmp_path):
    for name, what in (("embeddings.position_ids", "position ids"), ("pooler.dense.weight", "the pooler"),
                       ("cls.predictions.bias", "heads of a language model"), ("lm_head.dense.weight", "heads of a language model")):
        must_take(changed(tmp_path, VECTORS / "bert_mean", {name: f32(1.0)}), what)
    for name in ("encoder.layer.77.output.dense.weight", "classifier.weight", "embeddings.norm.weight"):
        must_refuse(changed(tmp_path, VECTORS / "bert_mean", {name: f32(1.0)}), name)


# ---- GGUF -----------------------------------------------------------------------------------------------------------

def test_gguf_tensors_that_are_not_used(tmp_path):
    file = Gguf(GGUF / "llama" / "model.gguf")
    weight = ["?", [4], 0, struct.pack("<4f", 1, 2, 3, 4)]
    for name, ours in (("blk.7.attn_norm.weight", "model.layers.7.input_layernorm.weight"), ("blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight"),
                       ("blk.0.ffn_gate_inp.weight", "model.layers.0.mlp.gate.weight"), ("rope_factors_long.weight",) * 2,
                       ("cls.output.weight",) * 2, ("blk.0.attn_q.scale", "model.layers.0.self_attn.q_proj.scale"), ("dense_2.weight",) * 2,
                       ("blk.0.attn_q.weight.lora_a",) * 2, ("token_types.weight",) * 2, ("blk.0.unknown",) * 2):
        path = file.write(tmp_path / "more.gguf", [*file.tensors, [name, *weight[1:]]])
        must_refuse(path, ours)
        assert ours in refusal(path)
    for name, what in (("blk.0.attn_rot_embd.weight", "rotary tables"), ("v.patch_embd.weight", "vision parts"),
                       ("anything", "unknown to this architecture"), ("nextn.pre_projection.weight", "unknown to this architecture")):
        must_take(file.write(tmp_path / "more.gguf", [*file.tensors, [name, *weight[1:]]]), what)
    for dims, kind, size in (([0], 0, 0), ([3, 0], 0, 0), ([], 0, 4), ([1, 2, 3, 1], 0, 24), ([3], 26, 12), ([256], 16, 66)):
        must_take(file.write(tmp_path / "more.gguf", [*file.tensors, ["anything", dims, kind, bytes(size)]]), "unknown to this architecture")
