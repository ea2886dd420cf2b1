"""Mixtures of experts: what inspect tells, experts in one tensor, and files and options that are refused by one line."""

import json

from conftest import ROOT
from test_commands import quire
from test_unused import changed, inspected, tensors_of, write

MODEL = ROOT / "tests" / "goldens" / "models" / "qwen3_moe"
PART = "model.layers.1.mlp.experts."


def joined(tensors, part):
    """The tensors with one matrix of all experts of layer 1 in one tensor, and without those of one each."""
    names = [f"{PART}{e}.{part}.weight" for e in range(18)]
    dtype, shape, _ = tensors[names[0]]
    all_of = (dtype, [18, *shape], b"".join(tensors[name][2] for name in names))
    return {name: t for name, t in tensors.items() if name not in names} | {f"{PART}{part}.weight": all_of}


def refused(copy, *words, command="inspect", options=()):
    must_say(quire(command, copy, *options), *words)


def not_opened(copy, *words):
    must_say(quire("bench", "latency", copy, "--batch-size", "1", "--input-len", "4", "--output-len", "2"), *words)


def must_say(got, *words):
    assert got.returncode == 1 and got.stderr.count("\n") == 1 and all(w in got.stderr for w in words), got.stderr


def test_parameters_that_a_token_uses():
    _, about, _ = inspected(MODEL)
    expert = 3 * 96 * 22
    assert about["parameters"] - about["active_parameters"] == 2 * (18 - 4) * expert


def test_experts_in_one_tensor_or_in_one_each(tmp_path):
    copy = changed(tmp_path, MODEL)
    write(copy / "model.safetensors", joined(tensors_of(MODEL / "model.safetensors"), "up_proj"))
    assert inspected(copy)[1]["parameters"] == inspected(MODEL)[1]["parameters"]


def test_experts_that_do_not_add_up(tmp_path):
    tensors = tensors_of(MODEL / "model.safetensors")
    copy = changed(tmp_path, MODEL, num_experts=19)
    refused(copy, "experts.18.")
    refused(changed(tmp_path, MODEL, num_experts=17), "experts.17.")
    copy = changed(tmp_path, MODEL)
    name = f"{PART}7.down_proj.weight"
    write(copy / "model.safetensors", {n: t for n, t in tensors.items() if n != name})
    refused(copy, name)
    write(copy / "model.safetensors", tensors | joined(tensors, "up_proj"))
    refused(copy, "model.safetensors", f"{PART}up_proj.weight", "a second time")
    refused(changed(tmp_path, MODEL, num_experts_per_tok=19), "num_experts_per_tok: is 19, but there are 18 experts")


GPT_OSS = ROOT / "tests" / "goldens" / "models" / "gpt_oss"
GRANITE = ROOT / "tests" / "goldens" / "models" / "granite_moe"


def reshaped(tensors, name, shape):
    dtype, _, data = tensors[name]
    return {name: (dtype, shape, data)}


def without(tmp_path, model, name):
    copy = changed(tmp_path, model)
    write(copy / "model.safetensors", {n: t for n, t in tensors_of(model / "model.safetensors").items() if n != name})
    return copy


def test_parts_that_gpt_oss_lacks(tmp_path):
    for name in ("self_attn.sinks", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj", "mlp.router.bias"):
        copy = without(tmp_path, GPT_OSS, f"model.layers.1.{name}")
        not_opened(copy, f"model.layers.1.{name}")


def test_shapes_of_all_experts(tmp_path):
    tensors = tensors_of(GPT_OSS / "model.safetensors")
    name = "model.layers.0.mlp.experts.gate_up_proj"
    refused(changed(tmp_path, GPT_OSS, reshaped(tensors, name, [7, 52, 96])), name, "expected [7, 96, 52]",
            "got [7, 52, 96]")
    name = "model.layers.0.mlp.experts.gate_up_proj_bias"
    not_opened(changed(tmp_path, GPT_OSS, reshaped(tensors, name, [52, 7])), name, "expected [7, 52]")
    refused(changed(tmp_path, GPT_OSS, num_local_experts=8), "expected [8, 96, 52]", "got [7, 96, 52]")
    tensors = tensors_of(GRANITE / "model.safetensors")
    name = "model.layers.0.block_sparse_moe.input_linear.weight"
    refused(changed(tmp_path, GRANITE, reshaped(tensors, name, [11, 96, 68])), name, "expected [11, 68, 96]")


MXFP4 = ROOT / "tests" / "goldens" / "quantized" / "mxfp4"
STACK = "model.layers.0.mlp.experts.gate_up_proj"


def test_mxfp4_that_does_not_add_up(tmp_path):
    tensors = tensors_of(MXFP4 / "model.safetensors")
    blocks, scales = tensors[f"{STACK}_blocks"], tensors[f"{STACK}_scales"]
    refused(changed(tmp_path, MXFP4, {f"{STACK}_blocks": ("U8", [5, 64, 48], blocks[2])}), f"{STACK}_blocks",
            "must be [5, 64, 3, 16]")
    refused(changed(tmp_path, MXFP4, {f"{STACK}_scales": ("I8", *scales[1:])}), f"{STACK}_scales", "needs U8")
    refused(without(tmp_path, MXFP4, f"{STACK}_scales"), f"{STACK}_scales")
    refused(without(tmp_path, MXFP4, f"{STACK}_blocks"), STACK)
    refused(changed(tmp_path, MXFP4, {STACK: ("BF16", [5, 96, 64], bytes(5 * 96 * 64 * 2))}), STACK, "in addition")
    refused(changed(tmp_path, MXFP4, quantization_config=None), f"{STACK}_blocks", "quantization_config is missing")
    refused(changed(tmp_path, MXFP4, num_local_experts=6), "must be [6, 64, 3, 16]")
    wider = {f"{STACK}_blocks": ("U8", [5, 96, 3, 16], bytes(5 * 96 * 48)), f"{STACK}_scales": ("U8", [5, 96, 3], bytes(1440))}
    refused(changed(tmp_path, MXFP4, wider, intermediate_size=48), "rows of 48 columns are not whole groups of 32")
    bad = scales[2][:100] + b"\xff" + scales[2][101:]
    not_opened(changed(tmp_path, MXFP4, {f"{STACK}_scales": (*scales[:2], bad)}), f"{STACK}_scales", "element 100 is 255")


def test_devices_and_ranks_without_experts():
    refused(MODEL, "--tensor-parallel-size 2", "mixture of experts", command="plan", options=("--tensor-parallel-size", "2"))
    got = quire("plan", MODEL, "--pipeline-parallel-size", "2", "--json")
    assert len(json.loads(got.stdout)["ranks"]) == 2, got.stdout
    refused(MODEL, "mixture of experts", "--device cpu", command="plan", options=("--device", "h100"))
