"""vLLM's extra fields, with the real engine."""

import openai
import pytest

PROMPT = "Once upon a time"


def complete(client, prompt=PROMPT, **fields):
    known = {k: fields.pop(k) for k in ("max_tokens", "temperature", "seed", "n", "logprobs", "stop") if k in fields}
    return client.completions.create(model="demo", prompt=prompt, **{"max_tokens": 24, "temperature": 0, **known},
                                     extra_body={"return_token_ids": True, **fields})


def ids(reply):
    return [c.model_extra["token_ids"] for c in reply.choices]


def test_allowed_token_ids(client):
    whole = complete(client, logprobs=3, ignore_eos=True)
    some = sorted(set(ids(whole)[0]))[::2]
    reply = complete(client, allowed_token_ids=some + some[:2], logprobs=3, temperature=1.0, seed=5, n=3)
    assert all(set(got) <= set(some) and len(got) == 24 for got in ids(reply))  # eos is not among them
    assert len({tuple(got) for got in ids(reply)}) == 3
    # The reported distribution is the model's own: it contains tokens that may not be drawn.
    first = complete(client, allowed_token_ids=some, logprobs=3).choices[0].logprobs.top_logprobs[0]
    assert set(whole.choices[0].logprobs.top_logprobs[0].items()) <= set(first.items())
    assert ids(complete(client, allowed_token_ids=[some[0]], max_tokens=4)) == [[some[0]] * 4]


def tokens_of(client, text):
    return client.post("/../tokenize", body={"prompt": text, "add_special_tokens": False}, cast_to=object)["tokens"]


def text_of(client, tokens):
    return client.post("/../detokenize", body={"tokens": tokens}, cast_to=object)["prompt"]


def sequences(client, word):
    """The forbidden sequences of a word."""
    plain, spaced = tokens_of(client, word.lstrip()), tokens_of(client, " " + word.lstrip())
    return [plain] + [spaced] * (spaced != plain)


def has(tokens, sequence):
    return any(tokens[i:i + len(sequence)] == sequence for i in range(len(tokens)))


def test_bad_words(client):
    whole = ids(complete(client, ignore_eos=True))[0]
    # Pieces of one to three tokens; the forbidden part is the sequences() of each, not its text.
    words = [text_of(client, whole[i:i + 1 + i % 3]) for i in range(12)]
    n_forbidden = 0
    for word in words:
        forbidden = sequences(client, word)
        got = ids(complete(client, ignore_eos=True, bad_words=[word]))[0]
        assert not any(has(got, s) for s in forbidden)
        assert (got == whole) != any(has(whole, s) for s in forbidden)
        n_forbidden += got != whole
    assert n_forbidden >= 4
    # All of them at once, drawn, in every choice, and again in a stream.
    ask = dict(bad_words=words, temperature=0.8, seed=3, n=2, ignore_eos=True)
    reply = complete(client, **ask)
    assert not any(has(got, s) for got in ids(reply) for word in words for s in sequences(client, word))
    stream = client.completions.create(model="demo", prompt=PROMPT, max_tokens=24, temperature=0.8, seed=3, n=2,
                                       stream=True, extra_body={"bad_words": words, "ignore_eos": True})
    texts = ["", ""]
    for event in stream:
        for choice in event.choices:
            texts[choice.index] += choice.text
    assert texts == [c.text for c in reply.choices]


def test_a_bad_word_is_forbidden_after_a_space_too(client):
    # One token after a space, two without: vLLM would permit it.
    assert len(tokens_of(client, " gentle")) == 1 and len(tokens_of(client, "gentle")) == 2
    assert " gentle" in complete(client, prompt="Once upon").choices[0].text
    assert "gentle" not in complete(client, prompt="Once upon", bad_words=["gentle"]).choices[0].text


@pytest.mark.parametrize("fields,param", [
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [10 ** 9]}, "allowed_token_ids"),
    ({"bad_words": [""]}, "bad_words"),
    ({"bad_words": ["  "]}, "bad_words"),
    ({"bad_words": ["a b c d e f g h i j " * 4000]}, "bad_words"),
    ({"bad_words": ["x"] * 10000}, "bad_words"),
], ids=lambda v: str(v)[:40])
def test_what_is_refused(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, **fields)
    assert caught.value.param == param


def test_nothing_left_to_draw(client):
    eos = tokens_of(client, "<|im_end|>")
    assert len(eos) == 1
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, allowed_token_ids=eos, min_tokens=1)
    assert caught.value.param == "min_tokens"
    assert ids(complete(client, allowed_token_ids=eos)) == [eos]
    # In the middle: one token may be drawn, but not twice in a row.
    token = next(t for t in range(20, 400) if tokens_of(client, text_of(client, [t, t])) == [t, t]
                 and not text_of(client, [t]).startswith(" "))
    word = text_of(client, [token, token])
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, allowed_token_ids=[token], bad_words=[word])
    assert caught.value.param == "bad_words" and caught.value.code == "invalid_value"
    events = complete_stream(client, allowed_token_ids=[token], bad_words=[word])
    with pytest.raises(openai.APIError):
        list(events)


def complete_stream(client, **fields):
    return client.completions.create(model="demo", prompt=PROMPT, max_tokens=24, temperature=0, stream=True,
                                     extra_body=fields)


def test_seeds_have_64_bits(client):
    def draw(seed):
        return complete(client, temperature=1.0, seed=seed, max_tokens=16).choices[0].text
    assert draw(2 ** 64 - 1) == draw(-1) != draw(2 ** 63) == draw(-2 ** 63)
