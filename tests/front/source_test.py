"""A reply does not depend on its source: the engine, a source that answers at once, and one that answers later."""

import re
import sys

from harness import Server, run_tests

CHAT, TEXT, PIN = "/v1/chat/completions", "/v1/completions", "/v1/cache/pins"
HELLO = [{"role": "user", "content": "hello there, who are you?"}]
SOURCES = ((), ("--source", "at-once"), ("--source", "later"))


def without_names(data):
    return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", data)


def by_choice(data):
    """A stream's events, grouped by choice: the source decides how choices alternate."""
    index = lambda event: int((re.search(rb'"index":(\d+)', event) or [0, 999])[1])
    return b"\n\n".join(sorted(data.split(b"\n\n"), key=index))


def replies(path, body):
    out = []
    for s in servers:
        status, headers, data = s.request("POST", path, body)
        out.append((status, headers["Content-Type"], headers.get("Retry-After"), by_choice(without_names(data))))
        assert s.idle()
    return out


def test_replies_are_the_same():
    for path, body in ((CHAT, {"messages": HELLO, "max_tokens": 20}), (CHAT, {"messages": HELLO, "n": 3}),
                       (TEXT, {"prompt": "one two three", "max_tokens": 2}), (TEXT, {"prompt": ["a b c", "d e f", "g"], "n": 2}),
                       (TEXT, {"prompt": "one two three four", "stop": " three"}), (TEXT, {"prompt": ["one two", "two one"], "stop": "one", "n": 2}),
                       (TEXT, {"prompt": ["one two", "three"], "echo": True, "return_token_ids": True})):
        for stream in (False, True):
            engine, at_once, later = replies(path, {**body, "stream": stream})
            assert engine[0] == 200 and at_once == engine and later == engine, (body, engine, at_once, later)


def test_usage_speaks_of_the_clients_prediction_only():
    def details(s, **more):
        status, reply = s.post(TEXT, {"prompt": "one two three", "max_tokens": 2, **more})
        assert status == 200, reply
        return reply["usage"].get("completion_tokens_details")

    def said(accepted, rejected):
        return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}

    for s, right in zip(servers, (0, 2, 2)):  # the fake engine tries no predictions, the sources one token too many
        content = lambda text: {"prediction": {"type": "content", "content": text}}
        assert details(s) is None and details(s, prediction=None) is None
        assert details(s, **content("")) == said(0, 0)
        assert details(s, **content("one two three four")) == said(right, right > 0)
        assert details(s, **content("one two three four"), n=3) == said(3 * right, 3 * (right > 0))
        assert details(s, **content("one")) == said(right > 0, 0)  # at most the available ones
        assert details(s, **content("one two three four"), stop=" two") == said(right, right > 0)


def test_a_refusal_is_an_error():
    for body in ({"prompt": "one"}, {"prompt": ["one", "two", "three"], "n": 2, "stream": True}):
        _, at_once, later = replies(TEXT, {**body, "priority": 1234})
        assert at_once[0] == 429 and at_once[2] == "2" and b"the cache is full" in at_once[3], at_once
        assert later == at_once


def test_pins():
    engine, at_once, later = replies(PIN, {"prompt": "one two three"})
    assert engine[0] == 200 and at_once[0] == 200 and later == at_once, (engine, at_once, later)


with Server(*SOURCES[0]) as first, Server(*SOURCES[1]) as second, Server(*SOURCES[2]) as third:
    servers = first, second, third
    run_tests(sys.modules[__name__])
