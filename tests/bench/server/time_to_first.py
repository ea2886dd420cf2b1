#!/usr/bin/env python3
"""The share of the path to the engine and back in the time to the first token, with many streams at once.

    python3 tests/bench/server/time_to_first.py --streams 512 --requests 2048 --rounds 3 [--json FILE]

`quire serve` with the demo model and --record, `quire bench serve` with so many streams in flight. The recording has the
engine's own time of each request: from its arrival at engine_submit() to the end of the step that gave its first token.
The client's is from sending to the first event. Compares the percentiles of both, for the same requests of one run.
Needs a release build; only the standard library.
"""

import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "record"))
import recording_format as recording  # noqa: E402

MODEL = ROOT / "tools" / "demo_model" / "model"


def percentile(values, p):
    """As numpy.percentile, which `quire bench serve` follows too."""
    values, at = sorted(values), (len(values) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def engine_times_ms(data, n_requests):
    """From submission to first token, of the last n_requests that were submitted."""
    arrivals, owners, firsts, version = {}, {}, {}, None
    for _, kind, body in recording.records(data):
        value = recording.parse(kind, body, version)
        if kind == "header":
            version = value["version"]
        elif kind == "submit":
            arrivals[value["id"]] = value["arrival_us"]
            owners.update({seq: value["id"] for seq in value["seqs"]})
        elif kind == "commit":
            for seq, tokens, _ in value["results"]:
                if tokens:
                    firsts.setdefault(owners[seq], value["done_us"])
    wanted = sorted(arrivals)[-n_requests:]
    return [(firsts[i] - arrivals[i]) / 1000 for i in wanted]


def run(program, options, directory):
    record = pathlib.Path(directory, "run.rec")
    log = open(pathlib.Path(directory, "log"), "w+")
    server = subprocess.Popen([program, "serve", MODEL, "--port", "0", "--record", record, *options.serve], stdout=log,
                              stderr=log)
    try:
        deadline, found = time.monotonic() + 60, None
        while not found:
            log.seek(0)
            text = log.read()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not come up:\n{text}")
            time.sleep(0.1)
        said = subprocess.run([program, "bench", "serve", "--url", found.group(0), "--json", "--ignore-eos", "--input-len",
                               "32", "--output-len", "64", "--num-prompts", str(options.requests), "--max-concurrency",
                               str(options.streams), "--metric-percentiles", "50,99"], check=True, capture_output=True, text=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    client = json.loads(said.stdout)
    times = engine_times_ms(record.read_bytes(), options.requests)
    record.unlink()
    return {"failed": client["failed"], "requests_per_s": client["request_throughput"],
            "client_p50_ms": client["median_ttft_ms"], "client_p99_ms": client["p99_ttft_ms"],
            "engine_p50_ms": percentile(times, 50), "engine_p99_ms": percentile(times, 99)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--requests", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default=ROOT / "build/quire")
    parser.add_argument("--json", type=pathlib.Path, help="every round")
    parser.add_argument("serve", nargs="*", help="options of quire serve, after --")
    options = parser.parse_args()
    rounds = []
    for i in range(options.rounds):
        with tempfile.TemporaryDirectory() as directory:
            r = run(options.program, options, directory)
        rounds.append(r)
        print(f"round {i + 1}: {r['requests_per_s']:.0f} requests/s; time to first token p50 {r['client_p50_ms']:,.1f} ms at the "
              f"client, {r['engine_p50_ms']:,.1f} in the engine; p99 {r['client_p99_ms']:,.1f}, {r['engine_p99_ms']:,.1f}, ratio "
              f"{r['client_p99_ms'] / r['engine_p99_ms']:.3f}; {r['failed']} failed", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
