#!/usr/bin/env python3
"""Sends random requests with every cache on and with every cache off, and compares the replies bit for bit.

python3 tests/stress/cache_equal.py [--requests 3000] [--seed 1] [--embedder DIR] [--threads 6] [--store
sqlite|redis://...] [--ttl 3600]

One `quire serve` of the demo model caches nothing. Two others share a store and have all layers on:
- memory for 48 responses, so that most hits come from the store
- drafts of similar questions (--embedder, with a threshold of 0.3)
- pinned blocks
- every hit from memory is computed again (--cache-verify 1)
Requests of all four routes have few questions and many fields, streams and plain replies, greedy and seeded. A
tenth goes to both cached servers four times at once. A tenth is hung up on in the middle of its stream.
Everything in a reply is compared but ids, times, and the number of cached tokens. Half of all requests are sent
again at once.

Needs a release build; QUIRE names another program. Prints counts as JSON. Status 1: a reply or a recomputed
response differed, a server broke, or there were no hits at all.
"""

import argparse
import atexit
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIRE = os.environ.get("QUIRE", str(ROOT / "build" / "quire"))
MODEL = ROOT / "tools" / "demo_model" / "model"
OPENERS = ["tell me about", "what is", "explain", "describe", "please explain", "do not explain", "what does", "is it true of"]
THINGS = ["the sun", "a dog", "the cat", "rain", "the red dog", "two cats", "15 dogs", "50 dogs", "a goat and a key", "größe \U0001f431 日本"]
SYSTEMS = [None, None, "You are short.", "You are a pirate."]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
IGNORED = {"id", "created", "created_at", "completed_at", "prompt_tokens_details", "input_tokens_details", "cache_read_tokens",
           "cache_creation_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "item_id", "model"}


class Server:
    def __init__(self, *arguments):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([QUIRE, "serve", str(MODEL), "--port", "0", "--served-model-name", "demo", *map(str, arguments)],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        atexit.register(self.process.kill)
        deadline = time.monotonic() + 120
        while not (match := re.search(r"http://[0-9.]+:(\d+)", self.said())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.said())
            time.sleep(0.05)
        self.port = int(match.group(1))

    def said(self):
        return pathlib.Path(self.log.name).read_text()

    def ask(self, path, body, hang_up=False):
        """Returns status, headers and bytes; nothing for a request that is hung up on."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            c.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            reply = c.getresponse()
            if hang_up:
                reply.read(1 if body.get("max_tokens", 9) % 2 else 300)
                c.sock and c.sock.shutdown(socket.SHUT_RDWR)
                return None
            return reply.status, reply.headers, reply.read().decode()
        finally:
            c.close()

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "did not end"


def without(value):
    if isinstance(value, dict):
        kept = {k: without(v) for k, v in value.items() if k not in IGNORED}
        for part in ("cache_read_input_tokens", "cache_creation_input_tokens"):  # /v1/messages counts a prompt in three parts
            if value.get(part):
                kept["input_tokens"] += value[part]
        return kept
    if isinstance(value, list):
        return [without(v) for v in value]
    return value


def choice_of(event):
    return event["choices"][0]["index"] if event.get("choices") else -1


def told(status, text, stream):
    """The values to compare. A stream's events are grouped by choice: the order of the choices is not defined."""
    if not stream or status != 200:
        return status, without(json.loads(text))
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    by_choice = collections.defaultdict(list)
    for e in events:
        by_choice[choice_of(e)].append(without(e))
    return status, dict(by_choice), text.rstrip().endswith("[DONE]")


def sampling(r, body):
    body["temperature"] = r.choice([0, 0, 0.7, 1])
    if body["temperature"]:
        body["seed"] = r.choice([1, 2, 2**63 - 1])
    if r.random() < 0.15:
        body["top_p"] = r.choice([0.5, 0.9])
    return body


def wide(r, body):
    """Adds fields that chat and completions have."""
    for chance, field, values in ((0.2, "n", [2, 3]), (0.15, "stop", ["e", ["small", "."], " a"]), (0.1, "min_tokens", [3]),
                                  (0.1, "presence_penalty", [0.5, -1]), (0.1, "repetition_penalty", [1.3]), (0.1, "ignore_eos", [True]),
                                  (0.1, "logit_bias", [{"70": 5, "71": -100}]), (0.07, "bad_words", [["the", "dog"]]), (0.1, "top_k", [5]),
                                  (0.07, "min_p", [0.05]), (0.05, "truncate_prompt_tokens", [6]), (0.05, "include_stop_str_in_output", [True]),
                                  (0.07, "return_token_ids", [True]), (0.05, "stop_token_ids", [[100, 101]]), (0.05, "skip_special_tokens", [False])):
        if r.random() < chance:
            body[field] = r.choice(values)
    return body


def draw(r):
    """Draws a route and a body."""
    question = f"{r.choice(OPENERS)} {r.choice(THINGS)}"
    route = r.choice(["chat", "chat", "chat", "completions", "completions", "responses", "messages"])
    most = r.choice([1, 4, 12, 30, 60])
    body = sampling(r, {"model": "demo"})
    messages = [{"role": "user", "content": question}]
    system = r.choice(SYSTEMS)
    if r.random() < 0.2:
        messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello."}, *messages]
    if route == "responses":
        body.update(input=question, max_output_tokens=max(most, 16))
    elif route == "messages":
        body.update(messages=messages, max_tokens=most)
        body.pop("seed", None)
        body["temperature"] = 0
    else:
        body["max_tokens"] = most
        wide(r, body)
        if route == "completions":
            body["prompt"] = r.choice([question, [question, "Once upon a time"], [5, 6, 7, 8], [[5, 6], [9]], question + "\n"])
            if r.random() < 0.3:
                body["logprobs"] = r.choice([0, 3])
            if r.random() < 0.1:
                body["echo"] = True
        else:
            body["messages"] = messages if system is None else [{"role": "system", "content": system}, *messages]
            if r.random() < 0.3:
                body.update(logprobs=True, top_logprobs=r.choice([0, 2, 5]))
            if r.random() < 0.1:
                body.update(tools=[TOOL], tool_choice=r.choice(["auto", "none"]))
    if r.random() < 0.35:
        body["stream"] = True
        if route in ("chat", "completions") and r.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
    path = {"chat": "/v1/chat/completions"}.get(route, f"/v1/{route}")
    return path, body


class Run:
    def __init__(self, servers, options):
        self.off, self.on = servers[0], servers[1:]
        self.options = options
        self.wanted, self.counts, self.lock = {}, collections.Counter(), threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def want(self, path, body):
        key = json.dumps([path, body], sort_keys=True)
        if key not in self.wanted:
            status, _, text = self.off.ask(path, body)
            self.wanted[key] = told(status, text, body.get("stream"))
        return self.wanted[key]

    def compare(self, server, path, body):
        status, headers, text = server.ask(path, body)
        got, want = told(status, text, body.get("stream")), self.want(path, body)
        self.count(headers["x-quire-cache"] or f"status {status}")
        if got != want:
            self.count("differing")
            print(json.dumps({"path": path, "body": body, "cache": headers["x-quire-cache"], "got": got, "want": want})[:3000], file=sys.stderr, flush=True)

    def one(self, number):
        r = random.Random(f"{self.options.seed} {number}")
        path, body = draw(r)
        server = r.choice(self.on)
        if r.random() < 0.1:
            body["cache"] = r.choice([{"no_cache": True}, {"no_store": True}, {"ttl": 1}, {"namespace": "a"}])
        if r.random() < 0.1:
            server.ask(path, {**body, "stream": True}, hang_up=True)
            self.count("hung up")
        if r.random() < 0.1:
            # joined to one computation, or a race between two servers
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda s: self.compare(s, path, body), 2 * self.on))
        self.compare(server, path, body)
        if r.random() < 0.5:
            if r.random() < 0.5:
                body = {**body, "stream": not body.get("stream")}
                body.pop("stream_options", None)
            self.compare(r.choice(self.on), path, body)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--requests", type=int, default=3000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--embedder")
    p.add_argument("--threads", type=int, default=6)
    p.add_argument("--store", default="sqlite")
    p.add_argument("--ttl", type=int, default=3600)
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = f"sqlite:{directory}/answers.db" if options.store == "sqlite" else options.store
        on = ["--response-cache", store, "--response-cache-entries", 48, "--cache-verify", 1, "--max-pinned-percent", 25, "--response-cache-ttl", options.ttl]
        if options.embedder:
            on += ["--semantic-cache", options.embedder, "--semantic-threshold", 0.3, "--speculative-config", '{"method": "none", "adaptive": false}']
        servers = [Server("--no-enable-prefix-caching"), Server(*on), Server(*on)]
        run = Run(servers, options)
        with concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
            for done in [pool.submit(run.one, i) for i in range(options.requests)]:
                done.result()
        stats = [json.loads(s.ask("/cache/stats", None)[2]) for s in run.on]
        ended = [s.stop() for s in servers]
        for name in ("joined", "resumed", "tokens_resumed", "verified", "differing", "unsound", "pinned_answers"):
            run.counts["stats " + name] = sum(s[name] for s in stats)
        run.counts["stats store hits"] = sum(layer["hits"] for s in stats for name, layer in s["layers"].items() if name in ("sqlite", "redis"))
        if options.embedder:
            run.counts["draft tokens right"] = sum(d["tokens_right"] for s in stats for d in s["semantic"]["drafts"])
    print(json.dumps({"seed": options.seed, "requests": options.requests, "ended": ended, **dict(sorted(run.counts.items()))}))
    bad = run.counts["differing"] + run.counts["stats differing"] + run.counts["stats unsound"]
    return 1 if bad or ended != [0] * len(ended) or not run.counts["exact"] else 0


if __name__ == "__main__":
    sys.exit(main())
