"""Restarts an engine while embeddings and chats flow. Every reply must be right. Under ThreadSanitizer, no thread of
the text pool may read memory that the loop writes when the next engine is ready.

QUIRE_RESTARTS: number of restarts of each server. Default 5.
"""

import json
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "front"))
from harness import Server, run_tests, wait_until

N_RESTARTS = int(os.environ.get("QUIRE_RESTARTS", "5"))
N_CLIENTS = 6
SIZE = 5
WORDS = " ".join(f"word{i}" for i in range(300))
BODY = json.dumps({"input": [WORDS] * 3, "dimensions": SIZE - 1}).encode()
# A thread of the pool reads this body for long after it has read the model's limits; the fault comes last.
LONG_BODY = json.dumps({"input": [[(n + i) % 200 for i in range(1000)] for n in range(1500)] + [[2**31]]}).encode()


def embed(server):
    status, _, reply = server.request("POST", "/v1/embeddings", BODY)
    return status, [item["embedding"] for item in json.loads(reply)["data"]] if status == 200 else reply


def chat(server):
    body = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 20, "temperature": 0}
    status, _, reply = server.request("POST", "/v1/chat/completions", body)
    return status, json.loads(reply)["choices"] if status == 200 else reply


def read_long(server):
    status, _, reply = server.request("POST", "/v1/embeddings", LONG_BODY)
    return status, reply


def context_of(server):
    return server.get("/v1/models")[1]["data"][0]["max_model_len"]


def restart_under_load(server, ask, refused=None):
    """Each restart comes while requests are in the text pool; the next engine has another context. refused: a
    request that is also sent, and gets a 400."""
    status, want = ask(server)
    assert status == 200, want
    context, stop, odd, right = context_of(server), threading.Event(), [], []

    def client():
        while not stop.is_set():
            got, answer = ask(server)
            if got == 200 and answer == want:
                right.append(1)
            elif got != 503:
                odd.append((got, answer))

    def client_refused():
        while not stop.is_set():
            got, answer = refused(server)
            if got not in (400, 503):
                odd.append((got, answer))

    clients = [threading.Thread(target=client) for _ in range(N_CLIENTS)]
    if refused:
        clients += [threading.Thread(target=client_refused) for _ in range(2)]
    for c in clients:
        c.start()
    try:
        for n in range(N_RESTARTS):
            before = len(right)
            assert wait_until(lambda: len(right) > before + 1), f"no answer before restart {n}: {odd}"
            time.sleep(0.003 * (n % 7))
            server.process.send_signal(signal.SIGUSR2)
            assert "listening" in server.process.stdout.readline()
            assert context_of(server) == context + n + 1
    finally:
        stop.set()
        for c in clients:
            c.join()
    assert not odd, odd[:3]
    assert ask(server) == (200, want)


def test_embeddings():
    with Server("--vectors", SIZE) as server:
        restart_under_load(server, embed, read_long)


def test_chats():
    with Server("--cache-entries", 100) as server:
        restart_under_load(server, chat)


run_tests(sys.modules[__name__])
