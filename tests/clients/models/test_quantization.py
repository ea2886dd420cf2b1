"""--quantization of an unquantized checkpoint: its result, its cost, and its effect."""

import json
import os
import re
import shutil

import pytest

import rig
from conftest import MODEL, ROOT
from test_commands import quire

# The demo model's matrices: rows, columns, count. The embeddings, which are also the head, are the last.
LAYERS = [(256, 256, 8), (128, 256, 8), (640, 256, 8), (256, 640, 4)]
HEAD = (2048, 256, 1)
BRIEF = ("--input-len", "4", "--output-len", "1", "--num-iters", "1", "--num-iters-warmup", "0")
STORY = ("generate", MODEL, "Once upon a time", "--raw", "--max-tokens", "24", "--temperature", "0")


def blocks(matrices, n_bytes):
    return sum(rows * columns // 32 * n_bytes * count for rows, columns, count in matrices)


# Repacked weights: 16 rows for each chunk of at most 256 columns, with scales padded to 64 bytes, and then the rest of
# each block.
def panels(matrices, n_bytes):
    chunks = lambda columns: [min(256, columns - at) // 32 for at in range(0, columns, 256)]
    chunk = lambda n: -(-n * 32 // 64) * 64 + n * (n_bytes - 2) * 16
    return sum(-(-rows // 16) * sum(map(chunk, chunks(columns))) * count for rows, columns, count in matrices)


PANELS = {"int8": panels([*LAYERS, HEAD], 34), "int4-block": panels(LAYERS, 18) + panels([HEAD], 34), "fp8": 0}
MADE = {
    "int8": ("Q8_0", "int8", blocks([*LAYERS, HEAD], 34)),
    "int4-block": ("Q4_0", "int8", blocks(LAYERS, 18) + blocks([HEAD], 34)),
    # A byte each; a float for each 128 rows and 128 columns, and a matrix's floats start at a multiple of 64 bytes.
    "fp8": ("float8_e4m3", "float32", sum(count * (rows * columns + 64) for rows, columns, count in LAYERS)),
}


@pytest.mark.parametrize("name", MADE)
def test_weights_are_quantized_when_they_are_loaded(name):
    weights, activations, n_bytes = MADE[name]
    plain = json.loads(quire("plan", MODEL, "--json").stdout)
    told = json.loads(quire("plan", MODEL, "--json", "--quantization", name).stdout)
    assert told["weight_dtype"] == weights and told["regrouped_bytes"] == n_bytes and plain["regrouped_bytes"] == 0
    seen = json.loads(quire("inspect", MODEL, "--json", "-q", name).stdout)
    assert seen["quantization"] == name and seen["activations"] == activations and seen["regrouped_bytes"] == n_bytes
    assert told["panel_bytes"] == seen["panel_bytes"] == PANELS[name] and plain["panel_bytes"] == 0
    once = quire(*STORY, "--quantization", name, "--threads", "1")
    assert once.returncode == 0 and once.stdout == quire(*STORY, "-q", name, "--threads", "2", "--device", "ref").stdout


def test_the_choice_is_part_of_what_bits_depend_on(start, tmp_path):
    identities = set()
    for name in (None, *MADE):
        recording = tmp_path / f"{name}.rec"
        server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--record", recording,
                       *(("-q", name) if name else ()))
        server.client().completions.create(model="demo", prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=1)
        identities.add(re.search(r'identity="([0-9a-f]{64})"', rig.metrics(server)).group(1))
        server.stop()
        again = quire("replay", recording, MODEL, "--json")  # opens the unchanged model
        told = json.loads(again.stdout)
        assert again.returncode == 0 and told["compared"] == 1 and told["different"] == 0, again
    assert len(identities) == 1 + len(MADE)


def kept_files(directory):
    return sorted(path.name for path in directory.iterdir())


def test_rows_are_kept(tmp_path):
    ask = (*STORY, "-q", "int8", "--threads", "1", "--repack-cache", tmp_path)
    first = quire(*ask)
    [name] = kept_files(tmp_path)
    path = tmp_path / name
    whole, made = path.read_bytes(), path.stat().st_mtime_ns
    assert name.endswith(".rows") and len(whole) == 4096 + MADE["int8"][2]
    again = quire(*ask)
    assert again.stdout == first.stdout and path.stat().st_mtime_ns == made and kept_files(tmp_path) == [name]
    half = len(whole) // 2
    for damaged in (whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1:], whole[:-1], whole + b"x", b"", whole[:4096],
                    whole[:20] + bytes(12) + whole[32:], b"x" + whole[1:]):
        path.write_bytes(damaged)
        got = quire(*ask)
        assert got.returncode == 0 and got.stdout == first.stdout and "not used" in got.stderr and name in got.stderr
        assert kept_files(tmp_path) == [name, name + ".bad"]
        assert path.read_bytes() == whole and (tmp_path / (name + ".bad")).read_bytes() == damaged
    path.unlink()
    path.mkdir()  # can be neither replaced by a write nor read
    assert quire(*ask).stdout == first.stdout


def test_rows_of_another_checkpoint_are_not_used(tmp_path):
    model, kept = tmp_path / "model", tmp_path / "kept"
    shutil.copytree(MODEL, model)
    kept.mkdir()
    ask = ("generate", model, *STORY[2:], "-q", "fp8", "--repack-cache", kept)
    quire(*ask)
    weights = bytearray((model / "model.safetensors").read_bytes())
    for at in range(len(weights) - 2 * 1024 * 1024, len(weights), 2):  # signs of the last million weights
        weights[at + 1] ^= 0x80
    (model / "model.safetensors").write_bytes(weights)
    changed = quire(*ask)
    assert len(kept_files(kept)) == 2 and changed.stdout == quire(*ask[:-2]).stdout and "not used" not in changed.stderr
    missing = quire(*ask[:-1], tmp_path / "absent")
    assert missing.returncode == 1 and "is not a directory" in missing.stderr


def test_rows_of_another_description_are_not_used(tmp_path):
    """Also if a copy has the file's size and time: config.json says how a zero point is stored, from 1 or from 0."""
    model, kept = copied(tmp_path, "gptq_4_32_order_zeros_v2"), tmp_path / "kept"
    kept.mkdir()
    path = model / "config.json"
    about = path.stat()
    assert quire("bench", "latency", model, *BRIEF, "--repack-cache", kept).returncode == 0 and len(kept_files(kept)) == 1
    text = path.read_text()
    assert '"gptq_v2"' in text
    path.write_text(text.replace('"gptq_v2"', '"gptq"   '))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_size == about.st_size and path.stat().st_mtime_ns == about.st_mtime_ns
    assert quire("bench", "latency", model, *BRIEF, "--repack-cache", kept).returncode == 0 and len(kept_files(kept)) == 2


def copied(tmp_path, name):
    shutil.copytree(ROOT / "tests" / "goldens" / "quantized" / name, tmp_path / name)
    return tmp_path / name


def edit_config(model, change):
    config = json.loads((model / "config.json").read_text())
    change(config["quantization_config"], config)
    (model / "config.json").write_text(json.dumps(config))


def edit_tensor(model, name, n_bytes=None, drop=False, rename=None):
    """Overwrites a tensor's first bytes, removes it, or renames it."""
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    n = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    if n_bytes is not None:
        at = header[name]["data_offsets"][0]
        body[at:at + len(n_bytes)] = n_bytes
    if drop or rename:
        header[rename or name + "_nobody_asks_for"] = header.pop(name)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


LAYER = "model.layers.0.mlp.down_proj."
NAN16, ZERO32, INF32, NAN32 = b"\x00\x7e", bytes(4), b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f"
BAD_CONFIGS = [
    ("gptq_4_32", dict(bits=3), "bits: 3"),
    ("gptq_4_32", dict(bits=2), "bits: 2"),
    ("gptq_4_32", dict(bits=8), "model.safetensors: tensor 'model.layers.0.self_attn.q_proj.qweight': shape"),
    ("gptq_4_32", dict(group_size=64), "model.safetensors: tensor 'model.layers.0.self_attn.q_proj.scales': shape"),
    ("gptq_4_32", dict(group_size=0), "group_size: 0"),
    ("gptq_4_32", dict(group_size=-2), "group_size: must be"),
    ("gptq_4_32", dict(group_size=1 << 40), "group_size"),
    ("gptq_4_32", dict(group_size=7), "group_size: 7"),
    ("gptq_4_64_zeros", dict(sym=True), "sym requires"),
    ("gptq_4_32", dict(quant_method="awq", version="gemm", zero_point=True), "qweight': shape"),
    ("gptq_4_32", dict(quant_method="bitsandbytes"), "bitsandbytes"),
    ("gptq_4_32", dict(quant_method="fp8"), "qweight': belongs to a quantized matrix, but config.json: quantization_config has another method"),
    ("gptq_4_128_order", dict(desc_act=False), "orders columns"),
    ("awq_32", dict(version="gemv"), "gemv"),
    ("awq_32", dict(bits=3), "bits: 3"),
    ("packed_4_128", dict(format="nvfp4-pack-quantized"), "nvfp4"),
    ("packed_4_128", dict(format="float-quantized"), "float-quantized"),
    ("fp8_block", dict(weight_block_size=[64, 64]), "weight_scale_inv': shape"),
    ("fp8_block", dict(weight_block_size=[0, 128]), "weight_block_size"),
    ("fp8_block", dict(weight_block_size=None), "weight_scale_inv': shape"),
    ("fp8_tensor", dict(quant_method="gptq", bits=8, group_size=128), "F8_E4M3"),
]
BAD_TENSORS = [
    ("gptq_4_32", "scales", dict(n_bytes=NAN16), "scales': element 0 is nan"),
    ("gptq_4_32", "scales", dict(n_bytes=bytes(2)), "scales': element 0 is 0"),
    ("gptq_4_32", "scales", dict(drop=True), "down_proj.scales'"),
    ("gptq_4_32", "qzeros", dict(drop=True), "down_proj.qzeros'"),
    ("gptq_4_32", "qweight", dict(drop=True), "down_proj.weight"),
    ("gptq_4_128_order", "g_idx", dict(n_bytes=b"\xff\xff\xff\x7f"), "g_idx': element 0 is group 2147483647"),
    ("gptq_4_128_order", "g_idx", dict(drop=True), "down_proj.g_idx'"),
    ("awq_128", "scales", dict(n_bytes=NAN16), "scales': element 0 is nan"),
    ("packed_4_32_zeros", "weight_scale", dict(n_bytes=NAN16), "weight_scale': element 0 is nan"),
    ("packed_4_32_zeros", "weight_zero_point", dict(drop=True), "weight_zero_point'"),
    ("w8a8_dynamic", "weight_scale", dict(n_bytes=bytes(2)), "weight_scale': element 0 is 0"),
    ("w8a8_static", "input_scale", dict(n_bytes=ZERO32), "input_scale': must be one positive number"),
    ("w8a8_static", "input_scale", dict(drop=True), "input_scale'"),
    ("floats_row", "weight_scale", dict(drop=True), "weight_scale'"),
    ("fp8_block", "weight_scale_inv", dict(n_bytes=NAN32), "weight_scale_inv': element 0 is nan"),
    ("fp8_block", "weight_scale_inv", dict(n_bytes=INF32), "weight_scale_inv': element 0 is inf"),
    ("fp8_block", "weight_scale_inv", dict(drop=True), "weight_scale'"),
]


def refusal(model):
    got = quire("bench", "latency", model, *BRIEF)
    lines = got.stderr.strip().splitlines()
    assert got.returncode == 1 and len(lines) == 1, got
    return lines[0]


def test_a_config_that_cannot_be(tmp_path):
    for i, (name, changes, says) in enumerate(BAD_CONFIGS):
        model = copied(tmp_path / str(i), name)
        edit_config(model, lambda c, _: c.update({k: v for k, v in changes.items() if v is not None}) or [c.pop(k) for k, v in changes.items() if v is None])
        told = refusal(model)
        assert says in told, (name, changes, told)
    plain = copied(tmp_path / "plain", "gptq_4_32")
    edit_config(plain, lambda _, config: config.pop("quantization_config"))
    assert "qweight': belongs to a quantized matrix, but config.json: quantization_config is missing" in refusal(plain)


def test_tensors_that_cannot_be(tmp_path):
    for i, (name, tensor, change, says) in enumerate(BAD_TENSORS):
        model = copied(tmp_path / str(i), name)
        edit_tensor(model, LAYER + tensor, **change)
        told = refusal(model)
        assert says in told and "model.safetensors" in told, (name, tensor, change, told)
