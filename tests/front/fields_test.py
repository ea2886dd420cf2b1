"""Bad values for every field of every route: each returns a 400 that names its field, and the server continues."""

import json
import re
import sys

from harness import Server, run_tests

CHAT = [{"role": "user", "content": "Hello there"}]
ROUTES = {  # a valid request
    "/v1/chat/completions": {"messages": CHAT, "max_tokens": 2},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 2},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 2},
    "/v1/messages": {"messages": CHAT, "max_tokens": 2},
    "/v1/messages/count_tokens": {"messages": CHAT},
    "/tokenize": {"prompt": "Hello"},
    "/detokenize": {"tokens": [1]},
    "/v1/cache/pins": {"prompt": "Hello there " * 20},
    "/v1/admin/scheduling-policy": {"policy": "fcfs"},
}
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
OPENAI = GENERATING[:2]

EDGE = 2 ** 63
STRINGS = (7, 1.5, True, [], {}, ["x"])
FLAGS = (0, 1, "true", "", [], {}, 1.5)
INTEGERS = ("1", "", 1.5, True, [], {}, [1], 1e300, 2 ** 64, 10 ** 30, -10 ** 30)
NUMBERS = ("1", "", True, [], {}, 1e300, -1e300)
OBJECTS = ("x", "", 1, True, [], [{}])
ARRAYS = ("x", "", 1, True, {}, {"0": 1})
IDS = (*ARRAYS, [""], ["1"], [1.5], [-1], [True], [None], [[]], [10 ** 9], [EDGE - 1], [2 ** 64], list(range(-1, 3)))

