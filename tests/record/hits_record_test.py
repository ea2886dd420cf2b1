"""Recordings with reports of served answers: how often a client has served an answer that it caches decides which
answers keep their blocks, and so the decisions of the scheduler.

    hits_record_test.py QUIRE MODEL

- data/v2-served.rec was written by a program whose clients sent these counts in a field of SUBMIT. Its decisions and
  answers must be repeated. Never write it again.
- The same traffic is recorded now, once with HIT_REPORT frames and once with the field of older clients.
"""

import hashlib
import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "daemon"))
import protocol_client
import recording_format

QUIRE, MODEL = sys.argv[1:3]
FILE = pathlib.Path(__file__).parent / "data" / "v2-served.rec"
SHA256 = "a9c3db633c695d3fa0b22549164d0af024b8ddbe41aa19e4c4aff93ab89b7941"
HOUR_US = 3600 * 1000000
OPTIONS = ["--threads", "1", "--max-model-len", "160", "--num-kv-blocks", "40", "--block-size", "8", "--max-num-seqs", "2",
           "--max-pinned-percent", "25"]
SERVED = [(1000, 2), (1300, 1), (9999, 9)]  # names that the client chose, and counts; the last belongs to no answer


def identities():
    model, text = pathlib.Path(MODEL), b""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        path = model / name
        if path.exists():
            text += struct.pack("<Q", path.stat().st_size) + path.read_bytes()
    return hashlib.sha256(text).digest(), hashlib.sha256((model / "config.json").read_bytes()).digest()


def words(served):
    return [word for name, n in served for word in (name & 0xffffffff, name >> 32, n)]


class Traffic:
    """The client of a cache: answers of two blocks of eight tokens, within a share of ten blocks."""

    def __init__(self, client, in_frames):
        self.client, self.in_frames, self.id = client, in_frames, 0
        self.frames = client.frames()

    def run(self, first, n_prompt, max_tokens, served=(), **more):
        """Returns how much of the prompt was in the cache."""
        if served and self.in_frames:
            self.client.send(protocol_client.encode(protocol_client.HIT_REPORT, served=words(served)))
        elif served:
            more["given"] = words(served)
        self.id += 1
        prompt = [(first + i) % 2000 for i in range(n_prompt)]
        self.client.send(protocol_client.encode(protocol_client.SUBMIT, self.id, prompt=prompt, max_tokens=max_tokens, temperature=0.0,
                                                ignore_eos=True, **more))
        for frame in self.frames:
            assert frame.type != protocol_client.REFUSE, frame.values
            if frame.type == protocol_client.DONE:
                return frame.get("n_cached", 0)

    def ask(self, first, **more):
        return self.run(first, 16, 8, keep_us=HOUR_US, keep_name=first, **more)

    def churn(self):
        for i in range(4):
            self.run(100 + 200 * i, 120, 2)

    def all(self):
        """Five answers fill the share; two more replace those that were served least. Returns what was found of each."""
        for i in range(5):
            self.ask(1000 + 100 * i)
        self.run(50, 1, 1, served=SERVED)
        self.ask(1500)
        self.ask(1600)
        self.churn()
        found = [self.run(1000 + 100 * i, 17, 1) for i in range(7)]
        self.run(60, 1, 1, served=[(0, 0)])  # every cached response is removed
        self.churn()
        return found, [self.run(1000 + 100 * i, 17, 1) for i in range(7)]


def record(quire, path, in_frames, directory):
    address = f"unix:{directory}/socket"
    engine = subprocess.Popen([quire, "engine", MODEL, "--listen", address, "--record", str(path), *OPTIONS],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while "ready on" not in (line := engine.stderr.readline()):
        assert line, "the engine did not come up"
    client = protocol_client.Client(address, *identities())
    assert not in_frames or client.engine.get("takes_hit_report"), "the engine takes no HIT_REPORT"
    found = Traffic(client, in_frames).all()
    client.close()
    engine.send_signal(signal.SIGTERM)
    log = engine.stderr.read()
    assert engine.wait(60) == 0, log
    engine.stderr.close()
    return found


def replay(path):
    """It drives the scheduler to the same decisions, and gives the same bits."""
    got = subprocess.run([QUIRE, "sim", "--trace", path, "--trace-format", "recording", "--json"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 0 and json.loads(got.stdout)["decisions_agree"], (got.stdout, got.stderr)
    got = subprocess.run([QUIRE, "replay", path, MODEL, "--json"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 0 and json.loads(got.stdout)["different"] == 0, (got.stdout, got.stderr)


def rewritten(data, edit):
    """The file with each record's body as edit(kind, body) returns it, None: without the record, and all sums made again."""
    out, numbers = bytearray(data[:8]), {name: kind for kind, name in recording_format.KINDS.items()}
    for _, kind, body in recording_format.records(data):
        body = edit(kind, body)
        if body is None:
            continue
        head = struct.pack("<II", len(body), numbers[kind])
        record = head + recording_format.sum_of(bytes(out[-8:]) + head, 4) + body
        out += record + recording_format.sum_of(bytes(out[-8:]) + record, 8)
    return bytes(out)


def check_that_they_count(data, edit, directory):
    """Without the reports the scheduler decides otherwise."""
    path = directory / "without.rec"
    path.write_bytes(rewritten(data, edit))
    got = subprocess.run([QUIRE, "sim", "--trace", path, "--trace-format", "recording", "--json"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 1 and not json.loads(got.stdout)["decisions_agree"], (got.stdout, got.stderr)


OLD_FIELD = struct.pack("<HH", 35, 0)
EXPECTED = [16, 0, 0, 16, 16, 16, 16], [0] * 7  # those served most, then the youngest; nothing once all are removed


def check_old(directory):
    data = FILE.read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256, "the recording is not the one that was committed"
    assert data.count(OLD_FIELD + struct.pack("<II", 12 * len(SERVED), SERVED[0][0])) == 1
    assert "served" not in recording_format.Recording(data).kinds
    replay(FILE)
    check_that_they_count(data, lambda kind, body: body.replace(OLD_FIELD, struct.pack("<HH", 999, 0)) if kind == "submit" else body, directory)


def check_new(in_frames, directory):
    path = directory / f"{in_frames}.rec"
    found = record(QUIRE, path, in_frames, directory)
    assert found == EXPECTED, found
    data = path.read_bytes()
    reports = [body for _, kind, body in recording_format.records(data) if kind == "served"]
    assert [body[8:] for body in reports] == [struct.pack(f"<{1 + 3 * len(s)}I", len(s), *words(s)) for s in (SERVED, [(0, 0)])]
    assert OLD_FIELD + struct.pack("<II", 12 * len(SERVED), SERVED[0][0]) not in data, "an old field was written"
    replay(path)
    check_that_they_count(data, lambda kind, body: None if kind == "served" else body, directory)
    too_many = lambda kind, body: body[:8] + struct.pack("<I", 1025) + bytes(12 * 1025) if kind == "served" else body
    (directory / "many.rec").write_bytes(rewritten(data, too_many))
    got = subprocess.run([QUIRE, "sim", "--trace", directory / "many.rec", "--trace-format", "recording"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 2 and "reports more served answers" in got.stderr, (got.returncode, got.stderr)


def main():
    with tempfile.TemporaryDirectory() as directory:
        check_old(pathlib.Path(directory))
        check_new(True, pathlib.Path(directory))
        check_new(False, pathlib.Path(directory))
    print("reports of served answers were recorded, read and repeated")


main()
