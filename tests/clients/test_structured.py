"""Structured output with real clients: every form on every route, forced tool calls, and bad input.

jsonschema_rs validates answers: it shares no code with what generates them."""

import json
import re
import threading
import time
from enum import Enum

import anthropic
import jsonschema_rs
import openai
import pytest
import requests
from pydantic import BaseModel, ConfigDict, Field

from conftest import MODEL

CHAT = [{"role": "user", "content": "Tell me about Karl."}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["old", "kind"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SMALL = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def schema_of(text, schema=PERSON):
    jsonschema_rs.validate(schema, json.loads(text))
    assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) or "\\" in text


def matches(pattern):
    return lambda text: re.fullmatch(pattern, text) or pytest.fail(text)


# Fields that every route has, and what their answers are.
FORMS = {
    "json": ({"structured_outputs": {"json": PERSON}}, schema_of),
    "json-text": ({"structured_outputs": {"json": json.dumps(PERSON), "regex": None}}, schema_of),
    "regex": ({"structured_outputs": {"regex": r"[ab]{3}-\d{2}"}}, matches(r"[ab]{3}-\d{2}")),
    "choice": ({"structured_outputs": {"choice": ["red", "blue green"]}}, matches("red|blue green")),
    "lark": ({"structured_outputs": {"grammar": 'start: "A" /[0-9]{2}/'}}, matches("A[0-9]{2}")),
    "gbnf": ({"structured_outputs": {"grammar": 'root ::= "<" [x-z]{2} ">"'}}, matches("<[x-z]{2}>")),
    "tag": ({"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": {
        "type": "tag", "begin": "<v>", "content": {"type": "json_schema", "json_schema": SMALL}, "end": "</v>"}})}},
        matches(r'<v>\{"ok":(true|false)\}</v>')),
    "guided_json": ({"guided_json": PERSON, "guided_decoding_backend": "xgrammar"}, schema_of),
    "guided_regex": ({"guided_regex": "x{1,3}y"}, matches("x{1,3}y")),
    "guided_choice": ({"guided_choice": ["a", "b"]}, matches("a|b")),
    "guided_grammar": ({"guided_grammar": 'root ::= "z" | "w"'}, matches("z|w")),
    "llama-grammar": ({"grammar": 'root ::= "q" [0-9]'}, matches("q[0-9]")),
    "llama-schema": ({"json_schema": PERSON}, schema_of),
}


def in_form(route, schema):
    """The field of this route that holds a JSON schema."""
    inner = {"type": "json_schema", "name": "person", "schema": schema, "strict": True}
    return {
        ROUTES[0]: {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}},
        ROUTES[1]: {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}},
        ROUTES[2]: {"text": {"format": inner}},
        ROUTES[3]: {"output_format": {"type": "json_schema", "schema": schema}},
    }[route]


def body_of(route, **fields):
    prompt = {ROUTES[0]: {"messages": CHAT}, ROUTES[1]: {"prompt": "Karl is"}, ROUTES[2]: {"input": "Tell me."}, ROUTES[3]: {"messages": CHAT}}
    length = {"max_output_tokens" if route == ROUTES[2] else "max_tokens": 160}
    return {"model": "demo", **prompt[route], **length, "temperature": 0.8, "seed": 5, **fields}


def events_of(reply):
    for line in reply.iter_lines():
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            yield json.loads(line[6:])


def text_of_event(event):
    if event.get("choices"):
        choice = event["choices"][0]
        return choice.get("text") or choice.get("delta", {}).get("content") or ""
    if event.get("type") == "response.output_text.delta":
        return event["delta"]
    if event.get("type") == "content_block_delta":
        return event["delta"]["text"]
    return ""


def text_of(reply):
    if "choices" in reply:
        assert reply["choices"][0]["finish_reason"] == "stop", reply
        return reply["choices"][0].get("text") or reply["choices"][0]["message"]["content"]
    if "output" in reply:
        assert reply["status"] == "completed"
        return reply["output"][0]["content"][0]["text"]
    assert reply["stop_reason"] == "end_turn"
    return reply["content"][0]["text"]


