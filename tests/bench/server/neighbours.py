#!/usr/bin/env python3
"""The default number of compute threads compared with fixed numbers, while other processes are busy.

    python3 tests/bench/server/neighbours.py [--quire build/quire] [--model DIR] [--neighbours 0,1,2,4] [--streams 1,16,64]

A server with the default and one for each --threads run at once; idle ones use no CPU. With each number of
neighbours, processes that compute without end, they alternate: streams of 64 tokens, each finished stream followed by
the next, for --seconds. A ratio compares the total time of all rounds, best fixed count against the default; the
range holds the middle half of the rounds, each compared with its neighbour in time. Other activity of the machine is
reported as its load. Needs only the standard library and a built quire. It judges nothing: it prints a table in
Markdown, and JSON with --json.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Server:
    def __init__(self, quire, model, threads, stack):
        self.name = f"--threads {threads}" if threads else "default"
        arguments = [quire, "serve", model, "--port", "0", "--max-model-len", "512", "--kv-cache-memory", "256M"]
        if threads:
            arguments += ["--threads", str(threads)]
        log = stack.enter_context(tempfile.NamedTemporaryFile("w+"))
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        found = None
        while not found:
            if process.poll() is not None:
                sys.exit(pathlib.Path(log.name).read_text())
            found = re.search(r"http://127\.0\.0\.1:\d+", pathlib.Path(log.name).read_text())
        self.url = found.group(0)

    def load(self, quire, streams, requests):
        """Requests per second."""
        command = [quire, "bench", "serve", "--url", self.url, "--num-prompts", str(requests), "--max-concurrency", str(streams),
                   "--ignore-eos", "--input-len", "16", "--output-len", "64", "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["request_throughput"]


@contextlib.contextmanager
def busy(n):
    processes = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(options, servers, streams):
    requests = max(streams, 4)
    rate = servers[-1].load(options.quire, streams, requests)
    requests = max(requests, int(rate * options.seconds))
    rates = {server.name: [] for server in servers}
    for turn in range(options.rounds):
        for server in servers if turn % 2 == 0 else reversed(servers):
            rates[server.name].append(server.load(options.quire, streams, requests))
    return rates


def whole(values):
    """The rate over all rounds, which had the same number of requests each."""
    return statistics.harmonic_mean(values)


def ratios(rates):
    """Ratio of the default to the best fixed count: which count, in all, and round by round."""
    best = max((name for name in rates if name != "default"), key=lambda name: whole(rates[name]))
    return best, whole(rates["default"]) / whole(rates[best]), sorted(a / b for a, b in zip(rates["default"], rates[best]))


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quire", default=str(ROOT / "build" / "quire"))
    parser.add_argument("--model", default=str(ROOT / "tools" / "demo_model" / "model"))
    parser.add_argument("--threads", type=numbers, default=[1, os.cpu_count()], help="fixed counts (default: 1, and all cores)")
    parser.add_argument("--neighbours", type=numbers, default=[0, 1, 2, 4])
    parser.add_argument("--streams", type=numbers, default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with contextlib.ExitStack() as stack:
        servers = [Server(options.quire, options.model, threads, stack) for threads in [0, *options.threads]]
        if not options.json:
            print(f"| neighbours | streams | {' | '.join(s.name for s in servers)} | default ÷ best fixed | load |")
            print("|" + "---|" * (len(servers) + 4))
        for neighbours in options.neighbours:
            with busy(neighbours):
                for streams in options.streams:
                    rates = measure(options, servers, streams)
                    best, ratio, rounds = ratios(rates)
                    row = {"neighbours": neighbours, "streams": streams, "requests_per_second": rates, "best": best,
                           "ratio": ratio, "ratios": rounds, "load": os.getloadavg()[0]}
                    rows.append(row)
                    if not options.json:
                        cells = " | ".join(f"{whole(v):.1f}" for v in rates.values())
                        print(f"| {neighbours} | {streams} | {cells} | {ratio:.2f} "
                              f"({rounds[len(rounds) // 4]:.2f}–{rounds[-1 - len(rounds) // 4]:.2f}) | {row['load']:.0f} |", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
