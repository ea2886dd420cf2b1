#!/usr/bin/env python3
"""Makes tests/goldens/quantized/*: tiny random checkpoints quantized in every way that Quire loads, what transformers computes
in fp32 from the weights that they stand for (golden.txt), and a SHA-256 of each of those matrices (dequantized.txt).

    python tests/goldens/make_quantized.py [NAME ...]     (torch, transformers 5, safetensors, compressed-tensors, accelerate)

The packings of GPTQ and AWQ are written here after their descriptions, element by element, and share no code with Quire;
those of compressed-tensors are made by the package itself, and its own loader must read back what was meant. transformers'
loader must do so for FP8. Seeded, on one thread.
"""

import hashlib
import json
import pathlib
import shutil
import tempfile
import zlib

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import make_goldens

ROOT = pathlib.Path(__file__).resolve().parent / "quantized"
PROMPT = 60
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column at each position of a word, the lowest first

QWEN2 = dict(make_goldens.BASE, architectures=["Qwen2ForCausalLM"], model_type="qwen2", torch_dtype="float16", vocab_size=96,
             hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1,
             tie_word_embeddings=True, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=1, use_sliding_window=False)
QWEN3 = dict(QWEN2, architectures=["Qwen3ForCausalLM"], model_type="qwen3", torch_dtype="bfloat16", intermediate_size=160,
             head_dim=32, attention_bias=False)
GPT_OSS = dict(make_goldens.BASE, architectures=["GptOssForCausalLM"], model_type="gpt_oss", torch_dtype="bfloat16",
               vocab_size=96, hidden_size=96, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, head_dim=32, num_local_experts=5, num_experts_per_tok=2, sliding_window=24,
               swiglu_limit=7.0, rope_theta=150000.0, max_position_embeddings=256, bos_token_id=None, eos_token_id=1,
               pad_token_id=0, rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                                 truncate=False, original_max_position_embeddings=64))


def is_linear(name):
    return name.endswith("_proj.weight")


def is_stack(name):
    """All experts' matrices in one tensor."""
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def grouped(x, group):
    return x.reshape(x.shape[0], -1, group or x.shape[1])


# ---- integers in groups: q, zero points and scales, then packed ------------------------------------------------------

def round_groups(w, bits, group, symmetric, scale_dtype):
    """q in [0, 2^bits), zero [N, G], scale [N, G]; the weight is scale · (q − zero)."""
    x, top = grouped(w, group), 2 ** bits - 1
    if symmetric:
        scale = x.abs().amax(-1) / (2 ** (bits - 1) - 0.5)
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
        scale = (high - low) / top
        zero = torch.round(-low / scale).clamp(0, top)
    scale = scale.to(scale_dtype).float()
    q = (torch.round(x / scale[..., None]) + zero[..., None]).clamp(0, top)
    return q.reshape(w.shape).int(), zero.int(), scale


def worth(q, zero, scale, group_of):
    """The f32 matrix: one product, rounded once."""
    return (q - zero[:, group_of]).float() * scale[:, group_of]