def ask(server, route, streams=False, timeout=60, **fields):
    reply = requests.post(server.url + route, json={**body_of(route, **fields), "stream": streams}, timeout=timeout, stream=streams)
    if reply.status_code != 200:
        return reply.status_code, reply.json()["error"]
    return 200, "".join(map(text_of_event, events_of(reply))) if streams else text_of(reply.json())


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_on_every_route(server, route, form):
    fields, check = FORMS[form]
    status, whole = ask(server, route, **fields)
    assert status == 200, whole
    check(whole)
    assert ask(server, route, streams=True, **fields) == (200, whole)


@pytest.mark.parametrize("route", ROUTES)
def test_schemas_in_the_field_of_the_route(server, route):
    status, whole = ask(server, route, **in_form(route, PERSON))
    assert status == 200, whole
    schema_of(whole)
    assert ask(server, route, streams=True, **in_form(route, PERSON)) == (200, whole)
    # The first key differs, and so the answer, whatever was answered before.
    other = {**PERSON, "properties": dict(reversed(PERSON["properties"].items()))}
    status, text = ask(server, route, **in_form(route, other))
    assert status == 200 and list(json.loads(text)) == ["tags", "age", "name"]


def test_newer_field_of_messages(server):
    status, text = ask(server, ROUTES[3], output_config={"format": {"type": "json_schema", "schema": PERSON}})
    assert status == 200, text
    schema_of(text)


@pytest.mark.parametrize("route", ROUTES[:2])
def test_any_object(server, route):
    # The demo model never closes an object by itself: at most the beginning of one is known.
    for fields in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        reply = requests.post(server.url + route, json=body_of(route, **fields), timeout=60).json()
        choice = reply["choices"][0]
        text = choice.get("text") or choice["message"]["content"]
        assert text.startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)


def test_choices_with_logprobs(client):
    for seed in range(3):
        reply = client.chat.completions.create(
            model="demo", messages=CHAT, n=4, temperature=1.3, seed=seed, max_tokens=160, logprobs=True, top_logprobs=3,
            response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON, "strict": True}})
        assert len(reply.choices) == 4 and len({c.message.content for c in reply.choices}) > 1
        for c in reply.choices:
            schema_of(c.message.content)
            assert c.finish_reason == "stop"
            shown = b"".join(bytes(t.bytes) for t in c.logprobs.content).decode()
            assert shown.removesuffix("<|im_end|>") == c.message.content
            assert all(t.logprob <= 0 for t in c.logprobs.content)


def test_the_same_answer_beside_others(server):
    """Alone, and in a batch of plain and structured requests."""
    route = ROUTES[0]
    alone = [ask(server, route, seed=i, **in_form(route, PERSON)) for i in range(4)]
    together = [None] * 4

    def run(i):
        together[i] = ask(server, route, seed=i, **in_form(route, PERSON))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    plain = {"json": body_of(route, ignore_eos=True), "timeout": 60}
    threads += [threading.Thread(target=requests.post, args=(server.url + route,), kwargs=plain) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone and all(status == 200 for status, _ in alone)


def test_stops_lengths_and_predictions(server):
    route, fields = ROUTES[0], in_form(ROUTES[0], PERSON)
    status, whole = ask(server, route, **fields)
    assert ask(server, route, **fields, stop='"age"') == (200, whole[:whole.index('"age"')])
    for extra in ({"prediction": {"type": "content", "content": whole}}, {"prediction": {"type": "content", "content": '{"name":"Ka","age":7'}},
                  {"min_tokens": 3}, {"tools": [TOOL], "tool_choice": "none"}, {"tools": [TOOL]}, {"response_format": None, "structured_outputs": {"json": PERSON}}):
        assert ask(server, route, **{**fields, **extra}) == (200, whole) or "tools" in extra, extra
    reply = requests.post(server.url + route, json={**body_of(route, **fields), "max_tokens": 5}, timeout=60).json()
    assert reply["choices"][0]["finish_reason"] == "length" and whole.startswith(reply["choices"][0]["message"]["content"])


# ---- SDKs ----------------------------------------------------------------------------------------------------------


class Mood(str, Enum):
    good = "good"
    bad = "bad"


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=120)
    mood: Mood


