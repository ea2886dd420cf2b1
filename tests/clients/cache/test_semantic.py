"""Answers to similar questions as drafts, and answers that continue: the bits are those of a server without caches,
whatever was requested before."""

import itertools
import json
import random
import re
import shutil
import subprocess

import pytest
from conftest import ALWAYS_GUESSES, MODEL, QUIRE, Server
from rig import answered, clear_cache, stats, wait_until
from test_embeddings import model

OPENERS = ["tell me about", "what is", "explain", "describe", "please explain", "do not explain"]
THINGS = ["the sun", "a dog", "the cat", "rain", "the red dog", "two cats"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return model(tmp_path_factory.mktemp("semantic") / "tiny", "bert_mean")


@pytest.fixture(scope="module")
def servers(tiny):
    """One server without caches, and one whose threshold is so low that most questions are similar to some."""
    off = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo")
    on = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--semantic-cache", tiny, "--semantic-threshold",
                "0.3", "--response-cache-entries", "64", *ALWAYS_GUESSES)
    yield off, on
    for s in (off, on):
        assert s.stop() == 0, s.output()


def ask(server, body, path="/v1/chat/completions"):
    """The text of the reply, and the headers."""
    reply = answered(server, path, body)
    if not body.get("stream"):
        return reply.json()["choices"], reply.headers
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    return [e["choices"] for e in events if e["choices"]], reply.headers


def drafted(server, *bodies):
    """An answer to one of them that had a draft, and its headers. The vector may come before the end of the
    computation or after it: the request is repeated, without caching, until it did."""
    turn, found = itertools.cycle(bodies), []

    def is_drafted():
        found[:] = ask(server, {**next(turn), "cache": {"no_store": True}})
        assert found[1]["x-quire-cache"] in ("draft", "miss")
        return found[1]["x-quire-cache"] == "draft"

    wait_until(is_drafted, "a draft")
    return found