# routes, field, bad values; the error names the field itself, unless another name is given.
FIELDS = [
    (ROUTES.keys() - {"/v1/admin/scheduling-policy"}, "model", STRINGS),
    (GENERATING, "temperature", (*NUMBERS, -0.001, 2.001)),
    (("/v1/messages",), "temperature", (1.001,)),
    (GENERATING, "top_p", (*NUMBERS, -1, -1e-60, 1.001)),
    (GENERATING, "min_p", (*NUMBERS, -0.001, 1.001)),
    (GENERATING, "repetition_penalty", (*NUMBERS, 0, -1, 1001)),
    (GENERATING, "presence_penalty", (*NUMBERS, -2.001, 2.001)),
    (GENERATING, "frequency_penalty", (*NUMBERS, -2.001, 2.001)),
    (GENERATING, "top_k", (*INTEGERS, -2, 2 ** 31)),
    (GENERATING, "seed", INTEGERS),
    (GENERATING, "n", (*INTEGERS, 0, -1, 129)),
    (GENERATING, "best_of", (*INTEGERS, 0, 2)),
    (GENERATING, "min_tokens", (*INTEGERS, -1, 2 ** 31)),
    (GENERATING, "priority", (*INTEGERS, 2 ** 31, -2 ** 31 - 1)),
    (GENERATING, "stream_interval", (*INTEGERS, 0, -1, 2 ** 31)),
    (GENERATING, "thinking_token_budget", (*INTEGERS, -2, 2 ** 31)),
    (GENERATING, "quire_deadline_ms", (*INTEGERS, 0, -1, 86_400_001)),
    (GENERATING, "stream", FLAGS),
    (GENERATING, "ignore_eos", FLAGS),
    (GENERATING, "quire_trace", FLAGS),
    (GENERATING, "skip_special_tokens", FLAGS),
    (GENERATING, "include_stop_str_in_output", FLAGS),
    (GENERATING, "request_id", (*STRINGS, "", "a b", "x" * 65, "\n", "é")),
    ((*GENERATING, "/v1/cache/pins"), "cache_salt", STRINGS),
    (GENERATING, "speculative", (0, 1, "true", "", [], {"method": "eagle3"}, {"method": ""}, {"method": 1}, {"method": ["ngram"]}, {"x": 1},
                                 {"method": "none", "": 0}, {"num_speculative_tokens": -1}, {"num_speculative_tokens": 65},
                                 {"num_speculative_tokens": 2 ** 64}, {"num_speculative_tokens": 1.5}, {"num_speculative_tokens": "1"})),
    (OPENAI, "prediction", (*OBJECTS, {}, {"type": "content"}, {"content": "x"}, {"type": "text", "content": "x"}, {"type": 1, "content": "x"},
                            {"type": "content", "content": None}, {"type": "content", "content": 1}, {"type": "content", "content": {}},
                            {"type": "content", "content": ["x"]}, {"type": "content", "content": [None]}, {"type": "content", "content": [{}]},
                            {"type": "content", "content": [{"type": "text"}]}, {"type": "content", "content": [{"type": "text", "text": 1}]},
                            {"type": "content", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "text": "x"}]})),
    (GENERATING, "logit_bias", (*OBJECTS, {"": 1}, {"x": 1}, {"-1": 1}, {"1.0": 1}, {"01": 1}, {"99999999999": 1}, {"1": "1"},
                                {"1": 100.5}, {"1": True}, {"1": None}, {"1": [1]})),
    (GENERATING, "stop_token_ids", IDS),
    (GENERATING, "allowed_token_ids", (*IDS, [])),
    (GENERATING, "bad_words", (*ARRAYS, [""], [1], [None], [["x"]], ["  "], ["\n"], ["x", ""], ["x" * 513])),
    ((*OPENAI, "/v1/responses"), "stop", (7, True, {}, "", [""], [1], [None], [["x"]], ["x"] * 33, "x" * 513)),
    (("/v1/messages",), "stop_sequences", (7, True, {}, "", [""], [1], [None], ["x"] * 33, ["x" * 513])),
    (OPENAI, "max_tokens", (*INTEGERS, -1, 4097, 2 ** 31)),
    (("/v1/messages",), "max_tokens", (*INTEGERS, None, 0, -1)),
    (("/v1/responses",), "max_output_tokens", (*INTEGERS, 0, -1, 4097)),
    (OPENAI[:1], "max_tokens", (0,)),
    (OPENAI[:1], "max_completion_tokens", (*INTEGERS, 0, -1, 4097)),
    (OPENAI, "stream_options", (*OBJECTS, {"include_usage": 1}, {"continuous_usage_stats": "x"}, {})),
    (OPENAI, "truncate_prompt_tokens", (*INTEGERS, 0, -2, 4097)),
    (OPENAI, "truncation_side", (*STRINGS, "", "both", "LEFT")),
    (OPENAI, "prompt_logprobs", (*INTEGERS, -1, 21)),
    (OPENAI, "return_token_ids", FLAGS),
    (OPENAI, "return_tokens_as_token_ids", FLAGS),
    ((*OPENAI, "/tokenize", "/v1/cache/pins"), "add_special_tokens", FLAGS),
    (OPENAI, "response_format", (*OBJECTS, {}, {"type": ""}, {"type": 1}, {"type": "xml"})),
    (GENERATING, "structured_outputs", (*OBJECTS, {}, {"yaml": 1}, {"json_object": False})),
    (GENERATING, "guided_json", (1, True, ["x"])),
    (GENERATING, "guided_regex", (1, True, ["x"], {"a": 1}, "a(")),
    (GENERATING, "guided_choice", (1, True, "x", {"a": 1}, [1], ["x", None], [""])),
    (GENERATING, "guided_grammar", (1, True, ["x"], {"a": 1}, "root ::= x", "x")),
    (GENERATING, "guided_whitespace_pattern", (1, True, ["x"], "x")),
    (GENERATING, "grammar", (1, True, ["x"], {"a": 1})),
    (GENERATING, "json_schema", (1, True, ["x"], "x")),
    (GENERATING, "structural_tag", (1, True, ["x"], {"type": "structural_tag"})),
    (OPENAI, "echo", FLAGS),
    (OPENAI[:1], "logprobs", FLAGS),
    (OPENAI[:1], "top_logprobs", (*INTEGERS, -1, 1, 21)),  # 1 needs "logprobs": true
    (OPENAI[1:], "logprobs", (*INTEGERS, -1, 21)),
    (OPENAI[1:], "suffix", ("x", 1, True, ["x"], {"a": 1})),
    (OPENAI[:1], "tools", (*ARRAYS, [1], [{}], [{"type": "function"}], [{"type": "x"}], [{"type": "function", "function": {"name": 1}}])),
    (OPENAI[:1], "tool_choice", (1, True, [], "", "any", "required", {})),
    (OPENAI[:1], "parallel_tool_calls", FLAGS),
    (OPENAI[:1], "chat_template_kwargs", OBJECTS),
    (OPENAI[:1], "add_generation_prompt", FLAGS),
    (OPENAI[:1], "continue_final_message", FLAGS),
    (OPENAI[:1], "modalities", (["audio"], ["text", "audio"], [1], [""])),
    (OPENAI[1:], "prompt", (None, 1, True, {}, [], [[]], [None], [True], [{}], ["x", 1], [1, "x"], [1.5], [-1], [10 ** 9], [EDGE - 1])),
    (("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"), "messages",
     (None, *ARRAYS, [], [1], [None], [[]], [{}], [{"role": "user"}], [{"content": "x"}], [{"role": "", "content": "x"}],
      [{"role": 1, "content": "x"}], [{"role": "user", "content": 1}], [{"role": "user", "content": {}}], [{"role": "user", "content": [1]}],
      [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 1}]}],
      [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])),
    (("/v1/messages",), "system", (*STRINGS[:3], {}, [1], ["x"], [{"type": "text"}])),
    (("/v1/messages",), "thinking", ("x", 1, [], {}, {"type": "enabled"})),
    (("/v1/messages",), "metadata", ("x", 1, [], {"user_id": 1})),
    (("/v1/messages",), "output_config", ("x", 1, [], {"format": {"type": "json_schema"}})),
    (("/v1/messages",), "tool_choice", ("x", 1, [], {}, {"type": "any"})),
    (("/v1/messages",), "tools", ([1], [{"name": "f"}], "x", 1)),
    (("/v1/responses",), "input", (None, 1, True, {}, [], [1], [{}], [{"role": "user"}], [{"role": "tool", "content": "x"}],
                                   [{"role": "user", "content": [1]}], [{"type": "function_call"}], [{"type": 1, "role": "user", "content": "x"}])),
    (("/v1/responses",), "instructions", STRINGS),
    (("/v1/responses",), "include", ("x", 1, {}, [1], [None])),
    (("/v1/responses",), "top_logprobs", (*INTEGERS, -1, 21)),
    (("/v1/responses",), "truncation", (*STRINGS, "", "left")),
    (("/v1/responses",), "metadata", ("x", 1, [], {"a": 1}, {"a": None})),
    (("/v1/responses",), "text", ("x", 1, [], {"format": 1}, {"format": {}}, {"format": {"type": "xml"}})),
    (("/v1/responses",), "tool_choice", ("required", 1, {}, "", [])),
    (("/v1/responses",), "store", FLAGS),
    (("/v1/responses",), "user", STRINGS),
    (("/v1/responses",), "parallel_tool_calls", FLAGS),
    (("/v1/responses",), "previous_response_id", ("resp_1", 1, ["x"])),
    (("/tokenize",), "prompt", (None, *STRINGS)),
    (("/tokenize",), "return_token_strs", FLAGS),
    (("/tokenize",), "add_special", FLAGS),
    (("/detokenize",), "tokens", (None, *IDS)),
    (("/v1/cache/pins",), "prompt", (None, 1, True, {}, [], "", ["x"], [-1], [1.5], [10 ** 9])),
    (("/v1/cache/pins",), "messages", (*ARRAYS, [], [1], [{}])),  # removes the prompt
    (("/v1/cache/pins",), "ttl_seconds", (*INTEGERS, -1, 86_401)),
    ((*OPENAI, "/v1/messages", "/v1/cache/pins"), "background", FLAGS),
    (("/v1/admin/scheduling-policy",), "policy", (None, *STRINGS, "", "no such", "fcfs\n", "x" * 65)),
    (("/v1/admin/scheduling-policy",), "options", ("x", 1, True, [], {"prefill_share": "x"}, {"prefill_share": 1.5}, {"": 1}, {"a b": 1},
                                                  {"a": []}, {"a": {}}, {"a": None}, {"a": [1, "x"]})),
]
REFUSED = ("use_beam_search logits_processors guided_decoding regex ebnf repetition_detection "
           "logprob_token_ids kv_transfer_params vllm_xargs prompt_embeds adapter adapters lora_request").split()

