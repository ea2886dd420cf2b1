"""quire quantize of models that have the experts of a layer in one tensor: Granite's and gpt-oss's. The same models with the
experts apart, as quantized checkpoints name them, have the same weights."""

import json
import random
import shutil
import struct

import pytest

from conftest import MODEL
from test_quantize import (E2M1, divergence, drawn_matrix, quantize, quire, tensors_of, text,  # noqa: F401 (a fixture)
                           write_safetensors, write_tensors)

SIZE, INNER, SHARED, EXPERTS, LAYERS = 64, 32, 64, 6, 2
COMMON = dict(torch_dtype="float16", hidden_size=SIZE, intermediate_size=INNER, num_local_experts=EXPERTS, num_experts_per_tok=2,
              num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=2048,
              max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=10000.0, eos_token_id=2047, tie_word_embeddings=False,
              hidden_act="silu")
CONFIGS = {"granite": dict(architectures=["GraniteMoeSharedForCausalLM"], model_type="granitemoeshared", shared_intermediate_size=SHARED,
                           embedding_multiplier=1.5, residual_multiplier=0.75, attention_multiplier=0.25, logits_scaling=2.0),
           "gpt_oss": dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", attention_bias=True, swiglu_limit=2.0, sliding_window=64,
                           layer_types=["sliding_attention", "full_attention"],
                           rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                             original_max_position_embeddings=128))}


def rows_of(matrix):
    shape, values = matrix
    return [values[i * shape[-1]:(i + 1) * shape[-1]] for i in range(shape[0])]


def stacked(matrices):
    return [len(matrices), *matrices[0][0]], [x for _, values in matrices for x in values]


def above(top, bottom):
    return [top[0][0] + bottom[0][0], top[0][1]], top[1] + bottom[1]


def turned(matrix):
    return matrix[0][::-1], [x for column in zip(*rows_of(matrix)) for x in column]


def in_turn(gate, up):
    return [2 * gate[0][0], *gate[0][1:]], [x for pair in zip(rows_of(gate), rows_of(up)) for row in pair for x in row]


def expert_tensors(family, layer, gates, ups, downs, biases, is_apart):
    """gates ...: of each expert. biases: of the three, gpt-oss's."""
    if family == "granite":
        block = f"{layer}block_sparse_moe."
        if is_apart:
            return {f"{block}experts.{e}.{name}.weight": m[e] for e in range(EXPERTS) for name, m in (("w1", gates), ("w3", ups), ("w2", downs))}
        return {f"{block}input_linear.weight": stacked([above(*pair) for pair in zip(gates, ups)]), f"{block}output_linear.weight": stacked(downs)}
    block = f"{layer}mlp.experts."
    if is_apart:
        names = ("gate_proj", "up_proj", "down_proj")
        both = [(name, m, b) for name, m, b in zip(names, (gates, ups, downs), biases)]
        return ({f"{block}{e}.{name}.weight": m[e] for e in range(EXPERTS) for name, m, _ in both} |
                {f"{block}{e}.{name}.bias": b[e] for e in range(EXPERTS) for name, _, b in both})
    column = [[([b[0][0], 1], b[1]) for b in of_all] for of_all in biases]
    pairs = [in_turn(*pair) for pair in zip(column[0], column[1])]
    return {f"{block}gate_up_proj": stacked([turned(in_turn(*pair)) for pair in zip(gates, ups)]), f"{block}down_proj": stacked([turned(m) for m in downs]),
            f"{block}gate_up_proj_bias": stacked([([b[0][0]], b[1]) for b in pairs]), f"{block}down_proj_bias": stacked(biases[2])}


def layer_tensors(family, i, loud, drawn, is_apart):
    def bias(rows):
        return [rows], [drawn.gauss(0, 0.1) for _ in range(rows)]

    layer, is_granite = f"model.layers.{i}.", family == "granite"
    tensors = {f"{layer}{name}.weight": ([SIZE], [20.0 if k in loud else 1.0 for k in range(SIZE)])
               for name in ("input_layernorm", "post_attention_layernorm")}
    for name, rows in ("q_proj", SIZE), ("k_proj", 32), ("v_proj", 32), ("o_proj", SIZE):
        tensors[f"{layer}self_attn.{name}.weight"] = drawn_matrix(rows, SIZE, drawn)
        if not is_granite:
            tensors[f"{layer}self_attn.{name}.bias"] = bias(rows)
    gates, ups, downs = ([drawn_matrix(rows, cols, drawn) for _ in range(EXPERTS)] for rows, cols in ((INNER, SIZE), (INNER, SIZE), (SIZE, INNER)))
    biases = [[bias(rows) for _ in range(EXPERTS)] for rows in (INNER, INNER, SIZE)]
    tensors |= expert_tensors(family, layer, gates, ups, downs, biases, is_apart)
    if is_granite:
        tensors[f"{layer}block_sparse_moe.router.layer.weight"] = drawn_matrix(EXPERTS, SIZE, drawn)
        tensors[f"{layer}shared_mlp.input_linear.weight"] = drawn_matrix(2 * SHARED, SIZE, drawn)
        tensors[f"{layer}shared_mlp.output_linear.weight"] = drawn_matrix(SIZE, SHARED, drawn)
    else:
        tensors |= {f"{layer}self_attn.sinks": bias(4), f"{layer}mlp.router.weight": drawn_matrix(EXPERTS, SIZE, drawn),
                    f"{layer}mlp.router.bias": bias(EXPERTS)}
    return tensors


