"""What neither a client nor an upstream server may get from a gateway: keys, budgets, routes of engines, its time and memory."""

import asyncio
import json
import socket
import time

import pytest

import rig
from conftest import MODEL
from upstream import Upstream
from upstreams import PRICE, chat, events, gateway, over, target, targets, upstreams, words

KEY = "sk-upstream/secret-0123456789"


class Hostile(Upstream):
    """answer: bytes of an error; escaped or not."""

    error, status, size = b"", 400, 0

    async def do_error(self, writer, asked):
        self.reply(writer, self.status, self.error)
        await writer.drain()

    async def do_error_in_stream(self, writer, asked):
        self.stream_head(writer)
        await self.event(writer, self.chunk({"content": "w0 "}))
        await self.event(writer, self.error.decode())
        writer.write(b"0\r\n\r\n")

    async def do_talks_on(self, writer, asked):
        """A whole answer, and then more of it for ever."""
        self.stream_head(writer)
        await self.event(writer, self.chunk({"content": "w0 "}))
        await self.event(writer, self.chunk({}, "stop"))
        await self.event(writer, "[DONE]")
        while True:
            await self.event(writer, self.chunk({"content": "more "}))
            await self.event(writer, "[DONE]")
            await asyncio.sleep(0.02)

    async def do_no_stream(self, writer, asked):
        return await self.do_good(writer, {**asked, "stream": False})

    async def do_usage(self, writer, asked):
        reply = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * 400}, "finish_reason": "stop"}]}
        self.reply(writer, 200, {**reply, "usage": self.said} if self.said is not None else reply)
        await writer.drain()

    async def do_large(self, writer, asked):
        self.reply(writer, 200, b'{"choices":[],"a":"' + b"x" * self.size + b'"}')
        await writer.drain()


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
@pytest.mark.parametrize("escaped", [False, True])
def test_key_of_an_upstream_server_that_quotes_it(start, tmp_path, status, escaped):
    up = Hostile(mode="error")
    try:
        up.status, up.error = status, json.dumps({"error": {"message": f"wrong key {KEY}", "code": "invalid_api_key"}}).encode()
        if escaped:
            up.error = up.error.replace(b"/", b"\\/")
        server = gateway(start, tmp_path, ["m: {targets: [" + target(up, "t", api_key_env="KEY") + "]}"], "--log-requests", environment={"KEY": KEY})
        reply = chat(server)
        assert up.headers[0]["authorization"] == f"Bearer {KEY}"
        assert reply.status >= 400 and "wrong key ***" in reply.json()["error"]["message"]
        up.mode = "error_in_stream"
        if status == 429:
            time.sleep(1.1)  # the target rests
        found = events(chat(server, stream=True))
        assert "wrong key ***" in found[-2]["error"]["message"]
        assert KEY not in server.output()
    finally:
        up.close()


@pytest.mark.parametrize("status, said, code", [(422, b'{"detail": [{"msg": "wrong"}]}', None), (400, b"<html>", "upstream_rejected"), (413, b"", "upstream_rejected")])
def test_client_at_fault_opens_no_breaker(start, tmp_path, status, said, code):
    """Servers that are not OpenAI's reject a request in forms of their own."""
    up = Hostile(mode="error")
    try:
        up.status, up.error = status, said
        server = over(start, tmp_path, [up])
        for _ in range(5):
            reply = chat(server)
            assert reply.status == status
            assert reply.json()["error"]["code"] == code if code else reply.body == said
        assert targets(server)["m", "t0"]["breaker"] == "closed"
    finally:
        up.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("stream", [1, "true", [], {}])
def test_stream_is_true_or_false(start, tmp_path, path, stream):
    """A target that takes 1 for true would send a stream that nobody expects, and seem to fail."""
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        reply = rig.ask(server, path, {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "stream": stream})
        assert reply.status == 400 and "stream" in reply.json()["error"]["message"] and up.requests == 0


def test_target_without_the_route(start, tmp_path):
    up = Hostile(mode="error")
    try:
        with upstreams() as (other,):
            up.status, up.error = 404, b'{"detail": "Not Found"}'
            server = over(start, tmp_path, [up, other])
            assert [chat(server).status for _ in range(6)] == [200] * 6
            assert targets(server)["m", "t0"]["breaker"] == "closed" and up.requests >= 3
            alone = over(start, tmp_path, [up])
            assert [chat(alone).status for _ in range(5)] == [404] * 5
    finally:
        up.close()


def test_nothing_follows_the_end(start, tmp_path):
    up = Hostile(mode="talks_on")
    try:
        server = over(start, tmp_path, [up])
        begun = time.monotonic()
        found = events(chat(server, stream=True))
        assert words(found) == ["w0"] and found.count(None) == 1 and found[-1] is None
        assert time.monotonic() - begun < 250  # it would go on for ever
    finally:
        up.close()


