"""Recordings of servers that fit their cost model to their own steps, and whose seats are taken back.

    costs_record_test.py QUIRE MODEL

Every model that the engine came to use is in the recording, so the decisions are repeated to the last one, under every
policy that weighs by it, and the answers bit for bit.
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import recording_format

QUIRE, MODEL = sys.argv[1:3]
OPTIONS = ["--port", "0", "--threads", "1", "--max-model-len", "256", "--num-kv-blocks", "120", "--max-num-seqs", "3",
           "--max-num-batched-tokens", "128"]
KEYS = ("key-a-0123456789", "key-b-0123456789")
DEADLINE_S = 120


class Server:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([QUIRE, "serve", MODEL, *OPTIONS, *map(str, arguments)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.log = ""
        while "ready on http" not in self.log:
            line = self.process.stderr.readline()
            assert line, f"the server did not come up:\n{self.log}"
            self.log += line
        self.url = re.search(r"http://[0-9.]+:\d+", self.log).group(0)
        self.reader = threading.Thread(target=self.read_log)
        self.reader.start()

    def read_log(self):
        for line in self.process.stderr:
            self.log += line

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join()
        self.process.stderr.close()
        assert code == 0, self.log

    def ask(self, path, key, body=None):
        request = urllib.request.Request(self.url + path, body and json.dumps(body).encode(),
                                         {"authorization": f"Bearer {key}", "content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def metric(self, name):
        return float(re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", self.ask("/metrics", KEYS[0]), re.M).group(1))


def prompts(server, key, long, stop, seed):
    """One tenant's traffic: long answers, or short ones after prompts of many lengths."""
    number = seed
    while not stop.is_set():
        number = number * 1103515245 + 12345 & 0x7fffffff
        n = 2 if long else 1 + number % 90
        server.ask("/v1/completions", key, {"prompt": [5 + (number + i) % 500 for i in range(n)], "ignore_eos": True,
                                            "max_tokens": 200 if long else 2, "temperature": 1, "priority": 1 if long else 0})


def record(path, tenants, *arguments):
    """Traffic of two tenants until the server has fitted a model, and seats or not."""
    server = Server("--record", path, "--tenants", tenants, *arguments)
    stop = threading.Event()
    threads = [threading.Thread(target=prompts, args=(server, KEYS[long], long, stop, 10 * long + i))
               for long, n in ((False, 3), (True, 4)) for i in range(n)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and server.metric("quire:cost_model_changes_total") < 1:
        time.sleep(0.05)
    n_steps = server.metric("quire:engine_steps_total")
    while time.monotonic() < until and server.metric("quire:engine_steps_total") < n_steps + 200:
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    changes = server.metric("quire:cost_model_changes_total")
    server.end()
    assert changes >= 1 and "cost model fitted to the last steps" in server.log, server.log
    return changes


def check(path, changes, takes_seats):
    recording = recording_format.Recording(path.read_bytes())
    assert len(recording.costs) == changes and recording.header["cost_points"] == []
    assert all(c["points"][0][0] == 1 and len(c["points"]) > 1 for c in recording.costs)
    n_preempted = sum(p["n_preempted"] for p in recording.plans)
    assert not takes_seats or n_preempted > 0, "no seat was taken back"
    done = subprocess.run([QUIRE, "sim", "--trace", path, "--trace-format", "recording", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decision_log_sha256"] == recording.plans[-1]["decisions"] == recording.closed
    done = subprocess.run([QUIRE, "replay", path, MODEL, "--json"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["different"] == 0, done.stdout + done.stderr
    return n_preempted


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        tenants = directory / "tenants.json"
        tenants.write_text(json.dumps([{"key": key, "name": f"t{i}"} for i, key in enumerate(KEYS)]))
        for i, (policy, takes_seats, more) in enumerate((("fair", True, ("--step-target-ms", "5", "--shadow-policy", "fcfs")),
                                                         ("priority", True, ()),
                                                         ("edf", False, ("--class-ttft-ms", "0=60000")),
                                                         ("sjf", True, ()),
                                                         ("fair", True, ("--num-kv-blocks", "22", "--max-num-seqs", "8")))):
            path = directory / f"{i}.rec"
            changes = record(path, tenants, "--scheduling-policy", policy, *more)
            n_preempted = check(path, changes, takes_seats)
            print(f"{policy}: {changes:.0f} cost models, {n_preempted} preemptions: every decision repeated")


main()
