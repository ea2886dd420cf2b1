"""Fields that the server does not know: warnings in a header, and errors with --strict-fields."""

import json
import pathlib
import sys
import tempfile
import time

import harness
from harness import Server, TOKENIZER, post_bytes, read_all, run_tests

CHAT, TEXT, RESPONSES, MESSAGES, COUNT = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
HELLO = [{"role": "user", "content": "Hello there"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}
BODIES = {
    CHAT: {"messages": HELLO, "max_tokens": 2},
    TEXT: {"prompt": "Hello", "max_tokens": 2},
    RESPONSES: {"input": "Hello", "max_output_tokens": 2},
    MESSAGES: {"messages": HELLO, "max_tokens": 2},
    COUNT: {"messages": HELLO},
    "/tokenize": {"prompt": "Hello"},
    "/detokenize": {"tokens": [1]},
    "/v1/cache/pins": {"prompt": "Hello there " * 20},
    "/completion": {"prompt": "Hello", "n_predict": 2},
    "/completions": {"prompt": "Hello", "n_predict": 2},
    "/apply-template": {"messages": HELLO},
    "/api/chat": {"model": "fake", "messages": HELLO, "options": {"num_predict": 2}},
    "/api/generate": {"model": "fake", "prompt": "Hello", "options": {"num_predict": 2}},
    "/api/show": {"model": "fake"},
}
HEADER = "x-quire-warning"

# path, more fields, the field that is named, and the words of the warning behind it
UNKNOWN = [
    (CHAT, {"max_token": 3}, "max_token", "unknown field; did you mean max_tokens?"),
    (CHAT, {"temprature": 0}, "temprature", "unknown field; did you mean temperature?"),  # of request/rows.h
    (CHAT, {"foo": 1}, "foo", "unknown field"),
    (CHAT, {"include_reasoning": False}, "include_reasoning", "has no effect: only true is supported"),
    (CHAT, {"messages": [{**HELLO[0], "nmae": "x"}]}, "messages[0].nmae", "unknown field; did you mean name?"),
    (CHAT, {"messages": [HELLO[0], {"role": "assistant", "content": "x", "tool_call": []}, HELLO[0]]}, "messages[1].tool_call",
     "unknown field; did you mean tool_calls?"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "x", "txt": ""}]}]},
     "messages[0].content[1].txt", "unknown field; did you mean text?"),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role",
     '"robot" is not a role of this API, and the model\'s chat template does not name it'),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "name": "x", "strikt": True}}},
     "response_format.json_schema.strikt", "unknown field; did you mean strict?"),
    (CHAT, {"stream": True, "stream_options": {"include_usgae": True}}, "stream_options.include_usgae", "unknown field; did you mean include_usage?"),
    (CHAT, {"cache": {"no-cache": True}}, "cache.no-cache", "unknown field; did you mean no_cache?"),
    (TEXT, {"max_completion_tokens": 3}, "max_completion_tokens", "unknown field"),
    (TEXT, {"stop_tokens": []}, "stop_tokens", "unknown field; did you mean stop_token_ids?"),
    (RESPONSES, {"max_tokens": 3}, "max_tokens", "unknown field; did you mean max_output_tokens?"),  # names of other routes
    (RESPONSES, {"max_completion_tokens": 3}, "max_completion_tokens", "unknown field; did you mean max_output_tokens?"),
    (RESPONSES, {"messages": HELLO}, "messages", "unknown field; did you mean input?"),
    (CHAT, {"max_output_tokens": 3}, "max_output_tokens", "unknown field; did you mean max_tokens?"),
    (CHAT, {"prompt": "x"}, "prompt", "unknown field; did you mean messages?"),
    (TEXT, {"messages": HELLO}, "messages", "unknown field; did you mean prompt?"),
    # No template is used for a text.
    *[(path, {field: value}, field, "unknown field") for path in (TEXT, "/completion", "/completions")
      for field, value in (("chat_template_kwargs", {"a": 1}), ("reasoning_effort", "low"), ("enable_thinking", True))],
    (RESPONSES, {"max_output_token": 3}, "max_output_token", "unknown field; did you mean max_output_tokens?"),
    (RESPONSES, {"reasoning": {"efort": "low"}}, "reasoning.efort", "unknown field; did you mean effort?"),
    (RESPONSES, {"text": {"format": {"type": "text"}, "frmat": 1}}, "text.frmat", "unknown field; did you mean format?"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "x": 1}]}]}, "input[0].content[0].x", "unknown field"),
    (MESSAGES, {"stop_sequence": []}, "stop_sequence", "unknown field; did you mean stop_sequences?"),
    (MESSAGES, {"stop": ["x"]}, "stop", "unknown field; did you mean stop_sequences?"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_controls": {}}]}]},
     "messages[0].content[0].cache_controls", "unknown field; did you mean cache_control?"),
    (MESSAGES, {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttls": "5m"}}]}, "system[0].cache_control.ttls",
     "unknown field; did you mean ttl?"),
    (MESSAGES, {"thinking": {"type": "disabled", "budget_token": 1}}, "thinking.budget_token", "unknown field; did you mean budget_tokens?"),
    (COUNT, {"sistem": "x"}, "sistem", "unknown field; did you mean system?"),
    ("/tokenize", {"return_token_str": True}, "return_token_str", "unknown field; did you mean return_token_strs?"),
    ("/detokenize", {"token": []}, "token", "unknown field; did you mean tokens?"),
    ("/v1/cache/pins", {"ttl": 5}, "ttl", "unknown field; did you mean ttl_seconds?"),
    ("/completion", {"n_predikt": 2}, "n_predikt", "unknown field; did you mean n_predict?"),
    ("/completion", {"prompt": {"prompt_string": "x", "image": 1}}, "prompt.image", "unknown field"),
    ("/completion", {"prompt": ["x", {"prompt_string": "x", "image": 1}]}, "prompt[1].image", "unknown field"),
    ("/apply-template", {"message": []}, "message", "unknown field; did you mean messages?"),
    ("/api/chat", {"temperature": 0}, "temperature", "unknown field"),
    ("/api/chat", {"options": {"temprature": 0}}, "options.temprature", "unknown field; did you mean temperature?"),
    ("/api/chat", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "argument": {}}}]}, {"role": "tool", "content": "x", "tool_name": "f"}]},
     "messages[0].tool_calls[0].function.argument", "unknown field; did you mean arguments?"),
    ("/api/chat", {"messages": [], "sistem": "x"}, "sistem", "unknown field"),  # nothing to answer
    ("/api/generate", {"sistem": "x"}, "sistem", "unknown field; did you mean system?"),
    ("/api/generate", {"prompt": "", "optionz": {}}, "optionz", "unknown field; did you mean options?"),
    ("/api/show", {"modle": "x"}, "modle", "unknown field; did you mean model?"),
]

