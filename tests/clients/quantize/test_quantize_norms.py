"""quire quantize with scales that are folded into norms: Gemma's, whose factors are 1 + w and which has norms behind the blocks too,
and those before experts, whose router reads them."""

import json
import random
import shutil
import struct

import pytest

from conftest import MODEL
from test_quantize import (divergence, drawn_matrix, hash_of, quantize, quire, tensors_of, text, write_mixture,  # noqa: F401 (a fixture)
                           write_tensors)
from test_quantize_experts import OF_8, write_model

SIZE, INNER, LAYERS, LOUD = 64, 96, 2, (3, 17, 40)
GEMMAS = {"GemmaForCausalLM": dict(model_type="gemma"),
          "Gemma2ForCausalLM": dict(model_type="gemma2", query_pre_attn_scalar=16, sliding_window=64),
          "Gemma3ForCausalLM": dict(model_type="gemma3_text", query_pre_attn_scalar=16, sliding_window=64, sliding_window_pattern=2)}
MIXTURES = "mixtral", "qwen2_moe", "granite", "gpt_oss"
EPSILONS = {"F32": 2.0 ** -23, "F16": 2.0 ** -10, "BF16": 2.0 ** -7}


def packed(values, dtype):
    """BF16: cut, so that a number that has no more bits stays."""
    if dtype != "BF16":
        return struct.pack(f"<{len(values)}{'e' if dtype == 'F16' else 'f'}", *values)
    halves, floats = bytearray(2 * len(values)), struct.pack(f"<{len(values)}f", *values)
    halves[::2], halves[1::2] = floats[2::4], floats[3::4]
    return bytes(halves)


def unpacked(tensor):
    dtype, _, data = tensor
    if dtype != "BF16":
        return struct.unpack(f"<{len(data) // (2 if dtype == 'F16' else 4)}{'e' if dtype == 'F16' else 'f'}", data)
    floats = bytearray(2 * len(data))
    floats[2::4], floats[3::4] = data[::2], data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", floats)


