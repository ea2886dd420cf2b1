"""Responses and Anthropic's Messages, over an engine whose tokens are known: it repeats the prompt, then ends."""

import json
import pathlib
import shutil
import signal
import sys
import tempfile

from harness import TOKENIZER, Server, post_bytes, read_all, run_tests, wait_until

RESPONSES, MESSAGES, COUNT, CHATS = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
CHAT = [{"role": "user", "content": "Hello there"}]
ASK = {"max_tokens": 200, "messages": CHAT}
STREAMS = ((RESPONSES, {"input": "Hello there"}), (MESSAGES, ASK))

def tokenizer_with(template):
    """A copy of the tokenizer with another chat template."""
    path = pathlib.Path(tempfile.mkdtemp())
    for file in pathlib.Path(TOKENIZER).iterdir():
        if file.suffix == ".json":
            shutil.copy(file, path)
    (path / "chat_template.jinja").write_text(template)
    return str(path)


server = Server()
TEXT = {"type": "text", "text": "x"}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.36.2e1; cc_entrypoint=cli; cch=36ee5;"


def chat(messages, **fields):
    status, reply = server.post(CHATS, {"messages": messages, **fields})
    assert status == 200, reply
    return reply


def content(messages, **fields):
    return chat(messages, **fields)["choices"][0]["message"]["content"]


# The engine's answer to a prompt is the whole prompt, repeated from its beginning.
WHOLE = {"ignore_eos": True, "skip_special_tokens": False}
N_WHOLE = 90


def prompt_of_chat(messages, **fields):
    return content(messages, max_tokens=N_WHOLE, **WHOLE, **fields)


def prompt_of_response(**fields):
    return text_of(respond(max_output_tokens=N_WHOLE, **WHOLE, **fields))


def prompt_of_message(**fields):
    return text_of(message(**{**WHOLE, "max_tokens": N_WHOLE, **fields}))


def respond(s=server, **fields):
    status, reply = s.post(RESPONSES, fields)
    assert status == 200, reply
    return reply


def message(**fields):
    status, reply = server.post(MESSAGES, {**ASK, **fields})
    assert status == 200, reply
    return reply


def text_of(reply):
    """The text of a whole reply in either dialect."""
    return (reply["output"][0] if "output" in reply else reply)["content"][0]["text"]


def split(data):
    """A stream's events: each event line also has its type."""
    events = []
    for part in data.decode().split("\n\n")[:-1]:
        if part.startswith(":"):
            continue
        first, second = part.split("\n")
        event = json.loads(second.removeprefix("data: "))
        assert first == "event: " + event["type"]
        events.append(event)
    return events


def stream(path, body, s=server):
    status, headers, data = s.request("POST", path, {**body, "stream": True})
    assert status == 200 and headers["Content-Type"] == "text/event-stream", data
    assert data.endswith(b"\n\n") and b"[DONE]" not in data
    return split(data)


def check_error(path, reply, status):
    """Checks an error object in the format of the path's API. Returns its message."""
    if path == RESPONSES:
        assert set(reply) == {"error"} and set(reply["error"]) == {"message", "type", "param", "code"}, reply
        return reply["error"]["message"]
    types = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
             405: "invalid_request_error",
             413: "invalid_request_error", 429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}
    assert reply["type"] == "error" and len(reply["request_id"]) == 32
    assert set(reply) == {"type", "error", "request_id"}, reply
    assert set(reply["error"]) == {"type", "message"} and reply["error"]["type"] == types[status], reply
    return reply["error"]["message"]


# ---- Responses --------------------------------------------------------------------------------------------------


def test_a_response():
    reply = respond(input="Hello there")
    whole = chat(CHAT)
    assert reply["object"] == "response" and reply["status"] == "completed" and reply["model"] == "fake"
    assert reply["id"].startswith("resp_") and isinstance(reply["created_at"], int)
    assert isinstance(reply["completed_at"], int)
    assert reply["error"] is None and reply["incomplete_details"] is None
    assert reply["output"] == [{"type": "message", "id": reply["output"][0]["id"], "role": "assistant",
                                "status": "completed",
                                "content": [{"type": "output_text", "text": whole["choices"][0]["message"]["content"],
                                             "annotations": [], "logprobs": []}]}]
    usage = whole["usage"]
    assert reply["usage"] == {
        "input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
        "input_tokens_details": {"cached_tokens": usage["cache_read_tokens"],
                                 "cache_write_tokens": usage["cache_creation_tokens"]},
        "output_tokens_details": {"reasoning_tokens": 0}}


