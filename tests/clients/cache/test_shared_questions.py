"""Question vectors shared through a real redis-server: a question in other words gets a draft from another server's
answer, whatever happens to the Redis and whatever its stream contains."""

import hashlib
import socket
import struct
import time

import pytest

from conftest import ALWAYS_GUESSES, MODEL
from rig import clear_cache, stats, wait_until
from test_embeddings import model
from test_redis_cache import SECRET, Redis, connected
from test_semantic import ask, drafted


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return model(tmp_path_factory.mktemp("shared") / "tiny", "bert_mean")


@pytest.fixture
def redis():
    r = Redis()
    yield r
    r.kill()


def command(redis, *words):
    """The reply to one command as bytes; arrays as lists."""
    def read(lines):
        line = lines.readline()
        if line[:1] == b"*":
            return [read(lines) for _ in range(int(line[1:]))]
        if line[:1] == b"$":
            return None if line[1:3] == b"-1" else lines.read(int(line[1:]) + 2)[:-2]
        return line
    with socket.create_connection(("127.0.0.1", redis.port), timeout=300) as s:
        lines = s.makefile("rb")
        for one in ((b"AUTH", SECRET.encode()), words):
            one = [w if isinstance(w, bytes) else str(w).encode() for w in one]
            s.sendall(b"*%d\r\n" % len(one) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in one))
            said = read(lines)
        return said


def streams(redis):
    return command(redis, "KEYS", "quire:*:vectors-*")


def records(redis, name):
    return [dict(zip(fields[::2], fields[1::2])) for _, fields in command(redis, "XRANGE", name, "-", "+")]


def serve(start, redis, tiny, *flags):
    server = start("serve", MODEL, "--port", "0", "--response-cache", redis.url, "--semantic-cache", tiny, "--semantic-threshold", "0.5",
                   *ALWAYS_GUESSES, *flags)
    wait_until(lambda: connected(server) and shared(server)["connected"])
    return server


def shared(server):
    return stats(server)["semantic"]["shared"]


def entries(server):
    return stats(server)["layers"]["semantic"]["entries"]


def body(text):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 60, "ignore_eos": True, "temperature": 0}


def said(server, text):
    return ask(server, body(text))[1]["x-quire-cache"]


ASKED = "tell me about the dog please"
IN_OTHER_WORDS = [body(text) for text in ("please tell me about the dog", "tell me about the dog", "about the dog please tell me")]


def test_what_another_server_answered_is_found_by_its_vector(start, redis, tiny):
    first, second = serve(start, redis, tiny), serve(start, redis, tiny)
    want = ask(first, body(ASKED))[0]
    wait_until(lambda: entries(second) == 1)
    assert entries(first) == 1  # its own entry comes back, and is not added again
    wait_until(lambda: shared(first)["appended"] == 1)  # after the reply of the Redis
    assert shared(first)["taken"] == 0
    assert shared(second)["taken"] == 1 and shared(second)["refused"] == 0
    drafted(second, *IN_OTHER_WORDS)
    assert ask(second, body(ASKED))[0] == want
    n = entries(second)
    wait_until(lambda: entries(first) == n)
    third = serve(start, redis, tiny)  # replays
    wait_until(lambda: entries(third) == n)
    assert shared(third)["taken"] >= n  # more, where a lookup came too late and an answer was computed twice
    [name] = streams(redis)
    assert 0 < int(command(redis, "TTL", name)[1:]) <= 2592060
    # A clear removes the entries of all servers, also of servers that start later.
    clear_cache(first)
    wait_until(lambda: entries(first) == entries(second) == entries(third) == 0)
    assert said(first, "what is rain") == "miss"
    wait_until(lambda: entries(second) == entries(third) == 1)
    assert entries(first) == 1 and entries(serve(start, redis, tiny)) <= 1
    for server in (first, second, third):
        assert server.stop() == 0, server.output()
        assert SECRET not in server.output()


