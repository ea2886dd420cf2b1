#!/usr/bin/env python3
"""Replies from a response cache: rate over HTTP, and a day with repeated questions, compared with other caches.

    python3 tests/bench/cache/response_cache.py hits [--rounds 5] [--peers VENV] [--json FILE]
    python3 tests/bench/cache/response_cache.py day [--requests 2000] [--trace CSV] [--peers VENV] [--json FILE]

hits: one question with a cached answer of 200 tokens, requested over 16 connections by wrk on the second core; the
server has the first. In turns: Quire (`--response-cache memory`), LiteLLM's proxy with its cache in memory,
GPTCache's server with its exact map (best settings of each: one worker, in memory, no logs). day: questions drawn by
a seeded Zipf law, their lengths and answers' lengths from a trace (AzureLLMInferenceTrace2023:
TIMESTAMP,ContextTokens,GeneratedTokens), eight clients: hit rate, and p50 and p99 of the time to the whole answer.
LiteLLM and GPTCache run in front of the same Quire without a cache.

Needs wrk (Debian's package), a release build, and for the peers a virtual environment with `litellm[proxy]` and
`gptcache`; without --peers only Quire is measured, and the output mentions it.
"""

import argparse
import concurrent.futures
import csv
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "tools" / "demo_model" / "model"
QUIRE = ROOT / "build" / "quire"
KEY = "sk-0123456789abcdef"
TOKENS = 200

LITELLM = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
litellm_settings: {{cache: true, cache_params: {{type: local}}}}
"""
# The two routes of gptcache_server, which itself requires an openai of 2023, with the exact map instead of vectors:
# its best case.
GPTCACHE = """
import sys, fastapi, pydantic, uvicorn
from gptcache import cache
from gptcache.adapter.api import get, put
from gptcache.processor.pre import get_prompt
class CacheData(pydantic.BaseModel):
    prompt: str
    answer: str | None = ""
app = fastapi.FastAPI()
@app.post("/put")
async def put_cache(data: CacheData) -> str:
    put(data.prompt, data.answer)
    return "done"
@app.post("/get")
async def get_cache(data: CacheData) -> CacheData:
    return CacheData(prompt=data.prompt, answer=get(data.prompt))
cache.init(pre_embedding_func=get_prompt)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A process on one core that answers on self.port."""

    def __init__(self, name, command, port, directory, cores="0", env=None):
        self.name, self.port = name, port
        self.log = open(pathlib.Path(directory, name + ".log"), "w")
        self.process = subprocess.Popen(["taskset", "-c", cores, *map(str, command)], stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(env or {})})
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{name} did not come up: see {self.log.name}")
                time.sleep(0.1)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def start_quire(directory, cores, *flags):
    port = free_port()
    server = Server("quire", [QUIRE, "serve", MODEL, "--host", "127.0.0.1", "--port", port, "--served-model-name", "m", *flags],
                    port, directory, cores)
    deadline = time.monotonic() + 60
    while call(port, "GET", "/health", None)[0] != 200:
        if time.monotonic() > deadline:
            sys.exit("quire is not ready")
        time.sleep(0.1)
    return server


def start_litellm(directory, peers, upstream):
    config = pathlib.Path(directory, "litellm.yaml")
    config.write_text(LITELLM.format(model="m", port=upstream))
    port = free_port()
    server = Server("litellm", [peers / "bin" / "litellm", "--config", config, "--host", "127.0.0.1", "--port", port], port, directory,
                    env={"LITELLM_MASTER_KEY": KEY})
    deadline = time.monotonic() + 120
    while call(port, "GET", "/health/liveliness", None)[0] != 200:
        if time.monotonic() > deadline:
            sys.exit("LiteLLM is not ready")
        time.sleep(0.2)
    return server


def start_gptcache(directory, peers):
    port = free_port()
    return Server("gptcache", [peers / "bin" / "python", "-c", GPTCACHE, port], port, directory)


def call(port, method, path, body):
    """Status, headers and body; status 0: no server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    except OSError:
        return 0, {}, b""
    finally:
        connection.close()


