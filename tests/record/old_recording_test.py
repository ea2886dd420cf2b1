"""data/v1.rec, written by a program of version 1 of the format, must stay readable with the same meaning: its
decisions are repeated. Version 1 of docs/internals/numerics.md computed its answers; they are rejected by that
name, and record_server_test replays current ones. It has n > 1, sampled and greedy answers, logprobs (also of
prompts), penalties, biases, stops, lists, cancels, two tenants, shared prefixes, preemptions and a host tier.
Never write it again: it proves that a file of that time is still readable."""

import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import recording_format

QUIRE, MODEL = sys.argv[1:3]
FILE = pathlib.Path(__file__).parent / "data" / "v1.rec"
SHA256 = "a27c077e59abcda1ae2ea0d06049e363928bc54e55c939a03e759f8d840a4746"
LAW = 2  # of this program
DECISIONS = "d107fadfffdd406168129432c1e2f299400e656eda52231193f6dc19fa0ad725"


def quire(*arguments):
    got = subprocess.run([QUIRE, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=300)
    assert got.returncode in (0, 1) and got.stdout, got.stderr
    return got.returncode, json.loads(got.stdout)


def check_content(recording):
    h = recording.header
    assert h["version"] == 1 and h["device"] == "cpu" and h["form"] == 0 and h["policy"] == "fair"
    assert recording.kinds == {"header": 1, "submit": 16, "plan": 205, "commit": 205, "retired": 20, "finish": 16,
                               "cancel_choice": 3, "close": 1}
    assert sum(p["n_preempted"] for p in recording.plans) == 3 and sum(p["n_moves"] for p in recording.plans) == 53
    assert recording.closed == DECISIONS == recording.plans[-1]["decisions"] and recording.left_out == 0
    for id, end in recording.finishes.items():
        request = recording.requests[id]
        for choice, tokens in zip(end["choices"], request["tokens"]):
            assert choice["n_tokens"] == len(tokens)


def check_decisions(path):
    code, said = quire("sim", "--trace", path, "--trace-format", "recording")
    assert code == 0 and said["decisions_agree"] and said["decision_log_sha256"] == DECISIONS, said


def check_answers(path):
    got = subprocess.run([QUIRE, "replay", path, MODEL], capture_output=True, text=True, timeout=300)
    assert got.returncode == 1 and not got.stdout and "by version 1 of docs/internals/numerics.md" in got.stderr, (got.returncode, got.stderr)
    assert f"computes by version {LAW}:" in got.stderr and "with the release that made it" in got.stderr, got.stderr


def changed(data, kind, at, value):
    """The file with one u32 changed in the last record of a kind, and all sums recomputed."""
    out, last = bytearray(data[:8]), [o for o, k, _ in recording_format.records(data) if k == kind][-1]
    for offset, name, body in recording_format.records(data):
        if offset == last:
            body = body[:at] + struct.pack("<I", value) + body[at + 4:]
        head = out[-8:] + data[offset:offset + 8]
        record = data[offset:offset + 8] + recording_format.sum_of(bytes(head), 4) + body
        record += recording_format.sum_of(bytes(out[-8:] + record), 8)
        out += record
    return bytes(out)


def check_that_it_can_fail(directory):
    """If the last plan's digest of decisions differs, the drive reports it."""
    path = directory / "changed.rec"
    path.write_bytes(changed(FILE.read_bytes(), "plan", 44, 1))
    code, said = quire("sim", "--trace", path, "--trace-format", "recording")
    assert not said["decisions_agree"], said
    path.unlink()


def main():
    data = FILE.read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256, "the recording is not the one that was committed"
    check_content(recording_format.Recording(data))
    check_decisions(FILE)
    check_answers(FILE)
    with tempfile.TemporaryDirectory() as directory:
        check_that_it_can_fail(pathlib.Path(directory))
    print("a recording of version 1 was read and driven, and its answers refused")


main()
