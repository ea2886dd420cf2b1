"""The response cache: a repeated request gets the same response, and no other request gets it."""

import http.client
import json
import pathlib
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time

from harness import Server, post_bytes, read_all, run_tests, wait_until

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
CACHE = "x-quire-cache"


def without_names(data):
    """Bytes of a reply without the parts that differ each time: ids, times, and the prefix cache's count."""
    return re.sub(rb'"(id|created|created_at|completed_at|cached_tokens|response_id|item_id)":("[^"]*"|\d+)', b"", data)


def ask(s, path, body, headers=None):
    status, got, data = s.request("POST", path, body, headers)
    return status, got.get(CACHE), without_names(data)


def random_request(r):
    words = ["one", "two", "three", "four", "hello there", "and again", "zebra", "42"]
    text = " ".join(r.choice(words) for _ in range(r.randint(1, 12)))
    body = {"max_tokens": r.randint(1, 20), "stream": r.random() < 0.4, "temperature": r.choice([0, 0, 0.7]), "seed": r.randint(0, 3)}
    path = r.choice([CHAT, TEXT, TEXT, MESSAGES, RESPONSES])
    if path in (CHAT, MESSAGES):
        body["messages"] = [{"role": "user", "content": text}]
    elif path == RESPONSES:
        body["input"] = text
        body["max_output_tokens"] = body.pop("max_tokens")
    else:
        body["prompt"] = [text, text + " more", text] if r.random() < 0.2 else text
        body["echo"] = r.random() < 0.3
        if r.random() < 0.4:
            body["logprobs"] = r.randint(0, 3)
    if path in (CHAT, TEXT):
        body["n"] = r.randint(1, 3)
        if r.random() < 0.4:
            body["stop"] = r.choice([" two", "three", ["four", " again"]])
        if path == CHAT and r.random() < 0.4:
            body.update(logprobs=True, top_logprobs=r.randint(0, 3))
    return path, body


def by_choice(data):
    index = lambda event: int((re.search(rb'"index":(\d+)', event) or [0, 999])[1])
    return b"\n\n".join(sorted(data.split(b"\n\n"), key=index))


def test_all_layers_on_equals_all_off():
    r = random.Random(19)
    hits = 0
    for _ in range(120):
        path, body = random_request(r)
        status, header, plain = ask(bare, path, body)
        assert header is None and status in (200, 400), plain
        for _ in range(2):
            got_status, header, got = ask(cached, path, body)
            assert got_status == status and by_choice(got) == by_choice(plain), (body, plain, got)
            hits += header == "exact"
        assert header == "exact" or status != 200, body
    assert hits > 60


def test_a_file_on_equals_all_off():
    """Servers stop, are killed and find a spoiled file; memory holds only two responses."""
    r = random.Random(20)
    requests = [random_request(r) for _ in range(40)]
    plain = [ask(bare, path, body) for path, body in requests]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "answers.db")
        for round in range(4):
            hits = []
            s = Server("--cache-entries", 2, "--cache-file", file)
            for i, ((path, body), (status, _, want)) in enumerate(zip(requests, plain)):
                if round == 0 and i % 2:
                    continue
                got_status, header, got = ask(s, path, body)
                assert got_status == status and by_choice(got) == by_choice(want), (round, body, want, got)
                hits.append(header == "exact" or status != 200)
            if round in (1, 2):  # a clean stop loses nothing; a response that is not served within 50 ms is computed
                assert hits[::2].count(False) <= s.get("/cache/stats")[1]["store"]["away"], hits
            if round == 1:
                s.process.kill()
                s.process.wait()
                s.process.stdout.close()
            else:
                s.__exit__(None)
            if round == 2:
                data = bytearray(file.read_bytes())
                data[4096:] = r.randbytes(len(data) - 4096)
                file.write_bytes(data)
        assert len(list(file.parent.glob("answers.db.old-*"))) > 0


