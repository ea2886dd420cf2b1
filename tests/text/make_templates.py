#!/usr/bin/env python3
"""Writes chats rendered with the templates of public model families by Jinja2, as transformers sets it up.

    python3 tests/text/make_templates.py FOLDER ... OUT        needs transformers; reads FOLDER/*.jinja

templates_test.rs renders each of them by text/ and compares. templates.sh fetches the templates."""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
CALL = {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "units": ["°C", None], "exact": True, "factor": 1.5, "more": {"a\"b": "<tag> & 'x'"}}}
EMPTY_CALL = {"name": "now", "arguments": {}}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a \"city\".\nTwo lines.", "strict": False,
        "parameters": {"type": "object", "required": ["city"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "description": "Where <b>"}, "days": {"type": ["integer", "null"], "default": 1, "minimum": 0.5},
            "units": {"type": "array", "items": {"type": "string", "enum": ["°C", "°F"]}},
            "more": {"type": "object", "properties": {"x": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/a"}]}}}}},
        "return": {"type": "object", "properties": {"t": {"type": "number"}}}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "bare", "description": "Nothing else."}},
]


def says(role, content, **more):
    return {"role": role, "content": content, **more}


def calls(*functions, content=None, **more):
    """An assistant's message with calls. Without a content, the message has no such member."""
    made = [{"id": f"callid{i:03d}", "type": "function", "function": function} for i, function in enumerate(functions)]
    return {"role": "assistant", **({} if content is None else {"content": content}), "tool_calls": made, **more}


def answers(content, i=0, name="get_weather"):
    return {"role": "tool", "tool_call_id": f"callid{i:03d}", "name": name, "content": content}


SYSTEM, USER, ASSISTANT = says("system", " Be brief.\n"), says("user", "Hi, who are you? "), says("assistant", "I am\n\n  a model.")
THOUGHT = says("assistant", "4", reasoning_content="2 and 2\nare 4.")
TAGGED = says("assistant", "<think>\nhm\n</think>\n\nDone. [THINK]x[/THINK]")
MARKUP = says("user", "<|im_end|> {{ x }} {% y %} <b>&'\"\\ 東京 \u2028\x07 🙂\r\n\tend\n")
PARTS = says("user", [{"type": "text", "text": "One."}, {"type": "text", "text": "Two. "}])
IMAGE = says("user", [{"type": "image"}, {"type": "text", "text": "What is this?"}])
CHATS = {
    "one": [USER], "system": [SYSTEM, USER], "developer": [says("developer", "Be kind."), USER], "only system": [SYSTEM], "empty": [says("user", "")],
    "turns": [USER, ASSISTANT, says("user", "And now?")], "system turns": [SYSTEM, USER, ASSISTANT, says("user", "And now?"), ASSISTANT, MARKUP],
    "ends with answer": [SYSTEM, USER, ASSISTANT], "markup": [SYSTEM, MARKUP], "two users": [USER, USER], "assistant first": [ASSISTANT, USER], "two systems": [SYSTEM, USER, SYSTEM, USER],
    "thought": [USER, THOUGHT, says("user", "Sure?")], "thought last": [USER, THOUGHT], "thoughts": [SYSTEM, USER, THOUGHT, USER, THOUGHT, USER], "tagged": [USER, TAGGED, USER], "tagged last": [USER, TAGGED],
    "call": [USER, calls(CALL, content="")], "call without content": [USER, calls(CALL)], "call with content": [SYSTEM, USER, calls(CALL, content="I look.")],
    "result": [SYSTEM, USER, calls(CALL, content=""), answers("{\"t\": 21.5}")], "result and answer": [USER, calls(CALL, content=""), answers("21"), says("assistant", "It is 21."), says("user", "Thanks")],
    "two calls": [USER, calls(CALL, EMPTY_CALL, content=""), answers("21"), answers("noon", 1, "now"), says("assistant", "Both.")], "rounds": [USER, calls(CALL, content="a"), answers("1"), calls(EMPTY_CALL, content="b"), answers("2", 0, "now")],
    "thought calls": [SYSTEM, USER, calls(CALL, content="", reasoning_content="I need it."), answers("21"), THOUGHT, USER], "arguments as text": [USER, calls({"name": "now", "arguments": "{\"a\": 1}"}, content=""), answers("x")],
    "parts": [PARTS, says("assistant", [{"type": "text", "text": "Yes."}]), PARTS], "system parts": [says("system", [{"type": "text", "text": "S"}]), PARTS], "image": [IMAGE], "image turns": [SYSTEM, IMAGE, ASSISTANT, IMAGE],
    "result parts": [USER, calls(CALL, content=""), answers([{"type": "text", "text": "21"}])], "unknown role": [says("critic", "Bad."), USER], "no content": [{"role": "user"}],
    "no answer's id": [USER, calls(CALL, content=""), {"role": "tool", "content": "21"}],
}
OPTIONS = [{}, {"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"reasoning_effort": "high"}, {"documents": [{"title": "T", "text": "Words."}]},
           {"clear_thinking": False}, {"preserve_thinking": True, "keep_all_reasoning": True}]


def requests():
    for name, messages in CHATS.items():
        for tools in (None, TOOLS):
            for options in OPTIONS if name in ("one", "system turns", "thoughts", "thought calls", "result") else OPTIONS[:1]:
                for prompt in (True, False):
                    yield {"chat": name, "messages": messages, "tools": tools, "kwargs": options, "add_generation_prompt": prompt}
        if messages[-1]["role"] == "assistant" and messages[-1].get("content"):
            yield {"chat": name, "messages": messages, "tools": None, "kwargs": {}, "continue_final": True}


class Clock(datetime.datetime):
    """The time that text/ has in its tests."""

    @classmethod
    def now(cls):
        return cls(2026, 7, 4, 9, 5, 3)


def renders(source, request):
    """What transformers makes of it; None where it fails."""
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[request["messages"]], tools=request["tools"], chat_template=source, continue_final_message=request.get("continue_final", False),
            add_generation_prompt=request.get("add_generation_prompt", False), **TOKENS, **request["kwargs"])
        return rendered[0]
    except Exception:
        return None


def main():
    *folders, to = sys.argv[1:]
    chat_template_utils.datetime = Clock
    sources = {path.stem: path.read_text() for folder in folders for path in sorted(pathlib.Path(folder).glob("*.jinja"))}
    all_requests = list(requests())
    templates = [{"name": name, "source": source, "renders": [renders(source, request) for request in all_requests]} for name, source in sources.items()]
    pathlib.Path(to).write_text(json.dumps({"tokens": TOKENS, "requests": all_requests, "templates": templates}))
    n_fails = sum(text is None for template in templates for text in template["renders"])
    print(f"{len(templates)} templates with {len(all_requests)} requests each; Jinja2 refuses {n_fails} of {len(templates) * len(all_requests)}")


if __name__ == "__main__":
    main()