def test_all_layers_on_equals_all_off(servers):
    r = random.Random(20)
    said = []
    off, on = servers
    for _ in range(60):
        body = {"messages": [{"role": "user", "content": f"{r.choice(OPENERS)} {r.choice(THINGS)}"}],
                "max_tokens": r.choice([4, 12, 30]), "temperature": r.choice([0, 0, 1]), "seed": 3, "n": r.choice([1, 1, 2])}
        if r.random() < 0.3:
            body.update(logprobs=True, top_logprobs=2)
        if r.random() < 0.2:
            body["stop"] = ["e", "small"][r.randint(0, 1)]
        want, headers = ask(off, body)
        assert headers["x-quire-cache"] is None
        for _ in range(r.randint(1, 2)):
            got, headers = ask(on, body)
            said.append(headers["x-quire-cache"])
            assert got == want, (body, headers["x-quire-cache"])
            assert (said[-1] == "draft") == (headers["x-quire-similarity"] is not None)
        if body["n"] == 1:
            assert ask(on, {**body, "stream": True})[0] == ask(off, {**body, "stream": True})[0]
    assert said.count("exact") >= 5 and said.count("draft") + said.count("miss") >= 5, said
    body = {"messages": [{"role": "user", "content": "tell me about the red dog"}], "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    want, _ = ask(off, body)
    ask(on, body)
    for text in ("explain the red dog", "describe the red dog", "tell me about two cats"):
        body["messages"] = [{"role": "user", "content": text}]
        got, headers = drafted(on, body)
        assert got == ask(off, body)[0] and float(headers["x-quire-similarity"]) >= 0.3
        # A stream reports the state at its beginning.
        got, headers = ask(on, {**body, "stream": True, "cache": {"no_store": True}})
        assert got == ask(off, {**body, "stream": True})[0] and headers["x-quire-cache"] in ("draft", "miss")
    drafts = stats(on)["semantic"]["drafts"]
    assert sum(d["tokens_tried"] for d in drafts) > sum(d["tokens_right"] for d in drafts) > 0
    table = subprocess.run([QUIRE, "cache", "stats", on.url], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^  semantic: guarded\n  numbers +[0-9]+$", table, re.M), table
    assert re.search(r"^  semantic: drafts\n +similarity below +drafts +tokens tried +tokens right\n +0.85 +[0-9]+ +[0-9]+ +[0-9]+$", table, re.M), table
    assert stats(on)["layers"]["semantic"]["hits"] >= said.count("draft")


def test_a_longer_answer_goes_on(servers):
    off, on = servers
    for how in ({"temperature": 0}, {"temperature": 1, "seed": 5}, {"temperature": 0, "logprobs": 2, "stream": True},
                {"temperature": 0, "presence_penalty": 0.5}):
        before = stats(on)
        for n in (16, 40):
            body = {"prompt": "Once upon a time", "max_tokens": n, "ignore_eos": True, **how}
            assert ask(on, body, "/v1/completions")[0] == ask(off, body, "/v1/completions")[0], (n, how)
        after = stats(on)
        resumed = 0 if "presence_penalty" in how else 1  # a penalty counts generated tokens
        assert after["resumed"] - before["resumed"] == resumed and after["tokens_resumed"] - before["tokens_resumed"] == 16 * resumed


def test_answers_as_they_are(start, tiny):
    server = start("serve", MODEL, "--port", "0", "--semantic-cache", tiny, "--semantic-threshold", "0.6", "--semantic-mode", "answer")
    assert "warn  server: --semantic-mode answer:" in server.output()
    body = lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 60, "temperature": 0}
    first, headers = ask(server, body("please tell me about the dog"))
    assert headers["x-quire-cache"] == "miss"
    wait_until(lambda: stats(server)["layers"]["semantic"]["entries"] == 1)
    found = []

    def is_given():  # on a busy machine the vector may come too late
        found[:] = ask(server, {**body("tell me about the dog please"), "cache": {"no_store": True}})
        return found[1]["x-quire-cache"] == "semantic"

    wait_until(is_given, "the similar answer")
    again, headers = found
    assert float(headers["x-quire-similarity"]) > 0.6
    assert again[0]["message"] == first[0]["message"]
    other, headers = ask(server, body("tell me about 15 dogs please"))
    assert headers["x-quire-cache"] in ("draft", "miss")
    # The model sees another text if the prompt is cut, whatever the question was.
    cut, headers = ask(server, {**body("tell me about the dog please"), "truncate_prompt_tokens": 6})
    assert headers["x-quire-cache"] == "miss" and cut[0]["message"] != first[0]["message"]
    prompt = {"prompt": "What is 2 + 3?\n", "stop": ["\n"], "max_tokens": 60, "temperature": 0}
    ask(server, prompt, "/v1/completions")
    for how in ({"truncate_prompt_tokens": 2}, {"truncate_prompt_tokens": 2, "truncation_side": "right"}):
        assert ask(server, {**prompt, **how}, "/v1/completions")[1]["x-quire-cache"] == "miss", how
    got = stats(server)
    assert got["semantic"]["mode"] == "answer" and got["semantic"]["given"] == 1 and got["hits"] == 1


def test_the_end_while_a_vector_is_on_its_way(start, tiny, monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # freed memory gets other contents
    server = start("serve", MODEL, "--port", "0", "--semantic-cache", tiny, "--embedding-batch-size", "100", "--embedding-batch-wait-ms", "60000")
    ask(server, {"messages": [{"role": "user", "content": "tell me about the dog"}], "max_tokens": 4, "temperature": 0})
    assert server.stop() == 0, server.output()  # the server waits 500 ms for it


def test_vectors_are_kept_beside_the_file(start, tiny, tmp_path):
    file, vectors = tmp_path / "answers.db", tmp_path / "answers.db.vectors"
    flags = ("--port", "0", "--response-cache", f"sqlite:{file}", "--semantic-cache", tiny, "--semantic-threshold", "0.6")
    body = lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 60, "ignore_eos": True, "temperature": 0}
    first = start("serve", MODEL, *flags)
    want, _ = ask(first, body("tell me about the dog please"))
    ask(first, body("what is rain"))
    wait_until(lambda: stats(first)["layers"]["semantic"]["entries"] == 2)
    assert first.stop() == 0, first.output()
    second = start("serve", MODEL, *flags)
    assert stats(second)["layers"]["semantic"]["entries"] == 2 and stats(second)["semantic"]["file_bytes"] > 0
    drafted(second, body("please tell me about the dog"))
    assert ask(second, body("tell me about the dog please"))[0] == want
    second.process.kill()
    second.stop()
    vectors.write_bytes(b"not vectors at all" * 9)
    third = start("serve", MODEL, *flags)
    assert stats(third)["layers"]["semantic"]["entries"] == 0 and len(list(tmp_path.glob("answers.db.vectors.old-*"))) == 1
    ask(third, body("a cat"))
    clear_cache(third)
    assert stats(third)["layers"]["semantic"]["entries"] == 0
    assert third.stop() == 0, third.output()
    assert "not vectors" not in vectors.read_text(errors="replace")


def test_flags_that_do_not_go_together(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "model")
    for flags, says in ((["--semantic-threshold", "0.9"], "--semantic-threshold needs --semantic-cache MODEL"),
                        (["--semantic-mode", "answer"], "--semantic-mode needs --semantic-cache MODEL"),
                        (["--semantic-cache", tiny, "--semantic-mode", "guess"], "must be draft or answer"),
                        (["--semantic-cache", tiny, "--embedding-model", MODEL], "both options must name the same model"),
                        (["--semantic-cache", MODEL], "--semantic-cache: "),
                        (["--semantic-cache", tmp_path / "model"], "--semantic-cache: both models are called model: set --served-model-name"),
                        (["--embedding-model", tmp_path / "model"], "--embedding-model: both models are called model")):
        got = subprocess.run([QUIRE, "serve", MODEL, "--port", "0", *map(str, flags)], capture_output=True, text=True, timeout=300)
        assert got.returncode != 0 and says in got.stderr, (flags, got.stderr)
