"""Long texts: their cost, their limits, and that no other request waits for them."""

import json
import re
import sys
import tempfile
import threading
import time

from harness import SANITIZED, Server, post_bytes, run_tests, wait_until

COMPLETIONS = "/v1/completions"
SLOWER = 8 if SANITIZED else 1  # memory that a sanitizer keeps after free is not measured
KEY_A, KEY_B = {"Authorization": "Bearer ka"}, {"Authorization": "Bearer kb"}


def prose(n_bytes):
    words = "the tide came in, and 12 lamps went out; \"now\" said he.\n\tNobody's 3,400 chairs (or 5) were left".split(" ")
    out, n, i = [], 0, 1
    while n < n_bytes:
        i = i * 1103515245 + 12345 & 0x7fffffff
        out.append(words[i >> 16 & 15])
        n += len(out[-1]) + 1
    return " ".join(out)[:n_bytes]


def peak_kb(server):
    text = open(f"/proc/{server.process.pid}/status").read()
    return int(re.search(r"VmHWM:\s+(\d+)", text).group(1))


def tenants(*rows):
    f = tempfile.NamedTemporaryFile("w", suffix=".json")
    json.dump(rows, f)
    f.flush()
    return f


def in_background(server, path, body, headers=None):
    result = []
    thread = threading.Thread(target=lambda: result.append(server.request("POST", path, body, headers)))
    thread.start()
    return thread, result


