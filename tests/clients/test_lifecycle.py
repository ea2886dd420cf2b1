"""Starting, stopping, cancelling, rejecting: the operator's view."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import openai
import pytest

import rig
from conftest import MODEL, QUIRE, ROOT, SLOWLY, Server
from rig import free_port, wait_until

LONG = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "temperature": 1.0, "seed": 1}
LONGER = {**LONG, "max_tokens": 2000}


def raw(body, path="/v1/completions"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def nothing_runs(server):
    return server.metric("vllm:num_requests_running") == 0 and server.metric("vllm:num_requests_waiting") == 0


MADE, COMPUTED, WAITING = "vllm:generation_tokens_total", "quire:engine_prompt_tokens_total", "vllm:num_requests_waiting"
WAYS = {  # the request, how much of it is sent, the counter that must have grown before the client leaves
    "before the body ends": (LONGER, -10, None),
    "at once": (LONGER, None, None),
    "in the queue": ({**LONGER, "prompt": "queued"}, None, WAITING),
    "in prefill": ({**LONG, "prompt": "a b c d " * 230}, None, COMPUTED),
    "before the reply": (LONGER, None, MADE),
    "of several choices": ({**LONGER, "n": 3}, None, MADE),
    "while streaming": ({**LONGER, "stream": True}, None, "reply"),
    "of several streamed choices": ({**LONGER, "n": 3, "stream": True}, None, "reply"),
}


def leave(s, how):
    if how == "half-closed":
        s.shutdown(socket.SHUT_WR)
        return
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


@pytest.fixture(scope="module", params=["one process", "engine elsewhere"])
def slow(request, tmp_path_factory):
    """Few positions per step, and two sequences at once: prefill takes many steps, and there is a queue."""
    shape = ["--max-model-len", "2048", "--max-num-seqs", "2", "--max-num-batched-tokens", "4", "--no-enable-prefix-caching", *SLOWLY]
    servers = []
    if request.param == "engine elsewhere":
        address = f"unix:{tmp_path_factory.mktemp('engine')}/socket"
        servers.append(Server("engine", MODEL, "--listen", address, *shape, wait_for="ready"))
        shape = ["--engine", address]
    servers.append(Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", *shape))
    yield servers[-1]
    for s in reversed(servers):
        assert s.stop() == 0, s.output()


@pytest.mark.parametrize("how", ["closed", "reset", "half-closed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_leaves_cancels_its_request(slow, way, how):
    body, n_sent, until = WAYS[way]
    holder = slow.connect()
    if until == WAITING:  # two of 16 run, for seconds
        holder.sendall(raw({**LONGER, "stream": True, "n": 16}))
        assert holder.recv(100) and wait_until(lambda: slow.metric(until) <= 14)
    made, before = slow.metric(MADE), slow.metric(until) if until in (MADE, COMPUTED, WAITING) else 0
    s = slow.connect()
    s.sendall(raw(body)[:n_sent])
    if until == "reply":
        assert s.recv(4096)
    elif until:
        wait_until(lambda: slow.metric(until) > before)
    leave(s, how)
    if until == WAITING:
        wait_until(lambda: slow.metric(until) <= before, "its end of waiting")
    holder.close()
    wait_until(lambda: nothing_runs(slow), "the end of a request without a client")
    assert slow.metric("vllm:kv_cache_usage_perc") == 0 and slow.metric("quire:kv_blocks_leaked") == 0
    if how != "half-closed":
        wait_until(lambda: slow.metric("quire:http_connections") == 1)
    if until != WAITING:  # a request that is not cancelled makes all of them
        assert slow.metric(MADE) - made < body["max_tokens"]
    s.close()


def test_a_slow_reader_holds_only_its_own_connection(server):
    s = server.connect()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.sendall(raw({**LONG, "stream": True, "logprobs": 20}))
    assert server.client(timeout=300).completions.create(model="demo", prompt="x", max_tokens=4).choices
    s.close()
    wait_until(lambda: nothing_runs(server))


def test_sigterm_drains(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "1024", "--max-num-seqs", "2", "--shutdown-timeout", "300")
    got = {}

    def ask():
        got["reply"] = server.client().completions.create(
            model="demo", prompt="Once", max_tokens=900, n=10, extra_body={"ignore_eos": True})

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: server.metric("vllm:num_requests_running") > 0)
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    assert got["reply"].usage.completion_tokens == 10 * 900
    assert server.process.wait(300) == 0


ENDLESS = {**LONG, "max_tokens": 2000, "n": 64, "stream": True}  # two at a time: 64,000 steps


def drained(start, *options):
    """A server that received SIGTERM, and a stream that it finishes first."""
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "2048", "--max-num-seqs", "2", *options)
    s = server.connect(300)
    s.sendall(raw(ENDLESS))
    assert s.recv(4096)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "finishing running requests" in server.output())
    return server, s


def test_late_requests_are_told_of_a_drain(start):
    server, s = drained(start, "--shutdown-timeout", "600")
    with pytest.raises(openai.InternalServerError) as caught:
        server.client().completions.create(model="demo", prompt="x", max_tokens=1)
    assert caught.value.status_code == 503 and caught.value.code == "server_draining"
    s.close()  # the last one
    assert server.process.wait(300) == 0


def test_sigterm_has_a_deadline(start):
    server, s = drained(start, "--shutdown-timeout", "1")
    data = b""
    while piece := s.recv(65536):
        data += piece
    assert b'"code":"server_draining"' in data and data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert server.process.wait(300) == 0 and "cancelled" in server.output()
    s.close()


def test_an_engine_s_drain_has_a_deadline(start, tmp_path):
    address = f"unix:{tmp_path}/engine.sock"
    engine = start("engine", MODEL, "--listen", address, "--max-model-len", "2048", "--shutdown-timeout", "0", wait_for="ready")
    server = start("serve", MODEL, "--engine", address, "--port", "0", "--served-model-name", "demo")
    s = server.connect(300)
    s.sendall(raw({**LONG, "max_tokens": 2000, "n": 64, "stream": True}))
    assert s.recv(4096)
    engine.process.send_signal(signal.SIGTERM)
    data = b""
    while b"[DONE]" not in data:
        data += s.recv(65536)
    assert b'"code":"engine_unavailable"' in data and engine.process.wait(300) == 0
    assert rig.ask(server, "/health/live").status == 200
    assert rig.ask(server, "/health/ready").json() == {"status": "engine_unavailable"}
    start("engine", MODEL, "--listen", address, wait_for="ready")
    wait_until(lambda: server.metric("quire:engine_up") == 1)
    assert rig.answered(server, "/health/ready").json() == {"status": "ok"}
    s.close()


def test_a_second_sigterm_ends(start):
    server, s = drained(start, "--shutdown-timeout", "600", *SLOWLY)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(300)
    s.close()


def test_a_full_queue_is_429_with_retry_after(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-num-seqs", "1",
                   "--max-num-queued-reqs", "8", "--max-model-len", "2048", *SLOWLY)
    holder = server.connect()
    holder.sendall(raw({**LONGER, "stream": True, "n": 8}))  # one choice runs, seven wait: many seconds of work
    wait_until(lambda: server.metric("vllm:num_requests_waiting") >= 6)
    with pytest.raises(openai.RateLimitError) as caught:
        server.client().completions.create(model="demo", prompt="x", max_tokens=1, n=4)
    assert int(caught.value.response.headers["retry-after"]) >= 1
    holder.close()
    wait_until(lambda: nothing_runs(server))
    assert server.client().completions.create(model="demo", prompt="x", max_tokens=1).choices


def test_a_queue_full_of_tokens_is_429_with_retry_after(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-num-seqs", "1",
                   "--max-num-queued-tokens", "100", "--max-model-len", "2048", *SLOWLY)
    holders = [server.connect() for _ in range(2)]
    for holder in holders:  # one runs, one waits
        holder.sendall(raw({**LONGER, "prompt": "a b c d " * 5, "stream": True, "n": 2, "max_tokens": 1900}))
    wait_until(lambda: server.metric("vllm:num_requests_waiting") >= 2)
    with pytest.raises(openai.RateLimitError, match="max-num-queued-tokens") as caught:
        server.client().completions.create(model="demo", prompt="a b c d " * 100, max_tokens=1)
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
    for holder in holders:
        holder.close()
    wait_until(lambda: nothing_runs(server))
    assert server.client().completions.create(model="demo", prompt="a b c d " * 100, max_tokens=1).choices


def test_limits_of_connections_are_options(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-body-size", "1K", "--header-timeout", "1",
                   "--body-timeout", "1", "--keep-alive-timeout", "1", "--max-connections", "4")

    def says(data):
        with server.connect(300) as s:
            s.sendall(data)
            got = b""
            while piece := s.recv(65536):
                got += piece
            return got

    wait_until(lambda: says(raw({"prompt": "x" * 2000})).startswith(b"HTTP/1.1 413"))  # at once, or the test was late by a second
    assert says(b"GET /hea").startswith(b"HTTP/1.1 408")
    assert says(raw(LONG)[:-5]).startswith(b"HTTP/1.1 408")
    assert says(b"") == b""
    crowd = [server.connect() for _ in range(40)]
    assert server.metric("quire:http_connections") <= 4
    for s in crowd:
        s.close()


@pytest.mark.parametrize("what", ["cancel", pytest.param("soak", marks=pytest.mark.wide), "garbage", "idle"])
def test_a_little_storm(what):
    got = subprocess.run([sys.executable, str(ROOT / "tests" / "stress" / "stress.py"), what, "--requests", "1000", "--connections", "300",
                          "--build", str(QUIRE.parent)], capture_output=True, text=True, timeout=900)
    assert got.returncode == 0, got.stdout + got.stderr


def test_front_end_and_engine_apart(start, tmp_path):
    address = f"unix:{tmp_path}/engine.sock"
    engine = start("engine", MODEL, "--listen", address, "--max-model-len", "1024", wait_for="ready")
    assert os.stat(tmp_path / "engine.sock").st_mode & 0o777 == 0o600
    server = start("serve", MODEL, "--engine", address, "--port", "0", "--served-model-name", "demo")
    ask = dict(model="demo", prompt="Once upon", max_tokens=12, temperature=0.7, seed=5, logprobs=2)
    remote = server.client().completions.create(**ask).choices[0]
    local = start("serve", MODEL, "--port", "0", "--served-model-name", "demo").client().completions.create(**ask).choices[0]
    assert (remote.text, remote.logprobs) == (local.text, local.logprobs)
    with server.connect(300) as s:
        s.sendall(raw({**LONG, "max_tokens": 1000, "n": 16, "stream": True}))
        assert s.recv(4096)
        engine.process.send_signal(signal.SIGSTOP)
        since, data = time.monotonic(), b""
        while b"[DONE]" not in data:
            data += s.recv(65536)  # pings until a failure is noticed
            assert time.monotonic() - since < 250  # 5 s, where no other program computes
    assert b'"code":"engine_unavailable"' in data and b"has not responded for 3.5 s" in data
    with pytest.raises(openai.InternalServerError) as caught:
        server.client().completions.create(model="demo", prompt="x", max_tokens=1)
    assert caught.value.status_code == 503 and caught.value.response.headers["Retry-After"]
    engine.process.send_signal(signal.SIGCONT)
    wait_until(lambda: server.metric("quire:engine_up") == 1, server.output)
    assert server.client().completions.create(**ask).choices[0].text == remote.text
    assert server.output().count("the engine is unavailable") == 1
    engine.process.kill()
    with pytest.raises(openai.InternalServerError) as caught:
        for _ in range(50):
            server.client().completions.create(model="demo", prompt="x", max_tokens=1)
            time.sleep(0.05)
    assert caught.value.status_code == 503


def test_a_front_end_waits_for_its_engine(start, tmp_path):
    address = f"unix:{tmp_path}/engine.sock"
    server = start("serve", MODEL, "--engine", address, "--port", "0", "--served-model-name", "demo", wait_for=r"waiting for the engine at .* port (\d+) ")
    assert address in server.output()
    def health(path="/health"):
        reply = rig.ask(server, path)
        return reply.status, reply.json()["status"]

    assert health() == (503, "starting") and health("/health/live") == (200, "ok")
    start("engine", MODEL, "--listen", address, "--max-model-len", "256", wait_for="ready")
    wait_until(lambda: "demo ready on" in server.output(), server.output)
    assert health() == (200, "ok")
    assert server.client().completions.create(model="demo", prompt="Once", max_tokens=4).usage.completion_tokens == 4

    waits = start("serve", MODEL, "--engine", f"unix:{tmp_path}/nobody", "--port", "0", wait_for="waiting for the engine")
    assert waits.stop() == 0, waits.output()

    # Proxies accept a connection before a server is ready behind them.
    with socket.socket(socket.AF_UNIX) as proxy:
        proxy.bind(f"{tmp_path}/proxy")
        proxy.listen()
        waits = start("serve", MODEL, "--engine", f"unix:{tmp_path}/proxy", "--port", "0", wait_for="")
        for _ in range(2):
            proxy.accept()[0].close()
        assert wait_until(lambda: "waiting for the engine" in waits.output()) and waits.process.poll() is None
        proxy.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        assert waits.process.wait(300) == 1

    # The operating system accepts for a stopped engine: one connection waits there for any time.
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{tmp_path}/mute")
        mute.listen()
        mute.settimeout(300)
        waits = start("serve", MODEL, "--engine", f"unix:{tmp_path}/mute", "--port", "0", wait_for="waiting for the engine")
        accepted = mute.accept()[0]
        mute.settimeout(3)
        with pytest.raises(TimeoutError):
            mute.accept()
        mute.settimeout(300)
        accepted.close()
        mute.accept()[0].close()
        assert waits.stop() == 0, waits.output()


def test_what_waiting_does_not_mend_ends_at_once(tmp_path):
    short, good = tmp_path / "short", tmp_path / "good"
    short.write_text("x\n")
    good.write_text("a shared secret of some length\n")
    for key in (short, good):
        key.chmod(0o600)
    for arguments, says in ((["nowhere"], "must be unix:PATH or tcp:HOST:PORT"), (["tcp:127.0.0.1"], "tcp:HOST:PORT"),
                            (["tcp:127.0.0.1:9"], "--engine-key-file"), (["tcp:127.0.0.1:9", "--engine-key-file", short], "key file")):
        got = subprocess.run([QUIRE, "serve", MODEL, "--port", "0", "--engine", *map(str, arguments)], capture_output=True, text=True, timeout=300)
        assert got.returncode in (1, 2) and says in got.stderr, got


def test_two_front_ends_share_one_engine_over_tcp(start, tmp_path):
    key = tmp_path / "key"
    key.write_text("a shared secret of some length\n")
    key.chmod(0o600)
    address = f"tcp:127.0.0.1:{free_port()}"
    start("engine", MODEL, "--listen", address, "--engine-key-file", key, wait_for="ready")
    fronts = [start("serve", MODEL, "--engine", address, "--engine-key-file", key, "--port", "0",
                    "--served-model-name", "demo") for _ in range(2)]
    texts = {f.client().completions.create(model="demo", prompt="Once", max_tokens=8, temperature=0).choices[0].text
             for f in fronts}
    assert len(texts) == 1


def test_an_idle_server_uses_no_cpu(server):
    wait_until(lambda: nothing_runs(server))

    def ticks():
        fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def is_idle():
        """One that polls is never. The end of the work before may come late."""
        before = ticks()
        time.sleep(3)
        return ticks() - before <= 2  # of 300 ticks of one core

    wait_until(is_idle, "3 s without work")
