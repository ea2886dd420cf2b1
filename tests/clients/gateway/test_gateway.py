"""quire serve --models: a gateway over upstream servers, some of which misbehave on purpose."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import anthropic
import openai
import pytest

import rig
from conftest import MODEL
from upstream import Upstream
from upstreams import PRICE, chat, events, gateway, over, target, targets, upstreams, words, write

ALL = [f"w{i}" for i in range(8)]
COST = "0.00000578"  # 6 × 0.00015 / 1000 + 4 × 0.00002 / 1000 + 8 × 0.0006 / 1000


# ---- what passes ---------------------------------------------------------------------------------------------


def test_whole_reply(start, tmp_path):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up], "--log-requests")
        reply = chat(server, temperature=0.5, unknown={"a": [1, 2]}, max_tokens=5)
        assert reply.status == 200
        assert reply.json()["choices"][0]["message"]["content"].split() == ALL
        assert f'"cost":{COST}' in reply.text
        assert reply.headers["x-quire-route"] == "model=m; target=t0; why=name"
        # The upstream gets what the client wrote, with its own model name, and not the client's headers.
        assert up.bodies[0] == {"model": "up-t0", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5, "unknown": {"a": [1, 2]}, "max_tokens": 5}
        assert up.path == "/v1/chat/completions"
        assert "authorization" not in up.headers[0]
        assert rig.wait_until(lambda: f"cost={COST}" in server.output())
        assert server.stop() == 0


@pytest.mark.parametrize("asks", [False, True])
def test_stream(start, tmp_path, asks):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        options = {"stream_options": {"include_usage": True}} if asks else {}
        found = events(chat(server, stream=True, **options))
        assert words(found) == ALL and found[-1] is None
        assert up.bodies[0]["stream_options"] == {"include_usage": True}
        usage = [e for e in found if e and not e["choices"]]
        assert len(usage) == asks
        if asks:
            assert usage[0]["usage"]["cost"] == float(COST)
        assert 'quire:gateway_cost_dollars_total{model="m"} ' + COST in rig.metrics(server)


def test_stream_arrives_token_by_token(start, tmp_path):
    """The upstream server sends a token once the client has the one before."""
    with upstreams(gated=True) as (up,):
        server = over(start, tmp_path, [up])
        n = 0
        up.release()
        for chunk in server.client(timeout=300).chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                n += 1
                up.release()
        assert n == 8


def test_other_routes(start, tmp_path):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        reply = server.client().embeddings.create(model="m", input="text", encoding_format="float")
        assert reply.data[0].embedding == [0.5, 0.25] and up.path == "/v1/embeddings"
        assert rig.ask(server, "/v1/nothing", {"model": "m"}).json()["error"]["code"] == "unknown_url"
        wrong = rig.ask(server, "/v1/chat/completions", method="GET")
        assert wrong.status == 405 and wrong.headers["Allow"] == "POST"
        assert rig.answered(server, "/version").json()["version"]
        assert rig.answered(server, "/health").json() == {"status": "ok", "models": {"m": "ok"}}
        assert [m.id for m in server.client().models.list()] == ["m"]
        assert server.client().models.retrieve("m").id == "m"


def test_warnings_of_an_upstream_server(start, tmp_path):
    """Only these headers pass, and only so many and so long as Quire sends them."""
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        assert chat(server).headers.get_all("x-quire-warning") is None
        long = "".join(f"x-quire-warning: field{i}: \xe9\t{'a' * 300}\r\n" for i in range(20))
        up.more_headers = "X-Quire-Warning: max_token: unknown field\r\nx-quire-route: model=other\r\nx-ratelimit-limit: 5\r\nx-quire-cache: exact\r\n" + long
        for fields in ({}, {"stream": True}):
            headers = chat(server, **fields).headers
            found = headers.get_all("x-quire-warning")
            assert found[0] == "max_token: unknown field" and len(found) == 9
            assert found[1].startswith("field0: ??aaa") and {len(text) for text in found[1:]} == {199}
            assert headers.get_all("x-quire-route") == ["model=m; target=t0; why=name"]
            assert "x-ratelimit-limit" not in headers and "x-quire-cache" not in headers


def test_warnings_of_a_quire(start, tmp_path):
    quire = start("serve", MODEL, "--port", "0", "--served-model-name", "demo")
    target = f'{{name: q, url: "http://127.0.0.1:{quire.port}/v1", model: demo}}'
    server = gateway(start, tmp_path, [f"m: {{targets: [{target}]}}"])
    for fields in ({}, {"stream": True}):
        reply = chat(server, max_tokens=4, max_token=5, **fields)
        assert reply.status == 200 and reply.headers.get_all("x-quire-warning") == ["max_token: unknown field; did you mean max_tokens?"]


def test_bad_bodies(start, tmp_path):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up], more=["limited: {targets: [" + target(up, "x") + "], max_tokens: 10}"])
        for body, status, code in [(b"", 400, "invalid_json"), (b"[1]", 400, "invalid_json"), (b'{"model":', 400, "invalid_json"), (b'{"model":7}', 400, "invalid_value"),
                                   (b'{"model":"m","model":"m"}', 400, "invalid_json"), (b'{"model":"nobody"}', 404, "model_not_found")]:
            reply = rig.ask(server, "/v1/chat/completions", body, method="POST")
            assert (reply.status, reply.json()["error"]["code"]) == (status, code), reply.text
        assert up.requests == 0
        reply = chat(server, model="limited", max_tokens=11)
        assert reply.status == 400 and reply.json()["error"]["param"] == "max_tokens" and "10" in reply.json()["error"]["message"]
        assert chat(server, model="limited", max_tokens=10).status == 200
        assert chat(server, model="limited").status == 200
        assert [b["max_tokens"] for b in up.bodies] == [10, 10]


def test_key_of_the_upstream(start, tmp_path):
    with upstreams(key="sesame") as (up,):
        models = ["m: {targets: [" + target(up, "t", api_key_env="UP_KEY") + "]}"]
        server = gateway(start, tmp_path, models, "--api-key", "client-key", environment={"UP_KEY": "sesame"})
        assert chat(server).status == 401
        client = server.client(api_key="client-key")
        assert client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}]).choices
        up.key = "other"
        with pytest.raises(openai.APIStatusError) as error:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
        assert error.value.status_code == 502 and error.value.code == "upstream_unauthorized"


def test_routes(start, tmp_path):
    with upstreams() as (up,):
        models = ["small: {targets: [" + target(up, "s") + "]}", "large: {aliases: [big], targets: [" + target(up, "l") + "]}",
                  "auto: {route: complexity, simple: small, moderate: large, complex: large}"]
        server = gateway(start, tmp_path, models)
        for text, model in [("What is two plus two?", "up-s"), ("Please analyze this in depth.", "up-l")]:
            reply = chat(server, text, model="auto")
            assert up.bodies[-1]["model"] == model
            assert "why=complexity: " in reply.headers["x-quire-route"]
        assert "why=alias" in chat(server, model="big").headers["x-quire-route"]
        assert rig.ask(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}).status == 200
        assert up.bodies[-1]["model"] == "up-s"


# ---- what goes wrong -----------------------------------------------------------------------------------------

BEFORE = {"stall": "upstream_timeout", "long_length": "upstream_cut", "short_length": "upstream_invalid_reply", "500": "upstream_error", "503": "upstream_error",
          "redirect": "upstream_redirect", "garbage": "upstream_", "html": "upstream_invalid_reply", "html_502": "upstream_error", "huge": "upstream_invalid_reply",
          "403": "upstream_unauthorized"}
BEFORE_STREAMS = {"stall": "upstream_timeout", "cut_first": "upstream_cut", "error_event": "upstream_invalid_reply", "500": "upstream_error", "redirect": "upstream_redirect",
                  "garbage": "upstream_", "html": "upstream_invalid_reply", "huge_event": "upstream_invalid_reply"}
LATER = {"cut_later": "upstream_cut", "cut_clean": "upstream_invalid_reply", "stall_later": "upstream_timeout", "garbage_event": "upstream_invalid_reply"}


def patience(mode, seconds=1):
    """Options: only a target that stalls is given up early. A machine that is busy must not make others late."""
    return ("--upstream-timeout", str(seconds)) if mode.startswith("stall") else ()


@pytest.mark.parametrize("mode", BEFORE)
def test_failure_is_an_openai_error(start, tmp_path, mode):
    with upstreams(mode=mode) as (up,):
        server = over(start, tmp_path, [up], *patience(mode))
        reply = chat(server)
        error = reply.json()["error"]
        assert reply.status in (502, 504) and error["code"].startswith(BEFORE[mode]) and error["type"] == "server_error", reply.text
        assert "t0" in error["message"]
        assert targets(server)["m", "t0"]["failed"] == 1
        rig.answered(server, "/health/live")


@pytest.mark.parametrize("mode", BEFORE_STREAMS)
def test_failure_before_the_first_token_is_an_error_status(start, tmp_path, mode):
    with upstreams(mode=mode) as (up,):
        server = over(start, tmp_path, [up], *patience(mode))
        reply = chat(server, stream=True)
        assert reply.status in (502, 504) and reply.json()["error"]["code"].startswith(BEFORE_STREAMS[mode]), reply.text
        assert targets(server)["m", "t0"]["failed"] == 1


@pytest.mark.parametrize("mode", LATER)
def test_failure_after_the_first_token_is_an_error_event(start, tmp_path, mode):
    with upstreams(mode=mode) as (up,):
        server = over(start, tmp_path, [up, up], *patience(mode, 5))
        found = events(chat(server, stream=True))
        assert words(found) == ALL[:len(words(found))] and words(found)
        assert found[-1] is None and found[-2]["error"]["code"].startswith(LATER[mode]), found
        assert up.requests == 1  # the second target is not used


@pytest.mark.parametrize("mode", [m for m in BEFORE if m != "huge"])
def test_another_target_takes_over(start, tmp_path, mode):
    with upstreams(mode=mode) as (bad,), upstreams() as (good,):
        server = over(start, tmp_path, [bad, good], *patience(mode, 5))
        for _ in range(2):
            reply = chat(server)
            assert reply.status == 200, (reply.text, targets(server))
            assert reply.json()["choices"][0]["message"]["content"].split() == ALL
        assert good.requests == 2
        assert server.metric("quire:gateway_retries_total") == bad.requests > 0


def test_drip(start, tmp_path):
    with upstreams(mode="drip") as (up,):
        server = over(start, tmp_path, [up])
        assert words(events(chat(server, stream=True))) == ALL


def test_overload_rests_and_says_when(start, tmp_path):
    with upstreams(mode="429", retry_after=60) as (up,):
        server = over(start, tmp_path, [up])
        reply = chat(server)
        assert reply.status == 429 and reply.headers["Retry-After"] == "60" and reply.json()["error"]["code"] == "rate_limit_exceeded"
        reply = chat(server)
        assert reply.status == 503 and 1 <= int(reply.headers["Retry-After"]) <= 60 and up.requests == 1
        assert targets(server)["m", "t0"]["state"] == "resting"


def test_client_errors_pass(start, tmp_path):
    with upstreams(mode="422") as (up,):
        server = over(start, tmp_path, [up, up])
        reply = chat(server)
        assert reply.status == 422 and reply.json()["error"]["message"] == "status 422" and up.requests == 1
        assert targets(server)["m", "t0"]["failed"] == 0


def test_fallbacks(start, tmp_path):
    with upstreams(mode="500") as (bad,), upstreams() as (good,):
        models = ["first: {targets: [" + target(bad, "b") + "], fallback: [second]}", "second: {targets: [" + target(good, "g") + "]}"]
        server = gateway(start, tmp_path, models)
        for bad.mode, why in [("500", "error"), ("429", "overload"), ("too_long", "context too long")]:
            reply = chat(server, model="first")
            assert reply.status == 200
            assert reply.headers["x-quire-route"] == f"model=second; target=g; why=fallback from first: {why}"
            rig.wait_until(lambda: targets(server)["first", "b"]["state"] == "up")
        good.mode = "too_long"
        reply = chat(server, model="first")
        assert reply.status == 400 and reply.json()["error"]["code"] == "context_length_exceeded"


def test_breaker_opens_and_closes(start, tmp_path):
    with upstreams(mode="500") as (up,):
        server = over(start, tmp_path, [up])
        for _ in range(3):
            chat(server)
        assert up.requests == 3 and targets(server)["m", "t0"]["breaker"] in ("open", "half_open")

        def is_open():
            """Each trial that fails doubles the time to the next one, so that these requests fit into it at last."""
            n, breaker, health, reply = up.requests, targets(server)["m", "t0"]["breaker"], rig.ask(server, "/health").status, chat(server)
            return (breaker, health, reply.status, up.requests) == ("open", 503, 503, n) and reply.json()["error"]["code"] == "target_unavailable"

        rig.wait_until(is_open)
        up.mode = "good"
        rig.wait_until(lambda: chat(server).status == 200)
        assert targets(server)["m", "t0"]["breaker"] == "closed"


def test_retries_have_a_budget(start, tmp_path):
    with upstreams(mode="500") as (one,), upstreams(mode="500") as (two,):
        server = over(start, tmp_path, [one, two])
        for _ in range(40):
            chat(server)
        assert server.metric("quire:gateway_retries_total") <= 10 + 40 / 5


# ---- connections ---------------------------------------------------------------------------------------------


def test_client_that_leaves_cancels(start, tmp_path):
    with upstreams(mode="endless") as (up,):
        server = over(start, tmp_path, [up])
        stream = rig.stream(server, "/v1/chat/completions", {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]})
        stream.read(1000)
        stream.close()
        rig.wait_until(lambda: up.gone == 1)
        rig.wait_until(lambda: targets(server)["m", "t0"]["cancelled"] == 1 and targets(server)["m", "t0"]["running"] == 0)


def test_slow_client_slows_the_upstream(start, tmp_path):
    with upstreams(mode="endless") as (up,):
        server = over(start, tmp_path, [up])
        connection = server.connect()
        body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        connection.recv(1000)
        last = 0
        while last != up.sent or up.sent < 100_000:  # until nothing moves
            last = up.sent
            time.sleep(2)
        assert up.sent < 30 << 20
        data, seen = b"", up.sent
        while up.sent < seen + (4 << 20):  # it goes on
            data = connection.recv(1 << 20)
            assert data
        connection.close()


def test_reload_keeps_streams_and_states(start, tmp_path):
    with upstreams(gated=True) as (up,), upstreams() as (other,):
        server = over(start, tmp_path, [up])
        found = []
        thread = threading.Thread(target=lambda: found.extend(events(chat(server, stream=True))))
        thread.start()
        rig.wait_until(lambda: up.requests == 1)
        write(tmp_path, ["m: {targets: [" + target(up, "t0") + "]}", "n: {targets: [" + target(other, "t0") + "]}"])
        server.process.send_signal(signal.SIGHUP)
        rig.wait_until(lambda: len(rig.answered(server, "/v1/models").json()["data"]) == 2)
        assert targets(server)["m", "t0"]["running"] == 1
        assert chat(server, model="n").status == 200
        up.release(len(ALL))
        thread.join()
        assert words(found) == ALL
        rig.wait_until(lambda: targets(server)["m", "t0"]["answered"] == 1)
        write(tmp_path, ["m: {targets: [], nonsense: 1}"])
        server.process.send_signal(signal.SIGHUP)
        rig.wait_until(lambda: "the models are unchanged" in server.output())
        assert chat(server, model="n").status == 200


def test_drain(start, tmp_path):
    with upstreams(gated=True) as (up,):
        server = over(start, tmp_path, [up])
        found = []
        thread = threading.Thread(target=lambda: found.extend(events(chat(server, stream=True))))
        thread.start()
        rig.wait_until(lambda: up.requests == 1)
        server.process.send_signal(signal.SIGTERM)
        rig.wait_until(lambda: "finishing running requests" in server.output(), server.output)
        up.release(len(ALL))
        assert server.process.wait(300) == 0
        thread.join()
        assert words(found) == ALL


# ---- no token twice ------------------------------------------------------------------------------------------

MODES = ["good"] * 20 + ["drip", "cut_first", "cut_later", "cut_clean", "500", "garbage", "garbage_event", "error_event", "html"]


def test_no_token_is_duplicated(start, tmp_path):
    """Whatever three upstream servers do, a stream is a beginning of the answer: each token once, in order."""
    rng = random.Random(1)
    plan = [rng.choice(MODES) for _ in range(5000)]
    with upstreams(3) as servers:
        for i, up in enumerate(servers):
            up.mode = lambda n, i=i: plan[(3 * n + i) % len(plan)]
        server = over(start, tmp_path, servers)
        results, errors = [], []

        def visit(k):
            try:
                until = time.monotonic() + 120
                while (results.count(8) < 200 or len(set(results)) <= 3) and time.monotonic() < until:
                    reply = chat(server, stream=bool(k % 4))
                    if reply.status != 200:
                        results.append(None)
                        assert reply.json()["error"]["code"]
                        time.sleep(0.1)
                    elif k % 4:
                        found = events(reply)
                        got = words(found)
                        results.append(len(got))
                        assert got == ALL[:len(got)], got
                        assert found[-1] is None
                        assert got == ALL or found[-2]["error"]["message"], found
                    else:
                        assert reply.json()["choices"][0]["message"]["content"].split() == ALL
            except AssertionError as error:
                errors.append(error)

        threads = [threading.Thread(target=visit, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors[0]
        assert results.count(8) >= 50 and len(set(results)) > 3, results
        rig.wait_until(lambda: all(t["running"] == 0 and t["outstanding"] == 0 for t in targets(server).values()))


PROGRAM = """
import sys, time
sys.path.insert(0, {here!r})
from upstream import Upstream
up = Upstream(port={port}, words=20, delay=0.01)
while True: time.sleep(1)
"""


def begin_upstream(port):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM.format(here=os.path.dirname(__file__), port=port)])
    rig.wait_until(lambda: _answers(port))
    return process


def _answers(port):
    try:
        return rig.ask(f"http://127.0.0.1:{port}", "/v1/models").status == 200
    except OSError:
        return False


def test_killed_upstream(start, tmp_path):
    """One of four upstream servers is killed with -9 under load, and comes back."""
    ports = [rig.free_port() for _ in range(4)]
    processes = [begin_upstream(port) for port in ports]
    listed = ", ".join(f'{{name: t{i}, url: "http://127.0.0.1:{port}/v1"}}' for i, port in enumerate(ports))
    server = gateway(start, tmp_path, [f"m: {{targets: [{listed}]}}"])
    stop, bad, broken, done = threading.Event(), [], [], []

    def visit():
        while not stop.is_set():
            reply = chat(server, stream=True)
            found = events(reply) if reply.status == 200 else []
            got = words(found)
            if reply.status != 200 or not got:
                bad.append(reply.text)
            elif got != [f"w{i}" for i in range(20)]:
                broken.append(found[-2]["error"]["code"])
            else:
                done.append(time.monotonic())

    threads = [threading.Thread(target=visit) for _ in range(12)]
    try:
        for thread in threads:
            thread.start()
        rig.wait_until(lambda: len(done) > 60)
        processes[0].kill()
        processes[0].wait()
        n = len(done)
        rig.wait_until(lambda: len(done) > n + 100)
        processes[0] = begin_upstream(ports[0])
        before = targets(server)["m", "t0"]["answered"]
        rig.wait_until(lambda: targets(server)["m", "t0"]["answered"] > before + 5)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for process in processes:
            process.kill()
            process.wait()
    assert not bad, bad[0]
    assert len(broken) <= 12 and set(broken) <= {"upstream_cut"}, broken


# ---- engines -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    from conftest import Server
    path = tmp_path_factory.mktemp("engines")
    file = write(path, [f'demo: {{aliases: [tiny], targets: [{{model: "{MODEL}", options: {{threads: 1, max-model-len: 1024}}}}], {PRICE}}}'])
    server = Server("serve", "--models", file, "--port", "0")
    yield server
    assert server.stop() == 0, server.output()


def test_engine_has_the_bits_of_quire_serve(engines, server):
    for fields in [{"temperature": 0}, {"seed": 7, "temperature": 1}]:
        bodies = [chat(s, "Tell me a story", model="demo", max_tokens=40, **fields).json() for s in (engines, server)]
        assert bodies[0]["choices"] == bodies[1]["choices"]


def test_models_say_whether_engines_have_a_template(engines, start, tmp_path):
    assert [m["has_chat_template"] for m in rig.answered(engines, "/v1/models").json()["data"]] == [True, True]
    plain = tmp_path / "plain"
    shutil.copytree(MODEL, plain)
    config = json.loads((plain / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (plain / "tokenizer_config.json").write_text(json.dumps(config))
    with upstreams() as (up,):
        server = gateway(start, tmp_path, [
            f'plain: {{targets: [{{model: "{plain}"}}, {target(up, "t0")}]}}',
            f'both: {{targets: [{{model: "{MODEL}", name: a}}, {{model: "{plain}", name: b}}]}}',
            f'far: {{targets: [{target(up, "t0")}]}}'])
        models = {m["id"]: m.get("has_chat_template") for m in rig.answered(server, "/v1/models").json()["data"]}
        assert models == {"plain": False, "both": False, "far": None}
        assert rig.answered(server, "/v1/models/plain").json()["has_chat_template"] is False


def test_engine_with_clients(engines):
    reply = engines.client().chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}], max_tokens=8)
    assert reply.model == "demo" and reply.usage.cost > 0
    client = anthropic.Anthropic(base_url=engines.url, api_key="none", max_retries=0)
    message = client.messages.create(model="demo", max_tokens=8, messages=[{"role": "user", "content": "Hi"}])
    assert message.content[0].text and message.usage.output_tokens
    with client.messages.stream(model="demo", max_tokens=8, messages=[{"role": "user", "content": "Hi"}]) as stream:
        assert "".join(stream.text_stream)
    assert client.messages.count_tokens(model="demo", messages=[{"role": "user", "content": "Hi"}]).input_tokens > 0
    assert engines.client().responses.create(model="demo", input="Hi", max_output_tokens=8).output_text
    assert rig.answered(engines, "/tokenize", {"model": "demo", "prompt": "hello"}).json()["count"] == 2


def test_engine_errors_pass(engines):
    reply = chat(engines, model="demo", temperature=-1)
    assert reply.status == 400 and reply.json()["error"]["param"] == "temperature"
    reply = chat(engines, "word " * 3000, model="demo")
    assert reply.status == 400 and reply.json()["error"]["code"] == "context_length_exceeded"


def test_reload_keeps_an_engine(start, tmp_path):
    line = f'{{targets: [{{model: "{MODEL}", options: {{threads: 1}}}}]}}'
    server = gateway(start, tmp_path, [f"m: {line}"], "--log-requests")
    answer = chat(server, max_tokens=8, temperature=0).json()["choices"]
    assert "connections are accepted" not in server.output()
    with upstreams() as (up,):
        write(tmp_path, [f"m: {line}", "n: {targets: [" + target(up, "t") + "]}"])
        server.process.send_signal(signal.SIGHUP)
        rig.wait_until(lambda: "was reloaded" in server.output())
        assert chat(server, max_tokens=8, temperature=0).json()["choices"] == answer
        assert chat(server, model="n").status == 200
        assert server.output().count("is ready after") == 1


def test_engine_that_is_wrong(start, tmp_path):
    file = write(tmp_path, [f'm: {{targets: [{{model: "{MODEL}", options: {{port: 1}}}}]}}'])
    with pytest.raises(RuntimeError, match=r"models.yaml:2:\d+: model m: target .*port"):
        start("serve", "--models", file, "--port", "0")


def test_engine_without_tokenizer(start, tmp_path):
    file = write(tmp_path, ['m: {targets: [{engine: "unix:/nowhere"}]}'])
    with pytest.raises(RuntimeError, match=r"models.yaml:2:\d+: model m: .*tokenizer"):
        start("serve", "--models", file, "--port", "0")


def test_new_engine_in_the_process_needs_a_restart(start, tmp_path):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        write(tmp_path, [f'n: {{targets: [{{model: "{MODEL}"}}]}}'])
        server.process.send_signal(signal.SIGHUP)
        rig.wait_until(lambda: "needs a restart" in server.output())
        assert chat(server).status == 200


def test_engine_elsewhere(start, tmp_path):
    socket = tmp_path / "engine.sock"
    engine = start("engine", MODEL, "--listen", f"unix:{socket}", wait_for=r"ready|listening|serving")
    server = gateway(start, tmp_path, [f'm: {{tokenizer: "{MODEL}", targets: [{{engine: "unix:{socket}"}}]}}'])
    rig.wait_until(lambda: chat(server, max_tokens=4).status == 200)
    assert chat(server, max_tokens=4, stream=True).status == 200
    engine.stop(signal.SIGKILL)
    assert chat(server, max_tokens=4).status == 503
