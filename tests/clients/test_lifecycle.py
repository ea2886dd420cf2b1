"""Starting, stopping, cancelling, refusing: what an operator sees."""

import json
import os
import signal
import socket
import threading
import time

import openai
import pytest

from conftest import MODEL

LONG = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "temperature": 1.0, "seed": 1}


def raw(body, path="/v1/completions"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def nothing_runs(server):
    return server.metric("vllm:num_requests_running") == 0 and server.metric("vllm:num_requests_waiting") == 0


@pytest.mark.parametrize("how", ["before the reply", "while streaming", "half-closed", "body unfinished"])
def test_a_client_that_leaves_cancels_its_request(server, how):
    assert wait_until(lambda: nothing_runs(server))
    s = server.connect()
    if how == "body unfinished":
        s.sendall(raw(LONG)[:-10])
        time.sleep(0.2)
    else:
        s.sendall(raw({**LONG, "stream": how == "while streaming", "n": 2}))
        assert wait_until(lambda: server.metric("vllm:num_requests_running") > 0)
        if how == "while streaming":
            assert s.recv(4096)
    made = server.metric("vllm:generation_tokens_total")
    if how == "half-closed":
        s.shutdown(socket.SHUT_WR)
    else:
        s.close()
    assert wait_until(lambda: nothing_runs(server)), "the request went on without its client"
    assert server.metric("vllm:kv_cache_usage_perc") == 0
    assert server.metric("vllm:generation_tokens_total") - made < 1200
    s.close()


def test_a_slow_reader_holds_only_its_own_connection(server):
    s = server.connect()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.sendall(raw({**LONG, "stream": True, "logprobs": 20}))
    t = time.monotonic()
    reply = server.client().completions.create(model="demo", prompt="x", max_tokens=4)
    assert reply.choices and time.monotonic() - t < 20
    s.close()
    assert wait_until(lambda: nothing_runs(server))


def test_sigterm_drains(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "1024")
    got = {}

    def ask():
        got["reply"] = server.client().completions.create(
            model="demo", prompt="Once", max_tokens=900, n=4, extra_body={"ignore_eos": True})

    thread = threading.Thread(target=ask)
    thread.start()
    assert wait_until(lambda: server.metric("vllm:num_requests_running") > 0)
    server.process.send_signal(signal.SIGTERM)
    thread.join(60)
    assert got["reply"].usage.completion_tokens == 4 * 900
    assert server.process.wait(20) == 0


def test_a_second_sigterm_ends(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "2048")
    s = server.connect()
    s.sendall(raw({**LONG, "max_tokens": 2000, "stream": True}))
    assert s.recv(4096)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(10)
    s.close()


def test_a_full_queue_is_429_with_retry_after(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-num-seqs", "1",
                   "--max-num-queued-reqs", "8", "--max-model-len", "1024")
    holder = server.connect()
    holder.sendall(raw({**LONG, "stream": True, "n": 8}))  # one choice runs, seven wait: seconds of work
    assert wait_until(lambda: server.metric("vllm:num_requests_waiting") >= 5)
    with pytest.raises(openai.RateLimitError) as caught:
        server.client().completions.create(model="demo", prompt="x", max_tokens=1, n=4)
    assert int(caught.value.response.headers["retry-after"]) >= 1
    holder.close()
    assert wait_until(lambda: nothing_runs(server))
    assert server.client().completions.create(model="demo", prompt="x", max_tokens=1).choices


def test_front_end_and_engine_apart(start, tmp_path):
    address = f"unix:{tmp_path}/engine.sock"
    engine = start("engine", MODEL, "--listen", address, "--max-model-len", "1024", wait_for="ready")
    assert os.stat(tmp_path / "engine.sock").st_mode & 0o777 == 0o600
    server = start("serve", MODEL, "--engine", address, "--port", "0", "--served-model-name", "demo")
    ask = dict(model="demo", prompt="Once upon", max_tokens=12, temperature=0.7, seed=5, logprobs=2)
    remote = server.client().completions.create(**ask).choices[0]
    local = start("serve", MODEL, "--port", "0", "--served-model-name", "demo").client().completions.create(**ask).choices[0]
    assert (remote.text, remote.logprobs) == (local.text, local.logprobs)
    engine.process.kill()
    with pytest.raises(openai.InternalServerError) as caught:
        for _ in range(50):
            server.client().completions.create(model="demo", prompt="x", max_tokens=1)
            time.sleep(0.05)
    assert caught.value.status_code == 503


def test_two_front_ends_share_one_engine_over_tcp(start, tmp_path):
    key = tmp_path / "key"
    key.write_text("a shared secret of some length\n")
    key.chmod(0o600)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    address = f"tcp:127.0.0.1:{port}"
    start("engine", MODEL, "--listen", address, "--engine-key-file", key, wait_for="ready")
    fronts = [start("serve", MODEL, "--engine", address, "--engine-key-file", key, "--port", "0",
                    "--served-model-name", "demo") for _ in range(2)]
    texts = {f.client().completions.create(model="demo", prompt="Once", max_tokens=8, temperature=0).choices[0].text
             for f in fronts}
    assert len(texts) == 1


def test_an_idle_server_uses_no_cpu(server):
    assert wait_until(lambda: nothing_runs(server))
    time.sleep(0.3)

    def ticks():
        fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(3)
    assert ticks() - before <= 2  # of 300 ticks of one core
