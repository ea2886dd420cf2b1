"""Tool calls with openai-python. The model is the fake engine, which repeats its prompt. The chat template contains
only the last message, so a test determines the output."""

import json
import shutil

import pytest
from conftest import MODEL, QUIRE, Server

SERVER = QUIRE.parent / "tests" / "front" / "front_test_server"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
PARIS = '{"city": "Paris", "days": [1, 2], "naïve": "<tag> \\"quoted\\" 漢字"}'
CALL = '<tool_call>\n{"name": "weather", "arguments": ' + PARIS + "}\n</tool_call>"
OTHER = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
LLAMA = '{"name": "weather", "parameters": ' + PARIS + "}"


class FakeServer(Server):
    program = SERVER


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, path)
    # Its text also describes, in a comment, how a model should write calls.
    (path / "chat_template.jinja").write_text("{{ messages[-1].content }}{# <tool_call> #}")
    return path


@pytest.fixture(scope="module")
def serve(model):
    servers = {}

    def get(*arguments):
        if arguments not in servers:
            servers[arguments] = FakeServer(model, *arguments)
        return servers[arguments].client()

    yield get
    for s in servers.values():
        assert s.stop() == 0


def ask(client, text, **fields):
    fields = {"tools": TOOLS, **fields}
    fields = {k: v for k, v in fields.items() if v is not None}
    return dict(model="fake", messages=[{"role": "user", "content": text}], max_tokens=400, **fields)


def whole(client, text, **fields):
    return client.chat.completions.create(**ask(client, text, **fields))


def streamed(client, text, **fields):
    """As the SDK joins a stream."""
    with client.chat.completions.stream(**ask(client, text, **fields)) as stream:
        events = list(stream)
        return stream.get_final_completion(), events


def calls(choice):
    return [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]


@pytest.mark.parametrize("text,content,expected", [
    (CALL, None, [("weather", PARIS)]),
    ("I'll look.\n\n" + CALL, "I'll look.", [("weather", PARIS)]),
    (CALL + "\n" + OTHER, None, [("weather", PARIS), ("clock", "{}")]),
    (OTHER + " Wait. " + CALL + " Done.", "Wait. Done.", [("clock", "{}"), ("weather", PARIS)]),
    ("A\n" + CALL + "\n" + CALL + "\nB\n", "A\nB\n", [("weather", PARIS)] * 2),
    ("No call: <tool_call>nothing</tool_call>", "No call: <tool_call>nothing</tool_call>", []),
    (CALL[:-20], None, [("weather", PARIS[:-6])]),
    ("Plain text.", "Plain text.", []),
], ids=["one", "after-text", "two", "between-text", "two-between-text", "malformed", "cut", "none"])
def test_calls(serve, text, content, expected):
    client = serve()
    reply = whole(client, text)
    choice = reply.choices[0]
    assert calls(choice) == expected
    assert choice.message.content == content
    assert choice.finish_reason == ("tool_calls" if expected else "stop")
    assert ("tool_calls" in choice.message.model_fields_set) == bool(expected)
    ids = [c.id for c in choice.message.tool_calls or []]
    assert len(set(ids)) == len(ids) and all(i.startswith("call_") for i in ids)
    final, _ = streamed(client, text)
    assert calls(final.choices[0]) == expected
    assert final.choices[0].message.content == choice.message.content
    assert final.choices[0].finish_reason == choice.finish_reason
    assert all(c.type == "function" for c in final.choices[0].message.tool_calls or [])


def test_what_a_stream_says(serve):
    client = serve()
    chunks = list(client.chat.completions.create(**ask(client, "So: " + CALL + "\n" + OTHER), stream=True,
                                                 logprobs=True, extra_body={"return_token_ids": True}))
    deltas = [c.choices[0].delta for c in chunks]
    assert [d.role for d in deltas if d.role] == ["assistant"] and deltas[0].role
    parts = [part for d in deltas for part in d.tool_calls or []]
    heads = [p for p in parts if p.id]
    assert [(p.index, p.type, p.function.name, p.function.arguments) for p in heads] == [
        (0, "function", "weather", ""), (1, "function", "clock", "")]
    rest = [p for p in parts if not p.id]
    assert all(p.function.name is None and p.type is None for p in rest)
    assert ["".join(p.function.arguments for p in rest if p.index == i) for i in (0, 1)] == [PARIS, "{}"]
    # No part of a call is ever content, and each token has its logprob and id in one event.
    assert "".join(d.content or "" for d in deltas) == "So:"
    n = whole(client, "So: " + CALL + "\n" + OTHER).usage.completion_tokens
    assert sum(len(c.choices[0].logprobs.content) for c in chunks if c.choices[0].logprobs) == n
    assert sum(len(c.choices[0].model_extra.get("token_ids") or []) for c in chunks) == n
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["tool_calls"]
    assert chunks[-1].choices[0].finish_reason


