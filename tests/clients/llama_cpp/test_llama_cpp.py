"""llama.cpp's server API over plain HTTP: /completion, /props, /slots, /apply-template, and /tokenizer_info."""

import json
import threading
import time

import pytest
import rig
from conftest import MODEL

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "n_predict": 24}
RESULT = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated", "generation_settings", "prompt",
          "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached", "timings"}
TIMINGS = {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_token_ms",
           "predicted_per_second"}
# The whole set of fields with llama.cpp's default values, as other programs send it.
DEFAULTS = {
    "n_predict": 8, "temperature": 0.8, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "n_indent": 0,
    "n_keep": 0, "n_discard": 0, "n_cache_reuse": 0, "stream": False, "stop": [], "typical_p": 1.0, "tfs_z": 1.0, "repeat_penalty": 1.1,
    "repeat_last_n": 64, "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2,
    "dry_penalty_last_n": 64, "dry_sequence_breakers": ["\n", ":", "\"", "*"], "xtc_probability": 0.0, "xtc_threshold": 0.1, "mirostat": 0,
    "mirostat_tau": 5.0, "mirostat_eta": 0.1, "top_n_sigma": -1.0, "grammar": "", "json_schema": None, "seed": -1, "ignore_eos": False,
    "logit_bias": [], "n_probs": 0, "min_keep": 0, "t_max_predict_ms": 0, "id_slot": -1, "slot_id": -1, "cache_prompt": True, "return_tokens": False,
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], "timings_per_token": False,
    "return_progress": False, "post_sampling_probs": False, "response_fields": [], "lora": [], "image_data": [], "penalize_nl": False, "api_key": ""}


def complete(server, prompt=PROMPT, **fields):
    return rig.answered(server, "/completion", {"prompt": prompt, **GREEDY, **fields}).json()


