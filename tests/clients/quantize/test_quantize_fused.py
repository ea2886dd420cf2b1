"""quire quantize of a model whose q, k and v are one matrix, and gate and up another: Phi-3's. The demo model without biases
is made such a model and a Llama, with the same weights."""

import json
import shutil
import struct

import pytest

from conftest import MODEL
from test_quantize import calibration, divergence, quantize, rounded, tensors_of, text, write_tensors  # noqa: F401 (text is a fixture)

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
    ("gptq", ("--no-sym", "--desc-act")), ("gptq", ("--bits", 8)), ("awq", ()), ("smoothquant-w8a8", ())])
def test_same_codes(method, options, pair, tmp_path, text):  # noqa: F811
    more = calibration(text) if method in ("gptq", "awq", "smoothquant-w8a8") else ()
    outs = [quantize(model, tmp_path / model.name, method, *options, *more) for model in pair]
    assert "model.layers.0.self_attn.qkv_proj." in str(sorted(tensors_of(outs[1] / "model.safetensors")))
    assert divergence(*outs, text) == 0


BITS = {"fp8-e4m3": (3, 448, -6), "fp8-e5m2": (2, 57344, -14)}  # of the mantissa; the largest number; the least normal exponent


def fp8_number(code, n_bits, least):
    sign, exponent, mantissa = -1 if code & 128 else 1, (code & 127) >> n_bits, code & ((1 << n_bits) - 1)
    return sign * (mantissa / 2 ** n_bits * 2.0 ** least if exponent == 0 else (1 + mantissa / 2 ** n_bits) * 2.0 ** (exponent - 1 + least))


# FP8 has one scale for a tensor, so that the parts of a fused one have other codes than alone.
@pytest.mark.parametrize("method", BITS)
def test_fp8_is_the_nearest_number(method, pair, tmp_path, text):  # noqa: F811
    """Each number is the stored weight to half a step of FP8 at its size, and rounding w / scale to float32 adds 2^-23 of it. The plain
    model of these numbers gives the same distributions, but for its KV cache in float32 instead of float16."""
    n_bits, most, least = BITS[method]
    out, numbers = quantize(pair[1], tmp_path / "out", method), [fp8_number(code, n_bits, least) for code in range(256)]
    before, after = (tensors_of(model / "model.safetensors") for model in (pair[1], out))
    plain = {}
    for name, (_, shape, packed) in before.items():
        values = stored = struct.unpack(f"<{len(packed) // 2}e", packed)
        if f"{name}_scale" in after:
            scale, = struct.unpack("<f", after[f"{name}_scale"][2])
            assert scale == rounded(max(map(abs, stored)) / most, "f")
            values = [numbers[code] * scale for code in after[name][2]]
            assert all(abs(a - b) <= max(abs(b) * 2.0 ** -(n_bits + 1), scale * 2.0 ** (least - n_bits - 1)) * (1 + 2 ** -16)
                       for a, b in zip(values, stored)), name
        plain[name] = "F32", shape, struct.pack(f"<{len(values)}f", *values)
    assert sum(name.endswith("qkv_proj.weight_scale") for name in after) == 4
    shutil.copytree(pair[1], tmp_path / "plain")
    config = json.loads((pair[1] / "config.json").read_text()) | {"torch_dtype": "float32"}
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    write_tensors(tmp_path / "plain" / "model.safetensors", plain)
    assert divergence(tmp_path / "plain", out, text) < 1e-5 < divergence(pair[1], out, text)
