"""quire eval, beside transformers (eval_goldens.json) and models whose answers are known."""

import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import xml.dom.minidom

import pytest
from conftest import MODEL, QUIRE

import copy_model

GOLDENS = json.loads((pathlib.Path(__file__).parent / "eval_goldens.json").read_text())


def run(*arguments):
    return subprocess.run([str(QUIRE), "eval", *map(str, arguments)], capture_output=True, text=True)


def measure(*arguments):
    got = run(*arguments, "--json")
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(GOLDENS["text"])
    return path


@pytest.mark.parametrize("golden", GOLDENS["perplexities"], ids=lambda g: f"{g['window']}-{g['stride']}")
def test_perplexity_is_that_of_transformers(golden, text):
    some = ["--windows", golden["windows"]] if golden["windows"] else []
    got = measure("ppl", f"{MODEL},dtype=float32", "--text", text, "--window", golden["window"], "--stride", golden["stride"], *some)
    assert (got["tokens"], got["bytes"]) == (golden["tokens"], golden["bytes"])
    assert got["perplexity"] == pytest.approx(golden["perplexity"], rel=2e-5)
    assert got["byte_perplexity"] == pytest.approx(golden["byte_perplexity"], rel=2e-5)
    assert got["bits_per_byte"] == pytest.approx(math.log2(golden["byte_perplexity"]), rel=2e-5)
    assert got["perplexity_low"] < got["perplexity"] < got["perplexity_high"]
    whole = run("ppl", MODEL, "--text", text, "--window", "2048")  # as long as the model allows
    assert whole.returncode == 0 and "windows of 2048" in whole.stdout, whole
    assert re.search(r"perplexity a token  \d+\.\d{4}   95 % interval", run("ppl", MODEL, "--text", text, "--windows", "3").stdout)


def scaled(directory, factor):
    """The demo model with its final norm's weights times a factor."""
    shutil.copytree(MODEL, directory)
    path = directory / "model.safetensors"
    data = bytearray(path.read_bytes())
    n, = struct.unpack_from("<Q", data)
    norm = json.loads(data[8:8 + n])["model.norm.weight"]
    begin, end = (8 + n + at for at in norm["data_offsets"])
    count = (end - begin) // 2
    assert norm["dtype"] == "F16"
    struct.pack_into(f"<{count}e", data, begin, *(x * factor for x in struct.unpack_from(f"<{count}e", data, begin)))
    path.write_bytes(data)
    return directory


def test_divergence_is_that_of_transformers(text, tmp_path):
    golden, other = GOLDENS["divergence"], scaled(tmp_path / "other", GOLDENS["factor"])
    got = measure("kl", f"{MODEL},dtype=float32", f"{other},dtype=float32", "--text", text, "--window", golden["window"])
    assert got["tokens"] == golden["tokens"]
    for name in ("kl_mean", "kl_median", "kl_p999", "kl_max"):
        assert got[name] == pytest.approx(golden[name], rel=1e-3), name
    assert got["same_top1"] == pytest.approx(golden["same_top1"], abs=1e-3)
    assert [d["kl"] for d in got["by_depth"]] == pytest.approx(golden["by_depth"], rel=1e-3)
    assert sum(d["tokens"] for d in got["by_depth"]) == got["tokens"]


def test_a_model_does_not_diverge_from_itself(text):
    got = measure("kl", MODEL, MODEL, "--text", text, "--windows", "3")
    assert got["kl_max"] == 0 and got["same_top1"] == 1 and got["perplexity"] == got["reference_perplexity"]
    said = run("kl", MODEL, f"{MODEL},quantization=int4-block", "--text", text, "--windows", "2", "--stride", "256")
    assert said.returncode == 0 and "the same best token" in said.stdout and "448-511" in said.stdout


WORDS = "the river runs past mill and on to sea boats leave in morning come back evening".split()


def test_a_model_that_copies_finds_every_needle(tmp_path):
    draw = __import__("random").Random(3)
    filler = tmp_path / "filler.txt"
    filler.write_text(" ".join(draw.choice(WORDS) for _ in range(300)))
    copy_model.write(tmp_path / "copy", [*WORDS, "secret", "number", "of", "Lisbon", "is", "four", "eight"])
    how = ["--filler", filler, "--needle", "number of Lisbon is four eight", "--question", "number of Lisbon is", "--lengths", "64,512,2k", "--depths", "5"]
    got = measure("needle", tmp_path / "copy", *how, "--answer", "four eight")
    assert got["found"] == 1 and len(got["questions"]) == 15, got
    assert [q["depth"] for q in got["questions"]][:5] == [0, 0.25, 0.5, 0.75, 1]
    table = run("needle", tmp_path / "copy", *how, "--answer", "secret")  # what was never said
    assert table.returncode == 0 and "found: 0.0 %" in table.stdout
    short = run("needle", tmp_path / "copy", *how[:-4], "--lengths", "4")
    assert short.returncode == 1 and "do not hold the needle" in short.stderr