def write_model(directory, family, is_apart=False, loud=()):
    drawn = random.Random(11)
    directory.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, directory)
    (directory / "config.json").write_text(json.dumps(COMMON | CONFIGS[family]))
    tensors = {"model.embed_tokens.weight": drawn_matrix(2048, SIZE, drawn), "lm_head.weight": drawn_matrix(2048, SIZE, drawn),
               "model.norm.weight": ([SIZE], [1.0] * SIZE)}
    for i in range(LAYERS):
        tensors |= layer_tensors(family, i, loud, drawn, is_apart)
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


@pytest.fixture(scope="module", params=["granite", "gpt_oss"])
def pair(request, tmp_path_factory):
    """A model with its experts in one tensor, and the same with the experts apart."""
    root = tmp_path_factory.mktemp(request.param)
    return [write_model(root / name, request.param, is_apart) for name, is_apart in (("together", False), ("apart", True))]


def test_experts_that_are_apart_are_the_same_model(pair, text):  # noqa: F811
    assert divergence(*pair, text) == 0


OF_8 = ("--calibration-samples", 8, "--calibration-length", 256)


def ignored(model):
    config = json.loads((model / "config.json").read_text())["quantization_config"]
    return config.get("ignore") or config.get("modules_to_not_convert") or []


# The output is that of the model whose experts are apart, in each tensor.
@pytest.mark.parametrize("method, options", [
    ("absmax-int8", ()), ("int4-block", ("--group-size", 16, "--no-sym")), ("fp8-e4m3", ()), ("gptq", ("--group-size", 32)), ("gptq", ("--group-size", 16, "--desc-act", "--no-sym")),
    ("awq", ("--group-size", 32)), ("smoothquant-w8a8", ())])
def test_outputs_are_those_of_experts_that_are_apart(method, options, pair, tmp_path, text):  # noqa: F811
    more = ("--calibration", text, *OF_8) if method in ("gptq", "awq", "smoothquant-w8a8") else ()
    outs = [quantize(model, tmp_path / model.name, method, *options, *more) for model in pair]
    tensors, others = (tensors_of(out / "model.safetensors") for out in outs)
    assert tensors == others and sorted(ignored(outs[0])) == sorted(ignored(outs[1]))
    plain = {name for name, (dtype, shape, _) in tensors.items() if len(shape) > 1 and dtype == "F16" and "scale" not in name}
    assert all("router" in name or "embed" in name or name == "lm_head.weight" for name in plain), plain


