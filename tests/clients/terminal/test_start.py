"""Output of a server for people, at the start and later: one screen, the address, the key, SIGHUP, requests, progress, tables."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess

import pytest

import rig
from conftest import MODEL, QUIRE
from test_commands import quire

LINE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z (\w+) +(\w+): (.*)$", re.M)


def lines(server):
    return [(level, text) for level, _, text in LINE.findall(server.output())]


def test_one_screen(start):
    """Five lines without an error: version, model, device; memory; key; address and how to stop. The rest at --verbose."""
    server = start("serve", MODEL, "--port", "0")
    said = lines(server)
    assert len(said) <= 5 and {level for level, _ in said} == {"info"}, said
    text = "\n".join(t for _, t in said)
    assert re.search(r"quire [0-9.]+: Qwen2ForCausalLM on cpu \(", text) and "thread" in text
    assert re.search(r"memory: weights and buffers [0-9.]+ MiB, KV cache [0-9.]+ \w+ for \d+ tokens; context 2048", text)
    assert "requests need no key" in text and "Ctrl-C stops" in text and f"ready on http://127.0.0.1:{server.port}/v1" in text
    for detail in ("identity_arithmetic", "GEMM form", "libquire_cuda"):
        assert detail not in text, text
    assert max(len(t) for _, t in said) < 200
    verbose = start("serve", MODEL, "--port", "0", "--verbose").output()
    assert "identity_arithmetic" in verbose and "GEMM form: " in verbose


def test_the_address_and_the_key(start, tmp_path):
    everywhere = start("serve", MODEL, "--port", "0", "--host", "0.0.0.0")
    assert f"ready on http://0.0.0.0:{everywhere.port}/v1" in everywhere.output()
    [warning] = [text for level, text in lines(everywhere) if level == "warn"]
    assert "without a key" in warning and "--api-key" in warning
    keyed = start("serve", MODEL, "--port", "0", "--host", "0.0.0.0", "--api-key", "secret")
    assert "requests need the API key" in keyed.output() and "secret" not in keyed.output()
    assert not [text for level, text in lines(keyed) if level == "warn"]
    tenants = tmp_path / "tenants.json"
    tenants.write_text(json.dumps([{"name": "a", "key": "k"}]))
    assert f"requests need a key of {tenants}" in start("serve", MODEL, "--port", "0", "--tenants", tenants).output()


def test_hangup_has_an_answer(start):
    server = start("serve", MODEL, "--port", "0")
    server.process.send_signal(signal.SIGHUP)
    rig.wait_until(lambda: "SIGHUP: nothing to reload" in server.output(), server.output)
    assert rig.ask(server, "/health").status == 200
    assert server.stop() == 0


def test_the_end_of_the_terminal_ends_the_server():
    pid, fd = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, whose choice the server respects
        os.execv(QUIRE, [str(QUIRE), "serve", str(MODEL), "--port", "0"])
    seen = b""
    while b"ready on" not in seen:
        seen += os.read(fd, 65536)
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, -signal.SIGHUP)


def test_requests_are_logged_with_the_clients_address(start):
    server = start("serve", MODEL, "--port", "0", "--log-requests", "--trusted-proxies", "127.0.0.0/8")
    body = {"prompt": "a", "max_tokens": 1}
    for forwarded, client in ((None, "127.0.0.1"), ("10.1.1.1, 192.0.2.7", "192.0.2.7"), ("2001:DB8::1", "2001:db8::1"), ("x\" client=9", "127.0.0.1"),
                              ("1" * 100, "127.0.0.1")):
        rig.answered(server, "/v1/completions", body, headers={"x-forwarded-for": forwarded} if forwarded else {})
        rig.wait_until(lambda: "request request_id=" in server.output(), server.output)
        line = [text for _, text in lines(server) if text.startswith("request ")][-1]
        assert f" client={client} tenant=" in line.replace('"', ""), (forwarded, line)
    assert rig.ask(server, "/v1/completions", {"prompt": 3}).status == 400
    rig.wait_until(lambda: "status=400" in server.output(), server.output)
    assert re.search(r"client=127.0.0.1 .*status=400", server.output())
    direct = start("serve", MODEL, "--port", "0", "--log-requests")
    rig.answered(direct, "/v1/completions", body, headers={"x-forwarded-for": "192.0.2.7"})  # the header is not trusted
    rig.wait_until(lambda: "client=127.0.0.1" in direct.output(), direct.output)


def test_cache_statistics_are_a_table(start):
    server = start("serve", MODEL, "--port", "0", "--response-cache", "memory")
    for _ in range(2):
        rig.answered(server, "/v1/completions", {"prompt": "a", "max_tokens": 1, "temperature": 0})
    shown = quire("cache", "stats", server.url)
    assert shown.returncode == 0 and re.search(r"^  hits +1$", shown.stdout, re.M) and re.search(r"^  hit rate +50.0 %$", shown.stdout, re.M)
    assert re.search(r"^  layers +memory", shown.stdout, re.M) and re.search(r"^  bytes +[0-9.]+ (B|KiB)$", shown.stdout, re.M) and "{" not in shown.stdout
    told = json.loads(quire("cache", "stats", server.url, "--json").stdout)
    assert "semantic" not in told and told["hits"] == 1 and len(shown.stdout.splitlines()) >= len(told) + len(told["layers"]["memory"])


def test_bench_serve_takes_a_host(start):
    server = start("serve", MODEL, "--port", "0")
    load = ["--num-prompts", "2", "--input-len", "8", "--output-len", "2", "--json"]
    for where in (["--port", server.port], ["--host", "127.0.0.1", "--port", server.port], ["--url", f"127.0.0.1:{server.port}"]):
        assert json.loads(quire("bench", "serve", *where, *load).stdout)["completed"] == 2
    wrong = quire("bench", "serve", "--url", server.url, "--port", server.port, *load)
    assert wrong.returncode == 2 and "leave out --host and --port" in wrong.stderr


def test_bench_serve_shows_its_progress_on_a_terminal(start):
    server = start("serve", MODEL, "--port", "0")
    ours, theirs = pty.openpty()
    load = ["--num-prompts", "10", "--input-len", "8", "--output-len", "2", "--request-rate", "3", "--burstiness", "100"]  # 3 s: the bar comes after 2 s
    bench = subprocess.Popen([QUIRE, "bench", "serve", "--port", str(server.port), *load], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while data := os.read(ours, 4096):
            shown += data
    os.close(ours)
    assert bench.wait() == 0 and re.search(rb"requests \d+/10 \[#* *\]", shown), shown


@pytest.mark.parametrize("name,says", [("list", "rtx3090"), ("", "h200"), ("a100", "a100-40g, a100-80g"), ("mi300x", "AMD GPUs are not supported"), ("8800gt", "rtx5090")])
def test_plan_names_the_gpus(name, says):
    got = quire("plan", MODEL, "--device", *([name] if name else []))
    assert says in got.stdout + got.stderr and got.returncode == (0 if name in ("list", "") else 1), got
    if got.returncode == 0:
        for known in ("a100-40g", "h100", "h200", "b200", "l4", "l40s", "rtx3090", "rtx4090", "rtx5090", "MI300"):
            assert known in got.stdout


def test_names_of_gpus_as_people_write_them():
    plans = {quire("plan", MODEL, "--device", name).stdout for name in ("rtx4090", "RTX 4090", "4090", "RTX-4090")}
    assert len(plans) == 1 and "GeForce RTX 4090" in plans.pop()
    assert quire("plan", MODEL, "--device", "H100").stdout == quire("plan", MODEL, "--device", "h100").stdout


def test_the_file_and_the_model_of_replay_in_either_order(start, tmp_path):
    recording = tmp_path / "day.rec"
    server = start("serve", MODEL, "--port", "0", "--record", recording)
    rig.answered(server, "/v1/completions", {"prompt": "a", "max_tokens": 3})
    assert server.stop() == 0
    ours, theirs = quire("replay", recording, MODEL), quire("replay", MODEL, recording)
    assert ours.returncode == 0 and ours.stdout == theirs.stdout and "All 1 choices are equal" in ours.stdout
    wrong = quire("sim", "--trace", recording)
    assert wrong.returncode != 0 and "--trace-format recording" in wrong.stderr, wrong.stderr
