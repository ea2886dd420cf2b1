#!/usr/bin/env python3
"""Live requests with a batch running, against the same without: TTFT, ITL, and the rate of the batch.

  tests/bench/bulk/beside_live.py build/quire MODEL --rounds 4 [--step-target-ms 40] [--other OLD/quire] > raw.jsonl

Each round starts a server, and measures live requests without and with a batch, in alternating order. Compare only runs
of one round: the machine may be busy. --other: another build of quire takes turns with the first.
"""

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time

p = argparse.ArgumentParser()
p.add_argument("quire")
p.add_argument("model")
p.add_argument("--other")
p.add_argument("--rounds", type=int, default=4)
p.add_argument("--rate", type=float, default=4)
p.add_argument("--requests", type=int, default=60)
p.add_argument("--input", type=int, default=64)
p.add_argument("--output", type=int, default=16)
p.add_argument("--line-input", type=int, default=128)
p.add_argument("--line-output", type=int, default=32)
p.add_argument("--lines", type=int, default=20000)
p.add_argument("--step-target-ms", type=float, default=0)
a = p.parse_args()


class Server:
    def __init__(self, quire, folder):
        target = ["--step-target-ms", str(a.step_target_ms)] if a.step_target_ms else []
        self.process = subprocess.Popen([quire, "serve", a.model, "--port", "0", "--batch-dir", f"{folder}/store", *target], stderr=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stderr:
            found = re.search(r"http://127.0.0.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def call(self, method, path, body=None, content_type="application/json"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body, {"Content-Type": content_type} if body else {})
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text
        return json.loads(text)

    def begin_batch(self):
        def line(i):
            prompt = [(i * 7919 + k * 31) % 1000 for k in range(a.line_input)]
            return json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {"prompt": prompt, "max_tokens": a.line_output, "ignore_eos": True}})

        text = "\n".join(line(i) for i in range(a.lines))
        form = ('--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
                f'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{text}\r\n--x--\r\n')
        file = self.call("POST", "/v1/files", form.encode(), "multipart/form-data; boundary=x")
        body = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
        return self.call("POST", "/v1/batches", json.dumps(body))["id"]

    def batch_tokens(self, batch):
        state = self.call("GET", f"/v1/batches/{batch}")
        assert state["status"] in ("validating", "in_progress"), state
        return state["usage"]["output_tokens"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def live(quire, server, seed):
    command = [quire, "bench", "serve", "--url", f"http://127.0.0.1:{server.port}", "--request-rate", str(a.rate), "--num-prompts", str(a.requests), "--input-len", str(a.input),
               "--output-len", str(a.output), "--ignore-eos", "--seed", str(seed), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def measure(quire, server, kind, seed):
    row = {"kind": kind}
    if kind == "with":
        batch = server.begin_batch()
        while server.batch_tokens(batch) == 0:
            time.sleep(0.2)
    began, before = time.monotonic(), server.batch_tokens(batch) if kind == "with" else 0
    got = live(quire, server, seed)
    row.update({name: round(got[name], 2) for name in ("median_ttft_ms", "p95_ttft_ms", "median_itl_ms", "p99_itl_ms")})
    if kind == "with":
        row["batch_tokens_per_second"] = round((server.batch_tokens(batch) - before) / (time.monotonic() - began), 1)
        server.call("POST", f"/v1/batches/{batch}/cancel", "{}")
        while server.call("GET", f"/v1/batches/{batch}")["status"] != "cancelled":
            time.sleep(0.1)
    row["load"] = round(os.getloadavg()[0], 1)
    return row


ratios = {}
for number in range(a.rounds):
    for quire in [a.quire, *([a.other] if a.other else [])][::1 if number % 2 else -1]:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(quire, folder)
            live(quire, server, 99)
            rows = {}
            for kind in ("without", "with")[::1 if number // 2 % 2 == 0 else -1]:
                rows[kind] = measure(quire, server, kind, number)
                print(json.dumps({"round": number, "quire": quire, **rows[kind]}), flush=True)
            server.stop()
        for name in ("p95_ttft_ms", "median_itl_ms"):
            ratios.setdefault((quire, name), []).append(rows["with"][name] / rows["without"][name])
for (quire, name), values in ratios.items():
    print(json.dumps({"quire": quire, "ratio": name, "median": round(statistics.median(values), 2), "all": [round(v, 2) for v in sorted(values)]}))