# What clients send by default, or to be understood by several servers.
HARMLESS = [
    (CHAT, {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "verbosity": "low", "safety_identifier": "x", "prompt_cache_key": "x",
            "prompt_cache_retention": "24h", "user": "x", "modalities": ["text"], "parallel_tool_calls": True, "spaces_between_special_tokens": True,
            "include_reasoning": True, "reasoning_effort": "low", "stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}),
    (CHAT, {"foo": None, "messages": [{**HELLO[0], "bar": None}]}),  # null counts as absent
    (CHAT, {"chat_template_kwargs": {"anything": {"x": 1}}, "logit_bias": {"5": 1}, "metadata": {"max_token": 1}}),
    (CHAT, {"messages": [HELLO[0], {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None, "function_call": None,
                                    "reasoning_content": "y"}, {"role": "developer", "content": "x"}, HELLO[0]]}),
    (CHAT, {"messages": [HELLO[0], {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"anything\": 1}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1", "name": "f"}]}),
    (TEXT, {"suffix": None, "user": "x", "best_of": 1, "logprobs": 1, "echo": False}),
    (RESPONSES, {"metadata": {}, "service_tier": "auto", "store": False, "include": [], "text": {"format": {"type": "text"}, "verbosity": "low"},
                 "reasoning": {"effort": "low", "summary": "auto"}, "truncation": "disabled", "max_tool_calls": 3,
                 "input": [{"role": "user", "content": "x"}, {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                     {"type": "output_text", "text": "x", "annotations": [], "logprobs": []}]},
                     {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "x"}], "content": [
                         {"type": "reasoning_text", "text": "x"}], "encrypted_content": "x"}, {"role": "user", "content": "x"}]}),
    (MESSAGES, {"metadata": {"user_id": "x"}, "service_tier": "auto", "context_management": {"edits": []}, "betas": ["x"],
                "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "x", "signature": "y"}, {"type": "text", "text": "x", "citations": None},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"anything": 1}, "caller": {"type": "direct"}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}],
                                                  "is_error": False}]}]}),
]


def ask(s, path, more, **kwargs):
    """(status, warnings, reply)"""
    status, headers, data = s.request("POST", path, {**BODIES[path], **more}, **kwargs)
    return status, headers.get_all(HEADER, []), data


