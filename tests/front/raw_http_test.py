"""Broken, hostile and vanishing clients over raw sockets. After each one the server still serves, holds none of its
data, and runs nothing for it."""

import http.client
import json
import random
import resource
import socket
import struct
import sys
import time

from harness import SANITIZED, Server, post_bytes, read_all, run_tests, wait_until

COMPLETIONS = "/v1/completions"
LONG = {"prompt": "Hello", "max_tokens": 100000, "ignore_eos": True}  # 200 s on the server of this file
H = b"Host: localhost\r\n"

server = Server("--interval-us", 2000, "--max-model-len", 200000, "--max-body-bytes", 1 << 20, "--head-timeout-ms", 10000)


def still_serves(s=None):
    s = s or server
    status, reply = s.post(COMPLETIONS, {"prompt": "Hello there"})
    assert status == 200 and reply["choices"][0]["text"] == "Hello there"


def split(reply):
    """Returns (status, headers, body) of one whole reply."""
    head, _, body = reply.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), body


def is_error(reply, status):
    got, headers, body = split(reply)
    assert got == status, reply[:300]
    error = json.loads(body)["error"]
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error") and error["message"]
    assert headers["content-type"] == "application/json" and "x-request-id" in headers
    return headers


def running(s=None):
    return (s or server).metric("vllm:num_requests_running")