def test_openai_parse(client):
    reply = client.chat.completions.parse(model="demo", messages=CHAT, max_tokens=160, response_format=Person)
    assert isinstance(reply.choices[0].message.parsed, Person)
    with client.chat.completions.stream(model="demo", messages=CHAT, max_tokens=160, response_format=Person) as stream:
        assert any(e.type == "content.delta" for e in stream)
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)
    reply = client.responses.parse(model="demo", input="Tell me.", max_output_tokens=160, text_format=Person)
    assert isinstance(reply.output_parsed, Person)


def test_anthropic_output(server):
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    reply = claude.messages.create(model="demo", max_tokens=160, messages=CHAT, extra_body={"output_format": {"type": "json_schema", "schema": PERSON}})
    schema_of(reply.content[0].text)


# ---- forced tool calls ---------------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
                                                                       "additionalProperties": False}}}
NAMED = {"type": "function", "function": {"name": "clock"}}


@pytest.fixture(scope="module", params=["hermes", "llama3_json"])
def caller(request):
    from conftest import Server
    s = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--tool-call-parser", request.param)
    yield s.client()
    assert s.stop() == 0


def check_call(call):
    arguments = json.loads(call.function.arguments)
    parameters = {t["function"]["name"]: t["function"]["parameters"] for t in (TOOL, CLOCK)}[call.function.name]
    jsonschema_rs.validate(parameters, arguments)
    assert call.type == "function" and call.id.startswith("call_")


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_calls(caller, choice):
    for seed in range(4):
        fields = dict(model="demo", messages=CHAT, tools=[TOOL, CLOCK], tool_choice=choice, parallel_tool_calls=False, max_tokens=160, seed=seed)
        reply = caller.chat.completions.create(**fields).choices[0]
        assert reply.finish_reason == "tool_calls" and reply.message.content is None
        assert len(reply.message.tool_calls) == 1
        check_call(reply.message.tool_calls[0])
        if choice is NAMED:
            assert reply.message.tool_calls[0].function.name == "clock"
        with caller.chat.completions.stream(**fields) as stream:
            list(stream)
            final = stream.get_final_completion().choices[0]
        assert [(c.function.name, c.function.arguments) for c in final.message.tool_calls] == [
            (c.function.name, c.function.arguments) for c in reply.message.tool_calls]
        assert final.finish_reason == "tool_calls" and not final.message.content


def test_arguments_are_streamed(caller):
    fields = dict(model="demo", messages=CHAT, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=160)
    chunks = [c.choices[0] for c in caller.chat.completions.create(**fields, stream=True) if c.choices]
    parts = [p for c in chunks for p in c.delta.tool_calls or []]
    assert parts[0].function.name == "weather" and parts[0].function.arguments == ""
    assert len(parts) > 4 and all(p.function.name is None for p in parts[1:])
    jsonschema_rs.validate(TOOL["function"]["parameters"], json.loads("".join(p.function.arguments for p in parts)))
    assert not any(c.delta.content for c in chunks)


def test_several_forced_calls(caller):
    found = set()
    for seed in range(6):
        reply = caller.chat.completions.create(model="demo", messages=CHAT, tools=[TOOL, CLOCK], tool_choice="required", max_tokens=400,
                                               temperature=1.5, seed=seed).choices[0]
        if reply.finish_reason == "length":  # the last one is cut
            reply.message.tool_calls.pop()
        found.add(len(reply.message.tool_calls))
        for call in reply.message.tool_calls:
            check_call(call)
    assert found - {0}


