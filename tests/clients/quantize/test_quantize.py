"""quire quantize: every method's output is loaded and answers; kills, and inputs that it rejects."""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import pytest

from conftest import MODEL, QUIRE, ROOT, cannot_run

GOLDENS = ROOT / "tests" / "goldens"


def quire(*arguments, timeout=300):
    return subprocess.run([str(QUIRE), *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


def quantize(model, out, method, *options):
    run = quire("quantize", model, out, "--method", method, *options)
    assert run.returncode == 0, run.stderr
    return out


def refusal(model, out, *options):
    """The one line; nothing is left."""
    before = sorted(os.listdir(out.parent))
    run = quire("quantize", model, out, *options)
    assert run.returncode != 0 and run.stderr.startswith("quire: ") and run.stderr.count("\n") == 1
    assert sorted(os.listdir(out.parent)) == before
    return run.stderr


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words of the demo model's vocabulary, enough for some samples."""
    path = tmp_path_factory.mktemp("calibration") / "text.txt"
    words = (ROOT / "README.md").read_text().split()
    drawn = random.Random(3)
    path.write_text(" ".join(drawn.choices(words, k=2500)))
    return path


def calibration(text):
    return ("--calibration", text, "--calibration-samples", 4, "--calibration-length", 128)


def hash_of(path):
    parts = [f.name.encode() + f.read_bytes() for f in sorted(path.iterdir())] if path.is_dir() else [path.read_bytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def answer(model):
    run = quire("generate", model, "Tell me a story.", "--max-tokens", 16, "--temperature", 0)
    assert run.returncode == 0, run.stderr
    return run.stdout


CHECKPOINTS = [("absmax-int8", "compressed-tensors"), ("zeropoint-int8", "compressed-tensors"), ("int4-block", "compressed-tensors"),
               ("fp8-e4m3", "compressed-tensors"), ("fp8-e5m2", "fp8"), ("mxfp4", "compressed-tensors"), ("gptq", "gptq"), ("awq", "awq"),
               ("smoothquant-w8a8", "compressed-tensors")]
CALIBRATED = ("gptq", "awq", "smoothquant-w8a8")
FILES = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_m", "q5_k_m", "q6_k", "mxfp4"]


@pytest.mark.parametrize("method,quantization", CHECKPOINTS)
def test_a_checkpoint_is_loaded(method, quantization, tmp_path, text):
    out = quantize(MODEL, tmp_path / "out", method, *(calibration(text) if method in CALIBRATED else ()))
    shown = json.loads(quire("inspect", out, "--json").stdout)
    assert shown["supported"] and shown["quantization"] == quantization
    assert answer(out)
    # Threads change nothing.
    again = quantize(MODEL, tmp_path / "again", method, "--threads", 1, *(calibration(text) if method in CALIBRATED else ()))
    assert hash_of(out) == hash_of(again)


@pytest.mark.parametrize("option,form", [(None, "gptq"), ("--sym", "gptq"), ("--no-sym", "gptq_v2")])
def test_gptq_without_and_with_zero_points(option, form, tmp_path, text):
    """gptqmodel reads zero points of gptq_v2 only, and vLLM symmetric files only: docs/guides/quantizing.md."""
    out = quantize(MODEL, tmp_path / "out", "gptq", *([option] if option else []), *calibration(text))
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert (config["sym"], config["checkpoint_format"]) == (form == "gptq", form)
    zeros = tensors_of(out / "model.safetensors")["model.layers.0.mlp.up_proj.qzeros"][2]
    assert (set(zeros) == {0x77}) == (form == "gptq")
    assert divergence(MODEL, out, text) < 0.7 * divergence(MODEL, quantize(MODEL, tmp_path / "rounded", "int4-block", option or "--sym"), text)


def as_bf16(model, out):
    """The model with its halves cut to BF16: the upper half of a float."""
    shutil.copytree(model, out)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}))
    tensors = {}
    for name, (_, shape, halves) in tensors_of(model / "model.safetensors").items():
        floats = struct.pack(f"<{len(halves) // 2}f", *struct.unpack(f"<{len(halves) // 2}e", halves))
        cut = bytearray(len(halves))
        cut[::2], cut[1::2] = floats[2::4], floats[3::4]
        tensors[name] = "BF16", shape, cut
    write_tensors(out / "model.safetensors", tensors)
    return out


