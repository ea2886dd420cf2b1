"""Files that are written in other ways than the libraries of today do it: they start, and compute the same."""

import json
import struct

import pytest

from conftest import MODEL, ROOT
from test_commands import quire
from test_unused import changed, inspected, tensors_of

GOLDENS = ROOT / "tests" / "goldens" / "models"


def shifted(copy, n_bytes):
    """The weights behind a header that is longer by some spaces."""
    path = copy / "model.safetensors"
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    path.write_bytes(struct.pack("<Q", n + n_bytes) + raw[8:8 + n] + b" " * n_bytes + raw[8 + n:])
    return copy


def answer(model):
    got = quire("generate", model, "Once upon a time", "--raw", "--max-tokens", "12", "--temperature", "0")
    assert got.returncode == 0, got.stderr
    return got.stdout


def planned(model):
    return json.loads(quire("plan", model, "--json", "--num-kv-blocks", "100").stdout)


def test_tensors_at_odd_bytes(tmp_path):
    """They are copied, and the plan counts the copies, each on 64 bytes."""
    copy = shifted(changed(tmp_path, MODEL), 1)
    assert answer(copy) == answer(MODEL)
    before, after = planned(MODEL), planned(copy)
    more = after["regrouped_bytes"] - before["regrouped_bytes"]
    assert before["weight_bytes"] <= more < before["weight_bytes"] + 64 * 1000
    assert after["total_bytes"] == before["total_bytes"] + more
    assert "misaligned tensors are copied" in quire("inspect", copy).stdout


@pytest.mark.parametrize("model, n_bytes, is_copied", [("qwen2", 2, True), ("qwen2", 4, False), ("qwen3_f16", 2, False)])
def test_tensors_at_even_bytes(tmp_path, model, n_bytes, is_copied):
    """F32 at a multiple of 2 is copied; what lies on its boundary is used in place."""
    assert (inspected(shifted(changed(tmp_path, GOLDENS / model), n_bytes))[1]["regrouped_bytes"] > 0) == is_copied


@pytest.mark.parametrize("name", ["anything", "lm_head.weight", "model.layers.77.input_layernorm.weight"])
def test_a_tensor_that_the_index_does_not_assign(tmp_path, name):
    copy, shard = changed(tmp_path, MODEL, {name: ("F32", [1], bytes(4))}), "model-00001-of-00001.safetensors"
    index = {"weight_map": dict.fromkeys(tensors_of(MODEL / "model.safetensors"), shard)}
    (copy / "model.safetensors").rename(copy / shard)
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert answer(copy) == answer(MODEL)
    assert inspected(copy)[1]["unused_tensors"] == []


@pytest.mark.parametrize("change", [
    {"torch_dtype": "torch.float16"}, {"hidden_act": "swish"}, {"max_position_embeddings": 512.0},
    {"eos_token_id": -1}, {"eos_token_id": [-1, 2]}, {"pad_token_id": -1}, {"time_step_limit": [0.0, float("inf")]},
    {"scale": float("nan")},
], ids=str)
def test_fields_of_config(tmp_path, change):
    status, _, said = inspected(changed(tmp_path, GOLDENS / "qwen3_f16", **change))
    assert status == 0, said


@pytest.mark.parametrize("change, words", [
    ({"torch_dtype": "torch.int8"}, "torch_dtype: 'int8' is not supported"),
    ({"hidden_act": "swish2"}, "hidden_act: 'swish2'"),
    ({"eos_token_id": -2}, "eos_token_id: must be between 0"),
    ({"max_position_embeddings": 512.5}, "max_position_embeddings"),
    ({"rope_theta": float("inf")}, "rope_theta"),
], ids=str)
def test_fields_that_are_wrong(tmp_path, change, words):
    status, _, said = inspected(changed(tmp_path, GOLDENS / "qwen3_f16", **change))
    assert status == 1 and words in said and said.count("\n") == 0, said
