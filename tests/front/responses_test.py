"""Tools, items and the store of /v1/responses, over an engine that repeats the prompt. The chat template has only the
last message where a test determines the output, and everything where it compares prompts."""

import json
import pathlib
import shutil
import sys
import tempfile
import threading
import time

from harness import TOKENIZER, Server, run_tests, wait_until

PATH, CHATS = "/v1/responses", "/v1/chat/completions"
TOOL = {"type": "function", "name": "weather", "description": "A.", "parameters": {"type": "object"}, "strict": True}
CHAT_TOOL = {"type": "function", "function": {name: TOOL[name] for name in ("name", "description", "parameters", "strict")}}
ARGUMENTS = '{"city": "Paris", "naïve": "<tag> \\"quoted\\" 漢字"}'
CALL = '<tool_call>\n{"name": "weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>"
WHOLE = {"ignore_eos": True, "skip_special_tokens": False}


def tokenizer_with(template):
    path = pathlib.Path(tempfile.mkdtemp())
    for file in pathlib.Path(TOKENIZER).iterdir():
        if file.suffix == ".json":
            shutil.copy(file, path)
    (path / "chat_template.jinja").write_text(template)
    return str(path)


ECHO = tokenizer_with("{{ messages[-1].content }}{# <tool_call> #}")
ALL = tokenizer_with("{{ messages | tojson }}{{ tools | tojson }}{{ enable_thinking }}{{ reasoning_effort }}#")
server = Server("--reasoning-parser", "qwen3", tokenizer=ECHO)
prompts = Server("--tool-call-parser", "hermes", tokenizer=ALL)


def respond(text, s=server, **fields):
    status, reply = s.post(PATH, {"input": text, "tools": [TOOL], "max_output_tokens": 400, **fields})
    assert status == 200, reply
    return reply


def refuse(fields, s=server, headers=None):
    status, reply = s.post(PATH, {"input": "x", **fields}, headers=headers or {})
    assert status == 400, (fields, reply)
    return reply["error"]["param"], reply["error"]["code"]


def events_of(text, s=server, **fields):
    status, _, data = s.request("POST", PATH, {"input": text, "tools": [TOOL], "max_output_tokens": 400, "stream": True,
                                               **fields})
    assert status == 200, data
    events = []
    for part in data.decode().split("\n\n")[:-1]:
        first, second = part.split("\n")
        events.append(json.loads(second.removeprefix("data: ")))
        assert first == "event: " + events[-1]["type"]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    return events


def shape(item):
    """An item without its ids."""
    text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
    return item["type"], text


def prompt_of(path, **fields):
    status, reply = prompts.post(path, {"max_output_tokens": 900, "max_tokens": 900, **WHOLE, **fields})
    assert status == 200, reply
    text = reply["output"][0]["content"][0]["text"] if path == PATH else reply["choices"][0]["message"]["content"]
    return text[:text.index("#")]


# ---- output -----------------------------------------------------------------------------------------------------


