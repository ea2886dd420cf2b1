#!/usr/bin/env python3
"""Runs Prometheus on a server under load and evaluates every expression of the dashboard: each must have data. Its
promtool checks /metrics, too, and may report only names that are vLLM's.

    python3 tools/check_dashboard.py [DASHBOARD.json ...]

Default: docs/grafana/quire.json. Needs build/quire and, on the path, `prometheus` and `promtool` (Debian: apt-get install
prometheus). Takes half a minute. The demo model is served with two tenants, one of which is over its limit.
"""

import concurrent.futures
import json
import math
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOAD_SECONDS = 20
TENANTS = [{"name": "busy", "key": "key-busy"}, {"name": "limited", "key": "key-limited", "requests_per_minute": 60}]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def get(url):
    return urllib.request.urlopen(url, timeout=20).read().decode()


def wait_for(url):
    deadline = time.monotonic() + 60
    while True:
        try:
            return get(url)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def ask(port, key, i):
    body = {"prompt": "Once upon a time there was a small house and a big tree. " * 4 + str(i % 3), "max_tokens": 24}
    if i % 4 == 0:  # each a grammar of its own
        body["guided_regex"] = "[a-z ]{5,9}%d" % time.monotonic_ns()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                     {"Authorization": "Bearer " + key})
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise


def load(port):
    until = time.monotonic() + LOAD_SECONDS

    def one(worker):
        i = 0
        while time.monotonic() < until:
            ask(port, TENANTS[worker % 2]["key"], i)
            i += 1
            time.sleep(0.05)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))


def expressions(path):
    """(panel, expression) with Grafana's variables filled in."""
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$__rate_interval", "10s")
            yield panel["title"], re.sub(r'=~?"\$\{?\w+\}?"', '=~".+"', expr)


def check(prometheus, path, directory):
    rules = {"groups": [{"name": "g", "rules": []}]}
    bad = n = 0
    for title, expr in expressions(path):
        n += 1
        rules["groups"][0]["rules"].append({"record": f"r{n}", "expr": expr})
        answer = json.loads(get(prometheus + "/api/v1/query?" + urllib.parse.urlencode({"query": expr})))
        values = [float(series["value"][1]) for series in answer["data"]["result"]]
        good = any(map(math.isfinite, values))  # a tenant that sends nothing has a share of 0/0
        bad += not good
        print(f"{'ok  ' if good else 'BAD '} {title}: {', '.join(f'{v:.4g}' for v in values) or 'no data'}   {'' if good else expr}")
    file = directory / "rules.yml"
    file.write_text(json.dumps(rules))  # JSON is YAML
    subprocess.run(["promtool", "check", "rules", str(file)], check=True, stdout=subprocess.DEVNULL)
    print(f"{path}: {n - bad} of {n} expressions have data")
    return bad


def remarks(text):
    """promtool's report on /metrics, without two on vLLM's names: they contain a colon, and one histogram ends like a
    counter."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if line and "metric names should not contain ':'" not in line
            and line != 'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix']
    print(f"/metrics: {len(ours)} remarks of promtool", *ours, sep="\n    ")
    return len(ours)


def main():
    boards = [pathlib.Path(p) for p in sys.argv[1:]] or [ROOT / "docs" / "grafana" / "quire.json"]
    api, metrics, prometheus = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "tenants.json").write_text(json.dumps(TENANTS))
        config = (ROOT / "docs" / "grafana" / "prometheus.yml").read_text()
        (directory / "prometheus.yml").write_text(config.replace("10s", "1s").replace("localhost:9464", f"localhost:{metrics}"))
        processes = [
            subprocess.Popen([ROOT / "build" / "quire", "serve", ROOT / "tools" / "demo_model" / "model", "--port", str(api),
                              "--tenants", directory / "tenants.json", "--tenant-metrics", "--metrics-listen", f"127.0.0.1:{metrics}",
                              "--max-model-len", "1024", "--device", "cpu", "-tp", "2"], stderr=subprocess.DEVNULL),
            subprocess.Popen(["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                              f"--web.listen-address=127.0.0.1:{prometheus}"], stderr=subprocess.DEVNULL)]
        try:
            url = f"http://127.0.0.1:{prometheus}"
            wait_for(f"http://127.0.0.1:{metrics}/health")
            wait_for(url + "/-/ready")
            load(api)
            bad = remarks(get(f"http://127.0.0.1:{metrics}/metrics")) + sum(check(url, board, directory) for board in boards)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
