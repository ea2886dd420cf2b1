#!/usr/bin/env python3
"""Storms, soaks, garbage and crowds at a live `quire serve`; nothing may remain of them.

python3 tests/stress/stress.py cancel --requests 100000      clients that leave, in every way
python3 tests/stress/stress.py soak --requests 1000000       mostly whole replies, and errors, and some that leave
python3 tests/stress/stress.py garbage --requests 100000     bytes that are not a request, or nearly one
python3 tests/stress/stress.py idle --connections 10000      idle connections: the cost of each

--engine-apart runs the engine in a separate process. Needs a release build with tests (build/quire and
build/tests/stress/stress_client); only the standard library. Prints a summary in JSON, and with --out FILE every
sample. Status 1 reports the fault: a reply that was cut short or differs from an earlier one; remaining blocks,
sequences, connections, descriptors or memory; or answers that changed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tools" / "demo_model" / "model"
ROUNDS = 20
# Allowed growth of the heap after a quarter of the load: fragmentation, not memory that each request leaves.
MAX_GROWTH_KB = 8192


class Process:
    """A running quire, after it has printed `says`."""

    def __init__(self, program, *arguments, says):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(program), *map(str, arguments)], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 300
        while not (found := re.search(says, self.output())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{program} did not come up:\n{self.output()}")
            time.sleep(0.05)
        self.found = found

    def output(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode()  # the process writes at the file's own offset

    def resident_kb(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text()).group(1))

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)


@contextlib.contextmanager
def serving(program, apart, *more):
    """(the front end, all processes, the port)"""
    processes = []
    shape = ["--max-model-len", 1024, "--kv-cache-memory", "16M"]
    with tempfile.TemporaryDirectory() as directory:
        try:
            if apart:
                address = f"unix:{directory}/engine.sock"
                processes.append(Process(program, "engine", MODEL, "--listen", address, *shape, says="ready on"))
                shape = ["--engine", address]
            front = Process(program, "serve", MODEL, "--port", 0, "--served-model-name", "demo", *shape, *more,
                            says=r"ready on http://127.0.0.1:(\d+)")
            processes.insert(0, front)
            yield front, processes, int(front.found.group(1))
            for p in processes:
                assert p.process.poll() is None, f"a server ended by itself:\n{p.output()}"
            for p in processes:
                assert p.stop() == 0, p.output()
        finally:
            for p in processes:
                if p.process.poll() is None:
                    p.process.kill()
                p.process.wait()


def answers(port):
    """Answers of some requests, with the bits of their logprobs."""
    got = []
    for seed, body in enumerate(({"prompt": "Once upon a time", "n": 2}, {"prompt": "The dog and the cat " * 12}, {"prompt": "x", "temperature": 0})):
        body = {"max_tokens": 24, "seed": seed, "logprobs": 3, "ignore_eos": True, **body}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode())
        got.append(json.load(urllib.request.urlopen(request, timeout=300))["choices"])
    return got


def touch_every_block(port):
    """Touches every block, so that memory reserved for the KV cache at start does not count as growth."""
    n_tokens, rng = 16 * metrics(port)["quire:kv_blocks"], random.Random(1)
    for _ in range(int(n_tokens // 1000) + 8):
        body = {"prompt": [rng.randrange(100, 250) for _ in range(1000)], "max_tokens": 1}
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), timeout=300).read()


def metrics(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300).read().decode()
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name = line.split("{")[0]
            values[name] = values.get(name, 0) + float(line.rsplit(" ", 1)[1])
    return values


LEFT = {"vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 0,
        "quire:kv_blocks_leaked": 0, "quire:cache_pins": 0, "quire:http_connections": 1}


def left_behind(port, seconds=300):
    """Waits until nothing remains, and returns what remains at the end."""
    deadline = time.monotonic() + seconds
    while True:
        values = metrics(port)
        left = {name: values.get(name) for name, want in LEFT.items() if values.get(name) != want}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def storm(options, program, client):
    """Rounds of load; nothing may remain between them."""
    samples, wrong = [], []
    with serving(program, options.engine_apart) as (front, processes, port):
        before = answers(port)
        touch_every_block(port)
        at_first = [p.n_descriptors() for p in processes]
        began = time.monotonic()
        totals = {}
        for i in range(ROUNDS):
            n = options.requests * (i + 1) // ROUNDS - options.requests * i // ROUNDS
            load = subprocess.run([str(client), "--port", str(port), "--mix", options.what, "--requests", str(n),
                                   "--clients", str(options.clients), "--seed", str(options.seed + i)],
                                  capture_output=True, text=True, timeout=3600)
            if not load.stdout:
                raise RuntimeError(load.stderr)
            result = json.loads(load.stdout)
            add(totals, result)
            left = left_behind(port)
            values = metrics(port)
            samples.append({"requests": totals["requests"], "seconds": round(time.monotonic() - began, 1),
                            "resident_kb": [p.resident_kb() for p in processes], "descriptors": [p.n_descriptors() for p in processes],
                            "steps": values["quire:engine_steps_total"], "tokens": values["quire:engine_generation_tokens_total"]})
            if left:
                wrong.append(f"round {i}: left behind: {left}")
            if load.returncode:
                wrong.append(f"round {i}: {load.stdout}{load.stderr}")
        if answers(port) != before:
            wrong.append("answers are not what they were")
        early, last = samples[ROUNDS // 4 - 1], samples[-1]
        growth = [b - a for a, b in zip(early["resident_kb"], last["resident_kb"])]
        if max(growth) > MAX_GROWTH_KB:
            wrong.append(f"memory grows: {growth} KiB since a quarter of the load")
        deadline = time.monotonic() + 300
        while (at_last := [p.n_descriptors() for p in processes]) > at_first and time.monotonic() < deadline:
            time.sleep(0.05)
        if at_last > at_first:
            wrong.append(f"descriptors: {at_first} at first, {at_last} at last")
        seconds = time.monotonic() - began
    totals.pop("mix", None)
    totals["seconds"] = round(seconds, 1)
    return samples, {"what": options.what, "engine_apart": options.engine_apart, **totals,
                     "requests_per_s": round(options.requests / seconds), "growth_kb_after_a_quarter": growth,
                     "resident_kb": last["resident_kb"], "wrong": wrong}


def add(totals, result):
    for name, value in result.items():
        if isinstance(value, dict):
            add(totals.setdefault(name, {}), value)
        elif isinstance(value, (int, float)):
            totals[name] = totals.get(name, 0) + value


def idle(options, program, client):
    """Connections that were only opened, then connections that were served once."""
    n, wrong = options.connections, []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, n + 1000)), hard))
    with serving(program, options.engine_apart, "--max-connections", n + 100, "--keep-alive-timeout", 3600) as (front, _, port):
        before = answers(port)
        samples = [{"connections": 0, "resident_kb": front.resident_kb()}]
        sockets = []
        for i in range(n):
            s = socket.socket()
            s.bind((f"127.0.0.{2 + i % 200}", 0))
            s.connect(("127.0.0.1", port))
            sockets.append(s)
        if (count := metrics(port)["quire:http_connections"]) != n + 1:
            wrong.append(f"{count} connections are open")
        samples.append({"connections": n, "served": 0, "resident_kb": front.resident_kb()})
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 2}).encode()
        for s in sockets:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if b" 200 OK" not in s.recv(65536):
                wrong.append("a connection was not served")
        samples.append({"connections": n, "served": 1, "resident_kb": front.resident_kb()})
        for s in sockets:
            s.close()
        if left := left_behind(port):
            wrong.append(f"left behind: {left}")
        samples.append({"connections": 0, "resident_kb": front.resident_kb()})
        if answers(port) != before:
            wrong.append("answers are not what they were")
    kb = [sample["resident_kb"] for sample in samples]
    if kb[2] - kb[0] > options.max_mib * 1024:
        wrong.append(f"{n} connections take {(kb[2] - kb[0]) / 1024:.1f} MiB, and may {options.max_mib}")
    return samples, {"what": "idle", "connections": n, "opened_mib": round((kb[1] - kb[0]) / 1024, 1),
                     "served_mib": round((kb[2] - kb[0]) / 1024, 1), "kib_each": round((kb[2] - kb[0]) / n, 2), "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cancel", "soak", "garbage", "idle"))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--max-mib", type=float, default=100, help="of idle connections")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine-apart", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the samples, one JSON object a line")
    options = parser.parse_args()
    run = idle if options.what == "idle" else storm
    samples, summary = run(options, options.build / "quire", options.build / "tests" / "stress" / "stress_client")
    if options.out:
        options.out.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    print(json.dumps(summary))
    return 1 if summary["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
