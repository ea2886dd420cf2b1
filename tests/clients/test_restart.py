"""A lost engine, and its restart behind the same port."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import rig
from conftest import MODEL, QUIRE
from rig import free_port, wait_until

LONG = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}
SHORT = {**LONG, "max_tokens": 8}


@pytest.fixture
def begin(start):
    return lambda *more, restart="on-failure", model=MODEL: start("serve", model, "--port", "0", "--served-model-name", "demo", "--device", "cpu", "--threads", "1", "--restart", restart, *more,
                                                     wait_for=r"ready on http://[0-9.]+:(\d+)")


def ask(server, body, path="/v1/completions"):
    """Status, headers and text."""
    reply = rig.ask(server, path, body)
    return reply.status, reply.headers, reply.text


def children(pid, command):
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if line.split(maxsplit=1)[1].startswith("quire " + command)]


def processes(server):
    """The engine's process, which is rank 0, and those of the others."""
    engine, = children(server.process.pid, "engine")
    return [engine, *children(engine, "rank")]


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def model(tmp_path):
    """A copy, for away()."""
    shutil.copytree(MODEL, tmp_path / "model")
    return tmp_path / "model"


@contextlib.contextmanager
def away(server, model):
    """The engine's processes are killed. They cannot start again before the end, because the model has another name."""
    model.rename(f"{model}.away")
    for pid in processes(server):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "restarts in" in server.output())
    yield
    pathlib.Path(f"{model}.away").rename(model)


def in_thread(got, key, *arguments):
    thread = threading.Thread(target=lambda: got.__setitem__(key, ask(*arguments)))
    thread.start()
    return thread


@pytest.mark.parametrize("arguments,lost,how,says", [
    (["-tp", "2"], 1, signal.SIGKILL, r"rank 1 \(process \d+\).* signal 9"),
    pytest.param(["-tp", "2"], 0, signal.SIGKILL, r"the engine's process \d+ was ended by signal 9 \(Killed\)", marks=pytest.mark.wide),
    ([], 0, signal.SIGSTOP, "the engine has not responded for 3.5 s"),
    pytest.param(["-pp", "3"], 1, signal.SIGSTOP, r"rank 1 \(process \d+\)", marks=pytest.mark.wide),
])
def test_who_waits_is_told_why_and_the_engine_comes_back(begin, arguments, lost, how, says):
    server = begin(*arguments)
    before, got = processes(server), {}
    expected = json.loads(ask(server, SHORT)[2])["choices"]
    threads = [in_thread(got, stream, server, {**LONG, "n": 16, "stream": stream}) for stream in (False, True)]
    wait_until(lambda: server.metric("vllm:num_requests_running") == 32)
    begun = server.metric("vllm:generation_tokens_total")
    wait_until(lambda: server.metric("vllm:generation_tokens_total") > begun + 64)  # the stream has begun
    os.kill(before[lost], how)
    for thread in threads:
        thread.join()
    status, headers, text = got[False]
    assert status == 503 and int(headers["Retry-After"]) >= 1 and json.loads(text)["error"]["code"] == "engine_unavailable", got[False]
    assert got[True][0] == 200 and '"error"' in got[True][2] and '"engine_unavailable"' in got[True][2]
    assert re.search(says, json.loads(text)["error"]["message"]) and re.search(says, got[True][2]), (text, got[True][2][-600:])
    status, headers, text = ask(server, SHORT)
    assert status == 200 or (status == 503 and headers["Retry-After"] and "engine" in text)
    wait_until(lambda: "the engine is available again" in server.output())
    assert all(map(is_gone, before))
    assert ask(server, None, "/health")[::2] == (200, '{"status":"ok"}')
    assert json.loads(ask(server, SHORT)[2])["choices"] == expected  # the same bits
    assert server.metric("quire:engine_restarts_total") == 1
    after = processes(server)
    assert len(after) == len(before) and server.stop() == 0, server.output()
    assert all(map(is_gone, after))


