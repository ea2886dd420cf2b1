"""Tools in Anthropic's Messages with anthropic-python. The model is the fake engine, which repeats the last message."""

import anthropic
import pytest
from conftest import MODEL
from test_tools import CALL, OTHER, PARIS, FakeServer, model  # noqa: F401 (a fixture)

TOOLS = [{"name": "weather", "description": "The weather.", "input_schema": {"type": "object"}},
         {"name": "clock", "input_schema": {"type": "object"}}]
EAGER = [{**TOOLS[0], "eager_input_streaming": True}, TOOLS[1]]
WEATHER = {"city": "Paris", "days": [1, 2], "naïve": '<tag> "quoted" 漢字'}


@pytest.fixture(scope="module")
def claude(model):  # noqa: F811
    server = FakeServer(model)
    yield anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    assert server.stop() == 0


def ask(text, **fields):
    return {"model": "fake", "max_tokens": 16000, "messages": [{"role": "user", "content": text}], "tools": TOOLS, **fields}


def streamed(claude, text, **fields):
    with claude.messages.stream(**ask(text, **fields)) as stream:
        events = [e for e in stream]
        return stream.get_final_message(), events


def blocks(message):
    return [block.text.strip() if block.type == "text" else (block.name, block.input) for block in message.content]


def both(claude, text, **fields):
    whole = claude.messages.create(**ask(text, **fields))
    stream, _ = streamed(claude, text, **fields)
    assert blocks(stream) == blocks(whole) and stream.stop_reason == whole.stop_reason
    assert stream.usage.output_tokens == whole.usage.output_tokens
    return whole


@pytest.mark.parametrize("tools", [TOOLS, EAGER], ids=["whole", "eager"])
@pytest.mark.parametrize("text,expected", [
    (CALL, [("weather", WEATHER)]),
    ("I'll look.\n\n" + CALL, ["I'll look.", ("weather", WEATHER)]),
    (CALL + "\n" + OTHER, [("weather", WEATHER), ("clock", {})]),
    (OTHER + " Wait. " + CALL + " Done.", [("clock", {}), "Wait.", ("weather", WEATHER), "Done."]),
    ("Plain text.", ["Plain text."]),
    ("No call: <tool_call>nothing</tool_call>", ["No call: <tool_call>nothing</tool_call>"]),
], ids=["one", "after-text", "two", "between-text", "none", "malformed"])
def test_calls(claude, text, expected, tools):
    reply = both(claude, text, tools=tools)
    assert blocks(reply) == expected
    calls = [block for block in reply.content if block.type == "tool_use"]
    assert reply.stop_reason == ("tool_use" if calls else "end_turn") and reply.stop_sequence is None
    assert len({c.id for c in calls}) == len(calls) and all(c.id.startswith("toolu_") for c in calls)


@pytest.mark.parametrize("arguments", ['{"a": }', "{'a': 1}", '{"a": NaN}', '{"a": 1, "a": 2}', "[1]", "{" * 3,
                                       '{"a":' + "[" * 70 + "]" * 70 + "}"])
def test_a_call_that_is_no_object_is_text(claude, arguments):
    """A client would fail on the block; the words are not lost."""
    text = '<tool_call>{"name":"weather","arguments":' + arguments + "}</tool_call>"
    reply = both(claude, text)
    assert [b.type for b in reply.content] == ["text"] and reply.stop_reason == "end_turn"
    assert arguments in reply.content[0].text and "weather" in reply.content[0].text


def test_a_cut_call_is_text(claude):
    n = claude.messages.create(**ask(CALL)).usage.output_tokens
    reply = both(claude, CALL, max_tokens=n - 12)
    assert reply.stop_reason == "max_tokens" and '{"name": "weather", "arguments": {"city": "Paris"' in reply.content[0].text


@pytest.mark.parametrize("tools", [TOOLS, EAGER], ids=["whole", "eager"])
def test_the_events_of_a_stream(claude, tools):
    raw = list(claude.messages.create(**ask("So: " + CALL + "\n" + OTHER, tools=tools), stream=True))
    assert raw[0].type == "message_start" and raw[-2].type == "message_delta" and raw[-1].type == "message_stop"
    starts = [e for e in raw if e.type == "content_block_start"]
    assert [e.index for e in starts] == [0, 1, 2] == [e.index for e in raw if e.type == "content_block_stop"]
    assert [e.content_block.type for e in starts] == ["text", "tool_use", "tool_use"]
    assert all(e.content_block.input == {} for e in starts[1:])
    parts = [e.delta for e in raw if e.type == "content_block_delta" and e.index == 1]
    assert {p.type for p in parts} == {"input_json_delta"} and "".join(p.partial_json for p in parts) == PARIS
    assert raw[-2].delta.stop_reason == "tool_use" and raw[-2].usage.output_tokens > 20
    # A block is open between its start and its stop only.
    open_block = None
    for e in raw:
        if e.type == "content_block_start":
            assert open_block is None
            open_block = e.index
        elif e.type in ("content_block_delta", "content_block_stop"):
            assert e.index == open_block
            open_block = open_block if e.type == "content_block_delta" else None
    assert open_block is None


