"""Structured output with real clients: every form on every route.

jsonschema_rs validates answers: it shares no code with what generates them."""

import json
import re
import threading
from enum import Enum

import anthropic
import jsonschema_rs
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

TOOL = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}


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


def ask(server, route, streams=False, timeout=300, **fields):
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
        reply = requests.post(server.url + route, json=body_of(route, **fields), timeout=300).json()
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
    reply = requests.post(server.url + route, json={**body_of(route, **fields), "max_tokens": 5}, timeout=300).json()
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


# ---- the response cache --------------------------------------------------------------------------------------------


def test_the_response_cache_knows_grammars(start):
    s = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--response-cache", "memory")

    def where(**fields):
        reply = requests.post(s.url + ROUTES[0], json=body_of(ROUTES[0], temperature=0, **fields), timeout=300)
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
        return requests.post(s.url + ROUTES[0], json=body, timeout=300).json()["choices"][0]["message"]["content"]

    assert any(re.search(r"\s", written(seed)) for seed in range(6))
    for i in range(6):
        status, text = ask(s, ROUTES[0], seed=i, structured_outputs={"json": SMALL, "disable_any_whitespace": True})
        schema_of(text, SMALL)
