"""openai-python's client.responses against Quire: text. test_responses_tools.py has tools and the store."""

import openai
import pytest

CHAT = [{"role": "user", "content": "Tell me a story."}]
ASK = dict(model="demo", input="Tell me a story.", max_output_tokens=40, temperature=0.8)
SEED = {"seed": 7}


def same_as_chat(reply, chat):
    choice = chat.choices[0]
    assert reply.output_text == choice.message.content
    assert reply.status == ("completed" if choice.finish_reason == "stop" else "incomplete")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (chat.usage.prompt_tokens,
                                                                     chat.usage.completion_tokens)


def without_times(response):
    """The common part of two replies to one request."""
    fields = response.to_dict()
    for name in ("id", "created_at", "completed_at", "usage"):
        fields.pop(name, None)
    for item in fields["output"]:
        item.pop("id")
    return fields


def test_a_response_is_a_chat_s_answer(client):
    chat = client.chat.completions.create(model="demo", messages=CHAT, max_tokens=40, temperature=0.8, seed=7)
    reply = client.responses.create(**ASK, extra_body=SEED)
    same_as_chat(reply, chat)
    assert reply.object == "response" and reply.model == "demo" and reply.id.startswith("resp_") and reply.error is None
    assert reply.usage.output_tokens_details.reasoning_tokens == 0
    item = reply.output[0]
    assert (item.type, item.role, item.status) == ("message", "assistant", reply.status)
    short = client.responses.create(**{**ASK, "max_output_tokens": 3}, extra_body=SEED)
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"


def test_parameters_come_back(client):
    reply = client.responses.create(
        **ASK, instructions="Be brief.", metadata={"run": "7"}, user="u", top_p=0.5, top_logprobs=2, store=True,
        truncation="auto", parallel_tool_calls=False, reasoning={"effort": "low"}, text={"format": {"type": "text"}})
    assert (reply.temperature, reply.top_p, reply.max_output_tokens, reply.top_logprobs) == (0.8, 0.5, 40, 2)
    assert (reply.instructions, reply.metadata, reply.user, reply.truncation) == ("Be brief.", {"run": "7"}, "u",
                                                                                  "auto")
    assert reply.parallel_tool_calls is False and reply.tools == [] and reply.text.format.type == "text"
    assert reply.model_extra["store"] is True and reply.reasoning.effort == "low"


def test_items_and_turns(client):
    chat = client.chat.completions.create(
        model="demo", max_tokens=20, temperature=0,
        messages=[{"role": "system", "content": "You are kind."}, {"role": "user", "content": "Hello\nyou"}])
    reply = client.responses.create(
        model="demo", max_output_tokens=20, temperature=0, instructions="You are kind.",
        input=[{"role": "user",
                "content": [{"type": "input_text", "text": "Hello"}, {"type": "input_text", "text": "you"}]}])
    same_as_chat(reply, chat)
    history = [{"role": "user", "content": "Hello"}, *reply.output, {"role": "user", "content": "More."}]
    same_as_chat(client.responses.create(model="demo", max_output_tokens=20, temperature=0, input=history),
                 client.chat.completions.create(model="demo", max_tokens=20, temperature=0, messages=[
                     history[0], {"role": "assistant", "content": reply.output_text}, history[-1]]))


def test_logprobs(client):
    chat = client.chat.completions.create(model="demo", messages=CHAT, max_tokens=40, temperature=0.8, seed=7,
                                          logprobs=True, top_logprobs=3)
    reply = client.responses.create(**ASK, top_logprobs=3, include=["message.output_text.logprobs"], extra_body=SEED)
    assert [entry.to_dict() for entry in reply.output[0].content[0].logprobs] == [
        entry.to_dict() for entry in chat.choices[0].logprobs.content]


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_stream_is_the_whole_in_pieces(client, logprobs):
    ask = {**ASK, "extra_body": SEED, "include": ["message.output_text.logprobs"] if logprobs else []}
    whole = client.responses.create(**ask)
    events = list(client.responses.create(**ask, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert kinds == ["created", "in_progress", "output_item.added", "content_part.added",
                     *["output_text.delta"] * len(deltas), "output_text.done", "content_part.done", "output_item.done",
                     whole.status]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in deltas) == events[-4].text == whole.output_text
    assert without_times(events[-1].response) == without_times(whole)
    assert events[0].response.status == "in_progress" and events[0].response.id == events[-1].response.id
    n_entries = sum(len(event.logprobs) for event in deltas)
    assert n_entries == (whole.usage.output_tokens if logprobs else 0)


def test_the_stream_helper(client):
    with client.responses.stream(**{**ASK, "max_output_tokens": 900}, extra_body=SEED) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.status == "completed" and final.output_text == text


def test_what_is_not_built_is_named(client):
    for name, value in (("background", True), ("conversation", "conv_1")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**ASK, **{name: value})
        assert caught.value.param == name and caught.value.code == "unsupported_parameter"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(**{**ASK, "model": "absent"})