def test_headers_say_where_it_came_from():
    body = {"prompt": "where does it come from", "max_tokens": 5, "temperature": 0}
    for stream in (False, True):
        first = cached.request("POST", TEXT, {**body, "stream": stream, "cache": {"namespace": f"h{stream}"}})
        again = cached.request("POST", TEXT, {**body, "stream": stream, "cache": {"namespace": f"h{stream}"}})
        assert first[1][CACHE] == "miss" and first[1]["x-quire-cache-age"] is None
        assert again[1][CACHE] == "exact" and int(again[1]["x-quire-cache-age"]) in (0, 1)
        assert again[1]["x-quire-cache-unseeded"] is None
    # A response cached for a stream also serves a request without streaming.
    assert ask(cached, TEXT, {**body, "cache": {"namespace": "hTrue"}})[1] == "exact"


def test_a_request_says_what_it_wants():
    def header(headers=None, **more):
        return ask(cached, TEXT, {"prompt": "say what you want", "max_tokens": 4, "temperature": 0, **more}, headers)[1]

    assert header(cache={"no_store": True}) == "miss" and header(headers={"Cache-Control": "no-store"}) == "miss"
    assert header(use_cache=False) == "off" and header(cache={"no_cache": True, "no_store": True}) == "off"
    assert header() == "miss" and header() == "exact" and header(use_cache=True, cache=None) == "exact"
    assert header(cache={"no_cache": True}) == "miss" and header(headers={"cache-control": "max-stale=3, No-Cache"}) == "miss"
    assert header(headers={"Cache-Control": "max-age=100"}) == "exact" and header(headers={"Cache-Control": "max-age=0"}) == "miss"
    assert header(cache={"namespace": "mine"}) == "miss" and header(cache={"namespace": "mine"}) == "exact"
    assert header(cache_salt="mine") == "miss" and header(cache_salt="mine") == "exact"
    assert header(cache={"no_store": True}) == "exact"
    for wrong in (dict(cache=1), dict(cache={"ttl": 0}), dict(cache={"ttl": 1e9}), dict(cache={"namespace": ""}), dict(cache={"namespace": 3}),
                  dict(cache={"no_cache": "yes"}), dict(use_cache=1), dict(cache={"namespace": "x" * 257})):
        status, reply = cached.post(TEXT, {"prompt": "x", **wrong})
        assert status == 400 and reply["error"]["param"].startswith(next(iter(wrong))), reply


def test_cache_control_in_several_lines():
    for i, (second, want) in enumerate((("no-cache", b"miss"), ("no-store", b"exact"), ("max-age=0", b"miss"), ("private", b"exact"))):
        body = {"prompt": "in two lines", "max_tokens": 4, "temperature": 0, "cache_salt": f"lines {i}"}
        lines = f"Cache-Control: max-age=60\r\nCache-Control: {second}\r\nConnection: close\r\n"
        first = cached.raw(post_bytes(TEXT, body, lines))
        assert b"x-quire-cache: miss" in first, first
        if second != "no-store":
            assert b"x-quire-cache: " + want in cached.raw(post_bytes(TEXT, body, lines))
        else:  # the first response was not cached
            assert ask(cached, TEXT, body)[1] == "miss"


def test_time_to_live():
    def header(**cache):
        return ask(cached, TEXT, {"prompt": "not for long", "max_tokens": 4, "temperature": 0, "cache": {"namespace": "ttl", **cache}})[1]
    assert header(ttl=1) == "miss"
    time.sleep(1.1)
    assert header() == "miss" and header() == "exact"