def question(text, n_tokens):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": n_tokens,
            "ignore_eos": True}


def wrk(port, path, body, seconds, directory):
    script = pathlib.Path(directory, "wrk.lua")
    script.write_text(f'wrk.method = "POST"\nwrk.body = [==[{json.dumps(body)}]==]\n'
                      'wrk.headers["Content-Type"] = "application/json"\n'
                      f'wrk.headers["Authorization"] = "Bearer {KEY}"\n')
    said = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", "-c16", f"-d{seconds}", "-s", script, "--latency",
                           f"http://127.0.0.1:{port}{path}"], check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in said:
        sys.exit(f"{path}: not every reply was good:\n{said}")
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", said)[1])


# ---- hits ----

def hits_of_quire(directory, seconds):
    server = start_quire(directory, "0", "--response-cache", "memory")
    try:
        body = question("Tell me a story about a river.", TOKENS)
        status, headers, first = call(server.port, "POST", "/v1/chat/completions", body)
        again = call(server.port, "POST", "/v1/chat/completions", body)
        said = [json.loads(first)["choices"], json.loads(again[2])["choices"]]
        if status != 200 or again[1].get("x-quire-cache") != "exact" or said[0] != said[1]:
            sys.exit(f"quire: no hit, or another answer: {status} {again[1]}")
        return wrk(server.port, "/v1/chat/completions", body, seconds, directory)
    finally:
        server.stop()


def hits_of_litellm(directory, peers, seconds):
    upstream = start_quire(directory, "1")
    server = start_litellm(directory, peers, upstream.port)
    try:
        body = {k: v for k, v in question("Tell me a story about a river.", TOKENS).items() if k != "ignore_eos"}
        ids = [json.loads(call(server.port, "POST", "/v1/chat/completions", body)[2])["id"] for _ in range(3)]
        if ids[1] != ids[2]:
            sys.exit("LiteLLM: no hit")
        return wrk(server.port, "/v1/chat/completions", body, seconds, directory)
    finally:
        server.stop()
        upstream.stop()


def hits_of_gptcache(directory, peers, seconds):
    server = start_gptcache(directory, peers)
    try:
        prompt = "Tell me a story about a river."
        call(server.port, "POST", "/put", {"prompt": prompt, "answer": "word " * TOKENS})
        if json.loads(call(server.port, "POST", "/get", {"prompt": prompt})[2])["answer"] != "word " * TOKENS:
            sys.exit("GPTCache: no hit")
        return wrk(server.port, "/get", {"prompt": prompt}, seconds, directory)
    finally:
        server.stop()


