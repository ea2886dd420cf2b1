"""The real anthropic client against Quire's /v1/messages."""

import anthropic
import pytest

import rig
from conftest import MODEL, SLOWLY
from test_service import STORY, tenants  # noqa: F401 (a fixture)

CHAT = [{"role": "user", "content": "Tell me a story."}]
ASK = dict(model="demo", max_tokens=40, messages=CHAT, extra_body={"temperature": 0.8, "seed": 7})


def connect(server, **kwargs):
    return anthropic.Anthropic(base_url=server.url, **{"api_key": "none", "max_retries": 0, **kwargs})


@pytest.fixture
def claude(server):
    return connect(server)


def text_of(message):
    return "".join(block.text for block in message.content)


def n_input(usage):
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def test_a_message_is_a_chat_s_answer(client, claude):
    for system in (None, "You are kind."):
        chat = client.chat.completions.create(
            model="demo", messages=([{"role": "system", "content": system}] if system else []) + CHAT, max_tokens=40,
            temperature=0.8, seed=7)
        reply = claude.messages.create(**ASK, **({"system": system} if system else {}))
        assert text_of(reply) == chat.choices[0].message.content
        assert reply.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[chat.choices[0].finish_reason]
        assert (n_input(reply.usage), reply.usage.output_tokens) == (chat.usage.prompt_tokens,
                                                                     chat.usage.completion_tokens)
        assert (reply.type, reply.role, reply.model, reply.stop_sequence) == ("message", "assistant", "demo", None)
        assert reply.id.startswith("msg_") and len(reply._request_id) == 32


def test_blocks_and_turns(claude):
    block = lambda text: [{"type": "text", "text": text}]
    strings = claude.messages.create(**{**ASK, "messages": [*CHAT, {"role": "assistant", "content": "Once"}]},
                                     system="Be kind.")
    blocks = claude.messages.create(**{**ASK, "messages": [
        {"role": "user", "content": block(CHAT[0]["content"])}, {"role": "assistant", "content": block("Once")}]},
        system=block("Be kind."))
    assert text_of(strings) == text_of(blocks) != text_of(claude.messages.create(**ASK, system="Be kind."))


def test_why_it_stops(claude):
    full = text_of(claude.messages.create(**ASK))
    word = full.split(" ")[2]
    reply = claude.messages.create(**ASK, stop_sequences=["\x01", word])
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", word) and text_of(reply) == full.split(word)[0]
    assert claude.messages.create(**{**ASK, "max_tokens": 2}).stop_reason == "max_tokens"


def test_a_stream_is_the_whole_in_pieces(claude):
    whole = claude.messages.create(**ASK)
    events = list(claude.messages.create(**ASK, stream=True))
    kinds = [event.type for event in events]
    n = kinds.count("content_block_delta")
    assert kinds == ["message_start", "content_block_start", *["content_block_delta"] * n, "content_block_stop",
                     "message_delta",
                     "message_stop"]
    assert "".join(event.delta.text for event in events[2:-3]) == text_of(whole)
    assert events[-2].delta.stop_reason == whole.stop_reason
    with claude.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) == text_of(whole) and final.stop_reason == whole.stop_reason
    assert n_input(final.usage) == n_input(whole.usage) and final.usage.output_tokens == whole.usage.output_tokens


def test_usage_of_the_cache(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo")
    ask = dict(model="demo", max_tokens=4, messages=[{"role": "user", "content": STORY}])
    first, again = connect(server).messages.create(**ask).usage, connect(server).messages.create(**ask).usage
    assert first.cache_read_input_tokens == 0 < first.cache_creation_input_tokens
    assert again.cache_read_input_tokens == first.cache_creation_input_tokens and n_input(again) == n_input(first)
    with connect(server).messages.stream(**ask) as stream:
        assert stream.get_final_message().usage.input_tokens == again.input_tokens


def test_counting(claude):
    count = claude.messages.count_tokens(model="demo", messages=CHAT, system="Be kind.")
    assert count.input_tokens == n_input(claude.messages.create(**ASK, system="Be kind.").usage)


def test_errors(claude):
    def fails(kind, type, **fields):
        for stream in (False, True):
            with pytest.raises(kind) as caught:
                claude.messages.create(**{**ASK, **fields}, stream=stream)
            assert caught.value.type == type and len(caught.value.request_id) == 32
        return caught.value.api_message

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for name, fields in (("tools[0].type", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
                         ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
                         ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [image]}]}),
                         ("temperature", {"extra_body": {"temperature": 1.5}}),
                         ("prompt is too long", {"messages": [{"role": "user", "content": "word " * 2000}]})):
        assert fails(anthropic.BadRequestError, "invalid_request_error", **fields).startswith(name + ": ")
    fails(anthropic.NotFoundError, "not_found_error", model="absent")


def test_keys_limits_and_retries(start, tenants):  # noqa: F811
    server = start("serve", MODEL, "--port", "0", "--tenants", tenants, "--served-model-name", "demo")
    ask = {**ASK, "max_tokens": 2}
    slow = connect(server, api_key="key-slow")
    raw = slow.messages.with_raw_response.create(**ask)
    assert raw.headers["x-ratelimit-limit-requests"] == "2" and raw.headers["request-id"] == raw.headers["x-request-id"]
    # The header in which older versions of the client send the key.
    old = {"x-api-key": "key-slow", "Authorization": anthropic.Omit()}
    assert connect(server, default_headers=old).messages.create(**ask).usage.output_tokens == 2
    with pytest.raises(anthropic.RateLimitError) as caught:
        slow.messages.create(**ask)
    assert caught.value.type == "rate_limit_error" and 0 < int(caught.value.response.headers["retry-after-ms"]) <= 30000
    for key, headers in (("key-nobody", {}), ("key-root", {"x-api-key": "key-slow"})):
        with pytest.raises(anthropic.AuthenticationError) as caught:
            connect(server, api_key=key, default_headers=headers).messages.create(**ask)
        assert caught.value.type == "authentication_error"
    assert connect(server, api_key="key-root").messages.create(**ask).usage.output_tokens == 2


def test_who_leaves_is_cancelled(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", *SLOWLY)
    ask = {**ASK, "max_tokens": 1900, "extra_body": {"ignore_eos": True}}
    with connect(server).messages.create(**ask, stream=True) as stream:
        assert next(iter(stream)).type == "message_start"
    rig.wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("vllm:generation_tokens_total") < 1900
