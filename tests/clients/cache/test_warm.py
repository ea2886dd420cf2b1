"""quire cache warm --answers: the command repeats earlier requests in the background, and later clients find the
responses in the cache."""

import json
import subprocess

import pytest

from conftest import MODEL, QUIRE
from rig import answered, stats, stream, wait_until
from test_embeddings import model

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


def text(prompt, **more):
    return {"prompt": prompt, "max_tokens": 8, "temperature": 0, **more}


def ask(server, body):
    """The layer that answered, and the reply."""
    path = CHAT if "messages" in body else TEXT
    reply = answered(server, path, body)
    return reply.cache, reply.json()


def lines(tmp_path, *all_lines):
    path = tmp_path / "asked.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in all_lines))
    return path


def warm(server, path, *flags, code=0):
    done = subprocess.run([QUIRE, "cache", "warm", server.url, "--answers", path, *map(str, flags)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in flags else done.stdout + done.stderr


@pytest.fixture
def server(start):
    return start("serve", MODEL, "--port", "0", "--response-cache", "memory", "--max-model-len", "1024")


def test_what_was_asked_is_there(server, tmp_path):
    often, once, long = chat("Hello"), text("Once upon a time"), text("a b c " * 30, max_tokens=20)
    path = lines(tmp_path, once, {"path": CHAT, "body": often, "count": 7}, "", {**often, "stream": True, "user": "somebody"}, long,
                 {"body": {**text("x"), "max_tokens": -5}})
    got = warm(server, path, "--json")
    assert (got["requests"], got["sent"], got["kept"], got["refused"], got["ended"]) == (4, 3, 0, 1, "done")
    assert got["expected"]["requests"] == 4 and got["expected"]["asked"] == 11
    assert got["tokens_saved"] > got["prompt_tokens"] + got["completion_tokens"] > 30
    # The command computes all of them in the background, and no client's latency includes them.
    assert server.metric("quire:background_tokens_total") == got["prompt_tokens"] + got["completion_tokens"]
    assert server.metric("vllm:time_to_first_token_seconds_count") == 0
    for body in (often, once, long, {**often, "stream": False}):
        layer, reply = ask(server, body)
        assert layer == "exact", body
        assert reply["choices"] == ask(server, {**body, "use_cache": False})[1]["choices"]
    again = warm(server, path)
    assert "3 requests, 3 of them already cached: 0 prompt and 0 generated tokens" in again and "1 were rejected, the first: " in again


def test_the_most_valuable_come_first_within_a_budget(server, tmp_path):
    asked = [{"body": text(f"number {i}"), "count": i + 1} for i in range(6)]
    got = warm(server, lines(tmp_path, *asked), "--json", "--budget-tokens", 20)
    assert got["ended"] == "budget_tokens" and 20 <= got["prompt_tokens"] + got["completion_tokens"] < 50
    assert 0 < got["sent"] < 4
    for i in range(6):
        assert ask(server, asked[i]["body"])[0] == ("exact" if i >= 6 - got["sent"] else "miss")


def test_it_waits_while_others_ask(server, tmp_path):
    """It waits while an unread stream runs; the time budget ends it."""
    with stream(server, TEXT, text("a story", max_tokens=900, ignore_eos=True, stream=True)) as unread:
        unread.readline()
        live = stats(server)["live_requests"]
        got = warm(server, lines(tmp_path, text("quiet")), "--json", "--budget-seconds", 0.3)
        still = stats(server)["live_requests"]
    if live and still:  # the stream ran all the time
        assert (got["sent"], got["ended"]) == (0, "budget_seconds") and got["paused_seconds"] > 0.05
    got = warm(server, lines(tmp_path, text("quiet")), "--json")
    assert (got["sent"], got["ended"]) == (1, "done")


def test_a_recording(server, start, tmp_path):
    recorded = start("serve", MODEL, "--port", "0", "--max-model-len", "1024", "--record", tmp_path / "day.rec")
    asked = [chat("Hello"), text("Once upon a time", n=2, logprobs=2), text("never", ignore_eos=True), text("three", stop_token_ids=[5]),
             chat("no end", max_tokens=None), text("seeded", temperature=0.7, seed=3, top_p=0.9)]
    for body in (*asked, asked[0], asked[0]):
        ask(recorded, body)
    assert recorded.stop() == 0
    got = warm(server, tmp_path / "day.rec", "--json")
    assert (got["requests"], got["sent"], got["refused"], got["expected"]["asked"]) == (6, 6, 0, 8)
    for body in asked:
        assert ask(server, body)[0] == "exact", body


def test_every_layer(start, tmp_path, tmp_path_factory):
    """The file of responses, the vectors of questions and the KV blocks have it, too."""
    tiny = model(tmp_path_factory.mktemp("warm") / "tiny", "bert_mean")
    serve = lambda: start("serve", MODEL, "--port", "0", "--max-model-len", "1024", "--response-cache", f"sqlite:{tmp_path}/answers.db",
                          "--semantic-cache", tiny)
    first = serve()
    body = text("tell me a long story about a small house " * 6, max_tokens=20)
    warm(first, lines(tmp_path, body), "--json")
    wait_until(lambda: stats(first)["layers"]["semantic"]["entries"] == 1)
    layer, reply = ask(first, {**body, "use_cache": False})
    assert layer == "off" and reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 16
    first.stop()
    second = serve()
    wait_until(lambda: second.metric("quire:response_cache_store_up") == 1)
    wait_until(lambda: ask(second, {**body, "cache": {"no_store": True}})[0] == "exact")  # a busy machine may look it up too late


def test_a_pipe_is_read_once(server, tmp_path):
    """As from a shell's <(zcat day.jsonl.gz)."""
    done = subprocess.run(["bash", "-c", f"{QUIRE} cache warm {server.url} --json --answers <(cat {lines(tmp_path, text('piped'))})"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and json.loads(done.stdout)["sent"] == 1, done
    assert ask(server, text("piped"))[0] == "exact"


def test_errors(server, start, tmp_path):
    for wrong, named in (("{}", 'line 1: must have one of "messages" and "prompt"'), ('{"prompt": 5}', "prompt"), ('{"messages": {}}', "messages"),
                         ('{"prompt": "x", "messages": []}', "one of"), ('{"body": {"prompt": "x"}, "path": "/v1/chat/completions"}', "path"),
                         ('{"body": {"prompt": "x"}, "count": 0}', "count"), ('{"body": {"prompt": "x"}, "value": 1}', '"value"'),
                         ('{"body": 7}', "body"), ("[1]", "object"), ("", "has no requests"), ('{"prompt": "x"', "line 1"),
                         ("QUIREREC and no more", "")):
        said = warm(server, lines(tmp_path, wrong), code=1)
        assert named in said and "asked.jsonl" in said, said
    assert "cannot be opened" in warm(server, tmp_path / "none", code=1)
    assert "the server rejected all of them" in warm(server, lines(tmp_path, text("x", max_tokens=-1)), code=1)
    plain = start("serve", MODEL, "--port", "0")
    assert "--response-cache" in warm(plain, lines(tmp_path, text("x")), code=1)
    both = subprocess.run([QUIRE, "cache", "warm", server.url, "--answers", "a", "--file", "b"], capture_output=True, text=True, timeout=300)
    assert both.returncode == 2 and "--file PROMPTS.jsonl or --answers FILE" in both.stderr