@pytest.mark.parametrize("method", ["gptq", "awq", "smoothquant-w8a8"])
def test_calibration_by_amx(method, tmp_path, text):
    """BF16 models are calibrated in the tile form where the CPU has AMX. Other sums, the same accuracy: the two outputs differ
    less from each other than either from the model."""
    if "amx_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
        cannot_run("the CPU has no AMX")
    model = as_bf16(MODEL, tmp_path / "model")
    outs = [tmp_path / isa for isa in ("amx", "avx512")]
    for out in outs:
        run = subprocess.run([*map(str, (QUIRE, "quantize", model, out, "--method", method, *calibration(text)))], capture_output=True, text=True,
                             timeout=300, env=os.environ | {"QUIRE_ISA": out.name})
        assert run.returncode == 0, run.stderr
    assert hash_of(outs[0]) != hash_of(outs[1])  # else AMX was not used
    apart, of_amx, of_avx512 = divergence(*outs, text), divergence(model, outs[0], text), divergence(model, outs[1], text)
    assert apart < min(of_amx, of_avx512)


@pytest.mark.parametrize("method", FILES)
def test_a_directory_becomes_a_gguf_file(method, tmp_path):
    out = quantize(MODEL, tmp_path / "out.gguf", f"gguf-{method}")
    shown = json.loads(quire("inspect", out, "--json").stdout)
    assert shown["supported"] and shown["quantization"] == "gguf" and shown["architecture"] == "Qwen2ForCausalLM"
    assert answer(out)


def test_eight_bits_answer_as_the_original(tmp_path):
    assert answer(quantize(MODEL, tmp_path / "int8", "absmax-int8")) == answer(MODEL)


def tensors_of(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in head.items() if name != "__metadata__"}


def write_tensors(path, tensors):
    """tensors: as tensors_of() has them."""
    head, data = {}, bytearray()
    for name, (dtype, shape, packed) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)  # the library aligns data, too
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rounded(x, kind):
    """x as a float ("f") or a half ("e"); a quotient of two floats may be rounded to double first."""
    return struct.unpack(kind, struct.pack(kind, x))[0]


