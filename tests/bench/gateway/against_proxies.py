#!/usr/bin/env python3
"""What the gateway adds to a chat of 200 tokens, beside nginx and LiteLLM in front of the same upstream server.

    python3 tests/bench/gateway/against_proxies.py --rounds 5 [--litellm PROGRAM] [--json FILE]

The upstream server and the client are relay_bench.c. The client and the upstream have the last core, the proxy the first
one alone. In each round, in turns: no proxy, the gateway, nginx (one worker, kept connections, no buffering), and
LiteLLM's proxy (one worker) where its program is given. One connection gives the added latency, 32 the requests a second.
Needs a release build with tests and nginx; only the standard library.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / "build" / "tests" / "bench" / "relay_bench"
MODES = {"reply": [], "stream": ["stream"]}

NGINX = """
daemon off;
worker_processes 1;
error_log stderr warn;
pid {directory}/pid;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 1000000000;
    upstream chat {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://chat;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""

LITELLM = """
model_list:
  - model_name: "null"
    litellm_params: {{model: "openai/null", api_base: "http://127.0.0.1:{upstream}/v1", api_key: key}}
litellm_settings: {{telemetry: false, callbacks: []}}
"""

QUIRE = """
models:
  "null": {{targets: [{{url: "http://127.0.0.1:{upstream}/v1"}}], price_per_1k: {{input: 0.00015, output: 0.0006}}}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(core, argv, port, wait_s=10, **more):
    """Starts a program on one core and waits until its port accepts."""
    process = subprocess.Popen(["taskset", "-c", str(core), *map(str, argv)], **more)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{argv[0]} did not come up")
            time.sleep(0.05)


def proxies(directory, upstream, litellm):
    """{name: (port, process)}"""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = {}
    port = free_port()
    models = directory / "models.yaml"
    models.write_text(QUIRE.format(upstream=upstream))
    running["quire"] = port, start(0, [ROOT / "build" / "quire", "serve", "--models", models, "--host", "127.0.0.1",
                                       "--port", port], port, **quiet)
    port = free_port()
    config = directory / "nginx.conf"
    config.write_text(NGINX.format(directory=directory, port=port, upstream=upstream))
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") or sys.exit("apt-get install nginx-light")
    running["nginx"] = port, start(0, [nginx, "-p", directory, "-c", config], port)
    if litellm:
        port = free_port()
        config = directory / "litellm.yaml"
        config.write_text(LITELLM.format(upstream=upstream))
        running["litellm"] = port, start(0, [litellm, "--config", config, "--host", "127.0.0.1", "--port", port], port, 120,
                                         env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                                         "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}, **quiet)
    return running


def client(port, connections, seconds, mode):
    last = os.cpu_count() - 1
    said = subprocess.run(["taskset", "-c", str(last), BENCH, "client", str(port), str(connections), str(seconds),
                           *MODES[mode]], check=True, capture_output=True, text=True).stdout
    return json.loads(said)


def spread(values):
    return f"{statistics.median(values):,.3g} ({min(values):,.3g} – {max(values):,.3g})"


def report(rounds, names):
    for mode in MODES:
        for name in names:
            one = [r[mode][name]["one"] for r in rounds]
            added = [(r[mode][name]["one"]["p50_us"] - r[mode]["direct"]["one"]["p50_us"]) / 1000 for r in rounds]
            print(f"{mode:7} {name:8} added p50 {spread(added)} ms, p99 {spread([o['p99_us'] / 1000 for o in one])} ms, "
                  f"{spread([r[mode][name]['many']['requests_per_s'] for r in rounds])} requests/s")
        for other in [n for n in names if n not in ("direct", "quire")]:
            ratios = [r[mode]["quire"]["many"]["requests_per_s"] / r[mode][other]["many"]["requests_per_s"] for r in rounds]
            print(f"{mode:7} quire / {other}: requests/s {spread(ratios)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement, after half a second of warming")
    parser.add_argument("--litellm", help="LiteLLM's program")
    parser.add_argument("--json", help="file for the raw rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        upstream = free_port()
        server = start(os.cpu_count() - 1, [BENCH, "upstream", upstream], upstream)
        running = proxies(pathlib.Path(folder), upstream, options.litellm)
        ports = {"direct": upstream, **{name: port for name, (port, _) in running.items()}}
        rounds = []
        try:
            for i in range(options.rounds):
                order = list(ports) if i % 2 == 0 else list(ports)[::-1]
                rounds.append({mode: {name: {"one": client(ports[name], 1, options.seconds, mode),
                                             "many": client(ports[name], 32, options.seconds, mode)} for name in order}
                               for mode in MODES})
                print(f"round {i + 1} of {options.rounds}", file=sys.stderr)
        finally:
            for process in [server, *(p for _, p in running.values())]:
                process.terminate()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"command": " ".join(sys.argv), "rounds": rounds}, indent=1) + "\n")
    report(rounds, list(ports))


if __name__ == "__main__":
    main()
