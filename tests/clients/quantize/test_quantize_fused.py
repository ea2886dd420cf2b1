"""quire quantize of a model whose q, k and v are one matrix, and gate and up another: Phi-3's. The demo model without biases
is made such a model and a Llama, with the same weights."""

import json
import shutil

import pytest

from conftest import MODEL
from test_quantize import calibration, divergence, quantize, tensors_of, text, write_tensors  # noqa: F401 (text is a fixture)

FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}


def write_model(out, tensors, architecture, model_type):
    shutil.copytree(MODEL, out)
    config = json.loads((out / "config.json").read_text()) | {"architectures": [architecture], "model_type": model_type, "pad_token_id": 0}
    (out / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "use_sliding_window"}))
    write_tensors(out / "model.safetensors", tensors)
    return out


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The Llama, and the model of fused matrices."""
    root = tmp_path_factory.mktemp("pair")
    split = {name: t for name, t in tensors_of(MODEL / "model.safetensors").items() if not name.endswith(".bias")}
    fused = {name: t for name, t in split.items() if name.split(".")[-2] not in FUSED}
    for layer in range(4):
        for part, whole in FUSED.items():
            folder = f"model.layers.{layer}.{'mlp' if whole == 'gate_up_proj' else 'self_attn'}."
            dtype, shape, packed = split[f"{folder}{part}.weight"]
            _, above, so_far = fused.get(f"{folder}{whole}.weight", (dtype, [0, shape[1]], b""))
            fused[f"{folder}{whole}.weight"] = dtype, [above[0] + shape[0], shape[1]], so_far + packed
    return (write_model(root / "split", split, "LlamaForCausalLM", "llama"),
            write_model(root / "fused", fused, "Phi3ForCausalLM", "phi3"))


# Where each row, or each group of one, has its own scale, the two models have the same codes, and so the same logits.
@pytest.mark.parametrize("method, options", [
    ("absmax-int8", ()), ("zeropoint-int8", ()), ("int4-block", ("--group-size", 32)), ("mxfp4", ()), ("gptq", ()),
    ("gptq", ("--no-sym", "--desc-act")), ("gptq", ("--bits", 8)), ("smoothquant-w8a8", ())])
def test_same_codes(method, options, pair, tmp_path, text):  # noqa: F811
    more = calibration(text) if method in ("gptq", "smoothquant-w8a8") else ()
    outs = [quantize(model, tmp_path / model.name, method, *options, *more) for model in pair]
    assert "model.layers.0.self_attn.qkv_proj." in str(sorted(tensors_of(outs[1] / "model.safetensors")))
    assert divergence(*outs, text) == 0


# Where a tensor has one scale, or the scales of columns are searched with the parts together, they have the same accuracy.
@pytest.mark.parametrize("method", ["fp8-e4m3", "fp8-e5m2", "awq"])
def test_same_accuracy(method, pair, tmp_path, text):  # noqa: F811
    more = calibration(text) if method == "awq" else ()
    of_split, of_fused = [divergence(model, quantize(model, tmp_path / model.name, method, *more), text) for model in pair]
    assert of_fused < 1.5 * of_split, (of_fused, of_split)
