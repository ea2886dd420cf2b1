#!/usr/bin/env python3
"""The savings of a response cache: four questions asked cold, and again.

    python3 tests/bench/cache/cache_table.py [MODEL] [--max-tokens 200] [--json FILE]
    python3 tests/bench/cache/cache_table.py [MODEL] --semantic-cache EMBEDDER [--semantic-mode draft|answer] [--semantic-threshold 0.8]

Starts `quire serve MODEL --response-cache memory` (default: the demo model), asks each question once, greedily, and
then again, and prints the times and the source of each reply. The questions are those usually used to demonstrate
such caches; two of them paraphrase two others. Without an embedder, the paraphrases are computed: only the same
request is answered from the cache. With one (all-MiniLM-L6-v2 finds them at 0.8803 and 0.8332), the answers to the
others are their drafts or, in the mode `answer`, their answers. Needs a release build; only the standard library.
"""

import argparse
import http.client
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
QUESTIONS = ("Explain reinforcement learning.", "Describe benefits of meditation.", "What is reinforcement learning?",
             "Tell me about the advantages of meditating.")


def ask(connection, question, max_tokens):
    """(seconds, x-quire-cache and the similarity, text, tokens)"""
    body = json.dumps({"messages": [{"role": "user", "content": question}], "max_tokens": max_tokens, "temperature": 0})
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    data = json.loads(reply.read())
    seconds = time.perf_counter() - began
    if reply.status != 200:
        sys.exit(f"{reply.status}: {data}")
    similarity = reply.headers["x-quire-similarity"]
    return seconds, reply.headers["x-quire-cache"] + (" " + similarity if similarity else ""), data["choices"], data["usage"]["completion_tokens"]


def main():
    p = argparse.ArgumentParser(description="Four questions, cold and from the response cache.")
    p.add_argument("model", nargs="?", default=str(ROOT / "tools" / "demo_model" / "model"))
    p.add_argument("--max-tokens", type=int, default=200)
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--semantic-cache", metavar="EMBEDDER")
    p.add_argument("--semantic-mode", default="draft", choices=("draft", "answer"))
    p.add_argument("--semantic-threshold", type=float, default=0.8)
    a = p.parse_args()
    semantic = ["--semantic-cache", a.semantic_cache, "--semantic-mode", a.semantic_mode,
                "--semantic-threshold", str(a.semantic_threshold), "--speculative-config", '{"method": "none", "adaptive": false}'
                ] if a.semantic_cache else []  # waits for a draft, also if the model is faster than the embedder
    process = subprocess.Popen([ROOT / "build" / "quire", "serve", a.model, "--port", "0", "--response-cache", "memory", *semantic],
                               stderr=subprocess.PIPE, text=True)
    try:
        port = next((int(m[1]) for m in (re.search(r"ready on http://[^:]+:(\d+)", line) for line in process.stderr) if m), None)
        if port is None:
            sys.exit("quire serve did not come up")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        rows = [{"question": q} for q in QUESTIONS]
        for run in ("cold", "warm"):
            for row in rows:
                row[run + "_s"], row[run], choices, row["tokens"] = ask(connection, row["question"], a.max_tokens)
                if row.setdefault("choices", choices) != choices:
                    sys.exit(f"{row['question']}: the kept answer is another one")
    finally:
        process.terminate()
        process.wait()
    print("| question | tokens | cold | from | again | from |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['question']} | {row['tokens']} | {row['cold_s']:.3f} s | {row['cold']} | {row['warm_s'] * 1e3:.2f} ms | {row['warm']} |")
    print(f"| all | | {sum(r['cold_s'] for r in rows):.3f} s | | {sum(r['warm_s'] for r in rows) * 1e3:.2f} ms | |")
    if a.json:
        a.json.write_text(json.dumps([{k: v for k, v in r.items() if k != "choices"} for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
