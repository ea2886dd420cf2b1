"""Runs quire serve --record --trace-file, then quire replay and quire sim on the files; standard library only."""

import collections
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import recording_format

QUIRE, MODEL = sys.argv[1:3]
BRIEF = "brief" in sys.argv[3:]  # a replay takes ten times as long under a sanitizer: run three of nine
OPTIONS = ["--port", "0", "--threads", "1", "--max-model-len", "160", "--num-kv-blocks", "14", "--max-num-seqs", "6",
           "--max-num-batched-tokens", "64", "--scheduling-policy", "priority"]
DRAFTS = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "adaptive": %s}'


class Server:
    def __init__(self, *arguments, model=MODEL):
        self.process = subprocess.Popen([QUIRE, "serve", model, *OPTIONS, *map(str, arguments)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.log = ""
        while "ready on http" not in self.log:
            line = self.process.stderr.readline()
            assert line, f"the server did not come up:\n{self.log}"
            self.log += line
        self.port = int(re.search(r"http://[0-9.]+:(\d+)", self.log).group(1))
        self.reader = threading.Thread(target=self.read_log)
        self.reader.start()

    def read_log(self):
        for line in self.process.stderr:
            self.log += line

    def end(self, with_signal):
        self.process.send_signal(with_signal)
        code = self.process.wait(60)
        self.reader.join()
        self.process.stderr.close()
        return code

    def stream(self, body, events):
        """Reads this number of events of a stream and hangs up, or reads all of them."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            c.request("POST", "/v1/completions", json.dumps({"stream": True, **body}))
            reply = c.getresponse()
            assert reply.status == 200, reply.read()
            for line in reply:
                events -= line.startswith(b"data: ")
                if events == 0:
                    return
        except (ConnectionError, http.client.HTTPException):
            pass  # it was killed
        finally:
            c.close()


def ask(number):
    body = {"prompt": f"Once upon a time there were {number % 5} " + "very " * (number % 7 * 6), "max_tokens": 20 + number % 4 * 20,
            "temperature": 1, "priority": number % 3, "ignore_eos": number % 4 != 0}
    if number % 5 == 1:
        body["n"] = 3
    if number % 3 == 1:
        body["logprobs"] = 2
    if number % 7 == 3:
        body["structured_outputs"] = {"json": {"type": "object", "properties": {"name": {"type": "string"}, "kind": {"enum": ["red", "green"]}},
                                               "required": ["name", "kind"], "additionalProperties": False}}
    return body


def serve_many(server, first, n):
    threads = [threading.Thread(target=server.stream, args=(ask(i), 4 if i % 6 == 2 else -1)) for i in range(first, first + n)]
    for thread in threads:
        thread.start()
        time.sleep(0.002)
    return threads


def quire(*arguments):
    return subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def replay(path, *more):
    got = quire("replay", path, MODEL, "--json", *more)
    assert got.returncode in (0, 1, 2), got.stderr
    return got.returncode, json.loads(got.stdout) if got.stdout else None, got.stderr


# ---- what was recorded ----

def check_recording(path, closed):
    recording = recording_format.Recording(path.read_bytes())
    h = recording.header
    assert h["version"] == 2 and h["law"] == 2 and h["policy"] == "priority" and h["groups"][0][0] == 14 and h["max_num_seqs"] == 6
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p["now_us"] for p in recording.plans] == sorted(p["now_us"] for p in recording.plans)
    assert sum(p["n_preempted"] for p in recording.plans) > 0, "nothing was preempted: fewer blocks, please"
    assert recording.kinds["cancel_choice"] > 0 and any(r["n"] == 3 for r in recording.requests.values())
    assert (recording.closed is not None) == closed
    n_compared = 0
    for id, end in recording.finishes.items():
        request = recording.requests[id]
        for choice, tokens in zip(end["choices"], request["tokens"]):
            assert choice["n_tokens"] == len(tokens)
            if request["n_logprobs"] < 0 and request["n_prompt_logprobs"] < 0:
                assert choice["digest"] == recording_format.token_digest(len(request["prompt"]), tokens)
                n_compared += 1
    assert n_compared > 5
    return recording


def check_again(path, recording):
    """It replays bit for bit, and drives the scheduler to the same decisions."""
    code, done, _ = replay(path)
    assert code == 0 and done["different"] == 0, done
    assert done["requests"] == len(recording.requests) and done["tokens"] > 300 and done["cut"] > 0
    assert done["bytes_left_out"] == recording.left_out
    if not BRIEF:
        said = quire("replay", path, MODEL)
        assert said.returncode == 0 and "every logprob bit" in said.stdout
    simulated = quire("sim", "--trace", path, "--trace-format", "recording", "--json")
    assert simulated.returncode == 0, simulated.stderr
    simulated = json.loads(simulated.stdout)
    assert simulated["decision_log_sha256"] == recording.plans[-1]["decisions"]
    return simulated["speculation"]


def check_prediction(path, cost, spec):
    """The recorded drafts are proposed again, and the same number is accepted, except for omitted answers of several
    choices."""
    def predict(*more):
        done = quire("sim", "--trace", path, "--trace-format", "recording", "--predict", "--cost-model", cost, "--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["speculation"]

    predicted = predict()
    assert (predicted is None) == (spec is None)
    if spec is None:
        return
    assert 0.3 * spec["draft_tokens"] < predicted["draft_tokens"] <= spec["draft_tokens"] * 1.1, (predicted, spec)
    assert abs(predicted["acceptance_rate"] - spec["acceptance_rate"]) < 0.2, (predicted, spec)
    assert predicted["gain"]["e2el_ms"] > 0 and predicted["tokens_per_step"] > 1
    other = predict("--speculative-config", '{"method": "suffix", "num_speculative_tokens": 2, "adaptive": false}')
    assert abs(other["acceptance_per_position"][0] - spec["acceptance_per_position"][0]) < 0.2, (other, spec)
    assert len(other["acceptance_per_position"]) == 2
    sure = predict("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2, "adaptive": false}', "--speculative-acceptance", "1")
    assert sure["acceptance_rate"] > 0.9 and 2 < sure["tokens_per_step"] <= 3


def check_fit(path, recording, spec):
    """Fits a cost model to the recorded steps that another step follows without a pause."""
    n = sum(a["n_rows"] > 0 and a["n_moves"] == 0 and b["n_admitted"] != b["n_rows"] and b["now_us"] > a["now_us"]
            for a, b in zip(recording.plans, recording.plans[1:]))
    fitted = quire("bench", "steps", "--recording", path, "--json", "--output", path.with_suffix(".cost"))
    assert fitted.returncode == 0, fitted.stderr
    fitted = json.loads(fitted.stdout)
    assert fitted["steps"] == n and fitted["errors"]["all"]["held_out_steps"] == n // 3
    points = fitted["cost"]["points"]
    gaps = sorted(b["now_us"] - a["now_us"] for a, b in zip(recording.plans, recording.plans[1:]) if a["n_rows"])
    # On a busy machine the smallest steps may have a cost of zero: their times say little.
    assert 0 <= points[0][1] < gaps[-1] and points[-1][1] > 0 and points == sorted(points), (points, gaps[-1])
    check_prediction(path, path.with_suffix(".cost"), spec)
    said = quire("bench", "steps", MODEL, "--recording", path)
    assert said.returncode == 2 and "leave MODEL out" in said.stderr
    assert quire("bench", "steps", "--recording", MODEL + "/config.json").returncode == 1


def check_salvage(damaged, offset, n_bytes):
    """The records before the damage are compared, and equal."""
    code, done, says = replay(damaged, "--salvage")
    assert code == (0 if done["compared"] else 2), (code, done, says)
    assert f"byte {offset}" in done["damage"] and done["bytes_left_out"] == n_bytes - offset, done
    return done["tokens"]


def check_damage(directory, path, recording):
    data = bytearray(path.read_bytes())
    damaged = directory / "damaged.rec"
    for offset in recording.offsets[3::len(recording.offsets) // (1 if BRIEF else 4)]:
        data[offset + 20] ^= 4
        damaged.write_bytes(data)
        data[offset + 20] ^= 4
        code, _, says = replay(damaged)
        assert code == 1 and f"byte {offset}" in says, says
        check_salvage(damaged, offset, len(data))
    if not BRIEF:
        damaged.write_bytes(data[:recording.offsets[-1] + 15])
        code, done, _ = replay(damaged)
        assert code == 0 and done["bytes_left_out"] == 15 and done["damage"] is None
        data[recording.offsets[-2] + 20] ^= 4
        damaged.write_bytes(data)
        assert check_salvage(damaged, recording.offsets[-2], len(data)) > 0
    assert quire("replay", MODEL + "/config.json", MODEL).returncode == 1
    assert quire("replay", path).returncode == 2


# ---- the trace file ----

def check_slices(slices):
    """Slices do not overlap, and no length is negative."""
    end = 0
    for s in sorted(slices, key=lambda s: (s["ts"], s["ts"] + s["dur"])):
        assert s["dur"] >= 0 and s["ts"] >= end, (s, end)
        end = s["ts"] + s["dur"]


def check_trace(path, recording, closed, spec):
    text = path.read_text()
    events = json.loads(text if closed else text.rstrip().removesuffix(",") + "]")
    tracks = collections.defaultdict(list)
    names = {}
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append(e)
        if e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
    for key, slices in tracks.items():
        assert key in names
        check_slices(slices)
    steps = tracks.pop(next(key for key, name in names.items() if name == "steps"))
    n_steps = sum(p["step"] > 0 for p in recording.plans)
    assert len(steps) == n_steps if closed else 0 < len(steps) <= n_steps
    assert all(0 < s["args"]["tokens"] <= s["args"]["budget"] and 0 < s["args"]["rows"] <= 6 for s in steps)
    verified = [s["args"] for slices in tracks.values() for s in slices if s["name"] == "verify"]
    assert sum(s["args"]["drafts"] for s in steps) == sum(v["drafts"] for v in verified)
    assert sum(s["args"]["accepted"] for s in steps) == sum(v["accepted"] for v in verified)
    if closed:  # as the driven scheduler counts it, minus drafts verified for finished sequences
        assert sum(p["n_drafts"] for p in recording.plans) == sum(v["drafts"] for v in verified)
        assert spec["accepted_tokens"] == sum(v["accepted"] for v in verified) > 20, (spec, len(verified))
        assert spec["draft_tokens"] == sum(v["drafts"] for v in verified if v["tokens"] > 0)
        assert all(v["tokens"] in (0, v["accepted"] + 1) for v in verified)
    shortest = min(s["dur"] for s in steps)
    preempted = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "i" and e["name"] == "preempted":
            preempted[e["pid"], e["tid"]].append(e["ts"])
    assert preempted
    n_decoded, kinds = 0, collections.Counter()
    for key, slices in tracks.items():
        slices.sort(key=lambda s: s["ts"])
        assert all(s["dur"] >= s["args"]["tokens"] * shortest for s in slices if s["name"] == "decode")
        if closed:  # waits once, and again after each preemption
            waits = [s["ts"] for s in slices if s["name"] == "queued"]
            assert len(waits) == 1 + len(preempted[key]) and waits[1:] == sorted(preempted[key]), (waits, preempted[key])
        assert slices[0]["name"] == "queued"
        assert "decode" not in [s["name"] for s in slices] or slices[1]["name"] in ("prefill", "recompute")
        kinds.update(s["name"] for s in slices)
        n_decoded += sum(s["args"]["tokens"] for s in slices if s["name"] == "decode")
    assert set(kinds) - {"verify"} == {"queued", "prefill", "recompute", "decode"} and n_decoded > 200, kinds
    chosen = [e["args"] for e in events if e["ph"] == "i" and e["name"] == "drafts" and "chosen" in e.get("args", ())]
    assert bool(chosen) != closed and all(0 <= c["chosen"] <= c["offered"] and 0 < c["with drafts"] <= 6 for c in chosen)
    counters = [e["args"] for e in events if e["ph"] == "C"]
    assert max(c.get("used", 0) for c in counters) <= 14 and max(c.get("running", 0) for c in counters) <= 6
    assert max(c.get("waiting", 0) for c in counters) > 0


def check_without_requests(directory):
    """A server that cannot listen leaves no recording. One without requests leaves a recording in which there is nothing to compare."""
    path = directory / "none.rec"
    with socket.create_server(("127.0.0.1", 0)) as used:
        got = quire("serve", MODEL, *OPTIONS, "--port", used.getsockname()[1], "--record", path)
    assert got.returncode == 1 and not path.exists(), got.stderr
    got = quire("engine", MODEL, "--listen", f"unix:{directory}/no/such/directory", "--record", path)
    assert got.returncode == 1 and not path.exists(), got.stderr
    server = Server("--record", path)
    assert server.end(signal.SIGTERM) == 0, server.log
    for got in quire("replay", path, MODEL), quire("replay", path, MODEL, "--json"):
        assert got.returncode == 2 and ("no answers to compare" in got.stdout or json.loads(got.stdout)["compared"] == 0), (got.returncode, got.stdout)
    assert quire("sim", "--trace", path, "--trace-format", "recording").returncode == 2
    path.unlink()


def check_kept_trace(trace):
    """The next start closes the trace of a killed process."""
    n_events = trace.read_text().count('"ph"')
    server = Server("--trace-file", trace)
    assert server.end(signal.SIGTERM) == 0, server.log
    events = json.loads(trace.with_name(trace.name + ".unfinished").read_text())
    assert n_events - 1 <= len(events) <= n_events, (n_events, len(events))
    assert len(json.loads(trace.read_text())) >= 3 and ".unfinished" in server.log
    trace.with_name(trace.name + ".unfinished").unlink()


def check_budget_log(directory):
    """Step times vary by more than a tenth; the log has a line about it at most once a second."""
    cost = directory / "cost.json"
    cost.write_text(json.dumps({"points": [[1, 800], [256, 20000]]}))
    server = Server("--cost-model", cost, "--step-target-ms", 5, "--adaptive-budget")
    began = time.monotonic()
    for round in range(3):
        for thread in serve_many(server, 0, 12):
            thread.join()
    seconds = time.monotonic() - began
    assert server.end(signal.SIGTERM) == 0, server.log
    assert 1 <= server.log.count("steps take") <= seconds + 2, (seconds, server.log)


def check_streaming(directory):
    """A recording has the windows and sinks of --attention-window and --attention-sinks, beside those that the model has."""
    windowed, path = directory / "windowed", directory / "streaming.rec"
    shutil.copytree(MODEL, windowed)
    config = json.loads((windowed / "config.json").read_text())
    (windowed / "config.json").write_text(json.dumps({**config, "use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2}))
    for model, options in ((MODEL, ["--attention-window", 24, "--attention-sinks", 2, "--max-model-len", 4000]), (MODEL, ["--attention-window", 20]),
                           (windowed, []), (windowed, ["--attention-window", 20]), (windowed, ["--attention-window", 24]),
                           (windowed, ["--attention-window", 24, "--attention-sinks", 3])):
        server = Server(*options, "--record", path, model=model)
        server.stream({"prompt": "Once upon a time there were " + "very " * 80, "max_tokens": 30, "temperature": 1, "ignore_eos": True}, -1)
        assert server.end(signal.SIGTERM) == 0, server.log
        got = quire("replay", path, model, "--json")
        assert got.returncode == 0 and json.loads(got.stdout)["tokens"] == 30, (options, got)
        path.unlink()
    shutil.rmtree(windowed)


def main():
    directory = pathlib.Path(tempfile.mkdtemp())
    endings = (True, False)
    if BRIEF and os.environ.get("QUIRE_TEST_SAMPLE"):  # as in tests/sample.h
        endings = endings[int(os.environ["QUIRE_TEST_SAMPLE"]) % 2:][:1]
    for closed in endings:
        record, trace = directory / f"{closed}.rec", directory / f"{closed}.json"
        server = Server("--record", record, "--trace-file", trace, "--speculative-config", DRAFTS % ("false" if closed else "true"))
        threads = serve_many(server, 0, 24)
        if closed:
            for thread in threads:
                thread.join()
            assert server.end(signal.SIGTERM) == 0, server.log
        else:
            for thread in threads[:20]:
                thread.join()
            threads += serve_many(server, 24, 4)
            server.end(signal.SIGKILL)
            for thread in threads:
                thread.join()
        recording = check_recording(record, closed)
        if closed:
            assert recording.closed == recording.plans[-1]["decisions"] and recording.closed in server.log
        spec = check_again(record, recording)
        check_fit(record, recording, spec)
        check_trace(trace, recording, closed, spec)
    if not closed:
        check_kept_trace(trace)
    check_damage(directory, record, recording)
    check_without_requests(directory)
    check_budget_log(directory)
    check_streaming(directory)
    again = quire("serve", MODEL, *OPTIONS, "--record", record)
    assert again.returncode == 1 and "never overwritten" in again.stderr
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    print("recorded, read, replayed, simulated and drawn")


main()
