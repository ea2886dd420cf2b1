"""Calls, malformed calls and reasoning tokens: in /metrics, by tenant, and in the log line of a finished request."""

import json
import re

import anthropic
import openai
import pytest
from conftest import MODEL
from test_tools import CALL, OTHER, TOOLS, FakeServer, model  # noqa: F401 (a fixture)

BAD = "<tool_call>nothing</tool_call>"
NO_OBJECT = '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>'
NAMES = ("tool_calls", "tool_calls_malformed", "reasoning_tokens")


def counts(server):
    return [server.metric(f"quire:{name}_total") for name in NAMES]


def difference(server, call):
    before = counts(server)
    reply = call()
    return [after - b for after, b in zip(counts(server), before)], reply


@pytest.fixture(scope="module")
def server(model):  # noqa: F811
    s = FakeServer(model, "--reasoning-parser", "qwen3")
    yield s
    assert s.stop() == 0


@pytest.mark.parametrize("text,chat,messages", [
    ("Plain.", [0, 0], [0, 0]),
    (CALL, [1, 0], [1, 0]),
    (CALL + OTHER, [2, 0], [2, 0]),
    (BAD, [0, 1], [0, 1]),
    (BAD + " and " + BAD + "\n" + CALL, [1, 2], [1, 2]),
    ("<tool_call><tool_call>x", [0, 1], [0, 1]),
    (CALL[:30], [0, 1], [0, 1]),  # cut before its arguments
    (NO_OBJECT, [1, 0], [0, 1]),  # only Messages checks arguments
])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_calls_are_counted(server, text, chat, messages, stream):
    fields = dict(model="fake", max_tokens=400, messages=[{"role": "user", "content": text}])

    def by_chat():
        reply = server.client().chat.completions.create(**fields, tools=TOOLS, stream=stream)
        return list(reply) if stream else reply

    def by_messages():
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        reply = client.messages.create(**fields, tools=[{"name": "weather", "input_schema": {"type": "object"}}], stream=stream)
        return list(reply) if stream else reply

    assert difference(server, by_chat)[0] == [*chat, 0]
    assert difference(server, by_messages)[0] == [*messages, 0]
    fields.update(n=2)
    assert difference(server, by_chat)[0] == [2 * chat[0], 2 * chat[1], 0]


def test_reasoning_is_counted(server):
    fields = dict(model="fake", max_tokens=400, messages=[{"role": "user", "content": "<think>\nTwo.\n</think>\n\nFour."}])
    counted, reply = difference(server, lambda: server.client().chat.completions.create(**fields))
    assert counted == [0, 0, reply.usage.completion_tokens_details.reasoning_tokens] and counted[2] > 0


def test_by_tenant(model, tmp_path):  # noqa: F811
    (tmp_path / "tenants.json").write_text(json.dumps([{"name": "a", "key": "key-a"}, {"name": "b", "key": "key-b"}]))
    s = FakeServer(model, "--reasoning-parser", "qwen3", "--tenants", tmp_path / "tenants.json", "--tenant-metrics")
    try:
        text = "<think>Two.</think>" + CALL + BAD
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="key-a", max_retries=0)
        reply = client.chat.completions.create(model="fake", messages=[{"role": "user", "content": text}], tools=TOOLS, max_tokens=400)
        n = reply.usage.completion_tokens_details.reasoning_tokens
        shown = client.get(s.url + "/metrics", cast_to=str)
        for name, value in zip(NAMES, (1, 1, n)):
            for tenant, expected in (("a", value), ("b", 0)):
                found = re.search(f'^quire:tenant_{name}_total{{[^}}]*tenant="{tenant}"}} ([0-9]+)$', shown, re.M)
                assert found and int(found[1]) == expected, (name, tenant, found)
    finally:
        assert s.stop() == 0


def test_in_the_log(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--reasoning-parser", "deepseek_r1", "--log-requests")

    def line(**fields):
        reply = server.client().chat.completions.create(model="demo", messages=[{"role": "user", "content": "?"}], max_tokens=200, **fields)
        return next(words for words in server.output().splitlines() if "finish" in words and reply.id.removeprefix("chatcmpl-") in words), reply

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "go", "parameters": schema}}]
    shown, _ = line(tools=tools, tool_choice="required", parallel_tool_calls=False, extra_body={"thinking_token_budget": 0})
    assert "tool_calls=1" in shown and "malformed_calls" not in shown
    shown, reply = line()
    assert f"reasoning_tokens={reply.usage.completion_tokens_details.reasoning_tokens}" in shown and "tool_calls" not in shown