def test_items_come_in_the_order_of_the_text():
    other = CALL.replace("weather", "clock")
    for text, expected in (
            (CALL, [("function_call", ARGUMENTS)]),
            ("Look.\n" + CALL + other, [("message", "Look."), ("function_call", ARGUMENTS), ("function_call", ARGUMENTS)]),
            ("<think>Hm.</think>\n\nYes. " + CALL,
             [("reasoning", "Hm."), ("message", "Yes."), ("function_call", ARGUMENTS)]),
            (CALL + " Done.", [("function_call", ARGUMENTS), ("message", "Done.")]),
            ("<think>only", [("reasoning", "only")]),
            ("No <tool_call>nothing</tool_call>", [("message", "No <tool_call>nothing</tool_call>")])):
        reply = respond(text)
        assert [shape(item) for item in reply["output"]] == expected, reply
        assert all(item["status"] == "completed" for item in reply["output"]) and reply["status"] == "completed"
        ids = [item["id"] for item in reply["output"]]
        assert len(set(ids)) == len(ids)
        for item in reply["output"]:
            prefix = {"function_call": "fc_", "reasoning": "rs_", "message": "msg_"}[item["type"]]
            assert item["id"].startswith(prefix)
            if item["type"] == "function_call":
                assert item["call_id"].startswith("call_") and item["name"] in ("weather", "clock")
            if item["type"] == "reasoning":
                assert item["summary"] == [] and item["content"][0]["type"] == "reasoning_text"
                assert reply["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        # The same text without the parsers: no tools, or tool_choice none.
        plain = respond(text, tool_choice="none")
        assert "function_call" not in [item["type"] for item in plain["output"]]
        if "tool_call" in text and "think" not in text:
            assert plain["output"][0]["content"][0]["text"] == text


def join(events):
    """Builds the output from a stream's events, as openai-python does."""
    output = []
    for e in events:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert e["output_index"] == len(output) and e["item"]["status"] == "in_progress"
            output.append(e["item"])
        elif kind == "content_part.added":
            assert e["item_id"] == output[e["output_index"]]["id"] and e["part"]["text"] == ""
            output[e["output_index"]]["content"].append(e["part"])
        elif kind.endswith(".delta"):
            item = output[e["output_index"]]
            assert item["id"] == e["item_id"] and e["output_index"] == len(output) - 1
            if kind == "function_call_arguments.delta":
                item["arguments"] += e["delta"]
            else:
                assert kind == {"message": "output_text.delta", "reasoning": "reasoning_text.delta"}[item["type"]]
                item["content"][e["content_index"]]["text"] += e["delta"]
        elif kind == "function_call_arguments.done":
            assert e["arguments"] == output[e["output_index"]]["arguments"] and e["name"] == "weather"
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert e["text"] == output[e["output_index"]]["content"][0]["text"]
        elif kind == "output_item.done":
            assert {**output[e["output_index"]], "status": "completed"} == e["item"]
            output[e["output_index"]] = e["item"]
    return output


def test_a_stream_s_events_join_to_the_whole():
    text = "<think>Hm, naïve.</think>\n\nYes, 漢字. " + CALL + CALL + " Done."
    events = events_of(text)
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert kinds[:2] == ["created", "in_progress"] and kinds[-1] == "completed"
    output = join(events)
    assert output == events[-1]["response"]["output"]
    assert [shape(i) for i in output] == [shape(i) for i in respond(text)["output"]]
    of_call = [k for e, k in zip(events, kinds) if e.get("output_index") == 2]
    n = of_call.count("function_call_arguments.delta")
    assert n > 5 and of_call == ["output_item.added", *["function_call_arguments.delta"] * n,
                                 "function_call_arguments.done", "output_item.done"]
    of_reasoning = [k for e, k in zip(events, kinds) if e.get("output_index") == 0]
    assert of_reasoning[:2] == ["output_item.added", "content_part.added"]
    assert of_reasoning[-3:] == ["reasoning_text.done", "content_part.done", "output_item.done"]


def test_a_cut_call_is_incomplete():
    for stream in (False, True):
        fields = {"max_output_tokens": 30}
        reply = events_of(CALL, **fields)[-1]["response"] if stream else respond(CALL, **fields)
        call = reply["output"][0]
        assert reply["status"] == call["status"] == "incomplete" and call["type"] == "function_call"
        assert ARGUMENTS.startswith(call["arguments"]) and call["arguments"]


def test_logprobs_belong_to_the_text():
    ask = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    text = "<think>Hm.</think>Yes, naïve 漢字. " + CALL
    whole = respond(text, **ask)
    part = whole["output"][1]["content"][0]
    shown = bytes(b for x in part["logprobs"] for b in x["bytes"]).decode()
    assert shown.strip() == part["text"], shown
    assert events_of(text, **ask)[-1]["response"]["output"][1]["content"][0] == part


def test_one_call_only():
    reply = respond(CALL + CALL, parallel_tool_calls=False)
    assert [i["type"] for i in reply["output"]] == ["function_call"] and reply["parallel_tool_calls"] is False
    assert reply["tools"] == [TOOL]


# ---- input ------------------------------------------------------------------------------------------------------


def call_item(name, arguments='{"a": 1}'):
    return {"type": "function_call", "id": "fc_" + name, "call_id": name, "name": "f", "arguments": arguments,
            "status": "completed"}


def output_item(name, output="one"):
    return {"type": "function_call_output", "call_id": name, "output": output}


def chat_call(name, arguments='{"a": 1}'):
    return {"id": name, "type": "function", "function": {"name": "f", "arguments": arguments}}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None,
             "content": [{"type": "reasoning_text", "text": "Hm"}, {"type": "reasoning_text", "text": "so"}]}
ANSWER = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}