def test_what_moves_bits_is_another_question():
    base = {"prompt": "another question", "max_tokens": 6, "temperature": 0.5, "seed": 1}
    assert ask(cached, TEXT, base)[1] == "miss"
    for moves in ({"seed": 2}, {"max_tokens": 7}, {"temperature": 0.25}, {"top_p": 0.5}, {"top_k": 3}, {"min_p": 0.1}, {"n": 2}, {"logprobs": 0},
                  {"presence_penalty": 1}, {"frequency_penalty": 1}, {"repetition_penalty": 1.5}, {"logit_bias": {"5": 1}}, {"stop": "zzz"},
                  {"min_tokens": 1}, {"ignore_eos": True}, {"stop_token_ids": [7]}, {"bad_words": ["zzz"]}, {"allowed_token_ids": [1, 2, 3]}, {"prompt": "x"}):
        assert ask(cached, TEXT, {**base, **moves})[1] == "miss", moves
    for same in ({"user": "u"}, {"top_p": 1}, {"n": 1}, {"priority": 3}, {"stream": True}, {"request_id": "r-1"}, {"stop": []}, {"max_drafts": 2},
                 {"quire_deadline_ms": 50000}, {"presence_penalty": 0}, {"prediction": {"type": "content", "content": "more"}}):
        assert ask(cached, TEXT, {**base, **same})[1] == "exact", same


def test_answers_drawn_without_a_seed():
    body = {"prompt": "draw", "max_tokens": 4, "temperature": 1}
    assert [ask(cached, TEXT, body)[1] for _ in range(2)] == ["miss", "miss"]
    with Server("--cache-entries", 8, "--cache-unseeded") as s:
        s.request("POST", TEXT, body)
        _, headers, _ = s.request("POST", TEXT, body)
        assert headers[CACHE] == "exact" and headers["x-quire-cache-unseeded"] == "true"
        s.request("POST", TEXT, {**body, "seed": 1})
        assert s.request("POST", TEXT, {**body, "seed": 1})[1]["x-quire-cache-unseeded"] is None


def test_answers_that_the_context_ends():
    with Server("--cache-entries", 8, "--max-model-len", 30, "--mode", "count") as s:
        chat = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "ignore_eos": True}
        assert [ask(s, CHAT, chat)[1] for _ in range(2)] == ["miss", "miss"]
        assert [ask(s, CHAT, {**chat, "max_tokens": 3})[1] for _ in range(2)] == ["miss", "exact"]
        assert [ask(s, TEXT, {"prompt": "hi", "temperature": 0})[1] for _ in range(2)] == ["miss", "exact"]


def test_keys_do_not_share():
    body = {"prompt": "whose is it", "max_tokens": 4, "temperature": 0}
    a, b = ({"Authorization": f"Bearer {key}"} for key in ("a", "b"))
    for share in ((), ("--cache-share",)):
        with Server("--cache-entries", 8, "--api-key", "a", "--api-key", "b", *share) as s:
            assert ask(s, TEXT, body, a)[1] == "miss" and ask(s, TEXT, body, a)[1] == "exact"
            assert ask(s, TEXT, body, b)[1] == ("exact" if share else "miss")


def test_least_recently_given_goes_first():
    with Server("--cache-entries", 2) as s:
        header = lambda prompt: ask(s, TEXT, {"prompt": prompt, "max_tokens": 4, "temperature": 0})[1]
        assert [header(p) for p in "abaca"] == ["miss", "miss", "exact", "miss", "exact"]
        assert header("b") == "miss" and header("c") == "miss"


