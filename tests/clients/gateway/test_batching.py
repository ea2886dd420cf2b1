"""Requests of several clients that an upstream server gets as one."""

import concurrent.futures
import decimal
import json
import socket
import time

import pytest
import rig
from upstream import Upstream


async def lists(self, writer, asked):
    """An upstream server that takes lists, and answers in the reverse order."""
    prompts = asked.get("prompt", asked.get("input"))
    many = prompts if isinstance(prompts, list) else [prompts]
    if "prompt" in asked:
        body = {"id": "c", "object": "text_completion", "choices": [{"index": i, "text": p.upper(), "finish_reason": "stop"} for i, p in reversed(list(enumerate(many)))],
                "usage": {"prompt_tokens": 10 * len(many), "completion_tokens": 3 * len(many), "total_tokens": 13 * len(many)}}
    else:
        body = {"object": "list", "data": [{"object": "embedding", "index": i, "embedding": [float(len(p))]} for i, p in reversed(list(enumerate(many)))],
                "usage": {"prompt_tokens": 10 * len(many), "total_tokens": 10 * len(many)}}
    self.reply(writer, 200, body)
    await writer.drain()
    return True


@pytest.fixture
def upstream(monkeypatch):
    monkeypatch.setattr(Upstream, "do_lists", lists, raising=False)
    u = Upstream(mode="lists")
    yield u
    u.close()


@pytest.fixture
def serve(start, tmp_path, upstream):
    def begin(size=4, wait=60000):  # clients of a busy machine come late, and a full batch does not wait
        file = tmp_path / "models.yaml"
        file.write_text(f"models:\n  small:\n    targets: [{{url: '{upstream.url}', model: up}}]\n    batch: {{max_batch_size: {size}, max_wait_ms: {wait}}}\n"
                        "    price_per_1k: {input: 0.001, output: 0.002}\n")
        return start("serve", "--models", file, "--port", "0")
    return begin


def together(asks):
    with concurrent.futures.ThreadPoolExecutor(len(asks)) as pool:
        return [f.result() for f in [pool.submit(ask) for ask in asks]]


def completion(server, prompt, **more):
    return lambda: rig.ask(server, "/v1/completions", {"model": "small", "prompt": prompt, "max_tokens": 5, **more})


def test_a_full_batch_is_one_call(serve, upstream):
    server = serve()
    prompts = ["one", "two", "three", "four"]
    replies = together([completion(server, p) for p in prompts])
    assert [r.json()["choices"][0]["text"] for r in replies] == [p.upper() for p in prompts]
    assert all(r.json()["choices"][0]["index"] == 0 and len(r.json()["choices"]) == 1 for r in replies)
    assert upstream.requests == 1 and sorted(upstream.bodies[0]["prompt"]) == sorted(prompts)
    assert {k: v for k, v in upstream.bodies[0].items() if k != "prompt"} == {"model": "up", "max_tokens": 5}
    usages = [json.loads(r.text, parse_float=decimal.Decimal)["usage"] for r in replies]
    assert sum(u["prompt_tokens"] for u in usages) == 40 and sum(u["completion_tokens"] for u in usages) == 12
    assert sum(u["cost"] for u in usages) == (40 * decimal.Decimal("0.001") + 12 * decimal.Decimal("0.002")) / 1000


def test_a_batch_does_not_wait_for_ever(serve, upstream):
    server = serve(wait=5000)
    begun = time.monotonic()
    replies = together([completion(server, "a"), completion(server, "b")])
    assert time.monotonic() - begun > 4.9
    assert [r.json()["choices"][0]["text"] for r in replies] == ["A", "B"] and upstream.requests == 1
    assert completion(server, "alone")().json()["choices"][0]["text"] == "ALONE"
    assert upstream.bodies[-1]["prompt"] == "alone"


def test_embeddings(serve, upstream):
    server = serve()
    replies = together([lambda n=n: rig.ask(server, "/v1/embeddings", {"model": "small", "input": "x" * n}) for n in (1, 2, 3, 4)])
    assert [r.json()["data"][0]["embedding"] for r in replies] == [[1.0], [2.0], [3.0], [4.0]]
    assert upstream.requests == 1


def test_others_do_not_join(serve, upstream):
    server = serve(wait=300)
    together([completion(server, "a"), completion(server, "b", temperature=0), completion(server, ["c"]), completion(server, "d", n=2),
              lambda: rig.ask(server, "/v1/embeddings", {"model": "small", "input": "a"})])
    assert upstream.requests == 5


def test_an_error_reaches_every_member(serve, upstream):
    server = serve()
    upstream.mode = "too_long"
    replies = together([completion(server, f"{i}") for i in range(4)])
    assert [r.status for r in replies] == [400] * 4 and upstream.requests == 1
    assert all(r.json()["error"]["code"] == "context_length_exceeded" for r in replies)
    upstream.mode = "good" # one answer for four prompts
    replies = together([completion(server, f"{i}") for i in range(4)])
    assert [r.status for r in replies] == [502] * 4


def test_a_client_that_leaves_is_dropped(serve, upstream):
    server = serve(size=3)
    body = json.dumps({"model": "small", "prompt": "gone", "max_tokens": 5}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        rig.wait_until(lambda: rig.answered(server, "/gateway/targets").json()[0]["running"] == 1)
    rig.wait_until(lambda: rig.answered(server, "/gateway/targets").json()[0]["running"] == 0)
    replies = together([completion(server, p) for p in ("a", "b", "c")])
    assert [r.json()["choices"][0]["text"] for r in replies] == ["A", "B", "C"]
    assert upstream.requests == 1 and sorted(upstream.bodies[0]["prompt"]) == ["a", "b", "c"]


def test_a_client_that_leaves_a_call(serve, upstream):
    server = serve(size=2)
    upstream.mode = "stall"
    body = json.dumps({"model": "small", "prompt": "gone", "max_tokens": 5}).encode()
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for s in sockets:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    rig.wait_until(lambda: upstream.requests == 1)
    for s in sockets:
        s.close()
    rig.wait_until(lambda: rig.answered(server, "/gateway/targets").json()[0]["running"] == 0)
    upstream.mode = "lists"
    assert [r.status for r in together([completion(server, p) for p in ("a", "b")])] == [200, 200]


def test_many(serve, upstream):
    server = serve(size=8, wait=1000)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda i: completion(server, f"p{i}")(), range(300)))
    assert [r.json()["choices"][0]["text"] for r in replies] == [f"P{i}" for i in range(300)]
    assert upstream.requests < 200
