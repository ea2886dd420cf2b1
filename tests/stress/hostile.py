#!/usr/bin/env python3
"""Measures what one tenant's worst requests cost another tenant, and how much memory the process needs.

python3 tests/stress/hostile.py [--quire build/quire] [--model DIR] [--seconds 8] [--json FILE]

Runs `quire serve` with two tenants. In each round eight connections of the first send one kind of load
repeatedly. The second sends a request for one token every 20 ms, and a third client requests /health/live. Prints
the median, p99 and maximum of both in milliseconds, and the peak of the process' memory above its idle memory.
Needs only the standard library. The clients run in separate processes on the same cores, so on a busy machine
they measure that machine too: the first round has no load.
"""

import argparse
import http.client
import json
import multiprocessing
import pathlib
import re
import socket
import statistics
import tempfile
import time

from stress import Process

ROOT = pathlib.Path(__file__).resolve().parents[2]
BODY_BYTES = 15_000_000  # just below --max-body-size


def text(unit):
    return unit * (BODY_BYTES // len(unit))


def loads():
    """name: (path, body, seconds between the parts of a slow body or 0)"""
    completion = {"max_tokens": 1}
    return {
        "nothing": None,
        "15 MB of one word, /tokenize": ("/tokenize", {"prompt": text("a")}, 0),
        "15 MB of words, /tokenize": ("/tokenize", {"prompt": text("the cat ")}, 0),
        "15 MB of words, a completion": ("/v1/completions", {**completion, "prompt": text("the cat ")}, 0),
        "15 MB of objects in a field nobody knows": ("/v1/completions", {**completion, "prompt": "hi", "x": [{}] * 4_000_000}, 0),
        "2 million token ids, /detokenize": ("/detokenize", {"tokens": [100] * 2_000_000}, 0),
        "2,000 prompts": ("/v1/completions", {**completion, "prompt": ["hi"] * 2000}, 0),
        "prompt logprobs": ("/v1/completions", {**completion, "prompt": [[5] * 500] * 40, "prompt_logprobs": 20}, 0),
        "4,000 slow bodies": ("/v1/completions", {**completion, "prompt": "hi" * 1000}, 4000),
    }


def post(port, key, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, body, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status


def keep_sending(port, path, body, until):
    while time.monotonic() < until:
        try:
            post(port, "bad", path, body)
        except OSError:
            pass


def send_slowly(port, path, body, n, until):
    """Opens n connections that each send a byte of their bodies now and then."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer bad\r\nContent-Length: {len(body)}\r\n\r\n"
    held = []
    while time.monotonic() < until:
        try:
            s = socket.create_connection(("127.0.0.1", port), timeout=1)
            s.sendall(head.encode() + body[:10])
            held.append(s)
        except OSError:
            time.sleep(0.01)
        if len(held) >= n:
            held.pop(0).close()


def ask(port, method, path, body, every_s, until, out):
    took, wrong = [], 0
    while time.monotonic() < until:
        started = time.monotonic()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(method, path, body, {"Authorization": "Bearer good", "Content-Type": "application/json"})
            wrong += connection.getresponse().status != 200
            connection.close()
        except OSError:
            wrong += 1
        took.append(time.monotonic() - started)
        time.sleep(every_s)
    out.put((took, wrong))


def summary(out):
    took, wrong = out.get()
    took.sort()
    return {"n": len(took), "wrong": wrong, "p50_ms": round(1000 * statistics.median(took), 1),
            "p99_ms": round(1000 * took[min(len(took) - 1, len(took) * 99 // 100)], 1), "max_ms": round(1000 * took[-1], 1)}


def peak_kb(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def run_round(pid, port, load, seconds):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
    until = time.monotonic() + seconds
    processes = []
    if load:
        path, body, slow = load
        body = json.dumps(body, separators=(",", ":")).encode()
        targets = [(send_slowly, (port, path, body, slow // 4, until))] * 4 if slow else [(keep_sending, (port, path, body, until))] * 8
        processes = [multiprocessing.Process(target=f, args=a) for f, a in targets]
    tokens, live = multiprocessing.Queue(), multiprocessing.Queue()
    one = json.dumps({"prompt": "Hello", "max_tokens": 1}).encode()
    processes += [multiprocessing.Process(target=ask, args=(port, "POST", "/v1/completions", one, 0.02, until, tokens)),
                  multiprocessing.Process(target=ask, args=(port, "GET", "/health/live", None, 0.02, until, live))]
    for process in processes:
        process.start()
    result = {"one_token": summary(tokens), "live": summary(live)}
    for process in processes:
        process.join()
    result["peak_mib"] = peak_kb(pid) >> 10
    return result


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quire", default=ROOT / "build" / "quire")
    arguments.add_argument("--model", default=ROOT / "tools" / "demo_model" / "model")
    arguments.add_argument("--seconds", type=float, default=8)
    arguments.add_argument("--json")
    a = arguments.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as tenants:
        json.dump([{"name": "good", "key": "good"}, {"name": "bad", "key": "bad"}], tenants)
        tenants.flush()
        server = Process(a.quire, "serve", a.model, "--port", 0, "--tenants", tenants.name, says=r"http://[0-9.]+:(\d+)")
        port, pid = int(server.found.group(1)), server.process.pid
        try:
            for _ in range(50):
                post(port, "good", "/v1/completions", b'{"prompt": "Hello", "max_tokens": 16}')
            idle, results = server.resident_kb() >> 10, {}
            print(f"idle: {idle} MiB\n{'load':42} {'one token: p50':>15} {'p99':>7} {'max':>7} {'not 200':>8} {'live: p99':>10} {'max':>7} {'peak':>9}")
            for name, load in loads().items():
                r = results[name] = run_round(pid, port, load, a.seconds)
                t, v = r["one_token"], r["live"]
                print(f"{name:42} {t['p50_ms']:15} {t['p99_ms']:7} {t['max_ms']:7} {t['wrong'] + v['wrong']:8} {v['p99_ms']:10} {v['max_ms']:7} "
                      f"{r['peak_mib'] - idle:+5} MiB", flush=True)
        finally:
            server.stop()
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"idle_mib": idle, "seconds": a.seconds, "rounds": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