def test_the_same_words_are_not_rendered_again():
    def reply(body, headers=None):
        status, got, data = cached.request("POST", CHAT, body, headers)
        assert status == 200, data
        return got[CACHE], got["x-request-id"], data

    def metric(name):
        return cached.metric(name)

    body = {"messages": [{"role": "user", "content": "in the same words"}], "max_tokens": 9, "temperature": 0, "n": 2, "logprobs": True}
    first = reply(body)
    before = [metric(name) for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
                                        "vllm:e2e_request_latency_seconds_count", "quire:response_cache_hits_total")]
    spelled = json.dumps(dict(reversed(body.items())), indent=3).encode()
    again = reply(spelled)
    after = [metric(name) for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
                                       "vllm:e2e_request_latency_seconds_count", "quire:response_cache_hits_total")]
    usage = json.loads(first[2])["usage"]
    assert [b - a for a, b in zip(before, after)] == [usage["prompt_tokens"], usage["completion_tokens"], 2, 1, 1]
    assert (first[0], again[0]) == ("miss", "exact") and without_names(first[2]) == without_names(again[2])
    assert first[1] != again[1] and all(json.loads(r[2])["id"] == "chatcmpl-" + r[1] for r in (first, again))
    assert reply(body, {"x-request-id": "mine"})[2].startswith(b'{"id":"chatcmpl-mine","object":"chat.completion","created":')
    # A field that concerns only this request takes the slow path to the same cached response.
    for more in ({"user": "u"}, {"request_id": "r1"}, {"quire_trace": True}, {"use_cache": True}, {"seed": None}, {"priority": 0}, {"stream": False}):
        got = reply({**body, **more})
        assert got[0] == "exact" and json.loads(got[2])["choices"] == json.loads(first[2])["choices"], more
    assert json.loads(reply({**body, "request_id": "r1"})[2])["id"] == "chatcmpl-r1" and "quire_trace" in json.loads(reply({**body, "quire_trace": True})[2])
    assert reply({**body, "use_cache": False})[0] == "off" and reply({**body, "stream": True})[2].startswith(b"data: ")
    for wrong in (spelled[:-1], spelled + b"x", spelled.replace(b"{", b'{"n":2,', 1)):
        assert cached.request("POST", CHAT, wrong)[0] == 400
    assert cached.request("POST", TEXT, spelled)[0] == 400  # a field of another route


def test_streams_in_the_same_words():
    for path, body in ((CHAT, {"messages": [{"role": "user", "content": "stream me again"}], "n": 2, "logprobs": True, "stream_options": {"include_usage": True}}),
                       (TEXT, {"prompt": 'a "quote", a \\ and \x01', "echo": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})):
        body = {**body, "max_tokens": 7, "temperature": 0, "stream": True}
        _, headers, first = cached.request("POST", path, body)
        before = cached.metric("vllm:generation_tokens_total"), cached.get("/cache/stats")[1]["hits"]
        _, again_headers, again = cached.request("POST", path, json.dumps(body, indent=2).encode())
        after = cached.metric("vllm:generation_tokens_total"), cached.get("/cache/stats")[1]["hits"]
        events = [json.loads(e[6:]) for e in again.decode().split("\n\n") if e and e != "data: [DONE]"]
        assert (headers[CACHE], again_headers[CACHE]) == ("miss", "exact") and without_names(first) == without_names(again)
        assert again_headers["Content-Type"] == "text/event-stream" and again_headers["Cache-Control"] == "no-cache"
        assert {e["id"].split("-")[1] for e in events} == {again_headers["x-request-id"]} and again_headers["x-request-id"].encode() not in first
        assert after[0] - before[0] == events[-1]["usage"]["completion_tokens"] and after[1] - before[1] == 1
        whole = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
        assert json.loads(cached.request("POST", path, whole)[2])["usage"]["total_tokens"] == events[-1]["usage"]["total_tokens"]


def test_limits_hold_for_what_is_kept():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump([{"name": "a", "key": "a", "requests_per_minute": 4}], f)
        f.flush()
        with Server("--cache-entries", 8, "--tenants", f.name) as s:
            body = {"prompt": "limited", "max_tokens": 4, "temperature": 0}
            got = [s.request("POST", TEXT, body, {"Authorization": "Bearer a"}) for _ in range(5)]
            assert [g[0] for g in got] == [200] * 4 + [429] and [g[1][CACHE] for g in got[:4]] == ["miss"] + ["exact"] * 3
            assert got[2][1]["x-ratelimit-remaining-requests"] == "1"


