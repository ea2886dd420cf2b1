"""Anthropic's Messages, as its own client speaks it, over an upstream server that knows OpenAI's API only."""

import json

import anthropic
import pytest
import rig
from upstream import Upstream

TOOLS = [{"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]


@pytest.fixture
def upstream():
    u = Upstream()
    yield u
    u.close()


@pytest.fixture
def gateway(start, tmp_path, upstream):
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n  small: {{targets: [{{url: '{upstream.url}', model: up}}], price_per_1k: {{input: 0.001, output: 0.002}}}}\n")
    return start("serve", "--models", file, "--port", "0")


@pytest.fixture
def client(gateway):
    return anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0)


def ask(client, content="Hello", **more):
    return client.messages.create(model="small", max_tokens=100, messages=[{"role": "user", "content": content}], **more)


def chunks(*deltas, finish="stop", usage=True):
    """An upstream server whose stream has these deltas."""
    async def do(self, writer, asked):
        self.stream_head(writer)
        for delta in deltas:
            await self.event(writer, self.chunk(delta))
        await self.event(writer, self.chunk({}, finish))
        if usage:
            await self.event(writer, {"choices": [], "usage": self.usage()})
        await self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
    return do


def call(index, id=None, name=None, arguments=""):
    head = {"id": id, "type": "function"} if id else {}
    return {"tool_calls": [{"index": index, **head, "function": {**({"name": name} if name else {}), "arguments": arguments}}]}


def test_a_message(client, upstream):
    message = ask(client, system="Be short.", extra_body={"temperature": 0.5}, stop_sequences=["x"], metadata={"user_id": "me"})
    assert message.content == [anthropic.types.TextBlock(type="text", text="w0 w1 w2 w3 w4 w5 w6 w7")]
    assert (message.model, message.role, message.stop_reason) == ("small", "assistant", "end_turn")
    assert message.id.startswith("msg_")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.output_tokens) == (6, 4, 0, 8)
    assert usage.model_extra["cost"] == 0.000026
    assert upstream.path == "/v1/chat/completions"
    assert upstream.bodies == [{"model": "up", "max_tokens": 100, "temperature": 0.5, "stop": ["x"],
                                "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]}]


def test_a_stream(client, upstream):
    with client.messages.stream(model="small", max_tokens=100, messages=[{"role": "user", "content": "Hello"}]) as stream:
        texts = list(stream.text_stream)
        message = stream.get_final_message()
    assert texts == [f"w{i} " for i in range(8)]
    assert message.content[0].text == "".join(texts) and message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (6, 4, 8)
    assert upstream.bodies[0]["stream_options"] == {"include_usage": True}


def test_events_are_those_of_the_api(gateway):
    with rig.stream(gateway, "/v1/messages", {"model": "small", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "a"}]}) as reply:
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
        assert "model=small" in reply.headers["x-quire-route"]
        lines = reply.read().decode().split("\n")
    names = [line[7:] for line in lines if line.startswith("event: ")]
    assert names == ["message_start", "ping", "content_block_start"] + 8 * ["content_block_delta"] + ["content_block_stop", "message_delta", "message_stop"]
    found = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [data["type"] for data in found] == names
    assert found[-2]["usage"] == {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 8, "cost": 0.000026}


def test_tools(client, upstream, monkeypatch):
    monkeypatch.setattr(Upstream, "do_good", chunks(
        {"role": "assistant", "content": None}, {"content": "Adding."}, call(0, "c1", "add"), call(0, arguments='{"a": '), call(0, arguments="1}"),
        call(1, "c2", "add", "{}"), finish="tool_calls"))
    with client.messages.stream(model="small", max_tokens=100, tools=TOOLS, tool_choice={"type": "any"},
                                messages=[{"role": "user", "content": "1 + 1?"}]) as stream:
        message = stream.get_final_message()
    assert [(b.type, getattr(b, "id", None), getattr(b, "input", None)) for b in message.content] == [
        ("text", None, None), ("tool_use", "c1", {"a": 1}), ("tool_use", "c2", {})]
    assert message.stop_reason == "tool_use"
    asked = upstream.bodies[0]
    assert asked["tool_choice"] == "required" and asked["tools"][0]["function"]["parameters"] == TOOLS[0]["input_schema"]
    monkeypatch.undo()
    follow_up = client.messages.create(model="small", max_tokens=100, tools=TOOLS, messages=[
        {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": [b.model_dump(exclude_none=True, include={"type", "id", "name", "input", "text"}) for b in message.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "2"}, {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "no"}], "is_error": True}]}])
    assert follow_up.stop_reason == "end_turn"
    sent = upstream.bodies[1]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("c1", "2"), ("c2", "Error: no")]


def test_thinking_is_left_out_and_reported(client, upstream, monkeypatch):
    monkeypatch.setattr(Upstream, "do_good", chunks({"reasoning_content": "hm"}, {"content": "yes"}))
    raw = client.messages.with_raw_response.create(model="small", max_tokens=2000, stream=True, messages=[{"role": "user", "content": "a"}],
                                                   thinking={"type": "enabled", "budget_tokens": 1024})
    assert raw.headers["x-quire-dropped"] == "thinking"
    assert "thinking" not in upstream.bodies[0]
    kinds = [event.content_block.type for event in raw.parse() if event.type == "content_block_start"]
    assert kinds == ["thinking", "text"]


def test_images(client, upstream):
    ask(client, [{"type": "text", "text": "What?"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}])
    assert upstream.bodies[0]["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def test_errors_have_the_apis_form(client, upstream):
    with pytest.raises(anthropic.BadRequestError, match="messages: the last message is the assistant's"):
        client.messages.create(model="small", max_tokens=9, messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert upstream.requests == 0
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="none", max_tokens=9, messages=[{"role": "user", "content": "a"}])
    upstream.mode = "too_long"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: too many tokens"):
        ask(client)
    upstream.mode = "html_502"
    with pytest.raises(anthropic.InternalServerError):
        ask(client)


def test_a_stream_that_breaks_ends_with_an_error_event(client, upstream):
    upstream.mode = "cut_later"
    with pytest.raises(anthropic.APIError, match="ended the connection"):
        with client.messages.stream(model="small", max_tokens=100, messages=[{"role": "user", "content": "Hello"}]) as stream:
            assert list(stream.text_stream)


def test_rejected_requests_do_not_count_against_the_target(client, gateway):
    for _ in range(30):
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(model="small", max_tokens=9, messages=[{"role": "assistant", "content": "b"}])
    assert rig.answered(gateway, "/gateway/targets").json()[0]["breaker"] == "closed"
    assert ask(client).content


def test_counting_has_no_estimate(client):
    with pytest.raises(anthropic.APIStatusError, match="no route that counts tokens") as error:
        client.messages.count_tokens(model="small", messages=[{"role": "user", "content": "a"}])
    assert error.value.status_code == 501
