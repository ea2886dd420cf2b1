"""The command line, as a person would try it."""

import concurrent.futures
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

import rig
from conftest import MODEL, QUIRE, ROOT, SLOWLY, Server, cannot_run


def quire(*arguments, stdin=None, timeout=300):
    return subprocess.run([str(QUIRE), *map(str, arguments)], capture_output=True, text=True, input=stdin, timeout=timeout)


@pytest.mark.parametrize("command", ["run", "serve", "engine", "generate", "batch", "map-reduce", "plan", "cache", "check", "route", "ab", "keys", "list", "show", "rm", "ps", "sim", "replay", "doctor", "inspect", "quantize"])
def test_help_teaches(command):
    shown = quire(command, "--help")
    assert shown.returncode == 0 and f"usage: quire {command}" in shown.stdout and "example" in shown.stdout
    assert quire("help", command).stdout == shown.stdout


def test_no_command_shows_help():
    assert quire().returncode == 2
    assert "serve" in quire("--help").stdout
    assert quire("version").stdout.startswith("quire ") and quire("version").stdout == quire("-v").stdout == quire("-V").stdout == quire("--version").stdout


@pytest.mark.parametrize("typed,meant", [
    ("srve", "quire serve"), ("servee", "quire serve"), ("pul", "quire pull"), ("chat", "quire run"), ("ls", "quire list"), ("download", "quire pull"),
    ("bench serv", "quire bench serve"), ("cache stat", "quire cache stats"), ("cache calibrat", "quire cache calibrate"), ("keys lst", "quire keys list"),
    ("eval pll", "quire eval ppl"), ("serve x --max-num-seq 3", "--max-num-seqs"), ("serve x --max-model 3", "--max-model-len"),
    ("./model", "quire run ./model"), ("Qwen/Qwen3-0.6B", "quire run Qwen/Qwen3-0.6B"), ("model.gguf", "quire run model.gguf"), ("help srve", "quire serve"),
    ("batch stats", "quire batch status"), ("batch lst", "quire batch list"), ("stop", "quire ps"), ("info x", "quire show"), ("run --hlep", "--help"), ("serve x --hepl", "--help"),
    ("serve x --hsot 0.0.0.0", "--host"), ("serve x --no-prefix-caching", "--no-enable-prefix-caching"), ("generate x --temprature 0", "--temperature"),
])
def test_what_was_meant(typed, meant):
    got = quire(*typed.split())
    assert got.returncode == 2 and got.stderr.endswith(f"; did you mean {meant}?\n") and got.stderr.count("\n") == 1, got


@pytest.mark.parametrize("typed", ["foo", "bench foo", "cache x", "generate x --foo", "serve x -z", "plan x -p", "rank"])
def test_nothing_near_is_not_guessed(typed):
    got = quire(*typed.split())
    assert got.returncode == 2 and "did you mean" not in got.stderr and "unknown" in got.stderr and "--help" in got.stderr, got


@pytest.mark.parametrize("typed,meant", [
    ("./model serve", "quire serve ./model"), ("cache http://127.0.0.1:8000 stats", "quire cache stats http://127.0.0.1:8000"),
    ("cache pairs.jsonl calibrate", "quire cache calibrate pairs.jsonl"), ("keys key_01 revoke", "quire keys revoke key_01"), ("eval ./model ppl", "quire eval ppl ./model"),
    ("bench ./model latency", "quire bench latency ./model"), ("ab search report", "quire ab report search"), ("route Hello explain", "quire route explain Hello"),
])
def test_an_action_after_its_argument_is_recognized(typed, meant):
    got = quire(*typed.split())
    assert got.returncode == 2 and got.stderr.endswith(f"; the two are swapped: write {meant}\n") and got.stderr.count("\n") == 1, got


def test_models_and_other_arguments_that_are_swapped(tmp_path):
    got = quire("quantize", tmp_path / "out", MODEL, "--method", "int4-block")
    assert got.returncode == 1 and got.stderr == "quire: OUT is a model: the two are swapped; write MODEL first\n", got
    got = quire("generate", "Hello.", MODEL)
    assert got.returncode == 2 and "write MODEL first" in got.stderr, got