server = Server()


def message_of(path, reply):
    """The error's text. Anthropic's errors have no param, so the text must name the field."""
    if path.startswith("/v1/messages"):
        assert reply["type"] == "error" and set(reply["error"]) == {"type", "message"} and reply["request_id"]
        assert reply["error"]["type"] == "invalid_request_error"
        return reply["error"]["message"], None
    assert set(reply) == {"error"} and set(reply["error"]) == {"message", "type", "param", "code"}
    assert reply["error"]["type"] == "invalid_request_error" and isinstance(reply["error"]["code"], str)
    return reply["error"]["message"], reply["error"]["param"]


def check_refused(path, field, value, body):
    status, reply = server.post(path, body)
    what = (path, field, json.dumps(value)[:80], status, reply)
    assert status == 400, what
    message, param = message_of(path, reply)
    assert re.match(rf"{field}\b", message), what
    assert path.startswith("/v1/messages") or re.match(rf"{field}\b", param or ""), what


def test_the_good_requests():
    for path, body in ROUTES.items():
        assert server.post(path, body)[0] == 200, (path, server.post(path, body))


def test_bad_values_are_refused_by_name():
    n = 0
    for paths, field, values in FIELDS:
        for path in sorted(paths):
            for value in values:
                body = {**ROUTES[path], field: value}
                if path == "/v1/cache/pins" and field == "messages":
                    del body["prompt"]
                check_refused(path, field, value, body)
                n += 1
    assert n > 1000
    for path, body in ROUTES.items():
        assert server.post(path, body)[0] == 200