def test_items_are_a_chat_s_messages():
    items = [{"role": "user", "content": "Go"}, REASONING, ANSWER, call_item("t1"), call_item("t2", "no json"),
             output_item("t2", [{"type": "input_text", "text": "two"}, {"type": "input_text", "text": "lines"}]),
             output_item("t1"), REASONING, call_item("t3", ""), output_item("t3"), ANSWER, ANSWER,
             {"role": "user", "content": "and"}]
    same = [{"role": "user", "content": "Go"},
            {"role": "assistant", "content": "x", "reasoning_content": "Hm\nso",
             "tool_calls": [chat_call("t1"), chat_call("t2", "no json")]},
            {"role": "tool", "content": "two\nlines", "tool_call_id": "t2"},
            {"role": "tool", "content": "one", "tool_call_id": "t1"},
            {"role": "assistant", "content": "", "reasoning_content": "Hm\nso", "tool_calls": [chat_call("t3", "")]},
            {"role": "tool", "content": "one", "tool_call_id": "t3"},
            {"role": "assistant", "content": "x"}, {"role": "assistant", "content": "x"},
            {"role": "user", "content": "and"}]
    got = prompt_of(PATH, input=items, tools=[TOOL], reasoning={"effort": "xhigh"})
    assert got == prompt_of(CHATS, messages=same, tools=[CHAT_TOOL], chat_template_kwargs={"reasoning_effort": "high"})
    assert "Hm" in got and got.endswith("high")
    for effort, kwargs in (("none", {"enable_thinking": False}), ("minimal", {"reasoning_effort": "low"})):
        assert prompt_of(PATH, input="x", reasoning={"effort": effort}) == prompt_of(
            CHATS, messages=[{"role": "user", "content": "x"}], chat_template_kwargs=kwargs)
    # Fields of a chat do not get lost here; reasoning.effort and chat_template_kwargs have priority.
    for fields, end in (({"enable_thinking": False, "reasoning_effort": "max"}, "Falsemax"),
                        ({"reasoning_effort": "max", "reasoning": {"effort": "low"}}, "low"),
                        ({"reasoning": {"effort": "low"}, "chat_template_kwargs": {"enable_thinking": True}}, "Truelow"),
                        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, "True"),
                        ({"enable_thinking": False, "chat_template_kwargs": {}}, "False")):
        assert prompt_of(PATH, input="x", **fields).endswith(end), fields


def test_bad_items_and_tools_name_the_field():
    user = {"role": "user", "content": "x"}
    for fields, param in (
            ({"input": [output_item("t1")]}, "input[0].call_id"),
            ({"input": [call_item("t1"), output_item("t2")]}, "input[1].call_id"),
            ({"input": [call_item("t1"), output_item("t1"), output_item("t1")]}, "input[2].call_id"),
            ({"input": [user, call_item("t1")]}, "input[1]"),
            ({"input": [call_item("t1"), call_item("t1"), output_item("t1"), output_item("t1")]}, "input[1]"),
            ({"input": [call_item("t1"), user, output_item("t1")]}, "input[0]"),
            ({"input": [call_item("t1"), call_item("t2"), output_item("t2"), ANSWER]}, "input[0]"),
            ({"input": [{**call_item("t1"), "call_id": 3}]}, "input[0].call_id"),
            ({"input": [{**call_item("t1"), "name": ""}]}, "input[0].name"),
            ({"input": [{**call_item("t1"), "arguments": {}}]}, "input[0].arguments"),
            ({"input": [call_item("t1"), output_item("t1", 3)]}, "input[1].output"),
            ({"input": [call_item("t1"), output_item("t1", [{"type": "input_image", "image_url": "x"}])]},
             "input[1].output[0].type"),
            ({"input": [call_item(f"t{i}") for i in range(1025)]}, "input[1024]"),
            ({"input": [{"type": "reasoning", "content": "x"}]}, "input[0].content"),
            ({"input": [{"type": "reasoning", "content": [{"type": "summary_text", "text": "x"}]}]}, "input[0].content[0].type"),
            ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
            ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
            ({"tools": "x"}, "tools"), ({"tools": ["x"]}, "tools[0]"), ({"tools": [{}]}, "tools[0].type"),
            ({"tools": [TOOL, {"type": "web_search"}]}, "tools[1].type"),
            ({"tools": [{"type": "mcp", "server_url": "x"}]}, "tools[0].type"),
            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
            *(({"tools": [{**TOOL, "name": name}]}, "tools[0].name") for name in ("", "a\nb", "a b", "é", "a" * 129, 3)),
            ({"tools": [TOOL, TOOL]}, "tools[1].name"), ({"tools": [{**TOOL, "description": 3}]}, "tools[0].description"),
            ({"tools": [{**TOOL, "parameters": "x"}]}, "tools[0].parameters"),
            ({"tools": [{**TOOL, "strict": 1}]}, "tools[0].strict"),
            ({"tools": [{**TOOL, "name": f"f{i}"} for i in range(1025)]}, "tools"),
            ({"tools": [TOOL], "tool_choice": "some"}, "tool_choice"), ({"tool_choice": 3}, "tool_choice"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "absent"}}, "tool_choice"),
            ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.name"),
            ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.type"),
            ({"reasoning": "x"}, "reasoning"), ({"reasoning": {"effort": "most"}}, "reasoning.effort"),
            ({"chat_template_kwargs": 3}, "chat_template_kwargs"), ({"enable_thinking": "no"}, "enable_thinking"),
            ({"reasoning_effort": 3}, "reasoning_effort"),
            ({"store": "x"}, "store"), ({"previous_response_id": 3}, "previous_response_id")):
        assert refuse(fields)[0] == param, (fields, param)


