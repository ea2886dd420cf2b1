#!/usr/bin/env python3
"""Requests per second of the front end, compared with nginx sending a constant reply.

    python3 tests/bench/server/against_nginx.py --rounds 5 [--json FILE]

Runs alternate on the same cores with the same client (tests/bench/request_client.c, 32 persistent connections):
`host_bench --only requests`, a whole server without kernels, for /v1/completions of 16 words and one token; and
nginx, which discards the body and returns a reply of the same length. Needs nginx and a release build with tests;
only the standard library. Prints each round and the medians.
"""

import argparse
import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "tools" / "demo_model" / "model"
REPLY_BYTES = 480  # of a completion of one token

CONFIG = """
daemon off;
worker_processes auto;
error_log stderr warn;
pid {directory}/pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    default_type application/json;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 200 '{reply}'; }}
    }}
}}
"""


def bench(program, *arguments):
    said = subprocess.run([program, "--json", *arguments], check=True, capture_output=True, text=True).stdout
    return {row["name"]: row for row in json.loads(said)}


def start_nginx(nginx, directory):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    reply = json.dumps({"text": "x" * (REPLY_BYTES - 12)})
    config = pathlib.Path(directory, "nginx.conf")
    config.write_text(CONFIG.format(directory=directory, port=port, reply=reply))
    process = subprocess.Popen([nginx, "-p", directory, "-c", str(config)])
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, port
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("nginx did not come up")
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--host-bench", default=ROOT / "build/tests/bench/host_bench")
    parser.add_argument("--nginx", default=shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin"))
    parser.add_argument("--json", type=pathlib.Path, help="every row of every round")
    options = parser.parse_args()
    if not options.nginx:
        sys.exit("nginx is not there: apt-get install nginx-light")
    rounds = []
    with tempfile.TemporaryDirectory() as directory:
        for i in range(options.rounds):
            ours = bench(options.host_bench, "--only", "requests", MODEL)
            # Stopped while Quire is measured.
            nginx, port = start_nginx(options.nginx, directory)
            try:
                theirs = bench(options.host_bench, "--other-server", str(port))
            finally:
                nginx.terminate()
                nginx.wait()
            rounds.append({"quire": ours, "nginx": theirs})
            rate = ours["requests, 32 connections, 16 words: rate"]
            other = next(iter(theirs.values()))
            print(f"round {i + 1}: quire {rate['median']:,.0f}/s ({rate['p5']:,.0f} to {rate['p95']:,.0f}), "
                  f"nginx {other['median']:,.0f}/s", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rounds, indent=1) + "\n")
    ours = statistics.median(r["quire"]["requests, 32 connections, 16 words: rate"]["median"] for r in rounds)
    theirs = statistics.median(next(iter(r["nginx"].values()))["median"] for r in rounds)
    print(f"medians: quire {ours:,.0f}/s, nginx {theirs:,.0f}/s, quire / nginx {ours / theirs:.3f}")


if __name__ == "__main__":
    main()
