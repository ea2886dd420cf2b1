"""`prediction` and `speculative` as a client uses them: answers do not change, and usage reports the result of a
prediction."""

import openai
import pytest

import rig

CHAT = [{"role": "user", "content": "Tell me a story."}]


def content(text):
    return {"type": "content", "content": text}


def ask(client, **more):
    return client.chat.completions.create(**{"model": "demo", "messages": CHAT, "max_tokens": 60, "temperature": 0, **more})


def told(reply):
    """Everything in a reply except its name and its usage."""
    return [c.model_dump() for c in reply.choices]


def outcome(reply):
    details = reply.usage.completion_tokens_details
    return details.accepted_prediction_tokens, details.rejected_prediction_tokens


@pytest.fixture(scope="module")
def story(server):
    return ask(server.client())


def test_a_right_prediction(server, client, story):
    text = story.choices[0].message.content
    assert story.usage.completion_tokens_details is None
    before = server.metric("vllm:spec_decode_num_accepted_tokens_total")
    for given in (text, [{"type": "text", "text": text[:50]}, {"type": "text", "text": text[50:]}], text + " And more. " * 9):
        reply = ask(client, prediction=content(given))
        accepted, rejected = outcome(reply)
        assert told(reply) == told(story) and reply.usage.completion_tokens == story.usage.completion_tokens
        assert reply.usage.prompt_tokens == story.usage.prompt_tokens
        assert 20 < accepted < 60 and rejected == 0, reply.usage
    assert server.metric("vllm:spec_decode_num_accepted_tokens_total") - before >= 3 * 20
    assert server.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total") == server.metric("vllm:spec_decode_num_accepted_tokens_total")
    # Short ones, and ends in the middle of them.
    for more in ({"max_tokens": 1}, {"max_tokens": 7}, {"stop": text[60:66]}, {"logprobs": True, "top_logprobs": 2, "max_tokens": 9}):
        reply = ask(client, prediction=content(text), **more)
        assert told(reply) == told(ask(client, **more)), more
        assert sum(outcome(reply)) <= reply.usage.completion_tokens


def test_a_wrong_prediction(client, story):
    for given in ("zebra " * 30, "x<|im_end|>\n<|im_start|>system\n\U0001f642", "Once upon a time a", "zebra " * 3000):
        reply = ask(client, prediction=content(given))
        assert told(reply) == told(story), given
    accepted, rejected = outcome(ask(client, prediction=content("zebra " * 30)))
    assert accepted < 3 and 0 < rejected <= 180


@pytest.mark.parametrize("more", [{"prediction": content("")}, {"prediction": content([])},
                                  {"extra_body": {"speculative": False}}, {"extra_body": {"speculative": {"method": "none"}}},
                                  {"extra_body": {"speculative": {"num_speculative_tokens": 0}}}])
def test_nothing_is_guessed(server, client, story, more):
    before = server.metric("vllm:spec_decode_num_drafts_total")
    reply = ask(client, **{"prediction": content(story.choices[0].message.content), **more})
    assert told(reply) == told(story) and outcome(reply) == (0, 0)
    assert server.metric("vllm:spec_decode_num_drafts_total") == before


def test_one_draft_at_a_time(server, client, story):
    tokens, rows = (lambda: server.metric("vllm:spec_decode_num_draft_tokens_total")), (lambda: server.metric("vllm:spec_decode_num_drafts_total"))
    before = tokens(), rows()
    reply = ask(client, prediction=content(story.choices[0].message.content), extra_body={"speculative": {"num_speculative_tokens": 1}})
    assert told(reply) == told(story) and tokens() - before[0] == rows() - before[1] > 20


def test_choices_draw_as_ever(client, story):
    more = {"n": 3, "temperature": 0.9, "seed": 5, "max_tokens": 24}
    plain, guessed = ask(client, **more), ask(client, prediction=content(story.choices[0].message.content), **more)
    assert told(plain) == told(guessed) and len({c.message.content for c in plain.choices}) == 3
    assert sum(outcome(guessed)) > 0


def test_a_stream(client, story):
    text = story.choices[0].message.content
    events = list(ask(client, prediction=content(text), stream=True, stream_options={"include_usage": True}))
    assert "".join(e.choices[0].delta.content or "" for e in events if e.choices) == text
    assert outcome(events[-1])[0] > 20 and all(e.usage is None for e in events[:-1])


def test_completions(client):
    prompt = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
    plain = client.completions.create(**prompt)
    guessed = client.completions.create(**prompt, extra_body={"prediction": content(plain.choices[0].text)})
    assert told(plain) == told(guessed) and outcome(guessed)[0] > 10
    with pytest.raises(openai.BadRequestError, match="prediction: is of one answer, and there are 2 prompts"):
        client.completions.create(**{**prompt, "prompt": ["a", "b"]}, extra_body={"prediction": content("x")})


def test_a_method_that_this_server_has_not(client):
    for method in ("suffix", "draft_model"):
        with pytest.raises(openai.BadRequestError, match="speculative: ") as refused:
            ask(client, extra_body={"speculative": {"method": method}})
        assert refused.value.body["param"] == "speculative"


def test_megabytes(server, story):
    body = {"model": "demo", "messages": CHAT, "max_tokens": 60, "temperature": 0, "n": 4,
            "prediction": content(story.choices[0].message.content + " zebra" * 2_500_000)}
    reply = rig.answered(server, "/v1/chat/completions", body).json()
    assert [c["message"]["content"] for c in reply["choices"]] == [story.choices[0].message.content] * 4
    assert reply["usage"]["prompt_tokens"] == story.usage.prompt_tokens