def test_numbers_are_those_of_the_formula(tmp_path):
    """Python computes absmax rows from the stored weights, with scales in float16 as the weights."""
    before, after = (tensors_of(p / "model.safetensors") for p in (MODEL, quantize(MODEL, tmp_path / "out", "absmax-int8")))
    name, n_rows, n_cols = "model.layers.1.mlp.up_proj", 640, 256
    w = struct.unpack(f"<{n_rows * n_cols}e", before[name + ".weight"][2])
    scales, codes = b"", bytearray()
    for row in range(n_rows):
        values = w[row * n_cols:(row + 1) * n_cols]
        scale = rounded(rounded(max(map(abs, values)) / 127, "f"), "e")
        scales += struct.pack("<e", scale)
        codes += bytes(128 + max(-128, min(127, round(rounded(x / scale, "f")))) for x in values)
    assert after[name + ".weight_scale"][2] == scales
    assert after[name + ".weight_packed"][2] == codes
    # Everything else is as stored.
    for kept in ("model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.q_proj.bias"):
        assert before[kept] == after[kept]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config.pop("quantization_config")["ignore"] == ["lm_head"]
    assert config == json.loads((MODEL / "config.json").read_text())


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_mxfp4_is_read_as_its_numbers(tmp_path):
    """A plain model of the numbers that the quantized one stands for, exact in F16, gives the same distributions."""
    out, plain = quantize(MODEL, tmp_path / "out", "mxfp4"), tmp_path / "plain"
    shutil.copytree(MODEL, plain)
    data, after = bytearray((MODEL / "model.safetensors").read_bytes()), tensors_of(out / "model.safetensors")
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    for name, (dtype, shape, packed) in after.items():
        if not name.endswith("_packed"):
            continue
        scales = after[name.replace("_packed", "_scale")][2]
        assert dtype == "U8" and len(packed) == shape[0] * shape[1] == 16 * len(scales)
        codes = [half for byte in packed for half in (byte & 15, byte >> 4)]
        values = [E2M1[code & 7] * (-1 if code & 8 else 1) * 2.0 ** (scales[i // 32] - 127) for i, code in enumerate(codes)]
        begin = 8 + n + head[name.replace("_packed", "")]["data_offsets"][0]
        data[begin:begin + 2 * len(values)] = struct.pack(f"<{len(values)}e", *values)
    (plain / "model.safetensors").write_bytes(data)
    (tmp_path / "text.txt").write_text("Once upon a time a gentle tiger lived by the river. Every morning he looked for nuts. " * 8)
    run = quire("eval", "kl", plain, out, "--text", tmp_path / "text.txt", "--window", 64, "--json")
    assert run.returncode == 0 and json.loads(run.stdout)["kl_max"] < 1e-4, run
    # 255 is no scale.
    scales = bytearray(after["model.layers.0.mlp.up_proj.weight_scale"][2])
    at = (out / "model.safetensors").read_bytes().index(scales)
    broken = bytearray((out / "model.safetensors").read_bytes())
    broken[at + 7] = 255
    (out / "model.safetensors").write_bytes(broken)
    assert "element 7 is 255" in quire("generate", out, "a", "--max-tokens", 1).stderr


def test_a_killed_run_is_continued_to_the_same_bytes(tmp_path, text):
    for method, options in (("int4-block", ()), ("gptq", calibration(text)), ("smoothquant-w8a8", calibration(text)), ("gguf-q4_k_m", ())):
        whole = quantize(MODEL, tmp_path / f"{method}.whole", method, *options)
        kills = 0
        for again in range(10):  # a busy test may send its first signal after the end
            out = tmp_path / f"{method}.out{again}"
            for delay in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
                process = subprocess.Popen([QUIRE, "quantize", MODEL, out, "--method", method, *map(str, options)],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(delay)
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                if out.exists():
                    break
            if kills:
                break
        if not out.exists():
            quantize(MODEL, out, method, *options)
        assert hash_of(out) == hash_of(whole) and kills
        assert not [p for p in tmp_path.iterdir() if ".partial" in p.name]


MEASURE = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=2, check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"


def most_memory_of(*arguments):
    """The most MiB that a run had in memory at once, mapped files included. Measured by a small process: a child begins
    with what its parent has."""
    run = subprocess.run([sys.executable, "-S", "-c", MEASURE, QUIRE, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return int(run.stdout) // 1024


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """The demo model with its layers 16 times: 84 MiB."""
    out = tmp_path_factory.mktemp("deep")
    shutil.copytree(MODEL, out, dirs_exist_ok=True)
    tensors = tensors_of(MODEL / "model.safetensors")
    for name, tensor in list(tensors.items()):
        if found := re.match(r"model\.layers\.(\d+)\.(.*)", name):
            tensors |= {f"model.layers.{int(found[1]) + 4 * i}.{found[2]}": tensor for i in range(1, 16)}
    write_tensors(out / "model.safetensors", tensors)
    config = json.loads((MODEL / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 64}))
    return out


@pytest.mark.parametrize("method", ["int4-block", "gptq", "smoothquant-w8a8", "gguf-q8_0"])
def test_memory_does_not_grow_with_the_layers(method, deep, tmp_path, text):
    options = ("--method", method, "--threads", 2, *(calibration(text) if method in CALIBRATED else ()))
    few, many = (most_memory_of("quantize", model, tmp_path / name, *options) for model, name in ((MODEL, "few.gguf"), (deep, "many.gguf")))
    assert many - few < 25  # pages that stay would be 78 more, and those of the output as it is loaded


def test_finished_layers_are_used_after_a_kill(tmp_path, text):
    """A layer of the demo model has 7 matrices: with 8 done, a continued run reads the first layer's back."""
    for again in range(10):  # a busy test may see the eighth too late
        options = ("--calibration", text, "--calibration-samples", 8, "--calibration-length", 256)
        out, journal, done = tmp_path / f"out{again}", tmp_path / f"out{again}.partial.journal", 0
        process = subprocess.Popen([QUIRE, "quantize", MODEL, out, "--method", "gptq", *map(str, options)], stdout=subprocess.DEVNULL)
        while process.poll() is None and done < 8:
            with contextlib.suppress(FileNotFoundError):
                done = journal.read_text().count("\n") - 1
        process.kill()
        if process.wait() == -signal.SIGKILL:
            break
    assert process.returncode == -signal.SIGKILL and done >= 8
    whole, begin = quantize(MODEL, tmp_path / "whole", "gptq", *options), (tmp_path / f"{out}.partial" / "model.safetensors").stat().st_ino
    assert hash_of(quantize(MODEL, out, "gptq", *options)) == hash_of(whole)
    assert (out / "model.safetensors").stat().st_ino == begin


def test_what_is_rejected(tmp_path, text):
    out = tmp_path / "out"
    assert "--method: is missing" in refusal(MODEL, out)
    assert "methods: absmax-int8" in refusal(MODEL, out, "--method", "int3")
    assert "--damp: does not apply to --method int4-block" in refusal(MODEL, out, "--method", "int4-block", "--damp", "0.1")
    assert "--group-size: 24" in refusal(MODEL, out, "--method", "int4-block", "--group-size", "24")
    assert "group-size" in refusal(MODEL, out, "--method", "int4-block", "--group-size", "96")
    assert "--bits: 3" in refusal(MODEL, out, "--method", "gptq", "--bits", "3", *calibration(text))
    assert "--calibration: is missing" in refusal(MODEL, out, "--method", "gptq")
    assert "--calibration: /: cannot be read" in refusal(MODEL, out, "--method", "gptq", "--calibration", "/")
    taken = tmp_path / "taken"
    taken.mkdir()
    assert "exists" in refusal(MODEL, taken, "--method", "absmax-int8")
    if os.geteuid():
        (tmp_path / "read_only").mkdir(mode=0o500)
        assert "cannot be created" in refusal(MODEL, tmp_path / "read_only" / "out", "--method", "absmax-int8")


@pytest.mark.parametrize(
    "method, same, other",
    [
        ("absmax-int8", ("--bits", "8", "--sym", "--no-desc-act"), ("--bits", "4")),
        ("zeropoint-int8", ("--bits", "8", "--no-sym"), ("--sym",)),
        ("int4-block", ("--bits", "4"), ("--bits", "8")),
        ("fp8-e4m3", ("--bits", "8"), ("--group-size", "128")),
        ("mxfp4", ("--bits", "4", "--group-size", "32"), ("--group-size", "64")),
        ("awq", ("--bits", "4", "--no-sym"), ("--sym",)),
        ("smoothquant-w8a8", ("--bits", "8", "--group-size", "-1", "--sym"), ("--group-size", "128")),
        ("gguf-q4_0", (), ("--bits", "4")),
    ],
)
def test_a_value_that_a_method_has_anyway_is_accepted(tmp_path, text, method, same, other):
    is_calibrated = method in ("awq", "smoothquant-w8a8")
    options = (*calibration(text), "--calibration-samples", "1", "--calibration-length", "64") if is_calibrated else ()
    if same:
        plain = quantize(MODEL, tmp_path / "plain", method, *options)
        assert hash_of(quantize(MODEL, tmp_path / "same", method, *options, *same)) == hash_of(plain)
    assert f"{other[0]}: " in refusal(MODEL, tmp_path / "out", "--method", method, *options, *other)


def test_norms_that_cannot_be_divided_are_rejected(tmp_path, text):
    for method in ("awq", "smoothquant-w8a8"):
        assert "needs norms before" in refusal(GOLDENS / "models" / "olmo2", tmp_path / "out", "--method", method, *calibration(text))


def test_calibration_texts_that_are_rejected(tmp_path):
    for name, data, why in (("empty.txt", b"", "is empty"), ("bytes.txt", b"a\xff" * 999, "is not UTF-8"),
                            ("short.txt", b"a story", "fewer than one sample"), ("lines.jsonl", b'{"text": "a"}\n{"tex', "line 2"),
                            ("fields.jsonl", b'{"texts": "a"}\n', "text: is missing"), ("none.txt", None, "cannot be opened")):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        assert why in refusal(MODEL, tmp_path / "out", "--method", "gptq", "--calibration", path)


def test_channels_without_activations(tmp_path, text):
    """Half of each norm of a layer is 0, so its Hessians are singular: damping helps, and without it the run fails in one line."""
    dead = tmp_path / "dead"
    shutil.copytree(MODEL, dead)
    data = bytearray((MODEL / "model.safetensors").read_bytes())
    n = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:8 + n]).items():
        if "layers.0." in name and "norm" in name:
            begin, end = (8 + n + x for x in tensor["data_offsets"])
            data[begin:begin + (end - begin) // 2] = bytes((end - begin) // 2)
    (dead / "model.safetensors").write_bytes(data)
    for method in (*CALIBRATED, "imatrix"):
        out = quantize(dead, tmp_path / method, method, *calibration(text))
        assert method == "imatrix" or answer(out)
    assert "is singular at column" in refusal(dead, tmp_path / "out", "--method", "gptq", "--damp", "0", *calibration(text))


def test_jsonl_is_the_text_of_its_lines(tmp_path, text):
    words = text.read_text().split()
    lines = [" ".join(words[i:i + 50]) for i in range(0, len(words), 50)]
    (tmp_path / "joined.txt").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"id": i, "text": line}) + "\n" for i, line in enumerate(lines)))
    outs = [quantize(MODEL, tmp_path / name[:4], "gptq", *calibration(tmp_path / name)) for name in ("joined.txt", "lines.jsonl")]
    assert hash_of(outs[0]) == hash_of(outs[1])


