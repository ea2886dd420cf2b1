"""The service of /complete and /stream, over an upstream server and over an engine of the gateway's own."""

import concurrent.futures
import decimal
import json
import socket
import urllib.parse

import pytest
import rig
from conftest import MODEL
from upstream import Upstream

PRICE = "{input: 0.00015, cached_input: 0.00002, output: 0.0006}"


@pytest.fixture
def upstream():
    u = Upstream()
    yield u
    u.close()


@pytest.fixture
def gateway(start, tmp_path, upstream):
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n  small: {{targets: [{{url: '{upstream.url}'}}], price_per_1k: {PRICE}}}\n"
                    f"  other: {{targets: [{{url: '{upstream.url}', model: big}}]}}\n")
    return start("serve", "--models", file, "--port", "0")


def complete(server, prompt="Hello", **more):
    return rig.answered(server, "/complete", {"prompt": prompt, **more}).json()


def events(server, path, **how):
    """(name, data) of each event, as a browser's EventSource reads them."""
    name, data, found = "", [], []
    with rig.stream(server, path, **how) as reply:
        assert reply.headers["Content-Type"] == "text/event-stream"
        for line in reply.read().decode().split("\n"):
            field, _, value = line.partition(": ")
            if line == "" and data:
                found.append((name, "\n".join(data)))
            if line == "":
                name, data = "", []
            elif field == "event":
                name = value
            elif field in ("data", "data:"):
                data.append(value)
    return found


def stream(server, prompt="Hello", **more):
    return events(server, "/stream?" + urllib.parse.urlencode({"prompt": prompt, **more}))


def answer(*pieces):
    """What an upstream server says: whole, or piece by piece."""
    async def do(self, writer, asked):
        if not asked.get("stream"):
            self.reply(writer, 200, {"choices": [{"message": {"content": "".join(pieces)}, "finish_reason": "stop"}], "usage": self.usage()})
            await writer.drain()
            return True
        self.stream_head(writer)
        for piece in pieces:
            await self.event(writer, self.chunk({"content": piece}))
        await self.event(writer, self.chunk({}, "stop"))
        await self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
    return do


# ---- POST /complete --------------------------------------------------------------------------


def test_fields_of_a_reply(gateway, upstream):
    reply = complete(gateway)
    assert list(reply) == ["content", "model_used", "cached", "latency_ms", "tokens", "cost"]
    assert reply["content"] == "w0 w1 w2 w3 w4 w5 w6 w7"
    assert (reply["model_used"], reply["cached"], reply["tokens"]) == ("small", False, {"input": 10, "output": 8})
    assert reply["latency_ms"] > 0
    assert upstream.bodies[-1]["messages"] == [{"role": "user", "content": "Hello"}]


def test_cost_is_exact_to_the_last_digit(gateway):
    text = rig.answered(gateway, "/complete", {"prompt": "Hello"}).text
    cost = json.loads(text, parse_float=decimal.Decimal)["cost"]
    assert cost == (6 * decimal.Decimal("0.00015") + 4 * decimal.Decimal("0.00002") + 8 * decimal.Decimal("0.0006")) / 1000
    assert complete(gateway, model="other")["cost"] == 0


def test_a_repetition_comes_from_the_cache(gateway, upstream):
    first, second = complete(gateway), complete(gateway)
    assert second["content"] == first["content"]
    assert (second["model_used"], second["cached"], second["tokens"], second["cost"]) == ("cache", True, {"input": 0, "output": 0}, 0)
    assert upstream.requests == 1
    complete(gateway, prompt="Hello.")
    complete(gateway, model="small")
    assert complete(gateway, use_cache=False)["model_used"] == "small"
    assert upstream.requests == 4
    stats = rig.stats(gateway)
    assert (stats["total_entries"], stats["valid_entries"], stats["expired_entries"]) == (3, 3, 0)
    assert (stats["hits"], stats["misses"]) == (1, 4)
    assert rig.clear_cache(gateway) == {"cleared": True, "removed": 3}
    assert rig.stats(gateway)["total_entries"] == 0
    assert not complete(gateway)["cached"]


def test_a_page_may_not_clear_the_cache(gateway):
    reply = rig.ask(gateway, "/cache/clear", method="POST", headers={"Origin": "https://evil.example"})
    assert reply.status == 403 and reply.json()["error"]["code"] == "permission_denied"


@pytest.mark.parametrize("body, param", [
    ({}, "prompt"), ({"prompt": 3}, "prompt"), ({"prompt": "a", "model": []}, "model"), ({"prompt": "a", "use_cache": 1}, "use_cache"),
    ({"prompt": "a", "stream": "x"}, "stream")])
def test_a_wrong_field_is_named(gateway, upstream, body, param):
    reply = rig.ask(gateway, "/complete", body)
    assert reply.status == 400 and reply.json()["error"]["param"] == param
    assert upstream.requests == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"prompt":"a","prompt":"b"}', b"\xff"])
def test_a_body_that_is_no_object_is_rejected(gateway, body):
    assert rig.ask(gateway, "/complete", body, method="POST").status == 400


