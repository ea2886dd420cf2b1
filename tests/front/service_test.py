"""Permissions, limits and replies: tenants, limits, deadlines, traces, pins, commands, metrics."""

import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import time

from harness import Server, post_bytes, read_all, run_tests, wait_until

COMPLETIONS, CHATS, PINS, POLICY = "/v1/completions", "/v1/chat/completions", "/v1/cache/pins", "/v1/admin/scheduling-policy"
WORDS = "one two three four five six seven eight nine ten " * 8
CHAT = [{"role": "user", "content": "Hello there"}]

server = Server()


def tenants_file(*tenants):
    f = tempfile.NamedTemporaryFile("w", suffix=".json")
    json.dump(tenants, f)
    f.flush()
    return f


def key(name):
    return {"Authorization": f"Bearer {name}"}


def ask(s, name, path=COMPLETIONS, method="POST", headers=None, **body):
    """Returns (status, headers, reply) with that key; None: without a key."""
    if path == COMPLETIONS:
        body = {"prompt": "Hello there", "max_tokens": 4, **body}
    status, got, data = s.request(method, path, body if method == "POST" else None,
                                  {**(key(name) if name else {}), **(headers or {})})
    return status, got, json.loads(data)


# ---- keys and limits --------------------------------------------------------------------------------------------


def test_the_key_is_the_tenant():
    sha = hashlib.sha256(b"secret-b").hexdigest()
    with tenants_file({"name": "a", "key": "secret-a"}, {"name": "b", "key_sha256": sha}) as f, Server(
            "--tenants", f.name, "--tenant-metrics") as s:
        assert ask(s, "secret-a")[0] == 200 and ask(s, "secret-b")[0] == 200 and ask(s, "secret-b")[0] == 200
        for wrong in (None, "secret-c", "", "secret-", sha):
            status, headers, reply = ask(s, wrong)
            assert status == 401 and reply["error"]["code"] == "invalid_api_key" and headers["WWW-Authenticate"]
        # No field of a request determines its tenant.
        assert ask(s, "secret-a", user="b", tenant="b", tenant_index=2)[0] == 200
        text = s.request("GET", "/metrics", headers=key("secret-a"))[2].decode()
        tokens = dict(re.findall(r'quire:tenant_generation_tokens_total\{.*tenant="(\w+)"\} (\d+)', text))
        assert tokens == {"default": "0", "a": "6", "b": "6"}, tokens


def test_the_class_is_the_key_s():
    with tenants_file({"name": "a", "key": "ka", "class": 5}, {"name": "b", "key": "kb"}) as f, Server("--tenants", f.name) as s:
        for name in ("ka", "kb", "kb"):
            assert ask(s, name, **{"class": 1, "class_index": 2})[0] == 200
        text = s.request("GET", "/metrics", headers=key("ka"))[2].decode()
        # classes, as the fake engine counts them
        assert 'quire:prefix_cache_host_hits_total{model_name="fake",engine="0"} 5' in text


def test_requests_a_minute():
    with tenants_file({"name": "a", "key": "ka", "requests_per_minute": 3}, {"name": "b", "key": "kb"}) as f, Server(
            "--tenants", f.name, "--tenant-metrics") as s:
        for left in (2, 1, 0):
            status, headers, _ = ask(s, "ka", stream=False)
            assert status == 200 and headers["x-ratelimit-limit-requests"] == "3"
            assert headers["x-ratelimit-remaining-requests"] == str(left)
            assert re.fullmatch(r"(1m)?[0-9.]+m?s", headers["x-ratelimit-reset-requests"]), dict(headers)
            assert "x-ratelimit-limit-tokens" not in headers
        for path, body in ((COMPLETIONS, {}), (COMPLETIONS, {"stream": True}), (PINS, {"prompt": "x"})):
            status, headers, reply = ask(s, "ka", path, **body)
            assert status == 429 and reply["error"]["type"] == "rate_limit_error", reply
            assert reply["error"]["code"] == "rate_limit_exceeded" and "3 requests a minute" in reply["error"]["message"]
            assert 15 <= int(headers["Retry-After"]) <= 20 and 15000 < int(headers["retry-after-ms"]) <= 20000
            assert headers["x-ratelimit-remaining-requests"] == "0"
        assert ask(s, "kb")[0] == 200 and not [h for h in ask(s, "kb")[1] if h.startswith("x-ratelimit")]
        # routes that compute nothing are not counted
        assert s.request("GET", "/v1/models", headers=key("ka"))[0] == 200
        text = s.request("GET", "/metrics", headers=key("ka"))[2].decode()
        assert 'quire:tenant_rate_limited_total{model_name="fake",engine="0",tenant="a"} 3' in text
        assert 'quire:tenant_rate_limited_total{model_name="fake",engine="0",tenant="b"} 0' in text