def test_a_round_trip(claude):
    """Two calls, two results, one of them an error: the next turn sees them in order."""
    reply = both(claude, CALL + OTHER)
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": text, "is_error": text == "no clock"}
               for block, text in zip(reply.content, ("sunny", "no clock"))]
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": reply.content}]
    for content, expected in ((results, "Error: no clock"), (results[::-1], "sunny"),
                              ([*results, {"type": "text", "text": "Go on."}], "Go on."),
                              ([{**results[0], "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                                {**results[1], "content": []}], "Error:"),
                              ([{"type": "tool_result", "tool_use_id": results[0]["tool_use_id"]}, results[1]],
                               "Error: no clock")):
        again = claude.messages.create(**ask("", messages=[*turns, {"role": "user", "content": content}]))
        assert blocks(again) == [expected], content


def test_a_forced_call(start):
    """The demo model knows no calls: a grammar writes them."""
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--tool-call-parser", "hermes")
    demo = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    tools = [{"name": name, "input_schema": schema} for name in ("first", "second")]
    for choice, names in (({"type": "any"}, ("first", "second")), ({"type": "tool", "name": "second"}, ("second",))):
        fields = dict(model="demo", max_tokens=200, messages=[{"role": "user", "content": "Go"}], tools=tools,
                      tool_choice={**choice, "disable_parallel_tool_use": True}, extra_body={"temperature": 0})
        whole = demo.messages.create(**fields)
        with demo.messages.stream(**fields) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_message()
        assert blocks(whole) == blocks(final) and whole.stop_reason == final.stop_reason == "tool_use"
        (name, arguments), = blocks(whole)
        assert name in names and arguments["n"] in (1, 2)
        assert kinds.count("input_json") > 1  # as they are generated
    # A model without a reasoning ignores a budget, and forced calls go with one.
    whole = demo.messages.create(**{**fields, "max_tokens": 1500}, thinking={"type": "enabled", "budget_tokens": 1024})
    assert whole.stop_reason == "tool_use"


MARK = {"type": "ephemeral"}


@pytest.mark.parametrize("marks,session,stays", [
    ({}, {}, False),
    ({"cache_control": MARK}, {}, True),
    ({"cache_control": {**MARK, "ttl": "1h"}}, {}, True),
    ({}, {"metadata": {"user_id": "user_1_session_2"}}, True),
    ({}, {"extra_body": {"prompt_cache_key": "me"}}, True),
    ({}, {"extra_body": {"session_id": "s"}}, True),
    ({}, {"extra_body": {"prompt_cache_key": ""}}, False),
])
def test_marks_and_sessions_keep_the_prefix(start, marks, session, stays):
    """With few blocks, other prompts evict a chat's blocks, unless they are marked or their session is named."""
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--kv-cache-memory", "2M",
                   "--max-model-len", "512")
    demo = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    system = [{"type": "text", "text": "Some rules. " * 30, **marks}]
    fields = dict(model="demo", max_tokens=4, system=system, messages=[{"role": "user", "content": "Hi"}], **session)
    demo.messages.create(**fields)
    for i in range(40):
        demo.messages.create(model="demo", max_tokens=1, messages=[{"role": "user", "content": f"{i} " + "other words here " * 20}])
    assert (demo.messages.create(**fields).usage.cache_read_input_tokens > 0) == stays


def test_choices(claude):
    assert blocks(both(claude, CALL, tool_choice={"type": "none"})) == [CALL]
    one = both(claude, CALL + OTHER, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert blocks(one) == [("weather", WEATHER)]


def test_thinking_goes_back(claude):
    thought = [{"type": "thinking", "thinking": "Hm", "signature": "altered"}, {"type": "redacted_thinking", "data": "x"}]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [*thought, {"type": "text", "text": "A"}]},
                {"role": "user", "content": "B"}]
    for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}, {"type": "disabled"}):
        reply = claude.messages.create(**ask("", messages=messages, thinking=thinking))
        assert blocks(reply) == ["B"]