@pytest.mark.parametrize("typed", ["-foo", "--foo", "-no-cnv", "-zz", "--z"])
def test_an_unknown_option_is_shown_as_typed(typed):
    assert f"unknown option {typed};" in quire("generate", "x", typed).stderr


def test_sampling_options_of_other_engines():
    question = ["generate", MODEL, "Hello.", "--temp", "1", "--seed", "3", "-n", "8"]
    assert quire(*question, "--min-p", "1").stdout == quire(*question[:3], "--temp", "0", "-n", "8").stdout
    assert "an option of quire generate" in quire("serve", "x", "--min-p", "0.1").stderr
    for command in ("generate", "serve"):
        said = quire(command, "x", "--repeat-penalty", "1.1").stderr
        assert "a field of requests" in said and "quire generate" not in said


def test_an_address_needs_no_scheme(start):
    server = start("serve", MODEL, "--port", "0", "--response-cache", "memory")
    for address in (f"127.0.0.1:{server.port}", f"127.0.0.1:{server.port}/v1/"):
        assert quire("cache", "stats", address).returncode == 0
    assert "must begin with http" in quire("cache", "stats", "ftp://127.0.0.1").stderr


def test_short_options_of_other_engines_are_taken():
    """The same answer and the same plan, with llama.cpp's, SGLang's and Quire's names."""
    question = ["What is 12 plus 30?", "--temperature", "0", "--top-p", "1", "--max-tokens", "30", "--max-model-len", "512", "--threads", "1"]
    ours = quire("generate", MODEL, *question)
    theirs = quire("generate", "-m", MODEL, "-p", "What is 12 plus 30?", "--temp", "0", "--top-p", "1", "-n", "30", "-c", "512", "-t", "1")
    assert ours.returncode == theirs.returncode == 0 and ours.stdout == theirs.stdout
    plan = quire("plan", MODEL, "--max-model-len", "512", "--max-num-seqs", "3")
    for names in (["--ctx-size", "512", "-np", "3"], ["--context-length", "512", "--max-running-requests", "3"], ["-c", "512", "-np", "3", "-ngl", "99"]):
        got = quire("plan", MODEL, *names)
        assert got.returncode == 0 and got.stdout == plan.stdout, got
    both = quire("generate", MODEL, "hello", "-p", "hello")
    assert both.returncode == 2 and "--prompt" in both.stderr


def options_in(text):
    return re.findall(r"^  --(?:\[no-\])?([a-z0-9-]+)", text, re.MULTILINE)


