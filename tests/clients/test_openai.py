"""openai-python with every route of Quire."""

import concurrent.futures
import json

import openai
import pytest

import rig

CHAT = [{"role": "user", "content": "Tell me a story."}]


def post(server, path, body, headers=()):
    reply = rig.ask(server, path, body, headers=headers)
    return reply.status, reply.json()


def get(server, path):
    reply = rig.ask(server, path)
    return reply.status, reply.body


def test_models(client):
    models = client.models.list()
    assert [m.id for m in models.data] == ["demo"]
    assert models.data[0].object == "model"
    one = client.models.retrieve("demo")
    assert one.id == "demo"
    assert one.model_extra["root"]
    assert one.model_extra["max_model_len"] == 1024
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("absent")
    assert caught.value.code == "model_not_found"


def test_model_names_with_a_slash(start):
    from conftest import MODEL
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "org/name", "short")
    assert {m.id for m in server.client().models.list().data} == {"org/name", "short"}
    assert server.client().models.retrieve("org/name").id == "org/name"
    assert json.loads(get(server, "/v1/models/org/name")[1])["id"] == "org/name"
    assert json.loads(get(server, "/v1/models/org%2Fname")[1])["id"] == "org/name"


def test_chat(client):
    reply = client.chat.completions.create(model="demo", messages=CHAT, max_tokens=24, temperature=0)
    assert reply.object == "chat.completion"
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == "demo"
    choice = reply.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.completion_tokens <= 24


def test_chat_stream_equals_whole(client):
    ask = dict(model="demo", messages=CHAT, max_tokens=40, temperature=0.8, seed=7)
    whole = client.chat.completions.create(**ask)
    events = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert events[0].choices[0].delta.role == "assistant"
    assert all(e.choices[0].delta.role is None for e in events[1:-1] if e.choices)
    assert len({(e.id, e.created, e.model, e.object) for e in events}) == 1
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == whole.choices[0].message.content
    assert [e.choices[0].finish_reason for e in events if e.choices and e.choices[0].finish_reason] == [
        whole.choices[0].finish_reason]
    assert events[-1].choices == [] and events[-1].usage == whole.usage.model_copy(
        update={"prompt_tokens_details": events[-1].usage.prompt_tokens_details})


def test_every_token_is_an_event(client):
    stream = client.completions.create(
        model="demo", prompt="Once upon a time", max_tokens=30, temperature=1.0, seed=3, stream=True,
        extra_body={"ignore_eos": True, "return_token_ids": True})
    ids = [i for e in stream for c in e.choices for i in (c.model_extra.get("token_ids") or [])]
    assert len(ids) == 30