def hits(options, directory):
    rows = []
    for i in range(options.rounds):
        row = {"quire": hits_of_quire(directory, options.seconds)}
        if options.peers:
            row["litellm"] = hits_of_litellm(directory, options.peers, options.seconds)
            row["gptcache"] = hits_of_gptcache(directory, options.peers, options.seconds)
        rows.append(row)
        print(f"round {i + 1}: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in row.items()), flush=True)
    medians = {name: statistics.median(r[name] for r in rows) for name in rows[0]}
    for name, rate in medians.items():
        spread = [r[name] for r in rows]
        print(f"{name:9} {rate:10,.0f} hits/s ({min(spread):,.0f} to {max(spread):,.0f}), quire is {medians['quire'] / rate:,.1f} x")
    return {"rounds": rows, "medians": medians}


# ---- day ----

def draw_day(options):
    """(text, tokens of the answer) by rank: rank r is asked with a probability proportional to 1 / r^0.8, which makes about a third of them repeats."""
    rng = random.Random(options.seed)
    with open(options.trace, newline="") as file:
        lengths = [(int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(file)]
    words = "river house apple window quiet garden letter morning stone winter music road".split()
    n_questions = 2 * options.requests
    texts = []
    for i in range(n_questions):
        n_prompt, n_answer = lengths[rng.randrange(len(lengths))]
        n_words = max(4, min(n_prompt // 8, 120))
        texts.append((f"{i}: " + " ".join(rng.choice(words) for _ in range(n_words)), max(1, min(n_answer, 64))))
    weights = [1 / (r + 1) ** 0.8 for r in range(n_questions)]
    return [texts[i] for i in rng.choices(range(n_questions), weights, k=options.requests)]


def run_day(requests, one):
    """Seconds of each, in order; eight clients."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def timed(request):
            begun = time.perf_counter()
            hit = one(*request)
            return time.perf_counter() - begun, hit
        return list(pool.map(timed, requests))


def day_of(name, options, directory, requests):
    upstream = None
    if name == "quire":
        server = start_quire(directory, "0", "--response-cache", "memory", "--response-cache-entries", "65536")
    else:
        upstream = start_quire(directory, "0")
        server = start_litellm(directory, options.peers, upstream.port) if name == "litellm" else start_gptcache(directory, options.peers)
    seen = {}

    def chat(text, n_tokens):
        body = question(text, n_tokens)
        if name != "quire":
            body.pop("ignore_eos")
        status, headers, reply = call(server.port, "POST", "/v1/chat/completions", body)
        if status != 200:
            sys.exit(f"{name}: {status} {reply[:200]}")
        reply = json.loads(reply)
        is_repeat = seen.setdefault(text, reply["id"]) == reply["id"] if name == "litellm" else False
        return headers.get("x-quire-cache") == "exact" or is_repeat and len(reply) > 0

    def aside(text, n_tokens):  # GPTCache's server is queried first and updated afterwards, as in its documentation
        kept = json.loads(call(server.port, "POST", "/get", {"prompt": text})[2])["answer"]
        if kept:
            return True
        said = call(upstream.port, "POST", "/v1/chat/completions", question(text, n_tokens))[2]
        call(server.port, "POST", "/put", {"prompt": text, "answer": json.loads(said)["choices"][0]["message"]["content"] or " "})
        return False

    try:
        times = run_day(requests, aside if name == "gptcache" else chat)
    finally:
        server.stop()
        if upstream:
            upstream.stop()
    seconds = sorted(t for t, _ in times)
    n_hits = sum(hit for _, hit in times)
    if name == "litellm":  # the first request of a text has its own id, too
        n_hits -= len({text for text, _ in requests})
    return {"hit_rate": n_hits / len(requests), "p50_ms": seconds[len(seconds) // 2] * 1e3, "p99_ms": seconds[len(seconds) * 99 // 100] * 1e3}


def day(options, directory):
    requests = draw_day(options)
    best = 1 - len(set(requests)) / len(requests)
    print(f"{len(requests)} requests, {best:.1%} of them asked before")
    found = {}
    for name in ["quire"] + (["litellm", "gptcache"] if options.peers else []):
        found[name] = day_of(name, options, directory, requests)
        print(f"{name:9} hit rate {found[name]['hit_rate']:.1%}, p50 {found[name]['p50_ms']:.2f} ms, p99 {found[name]['p99_ms']:.1f} ms", flush=True)
    return {"asked_before": best, "found": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["hits", "day"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement of hits")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--trace", type=pathlib.Path, help="CSV with ContextTokens and GeneratedTokens")
    parser.add_argument("--peers", type=pathlib.Path, help="a virtual environment with litellm[proxy] and gptcache")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if not shutil.which("wrk") and options.what == "hits":
        sys.exit("wrk is not there: apt-get install wrk")
    if options.what == "day" and not options.trace:
        sys.exit("day needs --trace CSV")
    if not options.peers:
        print("without --peers: LiteLLM and GPTCache are not measured")
    with tempfile.TemporaryDirectory() as directory:
        found = {"hits": hits, "day": day}[options.what](options, directory)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