def test_errors_of_the_gateway_pass(gateway, upstream):
    reply = rig.ask(gateway, "/complete", {"prompt": "a", "model": "nothing"})
    assert reply.status == 404 and reply.json()["error"]["code"] == "model_not_found"
    upstream.mode = "html_502"
    assert rig.ask(gateway, "/complete", {"prompt": "a"}).status == 502
    upstream.mode = "429"
    reply = rig.ask(gateway, "/complete", {"prompt": "a"})
    assert reply.status == 429 and reply.headers["Retry-After"]
    assert rig.ask(gateway, "/complete").status == 405
    assert rig.stats(gateway)["total_entries"] == 0


def test_many_at_once(gateway, upstream):
    upstream.delay = 0.02
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda i: complete(gateway, f"number {i}"), range(100)))
    assert all(r["tokens"]["output"] == 8 for r in replies)
    assert rig.stats(gateway)["misses"] == 100


# ---- GET /stream -----------------------------------------------------------------------------


def test_a_stream_of_pieces(gateway, upstream):
    assert stream(gateway, "two words & more") == [("", f"w{i} ") for i in range(8)] + [("", "[DONE]")]
    assert upstream.bodies[-1]["messages"] == [{"role": "user", "content": "two words & more"}]
    found = events(gateway, "/complete", body={"prompt": "Hello", "stream": True})
    assert found[-1] == ("", "[DONE]") and len(found) == 9


def test_newlines_in_a_piece_arrive(gateway, monkeypatch):
    pieces = ["a\n", "\n", " b\n\nc", "\u00e9\U0001f642", "end\n"]
    monkeypatch.setattr(Upstream, "do_good", answer(*pieces))
    assert stream(gateway) == [("", piece) for piece in pieces] + [("", "[DONE]")]


def test_whole_sentences(gateway, monkeypatch):
    monkeypatch.setattr(Upstream, "do_good", answer("One. T", "wo", "! Three?", " 3.1", "4 is\n", "pi.", "\nThe rest"))
    assert [data for _, data in stream(gateway, sentences=1)] == ["One. ", "Two! ", "Three? ", "3.14 is\npi.\n", "The rest", "[DONE]"]
    assert len(stream(gateway, sentences=0)) == 8


def test_a_stream_that_fails_says_so(gateway, upstream):
    upstream.mode = "cut_later"
    found = stream(gateway)
    assert [data for name, data in found if not name] == ["w0 ", "w1 ", "w2 "]
    assert found[-1][0] == "error" and json.loads(found[-1][1])["error"]["message"]


@pytest.mark.parametrize("query", ["", "?prompt=a&sentences=2", "?prompt=%zz", "?question=a", "?model=small"])
def test_a_wrong_query_is_rejected(gateway, query):
    assert rig.ask(gateway, "/stream" + query).status == 400


@pytest.mark.parametrize("site, status", [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)])
def test_a_page_cannot_load_a_stream_as_an_image(gateway, upstream, site, status):
    assert rig.ask(gateway, "/stream?prompt=a", headers={"Sec-Fetch-Site": site}).status == status
    assert upstream.requests == (status == 200)


def test_a_client_that_leaves_ends_the_answer(gateway, upstream):
    upstream.mode = "endless"
    with socket.create_connection(("127.0.0.1", gateway.port)) as s:
        s.sendall(b"GET /stream?prompt=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert s.recv(1000)
    rig.wait_until(lambda: upstream.gone > 0, "the end of the upstream's connection")


def test_a_slow_client_slows_the_upstream(gateway, upstream):
    upstream.mode = "endless"
    with socket.create_connection(("127.0.0.1", gateway.port)) as s:
        s.sendall(b"GET /stream?prompt=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert s.recv(1000)
        before = -1
        while upstream.sent != before: # until nothing moves
            before = upstream.sent
            rig.time.sleep(1)
        assert upstream.sent < 100 << 20
        for _ in range(2000):
            assert s.recv(65536)
        rig.wait_until(lambda: upstream.sent > before, "more from the upstream server")


# ---- an engine of the gateway's own ----------------------------------------------------------


def test_an_engine_answers(start, tmp_path):
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n  demo: {{targets: [{{model: {MODEL}, options: {{max-model-len: 512, response-cache: memory, response-cache-unseeded: true}}}}], "
                    f"max_tokens: 8, price_per_1k: {PRICE}}}\n")
    gateway = start("serve", "--models", file, "--port", "0")
    first = complete(gateway, use_cache=False)
    assert first["model_used"] == "demo" and first["tokens"]["output"] == 8 and first["cost"] > 0
    pieces = [data for _, data in stream(gateway)]
    assert pieces[-1] == "[DONE]"
    # The engine's own cache: a chat fills it, and a question like that is a hit.
    rig.answered(gateway, "/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}]})
    hit = complete(gateway, "Tell me a story.", model="demo")
    assert (hit["model_used"], hit["cached"], hit["tokens"], hit["cost"]) == ("cache", True, {"input": 0, "output": 0}, 0)
    stats = rig.stats(gateway)
    assert (stats["hits"], stats["engine_hits"], stats["total_entries"]) == (1, 1, 1)
    assert len(stats["engines"]) == 1 and stats["engines"][0]["hits"] >= 1
    cleared = rig.clear_cache(gateway)
    assert cleared["cleared"] and cleared["removed"] >= 2
    assert rig.stats(gateway)["engines"][0]["total_entries"] == 0
    assert not complete(gateway, "Tell me a story.", model="demo")["cached"]