def test_the_streaming_helper_of_the_sdk(client):
    question = [{"role": "user", "content": "What is 12 plus 30?"}]
    with client.chat.completions.stream(model="demo", messages=question, max_tokens=200, temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.role == "assistant"
    assert "42" in final.choices[0].message.content


def test_chat_logprobs(client):
    reply = client.chat.completions.create(
        model="demo", messages=CHAT, max_tokens=8, temperature=0, logprobs=True, top_logprobs=5)
    content = reply.choices[0].logprobs.content
    assert len(content) == reply.usage.completion_tokens
    for entry in content:
        assert len(entry.top_logprobs) == 5
        best = [t.logprob for t in entry.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert entry.logprob == best[0]  # greedy
        assert entry.bytes is not None
    text = b"".join(bytes(e.bytes) for e in content).decode()
    assert text.startswith(reply.choices[0].message.content)


@pytest.mark.parametrize("n", [1, 4])
def test_n_choices(client, n):
    reply = client.chat.completions.create(
        model="demo", messages=CHAT, max_tokens=20, temperature=1.0, seed=11, n=n)
    assert [c.index for c in reply.choices] == list(range(n))
    assert len({c.message.content for c in reply.choices}) == n  # one seed, different draws
    first = client.chat.completions.create(model="demo", messages=CHAT, max_tokens=20, temperature=1.0, seed=11)
    assert first.choices[0].message.content == reply.choices[0].message.content


def test_completions_forms_of_prompt(server, client):
    one = client.completions.create(model="demo", prompt="Once upon", max_tokens=6, temperature=0)
    ids = post(server, "/tokenize", {"model": "demo", "prompt": "Once upon"})[1]["tokens"]
    for prompt in (["Once upon", "Once upon"], [ids, ids]):
        reply = client.completions.create(model="demo", prompt=prompt, max_tokens=6, temperature=0)
        assert [c.index for c in reply.choices] == [0, 1]
        assert {c.text for c in reply.choices} == {one.choices[0].text}
    by_ids = client.completions.create(model="demo", prompt=ids, max_tokens=6, temperature=0)
    assert by_ids.choices[0].text == one.choices[0].text
    assert client.completions.create(model="demo", prompt="Once upon").usage.completion_tokens <= 16
    two = client.completions.create(model="demo", prompt=["a", "b"], n=2, max_tokens=2, seed=1)
    assert [c.index for c in two.choices] == [0, 1, 2, 3]


def test_completions_echo_and_logprobs(server, client):
    prompt = "Once upon a time there was"
    ids = post(server, "/tokenize", {"model": "demo", "prompt": prompt})[1]["tokens"]
    reply = client.completions.create(model="demo", prompt=prompt, max_tokens=0, echo=True, logprobs=2)
    lp = reply.choices[0].logprobs
    assert reply.choices[0].text == prompt
    assert len(lp.tokens) == len(ids)
    assert lp.token_logprobs[0] is None and all(x <= 0 for x in lp.token_logprobs[1:])
    assert lp.text_offset[0] == 0 and lp.text_offset == sorted(lp.text_offset)
    assert "".join(lp.tokens) == prompt
    # The logprobs of a prompt equal those from when its tokens were generated.
    made = client.completions.create(model="demo", prompt=prompt, max_tokens=8, temperature=0, logprobs=1,
                                     extra_body={"return_token_ids": True, "ignore_eos": True})
    made_ids = made.choices[0].model_extra["token_ids"]
    again = client.completions.create(model="demo", prompt=ids + made_ids, max_tokens=0, echo=True, logprobs=1)
    assert again.choices[0].logprobs.token_logprobs[-8:] == made.choices[0].logprobs.token_logprobs


def test_logprobs_are_the_exact_float(server):
    import struct
    _, reply = post(server, "/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 12, "logprobs": 3,
                                               "temperature": 0})
    for x in reply["choices"][0]["logprobs"]["token_logprobs"]:
        (bits,) = struct.unpack("<f", struct.pack("<f", x))
        assert float(f"{bits:.9g}") == x


def test_tokens_as_ids(client):
    reply = client.completions.create(model="demo", prompt="Once", max_tokens=3, temperature=0, logprobs=2,
                                      extra_body={"return_tokens_as_token_ids": True, "return_token_ids": True})
    choice = reply.choices[0]
    assert choice.logprobs.tokens == [f"token_id:{i}" for i in choice.model_extra["token_ids"]]
    assert all(k.startswith("token_id:") for top in choice.logprobs.top_logprobs for k in top)


def test_stop_strings_never_leak(client):
    whole = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=40, temperature=0).choices[0].text
    stop = whole[10:13]
    expected = whole[:whole.index(stop)]
    reply = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=40, temperature=0, stop=[stop])
    assert reply.choices[0].text == expected
    assert reply.choices[0].finish_reason == "stop"
    stream = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=40, temperature=0, stop=[stop],
                                       stream=True)
    assert "".join(c.text for e in stream for c in e.choices) == expected