def test_what_a_response_repeats():
    defaults = {"instructions": None, "metadata": {}, "max_output_tokens": None, "temperature": 1, "top_p": 1,
                "top_logprobs": 0,
                "tool_choice": "auto", "tools": [], "truncation": "disabled", "user": None, "parallel_tool_calls": True,
                "text": {"format": {"type": "text"}}, "store": True, "background": False, "previous_response_id": None}
    reply = respond(input="x")
    assert {name: reply[name] for name in defaults} == defaults
    given = {"instructions": "Be \"brief\"", "metadata": {"a": "b"}, "max_output_tokens": 50, "temperature": 0.7,
             "top_p": 0.05,
             "top_logprobs": 3, "tool_choice": "none", "truncation": "auto", "user": "u", "parallel_tool_calls": False}
    ignored = {"store": True, "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}, "service_tier": "auto",
               "previous_response_id": None, "background": False, "tools": [],
               "stream_options": {"include_obfuscation": False},
               "include": ["reasoning.encrypted_content"], "something_new": {"x": 1}}
    reply = respond(input="x", **given, **ignored)
    assert {name: reply[name] for name in given} == given
    assert {name: reply[name] for name in ("store", "text")} == {name: defaults[name] for name in ("store", "text")}
    assert reply["output"][0]["content"][0]["logprobs"] == []


