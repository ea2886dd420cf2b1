"""Responses cached in a Redis: a real redis-server with faults, and servers that share it."""

import re
import signal
import socket
import subprocess

import pytest

from conftest import MODEL, QUIRE
from rig import answered, clear_cache, free_port, stats, wait_until

SECRET = "s3cr3t"


class Redis:
    def __init__(self):
        self.port = free_port()
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp",
                                         "--logfile", "/dev/null", "--requirepass", SECRET])
        wait_until(self.answers)

    def answers(self):
        try:
            return self.ask("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def ask(self, *words):
        """The first line of the reply to one command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as s:
            lines = s.makefile("rb")
            for command in (("AUTH", SECRET), words):
                s.sendall(b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in (str(w).encode() for w in command)))
                said = lines.readline()
            if said.startswith(b"*"):
                return [lines.read(int(lines.readline()[1:]) + 2)[:-2].decode() for _ in range(int(said[1:]))]
            return said

    def names(self):
        return self.ask("KEYS", "quire:*:" + "?" * 64)

    def kill(self):
        self.process.kill()
        self.process.wait()

    @property
    def url(self):
        return f"redis://:{SECRET}@localhost:{self.port}"


@pytest.fixture
def redis():
    r = Redis()
    yield r
    r.kill()


def serve(start, redis):
    return start("serve", MODEL, "--port", "0", "--max-model-len", "512", "--log-requests", "--response-cache", redis.url)


def ask(server, prompt, **more):
    reply = answered(server, "/v1/completions", {"prompt": prompt, "max_tokens": 8, "seed": 1, "logprobs": 2, **more})
    return reply.cache, reply.json()["choices"]


def ask_all(server, word, **more):
    """The answers of several requests, and the number of cache hits."""
    got = [ask(server, f"{word} {i}", **more) for i in range(8)]
    return [answer for _, answer in got], sum(cache == "exact" for cache, _ in got)


def found_all(server, word):
    """Their answers as another server put them there. A busy machine may look one up too late: it is asked again."""
    found = {}

    def find():
        for i in {*range(8)} - {*found}:
            cache, answer = ask(server, f"{word} {i}", cache={"no_store": True})
            if cache == "exact":
                found[i] = answer
        return len(found) == 8

    wait_until(find)
    return [found[i] for i in range(8)]


def connected(server):
    return stats(server)["store"]["connected"]


def test_servers_share_answers_and_find_them_after_a_restart(start, redis):
    first, second = serve(start, redis), serve(start, redis)
    wait_until(lambda: connected(first) and connected(second))
    answers, n_exact = ask_all(first, "one")
    assert n_exact == 0
    wait_until(lambda: len(redis.names()) == 8)
    assert found_all(second, "one") == answers and stats(second)["layers"]["redis"]["hits"] >= 8  # one that comes too late counts, too
    assert second.metric("quire:response_cache_store_up") == 1
    others, _ = ask_all(first, "two")
    assert first.stop() == 0 and second.stop() == 0  # a clean stop waits for pending writes
    third = serve(start, redis)
    wait_until(lambda: connected(third))
    assert len(redis.names()) == 16
    for word, said in (("one", answers), ("two", others)):
        assert found_all(third, word) == said
    redis.ask("SET", "quire:mine", 1)
    assert clear_cache(third) == {"cleared": True, "removed": 16} and redis.names() == [] and redis.ask("GET", "quire:mine") == b"$1\r\n"
    assert third.stop() == 0
    assert re.search(r"request.*cache=redis", third.output())
    for s in (first, second, third):
        assert SECRET not in s.output()


def test_a_redis_that_is_paused_killed_and_filled_with_garbage(start, redis):
    server, other = serve(start, redis), serve(start, redis)
    wait_until(lambda: connected(server) and connected(other))
    answers, _ = ask_all(server, "one")
    wait_until(lambda: len(redis.names()) == 8)
    for name in redis.names():
        redis.ask("SETRANGE", name, 200, "garbage")
    wait_until(lambda: ask_all(other, "one", cache={"no_store": True}) == (answers, 0) and stats(other)["unsound"] > 0)
    redis.process.send_signal(signal.SIGSTOP)
    assert ask_all(server, "paused")[1] == 0
    assert ask_all(server, "one") == (answers, 8)  # from memory
    redis.process.send_signal(signal.SIGCONT)
    redis.kill()
    wait_until(lambda: not connected(server) and not connected(other))
    assert ask_all(server, "gone")[1] == 0 and stats(server)["store"]["away"] > 0
    redis.start()
    wait_until(lambda: connected(server) and connected(other))
    answers, _ = ask_all(server, "back")
    wait_until(lambda: len(redis.names()) == 8)
    assert found_all(other, "back") == answers
    assert server.stop() == 0 and "answers are cached there again" in server.output() and SECRET not in server.output()


@pytest.mark.parametrize("url,says", [
    (f"redis://u:{SECRET}@", "the host is missing"),
    (f"redis://{SECRET}@host", "user:password or :password"),
    (f"Redis://u:{SECRET}@host", "must be memory, sqlite:PATH or redis://HOST"),
    ("redis://host:x", "port"),
    ("rediss://host/one", "number of a database"),
])
def test_a_wrong_address_is_explained_and_no_password_shown(url, says):
    got = subprocess.run([QUIRE, "serve", MODEL, "--response-cache", url], capture_output=True, text=True, timeout=300)
    assert got.returncode == 2 and says in got.stderr and "--response-cache" in got.stderr and SECRET not in got.stderr