def test_tokenize_and_back(server):
    for text in ("", "Hello there", "naïve café 漢字 🙂", "<|im_start|>user"):
        status, reply = post(server, "/tokenize", {"model": "demo", "prompt": text})
        assert status == 200 and reply["count"] == len(reply["tokens"]) and reply["max_model_len"] == 1024
        assert post(server, "/detokenize", {"model": "demo", "tokens": reply["tokens"]})[1]["prompt"] == text
    status, reply = post(server, "/tokenize", {"model": "demo", "messages": CHAT})
    assert status == 200 and reply["count"] > 4


def test_health_version_metrics(server):
    assert get(server, "/health")[0] == 200
    assert json.loads(get(server, "/version")[1])["version"]
    before = server.metric("vllm:generation_tokens_total")
    post(server, "/v1/completions", {"model": "demo", "prompt": "x", "max_tokens": 5, "ignore_eos": True})
    assert server.metric("vllm:generation_tokens_total") == before + 5
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                 "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
                 "vllm:num_preemptions_total", "vllm:request_success_total", "vllm:time_to_first_token_seconds_count"):
        server.metric(name)


BAD = [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": 3, "content": "x"}]}, "messages"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -7}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"n": 0}, "n"),
    ({"n": 100000}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 100000}, "max_tokens"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"stop": [1]}, "stop"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 3}}}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"seed": "x"}, "seed"),
]


@pytest.mark.parametrize("extra,param", BAD, ids=[json.dumps(b[0])[:40] for b in BAD])
def test_bad_parameters_are_named(server, extra, param):
    status, reply = post(server, "/v1/chat/completions", {"model": "demo", "messages": CHAT, "max_tokens": 2, **extra})
    assert status == 400, reply
    error = reply["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param) or param in error["message"], error
    assert error["code"] is None or isinstance(error["code"], str)
    assert post(server, "/v1/completions", {"model": "demo", "prompt": "x", "max_tokens": 1})[0] == 200


def test_other_errors(server, client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=CHAT)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="demo", prompt="word " * 3000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert post(server, "/v1/completions", b"{nonsense")[0] == 400
    assert post(server, "/v1/completions", b'{"prompt": "\xff"}')[0] == 400
    assert post(server, "/v1/completions", b"[" * 100000)[0] == 400
    assert post(server, "/v1/nowhere", {})[0] == 404
    assert client.completions.create(model="demo", prompt="x", max_tokens=1, stop=None, seed=None).choices


def test_null_and_unknown_fields_are_ignored(server):
    status, _ = post(server, "/v1/chat/completions", {
        "model": "demo", "messages": CHAT, "max_tokens": 2, "stop": None, "tools": None, "n": None, "seed": None,
        "logit_bias": None, "store": False, "metadata": {"a": "b"}, "never_heard_of": [1, 2]})
    assert status == 200


def test_api_key(start):
    from conftest import MODEL
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--api-key", "sesame")
    with pytest.raises(openai.AuthenticationError) as caught:
        server.client(api_key="wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    assert server.client(api_key="sesame").models.list().data
    assert get(server, "/health")[0] == 200


def test_a_request_among_others_gets_the_same_bits(server, client):
    """The invariance of the project, tested from the outside."""
    def ask(i):
        reply = client.completions.create(
            model="demo", prompt=f"Once upon a time number {i % 8}", max_tokens=24, temperature=0.9, seed=i % 8,
            logprobs=3, extra_body={"return_token_ids": True, "ignore_eos": True})
        c = reply.choices[0]
        return c.model_extra["token_ids"], c.logprobs.token_logprobs, c.logprobs.top_logprobs

    alone = [ask(i) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        together = list(pool.map(ask, range(48)))
    for i, got in enumerate(together):
        assert got == alone[i % 8]


def test_best_of_says_what_it_may_be(client):
    with pytest.raises(openai.BadRequestError, match="best_of: 3 is not supported; leave it out, or give the value of n: 2"):
        client.completions.create(model="demo", prompt="x", n=2, best_of=3, max_tokens=1)