def test_malformed_requests():
    post = b"POST /v1/completions HTTP/1.1\r\n" + H
    bad = [
        (b"nonsense\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400), (b"GET / HTTP/9.9\r\n" + H + b"\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\n" + H + H + b"\r\n", 400),
        (b"GET /health HTTP/1.1\n" + b"Host: localhost\n\n", 400), (b"GET /health HTTP/1.1\r\n" + H + b"no colon\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + H + b" folded: x\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\n" + H + b"a: \0\r\n\r\n", 400),
        (b"GET /he\xffalth HTTP/1.1\r\n" + H + b"\r\n", 400), (b"G ET /health HTTP/1.1\r\n" + H + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400), (b"\x16", 400),
        (post + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400), (post + b"Content-Length: x\r\n\r\n", 400), (post + b"Content-Length: -5\r\n\r\n", 400),
        (post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (post + b"Transfer-Encoding: gzip\r\n\r\n", 400), (post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (post + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n", 400),
        (post + b"Content-Length: 99999999\r\n\r\n", 413), (post + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (post + b"Expect: a miracle\r\nContent-Length: 2\r\n\r\n{}", 417),
        (post + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 415),
        (b"GET /health HTTP/1.1\r\n" + H + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /health HTTP/1.1\r\n" + H + b"a: " + b"b" * 40000 + b"\r\n\r\n", 431), (b"GET /" + b"a" * 40000, 431),
        (b"GET /" + b"a" * 30000 + b" HTTP/1.1\r\n" + H + b"\r\n", 404),
    ]
    for data, status in bad:
        if status == 404:
            data = data.replace(H, H + b"Connection: close\r\n")
        headers = is_error(server.raw(data), status)
        assert headers["connection"] == "close"
        still_serves()


def test_random_bytes():
    rng = random.Random(5)
    words = [b"GET ", b"POST ", b"/v1/completions", b" HTTP/1.1\r\n", b"\r\n", b"\r\n\r\n", H, b"Content-Length: 9\r\n",
             b"Transfer-Encoding: chunked\r\n", b"0\r\n", b"5\r\nhello\r\n", b"{}", b"\xff\x00", b"\n", b": "]
    for _ in range(300):
        data = b"".join(rng.choice(words) if rng.random() < 0.8 else rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 12)))
        with server.connect() as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                read_all(s)
            except OSError:
                pass
    still_serves()


def test_too_large_a_body_is_answered_while_it_is_sent():
    for extra in ("", "Expect: 100-continue\r\n"):
        request = post_bytes(COMPLETIONS, b'{"prompt":"' + b"a" * (8 << 20) + b'"}', extra)
        with server.connect() as s:
            try:
                s.sendall(request)
            except OSError:
                pass
            is_error(read_all(s), 413)
    chunk = b"10000\r\n" + b"a" * 65536 + b"\r\n"
    reply = server.raw(b"POST /v1/completions HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17)
    is_error(reply, 413)
    still_serves()


def test_bodies_that_fit():
    body = b'{"prompt":"Hello there"}'
    head = b"POST /v1/completions HTTP/1.1\r\n" + H + b"Connection: close\r\n"
    chunked = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7))
    reply = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\nTrailer: x\r\n\r\n")
    assert split(reply)[0] == 200 and b"Hello there" in reply
    # Content types are ignored: the body is JSON or it is not.
    for extra in ("Content-Type: image/png", "Content-Type: application/json; charset=utf-8", "Content-Type: APPLICATION/JSON;charset=\"UTF-8\"",
                  "Content-Type:", "Content-Encoding: identity"):
        assert split(server.raw(post_bytes(COMPLETIONS, body, f"Connection: close\r\n{extra}\r\n")))[0] == 200, extra
    with server.connect() as s:
        s.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(body)
        assert split(read_all(s))[0] == 200
    # One byte at a time.
    with server.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post_bytes(COMPLETIONS, body, "Connection: close\r\n"):
            s.send(bytes([byte]))
        assert split(read_all(s))[0] == 200


def test_refusals_before_the_body():
    for path, status in (("/nowhere", 404), ("/health", 405)):
        with server.connect() as s:
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode() + b"a" * 500000)
            is_error(read_all(s), status)
    still_serves()


def test_http_1_0():
    reply = server.raw(b"GET /health HTTP/1.0\r\n\r\n")
    assert reply.startswith(b"HTTP/1.0 200 OK\r\n")
    body = json.dumps({"prompt": "Hello there", "stream": True}).encode()
    reply = server.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    _, headers, events = split(reply)
    assert "transfer-encoding" not in headers and events.startswith(b"data: {") and events.endswith(b"data: [DONE]\n\n")
    with server.connect() as s:
        for _ in range(3):
            s.sendall(b"GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert b"Connection: keep-alive" in s.recv(4096)


def test_pipelining():
    get = b"GET /version HTTP/1.1\r\n" + H + b"\r\n"
    posts = [post_bytes(COMPLETIONS, {"prompt": f"Hello {i}"}) for i in range(8)]
    data = b"".join(get + p for p in posts)
    with server.connect() as s:
        s.sendall(data + get.replace(H, H + b"Connection: close\r\n"))
        reply = read_all(s)
    assert reply.count(b"HTTP/1.1 200 OK") == 17
    places = [reply.index(f'"text":"Hello {i}"'.encode()) for i in range(8)]
    assert places == sorted(places)
    # A client that has sent everything still receives the replies that are ready.
    with server.connect() as s:
        s.sendall(get * 20)
        s.shutdown(socket.SHUT_WR)
        assert read_all(s).count(b"HTTP/1.1 200 OK") == 20


def test_a_flood_of_pipelined_requests_is_bounded():
    get = b"GET /version HTTP/1.1\r\n" + H + b"\r\n"
    before = server.resident_kb()
    with server.connect() as s:
        s.sendall(post_bytes(COMPLETIONS, LONG))
        try:
            for _ in range(400):
                s.sendall(get * 1000)
        except OSError:
            pass
        else:
            assert False, "the server took 18 MB of requests it cannot answer yet"
    assert wait_until(lambda: running() == 0)
    # Unread replies: the server sends only what fits, and reads no more than one request may have.
    with server.connect() as s:
        s.settimeout(3)
        try:
            for _ in range(2000):
                s.sendall(get * 1000)
        except OSError:
            pass
        else:
            assert False, "the server answered a client that reads nothing"
    still_serves()
    assert SANITIZED or server.resident_kb() - before < 32 << 10


def not_too_late(ask):
    """The server closes a connection on which nothing came in time: asks again if this process did not run meanwhile."""
    for _ in range(30):
        try:
            reply = ask()
            if reply:
                return reply
        except (OSError, http.client.HTTPException):
            pass
    assert False, "the server closed 30 connections"


def test_slow_heads_and_bodies_time_out():
    with Server("--head-timeout-ms", 300, "--body-timeout-ms", 300, "--idle-timeout-ms", 600) as s:
        for begin in (b"GET /hea", b"GET /health HTTP/1.1\r\n" + H + b"a: b\r\n",
                      b"POST /v1/completions HTTP/1.1\r\n" + H + b"Content-Length: 50\r\n\r\n{"):
            started = time.monotonic()
            is_error(not_too_late(lambda: s.raw(begin)), 408)
            assert 0.2 < time.monotonic() - started < 14  # without the option 15
        # A slow trickle of bytes does not extend the time limit.
        with s.connect() as c:
            started = time.monotonic()
            try:
                while time.monotonic() - started < 14:
                    c.sendall(b"a")
                    time.sleep(0.05)
            except OSError:
                pass
            assert time.monotonic() - started < 14
        with s.connect() as c:
            assert read_all(c) == b""  # silent from the start
        # And between requests.
        assert not_too_late(lambda: s.raw(b"GET /version HTTP/1.1\r\n" + H + b"\r\n")).startswith(b"HTTP/1.1 200")
        # None of these time-outs applies to a reply that takes longer.
    with Server("--head-timeout-ms", 200, "--idle-timeout-ms", 200, "--write-timeout-ms", 200, "--interval-us", 300000) as s:
        slow = {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True}
        assert not_too_late(lambda: s.post(COMPLETIONS, slow)[0]) == 200


def leave(s, how):
    if how == "half-closed":
        s.shutdown(socket.SHUT_WR)
        read_all(s)
    elif how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def test_clients_that_leave_at_every_stage():
    assert wait_until(lambda: running() == 0)
    time.sleep(0.1)
    n = server.n_descriptors()
    request = post_bytes(COMPLETIONS, LONG)
    streamed = post_bytes(COMPLETIONS, {**LONG, "stream": True, "n": 3})
    for how in ("closed", "half-closed", "reset"):
        for data in (b"", request[:5], request[:-20], request, streamed, request + request, request + b"GET /ver"):
            # At once (in the text pool, or not even read), or while it runs.
            for wait in (False, True):
                s = server.connect()
                s.sendall(data)
                if wait and data.startswith(b"POST") and len(data) >= len(request):
                    assert wait_until(lambda: running() > 0)
                    if data is streamed:
                        assert s.recv(1000)
                leave(s, how)
        # Without the cancellation, they would take 200 seconds.
        assert wait_until(lambda: running() == 0), how
        assert wait_until(lambda: server.n_descriptors() <= n), how
        still_serves()
    assert server.metric('vllm:request_success_total{model_name="fake",engine="0",finished_reason="abort"}') >= 12


def test_a_client_that_leaves_from_the_text_pool():
    # Long texts keep both text threads busy; the requests behind them leave before their turn.
    text = "Hello there. " * 60000
    for _ in range(3):
        sockets = [server.connect() for _ in range(12)]
        for s in sockets:
            s.sendall(post_bytes(COMPLETIONS, {"prompt": text}))
        for i, s in enumerate(sockets):
            leave(s, ("closed", "reset")[i % 2])
    still_serves()
    assert wait_until(lambda: running() == 0)


def test_a_slow_reader_is_cut_off():
    big = post_bytes(COMPLETIONS, {**LONG, "stream": True, "logprobs": 20})
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    s.settimeout(60)
    s.sendall(big)
    assert wait_until(lambda: running() > 0)
    still_serves()
    # It would take 200 s; the server gives it up long before the end, without a byte read.
    assert wait_until(lambda: running() == 0)
    assert b"[DONE]" not in read_all(s)
    s.close()
    # The server also gives up a stream that stalls with fewer bytes in flight.
    with Server("--write-timeout-ms", 2000) as slow:
        n = slow.n_descriptors()
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", slow.port))
        s.sendall(post_bytes("/tokenize", {"prompt": "Hello " * 100000}) * 4)
        assert wait_until(lambda: slow.n_descriptors() == n + 1)
        assert wait_until(lambda: slow.n_descriptors() == n)
        s.close()


def take_replies(sockets, replies):
    """Appends received bytes to replies, by socket."""
    for c in sockets:
        c.setblocking(False)
        try:
            replies[c] = replies.get(c, b"") + c.recv(65536)
        except (BlockingIOError, ConnectionResetError):  # where slots are short, a reset may follow the reply
            pass
    return len(replies)


def test_large_bodies_are_bounded_together():
    # The limit is 16 times the largest body; 40 clients each send one without its last byte. No address has a limit
    # here.
    with Server("--max-body-bytes", 1 << 20, "--body-timeout-ms", 120000, "--trusted-proxies", "10.0.0.0/8,127.0.0.1") as s:
        body = b'{"prompt":"' + b"a" * ((1 << 20) - 100) + b'"}'
        sockets = [s.connect() for _ in range(40)]
        refused = {}
        for c in sockets:
            c.sendall(post_bytes(COMPLETIONS, body)[:-1])
        assert wait_until(lambda: take_replies(sockets, refused) >= 20)
        time.sleep(0.3)
        assert take_replies(sockets, refused) <= 30
        assert all(is_error(reply, 503)["retry-after"] == "1" for reply in refused.values())
        still_serves(s)
        for c in sockets:
            c.close()
        assert SANITIZED or s.resident_kb() < 120 << 10
        still_serves(s)


def test_large_bodies_of_one_address():
    # One address may use half of the limit. Its largest incomplete body is rejected in favour of another client's;
    # small bodies are always accepted.
    with Server("--max-body-bytes", 1 << 20, "--body-timeout-ms", 120000) as s:
        body = b'{"prompt":"' + b"a" * ((1 << 20) - 100) + b'"}'
        sockets = [s.connect() for _ in range(20)]
        refused = {}
        for c in sockets:
            c.sendall(post_bytes(COMPLETIONS, body)[:-1])
        assert wait_until(lambda: take_replies(sockets, refused) >= 12)
        assert s.get("/health")[0] == 200
        still_serves(s)
        with s.connect(source="127.0.0.2") as other:
            other.sendall(post_bytes(COMPLETIONS, {"prompt": "a" * 1500, "x": "b" * 900000}, "Connection: close\r\n"))
            assert split(read_all(other))[0] == 200
        # Eight bodies are exactly half of it: one more is rejected if the last of them are read while the small one is
        # there.
        assert 12 <= take_replies(sockets, refused) <= 13
        assert all(is_error(reply, 503) for reply in refused.values())
        for c in sockets:
            c.close()


def stream_from(s, source="127.0.0.1", max_tokens=4000):
    c = s.connect(source=source)
    c.sendall(post_bytes(COMPLETIONS, {**LONG, "max_tokens": max_tokens, "stream": True}))
    assert c.recv(100).startswith(b"HTTP/1.1 200")
    return c


def test_a_full_house():
    with Server("--max-connections", 8, "--max-connections-per-address", 8, "--interval-us", 20000) as s:
        # Idle connections are closed for new ones.
        idle = [s.connect() for _ in range(30)]
        still_serves(s)
        for c in idle:
            c.close()
        # Busy ones are not: the next connection waits.
        busy = [stream_from(s, max_tokens=100) for _ in range(8)]
        still_serves(s)
        for c in busy:
            c.close()
        still_serves(s)
        # Health and metrics never wait.
        busy = [stream_from(s) for _ in range(8)]
        waiting = [s.connect() for _ in range(4)]
        for c in waiting:
            c.sendall(post_bytes(COMPLETIONS, {"prompt": "Hello there"}))
        for path in ("/health", "/health/live", "/metrics"):
            status, headers, _ = s.request("GET", path)
            assert status == 200 and headers["Connection"] == "close"
        assert running(s) == 8
        # One slot becomes free, and the waiting connections use it one after the other; those that have left are not
        # among them.
        waiting.pop(1).close()
        busy.pop().close()
        for c in waiting:
            assert c.recv(1000).startswith(b"HTTP/1.1 200")
        for c in busy + waiting:
            c.close()
        assert wait_until(lambda: running(s) == 0)


def test_a_full_house_is_told_so():
    with Server("--max-connections", 2, "--head-timeout-ms", 300, "--interval-us", 20000) as s:
        busy = [stream_from(s, f"127.0.0.{i}") for i in (1, 2)]
        with s.connect(source="127.0.0.3") as c:
            c.sendall(post_bytes(COMPLETIONS, {"prompt": "Hello there"}))
            assert is_error(read_all(c), 503)["retry-after"] == "1"
        # If very many connections wait, the first ones are rejected.
        with Server("--max-connections", 1, "--max-connections-per-address", 1, "--interval-us", 20000) as small:
            first = stream_from(small)
            others, replies = [], {}
            for _ in range(200):
                others.append(small.connect(source="127.0.0.2"))
                others[-1].sendall(post_bytes(COMPLETIONS, {"prompt": "Hello there"}))
            # Replies may arrive during the check, so the second client's may be seen before the first's.
            assert wait_until(lambda: take_replies(others, replies) > 0 and others[0] in replies)
            assert is_error(replies[others[0]], 503) and others[-1] not in replies
            assert small.get("/health/live")[0] == 200
            for c in others + [first]:
                c.close()
        for c in busy:
            c.close()


def test_the_share_of_an_address():
    with Server("--max-connections", 8, "--interval-us", 20000, "--head-timeout-ms", 10000) as s:
        busy = [stream_from(s) for _ in range(4)]
        status, headers, reply = s.request("POST", COMPLETIONS, {"prompt": "Hello there"})
        error = json.loads(reply)["error"]
        assert (status, error["code"], headers["Retry-After"]) == (429, "rate_limit_exceeded", "1")
        assert error["type"] == "rate_limit_error" and "address" in error["message"]
        assert s.get("/health/live")[0] == 200 and running(s) == 4
        # Another address has its own limit.
        busy += [stream_from(s, "127.0.0.2") for _ in range(4)]
        for c in busy:
            c.close()
        assert wait_until(lambda: running(s) == 0)
        still_serves(s)
    with Server("--max-connections", 8, "--interval-us", 20000, "--trusted-proxies", "127.0.0.0/8") as s:
        for c in [stream_from(s) for _ in range(8)]:
            c.close()


def test_who_is_slow_gives_way():
    with Server("--max-connections", 8, "--head-timeout-ms", 60000, "--interval-us", 20000) as s:
        slow, started = [], time.monotonic()
        for begin in (b"GET /hea", post_bytes(COMPLETIONS, {"prompt": "x"})[:-1], b"", b"POST /v1"):
            slow.append(s.connect())
            slow[-1].sendall(begin)
            time.sleep(0.01)
        # A new connection has half a second for its first request.
        busy = [stream_from(s)]
        assert time.monotonic() - started > 0.49
        busy += [stream_from(s) for _ in range(3)]
        for c, begun in zip(slow, (True, True, False, True)):
            reply = read_all(c)
            if begun:
                is_error(reply, 408)
            else:
                assert reply == b""
        for c in busy:
            c.close()


def test_thousands_of_slow_bodies():
    """From one address, then from several: health and other clients are served. One measurement was half a minute."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 9000 if hard == resource.RLIM_INFINITY else min(hard, 9000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    n = min(4200, wanted - 500)
    begin = post_bytes(COMPLETIONS, b"a" * 1000)[:-900]
    with Server() as s:
        def probe(path="/health/live"):
            started = time.monotonic()
            assert s.get(path)[0] == 200
            return time.monotonic() - started

        for sources in (("127.0.0.1",), ("127.0.0.2", "127.0.0.3", "127.0.0.4")):
            slow, worst = [], 0
            for i in range(n):
                slow.append(s.connect(source=sources[i % len(sources)]))
                slow[-1].sendall(begin)
                if i % 200 == 0:
                    worst = max(worst, probe())
            assert s.metric("quire:http_connections") <= (2048 if len(sources) == 1 else 4096)
            with s.connect(source="127.0.0.9") as other:
                other.sendall(post_bytes(COMPLETIONS, {"prompt": "Hello there"}, "Connection: close\r\n"))
                assert split(read_all(other))[0] == 200
            worst = max([worst] + [probe() for _ in range(20)])
            print(f"        health beside {n} slow bodies of {len(sources)} addresses: at most {worst * 1000:.0f} ms")
            assert worst < 20
            for c in slow:
                c.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_is_left_behind():
    def rounds(n):
        for i in range(n):
            still_serves()
            s = server.connect()
            s.sendall(post_bytes(COMPLETIONS, {**LONG, "stream": bool(i % 2)})[:[-10, 60, None, None][i % 4]])
            if i % 3:
                time.sleep(0.003)
            leave(s, ("closed", "reset")[i % 2])
            server.raw(b"bad\r\n\r\n")
            server.post(COMPLETIONS, b"{nonsense")
            server.stream(COMPLETIONS, {"prompt": "Hello there", "n": 2, "stop": "re", "logprobs": 2, "echo": True})
            server.post("/tokenize", {"prompt": "x" * 1000})

    rounds(30)
    assert wait_until(lambda: running() == 0)
    n, kb = server.n_descriptors(), server.resident_kb()
    rounds(150)
    assert wait_until(lambda: running() == 0)
    assert wait_until(lambda: server.n_descriptors() <= n), "descriptors are left"
    assert SANITIZED or server.resident_kb() - kb < 2048, "memory grows"
    assert server.metric("quire:http_connections") == 1


with server:
    run_tests(sys.modules[__name__])
