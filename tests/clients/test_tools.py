"""Tool calls with openai-python. The model is the fake engine, which repeats its prompt. The chat template contains
only the last message, so a test determines the output."""

import json
import pathlib
import shutil

import openai
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
    # A stop within the arguments cuts them; one before them leaves text.
    for reply in (whole(client, CALL, stop=["days"]), streamed(client, CALL, stop=["days"])[0]):
        assert calls(reply.choices[0]) == [("weather", PARIS[:PARIS.index("days")])]
        assert reply.choices[0].finish_reason == "tool_calls" and reply.choices[0].message.content is None
    reply = whole(client, CALL, stop=["arguments"])
    assert reply.choices[0].message.content == CALL[:CALL.index("arguments")] and not reply.choices[0].message.tool_calls


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


def texts():
    for path in sorted((pathlib.Path(__file__).parents[1] / "front" / "tools" / "texts").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        yield pytest.param(path.stem, rows[0], rows[1], id=path.stem)


@pytest.mark.parametrize("name,first,second", texts())
def test_every_format(serve, name, first, second):
    """Two recorded texts of each format, whole and as a stream that openai-python joins."""
    client = serve("--tool-call-parser", first["tools"], "--reasoning-parser", first.get("reasoning", "none"))
    for row in (first, second):
        tools = row.get("tool_list", TOOLS)
        whole_reply = whole(client, row["text"], tools=tools)
        stream, events = streamed(client, row["text"], tools=tools)
        for reply in (whole_reply, stream):
            message = reply.choices[0].message
            assert calls(reply.choices[0]) == [tuple(part[1:3]) for part in row["expected"] if part[0] == "call"]
            text = "".join(part[1] for part in row["expected"] if part[0] == "text")
            assert (message.content or "") == text
            reasoning = "".join(part[1] for part in row["expected"] if part[0] == "reasoning")
            for field in ("reasoning", "reasoning_content"):
                assert ((message.model_extra or {}).get(field) or "") == reasoning
            ids = [part[3] for part in row["expected"] if part[0] == "call" and len(part) > 3]
            assert not ids or [c.id for c in message.tool_calls] == ids


def test_arguments_are_streamed(serve):
    client = serve()
    chunks = client.chat.completions.create(**ask(client, CALL), stream=True)
    pieces = [p.function.arguments for c in chunks for p in c.choices[0].delta.tool_calls or [] if not p.id]
    assert "".join(pieces) == PARIS and len(pieces) > 10


THOUGHT = "<think>\nTwo and two.\n</think>\n\nFour."


def test_reasoning(serve):
    client = serve("--reasoning-parser", "qwen3")
    reply = whole(client, THOUGHT, tools=None)
    message = reply.choices[0].message
    assert (message.content, message.reasoning, message.reasoning_content) == ("Four.", *["Two and two."] * 2)
    n = reply.usage.completion_tokens_details.reasoning_tokens
    assert 0 < n < reply.usage.completion_tokens
    for interval in (1, 4):
        chunks = list(client.chat.completions.create(
            **ask(client, THOUGHT, tools=None), stream=True, stream_options={"include_usage": True},
            extra_body={"stream_interval": interval}))
        deltas = [c.choices[0].delta for c in chunks if c.choices]
        assert "".join(d.content or "" for d in deltas) == "Four."
        assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "Two and two."
        assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == n
    # An answer with a grammar has no reasoning, and other servers keep the text.
    assert whole(serve("--reasoning-parser", "none"), THOUGHT, tools=None).choices[0].message.content == THOUGHT
    # The prompt ends inside the reasoning: deepseek_r1 begins there.
    reply = whole(serve("--reasoning-parser", "deepseek_r1"), "Two.</think>Four.", tools=None)
    assert (reply.choices[0].message.content, reply.choices[0].message.reasoning) == ("Four.", "Two.")
    reply = whole(serve("--reasoning-parser", "deepseek_r1"), "Two.", tools=None)
    assert (reply.choices[0].message.content, reply.choices[0].message.reasoning) == (None, "Two.")


def test_variables_of_the_template(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("variables")
    for file in model.iterdir():
        shutil.copy(file, path)
    (path / "chat_template.jinja").write_text("{{ reasoning_effort }}|{{ enable_thinking }}")
    server = FakeServer(path)
    try:
        def answer(**fields):
            return whole(server.client(), "?", tools=None, extra_body=fields).choices[0].message.content

        assert answer(reasoning_effort="low", enable_thinking=False) == "low|False"
        assert answer(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high", "x": 1}) == "high|"
        assert answer(enable_thinking=True, chat_template_kwargs={"reasoning_effort": "high"}) == "high|True"
        with pytest.raises(openai.BadRequestError, match="enable_thinking"):
            answer(enable_thinking="yes")
    finally:
        assert server.stop() == 0


def test_tags_that_are_special_tokens(tmp_path_factory, model):
    """The parsers see them, also in a request that skips special tokens, and others do not."""
    path = tmp_path_factory.mktemp("special")
    for file in model.iterdir():
        shutil.copy(file, path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    n = max(t["id"] for t in tokenizer["added_tokens"])
    n = max(n, *tokenizer["model"]["vocab"].values()) + 1
    for i, tag in enumerate(["<tool_call>", "</tool_call>", "<think>", "</think>", "<|other|>"]):
        tokenizer["added_tokens"].append({"id": n + i, "content": tag, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "vocab_size": n + 5}))
    server = FakeServer(path, "--special-tokens-in-messages", "encode", "--reasoning-parser", "qwen3")
    try:
        client = server.client()
        text = "<think>Hm.</think>I look.<|other|>" + CALL
        for reply in (whole(client, text), streamed(client, text)[0]):
            message = reply.choices[0].message
            assert (message.reasoning, message.content) == ("Hm.", "I look.")
            assert calls(reply.choices[0]) == [("weather", PARIS)]
        reply = whole(client, text, tools=None)
        assert reply.choices[0].message.content == "I look." + CALL.replace("<tool_call>", "").replace("</tool_call>", "")
    finally:
        assert server.stop() == 0


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
    with pytest.raises(RuntimeError, match="reasoning-parser: there is no \"xml\"; there are auto, none, deepseek_r1"):
        start("serve", MODEL, "--port", "0", "--reasoning-parser", "xml")


def test_ids_of_mistral(serve):
    """Its templates reject ids that are not nine letters and digits."""
    client, text = serve("--tool-call-parser", "mistral"), '[TOOL_CALLS][{"name": "weather", "arguments": {}}]'
    for reply in (whole(client, text), streamed(client, text)[0]):
        name = reply.choices[0].message.tool_calls[0].id
        assert len(name) == 9 and name.isalnum(), name


def test_ids_that_a_model_repeats(serve):
    """A client matches results by them, and the server rejects a history with two equal ones."""
    client = serve("--tool-call-parser", "kimi_k2")
    call = "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    text = "<|tool_calls_section_begin|>" + call * 3 + "<|tool_calls_section_end|>"
    for reply in (whole(client, text), streamed(client, text)[0]):
        message = reply.choices[0].message
        ids = [c.id for c in message.tool_calls]
        assert ids[0] == "functions.weather:0" and len(set(ids)) == 3, ids
        history = [{"role": "user", "content": text}, message.to_dict(),
                   *({"role": "tool", "tool_call_id": i, "content": "sunny"} for i in ids)]
        assert client.chat.completions.create(model="fake", messages=history).choices[0].message.content.startswith("sunny")