def test_input_is_a_chat():
    items = [{"role": "system", "content": "Be nice."},
             {"type": "message", "role": "developer", "content": "Be brief."},
             {"role": "user",
              "content": [{"type": "input_text", "text": "Hello"}, {"type": "input_text", "text": "there"}]},
             {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
              "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}]},
             {"role": "user", "content": "Bye"}]
    same = [{"role": "system", "content": "Be nice."}, {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hello\nthere"}, {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Bye"}]
    prompt = prompt_of_response(input=items)
    assert prompt == prompt_of_chat(same) and prompt.count("<|im_start|>") > len(same)
    told = prompt_of_response(input=items, instructions="One.")
    assert told == prompt_of_chat([{"role": "system", "content": "One."}, *same])
    # The output of a reply is valid input without a change.
    turn = respond(input="Hello there")
    assert prompt_of_response(input=[*CHAT, *turn["output"], {"role": "user", "content": "and"}]) == prompt_of_chat(
        [*CHAT, {"role": "assistant", "content": text_of(turn)}, {"role": "user", "content": "and"}])


def test_an_incomplete_response():
    reply = respond(input="Hello there", max_output_tokens=3)
    assert reply["status"] == reply["output"][0]["status"] == "incomplete" and reply["completed_at"] is None
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"} and reply["usage"]["output_tokens"] == 3
    events = stream(RESPONSES, {"input": "Hello there", "max_output_tokens": 3})
    assert events[-1]["type"] == "response.incomplete" and events[-1]["response"]["status"] == "incomplete"


def test_events_that_repeat_much_are_nobodys_slowness():
    metadata = {"a": "b" * 1500000}
    events = stream(RESPONSES, {"input": "Hello there", "metadata": metadata})
    assert events[0]["response"]["metadata"] == events[-1]["response"]["metadata"] == metadata
    prompt = "ab " * 11000  # each result of llama.cpp's streams repeats it
    with Server("--max-model-len", 100000) as s:
        status, _, data = s.request("POST", "/completion", {"prompt": prompt, "n_predict": 1, "n_cmpl": 128, "stream": True})
        events = [json.loads(event.removeprefix("data: ")) for event in data.decode().split("\n\n")[:-1]]
        assert status == 200 and [e["index"] for e in events if e["stop"]] == list(range(128))
        assert all(e["prompt"] == prompt for e in events if e["stop"])


def test_the_events_of_a_response():
    ask = {"input": "Hello naïve café 🙂", "include": ["message.output_text.logprobs"], "top_logprobs": 2,
           "stop": "\n🙂🙂"}
    whole = respond(**ask)
    part = whole["output"][0]["content"][0]
    for logprobs in (True, False):
        events = stream(RESPONSES, ask if logprobs else {"input": ask["input"]})
        kinds = [e["type"].removeprefix("response.") for e in events]
        deltas = [e for e in events if e["type"] == "response.output_text.delta"]
        assert kinds == ["created", "in_progress", "output_item.added", "content_part.added",
                         *["output_text.delta"] * len(deltas),
                         "output_text.done", "content_part.done", "output_item.done", "completed"], kinds
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        created, _, added, began, *_, text_done, part_done, item_done, completed = events
        assert created["response"]["status"] == "in_progress" and created["response"]["output"] == []
        assert created["response"]["usage"] is None and added["item"]["status"] == "in_progress"
        assert added["item"]["content"] == []
        assert began["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        last = completed["response"]
        item = last["output"][0]
        assert {e["item_id"] for e in (began, *deltas, text_done, part_done)} == {item["id"]} == {added["item"]["id"]}
        assert all(e["output_index"] == e["content_index"] == 0 for e in (began, *deltas, text_done, part_done))
        assert item_done["item"] == item and part_done["part"] == item["content"][0]
        assert "".join(e["delta"] for e in deltas) == text_done["text"] == text_of(last) == part["text"]
        assert text_done["logprobs"] == (part["logprobs"] if logprobs else [])
        assert [x for e in deltas for x in e["logprobs"]] == text_done["logprobs"]
        assert last["usage"] == whole["usage"] and last["id"] == created["response"]["id"]
        assert logprobs or all(e["delta"] for e in deltas)
    assert len(part["logprobs"]) == whole["usage"]["output_tokens"] and len(part["logprobs"][0]["top_logprobs"]) == 2
    same = chat([{"role": "user", "content": ask["input"]}], logprobs=True, top_logprobs=2,
                stop=ask["stop"])["choices"][0]
    assert part["logprobs"] == same["logprobs"]["content"] and part["text"] == same["message"]["content"]


def test_bad_responses_name_the_field():
    item = {"type": "message", "role": "user", "content": "x"}
    bad = [({"input": None}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": [3]}, "input[0]"),
           ({"input": [item, {"type": "item_reference", "id": "x"}]}, "input[1].type"),
           ({"input": [{**item, "type": 3}]}, "input[0].type"),
           ({"input": [{**item, "role": "tool"}]}, "input[0].role"), ({"input": [{"content": "x"}]}, "input[0].role"),
           ({"input": [{**item, "content": None}]}, "input[0].content"),
           ({"input": [{**item, "content": ["x"]}]}, "input[0].content"),
           ({"input": [{**item, "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
           ({"input": [{**item, "content": [{"type": "input_text", "text": 3}]}]}, "input[0].content"),
           ({"instructions": ["x"]}, "instructions"), ({"max_output_tokens": 0}, "max_output_tokens"),
           ({"max_output_tokens": 5000}, "max_output_tokens"), ({"temperature": 2.5}, "temperature"),
           ({"top_p": -0.1}, "top_p"),
           ({"top_logprobs": 21}, "top_logprobs"), ({"include": "x"}, "include"), ({"include": [3]}, "include"),
           ({"truncation": "some"}, "truncation"), ({"metadata": {"a": 1}}, "metadata"),
           ({"metadata": "x"}, "metadata"),
           ({"user": 3}, "user"), ({"store": "yes"}, "store"), ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
           ({"text": "x"}, "text"), ({"text": {"format": {"type": "xml"}}}, "text.format"),
           ({"text": {"format": 3}}, "text.format"),
           ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"conversation": "conv_1"}, "conversation"),
           ({"background": True}, "background"), ({"prompt": {"id": "x"}}, "prompt"),
           ({"n": 2}, "n"), ({"structured_outputs": {"json": 1}}, "structured_outputs.json"), ({"stop": [""]}, "stop"),
           ({"stream": 1}, "stream"), ({"input": "word " * 6000}, "input"),
           ({"input": "\n" * 9000, "max_output_tokens": 4}, "input")]
    for fields, param in bad:
        status, reply = server.post(RESPONSES, {"input": "x", **fields})
        assert (status, reply["error"]["param"]) == (400, param), (str(fields)[:200], reply)
        assert param in check_error(RESPONSES, reply, 400)
    cut = respond(input="word " * 6000, truncation="auto", max_output_tokens=6)
    assert cut["usage"]["input_tokens"] == 4090 and cut["usage"]["output_tokens"] == 6
    assert server.get(RESPONSES + "/resp_1")[0] == 404 and server.request("GET", RESPONSES)[0] == 405


# ---- Messages ---------------------------------------------------------------------------------------------------


def test_a_message():
    reply = message(system="Be nice.")
    whole = chat([{"role": "system", "content": "Be nice."}, *CHAT])
    usage = whole["usage"]
    assert reply.pop("id").startswith("msg_")
    assert reply == {
        "type": "message", "role": "assistant", "model": "fake", "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": whole["choices"][0]["message"]["content"]}],
        "usage": {"input_tokens": usage["prompt_tokens"] - usage["cache_creation_tokens"],
                  "output_tokens": usage["completion_tokens"],
                  "cache_creation_input_tokens": usage["cache_creation_tokens"], "cache_read_input_tokens": 0}}
    assert usage["cache_creation_tokens"] == 16
    status, headers, _ = server.request("POST", MESSAGES, ASK,
                                        {"anthropic-version": "2023-06-01", "x-request-id": "mine"})
    assert status == 200 and headers["request-id"] == headers["x-request-id"] == "mine"


def test_why_a_message_stops():
    reply = message(max_tokens=3)
    assert (reply["stop_reason"], reply["stop_sequence"], reply["usage"]["output_tokens"]) == ("max_tokens", None, 3)
    for ending in ([" there"], ["zzz", " there"]):
        reply = message(stop_sequences=ending)
        assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", " there")
        assert text_of(reply) == content(CHAT).split(" there")[0]
        assert stream(MESSAGES, {**ASK, "stop_sequences": ending})[-2]["delta"] == {
            "stop_reason": "stop_sequence", "stop_sequence": " there"}


def test_messages_are_a_chat():
    blocks = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}},
              {"type": "text", "text": "there"}]
    joined = {"role": "user", "content": "Hello\nthere"}
    turns = [{"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, {"role": "user", "content": "Bye"}]
    prompt = prompt_of_message(messages=[{"role": "user", "content": blocks}, *turns],
                               system=[{"type": "text", "text": "Be nice."}])
    same = [{"role": "system", "content": "Be nice."}, joined, {"role": "assistant", "content": "Hi"}, turns[1]]
    assert prompt == prompt_of_chat(same) and prompt.count("<|im_start|>") > len(same)
    # A partial answer is continued.
    begun = [*CHAT, {"role": "assistant", "content": "I say"}]
    prompt = prompt_of_message(messages=begun)
    assert prompt == prompt_of_chat(begun, continue_final_message=True) != prompt_of_chat(begun)
    sampled = {"temperature": 0.9, "top_p": 0.5, "top_k": 4, "seed": 5}
    assert text_of(message(**sampled)) == content(CHAT, **sampled)
    ignored = {"metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "disabled"}, "tools": [],
               "tool_choice": {"type": "auto"}, "cache_control": {"type": "ephemeral"},
               "output_config": {"effort": "low"},
               "stop": ["Hello"], "something_new": 1}
    assert text_of(message(**ignored)) == content(CHAT)


def test_the_events_of_a_message():
    ask = {**ASK, "messages": [{"role": "user", "content": "Hello naïve café 🙂"}]}
    whole = message(**ask)
    events = stream(MESSAGES, ask)
    deltas = [e for e in events if e["type"] == "content_block_delta"]
    assert [e["type"] for e in events] == ["message_start", "ping", "content_block_start",
                                           *["content_block_delta"] * len(deltas),
                                           "content_block_stop", "message_delta", "message_stop"]
    start, _, block, *_, stop, end, _ = events
    begun = start["message"]
    assert (begun["content"], begun["stop_reason"], begun["stop_sequence"]) == ([], None, None)
    assert begun["role"] == "assistant"
    # The number of cached tokens is known at the end.
    assert begun["usage"]["input_tokens"] == chat(ask["messages"])["usage"]["prompt_tokens"]
    assert block["content_block"] == {"type": "text", "text": ""} and block["index"] == stop["index"] == 0
    assert all(e["index"] == 0 and e["delta"]["type"] == "text_delta" and e["delta"]["text"] for e in deltas)
    assert "".join(e["delta"]["text"] for e in deltas) == text_of(whole)
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None} and end["usage"] == whole["usage"]


def test_tools_are_a_chats():
    """The prompt equals that of the same chat, with a template that shows everything."""
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    tools = [{"name": "f", "description": "A.", "input_schema": schema, "cache_control": {"type": "ephemeral"}},
             {"type": "custom", "name": "g", "input_schema": {}}]
    same_tools = [{"type": "function", "function": {"name": "f", "description": "A.", "parameters": schema}},
                  {"type": "function", "function": {"name": "g", "parameters": {}}}]
    turns = [{"role": "user", "content": "Go"},
             {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "altered"},
                                               {"type": "redacted_thinking", "data": "x"}, TEXT, CALL,
                                               {**CALL, "id": "t2"}]},
             {"role": "user", "content": [{"type": "text", "text": "and"},
                                          {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                                          {"type": "tool_result", "tool_use_id": "t2", "is_error": True,
                                           "content": [TEXT, TEXT]}]}]
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    same = [{"role": "user", "content": "Go"},
            {"role": "assistant", "content": "x", "reasoning_content": "Hm",
             "tool_calls": [{"id": "t1", **call}, {"id": "t2", **call}]},
            {"role": "tool", "content": "one", "tool_call_id": "t1"},
            {"role": "tool", "content": "Error: x\nx", "tool_call_id": "t2"}, {"role": "user", "content": "and"}]
    template = "{{ messages | tojson }}{{ tools | tojson }}{{ enable_thinking }}{{ reasoning_effort }}#"
    with Server(tokenizer=tokenizer_with(template)) as s:
        def prompt(path, **fields):
            status, reply = s.post(path, {"max_tokens": 700, **WHOLE, **fields})
            assert status == 200, reply
            text = text_of(reply) if path == MESSAGES else reply["choices"][0]["message"]["content"]
            return text[:text.index("#")]

        kwargs = {"enable_thinking": True, "reasoning_effort": "high"}
        expected = prompt(CHATS, messages=same, tools=same_tools, chat_template_kwargs=kwargs)
        got = prompt(MESSAGES, messages=turns, tools=tools, thinking={"type": "adaptive"},
                     output_config={"effort": "max"})
        assert got == expected and '"t2"' in got and got.endswith("Truehigh")
        none = prompt(MESSAGES, messages=turns, tools=tools, tool_choice={"type": "none"}, thinking={"type": "disabled"})
        assert none == prompt(CHATS, messages=same, chat_template_kwargs={"enable_thinking": False})
        kwargs = {"enable_thinking": False, "reasoning_effort": "low"}
        assert prompt(MESSAGES, messages=turns, **kwargs) == prompt(CHATS, messages=same, chat_template_kwargs=kwargs)
        # Counting sees the same prompt.
        fields = {"messages": turns, "tools": tools, "thinking": {"type": "adaptive"}}
        count = s.post(COUNT, fields)[1]["input_tokens"]
        usage = s.post(MESSAGES, {"max_tokens": 1, **fields})[1]["usage"]
        assert count == sum(usage[k] for k in usage if k != "output_tokens")
        assert count > s.post(COUNT, {"messages": turns})[1]["input_tokens"]