COMMANDS = [[name] for name in ("run", "serve", "engine", "generate", "batch", "map-reduce", "plan", "inspect", "quantize", "doctor", "pull", "sim", "replay")]
COMMANDS += [["eval", name] for name in ("ppl", "kl", "needle", "compare")]
COMMANDS += [["cache", name] for name in ("pin", "unpin", "stats", "warm", "calibrate")]
COMMANDS += [["check"], ["route"], ["ab"], *(["keys", name] for name in ("issue", "rotate", "revoke", "list"))]
COMMANDS += [["bench", name] for name in ("throughput", "latency", "serve", "compare", "steps", "kernels", "collectives")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_more_than_30_options_have_a_short_help(command):
    """--help shows the common options, with one example; --help all shows everything."""
    short, whole = quire(*command, "--help"), quire(*command, "--help", "all")
    assert short.returncode == whole.returncode == 0
    assert whole.stdout == quire(*command, "--help=all").stdout
    few, every = options_in(short.stdout), options_in(whole.stdout)
    if len(every) <= 30:
        assert short.stdout == whole.stdout
        return
    assert 8 <= len(few) <= 30 and set(few) <= set(every)
    assert len(short.stdout.splitlines()) <= 60 and max(map(len, short.stdout.splitlines())) <= 120
    assert short.stdout.count("example:") == 1 and short.stdout.split("example:")[1].count("  quire ") == 1
    assert f"quire {' '.join(command)} --help all shows all {len(every)}." in short.stdout
    wrong = quire(*command, "--zzzzzzzzzzzz")
    assert wrong.returncode == 2 and f"quire {' '.join(command)} --help all lists all options" in wrong.stderr


def test_the_short_help_of_serve_has_the_common_options():
    shown = quire("serve", "--help").stdout
    few = options_in(shown)
    assert 20 <= len(few) <= 25
    assert {"host", "port", "api-key", "served-model-name", "max-model-len", "device", "tensor-parallel-size",
            "speculative-config", "response-cache", "quantization"} <= set(few)
    assert quire("help", "serve", "all").stdout == quire("serve", "--help", "all").stdout
    wrong = quire("serve", "--help=most")
    assert wrong.returncode == 2 and wrong.stderr == "quire: --help: must be all or without a value, got most\n"


@pytest.mark.parametrize("arguments,says", [
    (["serve"], "MODEL is missing"),
    (["serve", "x", "--max-num-seq", "3"], "did you mean --max-num-seqs"),
    (["serve", "x", "--port", "99999"], "--port"),
    (["serve", "x", "--port"], "needs a value"),
    (["plan", "x", "--kv-cache-memory", "many"], "not a size"),
    (["plan", "x", "--kv-cache-memory", "0x4G"], "not a size"),
    (["serve", "x", "--class-weights", "0=0"], "--class-weights: \"0=0\""),
    (["serve", "x", "--class-weights", "0.0=4"], "--class-weights: \"0.0=4\""),
    (["serve", "x", "--response-cache", "exact", "--price-per-1k", " 1,1,1"], "--price-per-1k"),
    (["sim", "--trace-format", "synthetic", "--ramp", "0x1:2"], "--ramp"),
    (["sim", "--trace-format", "synthetic", "--goodput", "ttft: 5"], "--goodput"),
    (["sim", "--trace-format", "synthetic", "--tenants", "a:rate=0x5"], "--tenants"),
    (["sim", "--speculative-acceptance", "0x1"], "--speculative-acceptance"),
    (["bench", "serve", "--metric-percentiles", "50,"], "--metric-percentiles"),
    (["bench", "serve", "--request-rate", "1e400"], "--request-rate"),
    (["serve", "x", "y"], "\"y\" is one argument too many; usage"),
    (["run", "x", "two", "words"], "\"words\" is one argument too many; put a prompt of several words in quotes; usage"),
    (["run", "x", "-n", "abc"], "quire: -n: \"abc\" is not a whole number"),
    (["serve", "x", "--max_model_len", "abc"], "quire: --max_model_len: \"abc\" is not a whole number"),
    (["serve", "x", "--engine", "unix:/absent", "--max-num-seqs", "3"], "--max-num-seqs is for an engine in this process"),
    (["serve", "x", "--engine", "unix:/absent", "--shadow-policy", "sjf"], "--shadow-policy is for an engine"),
    (["serve", "x", "--warm", "prompts.jsonl", "--no-enable-prefix-caching"], "which is off"),
])
def test_a_wrong_command_line_is_explained(arguments, says):
    got = quire(*arguments)
    assert got.returncode == 2 and says in got.stderr and got.stderr.count("\n") == 1


def test_a_directory_is_served_by_its_name(start, tmp_path):
    model, place, link = tmp_path / "my-model", tmp_path / "my-model" / "inside", tmp_path / "as-i-call-it"
    place.mkdir(parents=True)
    for file in MODEL.iterdir():
        (model / file.name).symlink_to(file)
    link.symlink_to(model)
    for cwd, given, name in ((model, ".", "my-model"), (model, ".//", "my-model"), (place, "..", "my-model"), (place, "../.", "my-model"),
                             (tmp_path, "my-model/inside/../", "my-model"), (tmp_path, link, link.name), (link, ".", "my-model")):
        s = start("serve", given, "--port", "0", "--num-kv-blocks", "64", "--max-model-len", "64", cwd=cwd)
        served = [m.id for m in s.client().models.list()]
        assert served == [name], (cwd, given)
        assert s.stop() == 0


FOREIGN = re.findall(r'^    \{"([^;]*?)"(?:,|\s)\s*(NULL|"[^"]*"),\s+(?:([A-Z_]+)|"([^"]*)")', re.sub(r'"\s*\n\s*"', "", (
    ROOT / "app" / "command" / "foreign_flags.c").read_text()), re.MULTILINE)


def test_other_engines_options_are_named():
    """Every row of the table: accepted with valid values, otherwise rejected with its text; its references exist."""
    assert len(FOREIGN) > 80
    shown = quire("serve", "--help", "all").stdout + quire("generate", "--help", "all").stdout
    ours, served = set(options_in(shown)), set(options_in(quire("serve", "--help", "all").stdout))
    seen = set()
    for names, accepts, _, text in FOREIGN:
        for name in re.findall(r"use --([a-z0-9-]+)", text):
            assert name.removeprefix("no-") in ours, (names, text)
        for name in names.split(","):
            assert name not in served and name not in seen, name
            seen.add(name)
    # one process each: a part is enough, because the code is the same for all
    for names, accepts, _, text in FOREIGN[::5]:
        option = "--" + names.split(",")[0]
        is_flag = accepts == '""'
        got = quire("plan", "/absent", option, *([] if is_flag else ["98765"]))
        assert got.returncode == (1 if is_flag else 2) and option in got.stderr.splitlines()[0], got


def test_inspect_says_what_is_in_a_checkpoint():
    told = json.loads(quire("inspect", MODEL, "--json", "--quantization", "none").stdout)
    assert told["supported"] and told["quantization"] == "none" and told["regrouped_bytes"] == 0
    assert told["parameters"] == told["vector_parameters"] + sum(
        sum(m["parameters"].values()) for m in told["matrices"])
    assert "KV cache" in quire("inspect", MODEL).stdout
    for name, says in ("awq", "the checkpoint is not quantized"), ("w8a8", "the checkpoint is not quantized"):
        wrong = quire("inspect", MODEL, "--json", "--quantization", name)
        refused = json.loads(wrong.stdout)
        assert wrong.returncode == 1 and says in wrong.stderr and says in refused["refused"]
        assert not refused["supported"] and refused["file_bytes"] == told["file_bytes"]


@pytest.mark.parametrize("arguments,says", [
    (["--tensor-parallel-size", "9"], "--tensor-parallel-size: must be between 1 and 8, got 9"),
    (["-pp", "9"], "quire: -pp: must be between 1 and 8, got 9"),
    (["--tensor-parallel-size"], "needs a value"),
    (["--data-parallel-size", "2"], "not supported yet"),
    (["--enable-lora"], "--enable-lora: not supported yet"),
    (["--speculative-config", "{}"], "--speculative-config: JSON: method: is missing"),
    (["--speculative-config", '{"method": "eagle3"}'], "is not supported; supported methods: ngram, suffix, draft_model"),
    (["--num-speculative-tokens", "5"], "use --speculative-config"),
    (["-md", "draft.gguf"], "-md: use --speculative-config"),
    (["-ngl", "3"], "quire: -ngl 3: not supported: all layers of a model are on devices of one kind, which --device selects"),
    (["-q"], "-q needs a value"),
    (["--mem-fraction-static", "0.8"], "use --gpu-memory-utilization"),
    (["-fa=maybe"], "-fa maybe: not supported: each device has one set of kernels"),
    (["--no-enable-chunked-prefill"], "--no-enable-chunked-prefill: prompts are always computed in chunks"),
    (["--load-format", "gguf"], "--load-format gguf: not supported"),
    (["--model", "x", "--model", "y"], "is already set"),
    (["x", "--model", "y"], "one argument too many"),
    (["--max-model-length", "5"], "did you mean --max-model-len"),
])
def test_an_option_of_another_engine_is_explained(arguments, says):
    for command in ("serve", "plan"):
        got = quire(command, *arguments)
        assert got.returncode == 2 and says in got.stderr and got.stderr.count("\n") == 1, got


def test_what_is_so_anyway_is_taken():
    taken = ["--data-parallel-size", "1", "--trust-remote-code", "--enable-chunked-prefill", "--enable-auto-tool-choice", "--load-format=auto"]
    got = quire("plan", "--model", MODEL, *taken, "--max-model-len", "512")
    assert got.returncode == 0 and got.stdout == quire("plan", MODEL, "--max-model-len", "512").stdout
    assert "--trust-remote-code changes nothing: Quire never runs code of a model" in got.stderr and got.stderr.count("changes nothing") == 5
    assert "--load-format changes nothing: checkpoints are safetensors or GGUF files" in got.stderr and "not supported" not in got.stderr
    for with_value in (["-fa", "on"], ["--flash-attn", "auto"], ["-fa"], ["-fa", "-c", "512"]):
        got = quire("plan", "-m", MODEL, *with_value)
        assert got.returncode == 0 and "--flash-attn changes nothing: each device has one set of kernels" in got.stderr, got
    answer = quire("generate", "What is 12 plus 30?", "--temperature", "0", "-m", MODEL)
    for zero in ("0", "1e-300"):
        assert quire("generate", "What is 12 plus 30?", "--top-p", zero, "-m", MODEL).stdout == answer.stdout
    assert "42" in answer.stdout


def test_a_models_own_top_p_of_zero_is_greedy(tmp_path, start):
    shutil.copytree(MODEL, tmp_path / "model")
    about = tmp_path / "model" / "generation_config.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "top_p": 0, "temperature": 1.5}))
    greedy = quire("generate", "Tell me a story", "--temperature", "0", "-m", MODEL, "--max-tokens", "20").stdout
    assert greedy and quire("generate", "Tell me a story", "-m", tmp_path / "model", "--max-tokens", "20").stdout == greedy
    client = start("serve", tmp_path / "model", "--port", "0", "--served-model-name", "demo").client()
    said = lambda **how: client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Tell me a story"}], max_tokens=20, **how)
    assert said().choices[0].message.content == said(temperature=0).choices[0].message.content == greedy.strip()


def test_the_doctor(tmp_path):
    got = quire("doctor", MODEL, "--max-model-len", "512")
    assert got.returncode == 0, got
    for word in ("This machine", "instructions", "avx2", "CPUs", "memory", "open files", "GPU", "Qwen2ForCausalLM", "KV cache", "it runs: quire serve"):
        assert word in got.stdout, word
    told = json.loads(quire("doctor", MODEL, "--json", "--num-kv-blocks", "100", "--max-model-len", "512").stdout)
    planned = json.loads(quire("plan", MODEL, "--json", "--num-kv-blocks", "100", "--max-model-len", "512").stdout)
    model, machine = told["model"], told["machine"]
    assert model["runs"] and model["problem"] is None and model["plan"]["kv_tokens"] == 1600
    for key in ("device", "weight_bytes", "kv_bytes", "total_bytes", "max_model_len", "max_num_seqs"):
        assert model["plan"][key] == planned[key], key
    assert machine["cpus_allowed"] == len(os.sched_getaffinity(0)) and 0 < machine["free_bytes"] <= machine["memory_bytes"]
    assert [s["has"] for s in machine["instructions"]][0] and machine["threads"] >= 1
    assert json.loads(quire("doctor", "--json").stdout)["model"] is None

    short = json.loads(quire("doctor", MODEL, "--json", "--kv-cache-memory", "1M").stdout)
    whole = json.loads((MODEL / "config.json").read_text())["max_position_embeddings"]
    advised = re.search(r"supports (\d+): use (--kv-cache-memory) (\d+M)", short["advice"][-1])
    assert short["model"]["plan"]["max_model_len"] < whole == int(advised[1]), short
    mended = json.loads(quire("doctor", MODEL, "--json", advised[2], advised[3]).stdout)
    assert mended["model"]["plan"]["max_model_len"] == whole and not mended["advice"]

    for change, says in ((["--kv-cache-memory", "900T"], "lower --kv-cache-memory"), (["--scheduling-policy", "none"], "policy"),
                         (["--num-kv-blocks", "4", "--max-model-len", "512"], "--num-kv-blocks"), (["--gemm-form", "mma"], "gemm-form")):
        wrong = quire("doctor", MODEL, "--json", *change)
        told = json.loads(wrong.stdout)["model"]
        assert wrong.returncode == 1 and not told["runs"] and says in told["problem"], told
    assert quire("doctor", tmp_path).returncode == 1 and quire("doctor", "no/such-model").returncode == 1
    limited = subprocess.run(["bash", "-c", f"ulimit -n 1000; {QUIRE} doctor"], capture_output=True, text=True)
    assert limited.returncode == 0 and "LimitNOFILE" in limited.stdout


@pytest.mark.parametrize("damage", ["a tensor is missing", "the tokenizer is too large", "the weights are cut"])
def test_the_doctor_finds_what_would_fail(tmp_path, damage):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    data = weights.read_bytes()
    if damage == "a tensor is missing":  # under a name of the same length
        weights.write_bytes(data.replace(b"model.norm.weight", b"model.nurm.weight"))
    elif damage == "the weights are cut":
        weights.write_bytes(data[:-1000])
    else:
        told = json.loads(config.read_text())
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        hidden = told["hidden_size"]
        assert header["model.embed_tokens.weight"]["shape"] == [told["vocab_size"], hidden]
        tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": told["vocab_size"] + 7, "content": "<|extra|>"})
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    doctor, serve = quire("doctor", tmp_path), quire("serve", tmp_path, "--port", "0")
    assert doctor.returncode == 1 and serve.returncode == 1
    reason = serve.stderr.strip().splitlines()[-1].removeprefix("quire: ")
    assert f"it does not run: {reason}" in doctor.stdout, (doctor.stdout, reason)


class Terminal:
    """quire generate on its own terminal."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(QUIRE, [str(QUIRE), "generate", str(MODEL), "--temperature", "0", *map(str, arguments)])
        self.seen = ""

    def wait_for(self, text, seconds=300):
        """Returns the output until then."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline and select.select([self.fd], [], [], seconds)[0], (text, self.seen)
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                if select.select([self.fd], [], [], 0.1)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it did not end: " + self.seen)


def test_a_chat_at_the_terminal():
    t = Terminal()
    t.wait_for("> ")
    t.type("\r")  # an empty line does nothing
    t.wait_for("> ")
    t.type("What is 99 plus 1?\x15What is 12 plus 30?\r")  # Ctrl-U deletes the first part
    assert "42" in t.wait_for(" tokens in, ")
    t.wait_for("> ")
    t.type("half a line\x03")
    t.wait_for("(Ctrl-C again ends the chat)")
    t.wait_for("> ")
    t.type("What is 20 plus 30?\r")
    assert "50" in t.wait_for(" tokens in, ")
    t.wait_for("> ")
    t.type("\x03")
    t.wait_for("again ends the chat)")
    t.wait_for("> ")
    t.type("\x03")
    assert t.status() == 0
    t = Terminal()
    t.wait_for("> ")
    t.type("\x04")  # Ctrl-D
    assert t.status() == 0


def test_ctrl_c_stops_an_answer_and_no_more():
    t = Terminal("--raw", *SLOWLY)  # it repeats itself until the context is full: 2,039 tokens, seconds
    t.wait_for("> ")
    t.type("1 2 3 4 5\r")
    t.wait_for(" 5 5 5")
    t.type("\x03")
    shown = t.wait_for(" tokens out")
    assert int(shown.rsplit(" ", 1)[1]) < 2039 and "Ctrl-C" not in shown
    t.wait_for("> ")
    t.type("1 2 3 4 5\r")
    t.wait_for(" 5 5 5")
    t.type("\x03")
    t.wait_for(" tokens out")
    t.wait_for("> ")
    os.kill(t.pid, signal.SIGTERM)
    assert t.status() == 0
    with subprocess.Popen([QUIRE, "generate", MODEL, "1 2 3 4 5", "--raw", "--temperature", "0", *SLOWLY], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as once:
        once.stdout.read(1)
        once.send_signal(signal.SIGINT)
        assert once.wait(300) == 130


def test_the_line_can_be_edited():
    linked = subprocess.run(["ldd", QUIRE], capture_output=True, text=True).stdout
    if "libedit" not in linked:
        assert "EDIT_FOUND" in (ROOT / "CMakeLists.txt").read_text() + (ROOT / "app" / "CMakeLists.txt").read_text()
        cannot_run("this build found no libedit")
    t = Terminal()
    t.wait_for("> ")
    t.type("at is 12 plus 3?\x01Wh\x05\x1b[D0\r")  # to the beginning, to the end, one to the left
    assert "42" in t.wait_for(" tokens in, ")
    t.wait_for("> ")
    t.type("\x1b[A\r")  # the previous line
    assert "12 plus 30" in t.wait_for(" tokens in, ")
    t.wait_for("> ")
    t.type("Grüße, 漢字\x7f\x7f 🙂\r")
    t.wait_for(" tokens in, ")
    t.wait_for("> ")
    t.type("\x04")
    assert t.status() == 0


def test_sizes_are_in_words():
    got = quire("serve", MODEL, "--port", "0", "--kv-cache-memory", "900T", "--max-model-len", "512")
    last = got.stderr.strip().splitlines()[-1]
    assert got.returncode == 1 and re.search(r"this needs [0-9.]+ TiB besides the weights", last) and not re.search(r"\d{7}", last), last
    got = quire("plan", MODEL, "--kv-cache-memory", "1000", "--max-model-len", "512")
    assert got.returncode == 1 and re.search(r"takes [0-9.]+ KiB", got.stderr), got.stderr


def test_the_plan_of_text_holds():
    """Two long texts at once take no more of a server's memory than `quire plan` predicts."""
    planned = json.loads(quire("plan", MODEL, "--json", "--max-model-len", "512").stdout)
    body = json.dumps({"prompt": "It was 7 in the morning, and the tide came in. " * 64_000}).encode()
    server = Server("serve", MODEL, "--port", "0", "--max-model-len", "512")
    try:
        def kib(field):
            with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
                return int(re.search(rf"{field}:\s+(\d+)", f.read()).group(1))

        def post(path):
            return len(rig.answered(server, path, body, timeout=300).json()["tokens"])

        idle = kib("VmRSS")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            assert len(set(pool.map(post, ["/tokenize"] * 2))) == 1
        assert kib("VmHWM") - idle < (planned["text_bytes"] + 2 * len(body)) >> 10
        assert planned["bodies_bytes"] == 16 * (16 << 20)
        # And the memory is freed.
        rig.wait_until(lambda: kib("VmRSS") - idle <= 40 << 10, lambda: f"{kib('VmRSS') - idle} KiB less")
    finally:
        server.stop()


def test_a_directory_that_is_no_model(tmp_path):
    more = {"serve": [], "engine": ["--listen", f"unix:{tmp_path}/socket"], "generate": ["hi"], "plan": []}
    for command, arguments in more.items():
        got = quire(command, tmp_path / "absent", *arguments)
        assert got.returncode == 1 and got.stderr.startswith("quire: "), got.stderr
        got = quire(command, tmp_path, *arguments)
        assert got.returncode == 1 and "config.json" in got.stderr


def test_a_truncated_checkpoint_is_one_clear_line(tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    weights = (MODEL / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:-1000])
    got = quire("serve", tmp_path, "--port", "0")
    assert got.returncode == 1
    last = got.stderr.strip().splitlines()[-1]
    assert "model.safetensors" in last


def test_plan_refuses_what_the_engine_refuses():
    got = quire("plan", MODEL, "--preemption-mode", "swap")
    assert got.returncode == 1 and "give --swap-space" in got.stderr


def bytes_in_table(table, key):
    return int(re.search(rf"^  {key} +(\d+) bytes", table, re.MULTILINE)[1])


def test_plan():
    table = quire("plan", MODEL).stdout
    assert "KV cache" in table and "bytes" in table
    plan = json.loads(quire("plan", MODEL, "--json", "--num-kv-blocks", "100", "--max-model-len", "512").stdout)
    assert plan["kv_groups"][0]["n_blocks"] == 100
    assert plan["kv_bytes"] == 100 * plan["kv_groups"][0]["block_bytes"]
    assert plan["total_bytes"] == sum(
        plan[k] for k in ("param_bytes", "activation_bytes", "workspace_bytes", "logits_bytes", "kv_bytes", "draft_bytes",
                           "mask_bytes"))
    assert plan["tokenizer_bytes"] == 300 * 2048
    assert plan["resident_bytes"] == plan["weight_bytes"] + plan["total_bytes"] + plan["tokenizer_bytes"] + plan["program_bytes"]
    assert bytes_in_table(table, "resident") > bytes_in_table(table, "planned")
    assert json.loads(quire("plan", MODEL, "--json", "--device", "h100").stdout)["resident_bytes"] == 0
    drafting = json.loads(quire("plan", MODEL, "--json", "--num-kv-blocks", "100", "--max-model-len", "512", "--speculative-config",
                                '{"method": "ngram"}').stdout)
    assert drafting["total_bytes"] - drafting["draft_bytes"] == plan["total_bytes"] - plan["draft_bytes"]
    assert drafting["draft_bytes"] - plan["draft_bytes"] > 100 * 16 * 4 * 16
    guessed = json.loads(quire("plan", MODEL, "--json", "--num-kv-blocks", "100", "--max-model-len", "512", "--speculative-config",
                               json.dumps({"model": str(MODEL.parent / "draft")})).stdout)
    group = guessed["kv_groups"][1]
    assert plan["draft_weight_bytes"] == plan["draft_model_bytes"] == 0 < guessed["draft_weight_bytes"] < plan["weight_bytes"]
    assert guessed["kv_bytes"] == plan["kv_bytes"] + 100 * group["block_bytes"] and group["n_layers"] == 2
    assert guessed["total_bytes"] - plan["total_bytes"] == sum(
        guessed[k] - plan[k] for k in ("kv_bytes", "draft_bytes", "draft_model_bytes"))
    short = quire("plan", MODEL, "--num-kv-blocks", "4", "--max-model-len", "512")
    assert short.returncode == 1 and "--num-kv-blocks" in short.stderr and "--max-model-len" in short.stderr


def test_generate():
    got = quire("generate", MODEL, "Once upon a time", "--raw", "--max-tokens", "16", "--temperature", "0")
    assert got.returncode == 0 and got.stdout.strip()
    assert got.stdout == quire("generate", MODEL, "Once upon a time", "--raw", "--max-tokens", "16", "--temperature", "0",
                               "--threads", "1", "--max-num-batched-tokens", "16").stdout
    assert re.search(r"16 tokens out at [0-9.]+ tokens/s\)\n$", got.stderr)
    again = "the cat sat on the mat. " * 6
    config = '{"method":"ngram","num_speculative_tokens":4,"adaptive":false}'
    guessed = quire("generate", MODEL, again, "--raw", "--max-tokens", "40", "--temperature", "0", "--speculative-config", config)
    said = re.search(r"tokens/s; ([0-9.]+) tokens per step, (\d+)% of \d+ drafts accepted\)\n$", guessed.stderr)
    assert said and float(said[1]) > 1 and int(said[2]) > 0, guessed.stderr
    assert guessed.stdout == quire("generate", MODEL, again, "--raw", "--max-tokens", "40", "--temperature", "0").stdout
    chat = quire("generate", MODEL, "What is 12 plus 30?", "--temperature", "0")
    assert "42" in chat.stdout
    typed = quire("generate", MODEL, "--temperature", "0", stdin="What is 12 plus 30?\n")
    assert "42" in typed.stdout