def test_much_is_bounded():
    tools = [{**TOOL, "name": f"f{i}"} for i in range(1000)]
    assert len(respond("x", tools=tools, tool_choice="none", store=False)["tools"]) == 1000
    # A grammar has five seconds by the clock, in which a machine with other work compiles a tenth of that.
    assert len(respond("x", tools=tools[:100], store=False)["tools"]) == 100
    # A longer result than the context.
    items = [call_item("t1", json.dumps({"a": "x" * (1 << 20)})), output_item("t1")]
    status, reply = prompts.post(PATH, {"input": items})
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded"


# ---- the store --------------------------------------------------------------------------------------------------


def test_a_chain_is_the_prompt():
    user = [{"role": "user", "content": "Go"}]
    fields = {"max_output_tokens": 5}
    one = respond("Go", prompts, instructions="Be brief.", **fields)
    assert one["store"] is True and len(one["id"]) == 37 and one["previous_response_id"] is None
    two = respond([{"role": "user", "content": [{"type": "input_text", "text": "and"}]}], prompts,
                  previous_response_id=one["id"], **fields)
    assert two["previous_response_id"] == one["id"]
    text = [r["output"][0]["content"][0]["text"] for r in (one, two)]
    same = [*user, {"role": "assistant", "content": text[0]}, {"role": "user", "content": "and"},
            {"role": "assistant", "content": text[1]}, {"role": "user", "content": "last"}]
    # Instructions are not inherited.
    assert prompt_of(PATH, input="last", previous_response_id=two["id"]) == prompt_of(CHATS, messages=same)
    # A chain branches.
    assert prompt_of(PATH, input="last", previous_response_id=one["id"]) == prompt_of(CHATS, messages=[*same[:2], same[4]])


def test_calls_of_a_stored_response_need_results():
    for stream in (False, True):
        turn = events_of(CALL)[-1]["response"] if stream else respond(CALL)
        call = turn["output"][0]
        assert refuse({"previous_response_id": turn["id"]})[0] == "previous_response_id"
        assert refuse({"previous_response_id": turn["id"], "input": [output_item("absent")]})[0] == "input[0].call_id"
        reply = respond([output_item(call["call_id"], "sunny")], previous_response_id=turn["id"])
        assert reply["output"][0]["content"][0]["text"] == "sunny"


def test_get_and_delete():
    reply = respond([{"role": "user", "content": "Hello"}, {"type": "message", "id": "msg_7", "role": "user", "content": "you"}])
    path = f"{PATH}/{reply['id']}"
    assert server.get(path) == (200, reply) and server.get(path + "/")[0] == 200
    status, listed = server.get(path + "/input_items")
    assert status == 200 and listed["object"] == "list" and listed["has_more"] is False
    assert [(i["type"], i["content"]) for i in listed["data"]] == [("message", "Hello"), ("message", "you")]
    assert listed["data"][1]["id"] == "msg_7" and listed["data"][0]["id"]
    assert server.get(path + "/other")[0] == server.get(path + "x")[0] == server.get(path[:-1])[0] == 404
    status, _, body = server.request("DELETE", path)
    assert status == 200 and json.loads(body) == {"id": reply["id"], "object": "response", "deleted": True}
    assert server.request("DELETE", path)[0] == server.get(path)[0] == 404
    assert server.request("DELETE", path + "/input_items")[0] == 405
    assert server.request("PUT", path)[0] == 405 and server.request("DELETE", PATH)[0] == 405
    assert refuse({"previous_response_id": reply["id"]}) == ("previous_response_id", "previous_response_not_found")
    for name in ("resp_1", "", "x" * 5000, "resp_" + "0" * 32, "resp_" + "Z" * 32):
        assert refuse({"previous_response_id": name}) == ("previous_response_id", "previous_response_not_found")