def test_a_limit_comes_back():
    with tenants_file({"name": "a", "key": "ka", "requests_per_minute": 60}) as f, Server("--tenants", f.name) as s:
        for _ in range(10):
            for _ in range(1000):
                status, headers, _ = ask(s, "ka", max_tokens=1)
                if status == 429:
                    break
            wait = int(headers["retry-after-ms"])
            assert status == 429 and 0 < wait <= 1000 and headers["Retry-After"] == "1"
            time.sleep(wait / 1000)
            assert ask(s, "ka")[0] == 200
            if wait > 300:  # a short one could have passed by itself
                return
        assert False, "never a wait worth the name"


def test_tokens_a_minute():
    with tenants_file({"name": "a", "key": "ka", "tokens_per_minute": 60}) as f, Server("--tenants", f.name) as s:
        # 2 for the prompt at once, then the answer as it arrives.
        status, headers, reply = ask(s, "ka", max_tokens=30, ignore_eos=True)
        assert status == 200 and reply["usage"]["total_tokens"] == 32
        # An invalid request also counts, and its reply has the rate-limit headers.
        for wrong in ({"temperature": 9}, {"headers": {"x-quire-trace": "2"}}):
            told = ask(s, "ka", **wrong)
            assert told[0] == 400 and "x-ratelimit-remaining-tokens" in told[1], wrong
        assert 28 <= int(headers["x-ratelimit-remaining-tokens"]) <= 30 and headers["x-ratelimit-limit-tokens"] == "60"
        # An answer that has begun is finished, on credit.
        assert ask(s, "ka", max_tokens=100, ignore_eos=True)[2]["usage"]["completion_tokens"] == 100
        status, headers, reply = ask(s, "ka")
        assert status == 429 and "60 tokens a minute" in reply["error"]["message"], reply
        assert 60 <= int(headers["Retry-After"]) <= 80 and headers["x-ratelimit-remaining-tokens"] == "0"
        assert re.fullmatch(r"2m[0-9.]+s", headers["x-ratelimit-reset-tokens"])
    with tenants_file({"name": "a", "key": "ka", "tokens_per_minute": 60}) as f, Server("--tenants", f.name) as s:
        # A full bucket accepts a prompt longer than the limit, because it could never be accepted otherwise.
        assert ask(s, "ka", prompt=WORDS, max_tokens=1)[0] == 200
        assert ask(s, "ka", prompt="x", max_tokens=1)[0] == 429
    with tenants_file({"name": "a", "key": "ka", "tokens_per_minute": 60}) as f, Server("--tenants", f.name) as s:
        assert ask(s, "ka", prompt=["Hello there"] * 10, max_tokens=1)[0] == 200  # 20 and 10
        assert ask(s, "ka", prompt=["Hello there"] * 20, max_tokens=1)[0] == 429
        status, headers, data = s.request("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 2, "stream": True}, key("ka"))
        assert status == 200 and 25 <= int(headers["x-ratelimit-remaining-tokens"]) <= 30 and data.endswith(b"[DONE]\n\n")


def test_requests_at_once():
    with tenants_file({"name": "a", "key": "ka", "max_concurrent": 2}, {"name": "b", "key": "kb"}) as f, Server(
            "--tenants", f.name, "--interval-us", 20000) as s:
        holders = [s.connect(), s.connect()]
        for holder in holders:
            holder.sendall(post_bytes(COMPLETIONS, {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True},
                                      "Authorization: Bearer ka\r\n"))
            assert holder.recv(4096).startswith(b"HTTP/1.1 200")
        status, headers, reply = ask(s, "ka")
        assert status == 429 and headers["Retry-After"] == "1" and "2 requests at once" in reply["error"]["message"]
        assert ask(s, "kb")[0] == 200
        holders[0].close()
        assert wait_until(lambda: ask(s, "ka", max_tokens=1)[0] == 200)
        # A request that fails before it reaches the engine also frees its slot.
        for _ in range(5):
            assert ask(s, "ka", temperature=9)[0] == 400 and ask(s, "ka", headers={"x-quire-trace": "2"})[0] == 400
            assert ask(s, "ka", PINS)[0] == 400
        assert ask(s, "ka", max_tokens=1)[0] == 200
        holders[1].close()


def test_priorities_a_key_may_have():
    with tenants_file({"name": "a", "key": "ka", "priority_min": 5, "priority_max": 9}) as f, Server("--tenants", f.name) as s:
        assert ask(s, "ka")[0] == 200 and ask(s, "ka", priority=5)[0] == 200 and ask(s, "ka", priority=9)[0] == 200
        for priority in (4, 10, 0, -2**31):
            status, _, reply = ask(s, "ka", priority=priority)
            assert status == 400 and reply["error"]["param"] == "priority" and "5 to 9" in reply["error"]["message"]


def test_the_file_is_read_again():
    f = tempfile.NamedTemporaryFile("w+", suffix=".json")

    def write(*tenants, text=None):
        f.seek(0)
        f.truncate()
        f.write(text if text is not None else json.dumps(tenants))
        f.flush()

    write({"name": "a", "key": "ka", "requests_per_minute": 1})
    with Server("--tenants", f.name) as s:
        def reload():
            s.process.send_signal(signal.SIGHUP)
            return s.process.stdout.readline().strip()

        assert ask(s, "ka")[0] == 200 and ask(s, "ka")[0] == 429
        write({"name": "b", "key": "kb"}, {"name": "a", "key": "ka2", "requests_per_minute": 1})
        assert reload() == "reloaded"
        assert ask(s, "ka")[0] == 401 and ask(s, "kb")[0] == 200
        assert ask(s, "ka2")[0] == 429  # another key does not cancel the debt
        for bad in ("", "[]", '[{"name":"a","key":"ka"},{"name":"b","key":"kb","weight":0}]', '[{"name":"a"}]'):
            write(text=bad)
            assert reload().startswith("kept: "), bad
            assert ask(s, "kb")[0] == 200 and ask(s, "ka")[0] == 401
        os.unlink(f.name)
        assert reload().startswith("kept: ")
        open(f.name, "w").close()


# ---- requests of many choices -----------------------------------------------------------------------------------


NUMBERS = "one two three four five six seven eight nine ten".split()


def test_many_choices_are_served_in_turn():
    # The engine accepts 64 requests at once; the front end assumes 256 slots, uses 7 of 8 for this, and adapts.
    prompts = [f"{NUMBERS[i % 10]} {NUMBERS[i // 10 % 10]} {NUMBERS[i // 100 % 10]}" for i in range(2000)]
    with Server("--max-live", 64) as s:
        before = s.metric("quire:requests_refused_total")
        status, _, reply = ask(s, None, prompt=prompts, n=2, max_tokens=40)
        assert status == 200 and [c["index"] for c in reply["choices"]] == list(range(4000))
        for i, choice in enumerate(reply["choices"]):
            assert choice["text"] == prompts[i // 2], (i, choice)
        assert s.metric("quire:requests_refused_total") == before and s.metric("vllm:num_requests_waiting") == 0
        events = s.stream(COMPLETIONS, {"prompt": prompts[:500], "max_tokens": 40})
        texts = {}
        for c in (c for e in events for c in e["choices"]):
            texts[c["index"]] = texts.get(c["index"], "") + c["text"]
        assert [texts[i] for i in range(500)] == prompts[:500]


def test_many_choices_are_one_request():
    with tenants_file({"name": "a", "key": "ka"}, {"name": "b", "key": "kb", "max_queued": 300}) as f, Server(
            "--tenants", f.name, "--interval-us", 20000, "--max-choices", 500) as s:
        def metric(name):
            text = s.request("GET", "/metrics", headers=key("ka"))[2].decode()
            return sum(float(value) for value in re.findall(rf"^{name}\{{.*\}} (\S+)$", text, re.M))

        for body, field in (({"prompt": ["x"] * 501}, "prompt"), ({"prompt": ["x"] * 251, "n": 2}, "prompt")):
            status, _, reply = ask(s, "ka", **body)
            assert status == 400 and reply["error"]["param"] == field and "500" in reply["error"]["message"], reply
        status, _, reply = ask(s, "kb", prompt=["x"] * 301)
        assert status == 400 and "300" in reply["error"]["message"]
        # Four of the largest may wait; the next is rejected once; other clients are not affected.
        long = post_bytes(COMPLETIONS, {"prompt": ["x y"] * 500, "max_tokens": 400, "ignore_eos": True}, "Authorization: Bearer ka\r\n")
        holders = [s.connect() for _ in range(6)]
        for holder in holders:
            holder.sendall(long)
        assert wait_until(lambda: metric("quire:requests_refused_total") >= 1)
        errors = metric('vllm:request_success_total')
        status, headers, reply = ask(s, "ka", prompt=["x"] * 300)
        assert status == 429 and headers["Retry-After"] == "1" and "wait for their turn" in reply["error"]["message"], reply
        assert metric("vllm:request_success_total") == errors and metric("vllm:num_requests_waiting") > 1000
        for name in ("ka", "kb") * 20:
            started = time.monotonic()
            assert ask(s, name, max_tokens=1)[0] == 200 and time.monotonic() - started < 60
        assert ask(s, "ka", prompt=["a", "b", "c"], max_tokens=1)[0] == 200  # a small one is not delayed
        # A client that leaves removes its waiting requests and their counts.
        for holder in holders:
            holder.close()
        assert wait_until(lambda: metric("vllm:num_requests_waiting") == 0 and metric("vllm:num_requests_running") == 0)
        assert ask(s, "ka", prompt=["x"] * 500, max_tokens=1)[0] == 200
        assert ask(s, "kb", prompt=["x"] * 300, max_tokens=1)[0] == 200


def test_waiting_prompts_when_the_engine_goes():
    with Server("--max-live", 8, "--interval-us", 20000) as s, s.connect() as holder:
        holder.sendall(post_bytes(COMPLETIONS, {"prompt": ["x"] * 100, "max_tokens": 50, "ignore_eos": True}))
        assert wait_until(lambda: s.metric("vllm:num_requests_waiting") > 0)
        s.process.send_signal(signal.SIGUSR1)
        assert holder.recv(100).startswith(b"HTTP/1.1 503")


def test_waiting_prompts_in_a_drain():
    for arguments, status in ((("--interval-us", 5000), b"200"), (("--interval-us", 100000, "--give-up-ms", 100), b"503")):
        with Server("--max-live", 8, *arguments) as s, s.connect() as holder:
            holder.sendall(post_bytes(COMPLETIONS, {"prompt": ["x"] * 100, "max_tokens": 8, "ignore_eos": True}))
            assert wait_until(lambda: s.metric("vllm:num_requests_waiting") > 0)
            s.process.send_signal(signal.SIGTERM)
            assert read_all(holder).startswith(b"HTTP/1.1 " + status) and s.process.wait(60) == 0


# ---- deadlines and traces ---------------------------------------------------------------------------------------


def test_bad_fields_are_named():
    for field, values in (("quire_deadline_ms", (0, -1, 1.5, "5", 86400001, True)), ("quire_trace", (1, "yes", []))):
        for value in values:
            status, reply = server.post(COMPLETIONS, {"prompt": "x", field: value})
            assert status == 400 and reply["error"]["param"] == field, (field, value, reply)
        assert server.post(COMPLETIONS, {"prompt": "x", field: None})[0] == 200
    for header, values in (("x-quire-deadline-ms", ("0", "-1", "", "1s", "86400001", "9" * 30, "1 2")),
                           ("x-quire-trace", ("2", "yes", ""))):
        for value in values:
            status, _, reply = ask(server, None, headers={header: value})
            assert status == 400 and reply["error"]["param"] == header, (header, value, reply)
    assert ask(server, None, headers={"x-quire-deadline-ms": "86400000", "x-quire-trace": "0"})[0] == 200


def test_a_deadline_that_cannot_be_met():
    with Server("--refuse-below-ms", 500000, "--ping-ms", 60000) as s:
        for body, headers in (({"quire_deadline_ms": 400000}, {}), ({}, {"x-quire-deadline-ms": "400000"}),
                              ({"quire_deadline_ms": 400000}, {"x-quire-deadline-ms": "9000000"}),
                              ({"quire_deadline_ms": 400000, "stream": True}, {}), ({"quire_deadline_ms": 400000, "n": 3}, {}),
                              ({"quire_deadline_ms": 400000, "prompt": ["a", "b", "c"], "stream": True}, {})):
            status, got, reply = ask(s, None, headers=headers, **body)
            assert status == 429 and got["Retry-After"] == "2" and got["retry-after-ms"] == "1500", (body, reply)
            assert reply["error"]["code"] == "rate_limit_exceeded" and "time" in reply["error"]["message"]
        assert ask(s, None, quire_deadline_ms=600000)[0] == 200
        assert ask(s, None, headers={"x-quire-deadline-ms": "600000"})[0] == 200
        assert ask(s, None, headers={"x-quire-deadline-ms": "400000"}, quire_deadline_ms=60000000)[0] == 200
        assert s.metric("quire:requests_refused_total") == 6 and s.metric("vllm:num_requests_running") == 0


def test_no_status_before_the_first_token_or_ping():
    # The fake engine makes a step every second: requests that arrive between steps wait for the next one, and then get
    # a reply.
    request = {"messages": CHAT, "quire_deadline_ms": 400000, "max_tokens": 2, "stream": True}
    holding = post_bytes(COMPLETIONS, {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True})
    for ping, expected in ((60000, 429), (50, 200)):
        with Server("--refuse-below-ms", 500000, "--ping-ms", ping, "--interval-us", 1000000) as s, s.connect() as holder:
            holder.sendall(holding)
            assert holder.recv(100).startswith(b"HTTP/1.1 200")
            status, headers, data = s.request("POST", CHATS, request)
            assert status == expected, data
            if status == 429:
                assert headers["Retry-After"] == "2"
                continue
            # The headers were sent: the roles, pings, an error and the end.
            parts = data.decode().split("\n\n")
            assert json.loads(parts[0][6:])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert ": ping" in parts and parts[-2:] == ["data: [DONE]", ""]
            error = json.loads(parts[-3][6:])["error"]
            assert error["type"] == "rate_limit_error" and error["code"] == "rate_limit_exceeded"


COUNTS = {"preemptions": 4, "recomputed_tokens": 6, "loaded_tokens": 5, "cached_tokens": 0, "chunks": 1, "overtaken": 0}


def check_trace(trace, times=1):
    turn = trace["queue_ms_by_shortage"].pop("turn")  # for a prompt after the first, in the front end
    assert turn == 0 if times == 1 else 0 <= turn < trace["total_ms"]
    assert abs(trace["queue_ms"] - turn - 5) < 1e-6 and trace["queue_ms_by_shortage"] == {
        "none": 0, "token_budget": 2, "sequences": 0, "blocks": 3, "batch": 0, "prefix": 0}
    assert {name: trace[name] for name in COUNTS} == {name: times * n for name, n in COUNTS.items()}, trace
    assert trace["lookups"] == []
    assert 0 <= trace["text_ms"] <= trace["first_token_ms"] <= trace["total_ms"] and trace["preempted_ms"] == 0


def test_traces():
    with Server() as s:
        assert "quire_trace" not in ask(s, None)[2]
        first = ask(s, None, quire_trace=True)[2]
        check_trace(first["quire_trace"])
        assert first["quire_trace"]["blocker"] == "same tenant"
        check_trace(ask(s, None, headers={"x-quire-trace": "1"})[2]["quire_trace"])
        check_trace(s.post(CHATS, {"messages": CHAT, "quire_trace": True})[1]["quire_trace"])
        # With several choices, the first one reports; with several prompts, the longest wait, and sums of the counts.
        check_trace(ask(s, None, quire_trace=True, n=3)[2]["quire_trace"])
        check_trace(ask(s, None, quire_trace=True, prompt=["a", "b"])[2]["quire_trace"], times=2)
        for options in ({}, {"stream_options": {"include_usage": True}}):
            events = s.stream(COMPLETIONS, {"prompt": "Hello there", "quire_trace": True, **options})
            assert all("quire_trace" not in e for e in events[:-1]) and events[-1]["choices"] == []
            check_trace(events[-1]["quire_trace"])
            assert ("usage" in events[-1]) == bool(options)
            assert len([e for e in events if e["choices"] == []]) == 1


def test_who_a_blocker_was():
    tenants = ({"name": "a", "key": "ka"}, {"name": "b", "key": "kb"}, {"name": "root", "key": "kr", "admin": True})
    with tenants_file(*tenants) as f, Server("--tenants", f.name) as s:
        assert ask(s, "ka", quire_trace=True)[2]["quire_trace"]["blocker"] is None
        ask(s, "ka", request_id="from-the-body", headers={"x-request-id": "from-the-header"})
        trace = ask(s, "kr", quire_trace=True, headers={"x-request-id": "of-root"})[2]["quire_trace"]
        assert trace["blocker"] == "another tenant" and trace["blocker_tenant"] == "a"
        assert trace["blocker_request_id"] == "from-the-body"
        trace = ask(s, "kb", quire_trace=True)[2]["quire_trace"]
        assert trace["blocker"] == "another tenant" and "of-root" not in json.dumps(trace) and "root" not in json.dumps(trace)
        trace = ask(s, "kb", quire_trace=True)[2]["quire_trace"]
        assert trace["blocker"] == "same tenant" and not [k for k in trace if k.startswith("blocker_")]
        # Dropped long ago: the tenant is known, the name is not.
        for _ in range(2):  # each at most half of the engine's slots
            ask(s, "ka", prompt=["x"] * 550, max_tokens=1)
        assert ask(s, "kr", quire_trace=True)[2]["quire_trace"]["blocker_request_id"] is not None


# ---- the cache --------------------------------------------------------------------------------------------------


def test_usage_of_the_cache():
    usage = ask(server, None, prompt=WORDS)[2]["usage"]
    n = usage["prompt_tokens"]
    assert n > 32 and usage["cache_creation_tokens"] == n // 16 * 16 and usage["cache_read_tokens"] == 0
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    events = server.stream(COMPLETIONS, {"prompt": [WORDS, WORDS], "max_tokens": 1, "n": 2, "stream_options": {"include_usage": True}})
    assert events[-1]["usage"]["cache_creation_tokens"] == 2 * (n // 16 * 16)


def test_pins():
    n = len(server.post("/tokenize", {"prompt": WORDS})[1]["tokens"])
    before = server.metric("quire:cache_pins")
    status, reply = server.post(PINS, {"prompt": WORDS})
    assert (status, reply) == (200, {"object": "cache.pin", "prompt_tokens": n, "cached_tokens": 0,
                                     "pinned_tokens": n // 16 * 16, "ttl_seconds": 300})
    assert server.metric("quire:cache_pins") == before + 1
    ids = server.post("/tokenize", {"prompt": WORDS})[1]["tokens"]
    assert server.post(PINS, {"prompt": ids, "ttl_seconds": 86400, "model": "fake"})[1]["ttl_seconds"] == 86400
    chat = server.post(PINS, {"messages": [{"role": "system", "content": WORDS}], "background": True})[1]
    opened = server.post(PINS, {"messages": [{"role": "system", "content": WORDS}], "add_generation_prompt": True})[1]
    assert n < chat["prompt_tokens"] < opened["prompt_tokens"]
    assert server.metric("quire:cache_pins") == before + 4
    # of background requests, as the fake engine counts them
    assert server.metric("quire:num_waiting_tokens") == chat["prompt_tokens"]
    # Pins only computed blocks.
    assert server.post(PINS, {"prompt": WORDS, "ttl_seconds": 0})[1]["pinned_tokens"] == 0
    assert server.metric("quire:cache_pins") == before + 4
    status, _, data = server.request("DELETE", PINS)
    assert (status, json.loads(data)) == (200, {"object": "cache.pins", "deleted": True})
    assert server.metric("quire:cache_pins") == 0


def test_bad_pins():
    for body, param in (({}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": 5}, "prompt"),
                        ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": [10**9]}, "prompt"),
                        ({"prompt": "x", "messages": CHAT}, "prompt"), ({"messages": []}, "messages"),
                        ({"prompt": "x", "ttl_seconds": -1}, "ttl_seconds"), ({"prompt": "x", "ttl_seconds": 86401}, "ttl_seconds"),
                        ({"prompt": "x", "ttl_seconds": 1.5}, "ttl_seconds"), ({"prompt": "x", "background": 1}, "background"),
                        ({"prompt": "x", "cache_salt": 1}, "cache_salt"), ({"prompt": "word " * 5000}, "prompt")):
        status, reply = server.post(PINS, body)
        assert status == 400 and reply["error"]["param"] == param, (body, reply)
    assert server.post(PINS, {"prompt": "x", "model": "other"})[0] == 404
    assert server.request("POST", PINS, b"[]")[0] == 400 and server.request("POST", PINS, b"")[0] == 400
    status, headers, _ = server.request("GET", PINS)
    assert status == 405 and headers["Allow"] == "POST, DELETE"


def test_pins_end_with_their_client_and_engine():
    with Server("--max-live", 0) as s:
        status, headers, _ = s.request("POST", PINS, {"prompt": "x"})
        assert status == 429 and headers["retry-after-ms"] == "1500"
    with Server("--interval-us", 300000) as s:
        with s.connect() as c:
            c.sendall(post_bytes(COMPLETIONS, {"prompt": "x", "stream": True, "max_tokens": 50, "ignore_eos": True}))
            c.recv(100)
            with s.connect() as pin:
                pin.sendall(post_bytes(PINS, {"prompt": "x"}))
                assert wait_until(lambda: s.metric("vllm:num_requests_running") == 2)
        assert wait_until(lambda: s.metric("vllm:num_requests_running") == 0)
        with s.connect() as c, s.connect() as pin:
            c.sendall(post_bytes(COMPLETIONS, {"prompt": "x", "stream": True, "max_tokens": 50, "ignore_eos": True}))
            c.recv(100)
            pin.sendall(post_bytes(PINS, {"prompt": "x"}, "Connection: close\r\n"))
            assert wait_until(lambda: s.metric("vllm:num_requests_running") == 2)
            s.process.send_signal(signal.SIGUSR1)
            assert read_all(pin).startswith(b"HTTP/1.1 503")
        for path, method in ((PINS, "POST"), (PINS, "DELETE"), (POLICY, "POST")):
            assert s.request(method, path, {"prompt": "x", "policy": "fcfs"})[0] == 503


# ---- operators --------------------------------------------------------------------------------------------------


def test_the_policy_is_changed():
    with Server() as s:
        assert s.metric('quire:scheduling_policy_info{model_name="fake",engine="0",policy="fcfs"}') == 1
        status, reply = s.post(POLICY, {"policy": "fair"})
        assert (status, reply) == (200, {"object": "scheduling_policy", "policy": "fair"})
        assert s.metric('quire:scheduling_policy_info{model_name="fake",engine="0",policy="fair"}') == 1
        status, reply = s.post(POLICY, {"policy": "fcfs"}, headers={"Origin": f"http://127.0.0.1:{s.port}"})
        assert status == 403 and "web page" in reply["error"]["message"], reply
        options = {"ageing_ms": 250, "class_weights": [1, 2, 3], "prefill_share": 20}
        assert s.post(POLICY, {"policy": "priority", "options": options})[0] == 200
        assert s.metric('quire:scheduling_policy_figure{model_name="fake",engine="0",figure="ageing_us"}') == 250000
        for body, says in (({}, "policy"), ({"policy": "chaos"}, "chaos"), ({"policy": 5}, "policy"), ({"policy": ""}, "policy"),
                           ({"policy": "fair unpin 0"}, "policy"), ({"policy": "fair", "options": []}, "options"),
                           ({"policy": "fair", "options": {"speed": 1}}, "speed"),
                           ({"policy": "fair", "options": {"a b": 1}}, "option"),
                           ({"policy": "fair", "options": {"ageing_ms": "1"}}, "ageing_ms"),
                           ({"policy": "fair", "options": {"ageing_ms": -1}}, "ageing_ms"),
                           ({"policy": "fair", "options": {"class_weights": []}}, "class_weights"),
                           ({"policy": "fair", "options": {"class_weights": [1] * 9}}, "class_weights"),
                           ({"policy": "fair", "options": {"class_weights": [1, "2"]}}, "class_weights")):
            status, reply = s.post(POLICY, body)
            assert status == 400 and says in reply["error"]["message"], (body, reply)
        assert s.metric('quire:scheduling_policy_info{model_name="fake",engine="0",policy="priority"}') == 1
        assert s.request("POST", POLICY, b"x")[0] == 400 and s.request("GET", POLICY)[0] == 405


def test_only_admins_change_it():
    with tenants_file({"name": "a", "key": "ka"}, {"name": "root", "key": "kr", "admin": True}) as f, Server("--tenants", f.name) as s:
        for name, expected in ((None, 401), ("kx", 401), ("ka", 403), ("kr", 200)):
            status, _, reply = ask(s, name, POLICY, policy="fair")
            assert status == expected, reply
        assert ask(s, "ka", POLICY, policy="fair")[2]["error"]["code"] == "permission_denied"
    with Server("--api-key", "k") as s:
        assert ask(s, "k", POLICY, policy="fair")[0] == 403


def test_a_client_that_leaves_keeps_its_turn():
    with Server() as s:
        for _ in range(20):
            with s.connect() as c:
                c.sendall(post_bytes(POLICY, {"policy": "chaos"}))
            assert s.post(POLICY, {"policy": "fair"})[0] == 200


def test_metrics_are_well_formed():
    """Checks promtool's rules: HELP and TYPE before the samples, once; counters end in _total; samples of one family
    together."""
    with tenants_file({"name": "a", "key": "ka"}, {"name": "b:c.d", "key": "kb"}) as f, Server(
            "--tenants", f.name, "--tenant-metrics", "--name", 'a"b\\c') as s:
        ask(s, "ka")
        s.request("POST", POLICY, {"policy": "fair"}, key("ka"))
        text = s.request("GET", "/metrics", headers=key("ka"))[2].decode()
        check_exposition(text)
        assert 'tenant="b:c.d"' in text and 'model_name="a\\"b\\\\c"' in text
        for name in ("prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
                     "kv_blocks_evicted_total", "requests_running", "requests_waiting", "rate_limited_total"):
            assert text.count(f"quire:tenant_{name}{{") == 3, name
        # Without an engine, the front end's own counters remain.
        s.process.send_signal(signal.SIGUSR1)
        assert wait_until(lambda: b"engine_up{" in s.request("GET", "/metrics", headers=key("ka"))[2])
        text = s.request("GET", "/metrics", headers=key("ka"))[2].decode()
        assert text.count("quire:tenant_rate_limited_total{") == 3
        check_exposition(text)
    text = server.request("GET", "/metrics")[2].decode()
    check_exposition(text)
    assert "tenant" not in text
    for name in ("step_token_budget", "recomputed_tokens_total", "requests_refused_by_policy_total", "prefix_cache_host_hits_total",
                 "kv_blocks_evicted_total", "host_kv_usage_perc", "kv_blocks_spilled_total", "kv_blocks_loaded_total",
                 "cache_pins", "pinned_kv_blocks", "scheduling_policy_info"):
        server.metric("quire:" + name)
    identity = hashlib.sha256(b"law=1\nweights=none\n").hexdigest()
    assert server.metric('quire:identity_arithmetic_info{model_name="fake",engine="0",identity="%s"}' % identity) == 1


def test_what_another_policy_would_have_done():
    with Server("--shadow") as s:
        text = s.request("GET", "/metrics")[2].decode()
        check_exposition(text)
        labels = 'model_name="fake",engine="0"'
        for line in (f'quire:shadow_policy_info{{{labels},policy="sjf"}} 1', f"quire:shadow_requests_total{{{labels}}} 16",
                     f"quire:shadow_requests_refused_total{{{labels}}} 3",
                     f'quire:shadow_queue_seconds_total{{{labels},scheduler="live"}} 2.5',
                     f'quire:shadow_queue_seconds_total{{{labels},scheduler="shadow"}} 1.5',
                     f'quire:shadow_time_to_first_token_seconds_bucket{{{labels},scheduler="live",le="0.001"}} 0',
                     f'quire:shadow_time_to_first_token_seconds_bucket{{{labels},scheduler="shadow",le="100"}} 16',
                     f'quire:shadow_time_to_first_token_seconds_bucket{{{labels},scheduler="live",le="+Inf"}} 16',
                     f'quire:shadow_time_to_first_token_seconds_sum{{{labels},scheduler="live"}} 4',
                     f'quire:shadow_time_to_first_token_seconds_sum{{{labels},scheduler="shadow"}} 2',
                     f'quire:shadow_time_to_first_token_seconds_count{{{labels},scheduler="shadow"}} 16'):
            assert line in text.splitlines(), line
    assert "shadow" not in server.request("GET", "/metrics")[2].decode()


def check_exposition(text):
    types, samples, current = {}, set(), None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in types and len(line.split(" ", 3)[3]) > 5, line
            types[current] = None
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == current and types[current] is None, line
            types[current] = line.split(" ")[3]
            # vLLM's name of a histogram
            named = current.endswith("_total") and current != "vllm:iteration_tokens_total"
            assert (types[current] == "counter") == named, line
        else:
            name, value = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)', line).group(1, 3)
            assert "{" in line or name.startswith("process_"), line
            family = re.sub(r"_(bucket|sum|count)$", "", name) if types[current] == "histogram" else name
            assert family == current and float(value) >= 0, line
            key_ = line.rsplit(" ", 1)[0]
            assert key_ not in samples, line
            samples.add(key_)


with server:
    run_tests(sys.modules[__name__])
