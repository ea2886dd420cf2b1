"""Spans as an OpenTelemetry collector receives them: OTLP over HTTP, JSON."""

import http.server
import json
import socket
import threading
import time

import pytest

import rig
from conftest import ALWAYS_GUESSES, MODEL
from rig import wait_until
from test_embeddings import model

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Collector:
    """Accepts posted data and returns `status`."""

    def __init__(self, port=0, status=200):
        self.posts, self.status = [], status
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [span for _, _, body in self.posts for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]


@pytest.fixture
def collector():
    c = Collector()
    yield c
    c.close()


def attributes(span):
    def value(v):
        [(kind, x)] = v.items()
        assert {"stringValue": str, "intValue": str, "doubleValue": (int, float), "boolValue": bool}[kind], kind
        assert isinstance(x, {"doubleValue": (int, float), "boolValue": bool}.get(kind, str)), v
        return int(x) if kind == "intValue" else x
    assert len({a["key"] for a in span["attributes"]}) == len(span["attributes"])
    return {a["key"]: value(a["value"]) for a in span["attributes"]}


def ask(client, *, headers=None, body={}, **fields):
    return client.completions.create(**{"model": "model", "prompt": "Once upon a time", "max_tokens": 6, **fields},
                                     extra_headers=headers or {}, extra_body={"ignore_eos": True, **body})


def test_a_request_is_a_span_of_the_caller_s_trace(start, collector):
    server = start("serve", MODEL, "--port", "0", "--otlp-endpoint", collector.url, "--log-requests", "--max-model-len", "1024",
                   *ALWAYS_GUESSES)
    before = time.time_ns()
    ask(server.client(), n=2, temperature=0.5, headers={"traceparent": PARENT, "tracestate": "rojo=1,congo=2", "x-request-id": "r1"},
        body={"prediction": {"type": "content", "content": " zebra" * 9}})
    wait_until(collector.spans)
    after = time.time_ns()
    [(path, content_type, body)] = collector.posts
    assert path == "/v1/traces" and content_type == "application/json"
    resource = {a["key"]: a["value"]["stringValue"] for a in body["resourceSpans"][0]["resource"]["attributes"]}
    assert resource["service.name"] == "quire" and resource["service.version"]
    spans = {span["name"]: span for span in collector.spans()}
    assert list(spans) == ["llm_request", "text", "queue", "prefill", "decode"]
    root = spans.pop("llm_request")
    assert root["kind"] == 2 and root["parentSpanId"] == SPAN and root["traceState"] == "rojo=1,congo=2"
    assert "status" not in root
    ids = {root["spanId"]}
    at = begin = int(root["startTimeUnixNano"])
    end = int(root["endTimeUnixNano"])
    assert before - 10**7 <= begin <= end <= after + 10**7
    for span in spans.values():
        assert span["kind"] == 1 and span["traceId"] == root["traceId"] == TRACE
        assert span["parentSpanId"] == root["spanId"] and len(span["spanId"]) == 16
        assert at == int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= end, span["name"]
        at = int(span["endTimeUnixNano"])
        ids.add(span["spanId"])
    assert len(ids) == 5
    a = attributes(root)
    assert a["gen_ai.request.id"] == "r1" and a["gen_ai.response.model"] == "model"
    assert a["gen_ai.request.n"] == 2 and a["gen_ai.request.max_tokens"] == 6 and a["gen_ai.request.temperature"] == 0.5
    assert a["quire.draft_tokens"] > 0 <= a["quire.accepted_tokens"]
    assert a["gen_ai.usage.prompt_tokens"] == 4 and a["gen_ai.usage.completion_tokens"] == 12
    assert a["http.response.status_code"] == 200 and a["http.route"] == "/v1/completions" and a["quire.tenant"] == "default"
    length = {name: (int(s["endTimeUnixNano"]) - int(s["startTimeUnixNano"])) / 1e9 for name, s in spans.items()}
    assert a["gen_ai.latency.e2e"] == pytest.approx((end - begin) / 1e9, abs=1e-5)
    assert a["gen_ai.latency.time_in_queue"] == pytest.approx(length["queue"], abs=1e-5)
    assert a["gen_ai.latency.time_in_model_prefill"] == pytest.approx(length["prefill"], abs=1e-5)
    assert a["gen_ai.latency.time_in_model_decode"] == pytest.approx(length["decode"], abs=1e-5)
    assert a["gen_ai.latency.time_in_model_inference"] == pytest.approx(length["prefill"] + length["decode"], abs=1e-5)
    assert a["gen_ai.latency.time_to_first_token"] == pytest.approx(
        length["text"] + length["queue"] + length["prefill"], abs=1e-5)
    assert "Once upon" not in json.dumps(body)
    wait_until(lambda: f"trace_id={TRACE}" in server.output())
    wait_until(lambda: server.metric("quire:otlp_spans_exported_total") == 5)
    assert server.metric("quire:otlp_spans_dropped_total") == 0


def test_who_begins_a_trace_and_who_is_not_traced(start, collector):
    server = start("serve", MODEL, "--port", "0", "--otlp-endpoint", collector.url + "/")
    client = server.client()
    ask(client, headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})  # the caller does not sample
    ask(client, headers={"traceparent": PARENT.upper(), "tracestate": "a=1"})  # malformed: treated as missing
    ask(client)
    with pytest.raises(Exception, match="max_tokens"):
        ask(client, max_tokens=10**6)
    wait_until(lambda: sum(s["name"] == "llm_request" for s in collector.spans()) == 3)
    assert server.stop() == 0
    roots = [s for s in collector.spans() if s["name"] == "llm_request"]
    assert len(roots) == 3 and len({s["traceId"] for s in roots}) == 3 and TRACE not in {s["traceId"] for s in roots}
    for root in roots:
        assert len(root["traceId"]) == 32 and "parentSpanId" not in root and "traceState" not in root
    assert attributes(roots[2])["http.response.status_code"] == 400
    assert "gen_ai.latency.time_to_first_token" not in attributes(roots[2])


