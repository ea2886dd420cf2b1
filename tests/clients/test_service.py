"""Tenants, limits, traces and the prefix cache, as openai-python and the command line use them."""

import http.server
import json
import os
import signal
import subprocess
import threading
import time

import openai
import pytest

import rig
from conftest import MODEL, QUIRE, SLOWLY

STORY = "Once upon a time there was a small house and a big tree and a small dog. " * 4


@pytest.fixture
def tenants(tmp_path):
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps([
        {"name": "slow", "key": "key-slow", "requests_per_minute": 2},
        {"name": "chatty", "key": "key-chatty", "tokens_per_minute": 40},
        {"name": "root", "key": "key-root", "admin": True}]))
    return path


def ask(client, **fields):
    return client.completions.create(**{"model": "model", "prompt": "Once upon a time", "max_tokens": 4, **fields})


def cache(*arguments):
    return subprocess.run([str(QUIRE), "cache", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def metric(server, name, key):
    lines = rig.answered(server, "/metrics", headers={"Authorization": f"Bearer {key}"}).text.splitlines()
    return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)]


def test_a_limit_is_a_rate_limit_error(start, tenants):
    server = start("serve", MODEL, "--port", "0", "--tenants", tenants, "--tenant-metrics")
    slow = server.client(api_key="key-slow")
    raw = slow.completions.with_raw_response.create(model="model", prompt="Once", max_tokens=1)
    assert raw.headers["x-ratelimit-limit-requests"] == "2" and raw.headers["x-ratelimit-remaining-requests"] == "1"
    ask(slow)
    for fields in ({}, {"stream": True}):
        with pytest.raises(openai.RateLimitError) as caught:
            ask(slow, **fields)
        error = caught.value
        assert error.code == "rate_limit_exceeded" and error.status_code == 429
        assert 1 <= int(error.response.headers["retry-after"]) <= 30
        assert 0 < int(error.response.headers["retry-after-ms"]) <= 30000
        assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    chatty = server.client(api_key="key-chatty")
    assert ask(chatty, max_tokens=60, extra_body={"ignore_eos": True}).usage.completion_tokens == 60
    with pytest.raises(openai.RateLimitError, match="tokens a minute"):
        ask(chatty)
    ask(server.client(api_key="key-root"))
    with pytest.raises(openai.AuthenticationError):
        ask(server.client(api_key="key-nobody"))
    assert metric(server, 'quire:tenant_rate_limited_total{model_name="model",engine="0",tenant="slow"}', "key-root") == [2]


def test_the_sdk_waits_and_comes_back(start, tmp_path):
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps([{"name": "a", "key": "k", "requests_per_minute": 60}]))
    server = start("serve", MODEL, "--port", "0", "--tenants", path)
    client = server.client(api_key="k", max_retries=2)
    started = time.monotonic()
    for _ in range(62):  # 60 at once and one a second, however slow the machine is
        ask(client, max_tokens=1)
    assert time.monotonic() - started > 1.9


