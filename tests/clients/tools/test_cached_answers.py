"""A cached answer with calls and reasoning: every API returns the same as when it was computed, streamed or not."""

import json

import pytest
import rig
from test_tools import CALL, OTHER, FakeServer, model  # noqa: F401 (a fixture)

TEXT = "<think>\nI look.\n</think>\n\nSo: " + CALL + "\n" + OTHER
QWEN = "<tool_call>\n<function=weather>\n<parameter=city>\n7\n</parameter>\n</function>\n</tool_call>"


def post(server, path, body):
    reply = rig.answered(server, path, body)
    return reply.cache, reply.text


def of_chat(body, stream):
    """(reasoning, content, calls, end) of a reply."""
    if not stream:
        choice = json.loads(body)["choices"][0]
        m = choice["message"]
        return (m.get("reasoning"), m["content"],
                [(c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls", [])], choice["finish_reason"])
    reasoning, content, calls, end = "", "", [], None
    for line in body.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            reasoning += delta.get("reasoning") or ""
            content += delta.get("content") or ""
            for c in delta.get("tool_calls", []):
                if "id" in c:
                    calls.append((c["function"]["name"], ""))
                calls[-1] = (calls[-1][0], calls[-1][1] + c["function"].get("arguments", ""))
                end = end or None
            end = choice["finish_reason"] or end
    return reasoning or None, content or None, calls, end


def of_messages(body, stream):
    if not stream:
        reply = json.loads(body)
        return [(b["type"], b.get("text") or b.get("thinking") or (b["name"], json.dumps(b["input"]))) for b in reply["content"]], reply["stop_reason"]
    blocks, end = [], None
    for event in (json.loads(e.split("data: ", 1)[1]) for e in body.split("\n\n") if "data: " in e):
        if event["type"] == "content_block_start":
            blocks.append([event["content_block"]["type"], event["content_block"].get("name"), ""])
        elif event["type"] == "content_block_delta" and event["delta"]["type"] != "signature_delta":
            d = event["delta"]
            blocks[-1][2] += d.get("text") or d.get("thinking") or d.get("partial_json") or ""
        elif event["type"] == "message_delta":
            end = event["delta"]["stop_reason"]
    return [(kind, (name, json.dumps(json.loads(text))) if kind == "tool_use" else text) for kind, name, text in blocks], end


def of_text(body, stream):
    if not stream:
        return json.loads(body)["choices"][0]["text"]
    return "".join(json.loads(e[6:])["choices"][0]["text"] for e in body.split("\n\n") if e.startswith("data: {"))


def of_response(body, stream):
    if not stream:
        return [(o["type"], o.get("content"), o.get("name"), o.get("arguments")) for o in json.loads(body)["output"]]
    events = [json.loads(e.split("data: ", 1)[1]) for e in body.split("\n\n") if "data: " in e]
    return [(o["type"], o.get("content"), o.get("name"), o.get("arguments")) for o in events[-1]["response"]["output"]]


TOOL = {"name": "weather", "parameters": {"type": "object"}}
MESSAGE = [{"role": "user", "content": TEXT}]
APIS = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGE, "tools": [{"type": "function", "function": TOOL}]}, of_chat),
    "messages": ("/v1/messages", {"messages": MESSAGE, "tools": [{"name": "weather", "input_schema": {"type": "object"}}]}, of_messages),
    "completions": ("/v1/completions", {"prompt": TEXT}, of_text),
    "responses": ("/v1/responses", {"input": TEXT}, of_response),
}


@pytest.mark.parametrize("first", [False, True], ids=["whole-first", "stream-first"])
@pytest.mark.parametrize("api", APIS)
def test_replays(model, api, first):  # noqa: F811
    path, fields, read = APIS[api]
    limit = {"max_output_tokens": 400} if api == "responses" else {"max_tokens": 400}
    body = {"model": "fake", "temperature": 0, **limit, **fields}
    s = FakeServer(model, "--reasoning-parser", "qwen3", "--cache-entries", "16")
    try:
        layer, reply = post(s, path, {**body, "stream": first})
        computed = read(reply, first)
        assert layer == "miss"
        for stream in (not first, first, not first):
            layer, reply = post(s, path, {**body, "stream": stream})
            assert layer == "exact" and read(reply, stream) == computed
        if api == "chat":
            assert computed[0] == "I look." and [name for name, _ in computed[2]] == ["weather", "clock"] and computed[3] == "tool_calls"
        if api == "messages":
            assert [kind for kind, _ in computed[0]] == ["thinking", "text", "tool_use", "tool_use"] and computed[1] == "tool_use"
    finally:
        assert s.stop() == 0


def test_ids_of_calls_are_new(model):  # noqa: F811
    """An agent refers to calls by their ids, which are unique in its chat."""
    path, fields, _ = APIS["chat"]
    s = FakeServer(model, "--cache-entries", "16")
    try:
        replies = [json.loads(post(s, path, {"model": "fake", "temperature": 0, "max_tokens": 400, **fields})[1]) for _ in range(3)]
        ids = [c["id"] for r in replies for c in r["choices"][0]["message"]["tool_calls"]]
        assert len(set(ids)) == 6
    finally:
        assert s.stop() == 0


def test_other_terms_are_other_answers(model):  # noqa: F811
    """The tools' types, tool_choice and parallel_tool_calls change what becomes of the same tokens."""
    s = FakeServer(model, "--tool-call-parser", "qwen3_coder", "--cache-entries", "64")

    def ask(kind="string", **fields):
        schema = {"type": "object", "properties": {"city": {"type": kind}}}
        body = {"model": "fake", "temperature": 0, "max_tokens": 400, "messages": [{"role": "user", "content": QWEN * 2}],
                "tools": [{"type": "function", "function": {"name": "weather", "parameters": schema}}], **fields}
        return [of_chat(post(s, "/v1/chat/completions", {**body, "stream": stream})[1], stream) for stream in (False, True, False)]

    try:
        for _ in range(2):
            for kind, arguments in (("string", '{"city": "7"}'), ("integer", '{"city": 7}')):
                assert ask(kind) == [(None, None, [("weather", arguments)] * 2, "tool_calls")] * 3
            assert [r[2] for r in ask(parallel_tool_calls=False)] == [[("weather", '{"city": "7"}')]] * 3
            assert [r[1] for r in ask(tool_choice="none")] == [QWEN * 2] * 3
            assert [r[1] for r in ask(tools=None)] == [QWEN * 2] * 3
    finally:
        assert s.stop() == 0


def test_other_parsers_are_other_answers(model, tmp_path):  # noqa: F811
    """A file of cached answers, opened by servers with other parsers."""
    path, fields, _ = APIS["chat"]
    body = {"model": "fake", "temperature": 0, "max_tokens": 400, **fields}
    without = {k: v for k, v in body.items() if k != "tools"}
    for tools, reasoning in (("hermes", "qwen3"), ("none", "qwen3"), ("hermes", "none"), ("hermes", "qwen3"), ("mistral", "qwen3")):
        s = FakeServer(model, "--tool-call-parser", tools, "--reasoning-parser", reasoning, "--cache-entries", "16",
                       "--cache-file", tmp_path / "answers")
        try:
            for one in (body, without) * 2:
                found = of_chat(post(s, path, one)[1], False)
                assert (found[0] is not None) == (reasoning == "qwen3"), (tools, reasoning, found)
                assert len(found[2]) == (2 if tools == "hermes" and one is body else 0), (tools, reasoning, found)
        finally:
            assert s.stop() == 0