@pytest.mark.parametrize("method,name", [("mxfp4", "out"), ("gguf-q8_0", "out.gguf")])
def test_what_was_not_made_here_is_kept(tmp_path, method, name):
    """A .partial without a journal, and one that is a link to something else."""
    partial, mine = tmp_path / (name + ".partial"), tmp_path / "mine"
    mine.mkdir()
    (mine / "model.safetensors").write_text("precious")
    shutil.copytree(mine, partial) if method == "mxfp4" else partial.write_text("precious")
    assert "was not made by quire quantize" in refusal(MODEL, tmp_path / name, "--method", method)
    kept = partial / "model.safetensors" if method == "mxfp4" else partial
    assert kept.read_text() == "precious"
    shutil.rmtree(partial) if method == "mxfp4" else partial.unlink()
    partial.symlink_to(mine if method == "mxfp4" else mine / "model.safetensors")
    for journal in (False, True):
        if journal:
            (tmp_path / (name + ".partial.journal")).write_text("")
        assert "was not made by quire quantize" in refusal(MODEL, tmp_path / name, "--method", method)
    assert (mine / "model.safetensors").read_text() == "precious"


def test_quantized_models_and_bad_weights_are_rejected(tmp_path):
    once = quantize(MODEL, tmp_path / "once", "absmax-int8")
    assert "already quantized (compressed-tensors)" in refusal(once, tmp_path / "out", "--method", "int4-block")
    assert "already quantized (compressed-tensors)" in refusal(once, tmp_path / "out", "--method", "gguf-q8_0")
    file = quantize(MODEL, tmp_path / "once.gguf", "gguf-q4_0")
    assert "already quantized (Q6_K)" in refusal(file, tmp_path / "out", "--method", "gguf-q8_0")
    assert "use a gguf- method" in refusal(file, tmp_path / "out", "--method", "int4-block")
    broken = tmp_path / "broken"
    shutil.copytree(MODEL, broken)
    data = bytearray((MODEL / "model.safetensors").read_bytes())
    n = struct.unpack("<Q", data[:8])[0]
    begin = 8 + n + json.loads(data[8:8 + n])["model.layers.2.mlp.down_proj.weight"]["data_offsets"][0]
    data[begin + 2 * (640 * 3 + 5):begin + 2 * (640 * 3 + 5) + 2] = b"\x00\x7e"
    (broken / "model.safetensors").write_bytes(data)
    for method in ("int4-block", "gguf-q8_0"):
        assert "row 3, column 5: nan is not finite" in refusal(broken, tmp_path / "out", "--method", method)