@pytest.mark.parametrize("restart", ["no", "on-failure"])
def test_one_that_is_lost_while_the_server_drains_is_not_forgiven(begin, restart):
    """The end decides, not the process that notices it."""
    server, got = begin("-tp", "2", restart=restart), {}
    rank, = children(server.process.pid, "rank") if restart == "no" else processes(server)[1:]
    thread = in_thread(got, True, server, {**LONG, "n": 32, "stream": True})
    wait_until(lambda: server.metric("vllm:generation_tokens_total") > 0)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "finishing running requests" in server.output())
    os.kill(rank, signal.SIGKILL)
    thread.join()
    assert '"engine_unavailable"' in got[True][2] and server.process.wait(300) == 1, server.output()
    assert is_gone(rank) and "restarts in" not in server.output()


def test_one_that_is_stopped_when_the_server_ends_is_killed_and_not_forgiven(begin):
    server = begin()
    engine, = processes(server)
    os.kill(engine, signal.SIGSTOP)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(300) == 1 and time.monotonic() - began < 250, server.output()  # after 10 s
    assert is_gone(engine) and f"the engine does not exit and is killed: process {engine}" in server.output()


def test_health_says_so_meanwhile_and_who_asks_too(begin, model):
    server = begin(restart="on-failure:50", model=model)
    with away(server, model):
        assert ask(server, None, "/health")[::2] == (503, '{"status":"restarting"}')
        status, headers, text = ask(server, SHORT)
        assert status == 503 and headers["Retry-After"] and "is being started again" in text
        assert ask(server, None, "/health/live")[0] == 200
    wait_until(lambda: ask(server, None, "/health")[0] == 200)


@pytest.mark.parametrize("store", [pytest.param(False, marks=pytest.mark.wide), True])
def test_what_is_kept_is_given_meanwhile(begin, model, tmp_path, store):
    server = begin("--response-cache", f"sqlite:{tmp_path / 'answers.db'}" if store else "memory", restart="on-failure:50", model=model)
    chat = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}
    kept = [(SHORT, "/v1/completions"), (chat, "/v1/chat/completions"), ({**SHORT, "prompt": ["One", "Two"]}, "/v1/completions")]
    text = lambda reply: [c.get("text") or c["message"]["content"] for c in json.loads(reply)["choices"]]
    before = [text(ask(server, *one)[2]) for one in kept]
    with away(server, model):
        for one, want in zip(kept, before):
            for body in (one[0], {**one[0], "user": "other words"}):
                status, headers, reply = ask(server, body, one[1])
                assert (status, headers["x-quire-cache"], text(reply)) == (200, "exact", want), reply
        status, _, events = ask(server, {**SHORT, "stream": True})
        assert status == 200 and "data: [DONE]" in events
        for other in ({**SHORT, "prompt": "Never asked"}, {**SHORT, "use_cache": False}, {**SHORT, "prompt": ["One", "Three"]}):
            status, headers, reply = ask(server, other)
            assert status == 503 and headers["Retry-After"] and "is being started again" in reply, reply
    wait_until(lambda: ask(server, None, "/health")[0] == 200)
    for one, want in zip(kept, before):
        status, headers, reply = ask(server, *one)
        assert (status, headers["x-quire-cache"], text(reply)) == (200, "exact", want)
    assert ask(server, {**SHORT, "prompt": "Never asked"})[0] == 200