def test_long_text_costs_pieces():
    text = prose(2_000_000 // SLOWER)
    with Server() as s:
        s.post("/tokenize", {"prompt": prose(100_000)})
        before = s.resident_kb()
        status, reply = s.post("/tokenize", {"prompt": text})
        assert status == 200 and reply["count"] == len(reply["tokens"]) > 400_000 // SLOWER
        # One version needed 150 bytes per byte of text: 300 MB.
        assert SANITIZED or peak_kb(s) - before < 60_000, peak_kb(s) - before
        assert SANITIZED or wait_until(lambda: s.resident_kb() - before < 40_000), s.resident_kb() - before
        start = reply["tokens"][:200_000 // SLOWER]
        assert text.startswith(s.post("/detokenize", {"tokens": start})[1]["prompt"])
        body = {"messages": [{"role": "user", "content": text}]}
        assert s.post("/v1/messages/count_tokens", body)[1]["input_tokens"] > reply["count"]


def test_what_cannot_fit_is_not_encoded():
    """The byte count alone decides, and the error names the number of tokens that it implies."""
    with Server() as s:
        status, reply = s.post(COMPLETIONS, {"prompt": prose(14_000_000)})
        error = reply["error"]
        assert status == 400 and error["code"] == "context_length_exceeded" and error["param"] == "prompt"
        assert int(re.search(r"at least (\d+)", error["message"]).group(1)) > 100_000, error
        # Too few bytes to decide: encoded, but only as far as needed.
        status, reply = s.post(COMPLETIONS, {"prompt": prose(60_000)})
        least = int(re.search(r"at least (\d+)", reply["error"]["message"]).group(1))
        assert status == 400 and 4096 < least < 15_000


def test_what_is_cut_is_encoded():
    text = prose(400_000)
    with Server() as s:
        ids = s.post("/tokenize", {"prompt": text})[1]["tokens"]
        for side, expected in (("left", ids[-50:]), ("right", ids[:50])):
            status, reply = s.post(COMPLETIONS, {"prompt": text, "max_tokens": 1, "truncate_prompt_tokens": 50,
                                                 "truncation_side": side, "return_token_ids": True})
            assert status == 200 and reply["choices"][0]["prompt_token_ids"] == expected, side


def test_what_cannot_be_cut():
    with Server() as s:
        for run in "a", " ", "\n":
            status, reply = s.post("/tokenize", {"prompt": run * 1_000_000})
            assert status == 400 and reply["error"]["param"] == "prompt" and "256 KiB" in reply["error"]["message"]
        assert s.post("/tokenize", {"prompt": "a" * 200_000})[0] == 200


def test_replies_have_an_end():
    if SANITIZED:
        print("        not run: under a sanitizer so long a text takes more than a minute")
        return
    with Server() as s:
        before = peak_kb(s)
        status, reply = s.post("/tokenize", {"prompt": "\x01 " * 1_900_000, "return_token_strs": True})
        assert status == 400 and reply["error"]["param"] == "prompt", status
        assert "32 MiB" in reply["error"]["message"], reply["error"]
        assert peak_kb(s) - before < 150_000, peak_kb(s) - before
        assert s.post("/tokenize", {"prompt": "a b"})[0] == 200


def test_nobody_waits_for_anothers_text():
    """Neither another tenant nor a short request of the same tenant waits."""
    with tenants({"name": "a", "key": "ka"}, {"name": "b", "key": "kb"}) as f, Server("--tenants", f.name) as s:
        for times in (1, 2, 4, 8):  # a client that the machine does not run may find even long ones over
            body = json.dumps({"prompt": prose(1_500_000 * times // SLOWER)}).encode()
            long = [in_background(s, "/tokenize", body, KEY_A) for _ in range(3)]
            time.sleep(0.1)
            for headers in (KEY_B, KEY_A) * 5:
                assert s.post(COMPLETIONS, {"prompt": "Hello", "max_tokens": 1}, headers=headers)[0] == 200
            waited = any(result for _, result in long)
            for thread, _ in long:
                thread.join()
            if not waited:
                return
        assert False, "short requests ended after all long ones"
        assert [result[0][0] for _, result in long] == [200] * 3


def test_who_leaves_is_forgotten():
    with Server() as s:
        data = post_bytes("/tokenize", {"prompt": prose(12_000_000)})
        for _ in range(6):
            with s.connect() as c:
                c.sendall(data)
        assert s.post(COMPLETIONS, {"prompt": "Hello", "max_tokens": 1})[0] == 200
        # The first of these begins only after theirs have finished.
        assert s.post("/tokenize", {"prompt": prose(600_000)})[0] == 200
        ticks = lambda: sum(map(int, open(f"/proc/{s.process.pid}/stat").read().rsplit(")")[1].split()[11:13]))
        assert SANITIZED or ticks() < 600, "6 seconds of work, where 72 MB of text take a minute"


def test_text_counts_against_limits():
    with tenants({"name": "a", "key": "ka", "requests_per_minute": 3}, {"name": "b", "key": "kb", "tokens_per_minute": 100},
                 {"name": "c", "key": "kc", "max_concurrent": 1}) as f, Server("--tenants", f.name) as s:
        routes = (("/tokenize", {"prompt": "Hello"}), ("/detokenize", {"tokens": [260] * 40}),
                  ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hello " * 40}]}))
        for i, (path, body) in enumerate(routes):
            status, headers, _ = s.request("POST", path, body, KEY_A)
            assert status == 200 and headers["x-ratelimit-remaining-requests"] == str(2 - i), path
        for path, body in routes:
            status, headers, _ = s.request("POST", path, body, KEY_A)
            assert status == 429 and int(headers["Retry-After"]) > 0, path
        assert s.request("POST", "/detokenize", {"tokens": [260] * 90}, KEY_B)[1]["x-ratelimit-remaining-tokens"] == "10"
        status, headers, body = s.request("POST", *routes[2], KEY_B)
        assert status == 429 and b"tokens a minute" in body and headers["x-ratelimit-remaining-tokens"]
        key = {"Authorization": "Bearer kc"}
        body = json.dumps({"prompt": prose(600_000)}).encode()
        some = [in_background(s, "/tokenize", body, key) for _ in range(4)]
        for thread, _ in some:
            thread.join()
        assert {result[0][0] for _, result in some} == {200, 429}
        assert s.request("POST", *routes[0], key)[0] == 200


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
