"""Schemas and grammars that are rejected: which error, and in which time. Other requests do not notice them."""

import json
import threading
import time

import pytest
import requests
import rig

from test_structured import CHAT, ROUTES, SMALL, ask, body_of, in_form, schema_of

BAD = [
    (ROUTES[0], {"response_format": {"type": "json_schema", "json_schema": {"schema": {"properties": {"a": {"type": "array", "uniqueItems": True}}}}}},
     "response_format.json_schema.schema: /properties/a/uniqueItems: "),
    (ROUTES[0], {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}}, "response_format.json_schema.schema: /type: "),
    (ROUTES[0], {"structured_outputs": {"regex": "a("}}, "structured_outputs.regex: regular expression: character 2: "),
    (ROUTES[0], {"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice: conflicts with structured_outputs.regex"),
    (ROUTES[0], {"structured_outputs": {"regexp": "a"}}, 'structured_outputs: has no member "regexp"'),
    (ROUTES[0], {"structured_outputs": {}}, "structured_outputs: needs one of "),
    (ROUTES[0], {"guided_json": "{"}, "guided_json: is not valid JSON: "),
    (ROUTES[0], {"guided_grammar": "root ::= x"}, "guided_grammar: line 1, column 10: "),
    (ROUTES[1], {"grammar": 'root ::= root "a"'}, "grammar: "),
    (ROUTES[2], {"text": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "text.format.schema: /: no value satisfies the schema"),
    (ROUTES[3], {"output_format": {"type": "json_schema", "schema": {"$ref": "#/x"}}}, "output_format.schema: "),
    (ROUTES[3], {"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema: is missing"),
]


@pytest.mark.parametrize("route,fields,message", BAD, ids=[json.dumps(b[1])[:50] for b in BAD])
def test_errors_name_the_field_and_the_place(server, route, fields, message):
    for _ in range(2):  # compiled, and then cached
        status, error = ask(server, route, **fields)
        assert status == 400 and error["type"] == "invalid_request_error", error
        assert error["message"].startswith(message)
        assert route == ROUTES[3] or error["param"] == message.split(":")[0]


def deep(n):
    return '{"not":' * n + "{}" + "}" * n


HOSTILE = {
    "2 MB": {"json": {"enum": ["x" * 1000 + str(i) for i in range(2000)]}},
    "20,000 properties": {"json": {"properties": {f"p{i}": {"type": "string"} for i in range(20000)}}},
    "10,000 branches": {"json": {"anyOf": [{"properties": {f"k{i}": {"const": i}}, "required": [f"k{i}"]} for i in range(10000)]}},
    "10,000 parts": {"json": {"allOf": [{"properties": {f"k{i}": {"type": "integer"}}} for i in range(10000)]}},
    "1,000 deep": {"json": deep(1000)},
    "reference to itself": {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}},
    "endless object": {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}}}},
    "exponential pattern": {"json": {"type": "string", "pattern": "^(a?){1000}a{1000}$"}},
    "look-around": {"regex": "(?=a)b"},
    "long string": {"json": {"type": "string", "minLength": 1000000}},
    "long array": {"json": {"type": "array", "minItems": 1000000}},
    "long choice": {"choice": ["c" * 500000]},
    "20,000 choices": {"choice": [f"c{i}" for i in range(20000)]},
    "left recursion": {"grammar": 'root ::= root "a"'},
    "30 patterns": {"json": {"type": "string", "allOf": [{"pattern": "[ab]*a[ab]{%d}c" % i} for i in range(10, 40)]}},  # hours
    "long repetition": {"grammar": "root ::= [a-z]{1,1000000}"},
}


@pytest.fixture
def plain_stream(server):
    """Longest silence in a stream without a grammar, up to the test's end."""
    gaps, over = [], threading.Event()

    def run():
        while not over.is_set():
            fields = {"messages": CHAT, "model": "demo", "max_tokens": 500, "ignore_eos": True, "stream": True}
            last = time.monotonic()
            for _ in requests.post(server.url + ROUTES[0], json=fields, stream=True, timeout=300).iter_lines():
                gaps.append(time.monotonic() - last)
                last = time.monotonic()
                if over.is_set():
                    return

    thread = threading.Thread(target=run)
    thread.start()
    while not gaps:
        time.sleep(0.01)
    yield gaps
    over.set()
    thread.join()


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_grammars_end_in_bounded_time(server, plain_stream, what):
    begun, n_before = time.monotonic(), len(plain_stream)
    status, error = ask(server, ROUTES[0], structured_outputs=HOSTILE[what])
    took, n = time.monotonic() - begun, len(plain_stream) - n_before
    assert status == 400 and error["message"].startswith("structured_outputs."), error
    assert took < 250  # ask() waits 300 s; a grammar has 5
    assert took < 1 or n >= 10, f"the other stream had {n} lines in {took:.1f} s"


def test_invalid_utf8_in_a_grammar(server):
    body = json.dumps(body_of(ROUTES[0], guided_regex="aXb")).encode().replace(b"aXb", b"a\xff\xfeb")
    reply = requests.post(server.url + ROUTES[0], data=body, headers={"Content-Type": "application/json"}, timeout=300)
    assert reply.status_code == 400 and "UTF-8" in reply.json()["error"]["message"]


def test_clients_that_leave_while_their_grammar_is_compiled(server):
    before = server.metric("quire:grammar_cache_misses_total")
    for i in range(20):
        body = json.dumps(body_of(ROUTES[0], structured_outputs={"json": {"anyOf": [
            {"properties": {f"k{j}": {"const": i}}, "required": [f"k{j}"]} for j in range(3000 + i)]}})).encode()
        with server.connect() as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.02)
    status, text = ask(server, ROUTES[0], **in_form(ROUTES[0], SMALL))
    assert status == 200, text
    schema_of(text, SMALL)
    assert server.metric("quire:grammar_cache_misses_total") > before
    rig.wait_until(lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 0)


def test_counters(server):
    def read():
        names = ("cache_hits_total", "cache_misses_total", "rejected_total", "compile_seconds_count", "masks_total")
        return [server.metric("quire:grammar_" + name) for name in names]

    before = read()
    new = {"guided_regex": f"k{time.monotonic_ns()}[ab]"}
    assert ask(server, ROUTES[0], **new)[0] == 200 and ask(server, ROUTES[0], **new)[0] == 200
    assert ask(server, ROUTES[0], guided_regex=new["guided_regex"] + "(")[0] == 400
    after = read()
    assert [a - b for a, b in zip(after, before)][:4] == [1, 2, 1, 2] and after[4] > before[4]
