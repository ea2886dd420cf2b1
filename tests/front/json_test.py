"""The JSON of bodies: Python's json decides what is JSON, errors use the API's words, and memory is bounded."""

import json
import os
import random
import re
import shutil
import sys
import tempfile

import harness
from harness import SANITIZED, Server, run_tests

MAX_BODY = 16 << 20


def refuse_twice(pairs):
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("twice")
    return members


def refuse_constant(name):
    raise ValueError(name)


def depth(value):
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth, children), default=0)


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def is_json(data):
    """As Python decides, without the forms that docs/reference/http-api.md rejects."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=refuse_twice, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and depth(value) <= 64 and not any(re.search("[\0\ud800-\udfff]", t) for t in texts(value))


def value_of(rng, deep):
    kind = rng.randrange(9 if deep else 6)
    if kind == 0:
        return rng.choice(["null", "true", "false", '""', "{}", "[]", "[ ]", "{\t}"])
    if kind == 1:
        digits = "".join(rng.choice("0123456789") for _ in range(rng.choice((1, 5, 19, 20, 40))))
        return rng.choice(("", "-")) + (digits.lstrip("0") or "0") + rng.choice(("", ".5", "e400", "E-400", ".0e+3"))
    if kind < 6:
        return '"' + "".join(rng.choice(["a", "é", "😀", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\\\", '\\"', "[", "}", ",", ":"])
                             for _ in range(rng.randrange(6))) + '"'
    items = [value_of(rng, deep - 1) for _ in range(rng.randrange(4))]
    if kind < 8:
        return "[" + ", ".join(items) + "]"
    return "{" + " ,".join(f'"{rng.choice("abcdefgh")}{rng.choice(("", chr(92) + "u0061", "a"))}" :{item}' for item in items) + "}"


def mutated(rng, text):
    data = bytearray(text.encode())
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(data))
        what = rng.randrange(4)
        if what == 0:
            del data[at:at + rng.randrange(1, 4)]
        elif what == 1:
            data[at:at] = rng.choice([b",", b":", b"[", b"]", b"{", b"}", b'"', b"0", b"-", b"\\", b"\\ud800", b"\\u0000", b"\xff", b"\n", b"x"])
        elif what == 2:
            data[at] = rng.randrange(256)
        else:
            del data[at:]
            break
        if not data:
            break
    return bytes(data)


def test_python_agrees_on_what_is_json():
    rng = random.Random(15)
    n_taken = n_refused = 0
    for _ in range(1500):
        data = mutated(rng, '{"tokens": [1], "x": ' + value_of(rng, 5) + "}")
        status, reply = server.post("/detokenize", data)
        wanted = is_json(data)
        if not wanted:
            assert status == 400 and reply["error"]["code"] == "invalid_json", (data, reply)
            n_refused += 1
        else:  # whether it contains valid tokens is another question
            assert status == 200 or reply["error"]["code"] != "invalid_json", (data, reply)
            n_taken += 1
    assert n_taken > 300 and n_refused > 300, (n_taken, n_refused)


def test_errors_are_in_our_words():
    rows = {
        b'{"prompt": "a" "b"}': "the request's body is not valid JSON: unexpected \" at byte 15",
        b'{"prompt": "a",\n "x": [1, 2}': "the request's body is not valid JSON: unexpected } at byte 27",
        b'{"prompt": "a"': "the request's body is not valid JSON: it ends too early at byte 14",
        b'{"prompt": "a"} x': "the request's body is not valid JSON: unexpected x at byte 16",
        b'{"prompt": 01}': "the request's body is not valid JSON: unexpected 1 at byte 12",
        '{"prompt": é}'.encode(): "the request's body is not valid JSON: unexpected character U+00E9 at byte 11",
        b'{"prompt": "a\nb"}': "the request's body is not valid JSON: unexpected character U+000A at byte 13",
        b'{"prompt": "\xff"}': "the request's body is not valid JSON: it is not UTF-8 at byte 12",
        b'{"prompt": "\\ud800"}': "the request's body is not valid JSON: half of a surrogate pair at byte 12",
        b'{"prompt": "a\\u0000"}': "the request's body has \\u0000, which is not allowed, at byte 13",
        b'{"n": 1, "\\u006e": 2}': 'the request\'s body is not valid JSON: "n" stands twice in the object that ends at byte 20',
        b'{"x": ' + b"[" * 64 + b"]" * 64 + b"}": "the request's body is nested more than 64 levels deep at byte 69",
        b"[]": "the request's body must be a JSON object",
    }
    for data, wanted in rows.items():
        status, reply = server.post("/v1/completions", data)
        assert status == 400 and reply["error"]["message"] == wanted, (data, reply)
    many = {f"k{i}": i for i in range(40)}
    status, reply = server.post("/v1/completions", json.dumps(many)[:-1].encode() + b', "k7": 0}')
    assert status == 400 and '"k7" stands twice' in reply["error"]["message"], reply
    status, reply = server.post("/v1/completions", {str(i): 0 for i in range(65_537)})
    assert status == 400 and "an object of more than 65536 members" in reply["error"]["message"], reply
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "x": {str(i): 0 for i in range(65_536)}})[0] == 200
    assert server.post("/v1/completions", {**many, "prompt": "x", "max_tokens": 1})[0] == 200


def test_seeds_have_64_bits():
    def text(seed):
        status, reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "seed": seed})
        return status, reply if status == 400 else None
    for seed in (0, 2 ** 63, 2 ** 64 - 1, -1, -2 ** 63):
        assert text(seed) == (200, None), seed
    for seed in (2 ** 64, -2 ** 63 - 1, 10 ** 30):
        status, reply = text(seed)
        assert status == 400 and reply["error"]["param"] == "seed" and str(seed) in reply["error"]["message"], reply


def test_numbers_reach_the_template_as_they_are():
    parameters = '{"maximum":18446744073709551615,"minimum":-123456789012345678901234567890,"multipleOf":0.10}'
    tools = '[{"type":"function","function":{"name":"f","parameters":' + parameters + "}}]"
    body = '{"messages":[{"role":"user","content":"hi"}],"tools":' + tools + "}"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(harness.TOKENIZER, "tokenizer.json"), folder)
        with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
            f.write("{{ tools | tojson }}")
        with Server(tokenizer=folder) as s:
            status, reply = s.post("/tokenize", body.encode())
            assert status == 200, reply
            status, reply = s.post("/detokenize", {"tokens": reply["tokens"]})
    printed = tools.replace(":", ": ").replace(",", ", ").replace("0.10", "0.1")
    assert reply["prompt"] == printed, (reply, printed)


def full(before, item, after):
    """Repeats items until the body has its maximum length."""
    n = (MAX_BODY - len(before) - len(after)) // (len(item) + 1)
    return (before + ",".join([item] * n) + after).encode()


def peak_kb(reset=False):
    if reset:
        with open(f"/proc/{server.process.pid}/clear_refs", "w") as f:
            f.write("5")
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read()).group(1))


def test_memory_is_the_body_and_little_more():
    keys = ",".join(f'"{i:x}":0' for i in range(1_600_000))
    bodies = {  # each about 16 MiB
        "unknown": ("/v1/completions", full('{"prompt":"x","max_tokens":1,"x":[', "{}", "]}"), 200),
        "keys": ("/v1/completions", ('{"prompt":"x","max_tokens":1,' + keys + "}").encode(), 400),
        "inner keys": ("/v1/completions", ('{"prompt":"x","max_tokens":1,"x":{' + keys + "}}").encode(), 400),
        "ids": ("/detokenize", full('{"tokens":[', "1", "]}"), 200),
        "stops": ("/v1/completions", full('{"prompt":"x","stop":[', '"a"', "]}"), 400),
        "message": ("/v1/chat/completions", full('{"messages":[{"role":"user","content":"x","y":[', '{"a":0}', "]}]}"), 400),
        "tools": ("/v1/chat/completions", full('{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",'
                                               '"function":{"name":"f","x":[', "[]", "]}}]}"), 400),
    }
    idle = server.resident_kb()
    for name, (path, body, wanted) in bodies.items():
        if name == "ids":  # two million ids; the reply is text, which has its own bounds
            body = ('{"tokens":[' + ",".join(["1"] * 2_000_000) + "]}").encode()
        peak_kb(reset=True)
        status, reply = server.post(path, body)
        grown = (peak_kb() - idle) >> 10
        print(f"        {name}: {len(body) >> 20} MiB, {status}, + {grown} MiB", flush=True)
        assert status == wanted, (name, reply)
        assert SANITIZED or grown <= 90, (name, grown)
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200


with Server("--max-body-bytes", MAX_BODY) as server:
    run_tests(sys.modules[__name__])