def packed(x, bits, places=None):
    """[K, N] integers to int32 words along the first axis."""
    per = 32 // bits
    out = torch.zeros(x.shape[0] // per, x.shape[1], dtype=torch.int64)
    for place in range(per):
        out |= (x[(places or range(per))[place]::per].long() & (2 ** bits - 1)) << bits * place
    return torch.where(out >= 2 ** 31, out - 2 ** 32, out).int()


def gptq(w, generator, bits=4, group=128, sym=True, desc_act=False, v2=False):
    k = torch.arange(w.shape[1])
    group_of = k // (group or w.shape[1])
    if desc_act:
        group_of = group_of[torch.randperm(w.shape[1], generator=generator)]
    order = torch.argsort(group_of, stable=True)
    q_sorted, zero, scale = round_groups(w[:, order], bits, group, sym, torch.float16)
    q = torch.empty_like(q_sorted)
    q[:, order] = q_sorted
    stored_zero = zero if v2 else (zero - 1) % 2 ** bits
    tensors = {"qweight": packed(q.T, bits), "qzeros": packed(stored_zero, bits).T.contiguous(),
               "scales": scale.half().T.contiguous(), "g_idx": group_of.int()}
    return tensors, worth(q, zero, scale, group_of)


def awq(w, generator, bits=4, group=128):
    q, zero, scale = round_groups(w, bits, group, False, torch.float16)
    words = [packed(x.contiguous(), bits, AWQ_ORDER).T.contiguous() for x in (q, zero)]
    tensors = {"qweight": words[0], "qzeros": words[1], "scales": scale.half().T.contiguous()}
    return tensors, worth(q, zero, scale, torch.arange(w.shape[1]) // group)


def compressed(w, generator, weights, static_input=False):
    """By the package: its quantize(), its compressor."""
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams
    args = QuantizationArgs(**{k: v for k, v in weights.items() if k != "format"})
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    group = args.group_size if args.strategy == "group" else None
    if args.strategy == "block":
        rows, columns = args.block_structure
        blocks = torch.nn.functional.pad(w, (0, -w.shape[1] % columns, 0, -w.shape[0] % rows))
        blocks = blocks.reshape(blocks.shape[0] // rows, rows, -1, columns)
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    elif args.strategy == "tensor":
        low, high = w.amin().reshape(1), w.amax().reshape(1)
    else:
        x = grouped(w, group)
        low, high = x.amin(-1), x.amax(-1)
    scale, zero = calculate_qparams(low, high, args)
    scale = scale.half().float() if not args.strategy == "block" else scale
    state = {"weight": w, "weight_scale": scale}
    if not args.symmetric:
        state["weight_zero_point"] = zero
    compressor = BaseCompressor.get_value_from_registry(weights["format"])
    tensors = {k: v for k, v in compressor.compress(dict(state), scheme).items()}
    if tensors["weight_scale"].dtype == torch.float32 and args.strategy != "block":
        tensors["weight_scale"] = tensors["weight_scale"].half()
    if "weight_packed" in tensors:
        tensors["weight_shape"] = torch.tensor(w.shape)
    wide = {k: v.float() if k == "weight_scale" else v for k, v in tensors.items()}
    back = compressor.decompress(wide, scheme)["weight"].float()
    assert (back - w).abs().max() < 0.2, "the package does not read back what it wrote"
    if static_input:
        tensors["input_scale"] = torch.tensor([0.05])
    return tensors, back


def packed_in_order(w, generator, group):
    """actorder: group, as compressed-tensors had it until it was removed; its words are still the package's."""
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    group_of = (torch.arange(w.shape[1]) // group)[torch.randperm(w.shape[1], generator=generator)]
    order = torch.argsort(group_of, stable=True)
    q_sorted, zero, scale = round_groups(w[:, order], 4, group, True, torch.float16)
    q = torch.empty_like(q_sorted)
    q[:, order] = q_sorted
    tensors = {"weight_packed": pack_to_int32((q - 8).to(torch.int8), 4), "weight_scale": scale.half(),
               "weight_g_idx": group_of.int(), "weight_shape": torch.tensor(w.shape)}
    return tensors, worth(q, zero, scale, group_of)


def fp8(w, generator, dtype=torch.float8_e4m3fn, block=None, suffix="weight_scale_inv", scale_dtype=torch.float32):
    top = torch.finfo(dtype).max
    if block:
        padded = torch.nn.functional.pad(w, (0, -w.shape[1] % block, 0, -w.shape[0] % block))
        scale = padded.reshape(padded.shape[0] // block, block, -1, block).abs().amax((1, 3)) / top
        scale = scale.to(scale_dtype)
        spread = scale.float().repeat_interleave(block, 0).repeat_interleave(block, 1)[:w.shape[0], :w.shape[1]]
    else:
        scale = (w.abs().amax() / top).to(scale_dtype)
        spread = scale.float()
    elements = (w / spread).clamp(-top, top).to(dtype)
    return {"weight": elements, suffix: scale}, elements.float() * spread


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(w, generator):
    """[experts, columns, rows]: codes of e2m1, the lower half of a byte first, and a power of two for 32 columns."""
    x = w.transpose(1, 2).reshape(w.shape[0], w.shape[2], -1, 32)
    power = torch.floor(torch.log2(x.abs().amax(-1))) - 2
    spread = torch.exp2(power)[..., None]
    code = (x.abs() / spread)[..., None].sub(E2M1).abs().argmin(-1)
    value = E2M1[code] * x.sign() * spread + 0.0  # minus zero is 0
    code = code + 8 * (x < 0)
    tensors = {"_blocks": (code[..., ::2] + 16 * code[..., 1::2]).to(torch.uint8), "_scales": (power + 127).to(torch.uint8)}
    return tensors, value.reshape(w.shape[0], w.shape[2], -1).transpose(1, 2)


# ---- the cases -------------------------------------------------------------------------------------------------------

def gptq_case(bits, group, **more):
    about = dict(quant_method="gptq", bits=bits, group_size=group or -1, sym=more.get("sym", True), desc_act=more.get("desc_act", False))
    if more.get("v2"):
        about["checkpoint_format"] = "gptq_v2"
    return QWEN2, about, gptq, dict(more, bits=bits, group=group)


def awq_case(group):
    return QWEN2, dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm"), awq, dict(group=group)


def ct_case(kind, weights, inputs=None, base=QWEN2, **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    about = dict(quant_method="compressed-tensors", format=kind, quantization_status="compressed", ignore=["lm_head"],
                 config_groups={"group_0": group})
    return base, about, compressed, dict(more, weights=dict(weights, format=kind))


def fp8_case(**more):
    about = dict(quant_method="fp8", activation_scheme="dynamic")
    if more.get("dtype") == torch.float8_e5m2:
        about["fmt"] = "e5m2"
    if more.get("block"):
        about["weight_block_size"] = [more["block"]] * 2
    return QWEN3, about, fp8, more


def ints(bits, strategy, symmetric=True, **more):
    return dict(num_bits=bits, type="int", strategy=strategy, symmetric=symmetric, dynamic=False, **more)


def floats(strategy, **more):
    return dict(num_bits=8, type="float", strategy=strategy, symmetric=True, dynamic=False, **more)


TOKEN = dict(num_bits=8, type="int", strategy="token", symmetric=True, dynamic=True)
TENSOR = dict(num_bits=8, type="int", strategy="tensor", symmetric=True, dynamic=False)
CASES = {
    "gptq_4_32": gptq_case(4, 32),
    "gptq_4_64_zeros": gptq_case(4, 64, sym=False),
    "gptq_4_128_order": (dict(QWEN2, intermediate_size=256), *gptq_case(4, 128, desc_act=True)[1:]),
    "gptq_4_32_order_zeros_v2": gptq_case(4, 32, sym=False, desc_act=True, v2=True),
    "gptq_4_row_v2": gptq_case(4, None, v2=True),
    "gptq_8_128_zeros": gptq_case(8, 128, sym=False),
    "gptq_8_32_order": gptq_case(8, 32, desc_act=True),
    "gptq_8_row": gptq_case(8, None),
    "awq_32": awq_case(32),
    "awq_128": awq_case(128),
    "packed_4_128": ct_case("pack-quantized", ints(4, "group", group_size=128)),
    "packed_4_32_zeros": ct_case("pack-quantized", ints(4, "group", False, group_size=32)),
    "packed_4_row": ct_case("pack-quantized", ints(4, "channel")),
    "packed_4_32_order": (*ct_case("pack-quantized", ints(4, "group", group_size=32, actorder="group"))[:2], packed_in_order,
                          dict(group=32)),
    "packed_8_64": ct_case("pack-quantized", ints(8, "group", group_size=64)),
    "w8a16": ct_case("int-quantized", ints(8, "channel")),
    "w8a8_dynamic": ct_case("int-quantized", ints(8, "channel"), TOKEN),
    "w8a8_static": ct_case("int-quantized", ints(8, "channel"), TENSOR, static_input=True),
    "floats_tensor": ct_case("float-quantized", floats("tensor")),
    "floats_row": ct_case("float-quantized", floats("channel")),
    "floats_block": ct_case("float-quantized", floats("block", block_structure=[128, 128]), base=QWEN3),
    "fp8_block": fp8_case(block=128),
    "fp8_block_bf16": fp8_case(block=128, scale_dtype=torch.bfloat16),
    "fp8_tensor": fp8_case(suffix="weight_scale"),
    "fp8_e5m2": fp8_case(dtype=torch.float8_e5m2, suffix="weight_scale"),
    "mxfp4": (GPT_OSS, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"]), mxfp4, {}),
}


# ---- files -----------------------------------------------------------------------------------------------------------

def drawn(name, base, attempt):
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {attempt}".encode()))
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "config.json").write_text(json.dumps(base))
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(scratch), dtype=torch.float32)
    return make_goldens.draw_weights(model, generator), generator


def check_by_transformers(directory, stored, plain, about):
    """transformers' own readings of FP8 blocks must give these very matrices; GPTQ's and AWQ's need a GPU's kernels. Its
    loader divides a matrix evenly by its grid of scales, which is wrong at edges that do not divide: for them, what it
    computes gradients with, which is not. Of MXFP4 what it makes of the tensors."""
    if about["quant_method"] == "mxfp4":
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
        for name, value in plain.items():
            if is_stack(name):
                blocks, scales = stored[name + "_blocks"], stored[name + "_scales"]
                assert torch.equal(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32), value), name
    if "weight_block_size" not in about:
        return
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
    size = about["weight_block_size"]
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, quantization_config=FineGrainedFP8Config(
        weight_block_size=tuple(size), dequantize=True))
    state = model.state_dict()
    for name, value in plain.items():
        if is_linear(name):
            scale = stored[name + "_scale_inv"]
            assert torch.equal(_dequantize_fp8_weight(stored[name], scale, size, torch.float32), value), name
            assert any(n % 128 and n > 128 for n in value.shape) or torch.equal(state[name].float(), value), name


def make(name, attempt):
    base, about, quantize, how = CASES[name]
    directory = ROOT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    state, generator = drawn(name, base, attempt)
    stored_dtype = make_goldens.DTYPES[base["torch_dtype"]]
    stored, plain, sums = {}, {}, []
    for key, value in sorted(state.items()):
        if is_stack(key):
            tensors, plain[key] = quantize(value, generator, **how)
            stored |= {key + k: v.contiguous() for k, v in tensors.items()}
            step = 2 if "gate_up" in key else 1
            for e, first in ((e, first) for e in range(value.shape[0]) for first in range(step)):
                part = plain[key][e].T[first::step].contiguous()
                digest = hashlib.sha256(part.numpy().tobytes()).hexdigest()
                sums.append(f"{key}:{e}:{value.shape[0]}:{first}:{step} {part.shape[0]} {part.shape[1]} {digest}\n")
        elif is_linear(key) and base is not GPT_OSS:
            layer = key.removesuffix(".weight")
            tensors, plain[key] = quantize(value, generator, **how)
            stored |= {f"{layer}.{k}": v.contiguous() for k, v in tensors.items()}
            digest = hashlib.sha256(plain[key].contiguous().numpy().tobytes()).hexdigest()
            sums.append(f"{layer} {value.shape[0]} {value.shape[1]} {digest}\n")
        else:
            stored[key] = value.to(stored_dtype)
            plain[key] = stored[key].float()
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(base | {"quantization_config": about}, indent=2) + "\n")
    (directory / "dequantized.txt").write_text("".join(sums))
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch)
        save_file({k: v.contiguous() for k, v in plain.items()}, source / "model.safetensors", metadata={"format": "pt"})
        (source / "config.json").write_text(json.dumps(base | {"torch_dtype": "float32"}))
        check_by_transformers(directory, stored, plain, about)
        return make_goldens.golden(name, directory, PROMPT, generator, source, torch.float16)


if __name__ == "__main__":
    make_goldens.make_all(ROOT, CASES, make)