def test_a_share_of_the_queue(start, tmp_path):
    """One tenant's waiting choices leave slots for another tenant's. The engine takes 1 choice at a time and queues
    9."""
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps([{"name": "a", "key": "ka", "max_queued": 3}, {"name": "b", "key": "kb"}]))
    server = start("serve", MODEL, "--port", "0", "--tenants", path, "--max-num-seqs", "1",
                   "--max-num-queued-reqs", "9", "--max-model-len", "2048", *SLOWLY)
    a, b = server.client(api_key="ka"), server.client(api_key="kb")

    def send(key, **fields):
        body = json.dumps({"prompt": "x", "max_tokens": 1, **fields}).encode()
        c = server.connect(timeout=300)
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"
                  b"Content-Length: %d\r\n\r\n" % (key.encode(), len(body)) + body)
        return c

    def waiting():
        return sum(metric(server, "vllm:num_requests_waiting", "kb"))

    def wait_for(n):
        rig.wait_until(lambda: waiting() == n, lambda: f"{n} waiting, but {waiting()}")

    holder = send("kb", n=6, max_tokens=2000, ignore_eos=True)  # one runs for seconds, five wait
    wait_for(5)
    sent = [send("ka"), send("ka", n=2)]
    wait_for(8)
    with pytest.raises(openai.RateLimitError, match="share of the queue") as caught:
        ask(a)
    assert int(caught.value.response.headers["retry-after"]) >= 1
    with pytest.raises(openai.RateLimitError):
        a.post("/cache/pins", body={"prompt": STORY}, cast_to=object)
    with pytest.raises(openai.BadRequestError, match="may have 3 choices waiting"):  # it could never be accepted
        ask(a, prompt=["x", "y"], n=2)
    with pytest.raises(openai.BadRequestError):
        ask(a, temperature=9)
    sent.append(send("kb"))  # others still fit
    wait_for(9)
    sent[0].close()  # a client that leaves frees the slot
    wait_for(8)
    sent[0] = send("ka")
    wait_for(9)
    holder.close()
    for c in sent:
        assert c.recv(4096).startswith(b"HTTP/1.1 200")
        c.close()
    assert len(ask(a, n=3, max_tokens=1).choices) == 3
    # A choice that has a token does not wait any more.
    stream = ask(a, max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    queued = [send("ka") for _ in range(3)]
    for c in queued:
        assert c.recv(4096).startswith(b"HTTP/1.1 200")
        c.close()


def test_keys_from_the_environment(start, monkeypatch):
    monkeypatch.setenv("QUIRE_API_KEY", "first,second")
    server = start("serve", MODEL, "--port", "0", "--max-model-len", "256")
    for key in ("first", "second"):
        ask(server.client(api_key=key))
    for key in ("first,second", "firs", "third"):
        with pytest.raises(openai.AuthenticationError):
            ask(server.client(api_key=key))
    assert "first" not in open(f"/proc/{server.process.pid}/cmdline").read()
    monkeypatch.setenv("OPENAI_API_KEY", "second")
    assert cache("unpin", server.url).returncode == 0
    monkeypatch.setenv("OPENAI_API_KEY", "third")
    assert cache("unpin", server.url).returncode != 0
    # The command line overrides the variable.
    server = start("serve", MODEL, "--port", "0", "--max-model-len", "256", "--api-key", "other")
    ask(server.client(api_key="other"))
    with pytest.raises(openai.AuthenticationError):
        ask(server.client(api_key="first"))
    for value in ("", "a,,b", "a\n", "a, b"):
        monkeypatch.setenv("QUIRE_API_KEY", value)
        p = subprocess.run([QUIRE, "serve", MODEL, "--port", "0"], capture_output=True, text=True, timeout=300)
        assert p.returncode == 2 and "QUIRE_API_KEY" in p.stderr and p.stderr.count("\n") == 1, p


def test_the_file_is_read_again_on_sighup(start, tenants):
    server = start("serve", MODEL, "--port", "0", "--tenants", tenants)
    old = tenants.read_text()
    tenants.write_text('[{"name":"slow","key":"key-new","weight":0}]')
    server.process.send_signal(signal.SIGHUP)
    rig.wait_until(lambda: "are unchanged" in server.output(), server.output)
    assert "tenant 1 (slow): weight" in server.output()
    ask(server.client(api_key="key-root"))
    tenants.write_text(old.replace("key-root", "key-new"))
    server.process.send_signal(signal.SIGHUP)
    rig.wait_until(lambda: "was reloaded" in server.output(), server.output)
    ask(server.client(api_key="key-new"))
    with pytest.raises(openai.AuthenticationError):
        ask(server.client(api_key="key-root"))


def test_why_it_was_slow(server, client):
    reply = ask(client, model="demo", extra_body={"quire_trace": True})
    trace = reply.model_extra["quire_trace"]
    assert trace["queue_ms"] >= 0 and trace["chunks"] == 1 and trace["total_ms"] >= trace["first_token_ms"]
    assert abs(sum(trace["queue_ms_by_shortage"].values()) - trace["queue_ms"]) < 0.01
    events = list(ask(client, model="demo", stream=True, extra_headers={"x-quire-trace": "1"}))
    assert events[-1].choices == [] and events[-1].model_extra["quire_trace"]["chunks"] == 1
    assert all("quire_trace" not in (event.model_extra or {}) for event in events[:-1])
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model="demo", extra_body={"quire_deadline_ms": 0})
    assert caught.value.param == "quire_deadline_ms"