def test_counters_and_clearing():
    with Server("--cache-entries", 8, "--api-key", "a") as s:
        key = {"Authorization": "Bearer a"}
        body = {"prompt": "count me", "max_tokens": 4, "temperature": 0}
        stats = lambda: s.get("/cache/stats", headers=key)[1]
        metric = lambda name: [float(line.rsplit(" ", 1)[1]) for line in s.request("GET", "/metrics", headers=key)[2].decode().splitlines()
                               if line.startswith(name)][0]
        for _ in range(3):
            s.request("POST", TEXT, body, key)
        s.request("POST", TEXT, {**body, "use_cache": False}, key)
        got = stats()
        usage = s.post(TEXT, body, headers=key)[1]["usage"]
        assert (got["total_entries"], got["valid_entries"], got["expired_entries"]) == (1, 1, 0), got
        assert (got["hits"], got["misses"], got["stored"]) == (2, 1, 1) and abs(got["hit_rate"] - 2 / 3) < 1e-9, got
        assert got["tokens_saved"] == 2 * usage["completion_tokens"] and got["prompt_tokens_saved"] == 2 * usage["prompt_tokens"]
        assert got["layers"]["memory"]["entries"] == 1 and got["layers"]["memory"]["bytes"] == got["bytes"] > 100
        assert metric('quire:response_cache_hits_total{model_name="fake",engine="0",layer="memory"}') == 3
        assert metric("quire:response_cache_lookup_seconds_count") == 4 and metric("quire:response_cache_entries") == 1
        assert s.request("POST", "/cache/clear")[0] == 401 and s.get("/cache/stats")[0] == 401
        assert s.request("POST", "/cache/clear", headers=key)[0] == 403  # this key is not an admin's
    assert cached.post("/cache/clear", None)[1]["cleared"] is True
    got = cached.get("/cache/stats")[1]
    assert got["total_entries"] == 0 and got["bytes"] == 0
    for method, path in (("GET", "/cache/stats"), ("POST", "/cache/clear")):
        status, _, data = bare.request(method, path)
        assert status == 404 and b"--response-cache" in data


def test_what_is_given_is_computed_again():
    with Server("--cache-entries", 100, "--cache-verify", 0.5) as s:
        r = random.Random(5)
        requests = [random_request(r) for _ in range(30)]
        for path, body in requests * 3:
            s.request("POST", path, body)
        stats = lambda: s.get("/cache/stats")[1]
        assert wait_until(lambda: stats()["verified"] >= 5), stats()  # four run at once, and the others are left alone
        assert stats()["differing"] == 0, stats()


def test_answers_are_carried_to_another_server():
    body = {"prompt": "carry me", "max_tokens": 6, "temperature": 0, "logprobs": 2}
    with Server("--cache-entries", 8) as one, Server("--cache-entries", 8) as other:
        want = one.request("POST", TEXT, body)
        one.request("POST", TEXT, {**body, "prompt": "me too"})
        status, page = one.post("/cache/entries", {"answers": True})
        assert status == 200 and len(page["entries"]) == 2 and page["next"] is None
        assert "answer" not in one.post("/cache/entries", {})[1]["entries"][0]
        entries = page["entries"]
        spoiled = {**entries[0], "answer": "A" + entries[0]["answer"][1:]}
        old = {**entries[0], "expires_at": 5}
        take = lambda **more: other.post("/cache/import", {"identity": page["identity"], "entries": entries, **more})
        assert take(identity="00")[0] == 400 and take(entries=3)[0] == 400
        assert take(entries=[spoiled, old, 3, {}, {"expires_at": 1 << 40}, {"expires_at": 1 << 40, "answer": "?"}])[1] == {"imported": 0, "refused": 6}
        assert take()[1] == {"imported": 2, "refused": 0}
        got = other.request("POST", TEXT, body)
        assert got[1][CACHE] == "exact" and without_names(got[2]) == without_names(want[2])


def test_who_ask_the_same_at_once_are_computed_once():
    with Server("--cache-entries", 8, "--interval-us", 500000) as s:  # the first takes 3 s, and the others come meanwhile
        body = {"prompt": "one two three four five six", "max_tokens": 6, "temperature": 0, "stop": "nothing of it"}
        replies = []

        def one(i):
            if i % 5 == 4:  # leaves in the middle
                with s.connect() as c:
                    c.sendall(post_bytes(TEXT, {**body, "stream": True}))
                    c.recv(100)
            else:
                replies.append((i % 2, s.request("POST", TEXT, {**body, "stream": i % 2 == 1})))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(20)]
        for t in threads:
            t.start()
            time.sleep(0.005)
        for t in threads:
            t.join()
        assert len(replies) == 16 and all(r[0] == 200 for _, r in replies)
        assert len({without_names(r[2]) for stream, r in replies if stream}) == 1
        assert len({without_names(r[2]) for stream, r in replies if not stream}) == 1
        got = s.get("/cache/stats")[1]
        assert got["misses"] == 1 and got["joined"] >= 10 and got["hits"] == 19, got
        assert s.idle()


