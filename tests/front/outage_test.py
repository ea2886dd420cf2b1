"""A full, failing, silent or draining server: what its clients receive."""

import json
import signal
import sys

from harness import Server, post_bytes, read_all, run_tests, wait_until

CHAT = [{"role": "user", "content": "Hello there"}]
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
READY = ("/health", "/health/ready", "/ping")


def test_a_full_engine_is_429():
    with Server("--max-live", 1, "--interval-us", 20000) as s:
        with s.connect() as holder:
            holder.sendall(post_bytes(COMPLETIONS, {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True}))
            assert holder.recv(4096).startswith(b"HTTP/1.1 200")
            for stream in (False, True):
                status, headers, body = s.request("POST", COMPLETIONS, {"prompt": ["x", "y"], "stream": stream})
                assert status == 429 and headers["Retry-After"] == "2" and headers["retry-after-ms"] == "1500"
                assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        assert wait_until(lambda: s.metric("vllm:num_requests_running") == 0)
        assert s.post(COMPLETIONS, {"prompt": "x"})[0] == 200
        assert s.metric("quire:requests_refused_total") == 2


def test_a_fault_in_the_engine_ends_its_request_only():
    with Server() as s:
        fail = s.post("/tokenize", {"prompt": " there"})[1]["tokens"][0]
    with Server("--fail-token", fail) as s:
        status, reply = s.post(COMPLETIONS, {"prompt": "Hello there"})
        assert status == 500 and reply["error"]["type"] == "server_error"
        events = s.stream(COMPLETIONS, {"prompt": "Hello there"})
        assert events[0]["choices"][0]["text"] == "Hello" and "fail" in events[-1]["error"]["message"]
        assert s.post(COMPLETIONS, {"prompt": "Hello"})[0] == 200


def test_an_engine_that_goes_away():
    with Server("--interval-us", 5000) as s:
        long = {"prompt": "Hello", "max_tokens": 4000, "ignore_eos": True}
        streamed, whole = s.connect(), s.connect()
        streamed.sendall(post_bytes(COMPLETIONS, {**long, "stream": True}))
        whole.sendall(post_bytes(COMPLETIONS, long, "Connection: close\r\n"))
        assert wait_until(lambda: s.metric("vllm:num_requests_running") == 2)
        data = b""
        while b"data: " not in data:  # a stream that has begun
            data += streamed.recv(65536)
        s.process.send_signal(signal.SIGUSR1)
        reply = read_all(whole)
        assert reply.startswith(b"HTTP/1.1 503") and b"engine_unavailable" in reply and b"Retry-After: 1" in reply
        while not data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            more = streamed.recv(65536)
            assert more, data
            data += more
        error = json.loads(data.split(b"data: ")[-2].split(b"\n")[0])["error"]
        assert error["type"] == "server_error" and error["code"] == "engine_unavailable"
        for path in (COMPLETIONS, "/tokenize"):
            status, headers, body = s.request("POST", path, b"{}")
            assert status == 503 and headers["Retry-After"] == "1" and json.loads(body)["error"]["code"] == "engine_unavailable"
        # The server accepts no request; a restart of the front end would not help.
        for path in READY:
            status, headers, body = s.request("GET", path)
            assert status == 503 and headers["Retry-After"] == "1" and json.loads(body) == {"status": "engine_unavailable"}
        assert s.get("/health/live") == (200, {"status": "ok"})
        assert s.metric("quire:engine_up") == 0 and s.get("/v1/models")[0] == 200
        streamed.close()
        whole.close()


def test_a_silent_stream_is_kept_alive():
    with Server("--ping-ms", 50, "--interval-us", 300000) as s:
        data = s.request("POST", CHATS, {"messages": CHAT, "max_tokens": 3, "stream": True})[2]
        assert data.count(b": ping\n\n") >= 5 and data.endswith(b"data: [DONE]\n\n")


def test_drain():
    s = Server("--interval-us", 10000)
    holder, idle = s.connect(), s.connect()
    holder.sendall(post_bytes(COMPLETIONS, {"prompt": "x", "max_tokens": 600, "ignore_eos": True, "stream": True}))  # six seconds for what follows
    assert holder.recv(4096).startswith(b"HTTP/1.1 200")
    half = s.connect()
    request = post_bytes(COMPLETIONS, {"prompt": "x"})
    half.sendall(request[:-3])
    s.process.terminate()
    assert read_all(idle) == b""  # an idle connection is closed at once
    # Probes and late clients receive replies, and a late client that sends nothing delays no other client.
    assert s.get("/health/live") == (200, {"status": "ok"})
    for path in READY:
        status, headers, body = s.request("GET", path)
        assert status == 503 and headers["Connection"] == "close" and json.loads(body) == {"status": "draining"}
    status, late = s.post(COMPLETIONS, {"prompt": "x"})
    assert status == 503 and late["error"]["code"] == "server_draining"
    silent = s.connect()
    half.sendall(request[-3:])
    reply = read_all(half)
    assert reply.startswith(b"HTTP/1.1 503") and b"Connection: close" in reply and b"server_draining" in reply
    rest = read_all(holder)
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and b'"finish_reason":"length"' in rest
    assert s.process.wait(60) == 0
    for connection in (holder, idle, half, silent):
        connection.close()
    s.process.stdout.close()


def test_a_drain_that_is_cut_short():
    with Server("--interval-us", 10000, "--give-up-ms", 300) as s:
        streamed, whole = s.connect(), s.connect()
        endless = {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "n": 2}
        streamed.sendall(post_bytes(COMPLETIONS, {**endless, "stream": True}))
        whole.sendall(post_bytes(COMPLETIONS, endless))
        assert streamed.recv(4096).startswith(b"HTTP/1.1 200")
        assert wait_until(lambda: s.metric("vllm:num_requests_running") >= 2)
        s.process.terminate()
        data = read_all(streamed)
        error = json.loads(data.split(b"data: ")[-2].split(b"\n")[0])["error"]
        assert error["code"] == "server_draining" and data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        reply = read_all(whole)
        assert reply.startswith(b"HTTP/1.1 503") and b"server_draining" in reply and b"Retry-After" in reply
        assert s.process.wait(60) == 0
        streamed.close()
        whole.close()


run_tests(sys.modules[__name__])