BAD = {
    "tools[1].type": {"tools": [TOOLS[0], {"type": "web_search_20250305", "name": "web_search"}]},
    "tools[0].name": {"tools": [{"name": "a\x01b", "input_schema": {}}]},
    "tools[1].name": {"tools": [TOOLS[0], TOOLS[0]]},
    "tools[0].input_schema": {"tools": [{"name": "f"}]},
    "tools[0].description": {"tools": [{"name": "f", "description": 3, "input_schema": {}}]},
    "tools": {"tools": [{"name": f"f{i}", "input_schema": {}} for i in range(1025)]},
    "tool_choice.type": {"tool_choice": {"type": "required"}},
    "tool_choice.name": {"tool_choice": {"type": "tool"}},
    "tool_choice": {"tool_choice": {"type": "tool", "name": "absent"}},
    "thinking.budget_tokens": {"thinking": {"type": "enabled", "budget_tokens": 1023}},
    "thinking.type": {"thinking": {"type": "maybe"}},
}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
TURNS = {
    "messages[2].content[0].tool_use_id": [[USE], [{**RESULT, "tool_use_id": "t2"}]],
    "messages[1].content[0]": [[USE], "no result"],
    "messages[1].content[1]": [[USE, {**USE, "id": "t2"}], [RESULT]],
    "messages[2].content[1].tool_use_id": [[USE], [RESULT, RESULT]],
    "messages[2].content[0].content[0].type": [[USE], [{**RESULT, "content": [IMAGE]}]],
    "messages[2].content[0].is_error": [[USE], [{**RESULT, "is_error": "yes"}]],
    "messages[1].content[0].input": [[{**USE, "input": "{}"}], [RESULT]],
    "messages[1].content[0].id": [[{**USE, "id": ""}], [RESULT]],
    "messages[1].content[0].type": [[RESULT], "x"],
    "messages[2].content[0].type": ["x", [USE]],
    "messages[1].content[0].thinking": [[{"type": "thinking"}], "x"],
}


@pytest.mark.parametrize("path", [*BAD, *TURNS])
def test_errors_name_the_path(claude, path):
    fields = BAD.get(path)
    if fields is None:
        assistant, user = TURNS[path]
        fields = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": assistant},
                               {"role": "user", "content": user}]}
    for call in (claude.messages.create, claude.messages.count_tokens):
        if path == "tool_choice" and call == claude.messages.count_tokens:
            continue  # a count needs no grammar
        body = ask("x", **fields)
        if call == claude.messages.count_tokens:
            del body["max_tokens"]
        with pytest.raises(anthropic.BadRequestError) as caught:
            call(**body)
        assert caught.value.type == "invalid_request_error"
        assert caught.value.body["error"]["message"].startswith(path + ": "), caught.value.body


def test_thousands_of_calls_take_no_time(claude):
    """The comparison of results with calls is bounded."""
    uses = [{**USE, "id": f"t{i}"} for i in range(20000)]
    body = ask("", messages=[{"role": "user", "content": "?"}, {"role": "assistant", "content": uses},
                             {"role": "user", "content": [{**RESULT, "tool_use_id": f"t{i}"} for i in range(20000)]}])
    with pytest.raises(anthropic.BadRequestError, match="more than 1024 calls"):
        claude.messages.create(**body)


def test_thinking_is_a_block(model):  # noqa: F811
    server = FakeServer(model, "--reasoning-parser", "qwen3")
    thinker = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    text = "<think>\nHm. <tool_call>\n</think>\n\nSo:\n" + CALL
    whole = thinker.messages.create(**ask(text))
    final, events = streamed(thinker, text)
    raw = list(thinker.messages.create(**ask(text), stream=True))
    for reply in (whole, final):
        assert [b.type for b in reply.content] == ["thinking", "text", "tool_use"] and reply.stop_reason == "tool_use"
        assert reply.content[0].thinking == "Hm. <tool_call>" and reply.content[0].signature
        assert blocks(type(reply).model_construct(content=reply.content[1:])) == ["So:", ("weather", WEATHER)]
    kinds = [e.delta.type for e in raw if e.type == "content_block_delta" and e.index == 0]
    assert kinds == ["thinking_delta"] * (len(kinds) - 1) + ["signature_delta"] and len(kinds) > 2
    # The reply is valid input as it is, and its signature may be altered.
    back = [b.model_dump(exclude_none=True) for b in whole.content]
    back[0]["signature"] = "x"
    result = {"type": "tool_result", "tool_use_id": whole.content[2].id, "content": "sunny"}
    again = thinker.messages.create(**ask("", messages=[{"role": "user", "content": "?"}, {"role": "assistant", "content": back},
                                                        {"role": "user", "content": [result]}]))
    assert blocks(again) == ["sunny"]
    assert server.stop() == 0


def test_ids_of_mistral(model):  # noqa: F811
    """Its templates reject other ids."""
    server = FakeServer(model, "--tool-call-parser", "mistral")
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    reply = client.messages.create(**ask('[TOOL_CALLS][{"name": "weather", "arguments": {}}]'))
    assert blocks(reply) == [("weather", {})] and len(reply.content[0].id) == 9 and reply.content[0].id.isalnum()
    assert server.stop() == 0
