#!/usr/bin/env python3
"""Embeddings: texts per second and the difference from sentence-transformers, compared with other engines.

    python3 tests/bench/similar/embeddings.py speed MODEL --peers VENV [--onnx FILE] [--gguf FILE --llama-server FILE] [--rounds 5] [--json FILE]
    python3 tests/bench/similar/embeddings.py numbers MODEL --peers VENV

MODEL: a sentence-transformers directory such as all-MiniLM-L6-v2's. speed: 128 texts of 32 tokens in one request, on two cores, in
turns: Quire, sentence-transformers, onnxruntime as fastembed runs it (--onnx), llama.cpp's server (--gguf of f32 or f16). numbers: every
number of 200 texts of 1 to 400 words, cut at 256 tokens, against sentence-transformers, and the cosines of the four texts that a well-known
article has. Quire and llama.cpp answer over HTTP; the other two have no such cost.

Needs a release build, and a virtual environment (--peers) with sentence-transformers, and onnxruntime and tokenizers for --onnx.
"""

import argparse
import base64
import http.client
import json
import pathlib
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORDS = "river house apple window quiet garden letter morning stone winter music road".split()
PAIRS = ["Explain reinforcement learning.", "What is reinforcement learning?", "Describe benefits of meditation.",
         "Tell me about the advantages of meditating."]

# A peer in its own process: reads a line with a JSON list of texts, writes one with seconds, then with the vectors.
PEER = """
import json, sys, time
kind, model, file = sys.argv[1:4]
if kind == "sentence-transformers":
    import torch
    torch.set_num_threads(2)
    from sentence_transformers import SentenceTransformer
    m = SentenceTransformer(model, device="cpu")
    m.max_seq_length = 256
    run = lambda texts: m.encode(texts, batch_size=128)
else:
    import numpy as np, onnxruntime as ort
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(model + "/tokenizer.json")
    t.enable_truncation(256)
    t.enable_padding()
    o = ort.SessionOptions()
    o.intra_op_num_threads = 2
    s = ort.InferenceSession(file, o, providers=["CPUExecutionProvider"])
    names = [i.name for i in s.get_inputs()]
    def run(texts):
        e = t.encode_batch(texts)
        x = [np.array([q.ids for q in e]), np.array([q.attention_mask for q in e]), np.array([q.type_ids for q in e])]
        h = s.run(None, dict(zip(names, x)))[0]
        a = x[1][:, :, None]
        v = (h * a).sum(1) / a.sum(1)
        return v / np.linalg.norm(v, axis=1, keepdims=True)
print("ready", flush=True)
for line in sys.stdin:
    texts = json.loads(line)
    begun = time.perf_counter()
    vectors = run(texts)
    print(time.perf_counter() - begun, flush=True)
    print(json.dumps([[float(x) for x in v] for v in vectors]), flush=True)
"""


class Peer:
    def __init__(self, venv, kind, model, file=""):
        self.process = subprocess.Popen([venv / "bin" / "python", "-c", PEER, kind, str(model), str(file)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{kind} did not start in {venv}")

    def embed(self, texts):
        self.process.stdin.write(json.dumps(texts) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline()), json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Server:
    def __init__(self, command, directory, name):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = open(pathlib.Path(directory, name + ".log"), "w")
        self.process = subprocess.Popen([str(c) for c in command] + ["--host", "127.0.0.1", "--port", str(self.port)], stdout=self.log,
                                        stderr=self.log)
        deadline = time.monotonic() + 60
        while self.call("GET", "/health", None)[0] != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} did not come up: " + pathlib.Path(self.log.name).read_text()[-500:])
            time.sleep(0.1)

    def call(self, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def embed(self, texts):
        begun = time.perf_counter()
        status, reply = self.call("POST", "/v1/embeddings", {"input": texts, "encoding_format": "base64"})
        seconds = time.perf_counter() - begun
        if status != 200:
            sys.exit(f"{status}: {reply[:300]}")
        vectors = []
        for row in json.loads(reply)["data"]:
            raw = base64.b64decode(row["embedding"])
            vectors.append(struct.unpack(f"<{len(raw) // 4}f", raw))
        return seconds, vectors

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def numbers(options, directory):
    rng = random.Random(7)
    prose = " ".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))).split()
    texts = list(PAIRS)
    while len(texts) < 200:
        n = rng.choice([1, 2, 3, 5, 8, 13, 21, 34, 60, 120, 200, 400])
        i = rng.randrange(len(prose) - n)
        texts.append(" ".join(prose[i:i + n]))
    peer = Peer(options.peers, "sentence-transformers", options.model)
    theirs = peer.embed(texts)[1]
    peer.stop()
    server = Server([options.quire, "serve", options.model, *options.flags], directory, "quire")
    ours = server.embed(texts)[1]
    server.stop()
    worst = max(max(abs(x - y) for x, y in zip(a, b)) for a, b in zip(ours, theirs))
    print(f"largest difference of {len(texts)} x {len(ours[0])} numbers: {worst:.2e} (goal 1e-4)")
    print(f"cosines: {cosine(ours[0], ours[1]):.4f} (0.8803), {cosine(ours[2], ours[3]):.4f} (0.8332)")
    return {"worst": worst, "cosines": [cosine(ours[0], ours[1]), cosine(ours[2], ours[3])]}


def speed(options, directory):
    texts = [" ".join(WORDS[(i * 7 + j * 5 + j * j) % 12] for j in range(30)) for i in range(128)]
    systems = {"quire": lambda: Server([options.quire, "serve", options.model, *options.flags], directory, "quire"),
               "sentence-transformers": lambda: Peer(options.peers, "sentence-transformers", options.model)}
    if options.onnx:
        systems["onnxruntime"] = lambda: Peer(options.peers, "onnxruntime", options.model, options.onnx)
    if options.gguf:
        systems["llama.cpp"] = lambda: Server([options.llama_server, "-m", options.gguf, "--embeddings", "-t", "2", "-c", "8192",
                                               "-b", "4096", "-ub", "4096", "--parallel", "32"], directory, "llama")
    rounds = []
    for i in range(options.rounds):
        row = {}
        for name, start in systems.items():
            system = start()  # no other process runs meanwhile
            system.embed(texts)
            row[name] = statistics.median(len(texts) / system.embed(texts)[0] for _ in range(5))
            system.stop()
        rounds.append(row)
        print(f"round {i + 1}: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in row.items()), flush=True)
    for name in systems:
        rates = [r[name] for r in rounds]
        ratio = statistics.median(r["quire"] / r[name] for r in rounds)
        print(f"{name:22} {statistics.median(rates):8,.0f} texts/s ({min(rates):,.0f} to {max(rates):,.0f}), quire is {ratio:.2f} x")
    return {"rounds": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "numbers"])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--peers", type=pathlib.Path, required=True)
    parser.add_argument("--onnx", type=pathlib.Path, help="the model as ONNX: input_ids, attention_mask, token_type_ids -> last_hidden_state")
    parser.add_argument("--gguf", type=pathlib.Path)
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "build" / "quire")
    parser.add_argument("--flags", nargs="*", default=[], help="more of quire serve's: write them last, after --")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = {"speed": speed, "numbers": numbers}[options.what](options, directory)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