def test_a_large_max_tokens_is_cut_to_the_context():
    reply = message(max_tokens=2000000, ignore_eos=True)
    n_input = sum(reply["usage"][k] for k in reply["usage"] if k != "output_tokens")
    assert reply["stop_reason"] == "max_tokens" and n_input + reply["usage"]["output_tokens"] == 4096


def test_counting():
    for messages in (CHAT, [*CHAT, {"role": "assistant", "content": "I say"}]):
        fields = {"messages": messages, "system": "Be nice."}
        status, reply = server.post(COUNT, fields)
        assert status == 200 and set(reply) == {"input_tokens"}
        usage = message(**fields)["usage"]
        assert reply["input_tokens"] == usage["input_tokens"] + usage["cache_creation_input_tokens"]
    for fields, name in (({"messages": []}, "messages"), ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
                         ({"system": 3}, "system")):
        status, reply = server.post(COUNT, {"messages": CHAT, **fields})
        assert status == 400 and check_error(COUNT, reply, 400).startswith(name + ":")
    status, reply = server.post(COUNT, {"messages": CHAT, "model": "gpt-9"})
    assert status == 404 and "gpt-9" in check_error(COUNT, reply, 404)


def test_bad_messages_name_the_field():
    user = {"role": "user", "content": "x"}
    bad = [({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"),
           ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": [3]}, "messages[0].role"),
           ({"messages": [{**user, "role": "tool"}]}, "messages[0].role"),
           ({"messages": [user, {"role": "user"}]}, "messages[1].content"),
           ({"messages": [{**user, "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
           ({"messages": [{**user, "content": [TEXT, {"type": "document"}]}]}, "messages[0].content[1].type"),
           ({"messages": [{**user, "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
           ({"system": 3}, "system"),
           ({"system": [{"type": "image"}]}, "system[0].type"), ({"temperature": 1.5}, "temperature"),
           ({"temperature": "1"}, "temperature"),
           ({"top_p": 2}, "top_p"), ({"top_k": -2}, "top_k"), ({"stop_sequences": [""]}, "stop_sequences"),
           ({"n": 2}, "n"),
           ({"stop_sequences": [3]}, "stop_sequences"), ({"metadata": "x"}, "metadata"),
           ({"metadata": {"user_id": 3}}, "metadata.user_id"),
           ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"container": "x"}, "container"),
           ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"), ({"output_config": {"effort": "x"}}, "output_config.effort"),
           ({"chat_template_kwargs": 3}, "chat_template_kwargs"),
           ({"cache_control": {"type": "x"}}, "cache_control"),
           ({"system": [TEXT, {**TEXT, "cache_control": {"type": "ephemeral", "ttl": "2h"}}]}, "system[1].cache_control"),
           ({"messages": [user, {"role": "assistant", "content": [CALL]}]}, "messages[1].content[0]"),
           ({"messages": [user, {"role": "assistant", "content": [CALL, CALL]}]}, "messages[1].content[1]"),
           ({"enable_thinking": "no"}, "enable_thinking"), ({"reasoning_effort": 3}, "reasoning_effort"),
           ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": 3}]}]},
            "messages[0].content[0].signature"),
           ({"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": 3}]}]},
            "messages[0].content[0].data"),
           ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
           ({"output_format": {"type": "x"}}, "output_format"),
           ({"stream": "yes"}, "stream"),
           ({"messages": [{**user, "content": "word " * 6000}]}, "prompt is too long: messages")]
    for fields, param in bad:
        status, reply = server.post(MESSAGES, {**ASK, **fields})
        assert status == 400, (str(fields)[:200], reply)
        assert check_error(MESSAGES, reply, 400).startswith(param + ": "), (fields, reply)
    for body in (b"", b"{nonsense", b"[1]"):
        status, reply = server.post(MESSAGES, body)
        assert status == 400 and check_error(MESSAGES, reply, 400)
    status, reply = server.post(MESSAGES, {**ASK, "model": "gpt-9"})
    assert status == 404 and "gpt-9" in check_error(MESSAGES, reply, 404)
    for method, path, status in (("GET", MESSAGES, 405), ("GET", MESSAGES + "/batches", 404),
                                 ("POST", MESSAGES + "/x", 404)):
        got, headers, reply = server.request(method, path)
        assert got == status and check_error(path, json.loads(reply), status)
        assert headers["request-id"] == headers["x-request-id"]
    # Only these paths use Anthropic's format.
    assert "code" in server.get("/v1/messagesx")[1]["error"]


# ---- both -------------------------------------------------------------------------------------------------------


def test_several_tokens_in_an_event():
    logprobs = {"include": ["message.output_text.logprobs"]}
    for path, body in ((RESPONSES, {"input": "Hello there my friend", **logprobs}), (MESSAGES, ASK)):
        delta = "response.output_text.delta" if path == RESPONSES else "content_block_delta"
        text, n_events, n_logprobs = [], [], []
        for interval in (1, 3):
            deltas = [e for e in stream(path, {**body, "stream_interval": interval}) if e["type"] == delta]
            text.append("".join(e["delta"] if path == RESPONSES else e["delta"]["text"] for e in deltas))
            n_events.append(len(deltas))
            n_logprobs.append(sum(len(e.get("logprobs", [])) for e in deltas))
        assert text[0] == text[1] and n_events[1] <= n_events[0] // 2 + 1 and n_logprobs[0] == n_logprobs[1]


def test_keys():
    with Server("--api-key", "sesame", "--api-key", "other") as s:
        for path, body in STREAMS:
            good = ({"Authorization": "Bearer sesame"}, {"x-api-key": "sesame"}, {"x-api-key": "other"},
                    {"x-api-key": "sesame", "Authorization": "Bearer sesame"},
                    {"x-api-key": "sesame", "Authorization": "Basic x"})
            for headers in good:
                assert s.request("POST", path, body, headers)[0] == 200, headers
            bad = ({}, {"x-api-key": "wrong"}, {"x-api-key": ""}, {"Authorization": "Bearer wrong"},
                   {"x-api-key": "sesame", "Authorization": "Bearer other"},
                   {"x-api-key": "sesame", "Authorization": "Bearer wrong"},
                   {"x-api-key": "wrong", "Authorization": "Bearer sesame"})
            for headers in bad:
                status, got, reply = s.request("POST", path, body, headers)
                assert status == 401 and got["WWW-Authenticate"] == "Bearer", headers
                assert "API key" in check_error(path, json.loads(reply), 401)
        assert s.request("GET", "/v1/models", headers={"x-api-key": "other"})[0] == 200


def test_refusals():
    with Server("--max-live", 1, "--interval-us", 20000, "--max-body-bytes", 400) as s:
        with s.connect() as holder:
            holder.sendall(post_bytes(MESSAGES, {**ASK, "ignore_eos": True, "stream": True}))
            assert holder.recv(4096).startswith(b"HTTP/1.1 200")
            for path, body in STREAMS:
                for streamed in (False, True):
                    status, headers, reply = s.request("POST", path, {**body, "stream": streamed})
                    assert status == 429 and headers["Retry-After"] == "2" and headers["retry-after-ms"] == "1500"
                    check_error(path, json.loads(reply), 429)
        assert s.idle()  # the departed client's request was cancelled
        for path, body in STREAMS:
            status, _, reply = s.request("POST", path, {**body, "x": "y" * 400})
            assert status == 413 and check_error(path, json.loads(reply), 413)


def test_a_fault_in_a_stream():
    fail = server.post("/tokenize", {"prompt": " there"})[1]["tokens"][0]
    with Server("--fail-token", fail) as s:
        for path, body in STREAMS:
            status, reply = s.post(path, body)
            assert status == 500 and check_error(path, reply, 500)
        *_, error, failed = stream(RESPONSES, {"input": "Hello there"}, s)
        assert error["type"] == "error" and error["code"] == "internal_error" and "fail" in error["message"]
        assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed"
        assert failed["response"]["error"] == {"code": "server_error", "message": error["message"]}
        assert failed["sequence_number"] == error["sequence_number"] + 1
        *_, before, error = stream(MESSAGES, ASK, s)
        assert before["type"] == "content_block_delta" and "fail" in check_error(MESSAGES, error, 500)


def test_an_engine_that_goes_away():
    with Server("--interval-us", 5000) as s:
        s.process.send_signal(signal.SIGUSR1)
        assert wait_until(lambda: s.get("/health")[0] == 503)
        for path, body in (*STREAMS, (COUNT, {"messages": CHAT})):
            status, headers, reply = s.request("POST", path, body)
            assert status == 503 and headers["Retry-After"] == "1"
            check_error(RESPONSES if path == RESPONSES else MESSAGES, json.loads(reply), 503)


def test_silence_deadlines_and_traces():
    with Server("--ping-ms", 50, "--interval-us", 300000, "--refuse-below-ms", 100) as s:
        for path, body in STREAMS:
            limit = {"max_tokens": 3} if path == MESSAGES else {"max_output_tokens": 3}
            data = s.request("POST", path, {**body, **limit, "stream": True})[2]
            assert data.count(b": ping\n\n") >= 4 and len(split(data)) > 5
            status, _, reply = s.request("POST", path, body, {"x-quire-deadline-ms": "50"})
            assert status == 429 and check_error(path, json.loads(reply), 429)
            status, _, reply = s.request("POST", path, body, {"x-quire-deadline-ms": "x"})
            assert status == 400 and check_error(path, json.loads(reply), 400).startswith("x-quire-deadline-ms")
    for path, body in STREAMS:
        assert server.post(path, {**body, "quire_trace": True})[1]["quire_trace"]["chunks"] == 1
        events = stream(path, {**body, "quire_trace": True})
        last = events[-1]["response"] if path == RESPONSES else events[-2]
        assert last["quire_trace"]["chunks"] == 1 and json.dumps(events).count("quire_trace") == 1


def test_a_draining_server_finishes_them():
    for path, body in STREAMS:
        s = Server("--interval-us", 10000)
        with s.connect() as holder, s.connect() as early:
            limit = {"max_tokens": 200} if path == MESSAGES else {"max_output_tokens": 200}
            holder.sendall(post_bytes(path, {**body, **limit, "ignore_eos": True, "stream": True}))
            assert holder.recv(4096).startswith(b"HTTP/1.1 200")
            s.process.terminate()
            assert wait_until(lambda: s.get("/health")[0] == 503)
            early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # connected earlier, with no request yet
            assert early.recv(4096).startswith(b"HTTP/1.1 503")
            status, late = s.post(path, body)
            assert status == 503 and check_error(path, late, 503)
            assert (b"event: message_stop" if path == MESSAGES else b"event: response.incomplete") in read_all(holder)
        assert s.process.wait(20) == 0
        s.process.stdout.close()


def test_an_empty_system_prompt_is_none():
    plain = prompt_of_message(messages=CHAT)
    for system in ("", [], [{"type": "text", "text": ""}], [{"type": "text", "text": ""}] * 2, None):
        assert prompt_of_message(messages=CHAT, system=system) == plain, system
        assert server.post(COUNT, {"messages": CHAT, "system": system})[1] == server.post(COUNT, {"messages": CHAT})[1]
    for system in (" ", [{"type": "text", "text": "x"}, {"type": "text", "text": ""}]):
        assert prompt_of_message(messages=CHAT, system=system) != plain, system
    assert prompt_of_response(input="Hello there", instructions="") == prompt_of_response(input="Hello there")
    assert prompt_of_response(input="Hello there", instructions=" ") != prompt_of_response(input="Hello there")


def test_billing_lines_are_no_part_of_a_prompt():
    text = lambda *texts: [{"type": "text", "text": t, "cache_control": {"type": "ephemeral"}} for t in texts]
    plain, none = prompt_of_message(messages=CHAT, system="Be nice."), prompt_of_message(messages=CHAT)
    for line in (BILLING, BILLING[:-1], BILLING.upper().replace("X-ANTHROPIC", "X-Anthropic"), BILLING + " ", BILLING.replace("; ", ";"),
                 "x-anthropic-billing-header: cch=0;", BILLING.replace("cch=36ee5", "cch=")):
        assert prompt_of_message(messages=CHAT, system=text(line, "Be nice.")) == plain, line
        for end in ("\n", "\r\n"):
            assert prompt_of_message(messages=CHAT, system=line + end + "Be nice.") == plain, (line, end)
            assert prompt_of_message(messages=CHAT, system=text(line + end + "Be nice.")) == plain, (line, end)
        assert prompt_of_message(messages=CHAT, system=line) == prompt_of_message(messages=CHAT, system=text(line)) == none, line
        assert server.post(COUNT, {"messages": CHAT, "system": text(line, "Be nice.")})[1] == server.post(
            COUNT, {"messages": CHAT, "system": "Be nice."})[1]
    # Nothing else is removed.
    assert prompt_of_message(messages=CHAT, system=BILLING + "Be nice.") == plain
    for kept in ("Be nice. " + BILLING, "x-anthropic-billing-header: none of your business", "x-anthropic-billing-header-2: cch=1;", "x-anthropic-billing-header:"):
        assert prompt_of_message(messages=CHAT, system=kept) == prompt_of_chat([{"role": "system", "content": kept}, *CHAT]), kept
    with Server("--keep-billing-header") as s:
        count = lambda **fields: s.post(COUNT, {"messages": CHAT, **fields})[1]["input_tokens"]
        assert count(system=text(BILLING, "Be nice.")) > count(system="Be nice.") + 20


def test_where_a_prompt_differs():
    with Server() as s:
        def differs(text, **fields):
            status, reply = s.post("/v1/completions", {"prompt": text, "max_tokens": 1, "quire_trace": True, **fields})
            assert status == 200, reply
            return reply["quire_trace"]["prefix_differs_at"]
        ids = list(range(10, 400))
        assert differs(ids) is None, "there is none before it"
        assert differs(ids) is None and differs(ids[:50]) is None and differs([*ids, 5, 6]) is None
        assert differs([*ids[:33], 5, *ids[34:]]) == 33
        assert differs([*ids[:200], 5]) == 200 and differs([9, *ids]) == 0
        assert differs([*ids[:33], 6, *ids[34:]]) == 33
        assert differs([*ids, 5, 7]) == len(ids) + 1
        # The prompts of other salts stay secret.
        assert differs([*ids[:20], 8], cache_salt="x") is None and differs([*ids[:20], 9], cache_salt="x") == 20
        assert s.metric("quire:prefix_differs_at_tokens_count") == 6
        for k in range(100):
            differs([k, 1])
        assert differs([*ids[:33], 5, *ids[34:]]) == 0, "the last prompts only"
        for path, body in ((MESSAGES, {**ASK, "quire_trace": True}), (RESPONSES, {"input": "x", "quire_trace": True})):
            assert "prefix_differs_at" in s.post(path, body)[1]["quire_trace"]


with server:
    run_tests(sys.modules[__name__])