@pytest.mark.parametrize("interval", [1, 3, 50])
def test_choices_stops_and_intervals(serve, interval):
    client = serve()
    fields = dict(n=3, extra_body={"stream_interval": interval})
    text = "A. " + CALL + " B. STOP " + OTHER
    for reply in (whole(client, text, stop=["STOP"], **fields), streamed(client, text, stop=["STOP"], **fields)[0]):
        assert [c.index for c in reply.choices] == [0, 1, 2]
        assert all(calls(c) == [("weather", PARIS)] and c.message.content == "A. B. " for c in reply.choices)
        assert all(c.finish_reason == "tool_calls" for c in reply.choices)
        assert len({c.message.tool_calls[0].id for c in reply.choices}) == 3
    # A stop within a call leaves text.
    reply = whole(client, CALL, stop=["days"])
    assert reply.choices[0].message.content == CALL[:CALL.index("days")] and not reply.choices[0].message.tool_calls


def test_length_is_told(serve):
    client = serve()
    n = whole(client, CALL).usage.completion_tokens
    reply = client.chat.completions.create(**{**ask(client, CALL), "max_tokens": n - 4})
    assert reply.choices[0].finish_reason == "length"


ARGUMENTS = ['{"a":123456789012345678901234567890}', '{"a":1e400,"a":NaN}', '{"a":"\\u0000"}', '{"a":' + "[" * 70 + "]" * 70 + "}",
             '{"a": }', "{'a': 1}", "not JSON"]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_are_the_models_and_come_back(serve, arguments):
    client = serve()
    text = '<tool_call>{"name":"weather","arguments":' + arguments + "}</tool_call>"
    for reply in (whole(client, text), streamed(client, text)[0]):
        assert calls(reply.choices[0]) == [("weather", arguments)] and reply.choices[0].finish_reason == "tool_calls"
        messages = [{"role": "user", "content": "?"}, reply.choices[0].message.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": reply.choices[0].message.tool_calls[0].id, "content": "sunny"}]
        again = client.chat.completions.create(model="fake", messages=messages, tools=TOOLS, max_tokens=20)
        assert again.choices[0].message.content == "sunny"


def test_a_call_that_is_cut(serve):
    client = serve()
    n = whole(client, CALL).usage.completion_tokens
    reply = client.chat.completions.create(**{**ask(client, CALL), "max_tokens": n - 12})
    (name, arguments), = calls(reply.choices[0])
    assert name == "weather" and 0 < len(arguments) < len(PARIS) and PARIS.startswith(arguments)
    assert reply.choices[0].finish_reason == "length"


def test_when_nothing_is_looked_for(serve):
    client = serve()
    for fields in ({"tools": None}, {"tool_choice": "none"}):
        reply = whole(client, CALL, **fields)
        assert reply.choices[0].message.content == CALL and not reply.choices[0].message.tool_calls
        assert reply.choices[0].finish_reason == "stop"
    assert whole(serve("--tool-call-parser", "none"), CALL).choices[0].message.content == CALL


def test_one_call_only(serve):
    client = serve()
    for reply in (whole(client, CALL + OTHER, parallel_tool_calls=False),
                  streamed(client, CALL + OTHER, parallel_tool_calls=False)[0]):
        assert calls(reply.choices[0]) == [("weather", PARIS)] and reply.choices[0].message.content is None


@pytest.mark.parametrize("text,content", [(LLAMA, None), ("<|python_tag|>" + LLAMA, None), (LLAMA + "; " + LLAMA, None),
                                          (LLAMA + "\nThat was it.", "That was it."), ("Say " + LLAMA, "Say " + LLAMA)])
def test_llama3_json(serve, text, content):
    client = serve("--tool-call-parser", "llama3_json")
    n = 0 if text.startswith("Say") else text.count('"weather"')
    for reply in (whole(client, text), streamed(client, text)[0]):
        assert calls(reply.choices[0]) == [("weather", PARIS)] * n
        assert reply.choices[0].message.content == content


def test_a_call_goes_back_into_the_template(serve):
    """The round trip of an agent: the output becomes input."""
    client = serve()
    message = whole(client, CALL).choices[0].message
    messages = [{"role": "user", "content": "?"}, message,
                {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
    reply = client.chat.completions.create(model="fake", messages=messages, tools=TOOLS, max_tokens=20)
    assert reply.choices[0].message.content == "sunny"
    assert json.loads(message.tool_calls[0].function.arguments)["days"] == [1, 2]


def test_the_real_server_takes_tools(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--tool-call-parser", "hermes")
    reply = server.client().chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "What is 12 plus 30?"}], tools=TOOLS, max_tokens=60,
        temperature=0)
    assert "42" in reply.choices[0].message.content and reply.choices[0].finish_reason == "stop"
    with pytest.raises(RuntimeError, match="tool-call-parser: there is no \"xml\""):
        start("serve", MODEL, "--port", "0", "--tool-call-parser", "xml")