def events(server, prompt=PROMPT, **fields):
    """The events of a stream. All are JSON: there is no [DONE]."""
    with rig.stream(server, "/completion", {"prompt": prompt, **GREEDY, "stream": True, **fields}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        text = reply.read().decode()
    parts = [part for part in text.split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [json.loads(part[len("data: "):]) for part in parts]


def refused(server, path="/completion", status=400, **fields):
    reply = rig.ask(server, path, {"prompt": PROMPT, **GREEDY, **fields})
    assert reply.status == status, reply.text
    error = reply.json()["error"]
    assert error["code"] == status and error["message"] and error["type"]
    return error


@pytest.mark.parametrize("path", ["/completion", "/completions", "/completion/"])
def test_fields_of_a_result(server, path):
    got = rig.answered(server, path, {"prompt": PROMPT, **GREEDY}).json()
    assert set(got) == RESULT and set(got["timings"]) == TIMINGS
    assert got["stop"] is True and got["index"] == 0 and got["tokens"] == [] and got["model"] == "demo"
    assert got["prompt"] == PROMPT and got["tokens_predicted"] == got["timings"]["predicted_n"] <= 24
    assert got["tokens_evaluated"] == got["timings"]["cache_n"] + got["timings"]["prompt_n"] and got["tokens_cached"] == got["timings"]["cache_n"]
    assert got["generation_settings"]["temperature"] == 0 and got["generation_settings"]["n_predict"] == 24
    assert got["truncated"] is False and got["has_new_line"] == ("\n" in got["content"])


def test_same_text_as_other_routes(server, client):
    other = client.completions.create(model="demo", prompt=PROMPT, temperature=0, max_tokens=24)
    assert complete(server)["content"] == other.choices[0].text != ""
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is 27 plus 48?"}]
    prompt = rig.answered(server, "/apply-template", {"messages": messages}).json()
    assert set(prompt) == {"prompt"} and "27 plus 48" in prompt["prompt"]
    chat = client.chat.completions.create(model="demo", messages=messages, temperature=0, max_tokens=24)
    got = complete(server, prompt["prompt"])
    assert got["content"] == chat.choices[0].message.content != "" and got["tokens_evaluated"] == chat.usage.prompt_tokens


def test_apply_template_takes_the_fields_of_chats(server):
    messages = [{"role": "user", "content": "Hi"}]
    open_turn = rig.answered(server, "/apply-template", {"messages": messages, "add_generation_prompt": True}).json()["prompt"]
    closed = rig.answered(server, "/apply-template", {"messages": messages, "add_generation_prompt": False}).json()["prompt"]
    assert open_turn.startswith(closed) and open_turn != closed
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    rig.answered(server, "/apply-template", {"messages": messages, "tools": [tool], "chat_template_kwargs": {"enable_thinking": False}})
    for body in {}, {"messages": []}, {"messages": "x"}, {"messages": [{"role": 1}]}, {"messages": messages, "chat_template_kwargs": 3}:
        reply = rig.ask(server, "/apply-template", body)
        assert reply.status == 400 and reply.json()["error"]["code"] == 400, reply.text


def test_stream(server):
    whole = complete(server, return_tokens=True)
    got = events(server)
    *parts, last = got
    assert "".join(e["content"] for e in parts) == whole["content"] and last["content"] == ""
    assert [t for e in parts for t in e["tokens"]] == whole["tokens"] and len(whole["tokens"]) == whole["tokens_predicted"]
    assert all(e["stop"] is False and set(e) == {"index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"} for e in parts)
    assert set(last) == RESULT and last["stop"] is True
    for name in RESULT - {"content", "tokens", "timings", "tokens_cached", "generation_settings"}:
        assert last[name] == whole[name], name
    assert "timings" in events(server, timings_per_token=True)[0]


def test_why_it_stopped(server):
    whole = complete(server, n_predict=40)["content"]
    word = whole.split()[3]
    got = complete(server, n_predict=40, stop=[word, "never there"])
    assert (got["stop_type"], got["stopping_word"]) == ("word", word) and word not in got["content"] and whole.startswith(got["content"])
    assert complete(server, n_predict=4)["stop_type"] == "limit"
    full = complete(server, "Tell me a story", n_predict=-1, temperature=1, seed=1, ignore_eos=True)
    assert full["stop_type"] == "limit" and full["truncated"] and full["tokens_evaluated"] + full["tokens_predicted"] == 1024
    chat = rig.answered(server, "/apply-template", {"messages": [{"role": "user", "content": "What is 27 plus 48?"}]}).json()["prompt"]
    eos = complete(server, chat, n_predict=300)
    assert eos["stop_type"] == "eos" and eos["stopping_word"] == "" and eos["tokens_predicted"] < 300
    none = complete(server, n_predict=0)
    assert none["content"] == "" and none["tokens_predicted"] == 0 and none["stop_type"] == "limit"
    assert complete(server, n_predict=4000000)["generation_settings"]["n_predict"] == 4000000  # cut to the context


def test_all_defaults_pass(server):
    got = rig.answered(server, "/completion", {"prompt": PROMPT, **DEFAULTS}).json()
    assert got["tokens_predicted"] == 8 and got["generation_settings"]["repeat_penalty"] == pytest.approx(1.1)
    assert got["generation_settings"]["seed"] == 4294967295
    rig.answered(server, "/completion", {"prompt": PROMPT, "n_predict": 2, **{k: None for k in DEFAULTS if k != "n_predict"}})


def test_samplers_do_what_they_say(server):
    def text(**fields):
        return complete(server, **{"temperature": 1.5, "seed": 7, **fields})["content"]
    greedy = complete(server)["content"]
    assert text() == text() != text(seed=8)
    assert text(top_k=1) == greedy == text(temperature=-1) == text(top_p=0)
    assert text(top_k=1, samplers=["temperature"]) == text(top_k=0, top_p=1, min_p=0, repeat_penalty=1)  # a sampler that is not listed is off
    assert text(top_k=-5) == text(top_k=0)
    assert len({text(seed=-1) for _ in range(6)}) > 1
    assert complete(server, repeat_penalty=1.9)["content"] != greedy == complete(server, repeat_penalty=1.9, repeat_last_n=0)["content"]


def test_section_2s_names(server):
    penalized = complete(server, repeat_penalty=1.9)
    assert complete(server, repetition_penalty=1.9)["content"] == penalized["content"] != complete(server)["content"]
    assert complete(server, repetition_penalty=1.1, repeat_penalty=1.9)["generation_settings"] == penalized["generation_settings"]
    assert refused(server, repetition_penalty=0)["param"] == "repetition_penalty"
    before = server.metric("vllm:spec_decode_num_accepted_tokens_total")
    plain = complete(server)["content"]
    assert complete(server, prediction={"type": "content", "content": plain})["content"] == plain
    assert server.metric("vllm:spec_decode_num_accepted_tokens_total") > before
    assert refused(server, prediction=3)["param"] == refused(server, prompt=["a", "b"], prediction={"type": "content", "content": "x"})["param"] == "prediction"


def test_logit_bias(server):
    first = complete(server, n_predict=1, return_tokens=True)
    token, text = first["tokens"][0], first["content"]
    for bias in [[token, False]], [[token, -100], [token, -100]], {str(token): -100}, [[text, False]]:
        assert complete(server, n_predict=1, return_tokens=True, logit_bias=bias)["tokens"] != [token], bias
    assert complete(server, n_predict=3, return_tokens=True, logit_bias=[[5, 100]])["tokens"] == [5, 5, 5]
    for wrong in 3, "x", [5], [[5]], [[5, 1, 2]], [[5, True]], [[5, "x"]], [[-1, 1]], [[10**9, 1]], [[5, 1e300]], [["a" * 300, 1]], {"5": []}:
        assert "logit_bias" in refused(server, logit_bias=wrong)["message"]


def test_prompts(server):
    ids = rig.answered(server, "/tokenize", {"content": PROMPT, "add_special": True}).json()["tokens"]
    whole = complete(server)
    got = complete(server, ids)
    assert got["content"] == whole["content"] and got["prompt"] == PROMPT
    mixed = complete(server, [*ids[:1], rig.answered(server, "/detokenize", {"tokens": ids[1:]}).json()["content"]])
    assert mixed["tokens_evaluated"] == len(ids)
    several = complete(server, [PROMPT, ids, {"prompt_string": PROMPT}])
    assert [r["index"] for r in several] == [0, 1, 2] and {r["content"] for r in several} == {whole["content"]}
    assert {r["index"] for r in complete(server, n_cmpl=2)} == {0, 1}
    last = [e for e in events(server, ["One", "Two"]) if e["stop"]]
    assert [e["index"] for e in last] == [0, 1]
    for wrong in None, 5, True, [], [[]], [None], [5, None], [5, [6]], [-1], [10**12], [1.5], {}, {"prompt_string": 1}, \
            {"prompt_string": "a", "multimodal_data": ["b"]}, [5, "a" * 70000], ["a", 5, {}]:
        assert "prompt" in refused(server, prompt=wrong)["message"], wrong


def test_probabilities(server):
    got = complete(server, n_probs=3, n_predict=5)
    assert len(got["completion_probabilities"]) == 5
    for p in got["completion_probabilities"]:
        assert set(p) == {"id", "token", "bytes", "logprob", "top_logprobs"} and len(p["top_logprobs"]) == 3 and p["logprob"] <= 0
        assert p["top_logprobs"][0]["id"] == p["id"]
    assert "".join(p["token"] for p in got["completion_probabilities"]) == got["content"]
    parts = [e for e in events(server, n_probs=3, n_predict=5) if not e["stop"]]
    assert [p for e in parts for p in e["completion_probabilities"]] == got["completion_probabilities"]


def test_response_fields(server):
    whole = complete(server)
    paths = ["content", "generation_settings/n_predict", "nope", "content", "timings/prompt_n", "stop", "content/x", "", "/", "timings/"]
    got = complete(server, response_fields=paths)
    assert got == {"content": whole["content"], "generation_settings/n_predict": 24, "timings/prompt_n": got["timings/prompt_n"], "stop": True}
    assert rig.answered(server, "/completion", {"prompt": PROMPT, **GREEDY, "response_fields": ["stop", "stop"]}).text == '{"stop":true}'
    assert complete(server, response_fields=["tokens_predicted", "generation_settings"]) == {k: whole[k] for k in ("tokens_predicted", "generation_settings")}
    assert complete(server, [PROMPT, PROMPT], response_fields=["index"]) == [{"index": 0}, {"index": 1}]
    *parts, last = events(server, response_fields=["content", "stop", "tokens_predicted"])
    assert last == {"content": "", "stop": True, "tokens_predicted": whole["tokens_predicted"]}
    assert "".join(e["content"] for e in parts) == whole["content"] and all("index" in e for e in parts)
    assert complete(server, response_fields=["nope"]) == {} and set(complete(server, response_fields=[])) == RESULT
    # Bytes that JSON escapes, as a model may write them.
    zero = complete(server, grammar='root ::= "\\x01\\"\\\\/\\t"', response_fields=["content", "stop_type"])
    assert zero == {"content": '\x01"\\/\t', "stop_type": "eos"}
    traced = rig.ask(server, "/completion", {"prompt": PROMPT, **GREEDY, "response_fields": ["quire_trace"]}, headers={"X-Quire-Trace": "1"})
    assert set(traced.json()) == {"quire_trace"}


def test_grammar_and_schema(server):
    got = complete(server, grammar='root ::= "yes" | "no"')
    assert got["content"] in ("yes", "no") and got["stop_type"] == "eos" and "::=" in got["generation_settings"]["grammar"]
    schema = {"type": "object", "properties": {"a": {"enum": [3, 4]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(complete(server, json_schema=schema, n_predict=60)["content"])["a"] in (3, 4)
    assert "grammar" in refused(server, grammar="root ::= (")["message"]
    refused(server, grammar='root ::= "a"', json_schema=schema)
    for number in (-2**63, 2**53 + 1):
        assert "/const: " in refused(server, json_schema={"const": number})["message"]


@pytest.mark.parametrize("name, value", [
    ("mirostat", 2), ("dynatemp_range", 0.5), ("typical_p", 0.9), ("top_n_sigma", 1.5), ("xtc_probability", 0.5), ("dry_multiplier", 0.8),
    ("min_keep", 2), ("n_indent", 4), ("t_max_predict_ms", 10), ("post_sampling_probs", True), ("lora", [{"id": 0, "scale": 1}]),
    ("image_data", [{"data": "", "id": 1}]), ("samplers", ["temperature", "top_k"]), ("grammar_lazy", True),
    ("adaptive_target", 0.5), ("suffix", "x"), ("input_prefix", "x")])
def test_what_is_not_built_is_named(server, name, value):
    assert name in refused(server, **{name: value})["message"]
    assert "repeat_last_n" in refused(server, repeat_penalty=1.5, repeat_last_n=7)["message"]


@pytest.mark.parametrize("name, value", [
    *((name, wrong) for name in ("n_predict", "id_slot", "n_keep", "mirostat", "xtc_probability", "top_k", "temperature", "repeat_penalty", "n_probs",
                                 "dry_base", "repeat_last_n", "n_cmpl", "seed") for wrong in ("x", [], {}, True)),
    *((name, 1) for name in ("cache_prompt", "return_tokens", "timings_per_token", "stream", "ignore_eos", "samplers", "stop", "lora", "json_schema", "grammar", "response_fields")),
    ("response_fields", [1]), ("response_fields", ["a" * 129]), ("response_fields", [f"f{i}" for i in range(33)]),
    ("n_predict", -3), ("n_predict", 2**40), ("n_predict", 1.5), ("repeat_penalty", -1), ("repeat_penalty", 1e300), ("n_probs", -1), ("n_probs", 1000),
    ("n_cmpl", 0), ("n_cmpl", 10**9), ("temperature", 1e999), ("samplers", ["x"]), ("samplers", [5]), ("seed", 1.5), ("stop", [5]), ("repeat_last_n", -7)])
def test_wrong_values_are_named(server, name, value):
    body = json.dumps({"prompt": PROMPT, **GREEDY, name: value}).replace("Infinity", "1e999").encode()
    reply = rig.ask(server, "/completion", body)
    assert reply.status == 400 and name in reply.json()["error"]["message"], reply.text


def test_broken_bodies(server):
    for body in (b"", b"[]", b"{", b'{"prompt":"a","prompt":"b"}', b'{"prompt":"\xff"}', b'{"prompt":' + b"[" * 5000 + b"]" * 5000 + b"}",
                 b'{"prompt":"a","logit_bias":' + b"[" * 70 + b"]" * 70 + b"}", b'{"prompt":"a","n_predict":' + b"9" * 4000 + b"}", b'{"prompt":"a","top_k":NaN}'):
        for path in "/completion", "/apply-template":
            reply = rig.ask(server, path, body)
            assert reply.status == 400 and reply.json()["error"]["code"] == 400, (body[:60], reply.text)
    assert "stands twice" in rig.ask(server, "/completion", b'{"prompt":"a","top_k":1,"top_k":2}').text
    too_long = refused(server, prompt=PROMPT * 2000)
    assert too_long["type"] == "exceed_context_size_error"


def test_props(server):
    got = rig.answered(server, "/props").json()
    assert got["total_slots"] > 0 and got["model_alias"] == got["model_path"] == "demo" and str(MODEL) not in json.dumps(got)
    assert got["chat_template"] and got["eos_token"] and got["modalities"] == {"vision": False, "audio": False} and got["build_info"]
    settings = got["default_generation_settings"]
    assert settings["n_ctx"] == 1024 and settings["params"].keys() == complete(server)["generation_settings"].keys()
    error = refused(server, "/props", 501)
    assert "/props" in error["message"] and error["type"] == "not_supported_error"


def test_slots(start):
    server = start("serve", MODEL, "--port", "0", "--max-num-seqs", "2")
    idle = rig.answered(server, "/slots").json()
    assert [s["id"] for s in idle] == [0, 1] and not any(s["is_processing"] for s in idle)
    rig.answered(server, "/slots?fail_on_no_slot=1")
    stop = threading.Event()

    def read(prompt):
        with rig.stream(server, "/completion", {"prompt": prompt, "n_predict": -1, "n_cmpl": 8, "ignore_eos": True, "stream": True}) as reply:
            while not stop.is_set() and reply.readline():
                time.sleep(0.002)

    readers = [threading.Thread(target=read, args=(f"secret {i}",)) for i in range(2)]
    for reader in readers:
        reader.start()
    try:
        deadline = time.monotonic() + 300
        while (busy := rig.ask(server, "/slots?fail_on_no_slot=1")).status == 200 and time.monotonic() < deadline:
            assert "secret" not in busy.text
        assert busy.status == 503 and busy.json()["error"]["type"] == "unavailable_error"
        shown = rig.ask(server, "/slots")
        assert shown.status == 200 and "secret" not in shown.text
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_tokenizer_info(server):
    got = rig.answered(server, "/tokenizer_info").json()
    config = json.loads((MODEL / "tokenizer_config.json").read_text())
    for name, value in config.items():
        if name != "chat_template" and not isinstance(value, dict):
            assert got[name] == value, name
    assert got["tokenizer_class"] == config["tokenizer_class"] and isinstance(got["eos_token"], str)
    assert got["chat_template"] == rig.answered(server, "/props").json()["chat_template"]


def test_tokenize_with_pieces(server):
    got = rig.answered(server, "/tokenize", {"content": "Hi é\U0001f600", "with_pieces": True}).json()["tokens"]
    raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in got)
    assert raw.decode().strip() == "Hi é\U0001f600"
    plain = rig.answered(server, "/tokenize", {"content": "Hi é\U0001f600"}).json()["tokens"]
    assert [p["id"] for p in got] == plain
    text = rig.answered(server, "/detokenize", {"tokens": plain}).json()
    assert text["content"] == text["prompt"]
    assert rig.ask(server, "/tokenize", {"content": "a", "with_pieces": 1}).status == 400
    assert rig.ask(server, "/tokenize", {"content": "a", "parse_special": False}).status == 400
    rig.answered(server, "/tokenize", {"content": "a", "parse_special": True})


# ---- what holds for every route ----

@pytest.mark.parametrize("path", ["/infill", "/embedding", "/slots/0?action=save", "/props"])
def test_routes_that_are_not_supported(server, path):
    error = refused(server, path, 501, content="a")
    assert error["type"] == "not_supported_error" and path.split("?")[0] in error["message"]


def test_errors_have_the_form_of_llama_cpp(server):
    for method, path, status in ("PUT", "/slots", 405), ("GET", "/completion/", 405), ("DELETE", "/slots/1", 405), ("GET", "/infill", 405):
        reply = rig.ask(server, path, method=method)
        assert reply.status == status and reply.json()["error"]["code"] == status, (path, reply.text)
    for path in "/v1/completions", "/slots/1/2", "/completion/1", "/nothing":
        assert isinstance(rig.ask(server, path, {}).json()["error"]["code"], str), path
    too_large = rig.ask(server, "/completion", b" " * (17 << 20))
    assert too_large.status == 413 and too_large.json()["error"]["code"] == 413


def test_models_without_v1(server):
    assert rig.answered(server, "/models").json() == rig.answered(server, "/v1/models").json()


def test_keys_origins_and_hosts(start):
    server = start("serve", MODEL, "--port", "0", "--api-key", "secret", "--allowed-origins", "http://page.test")
    key = {"Authorization": "Bearer secret"}
    for path, body in ("/completion", {"prompt": "a", "n_predict": 1}), ("/apply-template", {"messages": [{"role": "user", "content": "a"}]}), \
            ("/props", None), ("/slots", None), ("/tokenizer_info", None):
        refused_ = rig.ask(server, path, body)
        assert refused_.status == 401
        if path != "/tokenizer_info":
            assert refused_.json()["error"]["type"] == "authentication_error" and refused_.json()["error"]["code"] == 401
        got = rig.answered(server, path, body, headers={**key, "Origin": "http://page.test"})
        assert got.headers["access-control-allow-origin"] == "http://page.test"
    assert rig.ask(server, "/completion", method="GET", headers=key).status == 405


def test_disconnect_cancels(server):
    before = server.metric("vllm:generation_tokens_total")
    with rig.stream(server, "/completion", {"prompt": PROMPT, "n_predict": -1, "n_cmpl": 64, "ignore_eos": True, "stream": True}) as reply:
        reply.readline()
    rig.wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("vllm:generation_tokens_total") - before < 64 * 1000


def test_keep_alive_and_pipelining(server):
    def request(path, body):
        data = json.dumps(body).encode()
        return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    with server.connect() as connection:
        connection.sendall(request("/completion", {"prompt": "a", "n_predict": 2}) + request("/apply-template", {"messages": [{"role": "user", "content": "a"}]})
                           + b"GET /props HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        connection.settimeout(300)
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
    assert data.count(b"HTTP/1.1 200") == 3
    assert data.index(b'"stop_type"') < data.index(b'{"prompt":') < data.index(b'"total_slots"')


def test_response_cache_and_log(start):
    server = start("serve", MODEL, "--port", "0", "--response-cache", "memory", "--log-requests")
    body = {"prompt": PROMPT, **GREEDY}
    first, second = (rig.answered(server, "/completion", body) for _ in range(2))
    assert second.cache == "exact" and first.json()["content"] == second.json()["content"]
    other = rig.answered(server, "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 24})
    assert other.json()["choices"][0]["text"] == first.json()["content"]
    salted = rig.answered(server, "/completion", {**body, "cache_salt": "x"})
    assert salted.cache == "miss" and salted.json()["content"] == first.json()["content"]
    off = rig.answered(server, "/completion", {**body, "use_cache": False})
    assert off.cache == "off" and off.json()["content"] == first.json()["content"]
    rig.wait_until(lambda: "/completion" in server.output(), server.output)