@pytest.mark.wide
def test_what_is_kept_is_not_another_models(begin, model, tmp_path):
    """The files change while the engine is down: its later answers are computed."""
    server = begin("--response-cache", f"sqlite:{tmp_path / 'answers.db'}", restart="on-failure:50", model=model)
    ask(server, SHORT)
    assert ask(server, SHORT)[1]["x-quire-cache"] == "exact"
    weights = bytearray((model / "model.safetensors").read_bytes())
    for at in range(len(weights) // 2, len(weights), 100):
        weights[at] ^= 1
    with away(server, model):
        (tmp_path / "model.away" / "model.safetensors").write_bytes(weights)
    wait_until(lambda: ask(server, None, "/health")[0] == 200)
    assert ask(server, SHORT)[1]["x-quire-cache"] == "miss"
    assert ask(server, SHORT)[1]["x-quire-cache"] == "exact"


def test_health_says_so_once_a_client_knows(begin, model):
    """Although the engine's process takes a while to end its ranks."""
    server = begin("-tp", "2", restart="on-failure:50", model=model)
    rank = processes(server)[1]
    with rig.stream(server, "/v1/completions", {**LONG, "stream": True}) as reply:
        assert b"data:" in reply.readline()
        model.rename(f"{model}.away")  # it does not come back before this client knows
        os.kill(rank, signal.SIGKILL)
        while b'"error"' not in reply.readline():
            pass
        # On a machine with nothing else to do the engine's process is still there: its end is not how the server knows.
        assert ask(server, None, "/health")[0] == 503


def test_it_is_given_up_after_so_many_in_a_row(begin):
    server = begin(restart="on-failure:2")
    for n in range(1, 4):
        before = processes(server)
        os.kill(before[0], signal.SIGKILL)
        if n < 3:
            wait_until(lambda: server.output().count("the engine is available again") == n)
    assert server.process.wait(300) == 1
    assert "the engine is not restarted" in server.output() and "start 2 of 2 in a row" in server.output()


def test_what_fails_at_first_is_not_tried_again():
    got = subprocess.run([str(QUIRE), "serve", str(MODEL), "--port", "0", "--device", "cpu", "-tp", "3", "--restart", "on-failure"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 1 and "must be 1, 2, 4 or 8, got 3" in got.stderr and "restarts in" not in got.stderr, got
    for word in "always", "on-failure:0", "on-failure:x":
        got = subprocess.run([str(QUIRE), "serve", str(MODEL), "--restart", word], capture_output=True, text=True, timeout=300)
        assert got.returncode == 2 and f'--restart: must be no, on-failure or on-failure:N with N from 1, got "{word}"' in got.stderr


def test_one_that_is_stopped_while_it_loads_is_noticed():
    """Rank 0, which waits for another rank."""
    port = free_port()
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    server = subprocess.Popen([str(QUIRE), "serve", str(MODEL), "--port", "0", "--device", "cpu", "-tp", "2", "--restart", "on-failure"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        engine, = children(server.pid, "engine")
        os.kill(engine, signal.SIGSTOP)
        said = server.communicate(timeout=300)[1]
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 1 and f"process {engine}: the engine has been stopped for 3.5 s while it loads" in said, said
    assert is_gone(engine)


def test_engine_and_ranks_end_with_the_server_however_it_ends(begin):
    server = begin("-tp", "2")
    its = processes(server)
    for pid in its:
        os.kill(pid, signal.SIGTERM)  # a service manager signals all processes: the server knows the meaning
    time.sleep(0.05)
    assert ask(server, SHORT)[0] == 200
    server.process.kill()
    server.process.wait()
    wait_until(lambda: all(map(is_gone, its)))


def test_its_options_are_the_engines(begin, tmp_path):
    """Recordings, listeners and logs belong to the engine's process, and are complete at the end."""
    server = begin("--record", tmp_path / "rec", f"--max-model-len=512", "--listen", f"unix:{tmp_path}/engine.sock", "--log-format", "json", "--seed", "3")
    assert ask(server, SHORT)[0] == 200 and (tmp_path / "engine.sock").exists()
    assert ask(server, LONG)[0] == 400
    assert server.stop() == 0, server.output()
    assert all(json.loads(line) for line in server.output().splitlines())
    replayed = subprocess.run([str(QUIRE), "replay", tmp_path / "rec", MODEL], capture_output=True, text=True, timeout=300)
    assert replayed.returncode == 0, replayed


def test_not_with_an_engine_elsewhere():
    got = subprocess.run([str(QUIRE), "serve", str(MODEL), "--engine", "unix:/tmp/x", "--restart", "on-failure"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 2 and "the server always waits for the engine" in got.stderr
