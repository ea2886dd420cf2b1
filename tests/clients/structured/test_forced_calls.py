"""Tool calls that tool_choice forces, with openai-python."""

import json

import jsonschema_rs
import openai
import pytest

from conftest import MODEL, Server
from test_structured import CHAT, TOOL

CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
                                                                       "additionalProperties": False}}}
NAMED = {"type": "function", "function": {"name": "clock"}}


@pytest.fixture(scope="module", params=["hermes", "llama3_json"])
def caller(request):
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