def test_integers_have_many_spellings():
    """An integer is a number without a fraction other than zero, as in JSON Schema: 4.0, 4e0, 40e-1 and 0.4E1 are
    equal."""
    cases = [(path, field, n) for path in GENERATING for field, n in
             (("top_k", 4), ("seed", 7), ("min_tokens", 1), ("priority", -3), ("stream_interval", 2), ("quire_deadline_ms", 60000), ("n", 1))]
    cases += [(path, field, n) for path in OPENAI for field, n in (("max_tokens", 4), ("truncate_prompt_tokens", 8), ("prompt_logprobs", 2), ("n", 2))]
    cases += [("/v1/chat/completions", "max_completion_tokens", 4), ("/v1/messages", "max_tokens", 4), ("/v1/responses", "max_output_tokens", 4),
              ("/v1/completions", "logprobs", 3), ("/v1/cache/pins", "ttl_seconds", 5)]
    plain = {}
    for path, field, n in cases:
        def ask(text):
            body = json.dumps({**ROUTES[path], "temperature": 0, field: "@"} if path in GENERATING else {**ROUTES[path], field: "@"})
            status, _, reply = server.request("POST", path, body.replace('"@"', text).encode())
            assert status == 200, (path, field, text, reply)
            return re.sub(rb'"(id|created|created_at|cached_tokens|cache_\w+|input_tokens)":("[^"]*"|\d+)', b"", reply)
        plain = ask(str(n))
        for text in (f"{n}.0", f"{n}e0", f"{n}.000E+0", f"{n}0e-1", f"{n / 10}e1"):
            assert ask(text) == plain or path == "/v1/responses", (path, field, text)
    ids = server.post("/v1/completions", {"prompt": [5, 6, 70], "temperature": 0})[1]["choices"][0]["text"]
    for text in ("[5.0,6e0,7e1]", "[5,6.00,70]", "[50e-1, 0.6e1, 7E+1]"):
        status, _, reply = server.request("POST", "/v1/completions", f'{{"prompt":{text},"temperature":0}}'.encode())
        assert status == 200 and json.loads(reply)["choices"][0]["text"] == ids, text
    for field in ("stop_token_ids", "allowed_token_ids"):
        assert server.request("POST", "/v1/completions", f'{{"prompt":"x","{field}":[1.0,2e0]}}'.encode())[0] == 200
    for text in ('{"tokens":[1.0]}', '{"tokens":[1e0]}'):
        assert json.loads(server.request("POST", "/detokenize", text.encode())[2]) == server.post("/detokenize", {"tokens": [1]})[1]
    for text in ("4.5", "1e-1", "1e400", "-1.0", "[4.0]", "NaN", "4.", "1e"):
        assert server.request("POST", "/v1/completions", f'{{"prompt":"x","max_tokens":{text}}}'.encode())[0] == 400, text