def test_json_is_no_call(caller):
    looks = {"type": "object", "properties": {"name": {"const": "weather"}, "parameters": {"type": "object", "maxProperties": 0}},
             "required": ["name", "parameters"], "additionalProperties": False}
    reply = caller.chat.completions.create(model="demo", messages=CHAT, tools=[TOOL], max_tokens=160, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": looks}}).choices[0]
    assert reply.message.content == '{"name":"weather","parameters":{}}' and not reply.message.tool_calls
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("fields,message", [
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, 'tool_choice: no tool has the name "x"'),
    ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice: conflicts with response_format"),
    ({"tools": [TOOL, {"type": "function", "function": {"name": "a\u0007b"}}], "tool_choice": "required"}, "tools: item 1: function.name"),
    ({"tools": [TOOL, {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "array", "uniqueItems": True}}}}}],
      "tool_choice": "required"}, "tools: item 1: function.parameters: /properties/a/uniqueItems: "),
])
def test_bad_forced_calls(caller, fields, message):
    with pytest.raises(openai.BadRequestError) as e:
        caller.chat.completions.create(**{"model": "demo", "messages": CHAT, "tools": [TOOL], **fields})
    assert e.value.body["message"].startswith(message), e.value.body
    assert e.value.body["param"] == message.split(":")[0]


# ---- bad input -----------------------------------------------------------------------------------------------------

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
            for _ in requests.post(server.url + ROUTES[0], json=fields, stream=True, timeout=60).iter_lines():
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
    begun = time.monotonic()
    status, error = ask(server, ROUTES[0], structured_outputs=HOSTILE[what])
    assert status == 400 and error["message"].startswith("structured_outputs."), error
    assert time.monotonic() - begun < 15
    assert max(plain_stream) < 2, max(plain_stream)


def test_invalid_utf8_in_a_grammar(server):
    body = json.dumps(body_of(ROUTES[0], guided_regex="aXb")).encode().replace(b"aXb", b"a\xff\xfeb")
    reply = requests.post(server.url + ROUTES[0], data=body, headers={"Content-Type": "application/json"}, timeout=20)
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
    deadline = time.monotonic() + 20
    while server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") > 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


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


# ---- the response cache --------------------------------------------------------------------------------------------


def test_the_response_cache_knows_grammars(start):
    s = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--response-cache", "memory")

    def where(**fields):
        reply = requests.post(s.url + ROUTES[0], json=body_of(ROUTES[0], temperature=0, **fields), timeout=60)
        return reply.headers["x-quire-cache"], reply.json()["choices"][0]["message"]["content"]

    plain, one, other = {}, in_form(ROUTES[0], SMALL), in_form(ROUTES[0], PERSON)
    texts = []
    for fields in (plain, one, other, {"guided_regex": "ab?"}):
        layer, text = where(**fields)
        assert layer == "miss"
        texts.append(text)
    assert len(set(texts)) == 4
    for fields, text in zip((plain, one, other, {"guided_regex": "ab?"}), texts):
        assert where(**fields) == ("exact", text)
    # Another spelling of the same grammar has the same answer.
    spaced = json.loads(json.dumps(SMALL))
    spaced["description"] = "no part of the grammar"
    assert where(**in_form(ROUTES[0], spaced)) == ("exact", texts[1])


# ---- options -------------------------------------------------------------------------------------------------------


def test_white_space(start):
    s = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--structured-outputs-config",
              '{"backend": "xgrammar", "disable_any_whitespace": false}', "--guided-decoding-backend", "guidance")
    def written(seed):  # this model writes white space without an end, so most answers are cut
        body = body_of(ROUTES[0], seed=seed, structured_outputs={"json": SMALL})
        return requests.post(s.url + ROUTES[0], json=body, timeout=60).json()["choices"][0]["message"]["content"]

    assert any(re.search(r"\s", written(seed)) for seed in range(6))
    for i in range(6):
        status, text = ask(s, ROUTES[0], seed=i, structured_outputs={"json": SMALL, "disable_any_whitespace": True})
        schema_of(text, SMALL)