def test_what_the_cache_did(start):
    server = start("serve", MODEL, "--port", "0")
    client = server.client()
    first = ask(client, prompt=STORY).usage
    again = ask(client, prompt=STORY).usage
    whole = first.prompt_tokens // 16 * 16
    assert first.model_extra["cache_creation_tokens"] == whole and first.model_extra["cache_read_tokens"] == 0
    assert again.model_extra["cache_read_tokens"] == again.prompt_tokens_details.cached_tokens >= whole - 16
    assert again.model_extra["cache_creation_tokens"] + again.model_extra["cache_read_tokens"] == whole


def test_pins_and_warming_from_a_terminal(start, tmp_path):
    text, lines = tmp_path / "prompt.txt", tmp_path / "prompts.jsonl"
    text.write_text(STORY)
    lines.write_text("".join(json.dumps(p) + "\n" for p in (
        {"prompt": "short"}, {"prompt": STORY + "The end.", "value": 2}, {"messages": [{"role": "user", "content": STORY}]})))
    server = start("serve", MODEL, "--port", "0", "--api-key", "k")
    client = server.client(api_key="k")
    got = cache("pin", server.url + "/v1", "--file", text, "--ttl", 60, "--api-key", "k")
    assert got.returncode == 0 and "pinned for 60 s" in got.stdout, got.stderr
    assert metric(server, "quire:cache_pins", "k") == [1]
    assert ask(client, prompt=STORY).usage.model_extra["cache_read_tokens"] > 0
    got = cache("unpin", server.url, "--api-key", "k")
    assert got.returncode == 0 and metric(server, "quire:cache_pins", "k") == [0], got.stderr
    got = cache("warm", server.url, "--file", lines, "--api-key", "k")
    assert got.returncode == 0 and got.stdout.startswith("3 prompts, "), got.stderr
    chat = client.chat.completions.create(model="model", messages=[{"role": "user", "content": STORY}], max_tokens=1)
    assert chat.usage.prompt_tokens_details.cached_tokens >= chat.usage.prompt_tokens - 32
    for arguments, code, says in (
            (("pin", server.url, "--file", text), 1, "API key"), (("pin", server.url), 2, "--file"), (("pin",), 2, "URL is missing"),
            (("dance", server.url), 2, "dance"), (("unpin", "ftp://localhost:1"), 2, "http://"),
            (("warm", server.url, "--file", text, "--api-key", "k"), 1, "line 1"),
            (("warm", server.url, "--file", tmp_path / "none", "--api-key", "k"), 1, "cannot be opened")):
        got = cache(*arguments)
        assert got.returncode == code and says in got.stderr and got.stderr.count("\n") == 1, got.stderr