def test_the_pace():
    with Server("--cache-entries", 8, "--interval-us", 50000, "--replay-pace") as s:
        body = {"prompt": "one two three four five six", "max_tokens": 5, "temperature": 0}
        first = s.request("POST", TEXT, {**body, "stream": True})
        began = time.monotonic()
        again = s.request("POST", TEXT, {**body, "stream": True})
        assert again[1][CACHE] == "exact" and time.monotonic() - began > 0.15  # five tokens at 50 ms
        assert without_names(first[2]) == without_names(again[2])
        assert ask(s, TEXT, body)[1] == "exact"


def test_another_model_that_comes_back_ends_live_requests():
    """While a restarted engine has not greeted, cached responses are served. If it then has the identity of another
    model, a response that is still being sent ends with an error; with the same identity it goes on."""
    body = {"prompt": "one two three four", "max_tokens": 16, "temperature": 0, "ignore_eos": True, "stream": True}
    for is_another in (False, True):
        more = ["--replaces-weights"] if is_another else []
        with Server("--cache-entries", 8, "--interval-us", 200000, "--replay-pace", "--late", *more) as s:
            first = s.request("POST", TEXT, body)
            s.process.send_signal(signal.SIGUSR2)
            assert s.process.stdout.readline() == "attached\n"
            assert s.get("/health")[0] == 503
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
            c.request("POST", TEXT, json.dumps(body))
            reply = c.getresponse()
            assert reply.status == 200 and reply.headers[CACHE] == "exact"
            data = b"".join(reply.readline() for _ in range(4))  # two tokens, and 14 more in 3 s, at the pace of the first
            s.process.send_signal(signal.SIGUSR2)  # the engine greets
            data += reply.read()
            c.close()
            assert s.process.stdout.readline().startswith("listening on ")
            if is_another:
                *tokens, last, done, end = data.decode().split("\n\n")
                assert 1 < len(tokens) < 16 and (done, end) == ("data: [DONE]", ""), data
                error = json.loads(last.removeprefix("data: "))["error"]
                assert error["code"] == "engine_unavailable" and error["message"] == "the engine was replaced", error
            else:
                assert without_names(data) == without_names(first[2])
            assert s.idle()
            assert ask(s, TEXT, {**body, "stream": False})[:2] == (200, "miss" if is_another else "exact")


def test_an_engine_that_is_not_invariant_has_nothing_kept():
    """The engine's bits depend on other requests: none of its responses may be served again."""
    with Server("--cache-entries", 8, "--invariance-off") as s:
        body = {"prompt": "x", "max_tokens": 5, "temperature": 0}
        assert [s.request("POST", TEXT, body)[1][CACHE] for _ in range(3)] == ["off"] * 3


def test_a_slow_reader_is_not_cut_off():
    """20,000 events of a cached response, for a client that reads nothing at first."""
    with Server("--cache-entries", 8, "--mode", "count", "--tokens-per-step", 64, "--max-model-len", 40000, "--interval-us", 0) as s:
        body = {"prompt": "x", "max_tokens": 20000, "temperature": 0, "ignore_eos": True}
        assert s.request("POST", TEXT, body)[1][CACHE] == "miss"
        with s.connect() as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            c.sendall(post_bytes(TEXT, {**body, "stream": True}, "Connection: close\r\n"))
            time.sleep(0.3)
            data = read_all(c)
        assert b"x-quire-cache: exact" in data[:2000] and data.count(b"data: ") >= 20001 and b"data: [DONE]" in data[-100:]


with Server() as bare, Server("--cache-entries", 500) as cached:
    run_tests(sys.modules[__name__])