def test_a_collector_that_is_away_is_no_reason_to_wait(start):
    port = rig.free_port()
    server = start("serve", MODEL, "--port", "0", "--otlp-endpoint", f"http://127.0.0.1:{port}/own/path")
    client = server.client()
    ask(client)
    wait_until(lambda: server.metric("quire:otlp_spans_dropped_total") == 5)
    ask(client)
    wait_until(lambda: server.metric("quire:otlp_spans_dropped_total") == 10)
    collector = Collector(port, status=503)
    ask(client)
    wait_until(lambda: server.metric("quire:otlp_spans_dropped_total") == 15)
    assert server.output().count("spans are dropped") == 1
    collector.status = 202
    ask(client)
    wait_until(lambda: server.metric("quire:otlp_spans_exported_total") == 5)
    wait_until(lambda: "takes spans again" in server.output())
    assert collector.posts[-1][0] == "/own/path"
    collector.close()


def test_what_is_left_is_sent_at_the_end_and_a_dead_collector_does_not_hold_it_up(start, collector):
    server = start("serve", MODEL, "--port", "0", "--otlp-endpoint", collector.url)
    ask(server.client())
    assert server.stop() == 0 and len(collector.spans()) == 5
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, never replies
        server = start("serve", MODEL, "--port", "0", "--otlp-endpoint", "http://127.0.0.1:%d" % silent.getsockname()[1])
        ask(server.client())
        assert server.stop() == 0


def test_a_url_that_is_none(start):
    with pytest.raises(RuntimeError, match="must be a URL"):
        start("serve", MODEL, "--port", "0", "--otlp-endpoint", "localhost:4318")


def test_each_lookup_of_an_answer_is_shown(start, collector, tmp_path):
    """In quire_trace and as spans: a new question, the same one from memory, a similar one, the same words."""
    tiny = model(tmp_path / "tiny", "bert_mean")
    server = start("serve", MODEL, "--port", "0", "--otlp-endpoint", collector.url, "--semantic-cache", tiny, "--semantic-threshold", "0.3",
                   "--response-cache", f"sqlite:{tmp_path / 'answers.db'}", "--response-cache-entries", "8", *ALWAYS_GUESSES)
    client = server.client()

    expected = []

    def chat(text, **fields):
        return client.chat.completions.create(model="model", messages=[{"role": "user", "content": text}], max_tokens=60, temperature=0,
                                              extra_body={"ignore_eos": True, **fields})

    def looked(text, **fields):
        trace = chat(text, quire_trace=True, **fields).model_extra["quire_trace"]
        at = 0
        for l in trace["lookups"]:
            assert list(l) == ["layer", "at_ms", "ms", "hit"] and at <= l["at_ms"] and 0 <= l["ms"], trace
            at = l["at_ms"] + l["ms"] - 0.001  # as rounded
        assert at <= trace["total_ms"], trace
        expected.append([(l["layer"], l["hit"]) for l in trace["lookups"]])
        return expected[-1]

    def looked_until(want, text):
        """The vector may come before the end of the computation or after it: the request is repeated, without
        caching, until it did."""
        def has_come():
            got = looked(text, cache={"no_store": True})
            assert got == want[:len(got)] or got[-1] == ("embedding", False), got  # it took longer than it may
            return got == want

        wait_until(has_come, want)

    new = [("memory", False), ("sqlite", False)]
    looked_until([*new, ("embedding", True), ("similar", False)], "tell me about the sun")
    before = [("memory", False), ("beginning", False), ("sqlite", False)]
    assert looked("tell me about the sun")[:3] == before
    assert looked("tell me about the sun") == [("memory", True)]
    stats = lambda: rig.stats(server)
    wait_until(lambda: stats()["layers"]["semantic"]["entries"] == 1)
    looked_until([*new, ("embedding", True), ("similar", True), ("memory", True)], "explain the sun")
    assert looked("explain the sun", cache={"no_cache": True}) == []
    chat("what is rain")
    chat("what is rain")

    def lookups():
        roots = [s for s in collector.spans() if s["name"] == "llm_request"]
        return [[s for s in collector.spans() if s["name"] == "lookup" and s["parentSpanId"] == root["spanId"]] for root in roots]

    wait_until(lambda: len(lookups()) == len(expected) + 2)
    said = [[(attributes(s)["quire.layer"], attributes(s)["quire.hit"]) for s in spans] for spans in lookups()]
    assert said[:-2] == expected
    assert said[-2][:4] == [("reply", False), *before] and said[-1] == [("reply", True)]
    roots = [s for s in collector.spans() if s["name"] == "llm_request"]
    for root, spans in zip(roots, lookups()):
        at = int(root["startTimeUnixNano"])
        asked = at  # the search for a similar question comes after that
        for s in spans:
            assert at <= int(s["startTimeUnixNano"]) < int(s["endTimeUnixNano"]) <= int(root["endTimeUnixNano"]) + 1000
            at = int(s["endTimeUnixNano"])
            asked = at if attributes(s)["quire.layer"] in ("reply", "beginning", "sqlite") else asked
        [admission] = [s for s in collector.spans() if s["name"] == "queue" and s["parentSpanId"] == root["spanId"]] or [None]
        assert admission is None or int(admission["startTimeUnixNano"]) + 1000 >= asked
        assert admission is None or attributes(admission) == {"quire.cached_tokens": attributes(root)["quire.cached_tokens"]}