def changed(directory, leave_out=None, add=None):
    """The demo model without a tensor, or with a copy of a norm under another name."""
    shutil.copytree(MODEL, directory)
    tensors = tensors_of(MODEL / "model.safetensors")
    if add:
        tensors[add] = tensors["model.norm.weight"]
    write_tensors(directory / "model.safetensors", {name: t for name, t in tensors.items() if name != leave_out})
    return directory


@pytest.mark.parametrize("method", ["int4-block", "fp8-e4m3", "gguf-q8_0"])
def test_an_output_that_cannot_be_loaded_is_not_kept(method, tmp_path):
    """A tensor is missing, which the methods that look at one tensor at a time do not need."""
    model = changed(tmp_path / "model", leave_out="model.layers.3.post_attention_layernorm.weight")
    said = refusal(model, tmp_path / "out", "--method", method)
    assert "out: Quire cannot load what was written" in said and ("layers.3.post_attention" in said or "blk.3.ffn_norm" in said), said


def test_an_unused_tensor_is_no_reason_to_delete(tmp_path):
    """The original needs --ignore-unused-tensors, and so does the output."""
    model = changed(tmp_path / "model", add="model.layers.4.input_layernorm.weight")
    out = quantize(model, tmp_path / "out", "int4-block")
    for path in (model, out):
        assert "--ignore-unused-tensors" in quire("generate", path, "a", "--max-tokens", 1).stderr
    assert quire("generate", out, "a", "--max-tokens", 1, "--ignore-unused-tensors").returncode == 0


@pytest.mark.parametrize("model,folders", [("qwen3_last", ["1_Pooling"]), ("qwen3_dense", ["1_Pooling", "2_Dense"])])
def test_modules_of_sentence_transformers_are_copied(model, folders, tmp_path):
    source, out = GOLDENS / "vectors" / model, tmp_path / "out"
    quantize(source, out, "fp8-e4m3")
    assert sorted(p.name for p in out.iterdir() if p.is_dir()) == folders
    for path in source.glob("*_*/*"):
        assert (out / path.relative_to(source)).read_bytes() == path.read_bytes()
    # Only folders of the model are, and a failure removes them.
    broken = tmp_path / "broken"
    shutil.copytree(source, broken)
    modules = json.loads((source / "modules.json").read_text())
    (broken / "modules.json").write_text(json.dumps(modules + [{"path": "../secret"}, {"path": 5}, {"path": "3_None"}]))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_text("{}")
    quantize(broken, tmp_path / "kept", "fp8-e4m3")
    assert sorted(p.name for p in (tmp_path / "kept").iterdir() if p.is_dir()) == folders
    data = bytearray((source / "model.safetensors").read_bytes())
    n = struct.unpack("<Q", data[:8])[0]
    name = next(name for name in json.loads(data[8:8 + n]) if name.endswith("layers.1.mlp.down_proj.weight"))
    begin = 8 + n + json.loads(data[8:8 + n])[name]["data_offsets"][0]
    data[begin:begin + 4] = b"\xff" * 4
    (broken / "model.safetensors").write_bytes(data)
    assert "nan is not finite" in refusal(broken, tmp_path / "out2", "--method", "fp8-e4m3")


