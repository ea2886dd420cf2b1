"""Forced calls in every format: the server's own parser finds each, and jsonschema_rs validates its arguments."""

import json
import random

import jsonschema_rs
import openai
import pytest

from conftest import MODEL, Server
from test_structured import CHAT

FORMATS = ["hermes", "llama3_json", "pythonic", "llama4_pythonic", "mistral", "qwen3_coder", "deepseek_v3", "deepseek_v31", "glm45", "kimi_k2"]
VALUES = [
    {"type": "string"}, {"type": "string", "enum": ["red", "true", "1"]}, {"type": ["string", "null"]}, {"enum": ["a b", 'c"d']},
    {"type": "integer", "minimum": -9, "maximum": 9}, {"type": "number", "minimum": 0, "maximum": 1}, {"type": "boolean"}, {"type": "null"},
    {"type": "array", "items": {"enum": ["x", None, True]}, "minItems": 1, "maxItems": 2},
    {"type": "object", "properties": {"k": {"type": "string", "maxLength": 5}}, "required": ["k"], "additionalProperties": False},
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "maxLength": 4}]},
]


def random_tool(rng, name):
    properties = {f"p{i}": rng.choice(VALUES) for i in range(rng.randrange(4))}
    schema = {"type": "object", "properties": properties, "required": [k for k in properties if rng.random() < 0.6], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


@pytest.fixture(scope="module", params=FORMATS)
def caller(request):
    s = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--tool-call-parser", request.param)
    yield s.client()
    assert s.stop() == 0


def test_random_tools(caller):
    rng = random.Random(3)
    ended = 0
    for case in range(12):
        tools = [random_tool(rng, name) for name in rng.sample(["get", "get_all", "set", "x1"], rng.randrange(1, 4))]
        schemas = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
        is_single = rng.random() < 0.5
        # The demo model writes long strings: only answers that end are complete.
        choice = caller.chat.completions.create(model="demo", messages=CHAT, tools=tools, tool_choice="required", seed=case, max_tokens=300,
                                                temperature=1.2, parallel_tool_calls=not is_single).choices[0]
        calls = choice.message.tool_calls or []
        assert calls and (len(calls) == 1 or not is_single)
        cut = choice.finish_reason == "length"
        assert cut or choice.finish_reason == "tool_calls" and choice.message.content is None
        for call in calls[:-1] if cut else calls:
            jsonschema_rs.validate(schemas[call.function.name], json.loads(call.function.arguments))
            ended += 1
    assert ended >= 4


def test_names_that_a_format_cannot_have(caller):
    tools = [{"type": "function", "function": {"name": "a b", "parameters": {}}}]
    try:
        caller.chat.completions.create(model="demo", messages=CHAT, tools=tools, tool_choice="required", max_tokens=5)
    except openai.BadRequestError as e:
        assert e.body["message"].startswith("tools: item 0: function.name")