def test_kept_answers_from_a_terminal(start, tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text("what was there before")
    file.chmod(0o644)
    servers = [start("serve", MODEL, "--port", "0", "--response-cache", "memory") for _ in range(2)]
    tell = lambda action, server, *more: cache(action, server.url, *more)
    for i in range(3):
        ask(servers[0].client(), prompt=f"question {i}", max_tokens=8, temperature=0)
    stats = json.loads(tell("stats", servers[0], "--json").stdout)
    assert stats["total_entries"] == stats["valid_entries"] == 3 and stats["expired_entries"] == 0
    assert len(tell("inspect", servers[0]).stdout.splitlines()) == 4
    got = tell("export", servers[0], "--file", file)
    assert got.returncode == 0 and file.stat().st_mode & 0o777 == 0o600 and len(file.read_text().splitlines()) == 4, got.stderr
    assert tell("clear", servers[0]).stdout.startswith("3 responses deleted")
    got = tell("import", servers[1], "--file", file)
    assert got.stdout.startswith("3 responses imported, 0 rejected"), got.stderr
    raw = servers[1].client().completions.with_raw_response.create(model="model", prompt="question 1", max_tokens=8, temperature=0)
    assert raw.headers["x-quire-cache"] == "exact"
    entries = rig.answered(servers[1], "/cache/entries", {}).json()["entries"]
    assert sorted((e["hit_count"], e["tokens_saved"]) for e in entries) == [(0, 0), (0, 0), (1, 8)], entries
    # Entries that live for years, are not an answer, or were made by another model are rejected.
    head, *lines = file.read_text().splitlines()
    forged = [{**json.loads(line), "expires_at": 2 ** 53} for line in lines]
    file.write_text("\n".join([head, *map(json.dumps, forged), '{"answer": "AAAA", "expires_at": 1}', "[]"]))
    assert "0 responses imported, 5 rejected" in tell("import", servers[1], "--file", file).stdout
    file.write_text("\n".join([head.replace('identity":"', 'identity":"x'), *lines]))
    assert "these answers were made under x" in tell("import", servers[1], "--file", file).stderr
    for path, says in ((tmp_path, "directory"), ("/dev/zero", "too long"), (tmp_path / "none", "cannot be opened")):
        got = tell("import", servers[1], "--file", path)
        assert got.returncode == 1 and says in got.stderr, got.stderr


def test_an_export_is_whole_or_none(tmp_path):
    """The server disappears after the first page, and the disk is full."""
    class Half(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            if json.loads(self.rfile.read(int(self.headers["Content-Length"])))["from"] > 0:
                return
            body = json.dumps({"identity": "x", "entries": [{"answer": "A" * 2000}] * 100, "next": 1}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass
    with http.server.HTTPServer(("127.0.0.1", 0), Half) as half:
        threading.Thread(target=half.serve_forever, daemon=True).start()
        url, file = f"http://127.0.0.1:{half.server_port}", tmp_path / "answers"
        file.write_text("before")
        got = cache("export", url, "--file", file)
        assert got.returncode == 1 and file.read_text() == "before" and list(tmp_path.iterdir()) == [file], got.stderr
        got = cache("export", url, "--file", "/dev/full")
        assert got.returncode == 1, got.stderr
        half.shutdown()


def test_warming_at_start(start, tmp_path):
    lines = tmp_path / "prompts.jsonl"
    lines.write_text(json.dumps({"prompt": STORY}) + "\n")
    server = start("serve", MODEL, "--port", "0", "--api-key", "k", "--warm", lines, wait_for=r"1 prompts of")
    port = int(server.output().split("http://127.0.0.1:")[1].split("/")[0])
    server.port = port
    assert ask(server.client(api_key="k"), prompt=STORY).usage.model_extra["cache_read_tokens"] > 0
    assert server.stop() == 0
    lines.write_text("{}\n")
    server = start("serve", MODEL, "--port", "0", "--warm", lines, wait_for=r"--warm: .*line 1")
    assert server.stop() == 0
    os.mkfifo(tmp_path / "pipe")  # without a writer
    server = start("serve", MODEL, "--port", "0", "--warm", tmp_path / "pipe", wait_for=r"--warm: .*pipe: is not a regular file")
    assert server.stop() == 0


@pytest.mark.parametrize("text,says", [("", "tenants.json"), ("[]", "non-empty array"), ('[{"name":"a"}]', "tenant 1 (a)")])
def test_a_wrong_file_ends_the_start(tmp_path, text, says):
    path = tmp_path / "tenants.json"
    path.write_text(text)
    for command in (["serve", MODEL, "--port", "0"], ["engine", MODEL, "--listen", f"unix:{tmp_path}/socket"]):
        got = subprocess.run([str(QUIRE), *map(str, command), "--tenants", str(path)], capture_output=True, text=True, timeout=300)
        assert got.returncode == 1 and says in got.stderr.splitlines()[-1], got.stderr
    got = subprocess.run([str(QUIRE), "serve", str(MODEL), "--tenants", str(path), "--api-key", "k"], capture_output=True, text=True)
    assert got.returncode == 2 and "--api-key" in got.stderr


def test_the_policy_is_changed_by_admins(start, tenants):
    server = start("serve", MODEL, "--port", "0", "--tenants", tenants)

    def change(key, body):
        return rig.ask(server, "/v1/admin/scheduling-policy", body, headers={"Authorization": f"Bearer {key}"}).status

    assert change("key-slow", {"policy": "priority"}) == 403 and change("key-root", {"policy": "chaos"}) == 400
    assert change("key-root", {"policy": "priority", "options": {"ageing_ms": 100}}) == 200
    ask(server.client(api_key="key-root"))
    assert metric(server, 'quire:scheduling_policy_info{model_name="model",engine="0",policy="priority"}', "key-root") == [1]