def test_a_full_disk_leaves_nothing(tmp_path):
    """The space is reserved before the first tensor: a limit on file sizes fails as a full disk does."""
    run = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 100; exec {QUIRE} quantize {MODEL} {tmp_path / 'out'} --method int4-block"],
                         capture_output=True, text=True)
    assert run.returncode == 1 and "no space" in run.stderr and run.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def importance(path, entries, as_gguf):
    """entries: {tensor: values}. The binary form has sums over calls, the GGUF form sums with a count."""
    if not as_gguf:
        parts = [struct.pack("<i", len(entries))]
        for name, values in entries.items():
            parts += [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", 4, len(values)),
                      struct.pack(f"<{len(values)}f", *(4 * v for v in values))]
        path.write_bytes(b"".join(parts))
        return path
    infos, data = b"", b""
    for name, values in entries.items():
        for suffix, numbers in ((".in_sum2", [4 * v for v in values]), (".counts", [4.0])):
            infos += struct.pack("<Q", len(name + suffix)) + (name + suffix).encode() + struct.pack("<IQIQ", 1, len(numbers), 0, len(data))
            data += struct.pack(f"<{len(numbers)}f", *numbers)
            data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(entries), 0) + infos
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def test_an_importance_matrix_of_either_form(tmp_path):
    drawn = random.Random(8)
    entries = {f"blk.{i}.ffn_up.weight": [drawn.choice((0.25, 1.0, 64.0)) for _ in range(256)] for i in range(4)}
    plain = quantize(MODEL, tmp_path / "plain.gguf", "gguf-q4_k_m")
    outs = [quantize(MODEL, tmp_path / f"{i}.gguf", "gguf-q4_k_m", "--imatrix", importance(tmp_path / f"{i}.imatrix", entries, i))
            for i in (0, 1)]
    assert hash_of(outs[0]) == hash_of(outs[1]) != hash_of(plain)
    wrong = importance(tmp_path / "wrong", {"blk.0.ffn_up.weight": [1.0] * 255}, True)
    assert "has 255 values, but the tensor has 256" in refusal(MODEL, tmp_path / "out", "--method", "gguf-q4_k_m", "--imatrix", wrong)
    negative = importance(tmp_path / "negative", {"blk.0.ffn_up.weight": [-1.0] * 256}, False)
    assert "negative or not finite" in refusal(MODEL, tmp_path / "out", "--method", "gguf-q4_k_m", "--imatrix", negative)
    whole = (tmp_path / "0.imatrix").read_bytes()
    for n in (0, 3, 5, 40, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:n])
        assert "--imatrix: " in refusal(MODEL, tmp_path / "out", "--method", "gguf-q6_k", "--imatrix", tmp_path / "cut")
    assert "does not apply" in refusal(MODEL, tmp_path / "out", "--method", "gguf-q4_0", "--imatrix", tmp_path / "0.imatrix")


