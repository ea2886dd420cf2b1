"""docs/reference/protocol.md against a running daemon, over the fake engine, and against this build's frames.

    protocol_test.py FAKE_ENGINE_SERVER PROTOCOL_EXAMPLES PROTOCOL_MD
"""
import hashlib
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from protocol_client import (
    ACCEPT, CANCELLED, CONTROL, CREDIT, DONE, DRAIN, ERROR, EXHAUSTED, FAILED, FIELDS, HELLO, INVALID, LENGTH,
    HIT_REPORT, PREDICT, PROMPT_LOGPROBS, REFUSE, STATS, STOP, SUBMIT, TOKENS, UNSUPPORTED, Client, Connection,
    ProtocolError, decode_body, encode, field, prove, read_key,
)

SERVER, EXAMPLES, PAGE = sys.argv[1:4]
TEXT, CONFIG = b"\x11" * 32, b"\x22" * 32
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        raise AssertionError(what)


class Server:
    def __init__(self, *flags, address=None):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "s")
        self.draining = False
        self.process = subprocess.Popen(
            [SERVER, "--listen", address or "unix:" + self.path, "--identity-text", TEXT.hex(),
             "--identity-config", CONFIG.hex(), *flags], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        check(line.startswith("listening at "), "the server starts: %r" % line)
        self.address = line[len("listening at "):].strip()

    def client(self, **options):
        return Client(self.address, TEXT, CONFIG, **options)

    def drain(self):
        if not self.draining:
            self.process.send_signal(signal.SIGTERM)
        self.draining = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drain()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        check(code == 0, "the server ends well: %d" % code)
        check(not os.path.exists(self.path), "the socket file is removed")
        self.directory.cleanup()


def run(client, request):
    """(tokens of each choice, prompt records, DONE frames) of one request that was submitted."""
    tokens, prompt, dones = {}, [], []
    frames = client.frames()
    first = next(frames)
    check(first.type == ACCEPT and first.request == request, "ACCEPT comes first")
    for frame in frames:
        check(frame.request == request, "the request's own id")
        if frame.type == TOKENS:
            for record in frame["records"]:
                tokens.setdefault(record["choice"], []).append(record)
        elif frame.type == PROMPT_LOGPROBS:
            prompt += frame["records"]
        else:
            check(frame.type == DONE, "DONE")
            dones.append(frame)
            if frame["last"]:
                return tokens, prompt, dones


def ids(records):
    return [record["token"] for record in records]


def expect_error(connection, status, text):
    frame = connection.next()
    while frame is not None and frame.type != ERROR:
        frame = connection.next()
    check(frame is not None, "an ERROR that says %r" % text)
    check(frame["status"] == status, "status %d: %r" % (status, frame.values))
    check(text in frame["message"], "%r says %r" % (frame["message"], text))
    check(connection.next() is None, "the end after ERROR")
    connection.close()


def refuses_later(type_, body, name):
    try:
        decode_body(type_, body)
    except ProtocolError as e:
        check("field 1000 must be understood" in str(e), name)
    else:
        check(False, "%s is taken" % name)


def test_page():
    """The page's examples equal the output of this build's encoder and of the client's."""
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    built = dict(line.split() for line in
                 subprocess.run([EXAMPLES], stdout=subprocess.PIPE, text=True,
                                check=True).stdout.splitlines())
    shown = {}
    for name, text in re.findall(r"^```frame (\S+)\n(.*?)^```", page, re.M | re.S):
        shown[name] = bytes.fromhex("".join(line.split("|")[0] for line in text.splitlines()))
    values = {name: bytes.fromhex(value) for name, value in built.items()}
    for name in ("key", "front-proof", "engine-proof"):
        check(built[name] in page, "the page shows the %s" % name)
        del values[name]
    check(shown == values, "the page's examples: %s" %
          sorted(n for n in set(shown) | set(values) if shown.get(n) != values.get(n)))
    check(len(shown) >= 20, "every frame has an example")
    types = set()
    for name, frame in shown.items():
        n, type_, flags, request = struct.unpack("<IHHQ", frame[:16])
        check(n == len(frame) - 16 and flags == 0, name)
        types.add(type_)
        if name.endswith("-later-must"):
            refuses_later(type_, frame[16:], name)
            continue
        extra = field(1000, b"fast", False) if name.endswith("-later") else b""
        again = encode(type_, request, extra=extra, **decode_body(type_, frame[16:]))
        check(again == frame, "%s encoded again" % name)
    check(types == set(range(1, 17)), "all types have an example")
    table = page[page.index("\n### STATS\n"):].split("The answer:")[1].split("A tenant's record")[0]
    rows = {name: (int(tag), kind) for tag, name, kind in re.findall(r"^\| (\d+) \| (\w+) \| (\w+) \|", table, re.M)}
    for name, (tag, kind, _) in FIELDS[STATS].items():
        lists = name in ("tenants", "shadow_buckets", "step_buckets", "accepted_at", "rank_waits", "expert_tokens")
        check(rows.pop(name, None) == (tag, "records" if lists else kind), "STATS: %s" % name)
    check(not rows, "STATS: the client does not know %s" % ", ".join(rows))
    with tempfile.NamedTemporaryFile(dir=tempfile.gettempdir()) as f:
        f.write(b"correct horse battery staple")
        f.flush()
        key = read_key(f.name)
    engine, front = bytes(range(32)), bytes(range(0x80, 0xa0))
    check(key.hex() == built["key"], "the key")
    check(prove(key, b"quire front  v1\n", engine, front).hex() == built["front-proof"], "front")
    check(prove(key, b"quire engine v1\n", engine, front).hex() == built["engine-proof"], "engine")


def test_requests():
    with Server("--model", "demo") as server:
        c = server.client()
        e = c.engine
        check((e["version"], e["model"], e["vocab_size"]) == (1, "demo", 1000), "the welcome")
        check((e["max_model_len"], e["block_tokens"], e["eos"]) == (4096, 16, [2]), "the welcome")
        check(e["identity_text"] == TEXT and e["identity_config"] == CONFIG, "identities")
        check(e["description"], "a description")
        check(e["arithmetic"] == "law=1\nweights=none\n", "the arithmetic")
        check(e["identity_arithmetic"] == hashlib.sha256(e["arithmetic"].encode()).digest(), "its identity")

        c.submit(1, prompt=[7, 8, 9], max_tokens=10)
        tokens, prompt, dones = run(c, 1)
        check(ids(tokens[0]) == [7, 8, 9, 2], "the echo and eos")
        done = dones[0]
        check((done["finish"], done["stop_token"]) == (STOP, 2), "DONE")
        check((done["n_prompt"], done["n_generated"]) == (3, 4), "usage")

        c.submit(1, prompt=[7, 8, 9], max_tokens=2, n=3, n_logprobs=2, n_prompt_logprobs=0)
        tokens, prompt, dones = run(c, 1)
        check(sorted(tokens) == [0, 1, 2] and len(dones) == 3, "three choices")
        check(all(d["finish"] == LENGTH for d in dones), "length")
        check([d["last"] for d in dones] == [False, False, True], "last")
        check(all(len(r["top"]) == 2 and r["logprob"] == r["top"][0][1] for r in tokens[0]), "top")
        check(ids(prompt) == [8, 9] and all(r["top"] == [] for r in prompt), "prompt logprobs")

        c.submit(5, prompt=[7, 8, 9], max_tokens=50, ignore_eos=True, stop_token_ids=[9],
                 min_tokens=4, temperature=0.0, seed=1, biases=[(3, -1.5)], cache_domain=b"\x01" * 32,
                 priority=-3, deadline_us=10**12, top_k=5, top_p=0.5, min_p=0.25,
                 repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=-0.5)
        tokens, prompt, dones = run(c, 5)
        check(ids(tokens[0]) == [7, 8, 9, 7, 8, 9], "stop token, not before min_tokens")
        check(dones[0]["stop_token"] == 9, "the stop token")
        c.close()


def test_refusals():
    with Server("--max-live", "0") as server:
        c = server.client()
        frames = c.frames()
        for parameters, status, text in (
                (dict(prompt=[1], max_tokens=1), EXHAUSTED, "full"),
                (dict(prompt=[], max_tokens=1), INVALID, "prompt"),
                (dict(prompt=[1000], max_tokens=1), INVALID, "token 1000"),
                (dict(prompt=[1] * 5000, max_tokens=1), INVALID, "longest"),
                (dict(prompt=[1], max_tokens=1, n=129), INVALID, "n: "),
                (dict(prompt=[1], max_tokens=1, temperature=float("nan")), INVALID, "temperature"),
                (dict(prompt=[1], max_tokens=1, n_logprobs=21), INVALID, "logprobs"),
                (dict(prompt=[1], max_tokens=1, extra=field(99, b"", True)), UNSUPPORTED, "99")):
            c.submit(4, **parameters)
            frame = next(frames)
            check(frame.type == REFUSE and frame.request == 4, "REFUSE: %r" % parameters)
            check(frame["status"] == status and text in frame["message"], repr(frame.values))
            check(frame.values.get("parameter") == (frame["message"].split(":")[0] if status == INVALID else None), repr(frame.values))
            if status == EXHAUSTED:
                check(frame["retry_after_ms"] == 1500, "retry_after_ms")
        c.send(encode(CONTROL, command="x"))
        frame = next(frames)
        check((frame.type, frame.request, frame["status"]) == (REFUSE, 0, UNSUPPORTED), "CONTROL")
        c.close()


def test_commands():
    """Section 7: CONTROL, and the figures of STATS afterwards."""
    with Server() as server:
        c = server.client()
        frames = c.frames()
        good = ("set-policy fair", "unpin 1023", "set-policy priority ageing_ms=250",
                "set-policy fair prompt_price=1 output_price=2 prefill_share=100",
                "set-policy priority  class_weights=1,2,3,4,5,6,7,8 ageing_ms=7",
                "set-policy fcfs class_ttft_ms=500")
        bad = (("", UNSUPPORTED), ("dance", UNSUPPORTED), ("set-policy", INVALID), ("set-policy chaos", INVALID),
               ("unpin", INVALID), ("unpin x", INVALID), ("unpin -1", INVALID), ("unpin 1024", INVALID),
               ("unpin 1 2", INVALID), ("unpin 99999999999999999999", INVALID),
               ("set-policy fair ageing_ms", INVALID), ("set-policy fair ageing_ms=", INVALID),
               ("set-policy fair ageing_ms=1s", INVALID), ("set-policy fair ageing_ms=-1", INVALID),
               ("set-policy fair prefill_share=101", INVALID), ("set-policy fair speed=1", INVALID),
               ("set-policy fair class_weights=1,,2", INVALID), ("set-policy fair class_weights=1,", INVALID),
               ("set-policy fair class_weights=1,2,3,4,5,6,7,8,9", INVALID),
               ("set-policy fair" + " ageing_ms=1" * 32, INVALID), ("unpin\0001", INVALID))
        for command in good:
            c.send(encode(CONTROL, command=command))
        for command, _ in bad:
            c.send(encode(CONTROL, command=command))
        for command in good:
            frame = next(frames)
            check((frame.type, frame["command"]) == (CONTROL, command), "%r: %r" % (command, frame.values))
        for command, status in bad:
            frame = next(frames)
            check((frame.type, frame.request, frame["status"]) == (REFUSE, 0, status), "%r: %r" % (command, frame.values))
            check(frame["message"].startswith("CONTROL: ") or "chaos" in frame["message"], frame["message"])
        c.send(encode(CONTROL, command="set-policy priority ageing_ms=250"))
        next(frames)
        c.send(encode(STATS))
        stats = next(frames)
        check((stats["policy"], stats["figure_name"], stats["figure"]) == ("priority", "ageing_us", 250000), "STATS")
        c.close()


def test_tenants_and_pins():
    with Server("--refuse-below-us", "1000") as server:
        c = server.client()
        frames = c.frames()
        c.submit(1, prompt=[7] * 40, max_tokens=0, tenant=3, pin_us=10**6, background=True, class_index=2,
                 expected_tokens=9)
        accept, done = next(frames), next(frames)
        check(accept.type == ACCEPT and accept["id"] != 0, "ACCEPT says the engine's id")
        check((done.type, done["finish"], done.get("n_generated", 0), done["n_created"]) == (DONE, LENGTH, 0, 32), "a pin")
        c.submit(2, prompt=[7] * 4, max_tokens=2, tenant=3)
        check(next(frames)["id"] != accept["id"], "another id")
        done = [f for f in (next(frames), next(frames), next(frames)) if f.type == DONE][0]
        check((done["blocker"], done["blocker_tenant"]) == (accept["id"], 3), "the blocker")
        check((done["queue_budget_us"], done["queue_blocks_us"], done["n_chunks"]) == (2000, 3000, 1), "the account")
        for wanted in (0, 1, 4, 9, 1024):
            c.send(encode(STATS, extra=field(1, struct.pack("<I", wanted))))
            stats = next(frames)
            check(len(stats.get("tenants", [])) == min(wanted, 8), "%d tenants" % wanted)
            check((stats["n_pins"], stats["n_waiting_tokens"], stats["n_host_hits"], stats["n_recomputed"]) ==
                  (1, 40, 2, 9), "what the fake engine heard of them: %r" % stats.values)
            if wanted >= 4:
                check(stats["tenants"][3] == (44, 2, 44, 0, 0, 0, 0), repr(stats["tenants"]))
        c.send(encode(CONTROL, command="unpin 3"))
        check(next(frames).type == CONTROL, "unpin")
        c.send(encode(STATS))
        check(next(frames).get("n_pins", 0) == 0, "forgotten")

        # A request that the policy rejects later.
        c.submit(3, prompt=[7], max_tokens=5, n=2, deadline_us=999)
        check(next(frames).type == ACCEPT, "it is taken first")
        for i in range(2):
            done = next(frames)
            check((done.get("choice"), done["finish"], done["status"], done["retry_after_ms"], done["last"]) ==
                  (i, FAILED, EXHAUSTED, 1500, i == 1), repr(done.values))
            check("time" in done["message"], done["message"])
        c.submit(4, prompt=[7], max_tokens=1, tenant=8)
        frame = next(frames)
        check((frame.type, frame["status"]) == (REFUSE, INVALID) and "tenant" in frame["message"], "no such tenant")
        c.close()
        for extra in (field(21, b"12345678"), field(23, b"\2", False), field(24, b"1", True)):
            c = server.client()
            c.submit(1, prompt=[7], max_tokens=1, extra=extra)
            expect_error(c, INVALID, "SUBMIT: ")
        c = server.client()
        c.send(encode(STATS, extra=field(1, struct.pack("<I", 1025))))
        expect_error(c, INVALID, "STATS: n_tenants")


def test_cancel_stats_drain():
    with Server("--mode", "count", "--interval-us", "500") as server:
        c = server.client()
        frames = c.frames()
        c.submit(1, prompt=[10], max_tokens=4000, n=2, ignore_eos=True)
        seen = 0
        for frame in frames:
            if frame.type == TOKENS:
                seen += len(frame["records"])
            if seen > 20:
                break
        c.send(encode(PREDICT, 1, tokens=[7, 8, 999]))
        c.send(encode(PREDICT, 1, tokens=[9]))  # it has a prediction already
        c.send(encode(PREDICT, 77, tokens=[9]))  # of no request
        check(c.engine["takes_hit_report"], "the engine takes hit reports")
        for served in ([13, 15, 4], [], [1] * 3 * 1024, [0, 0, 0]):
            c.send(encode(HIT_REPORT, served=served))  # no answer comes
        c.send(encode(STATS))
        c.cancel(1, 1)
        stats = done = None
        for frame in frames:
            stats = frame if frame.type == STATS else stats
            done = frame if frame.type == DONE else done
            if stats and done:
                break
        check(stats["n_running"] == 1 and stats["n_steps"] >= 10, "STATS")
        check((done["choice"], done["finish"], done["last"]) == (1, CANCELLED, False), "choice 1")
        check(done["n_predicted"] == 3, "PREDICT: the fake engine says how much it was told")
        c.cancel(77)
        c.cancel(1)
        for frame in frames:
            if frame.type == DONE:
                break
        check((frame["choice"], frame["finish"], frame["last"]) == (0, CANCELLED, True), "the rest")

        # Our DRAIN: running requests finish, then the connection ends. Other clients are not affected.
        other = server.client()
        c.submit(2, prompt=[10], max_tokens=50)
        c.send(encode(DRAIN))
        last = [frame for frame in frames][-1]
        check(last.type == DONE and last["last"] and last.request == 2, "DONE, then the end")
        other.submit(2, prompt=[10], max_tokens=50)
        check(ids(run(other, 2)[0][0]) == list(range(11, 61)), "the other one counts")
        c.close()

        # The engine's DRAIN.
        other.submit(3, prompt=[10], max_tokens=500, ignore_eos=True)
        frames = other.frames()
        check(next(frames).type == ACCEPT, "ACCEPT")
        server.drain()
        for frame in frames:
            if frame.type == DRAIN:
                break
        other.submit(4, prompt=[10], max_tokens=5)
        frames = list(frames)
        refused = [f for f in frames if f.type == REFUSE]
        check(len(refused) == 1 and refused[0]["status"] == EXHAUSTED, "REFUSE while it drains")
        check(frames[-1].type == DONE and frames[-1]["n_generated"] == 500, "what ran is finished")
        other.close()


def test_credit():
    with Server("--mode", "count", "--tokens-per-step", "16") as server:
        c = server.client(credit=65536, grant=False)
        for request in range(1, 11):
            c.submit(request, prompt=[10], max_tokens=2000, ignore_eos=True)
        n_last = 0
        c.socket.settimeout(1)
        granted = 65536
        for grant in (1000, 30000):
            until = time.monotonic() + 60  # beside other programs a server may be silent for a second
            while c.taken <= granted - 4096 and time.monotonic() < until:
                try:
                    for frame in c.frames():
                        n_last += frame.type == DONE and frame["last"]
                except TimeoutError:
                    pass
            check(granted - 4096 < c.taken <= granted, "%d of %d taken" % (c.taken, granted))
            c.send(encode(CREDIT, bytes=grant))
            granted += grant
        c.send(encode(CREDIT, bytes=1 << 63))
        c.send(encode(CREDIT, bytes=(1 << 64) - 1))
        c.socket.settimeout(60)
        for frame in c.frames():
            n_last += frame.type == DONE and frame["last"]
            if n_last == 10:
                break
        check(n_last == 10, "all ten end")
        c.close()
    with Server("--mode", "count", "--max-queued-bytes", "200000",
                "--max-model-len", "4294967295") as server:
        c = server.client(credit=65536, grant=False)
        c.submit(1, prompt=[10], max_tokens=1 << 31, ignore_eos=True)
        expect_error(c, EXHAUSTED, "too slow")
        c = server.client()
        c.submit(1, prompt=[10], max_tokens=3)
        check(ids(run(c, 1)[0][0]) == [11, 12, 13], "others are served")
        c.close()


def hello(**changes):
    values = dict(version=1, identity_text=TEXT, identity_config=CONFIG, initial_credit=65536)
    values.update(changes)
    return encode(HELLO, **values)


def header(n, type_, flags=0, request=0):
    return struct.pack("<IHHQ", n, type_, flags, request)


def test_hello_has_a_time_limit():
    with Server("--hello-timeout-ms", "300") as server:
        c = Connection(server.address)
        check(c.next().type == HELLO, "the greeting")
        expect_error(c, INVALID, "no HELLO within 300 ms")


def test_bad_frames():
    submit = encode(SUBMIT, 9, prompt=[1], max_tokens=4000, ignore_eos=True)
    with Server("--interval-us", "1000", "--hello-timeout-ms", "60000") as server:
        quiet = server.client()
        quiet.submit(1, prompt=[1], max_tokens=300, ignore_eos=True)
        for frame, status, text in (
                (submit, INVALID, "SUBMIT: before HELLO"),
                (hello(version=2), UNSUPPORTED, "version"),
                (hello(identity_text=CONFIG), INVALID, "identity_text"),
                (hello(identity_config=TEXT), INVALID, "identity_config"),
                (hello(initial_credit=65535), INVALID, "initial_credit"),
                (hello(model="x", extra=field(4, b"y")), INVALID, "model: occurs twice"),
                (hello(extra=field(4, b"\xff")), INVALID, "model: is not UTF-8"),
                (hello(extra=field(60, b"", True)), UNSUPPORTED, "field 60"),
                (hello(extra=field(60, b"") * 300), INVALID, "more than 256 fields"),
                (header(4097, HELLO), INVALID, "length"),
                (b"GET / HTTP/1.1\r\n\r\n", INVALID, "not a frame type")):
            c = Connection(server.address)
            check(c.next().type == HELLO, "the greeting")
            c.send(frame)
            expect_error(c, status, text)
        for frame, text in (
                (hello(), "HELLO"),
                (encode(SUBMIT, 9, prompt=[1]), "max_tokens: is missing"),
                (encode(SUBMIT, 0, prompt=[1], max_tokens=1), "request id"),
                (encode(SUBMIT, 9, max_tokens=1, extra=field(1, b"12345")), "prompt"),
                (submit + submit, "9 is live already"),
                (submit + encode(DRAIN) + submit, "after DRAIN"),
                (header(8, TOKENS, 0, 1) + bytes(8), "TOKENS"),
                (header(0, STATS, 1), "flags"),
                (header(0, STATS, 0, 5), "request id"),
                (header(0, 17), "not a frame type"),
                (header((32 << 20) + 1, SUBMIT, 0, 1), "length"),
                (header(3, CREDIT) + b"abc", "CREDIT: truncated"),
                (encode(PREDICT, 0, tokens=[1]), "PREDICT: request id"),
                (encode(PREDICT, 9), "PREDICT: tokens: is missing"),
                (encode(PREDICT, 9, extra=field(1, b"12345", True)), "PREDICT: tokens: must be a multiple of 4"),
                (submit + encode(PREDICT, 9, tokens=[999, 1000]), "PREDICT: tokens: 1000 is not below the vocabulary's 1000"),
                (encode(HIT_REPORT, 1, served=[1, 2, 3]), "HIT_REPORT: request id"),
                (encode(HIT_REPORT), "HIT_REPORT: served: is missing"),
                (encode(HIT_REPORT, served=[1, 2]), "HIT_REPORT: served: must be a multiple of 12"),
                (encode(HIT_REPORT, served=[1] * 3 * 1025), "HIT_REPORT: served: at most 1024"),
                (encode(CREDIT), "CREDIT: bytes: is missing")):
            c = server.client()
            c.send(frame)
            expect_error(c, INVALID, text)
        # A field with the must-understand bit clear is skipped.
        c = server.client()
        c.submit(1, prompt=[1], max_tokens=1, extra=field(99, b"later"))
        check(ids(run(c, 1)[0][0]) == [1], "an unknown field is skipped")
        c.close()
        check(len(run(quiet, 1)[0][0]) == 300, "the quiet client noticed nothing")
        quiet.close()


def test_key():
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, name) for name in ("right", "wrong")]
        for path, text in zip(paths, ("a key of our own, long\n", "another key, also long")):
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(text)
        right, wrong = (read_key(path) for path in paths)
        with Server("--key-file", paths[0], address="tcp:127.0.0.1:0") as server:
            check(server.address.startswith("tcp:127.0.0.1:"), server.address)
            c = server.client(key=right)
            c.submit(1, prompt=[5], max_tokens=3)
            check(ids(run(c, 1)[0][0]) == [5, 2], "served over tcp")
            c.close()
            try:
                server.client(key=wrong)
                check(False, "the wrong key is refused")
            except ProtocolError as error:
                check("key_proof" in str(error), str(error))
            c = Connection(server.address)
            check(set(c.next().values) == {"version", "nonce"}, "the greeting tells nothing more")
            c.send(hello())
            expect_error(c, INVALID, "asks for its shared key")
            # A proof from another connection, and one with the engine's own label, are rejected.
            for label in (b"quire front  v1\n", b"quire engine v1\n"):
                c = Connection(server.address)
                nonce = c.next()["nonce"]
                seen = os.urandom(32) if label[6:7] == b"f" else nonce
                c.send(hello(nonce=nonce, key_proof=prove(right, label, seen, nonce)))
                expect_error(c, INVALID, "key_proof")


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        test()
        print("ok", name)
    print("%d tests, %d checks" % (len(tests), checks))


main()
