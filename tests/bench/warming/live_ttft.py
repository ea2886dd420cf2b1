#!/usr/bin/env python3
"""The delay of live requests while a server's caches are warmed.

    python3 tests/bench/warming/live_ttft.py [--quire build/quire] [--prompts 10000] [--rate 30] [--seconds 5] [--words 0] [--json FILE]

A server of the demo model with live requests (quire bench serve, Poisson arrivals, new prompts), and in turns, in an
order that is reversed in each round, until all prompts are warmed:

    off         nothing
    warm        quire cache warm --answers: in the background, and pausing while others ask
    background  the same requests with "background": true by a client that never pauses
    plain       the same without

The 95th percentile of the time to first token of each turn, and for each round its ratio to off's.
"""

import argparse
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
ARMS = ("off", "warm", "background", "plain")


def bodies(first, n, of, words):
    """Of the same length, so that they are sent in this order."""
    return [{"prompt": f"{of}: tell me story number {i:06d} about the fox and the well, please. " + f"the house {i:06d} and the road " * (words // 7), "max_tokens": 8,
             "temperature": 0} for i in range(first, first + n)]


def send(port, of, seconds, words):
    """A client that never pauses, in its own process; prints the number of requests."""
    connection, n, began = http.client.HTTPConnection("127.0.0.1", port), 0, time.monotonic()
    while time.monotonic() - began < seconds:
        [body] = bodies(n, 1, f"{of} {time.time_ns()}", words)
        connection.request("POST", "/v1/completions", json.dumps({**body, "background": of == "background"}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        reply.read()
        n += 1
    print(n)


def begin(quire):
    server = subprocess.Popen([quire, "serve", ROOT / "tools/demo_model/model", "--port", "0", "--response-cache", "memory", "--response-cache-entries", "65536",
                               "--response-cache-memory", "1G", "--disable-log-stats"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if match := re.search(r"http://[0-9.]+:(\d+)", line):
            return server, int(match.group(1))
    sys.exit("the server did not come up")


def turn(args, port, arm, seed, asked, folder):
    """One turn: the percentile, and the number of requests sent meanwhile."""
    seconds = args.seconds + 1  # begins before the live ones and ends after them
    beside = None
    if arm == "warm":
        path = pathlib.Path(folder) / "asked.jsonl"
        path.write_text("".join(json.dumps(b) + "\n" for b in asked))
        beside = subprocess.Popen([args.quire, "cache", "warm", f"http://127.0.0.1:{port}", "--answers", path, "--budget-seconds", str(seconds), "--json"],
                                  stdout=subprocess.PIPE, text=True)
    elif arm != "off":
        beside = subprocess.Popen([sys.executable, __file__, "--send", arm, "--port", str(port), "--seconds", str(seconds), "--words", str(args.words)], stdout=subprocess.PIPE, text=True)
    time.sleep(0.3)
    live = subprocess.run([args.quire, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--num-prompts", str(int(args.rate * args.seconds)), "--request-rate", str(args.rate),
                           "--output-len", "16", "--ignore-eos", "--json", "--seed", str(seed)], stdout=subprocess.PIPE, text=True, check=True)
    live = json.loads(live.stdout)
    assert live["failed"] == 0
    said = beside.communicate()[0] if beside else "0"
    got = {"arm": arm, "p95_ttft_ms": live["p95_ttft_ms"], "p50_ttft_ms": live["p50_ttft_ms"], "p95_itl_ms": live["p95_itl_ms"], "live": live["completed"]}
    if arm == "warm":
        said = json.loads(said)
        return {**got, "beside": said["sent"], "paused_s": said["paused_seconds"], "ended": said["ended"]}
    return {**got, "beside": int(said)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quire", default=ROOT / "build/quire")
    p.add_argument("--prompts", type=int, default=10000)
    p.add_argument("--rate", type=float, default=30)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--words", type=int, default=0, help="that warmed prompts are longer")
    p.add_argument("--json")
    p.add_argument("--send", choices=ARMS)
    p.add_argument("--port", type=int)
    args = p.parse_args()
    if args.send:
        return send(args.port, args.send, args.seconds, args.words)
    server, port = begin(args.quire)
    rounds, asked = [], bodies(0, args.prompts, "warm", args.words)
    try:
        turn(args, port, "off", 1, asked, "")  # the first is not counted
        with tempfile.TemporaryDirectory() as folder:
            while asked:
                one = {}
                for arm in ARMS if len(rounds) % 2 == 0 else ARMS[::-1]:
                    one[arm] = turn(args, port, arm, 100 + 10 * len(rounds) + ARMS.index(arm), asked, folder)
                asked = asked[one["warm"]["beside"]:]
                if one["warm"]["ended"] == "budget_seconds":  # otherwise it did not run all the time
                    rounds.append(one)
                    print(" ".join(f"{arm} {one[arm]['p95_ttft_ms']:.2f} ms ({one[arm]['beside']})" for arm in ARMS), flush=True)
    finally:
        server.terminate()
        server.wait()
    ratios = {arm: [r[arm]["p95_ttft_ms"] / r["off"]["p95_ttft_ms"] for r in rounds] for arm in ARMS[1:]}
    for arm, of in ratios.items():
        print(f"{arm}: p95 TTFT {statistics.mean(r[arm]['p95_ttft_ms'] for r in rounds):.2f} ms to {statistics.mean(r['off']['p95_ttft_ms'] for r in rounds):.2f} ms; "
              f"ratio: median {statistics.median(of):.3f}, {min(of):.3f} to {max(of):.3f} in {len(of)} rounds; {sum(r[arm]['beside'] for r in rounds)} requests beside")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"prompts": args.prompts, "rate": args.rate, "seconds": args.seconds, "words": args.words, "rounds": rounds, "ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
