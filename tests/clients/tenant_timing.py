"""Measures whether one tenant can learn another tenant's prompts by timing.

build/venv/bin/python tests/clients/tenant_timing.py [--trials 2000] [--prompt-words 250] [--response-cache
memory|sqlite|redis] [--json FILE]

A prober measures the time to first token of prompts that a victim sent just before (a hit, if the cache were
shared) and of new prompts. Every measurement follows one request of the victim, of the same length. This request
is the measured prompt or another one; nothing else differs between the two kinds. Their order is random for each
pair, and no measurement is left out. The score is the distinguisher's AUC: the probability that a sent prompt is
answered faster than a new one. 0.5 is no knowledge, 1 is certainty. Within one tenant (the prober has the
victim's key) the AUC shows that the method detects a hit.

Without a difference, the AUC of n pairs has the standard error sqrt((2 n + 1) / (12 n²)), whatever the
distribution of the times: 0.0091 for 2,000.
"""

import argparse
import http.client
import json
import math
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import rig

WORDS = ("and the a to was it he she in they of with for that said on his had is you her so but at day there go went very "
         "big little dog cat bird tree ball house mom boy girl play happy sad red blue sun moon sea hill fox bear").split()


def prompt(rng, n_words):
    """Words in an order that is new."""
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


class Client:
    """One connection with one key."""

    def __init__(self, port, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def first_token(self, text):
        """Seconds until the first byte of the answer's first token."""
        body = json.dumps({"prompt": text, "max_tokens": 1, "temperature": 0, "stream": True}).encode()
        started = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, self.headers)
        reply = self.connection.getresponse()
        first = reply.read(6)
        seconds = time.perf_counter() - started
        rest = reply.read()
        assert reply.status == 200 and first == b"data: " and rest.endswith(b"[DONE]\n\n"), (reply.status, first + rest)
        return seconds


def measure(port, victim_key, prober_key, n_pairs, n_words, seed):
    """(times of prompts that the victim had sent, times of new prompts)"""
    victim, prober = Client(port, victim_key), Client(port, prober_key)
    rng = random.Random(seed)
    sent, fresh = [], []
    for _ in range(n_pairs):
        kinds = [sent, fresh]
        rng.shuffle(kinds)
        for kind in kinds:
            text, other = prompt(rng, n_words), prompt(rng, n_words)
            victim.first_token(text if kind is sent else other)
            kind.append(prober.first_token(text))
    return sent, fresh


def auc(sent, fresh):
    """The probability that a value of sent is less than one of fresh; ties count half."""
    ranked = sorted([(t, 0) for t in sent] + [(t, 1) for t in fresh])
    score, i, n_sent = 0.0, 0, 0
    while i < len(ranked):
        j = i
        while j < len(ranked) and ranked[j][0] == ranked[i][0]:
            j += 1
        n_tied = sum(kind == 0 for _, kind in ranked[i:j])
        score += (j - i - n_tied) * (n_sent + n_tied / 2)
        n_sent += n_tied
        i = j
    return score / (len(sent) * len(fresh))


def standard_error(n):
    return math.sqrt((2 * n + 1) / (12 * n * n))


def describe(times):
    q = [1000 * t for t in statistics.quantiles(times, n=4)]
    return f"{q[1]:.2f} ms ({q[0]:.2f} to {q[2]:.2f})"


def start_redis(directory):
    """(its process, its port)"""
    port = rig.free_port()
    redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return redis, port
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main():
    import conftest
    p = argparse.ArgumentParser(description="Measures whether prompts of one tenant can be told by another.")
    p.add_argument("--trials", type=int, default=2000, help="pairs between tenants; default 2000")
    p.add_argument("--control", type=int, default=200, help="pairs within one tenant; default 200")
    p.add_argument("--prompt-words", type=int, default=250, help="about as many tokens; default 250")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--response-cache", choices=("memory", "sqlite", "redis"), help="with whole answers kept, too; with sqlite and redis "
                   "memory holds two of them, the store all")
    p.add_argument("--json", type=pathlib.Path, help="write the figures there")
    a = p.parse_args()
    directory = tempfile.TemporaryDirectory()
    redis, port = start_redis(directory.name) if a.response_cache == "redis" else (None, 0)
    flags = {None: (), "memory": ("--response-cache", "memory", "--response-cache-entries", "16384"),
             "sqlite": ("--response-cache", f"sqlite:{directory.name}/answers.db", "--response-cache-entries", "2"),
             "redis": ("--response-cache", f"redis://127.0.0.1:{port}", "--response-cache-entries", "2")}[a.response_cache]
    server = conftest.Server("serve", conftest.MODEL, "--port", "0", "--api-key", "victim", "--api-key", "prober", *flags)
    good, figures = True, {"response_cache": a.response_cache, "prompt_words": a.prompt_words, "seed": a.seed}
    try:
        for what, prober, n in (("within one tenant", "victim", a.control), ("between tenants", "prober", a.trials)):
            started = time.monotonic()
            sent, fresh = measure(server.port, "victim", prober, n, a.prompt_words, f"{a.seed} {what}")
            found = auc(sent, fresh)
            good &= found > 0.9 if what == "within one tenant" else 0.45 <= found <= 0.55
            print(f"{what}: AUC {found:.4f} of {n} pairs (standard error without a difference {standard_error(n):.4f}); "
                  f"medians and quartiles: sent {describe(sent)}, not sent {describe(fresh)}; "
                  f"{time.monotonic() - started:.0f} s", flush=True)
            figures[what] = {"auc": round(found, 4), "pairs": n, "standard_error": round(standard_error(n), 4),
                             **{f"{name}_quartiles_ms": [round(1000 * t, 3) for t in statistics.quantiles(times, n=4)]
                                for name, times in (("sent", sent), ("not_sent", fresh))}}
    finally:
        server.stop()
        if redis:
            redis.terminate()
            redis.wait()
    if a.json:
        a.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