def record(vector, answer=b"a" * 32, around=b"c" * 32, expires_ms=None, kind=1):
    expires_ms = int(time.time() * 1000) + 60000 if expires_ms is None else expires_ms
    head = struct.pack("<II", kind, 0) + answer
    if kind == 1:
        head += around + struct.pack("<q", expires_ms) + struct.pack(f"<{len(vector)}f", *vector)
    return head + hashlib.blake2b(head, digest_size=32, person=b"quire vectors 1\0").digest()[:8]


def test_garbage_in_the_stream_is_counted_and_left_out(start, redis, tiny):
    first = serve(start, redis, tiny)
    ask(first, body(ASKED))
    wait_until(lambda: len(streams(redis)) == 1 and shared(first)["appended"] == 1)
    [name] = streams(redis)
    [real] = records(redis, name)
    good = real[b"v1"]
    n = (len(good) - 88) // 4
    one = [1.0] + [0.0] * (n - 1)
    assert record(struct.unpack(f"<{n}f", good[80:-8]), good[8:40], good[40:72], struct.unpack("<q", good[72:80])[0]) == good
    now = int(time.time() * 1000)
    bad = [b"", b"garbage", good[:-1], good + b"\0", good[:100] + b"\1" + good[101:], record(one[1:]), record([2.0] + one[1:]),
           record([0.0] * n), record([float("nan")] * n), record([float("inf")] + one[1:]), record(one, kind=3),
           record(one, expires_ms=now + 40 * 86400 * 1000), record(one, expires_ms=2**63 - 1)]
    for value in bad:
        command(redis, "XADD", name, "*", "by", "somebody", "v1", value)
    command(redis, "XADD", name, "*", "v2", good)
    command(redis, "XADD", name, "*", "clea", "")
    command(redis, "XADD", name, "*", "by", real[b"by"], "v1", b"garbage")  # reports that it is the first's own
    expired = [record(one, answer=b"%032d" % i, expires_ms=e) for i, e in enumerate((now - 1, 0, -2**63))]
    for value in expired:
        command(redis, "XADD", name, "*", "by", "somebody", "v1", value)
    command(redis, "XADD", name, "*", "v1", record(one, answer=b"x" * 32))
    wait_until(lambda: entries(first) == 2)
    assert shared(first)["refused"] == len(bad) + 2 and shared(first)["taken"] == len(expired) + 1
    second = serve(start, redis, tiny)
    wait_until(lambda: entries(second) == 2)
    assert shared(second)["refused"] == len(bad) + 3 and shared(second)["taken"] == len(expired) + 2
    # If a vector is found whose answer no server has, all servers drop it.
    command(redis, "XADD", name, "*", "by", "somebody", "v1", record((), answer=b"x" * 32, kind=2))
    wait_until(lambda: entries(first) == entries(second) == 1)
    # The stream is missing.
    command(redis, "SET", name, "garbage")
    assert said(first, "what is rain") in ("miss", "draft")
    wait_until(lambda: shared(first)["dropped"] == 1)
    drafted(second, *IN_OTHER_WORDS)
    for server in (first, second):
        assert server.stop() == 0, server.output()


def test_a_redis_that_is_killed(start, redis, tiny):
    first, second = serve(start, redis, tiny), serve(start, redis, tiny)
    ask(first, body(ASKED))
    wait_until(lambda: entries(second) == 1)
    redis.kill()
    wait_until(lambda: not shared(first)["connected"] and not shared(second)["connected"])
    assert said(first, "what is rain") in ("miss", "draft") and said(second, "a cat") in ("miss", "draft")
    wait_until(lambda: shared(first)["dropped"] == 1 and entries(first) == entries(second) == 2)
    redis.start()  # empty
    wait_until(lambda: all(connected(s) and shared(s)["connected"] for s in (first, second)))
    n = entries(second)
    ask(first, body("the red dog and two cats"))
    wait_until(lambda: entries(second) == n + 1)
    assert first.stop() == 0 and second.stop() == 0