def importance_in(path):
    """{tensor: (sums, counts)} of a file of --method imatrix."""
    whole = path.read_bytes()
    version, n_tensors, n_pairs = struct.unpack_from("<IQQ", whole, 4)
    assert whole[:4] == b"GGUF" and (version, n_pairs) == (3, 4)
    at, infos = whole.index(b"imatrix.chunk_size") + len("imatrix.chunk_size") + 8, []
    for _ in range(n_tensors):
        n, = struct.unpack_from("<Q", whole, at)
        name = whole[at + 8:at + 8 + n].decode()
        n_dims, columns, matrices, kind, place = struct.unpack_from("<IQQIQ", whole, at + 8 + n)
        assert n_dims == 2 and kind == 0
        infos.append((name, columns * matrices, place))
        at += 8 + n + 32
    data = -(-at // 32) * 32
    read = {name: struct.unpack_from(f"<{n}f", whole, data + place) for name, n, place in infos}
    return {name[:-8]: (values, read[name[:-8] + ".counts"]) for name, values in read.items() if name.endswith(".in_sum2")}


def test_an_importance_matrix_is_written(tmp_path, text):
    """The sums of llama-imatrix: docs/guides/quantizing.md compares them."""
    first = quantize(MODEL, tmp_path / "a", "imatrix", *calibration(text))
    found = importance_in(first)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        for layer in range(4):
            sums, counts = found[f"blk.{layer}.{name}.weight"]
            assert counts == (4 * 128.0,) and len(sums) == (640 if name == "ffn_down" else 256) and all(0 < x < 1e9 for x in sums)
    assert hash_of(quantize(MODEL, tmp_path / "b", "imatrix", "--threads", 1, *calibration(text))) == hash_of(first)
    plain = quantize(MODEL, tmp_path / "plain.gguf", "gguf-q4_k_m")
    assert hash_of(quantize(MODEL, tmp_path / "q.gguf", "gguf-q4_k_m", "--imatrix", first)) != hash_of(plain)
    assert "exists" in refusal(MODEL, first, "--method", "imatrix", *calibration(text))
    assert "--calibration: is missing" in refusal(MODEL, tmp_path / "out", "--method", "imatrix")


def test_an_importance_matrix_of_experts(tmp_path, text):
    """Each token counts for the experts that compute with it."""
    found = importance_in(quantize(write_mixture(tmp_path / "model", 6), tmp_path / "a", "imatrix", *calibration(text)))
    for name in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"):
        sums, counts = found[f"blk.0.{name}.weight"]
        assert len(counts) == 6 and sum(counts) == 2 * 4 * 128 and len(sums) % 6 == 0
        assert all((sum(sums[i * len(sums) // 6:(i + 1) * len(sums) // 6]) > 0) == (counts[i] > 0) for i in range(6))
    assert found["blk.0.ffn_down_shexp.weight"][1] == (4 * 128.0,)


def exact_matrix(rows, cols, drawn):
    """Weights that Q8_0 stores without an error: multiples of 1/512, and 127 of them in each block of 32."""
    numbers = [drawn.randint(-127, 127) / 512 for _ in range(rows * cols)]
    numbers[::32] = [127 / 512] * (rows * cols // 32)
    return [rows, cols], numbers


def write_safetensors(path, tensors):
    write_tensors(path, {name: ("F16", shape, struct.pack(f"<{len(numbers)}e", *numbers)) for name, (shape, numbers) in tensors.items()})


def test_a_llama_becomes_the_same_model(tmp_path):
    """Rows of q and k in another order, and Llama 3's factors of RoPE as a tensor: a GGUF file with the same weights gives the
    directory's answer."""
    directory, drawn, size, inner = tmp_path / "llama", random.Random(4), 64, 96
    directory.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, directory)
    (directory / "config.json").write_text(json.dumps(dict(
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float16", hidden_size=size, intermediate_size=inner,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=2048, max_position_embeddings=512,
        rms_norm_eps=1e-5, rope_theta=10000.0, bos_token_id=2045, eos_token_id=2047, tie_word_embeddings=False, hidden_act="silu",
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=32))))
    tensors = {"model.embed_tokens.weight": exact_matrix(2048, size, drawn), "lm_head.weight": exact_matrix(2048, size, drawn),
               "model.norm.weight": ([size], [1.0] * size)}
    for i in range(2):
        for name, rows, cols in (("self_attn.q_proj", size, size), ("self_attn.k_proj", size // 2, size),
                                 ("self_attn.v_proj", size // 2, size), ("self_attn.o_proj", size, size),
                                 ("mlp.gate_proj", inner, size), ("mlp.up_proj", inner, size), ("mlp.down_proj", size, inner)):
            tensors[f"model.layers.{i}.{name}.weight"] = exact_matrix(rows, cols, drawn)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{name}.weight"] = ([size], [drawn.uniform(0.5, 1.5) for _ in range(size)])
    write_safetensors(directory / "model.safetensors", tensors)
    file = quantize(directory, tmp_path / "llama.gguf", "gguf-q8_0")
    prompt = "Once upon a time there was a gentle tiger who lived by the river, and every morning he went to look for nuts and apples."
    said = [quire("generate", model, prompt, "--max-tokens", 12, "--temperature", 0, "--activation-dtype", "float32").stdout
            for model in (directory, file)]
    assert said[0] == said[1] and said[0].strip()


def drawn_matrix(rows, cols, drawn):
    return [rows, cols], [drawn.gauss(0, cols ** -0.5) for _ in range(rows * cols)]


def write_mixture(directory, n_experts, loud=(), is_mixtral=False):
    """A mixture, with a shared expert or Mixtral's names, random weights and the demo model's tokenizer. loud: columns whose
    norms are 20."""
    drawn, size, inner = random.Random(6), 64, 32
    directory.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, directory)
    common = dict(torch_dtype="float16", hidden_size=size, intermediate_size=inner, num_experts_per_tok=2, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, vocab_size=2048, max_position_embeddings=512, rms_norm_eps=1e-6,
                  rope_theta=10000.0, eos_token_id=2047, tie_word_embeddings=False, hidden_act="silu")
    own = (dict(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=n_experts, sliding_window=None) if is_mixtral else
           dict(architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", moe_intermediate_size=inner, num_experts=n_experts,
                shared_expert_intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]))
    (directory / "config.json").write_text(json.dumps(common | own))
    tensors = {"model.embed_tokens.weight": drawn_matrix(2048, size, drawn), "lm_head.weight": drawn_matrix(2048, size, drawn),
               "model.norm.weight": ([size], [1.0] * size)}
    block, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if is_mixtral else ("mlp", "gate_proj", "up_proj", "down_proj")
    for i in range(2):
        parts = [("self_attn.q_proj", size, size), ("self_attn.k_proj", 32, size), ("self_attn.v_proj", 32, size), ("self_attn.o_proj", size, size),
                 (f"{block}.gate", n_experts, size)] + [("mlp.shared_expert_gate", 1, size)] * (not is_mixtral)
        for name, width in [(f"{block}.experts.{e}", inner) for e in range(n_experts)] + [("mlp.shared_expert", 64)] * (not is_mixtral):
            parts += [(f"{name}.{gate}", width, size), (f"{name}.{up}", width, size), (f"{name}.{down}", size, width)]
        for name, rows, cols in parts:
            tensors[f"model.layers.{i}.{name}.weight"] = drawn_matrix(rows, cols, drawn)
        for name in () if is_mixtral else ("q", "k", "v"):
            rows = size if name == "q" else 32
            tensors[f"model.layers.{i}.self_attn.{name}_proj.bias"] = ([rows], [0.0] * rows)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{name}.weight"] = ([size], [20.0 if k in loud else 1.0 for k in range(size)])
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


def divergence(reference, model, text):
    run = quire("eval", "kl", reference, model, "--text", text, "--window", 128, "--windows", 6, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["kl_mean"]


def test_experts_are_calibrated_by_the_tokens_that_they_see(tmp_path, text):
    model = write_mixture(tmp_path / "model", 6)
    options = ("--calibration", text, "--calibration-samples", 8, "--calibration-length", 256, "--group-size", 32)
    rounded = quantize(model, tmp_path / "rounded", "int4-block", "--group-size", 32)
    ignored = json.loads((rounded / "config.json").read_text())["quantization_config"]["ignore"]
    gates = [f"model.layers.{i}.mlp.{name}" for i in range(2) for name in ("gate", "shared_expert_gate")]
    assert sorted(ignored) == ["lm_head", *sorted(gates)]
    run = quire("quantize", model, tmp_path / "gptq", "--method", "gptq", *options)
    assert run.returncode == 0 and "too few tokens" not in run.stdout, run
    assert "50 matrices as gptq" in run.stdout  # of each layer 4 of attention, 18 of experts, 3 of the shared one
    kl = divergence(model, tmp_path / "gptq", text), divergence(model, rounded, text)
    assert kl[0] < 0.7 * kl[1], kl
    again = quantize(model, tmp_path / "again", "gptq", "--threads", 1, *options)
    assert hash_of(again) == hash_of(tmp_path / "gptq")


def test_experts_have_scales_of_awq(tmp_path, text):
    """The experts, the shared one, the router and the shared one's gate read one norm, so that their columns have the same
    scales; the columns of a down matrix have those of its own expert."""
    model = write_mixture(tmp_path / "model", 6, loud=(3, 17, 40))
    options = ("--calibration", text, "--calibration-samples", 8, "--calibration-length", 256, "--group-size", 32)
    rounded = quantize(model, tmp_path / "rounded", "int4-block", "--no-sym", "--group-size", 32)
    out = quantize(model, tmp_path / "awq", "awq", *options)
    kl = divergence(model, out, text), divergence(model, rounded, text)
    assert kl[0] < 0.7 * kl[1], kl
    before, after = tensors_of(model / "model.safetensors"), tensors_of(out / "model.safetensors")
    layer = "model.layers.1."
    for name in ("mlp.gate", "mlp.shared_expert_gate"):
        norms = [struct.unpack("<64e", t[layer + "post_attention_layernorm.weight"][2]) for t in (before, after)]
        scales = [a / b for a, b in zip(*norms)]
        assert max(scales) / min(scales) > 1.2
        w = [struct.unpack(f"<{len(t[layer + name + '.weight'][2]) // 2}e", t[layer + name + ".weight"][2]) for t in (before, after)]
        assert all(abs(b - a * scales[i % 64]) <= 2e-3 * abs(b) + 1e-6 for i, (a, b) in enumerate(zip(*w)))
    assert hash_of(quantize(model, tmp_path / "again", "awq", "--threads", 1, *options)) == hash_of(out)


def test_mixtrals_experts_have_scales_of_awq(tmp_path, text):
    model = write_mixture(tmp_path / "model", 4, loud=(3, 17, 40), is_mixtral=True)
    options = ("--calibration", text, "--calibration-samples", 8, "--calibration-length", 256, "--group-size", 32)
    kl = [divergence(model, quantize(model, tmp_path / method, method, "--group-size", 32, *more), text)
          for method, more in (("awq", options[:-2]), ("int4-block", ("--no-sym",)))]
    assert kl[0] < 0.7 * kl[1], kl


def test_experts_that_see_too_little_are_rounded(tmp_path, text):
    model = write_mixture(tmp_path / "model", 60)
    run = quire("quantize", model, tmp_path / "out", "--method", "gptq", "--calibration", text, "--calibration-samples", 1,
                "--calibration-length", 64, "--group-size", 32)
    assert run.returncode == 0, run.stderr
    said = re.search(r"^(\d+) matrices belong to experts that saw too few tokens", run.stdout, re.MULTILINE)
    assert said and 0 < int(said[1]) <= 2 * 3 * 60
    rounded = quantize(model, tmp_path / "rounded", "int4-block", "--group-size", 32)
    assert divergence(model, tmp_path / "out", text) < 2 * divergence(model, rounded, text)