def test_compare_writes_a_table_and_a_chart(text, tmp_path):
    chart = tmp_path / "kl.svg"
    models = [MODEL, f"{MODEL},quantization=int8", f"{MODEL},quantization=int4-block", "--model", f"{MODEL},kv-cache-dtype=fp8"]
    got = measure("compare", *models, "--text", text, "--windows", "2", "--svg", chart)
    plain, int8, int4, kv = got["models"]
    assert (plain["bits"], int8["bits"], int4["bits"], kv["bits"]) == (16, 8.5, 4.5, 16)
    assert plain["kl_mean"] == 0 < int8["kl_mean"] < int4["kl_mean"]
    assert int4["bytes"] < int8["bytes"] and all(m["decode_tokens_per_s"] > 0 and m["prefill_tokens_per_s"] > 0 for m in got["models"])
    assert chart.read_text().startswith("<svg") and "Q4_0" in chart.read_text()
    table = run("compare", MODEL, "--text", text, "--windows", "1")
    assert table.returncode == 0 and "| Model | Method | Bits | Memory | Perplexity" in table.stdout


def test_methods_of_one_format_have_their_names(text, tmp_path):
    for method in ("gptq", "awq"):
        made = subprocess.run([QUIRE, "quantize", MODEL, tmp_path / method, "--method", method, "--calibration", text, "--calibration-samples", "1",
                               "--calibration-length", "64"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    models = measure("compare", MODEL, tmp_path / "gptq", tmp_path / "awq", "--text", text, "--windows", "1")["models"]
    assert [m["method"] for m in models] == ["float16", "GPTQ int4", "AWQ int4"]


def test_one_window_has_no_interval(text):
    int8 = f"{MODEL},quantization=int8"
    how = ["--text", text, "--window", "64", "--windows", "1"]
    got = measure("ppl", MODEL, *how)
    assert got["perplexity"] > 1 and got["perplexity_low"] is got["perplexity_high"] is None
    got = measure("kl", MODEL, int8, *how)
    assert got["kl_mean"] > 0 and got["increase_low"] is got["increase_high"] is None
    row = measure("compare", MODEL, int8, *how)["models"][1]
    assert all(row[name] is None for name in ("perplexity_low", "perplexity_high", "increase_low", "increase_high"))
    assert "(95 % interval: one window)" in run("kl", MODEL, int8, *how).stdout
    assert run("compare", MODEL, *how).stdout.count("(one window)") == 2


def test_a_chart_has_a_name_for_each_line(text, tmp_path):
    same = f"{MODEL},quantization=int8"
    chart = tmp_path / "kl.svg"
    got = run("compare", MODEL, same, same, "--model", *[f"{MODEL},kv-cache-dtype={d}" for d in ("int8", "fp8", "fp8_e5m2")], "--text", text, "--windows", "1", "--svg", chart)
    assert got.returncode == 0, got.stderr
    svg = xml.dom.minidom.parse(str(chart)).documentElement
    names = [t.firstChild.data for t in svg.getElementsByTagName("text")][-5:]
    assert names[:2] == ["Q8_0, row 2", "Q8_0, row 3"] and len(set(names)) == 5
    left, top, width, _ = map(float, svg.getAttribute("viewBox").split())
    ends = [(float(t.getAttribute("x")) + 6 * len(t.firstChild.data), float(t.getAttribute("y"))) for t in svg.getElementsByTagName("text")[-5:]]
    assert all(x <= left + width and y >= top + 8 for x, y in ends)


def test_a_chart_that_cannot_be_written_fails_before_the_work(text, tmp_path):
    chart = tmp_path / "kl.svg"
    assert "--svg: " in run("compare", MODEL, tmp_path / "missing", "--text", text, "--svg", tmp_path / "no" / "kl.svg").stderr
    assert "2 to 9 models, got 1" in run("compare", MODEL, "--text", text, "--svg", chart).stderr
    assert "2 to 9 models, got 10" in run("compare", MODEL, "--model", *[MODEL] * 9, "--text", text, "--svg", chart).stderr
    assert "missing" in run("compare", MODEL, tmp_path / "missing", "--text", text, "--svg", chart).stderr
    assert not chart.exists()


def test_the_median_and_the_percentile_of_few_tokens_are_interpolated(text):
    """As numpy.percentile does it."""
    got = measure("kl", MODEL, f"{MODEL},quantization=int4-block", "--text", text, "--window", "3", "--windows", "1")
    least = 2 * got["kl_mean"] - got["kl_max"]
    assert got["tokens"] == 2 and 0 <= least < 0.999 * got["kl_max"]
    assert got["kl_median"] == pytest.approx(got["kl_mean"], rel=1e-6)
    assert got["kl_p999"] == pytest.approx(got["kl_max"] - 0.001 * (got["kl_max"] - least), rel=1e-6)


def test_parts_of_a_window_that_eight_does_not_divide(text):
    int8 = f"{MODEL},quantization=int8"
    got = measure("kl", MODEL, int8, "--text", text, "--window", "12", "--stride", "3", "--windows", "1")
    assert (got["window"], got["stride"], got["windows"], got["tokens"]) == (12, 3, 1, 11)
    begins = [d["from"] for d in got["by_depth"]] + [12]
    assert [d["tokens"] for d in got["by_depth"]] == [sum(begin <= p < end for p in range(1, 12)) for begin, end in zip(begins, begins[1:])]
    table = run("kl", MODEL, int8, "--text", text, "--window", "4", "--windows", "1").stdout
    assert "windows of 4, stride 4" in table
    assert re.findall(r"^ +(\d+)-(\d+) +(\d+) ", table, re.M) == [("0", "0", "0"), ("1", "1", "1"), ("2", "2", "1"), ("3", "3", "1")]


def test_compare_takes_windows_of_any_length(text):
    """Up to the longest that the model allows, and with the perplexity of ppl."""
    for window in (2, 3, 300, 2048):
        how = ["--text", text, "--window", window, "--windows", "2"]
        got = measure("compare", MODEL, *how)
        row, = got["models"]
        assert row["perplexity"] == measure("ppl", MODEL, *how)["perplexity"] and row["decode_tokens_per_s"] > 0
        assert got["window"] == got["stride"] == window
    assert "of one request of 236 tokens and 64 answered" in run("compare", MODEL, "--text", text, "--window", "300", "--windows", "1").stdout


def with_dynamic_rope(directory):
    shutil.copytree(MODEL, directory)
    config = json.loads((directory / "config.json").read_text())
    config.update(max_position_embeddings=64, rope_scaling={"rope_type": "dynamic", "factor": 8.0})
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_every_part_scales_rope_by_the_window(text, tmp_path):
    model = with_dynamic_rope(tmp_path / "dynamic")
    how = ["--text", text, "--window", "128", "--windows", "2"]
    want = measure("ppl", model, *how)["perplexity"]
    assert want == measure("kl", model, model, *how)["perplexity"] == measure("compare", model, *how)["models"][0]["perplexity"]


def test_a_perplexity_that_no_number_holds_is_null(text, tmp_path):
    """Of a model whose logits are so large that e to their mean is infinite."""
    huge = scaled(tmp_path / "huge", 2000)
    how = ["--text", text, "--windows", "2"]
    got = measure("ppl", huge, *how)
    assert got["nll"] > 710 and got["perplexity"] is got["perplexity_high"] is None and got["tokens"] > 0
    got = measure("kl", huge, MODEL, *how)
    assert got["reference_perplexity"] is None and got["perplexity"] > 1 and got["kl_mean"] > 0 and got["increase"] == -1
    first, second = measure("compare", MODEL, huge, *how)["models"]
    assert first["perplexity"] > 1 and second["perplexity"] is None and second["kl_mean"] > 0
    assert "one window" not in run("kl", huge, MODEL, *how).stdout


def test_a_path_that_is_no_text_is_printed(text, tmp_path):
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shutil.copytree(MODEL, directory)
    for part in (["ppl", directory], ["kl", directory, MODEL], ["compare", directory]):
        got = subprocess.run([QUIRE, "eval", *part, "--text", text, "--windows", "1", "--json"], capture_output=True)
        assert got.returncode == 0 and json.loads(got.stdout), got


def test_wrong_input_is_refused(text, tmp_path):
    empty, bytes_ = tmp_path / "empty.txt", tmp_path / "bytes.txt"
    empty.write_text("")
    bytes_.write_bytes(b"\xff\xfe\xff")
    copy_model.write(tmp_path / "copy", WORDS)
    for arguments, code, says in ((["needle", MODEL, "--filler", empty], 1, "--filler: is empty"), (["needle", MODEL, "--needle", ""], 1, "--needle: is empty"),
                                  (["needle", MODEL, "--filler", bytes_], 1, "--filler: text: not UTF-8"), (["ppl", MODEL, "--text", tmp_path / "no"], 1, "--text: "),
                                  (["ppl", MODEL], 2, "--text FILE is missing"), (["ppl", MODEL, "--text", empty], 1, "two or more"), (["ppl", MODEL, "--text", bytes_], 1, "UTF-8"),
                                  (["ppl", MODEL, "--text", tmp_path], 1, "directory"), (["ppl", MODEL, "--text", text, "--window", "4", "--stride", "5"], 1, "--stride 5"),
                                  (["ppl", MODEL, "--text", text, "--window", "4096"], 1, "2048 positions"), (["ppl", f"{MODEL},bits=4", "--text", text], 1, "MODEL,OPTION=VALUE"),
                                  (["kl", MODEL, tmp_path / "copy", "--text", text], 1, "one vocabulary"), (["needle", MODEL, "--lengths", "0"], 2, "--lengths"), (["other"], 2, "unknown part")):
        got = run(*arguments)
        assert got.returncode == code and says in got.stderr and len(got.stderr.splitlines()) == 1, (arguments, got)