def test_whole_reply_to_a_stream(start, tmp_path):
    """Also after a ping, when the client's stream has begun."""
    up = Hostile(mode="no_stream")
    try:
        server = over(start, tmp_path, [up])
        reply = chat(server, stream=True)
        assert reply.status == 502 and "no stream" in reply.json()["error"]["message"]
        up.gated = True
        with rig.stream(server, "/v1/chat/completions", {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}) as stream:
            ping = stream.readline()  # after 15 s
            up.release()
            found = events(rig.Reply(200, stream.headers, ping + stream.read()))
        assert ping.startswith(b":") and "no stream" in found[-2]["error"]["message"] and found[-1] is None
    finally:
        up.close()


@pytest.mark.parametrize("said", [None, {}, [], {"prompt_tokens": 1e30, "completion_tokens": -5}, {"prompt_tokens": "12", "completion_tokens": "7"}])
def test_answer_without_usage_has_a_cost(start, tmp_path, said):
    up = Hostile(mode="usage")
    up.said = said
    try:
        server = over(start, tmp_path, [up])
        assert chat(server, "word " * 100).status == 200
        total = rig.answered(server, "/usage").json()["total"]
        assert 100 < total["input_tokens"] < 250 and 100 < total["output_tokens"] < 250
    finally:
        up.close()


def test_both_names_of_a_limit_count(start, tmp_path):
    with upstreams() as (up,):
        server = gateway(start, tmp_path, ["m: {max_tokens: 100, targets: [" + target(up, "t") + "]}"])
        for name, other in [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")]:
            reply = chat(server, **{name: 5, other: 101})
            assert reply.status == 400 and reply.json()["error"]["param"] == other
            assert chat(server, **{name: 5, other: "100000"}).status == 200
            assert (up.bodies[-1][name], up.bodies[-1][other]) == (5, 100)


def test_fallback_costs_no_budget_that_is_used_up(start, tmp_path):
    with upstreams(2) as (free, paid):
        free.mode = "500"
        server = gateway(start, tmp_path, ["free: {targets: [" + target(free, "f") + "], fallback: [paid]}", "paid: {targets: [" + target(paid, "p") + "], " + PRICE + "}"])
        key = rig.answered(server, "/admin/keys", {"name": "x", "budget": "0.000001"}).json()["key"]
        say = {"messages": [{"role": "user", "content": "Hi"}]}
        ask = lambda model: rig.ask(server, "/v1/chat/completions", {**say, "model": model}, headers={"Authorization": f"Bearer {key}"})
        assert ask("free").status == 200 and paid.requests == 1
        assert ask("paid").status == 429
        assert ask("free").status == 502
        assert paid.requests == 1


def test_admin_is_a_client_on_this_machine(start, tmp_path):
    """Not one that a proxy on this machine serves, and no page whose name resolves to it."""
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        rig.answered(server, "/admin/keys", {"name": "first"})
        for headers in [{"Host": "evil.example"}, {"X-Forwarded-For": "192.0.2.1"}, {"Forwarded": "for=192.0.2.1"}, {"X-Real-IP": "192.0.2.1"}, {"Via": "1.1 proxy"}]:
            assert rig.ask(server, "/admin/keys", headers=headers).status == 401, headers
        assert rig.ask(server, "/admin/keys", headers={"Host": "localhost"}).status == 200


@pytest.mark.parametrize("path", ["/v1/responses/../../metrics", "/v1/responses/%2e%2e/%2e%2e/metrics", "/v1/responses/..%2f..%2fmetrics", "/v1/responses/x%3Fa=b", "/v1/responses/./x"])
def test_key_reaches_no_other_route_of_an_engine(start, tmp_path, path):
    server = gateway(start, tmp_path, [f'e: {{targets: [{{model: "{MODEL}", options: {{threads: 1}}}}]}}'])
    reply = rig.ask(server, path)
    assert reply.status == 404 and reply.json()["error"]["code"] == "unknown_url", reply.text


def test_replies_that_nobody_reads(start, tmp_path):
    """They count until their clients take them or go."""
    up = Hostile(mode="large")
    up.size = 60 << 20
    try:
        server = over(start, tmp_path, [up], "--write-timeout", 3600)  # the server keeps all of them until the last one
        body = json.dumps({"model": "m", "messages": []}).encode()
        request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        clients = []
        for i in range(8):
            clients.append(server.connect())
            clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            clients[-1].sendall(request)
            rig.wait_until(lambda: targets(server)["m", "t0"]["answered"] == i + 1, seconds=180)
        reply = chat(server)
        assert reply.status == 503 and "too many large replies" in reply.json()["error"]["message"]
        # No other client suffers: small replies pass, and the target has not failed.
        up.mode = "good"
        assert chat(server).status == 200
        assert targets(server)["m", "t0"]["failed"] == 0
        up.mode = "large"
        for client in clients:
            client.close()
        rig.wait_until(lambda: chat(server).status == 200)
    finally:
        up.close()