def test_what_is_not_stored():
    reply = respond("x", store=False)
    assert reply["store"] is False and server.get(f"{PATH}/{reply['id']}")[0] == 404
    with Server("--response-store-size", 0, tokenizer=ECHO) as s:
        reply = respond("x", s)
        assert reply["store"] is False and s.get(f"{PATH}/{reply['id']}")[0] == 404
        assert refuse({"previous_response_id": reply["id"]}, s) == ("previous_response_id", "unsupported_parameter")
    fail = server.post("/tokenize", {"prompt": " there"})[1]["tokens"][0]
    with Server("--fail-token", fail, tokenizer=ECHO) as s:
        events = events_of("Hello there my friend, how are you today?", s)
        assert events[-1]["type"] == "response.failed" and events[-1]["response"]["status"] == "failed", events[-1]
        assert s.get(f"{PATH}/{events[0]['response']['id']}")[0] == 404
    # An answer that max_output_tokens cut is complete for the store.
    reply = respond("Hello there", max_output_tokens=1)
    assert server.get(f"{PATH}/{reply['id']}")[1]["status"] == "incomplete"


def test_tenants_see_their_own():
    with Server("--api-key", "one", "--api-key", "two", tokenizer=ECHO) as s:
        mine, others = ({"Authorization": "Bearer " + key} for key in ("one", "two"))
        status, reply = s.post(PATH, {"input": "x"}, headers=mine)
        path = f"{PATH}/{reply['id']}"
        assert s.get(path, headers=others)[0] == s.request("DELETE", path, headers=others)[0] == 404
        assert s.get(path)[0] == 401
        fields = {"previous_response_id": reply["id"]}
        assert refuse(fields, s, others) == ("previous_response_id", "previous_response_not_found")
        # A salt narrows the prefix cache, not the owner.
        assert s.post(PATH, {"input": "x", "cache_salt": "s", **fields}, headers=mine)[0] == 200
        assert s.get(path, headers=mine) == (200, reply)


def test_limits_and_expiry():
    with Server("--response-store-size", 40000, tokenizer=ECHO) as s:
        first = respond("first", s)
        ids = [respond(f"{i}", s)["id"] for i in range(20)]
        assert s.get(f"{PATH}/{first['id']}")[0] == 404 and s.get(f"{PATH}/{ids[-1]}")[0] == 200
        assert refuse({"previous_response_id": first["id"]}, s)[1] == "previous_response_not_found"
        assert sum(s.get(f"{PATH}/{i}")[0] == 200 for i in ids) in range(2, 10)
        large = respond("x", s, metadata={"a": "b" * 50000})
        assert s.get(f"{PATH}/{large['id']}")[0] == 404 and s.get(f"{PATH}/{ids[-1]}")[0] == 200
    with Server("--response-store-ttl", 2, tokenizer=ECHO) as s:
        one = respond("x", s)
        assert s.get(f"{PATH}/{one['id']}")[0] == 200
        assert wait_until(lambda: s.get(f"{PATH}/{one['id']}")[0] == 404)


def test_a_file_survives_a_restart():
    path = pathlib.Path(tempfile.mkdtemp()) / "responses.db"
    with Server("--response-store", path, tokenizer=ECHO) as s:
        one = respond("Hello", s)
    assert path.stat().st_mode & 0o777 == 0o600
    with Server("--response-store", path, tokenizer=ECHO) as s:
        assert s.get(f"{PATH}/{one['id']}") == (200, one)
        assert respond("and", s, previous_response_id=one["id"])["previous_response_id"] == one["id"]


def test_long_chains_in_bounded_time_beside_other_requests():
    """Many requests continue a chain of 1 MB at once: the pool lets a few of them begin, and a short request does not wait."""
    text = "a b c d e f g h " * 15
    one = respond([{"role": "user", "content": text}] * 1000, truncation="auto", max_output_tokens=1)
    for _ in range(3):
        one = respond([{"role": "user", "content": text}] * 1000, truncation="auto", max_output_tokens=1,
                      previous_response_id=one["id"])
    done = []

    def go_on():
        done.append(respond("x", previous_response_id=one["id"], truncation="auto", max_output_tokens=1, store=False))

    threads = [threading.Thread(target=go_on) for _ in range(12)]
    for t in threads:
        t.start()
    worst = 0
    while any(t.is_alive() for t in threads):
        began = time.monotonic()
        respond("hello", store=False)
        worst = max(worst, time.monotonic() - began)
    assert len(done) == 12
    print(f"        the slowest short request beside them: {worst * 1e3:.0f} ms")
    # More than the limit of bytes is an error.
    large = respond([{"role": "user", "content": "x" * 1000}] * 8000, truncation="auto", max_output_tokens=1)
    assert refuse({"previous_response_id": large["id"],
                   "input": [{"role": "user", "content": "x" * 1000}] * 9000})[0] == "previous_response_id"


with server, prompts:
    run_tests(sys.modules[__name__])