def write_gemma(directory, architecture, dtype="BF16"):
    """Loud columns have factors of 20, and one has a factor close to 0."""
    drawn, has_both = random.Random(8), architecture != "GemmaForCausalLM"
    directory.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, directory)
    (directory / "config.json").write_text(json.dumps(dict(
        architectures=[architecture], torch_dtype="bfloat16" if dtype == "BF16" else "float16", hidden_size=SIZE, intermediate_size=INNER,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=4, head_dim=16, vocab_size=2048, max_position_embeddings=512,
        rms_norm_eps=1e-6, rope_theta=10000.0, bos_token_id=2045, eos_token_id=2047, pad_token_id=0, tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh") | GEMMAS[architecture]))
    norms = ["input_layernorm", "post_attention_layernorm"] + ["pre_feedforward_layernorm", "post_feedforward_layernorm"] * has_both
    tensors = {"model.embed_tokens.weight": drawn_matrix(2048, SIZE, drawn), "model.norm.weight": ([SIZE], [0.0] * SIZE)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, rows, cols in (("self_attn.q_proj", SIZE, SIZE), ("self_attn.k_proj", SIZE, SIZE), ("self_attn.v_proj", SIZE, SIZE),
                                 ("self_attn.o_proj", SIZE, SIZE), ("mlp.gate_proj", INNER, SIZE), ("mlp.up_proj", INNER, SIZE),
                                 ("mlp.down_proj", SIZE, INNER)):
            tensors[f"{layer}{name}.weight"] = drawn_matrix(rows, cols, drawn)
        for name in norms:
            is_before = name == "input_layernorm" or name == norms[2 if has_both else 1]
            factors = [20.0 if k in LOUD and is_before else 0.01 if k == 5 else drawn.uniform(0.7, 1.5) for k in range(SIZE)]
            tensors[f"{layer}{name}.weight"] = [SIZE], [x - 1 for x in factors]
        for name in ("q_norm", "k_norm") if architecture == "Gemma3ForCausalLM" else ():
            tensors[f"{layer}self_attn.{name}.weight"] = [16], [drawn.uniform(-0.2, 0.2) for _ in range(16)]
    write_tensors(directory / "model.safetensors", {name: (dtype, shape, packed(values, dtype)) for name, (shape, values) in tensors.items()})
    return directory


def write_any(directory, family):
    if family in GEMMAS:
        return write_gemma(directory, family)
    if family in ("granite", "gpt_oss"):
        return write_model(directory, family, is_apart=True, loud=LOUD)
    return write_mixture(directory, 6, loud=LOUD, is_mixtral=family == "mixtral")


@pytest.fixture(scope="module", params=[*GEMMAS, *MIXTURES])
def family(request, tmp_path_factory, text):  # noqa: F811
    """Its name, a model, and its copy of each method."""
    root = tmp_path_factory.mktemp(request.param)
    model = write_any(root / "model", request.param)
    more = ("--calibration", text, *OF_8)
    return request.param, model, {"awq": quantize(model, root / "awq", "awq", "--group-size", 32, *more),
                                  "smoothquant-w8a8": quantize(model, root / "smoothquant", "smoothquant-w8a8", *more)}


def readers_of(family, layer, names):
    """A layer's norms before the blocks, and what reads each."""
    mlp_norm = f"{layer}pre_feedforward_layernorm" if family in ("Gemma2ForCausalLM", "Gemma3ForCausalLM") else f"{layer}post_attention_layernorm"
    inner = ("gate_proj", "up_proj", "w1", "w3", "input_linear", "gate", "shared_expert_gate", "router", "layer")
    modules = [name.removesuffix(".weight") for name in names if name.startswith(layer) and name.endswith(".weight")]
    return {f"{layer}input_layernorm": [m for m in modules if m.split(".")[-1] in ("q_proj", "k_proj", "v_proj")],
            mlp_norm: [m for m in modules if m.split(".")[-1] in inner]}


def factors_of(family, tensors, norm):
    offset = 1 if family in GEMMAS else 0
    return [x + offset for x in unpacked(tensors[f"{norm}.weight"])]


def smoothed(family, before, after):
    """The model before it is rounded to codes, in float32: its tensors, with the columns that the norms' quotients say."""
    tensors = {name: (shape, list(unpacked(before[name] if len(shape) != 1 or name not in after else after[name])))
               for name, (_, shape, _) in before.items()}
    for i in range(LAYERS):
        for norm, modules in readers_of(family, f"model.layers.{i}.", before).items():
            scales = [a / b for a, b in zip(factors_of(family, before, norm), factors_of(family, after, norm))]
            assert min(scales) > 0 and max(scales) / min(scales) > 1.2, norm
            assert len(modules) >= 2
            for m in modules:
                shape, values = tensors[f"{m}.weight"]
                tensors[f"{m}.weight"] = shape, [x * scales[k % SIZE] for k, x in enumerate(values)]
    return tensors


def as_float32(model, out, tensors):
    shutil.copytree(model, out)
    (out / "config.json").write_text(json.dumps(json.loads((model / "config.json").read_text()) | {"torch_dtype": "float32"}))
    write_tensors(out / "model.safetensors", {name: ("F32", shape, packed(values, "F32")) for name, (shape, values) in tensors.items()})
    return out


def test_smoothing_changes_nothing(family, tmp_path, text):  # noqa: F811
    """The model with its scales, before it is rounded, is the original in float32. A weight and an activation have a rounding of 2^-24
    each more, which are of either sign. KL of logits that differ by d is at most d^2 / 2, so 1e-9 allows d of 2^-14: a thousand roundings
    of a logit of size 1. The measured figures are below 1e-11."""
    name, model, outs = family
    before, after = (tensors_of(m / "model.safetensors") for m in (model, outs["smoothquant-w8a8"]))
    plain = as_float32(model, tmp_path / "plain", {n: (t[1], unpacked(t)) for n, t in before.items()})
    kl = divergence(plain, as_float32(model, tmp_path / "smoothed", smoothed(name, before, after)), text)
    assert kl < 1e-9, kl


def test_codes_are_those_of_the_scaled_weights(family):
    """Half a step, and what the scale's rounding to the file's dtype cuts from the largest weight: 127 steps of half an epsilon."""
    name, model, outs = family
    before, after = (tensors_of(m / "model.safetensors") for m in (model, outs["smoothquant-w8a8"]))
    wanted, n_checked = smoothed(name, before, after), 0
    for module in [n.removesuffix(".weight_scale") for n in after if n.endswith(".weight_scale")]:
        (rows, cols), values = wanted[f"{module}.weight"]
        codes, scales = struct.unpack(f"<{rows * cols}b", after[f"{module}.weight"][2]), unpacked(after[f"{module}.weight_scale"])
        most = 0.5 + 127 * EPSILONS[after[f"{module}.weight_scale"][0]] / 2 + 1e-4
        assert all(abs(codes[i] - values[i] / scales[i // cols]) <= most for i in range(rows * cols)), module
        n_checked += 1
    assert n_checked == sum(1 for n in before if n.endswith(".weight") and n not in after or n in after and after[n][0] == "I8")


def test_what_is_not_read_stays(family):
    """Norms behind a block, those of heads, embeddings, biases: their bytes are the model's. A router's numbers are scaled and rounded to
    its dtype."""
    name, model, outs = family
    before = tensors_of(model / "model.safetensors")
    norms = {n for i in range(LAYERS) for n in readers_of(name, f"model.layers.{i}.", before)}
    readers = {m for i in range(LAYERS) for ms in readers_of(name, f"model.layers.{i}.", before).values() for m in ms}
    for method, out in outs.items():
        after = tensors_of(out / "model.safetensors")
        for n, tensor in before.items():
            module = n.removesuffix(".weight")
            if n not in after or after[n][0] == "I8" or module in norms:
                continue
            if module in readers:
                wanted, half = smoothed(name, before, after)[n][1], EPSILONS[tensor[0]] / 2 + 2.0 ** -22
                assert after[n][0] == tensor[0] and all(abs(a - b) <= half * abs(b) + 2.0 ** -25 for a, b in zip(unpacked(after[n]), wanted)), n
            elif method == "smoothquant-w8a8" or not n.endswith(".bias"):
                assert after[n] == tensor, n
        assert all(after[f"{n}.weight"] != before[f"{n}.weight"] for n in norms)


def int8_rounded(model, out, smooth, root):
    """What smoothquant-w8a8 would be without scales: the codes of absmax-int8 in its format."""
    shutil.copytree(smooth, out)
    tensors = tensors_of(quantize(model, root / "rounded", "absmax-int8") / "model.safetensors")
    changed = {}
    for n, (dtype, shape, data) in tensors.items():
        if n.endswith(".weight_packed"):
            changed[n.removesuffix("_packed")] = "I8", [shape[0], shape[1] * 4], bytes((b - 128) & 255 for b in data)
        elif not n.endswith(".weight_shape"):
            changed[n] = dtype, shape, data
    write_tensors(out / "model.safetensors", changed)
    return out


def test_the_error_is_less_than_without_scales(family, tmp_path, text):  # noqa: F811
    """On models with loud columns."""
    name, model, outs = family
    plain = int8_rounded(model, tmp_path / "plain", outs["smoothquant-w8a8"], tmp_path)
    kl, of_plain = divergence(model, outs["smoothquant-w8a8"], text), divergence(model, plain, text)
    assert kl < 0.5 * of_plain, (kl, of_plain)
    rounded = quantize(model, tmp_path / "int4", "int4-block", "--no-sym", "--group-size", 32)
    kl, of_rounded = divergence(model, outs["awq"], text), divergence(model, rounded, text)
    assert kl < 0.7 * of_rounded, (kl, of_rounded)