def test_a_top_p_of_zero_is_greedy():
    for path in GENERATING:
        def ask(**fields):
            status, reply = server.post(path, {**ROUTES[path], **fields})
            assert status == 200, reply
            return [c.get("text") or c["message"]["content"] for c in reply["choices"]] if "choices" in reply else json.dumps(
                reply.get("content") or [o["content"] for o in reply["output"]])
        greedy = ask(temperature=0)
        for zero in (0, 0.0, -0.0, 1e-60):
            assert ask(top_p=zero) == ask(top_p=zero, temperature=1, seed=3) == greedy, (path, zero)


def test_bad_words_are_named():
    for word, shown in (("\n", r'"\n"'), ("  ", '"  "'), ("x" * 600, '"xxxxx')):
        status, reply = server.post("/v1/completions", {"prompt": "x", "bad_words": ["fine", word]})
        assert status == 400 and shown in reply["error"]["message"], reply


def test_what_is_not_built_is_refused_by_name():
    for path in GENERATING:
        for field in REFUSED:
            for value in (True, 1, "x", ["x"], {"a": 1}):
                check_refused(path, field, value, {**ROUTES[path], field: value})
            for nothing in (None, False, 0, "", [], {}):
                assert server.post(path, {**ROUTES[path], field: nothing})[0] == 200, (path, field, nothing)


def test_null_is_the_same_as_absent():
    required = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/responses": "input",
                "/v1/messages": "messages max_tokens", "/v1/messages/count_tokens": "messages", "/tokenize": "prompt",
                "/detokenize": "tokens", "/v1/cache/pins": "prompt", "/v1/admin/scheduling-policy": "policy"}
    for paths, field, _ in FIELDS:
        for path in sorted(paths):
            if field not in required[path].split():
                assert server.post(path, {**ROUTES[path], field: None})[0] == 200, (path, field)


# Invalid JSON, and JSON that is not accepted, at every route.
NOT_JSON = [
    b"", b" ", b"{", b"}", b"[]", b"null", b"1", b'"x"', b"{}x", b"{'a': 1}", b'{"a": 1,}', b'{"a": 01}', b'{"a": .5}', b'{"a": +1}',
    b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}',
    b'{"a": 1, "a": 1}', b'{"a": {"b": 1, "b": 2}}', b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xc0\x80"}', b'{"a": "\\ud800"}',
    b'{"a": "\\udc00\\ud800"}', b'{"a": "\\ud800x"}', b'{"a": "\\u0000"}', b'{"\\u0000": 1}', b'{"a": "\x00"}', b'{"a": "\n"}',
    b"[" * 100_000, b'{"a":' * 65 + b"1" + b"}" * 65, b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", b"\xef\xbb\xbf{}", b'{"a": 1}\x00',
    '{"a": 1}'.encode("utf-16"),
]


def test_what_is_not_json_is_refused_everywhere():
    for path in ROUTES:
        for body in NOT_JSON:
            status, _, reply = server.request("POST", path, body)
            assert status == 400, (path, body[:40], reply)
            message, param = message_of(path, json.loads(reply))
            assert message.startswith("the request's body ") or message.startswith("the request has no body"), message
            assert param is None and "JSON_" not in message and " line " not in message, message
    for path, body in ROUTES.items():
        text = json.dumps(body)[:-1].encode()
        for good in (b', "x": "\\ud83d\\ude42", "y": ' + b"[" * 62 + b"]" * 62 + b"}", b', "": "", "x": -0.0, "y": 1e-999}', b"}\r\n\t ",
                     # Numbers of any size in fields that the server ignores.
                     b', "x": [1e999, -1e999, 123456789012345678901234567890], "y": {"maximum": 18446744073709551615, "z": -9223372036854775809}}'):
            assert server.request("POST", path, text + good)[0] == 200, (path, good)


with server:
    run_tests(sys.modules[__name__])
