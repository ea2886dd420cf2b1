"""Mistakes of other servers, tested with openai-python's own code: its reader of events and its joiner of deltas.
docs/internals/conformance.md lists the test of each mistake."""

import json

import httpx2 as httpx
import openai
import pytest
from openai._streaming import SSEDecoder
from openai.lib.streaming._deltas import accumulate_delta
import rig
from test_tools import CALL, OTHER, PARIS, TOOLS, model, serve  # noqa: F401 (fixtures)

CHAT = [{"role": "user", "content": "Tell me a story."}]


def raw(url, path, body):
    reply = rig.answered(url, path, {**body, "stream": True})
    return reply.headers, reply.body


def sdk_events(data):
    """As the SDK's own decoder reads the bytes, however they are cut."""
    whole = [e.data for e in SSEDecoder().iter_bytes(iter([data]))]
    assert whole == [e.data for e in SSEDecoder().iter_bytes(iter(bytes([b]) for b in data))]
    assert whole[-1] == "[DONE]" and "[DONE]" not in whole[:-1]
    return [json.loads(e) for e in whole[:-1]]


def joined(events, index):
    """The choice that the SDK's joiner makes of its deltas."""
    message = {}
    for event in events:
        for choice in event["choices"]:
            if choice["index"] == index:
                message = accumulate_delta(message, choice["delta"])
    return message


def test_deltas_join_to_the_message(server):  # 1, 4, 5, 7, 8, 9, 15
    body = {"model": "demo", "messages": CHAT, "max_tokens": 16, "seed": 3, "n": 3}
    headers, data = raw(server.url, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    events = sdk_events(data)
    whole = rig.answered(server, "/v1/chat/completions", body).json()
    for i in range(3):
        assert joined(events, i) == {k: v for k, v in whole["choices"][i]["message"].items() if k in ("role", "content")}
        assert len([c for e in events for c in e["choices"] if c["index"] == i and c["finish_reason"]]) == 1
    assert [e["choices"][0]["index"] for e in events[:3]] == [0, 1, 2]  # index 0 first
    assert {e["object"] for e in events} == {"chat.completion.chunk"} and whole["object"] == "chat.completion"
    assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
    assert isinstance(events[0]["created"], int) and 1.6e9 < events[0]["created"] < 1e11 and events[0]["model"] == "demo"  # seconds, the served name
    assert headers["Cache-Control"] == "no-cache" and headers["X-Accel-Buffering"] == "no"  # 21
    assert headers["Content-Type"] == "text/event-stream"


def test_calls_join_to_the_call(serve):  # noqa: F811 2, 3, 9, 10
    url = str(serve().base_url).removesuffix("/v1/")
    body = {"messages": [{"role": "user", "content": CALL + OTHER}], "tools": TOOLS, "max_tokens": 400}
    events = sdk_events(raw(url, "/v1/chat/completions", body)[1])
    message = joined(events, 0)
    calls = message["tool_calls"]
    assert [c["function"]["name"] for c in calls] == ["weather", "clock"] and [c["index"] for c in calls] == [0, 1]
    assert [c["type"] for c in calls] == ["function"] * 2 and len({c["id"] for c in calls}) == 2
    assert calls[0]["function"]["arguments"] == PARIS and message["role"] == "assistant"
    assert message.get("content") is None
    finishes = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert finishes == ["tool_calls"]
    plain = sdk_events(raw(url, "/v1/chat/completions", {**body, "messages": CHAT})[1])
    assert not any("tool_calls" in c["delta"] for e in plain for c in e["choices"])  # absent, not []


def test_usage_comes_with_empty_choices(server):  # 6
    body = {"model": "demo", "messages": CHAT, "max_tokens": 4, "stream_options": {"include_usage": True}}
    events = sdk_events(raw(server.url, "/v1/chat/completions", body)[1])
    assert all(isinstance(e["choices"], list) for e in events)
    assert [e["choices"] for e in events if e["usage"]] == [[]] and events[-1]["usage"]["completion_tokens"] <= 4


def strict(text):
    def no_constant(name):
        raise AssertionError(f"{name} is not JSON")
    return json.loads(text, parse_constant=no_constant)


def test_logprobs_are_json(server):  # 11
    body = {"model": "demo", "messages": CHAT, "max_tokens": 8, "logprobs": True, "top_logprobs": 20, "stream": False}
    for change in ({}, {"logit_bias": {"1": -100}, "bad_words": ["a"]}, {"allowed_token_ids": [40, 41]}):
        reply = rig.answered(server, "/v1/chat/completions", {**body, **change})
        for entry in strict(reply.body)["choices"][0]["logprobs"]["content"]:
            for token in (entry, *entry["top_logprobs"]):
                assert -9999 <= token["logprob"] <= 0 and isinstance(token["bytes"], list)


def test_embeddings_of_a_chat_model_are_refused_at_once(client):  # 12
    with pytest.raises(openai.BadRequestError) as caught:
        client.with_options(max_retries=2).embeddings.create(model="demo", input="x")
    assert caught.value.code == "model_not_supported" and "--task embed" in caught.value.message


def test_what_the_sdk_may_send_next_year(client):  # 13
    reply = client.chat.completions.create(
        model="demo", messages=[{**CHAT[0], "name": "me"}], max_tokens=2, temperature=0, stop=None, tools=None, user="me",
        extra_body={"never_heard_of": {"deep": [1]}, "functions": None, "max_completion_tokens": None})
    assert reply.choices[0].message.content


def test_bad_input_is_asked_once(server):  # 16
    class Counting(httpx.HTTPTransport):
        n = 0

        def handle_request(self, request):
            Counting.n += 1
            return super().handle_request(request)

    client = server.client(max_retries=2, http_client=httpx.Client(transport=Counting()))
    for bad in ({"temperature": 9}, {"messages": []}, {"model": "gpt-9"}, {"max_tokens": 10 ** 6}, {"n": 0}):
        Counting.n = 0
        with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as caught:
            client.chat.completions.create(**{"model": "demo", "messages": CHAT, **bad})
        assert Counting.n == 1 and caught.value.request_id and caught.value.type == "invalid_request_error"
        assert isinstance(caught.value.code, str) and caught.value.param


def test_a_base_url_with_a_slash_or_without_v1(server):  # 20
    assert openai.OpenAI(base_url=server.url + "/v1/", api_key="x").models.list().data
    for wrong in ("", "/v1/v1"):
        with pytest.raises(openai.NotFoundError) as caught:
            openai.OpenAI(base_url=server.url + wrong, api_key="x", max_retries=0).chat.completions.create(model="demo", messages=CHAT)
        assert caught.value.code == "unknown_url"