def message_of(path, data):
    e = json.loads(data)["error"]
    if isinstance(e, str):  # Ollama's
        return e, None, None
    return e["message"], e.get("param"), e.get("code")


def test_unknown_fields_are_named_in_a_header():
    with Server() as s:
        for path, more, field, words in UNKNOWN:
            status, warnings, data = ask(s, path, more)
            assert status == 200, (more, data)
            assert warnings == [f"{field}: {words}"], (path, more, warnings)
        for path in BODIES:
            assert ask(s, path, {})[:2] == (200, []), path
        assert s.metric("quire:unknown_fields_total") == len(UNKNOWN)


def test_strict_fields_reject_them():
    with Server("--strict-fields") as s:
        for path, more, field, words in UNKNOWN:
            status, warnings, data = ask(s, path, more)
            text, param, code = message_of(path, data)
            assert status == 400 and text == f"{field}: {words}", (path, more, data)
            if path in ("/completion", "/completions", "/apply-template"):
                assert (param, code) == (field, 400), (path, more, data)
            elif not path.startswith(("/v1/messages", "/api/")):
                assert (param, code) == (field, "unknown_parameter"), (path, more, data)
        for path in BODIES:
            assert ask(s, path, {})[0] == 200, path


def test_what_clients_send_is_neither_warned_of_nor_rejected():
    for option in ((), ("--strict-fields",)):
        with Server(*option) as s:
            for path, more in HARMLESS:
                status, warnings, data = ask(s, path, more)
                assert (status, warnings) == (200, []), (option, path, more, warnings, data)


def test_a_field_that_is_not_built_is_rejected_as_before():
    for option in ((), ("--strict-fields",)):
        with Server(*option) as s:
            for path, field in ((CHAT, "functions"), (CHAT, "use_beam_search"), (TEXT, "suffix"), (RESPONSES, "conversation"), (MESSAGES, "mcp_servers")):
                status, warnings, data = ask(s, path, {field: "x"})
                assert status == 400 and field in message_of(path, data)[0] and warnings == [], (path, field, data)


def test_an_error_has_the_warnings_of_its_body():
    with Server() as s:
        status, headers, data = s.request("POST", MESSAGES, {"messages": HELLO, "max_token": 5})
        assert status == 400 and message_of(MESSAGES, data)[0] == "max_tokens: is missing"
        assert headers.get_all(HEADER) == ["max_token: unknown field; did you mean max_tokens?"]


def test_vectors():
    with Server("--vectors", 8) as s:
        for path, body in (("/v1/embeddings", {"input": "x", "encoding_format": "base64"}), ):
            status, headers, _ = s.request("POST", path, body)
            assert status == 200 and headers.get_all(HEADER) is None
            status, headers, _ = s.request("POST", path, {**body, "dimension": 4, "user": "x"})
            assert status == 200 and headers.get_all(HEADER) == ["dimension: unknown field; did you mean dimensions?"]
    with Server("--scores", 1, "--strict-fields") as s:
        for path, body in (("/v1/score", {"text_1": "a", "text_2": "b"}), ("/v1/rerank", {"query": "a", "documents": [{"text": "x", "more": 1}], "top_n": 1})):
            assert s.request("POST", path, body)[0] == 200
            status, _, data = s.request("POST", path, {**body, "top_m": 1})
            assert status == 400 and message_of(path, data)[1] == "top_m", data


def with_template(folder, template):
    for path in pathlib.Path(TOKENIZER).iterdir():
        (folder / path.name).symlink_to(path.resolve())
    (folder / "chat_template.jinja").write_text(template)
    return folder


PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def test_tools_that_the_template_does_not_show():
    warning = "tools: the model does not see them: its chat template shows no tools"
    anthropic = {"name": "f", "input_schema": {"type": "object"}}
    bodies = [(CHAT, {"tools": [TOOL]}), (MESSAGES, {"tools": [anthropic]}), (COUNT, {"tools": [anthropic]}),
              (RESPONSES, {"tools": [{"type": "function", "name": "f"}]}), ("/tokenize", {"messages": HELLO, "tools": [TOOL]}),
              ("/api/chat", {"tools": [TOOL]}), ("/apply-template", {"tools": [TOOL]})]
    templates = {  # and whether it shows tools
        PLAIN: False,
        PLAIN + "{# tools #}": False,
        "{% if tools %}{{ tools | tojson }}{% endif %}" + PLAIN: True,
        "{% for m in messages %}{% if m.role == 'system' and tools %}{{ tools[0].function.name }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}": True,
        "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + PLAIN: True,  # it is a 400
    }
    for template, shows in templates.items():
        with tempfile.TemporaryDirectory() as folder:
            with Server(tokenizer=with_template(pathlib.Path(folder), template)) as s:
                for path, more in bodies:
                    status, warnings, data = ask(s, path, more)
                    assert warnings == ([] if shows else [warning]), (template, path, warnings)
                    assert status == (400 if "raise" in template else 200), data
                for path in (CHAT, "/api/chat"):
                    assert ask(s, path, {"tools": [{**TOOL, "foo": 1}]})[1][0] == "tools[0].foo: unknown field"
                # They are left out of the prompt, as the client asked.
                assert ask(s, CHAT, {"tools": [TOOL], "tool_choice": "none"})[1] == []
    with Server("--strict-fields") as s:
        status, _, data = ask(s, CHAT, {"tools": [TOOL]})
        assert status == 400 and message_of(CHAT, data)[1] == "tools", data


def test_members_and_roles_that_the_template_names():
    template = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'document' %}{{ m.doc_title }}{% endif %}{{ m.content }}{% endfor %}"
    with tempfile.TemporaryDirectory() as folder:
        with Server(tokenizer=with_template(pathlib.Path(folder), template)) as s:
            message = {"role": "document", "content": "x", "doc_title": "y"}
            assert ask(s, CHAT, {"messages": [message]})[1] == []
            for wrong in ("doc_titl", "oc_title", "doc"):
                got = ask(s, CHAT, {"messages": [{"role": "user", "content": "x", wrong: 1}]})[1]
                assert len(got) == 1 and got[0].startswith(f"messages[0].{wrong}: unknown field"), got
            assert len(ask(s, CHAT, {"messages": [{"role": "documen", "content": "x"}]})[1]) == 1


def test_hostile_names_stay_valid_http():
    with Server() as s:
        names = ["a\r\nx-evil: 1", "\x7f\u0001", "é\u2028", "", "x" * 10000, "a: b", "\\", "%n%s", "\U0001F600"]
        body = {**BODIES[CHAT], **{name: 1 for name in names}}
        reply = s.raw(post_bytes(CHAT, json.dumps(body, ensure_ascii=False).encode(), "Connection: close\r\n"))
        lines = reply.split(b"\r\n\r\n")[0].split(b"\r\n")
        found = [line.split(b": ", 1)[1] for line in lines if line.startswith(HEADER.encode())]
        assert len(found) == 9 and found[8] == b"and 1 more", found
        assert all(len(f) < 200 and all(32 <= c < 127 for c in f) for f in found), found
        assert not any(line.startswith(b"x-evil") for line in lines)
        many = {**BODIES[CHAT], "messages": [{**HELLO[0], **{f"u{i}_{k}": 1 for k in range(20)}} for i in range(50)]}
        status, warnings, _ = ask(s, CHAT, many)
        assert status == 200 and len(warnings) == 9 and warnings[8] == "and at least 92 more"


def test_a_cached_reply_warns_for_its_own_body():
    with Server("--cache-entries", 100) as s:
        plain = {"temperature": 0, "seed": 1}
        wrong = {**plain, "max_token": 3}
        for more in (plain, wrong):
            for stream in (False, True):
                for i in range(3):
                    status, headers, _ = s.request("POST", CHAT, {**BODIES[CHAT], **more, "stream": stream})
                    expected = ["max_token: unknown field; did you mean max_tokens?"] if more is wrong else []
                    assert status == 200 and headers.get_all(HEADER, []) == expected, (more, i)
                    assert (headers["x-quire-cache"] == "miss") == (i == 0 and not stream and more is plain), headers["x-quire-cache"]


def test_the_log_is_not_flooded():
    with tempfile.TemporaryFile() as log:
        popen, begun = harness.subprocess.Popen, time.monotonic()
        harness.subprocess.Popen = lambda *a, **k: popen(*a, **k, stderr=log)
        try:
            with Server() as s:
                for i in range(100):
                    ask(s, "/tokenize", {f"a\n\u001bfield{i}": 1})
        finally:
            harness.subprocess.Popen = popen
        log.seek(0)
        lines = [line for line in log.read().split(b"\n") if b"unknown field" in line]
        assert 20 <= len(lines) <= 21 + (time.monotonic() - begun) / 3, len(lines)  # 20, and one more each three seconds
        assert b"request_id=" in lines[0] and b"route=/tokenize" in lines[0] and all(c >= 32 for c in lines[0])


if __name__ == "__main__":
    run_tests(sys.modules[__name__])