def values_of(tensors, name):
    """The rows of a matrix in absmax-int8, from its tensors."""
    shape, scales = tensors[f"{name}.weight_packed"][1], tensors[f"{name}.weight_scale"][2]
    n_rows, n_cols = shape[0], shape[1] * 4
    codes, scales = tensors[f"{name}.weight_packed"][2], struct.unpack(f"<{n_rows}e", scales)
    return [n_rows, n_cols], [(codes[i] - 128) * scales[i // n_cols] for i in range(n_rows * n_cols)]


def test_outputs_are_read_as_their_numbers(pair, tmp_path, text):  # noqa: F811
    """Each number is within 0.6 of a step of the stored weight: 0.5, and the scale's rounding to F16 of up to 127 / 2^11. The plain model of
    these numbers gives the same distributions, but for its KV cache in float32 instead of float16."""
    out = quantize(pair[0], tmp_path / "out", "absmax-int8")
    tensors, before = tensors_of(out / "model.safetensors"), tensors_of(pair[1] / "model.safetensors")
    plain = {}
    for name, (_, shape, packed) in before.items():
        stored = struct.unpack(f"<{len(packed) // 2}e", packed)
        if name not in tensors:
            shape, values = values_of(tensors, name.removesuffix(".weight"))
            rows = zip(rows_of((shape, values)), rows_of((shape, stored)))
            assert all(max(abs(a - b) for a, b in zip(*pair)) <= 0.6 * max(map(abs, pair[1])) / 127 for pair in rows), name
            stored = values
        plain[name] = "F32", shape, struct.pack(f"<{len(stored)}f", *stored)
    assert len(tensors) > len(plain)
    shutil.copytree(pair[1], tmp_path / "plain")
    config = json.loads((pair[1] / "config.json").read_text()) | {"torch_dtype": "float32"}
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    write_tensors(tmp_path / "plain" / "model.safetensors", plain)
    kl = divergence(tmp_path / "plain", out, text)
    assert kl < 1e-5 < divergence(pair[0], out, text), kl


def test_mxfp4_of_gpt_oss_is_its_own(tmp_path, text):  # noqa: F811
    """Blocks and scales of all experts, and the rest as stored; the plain model of their numbers is the same one."""
    model = write_model(tmp_path / "model", "gpt_oss")
    out = quantize(model, tmp_path / "out", "mxfp4")
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "mxfp4" and "model.layers.1.self_attn.k_proj" in config["modules_to_not_convert"]
    after, before = tensors_of(out / "model.safetensors"), tensors_of(model / "model.safetensors")
    plain = dict(before)
    for name in [name for name in before if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        n, cols, rows = before[name][1]
        dtype, shape, blocks = after[f"{name}_blocks"]
        scales = after[f"{name}_scales"]
        assert (dtype, shape) == ("U8", [n, rows, cols // 32, 16]) and scales[:2] == ("U8", [n, rows, cols // 32])
        codes = [half for byte in blocks for half in (byte & 15, byte >> 4)]
        values = [E2M1[code & 7] * (-1 if code & 8 else 1) * 2.0 ** (scales[2][i // 32] - 127) for i, code in enumerate(codes)]
        experts = [turned(([rows, cols], values[e * rows * cols:(e + 1) * rows * cols])) for e in range(n)]
        flat = [x for _, m in experts for x in m]
        stored = struct.unpack(f"<{len(flat)}e", before[name][2])
        assert max(abs(a - b) for a, b in zip(flat, stored)) < 0.25 * max(map(abs, stored))
        plain[name] = (before[name][0], before[name][1], struct.pack(f"<{len(flat)}e", *flat))
    assert all(after[name] == t for name, t in before.items() if not name.endswith(("experts.gate_up_proj", "experts.down_proj")))
    shutil.copytree(model, tmp_path / "plain")
    (tmp_path / "plain" / "model.safetensors").unlink()
    write_tensors(tmp_path / "plain" / "model.safetensors", plain)
    assert divergence(tmp_path / "plain", out, text) < 1e-6


def test_mxfp4_of_granite_is_compressed_tensors(tmp_path, text):  # noqa: F811
    model = write_model(tmp_path / "model", "granite")
    out = quantize(model, tmp_path / "out", "mxfp4")
    assert "model.layers.0.block_sparse_moe.experts.5.w2.weight_packed" in tensors_of(out / "model.safetensors")
    assert divergence(model, out, text) < 0.3


@pytest.mark.parametrize("family", ["granite", "gpt_oss"])
def test_calibration_is_of_each_expert(family, tmp_path, text):  # noqa: F811
    """gptq and awq have smaller errors than numbers rounded with the same groups; the router is scaled with its norm."""
    model = write_model(tmp_path / "model", family, loud=(3, 17, 40))
    rounded_kl = divergence(model, quantize(model, tmp_path / "rounded", "int4-block", "--no-sym", "--group-size", 32), text)
    for method in "gptq", "awq":
        out = quantize(model, tmp_path / method, method, "--group-size", 32, "--calibration", text, *OF_8)
        assert divergence(model, out, text) < 0.8 * rounded_kl, method


def test_experts_together_and_apart_are_rejected(pair, tmp_path):
    out = quantize(pair[0], tmp_path / "out", "absmax-int8")
    tensors = tensors_of(out / "model.safetensors")
    together = {name: t for name, t in tensors_of(pair[0] / "model.safetensors").items() if len(t[1]) == 3}
    write_tensors(out / "model.safetensors", tensors | together)
    assert "remove one" in quire("generate", out, "a", "--max-tokens", 1).stderr
    # A missing expert is called by its own name.
    lost = next(name for name in tensors if ".experts.3." in name and name.endswith("weight_packed"))
    write_tensors(out / "model.safetensors", {name: t for name, t in tensors.items() if name != lost})
    assert lost.removesuffix("_packed") in quire("generate", out, "a", "--max-tokens", 1).stderr
