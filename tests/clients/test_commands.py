"""The command line as a person would try it."""

import json
import subprocess

import pytest

from conftest import MODEL, QUIRE


def quire(*arguments, stdin=None, timeout=120):
    return subprocess.run([str(QUIRE), *map(str, arguments)], capture_output=True, text=True, input=stdin, timeout=timeout)


@pytest.mark.parametrize("command", ["serve", "engine", "generate", "plan", "cache", "sim", "replay"])
def test_help_teaches(command):
    shown = quire(command, "--help")
    assert shown.returncode == 0 and f"usage: quire {command}" in shown.stdout and "example" in shown.stdout
    assert quire("help", command).stdout == shown.stdout


def test_no_command_shows_help():
    assert quire().returncode == 2
    assert "serve" in quire("--help").stdout
    assert quire("version").stdout.startswith("quire ")
    wrong = quire("srve")
    assert wrong.returncode == 2 and "srve" in wrong.stderr


@pytest.mark.parametrize("arguments,says", [
    (["serve"], "which model"),
    (["serve", "x", "--max-num-seq", "3"], "did you mean --max-num-seqs"),
    (["serve", "x", "--port", "99999"], "--port"),
    (["serve", "x", "--port"], "needs a value"),
    (["plan", "x", "--kv-cache-memory", "many"], "not a size"),
    (["serve", "x", "y"], "one argument too many"),
    (["serve", "x", "--engine", "unix:/absent", "--max-num-seqs", "3"], "--max-num-seqs is for an engine in this process"),
    (["serve", "x", "--engine", "unix:/absent", "--shadow-policy", "sjf"], "--shadow-policy is for an engine"),
    (["serve", "x", "--warm", "prompts.jsonl", "--no-enable-prefix-caching"], "which is off"),
])
def test_a_wrong_command_line_is_explained(arguments, says):
    got = quire(*arguments)
    assert got.returncode == 2 and says in got.stderr and got.stderr.count("\n") == 1


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


def test_plan():
    table = quire("plan", MODEL).stdout
    assert "KV cache" in table and "bytes" in table
    plan = json.loads(quire("plan", MODEL, "--json", "--num-kv-blocks", "100", "--max-model-len", "512").stdout)
    assert plan["kv_groups"][0]["n_blocks"] == 100
    assert plan["kv_bytes"] == 100 * plan["kv_groups"][0]["block_bytes"]
    assert plan["total_bytes"] == sum(
        plan[k] for k in ("param_bytes", "activation_bytes", "workspace_bytes", "logits_bytes", "kv_bytes"))
    short = quire("plan", MODEL, "--num-kv-blocks", "4", "--max-model-len", "512")
    assert short.returncode == 1 and "--num-kv-blocks" in short.stderr and "--max-model-len" in short.stderr


def test_generate():
    got = quire("generate", MODEL, "Once upon a time", "--raw", "--max-tokens", "16", "--temperature", "0")
    assert got.returncode == 0 and got.stdout.strip()
    assert got.stdout == quire("generate", MODEL, "Once upon a time", "--raw", "--max-tokens", "16", "--temperature", "0",
                               "--threads", "1", "--max-num-batched-tokens", "16").stdout
    chat = quire("generate", MODEL, "What is 12 plus 30?", "--temperature", "0")
    assert "42" in chat.stdout
    typed = quire("generate", MODEL, "--temperature", "0", stdin="What is 12 plus 30?\n")
    assert "42" in typed.stdout
