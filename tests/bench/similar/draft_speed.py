#!/usr/bin/env python3
"""The savings of drafts from answers to similar questions, and their cost for opposite questions.

    python3 tests/bench/similar/draft_speed.py EMBEDDER [--model MODEL] [--pairs N] [--max-tokens N] [--json FILE]

Two servers of one model, one with --semantic-cache EMBEDDER and one without, get the same requests alternately, one
at a time: for each pair of tests/bench/similar/similar_pairs.py --demo first the first question, then the second, which is
timed. Paraphrases find the first answer as their draft; neighbours (another animal, before for after) find it too,
and it is mostly wrong. Every answer must have the same bytes from both. Medians of the ratio without / with: above 1
the drafts pay. --json has every sample. Needs a release build; tests/bench/speculation/wide_demo.py writes a model that says what
the demo model says at the cost of a larger one.
"""

import argparse
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Server:
    def __init__(self, model, *flags):
        self.process = subprocess.Popen([ROOT / "build" / "quire", "serve", model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        port = next((int(m[1]) for m in (re.search(r"ready on http://[^:]+:(\d+)", line) for line in self.process.stderr) if m), None)
        if port is None:
            sys.exit("quire serve did not come up")
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, question, n):
        body = json.dumps({"messages": [{"role": "user", "content": question}], "max_tokens": n, "temperature": 0})
        began = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        data = json.loads(reply.read())
        if reply.status != 200:
            sys.exit(f"{reply.status}: {data}")
        seconds = time.perf_counter() - began
        return {"s": seconds, "said": data["choices"], "tokens": data["usage"]["completion_tokens"], "from": reply.headers["x-quire-cache"]}

    def drafts(self):
        """Draft tokens that were tried, and that were accepted."""
        self.connection.request("GET", "/cache/stats")
        drafts = json.loads(self.connection.getresponse().read())["semantic"]["drafts"]
        return sum(d["tokens_tried"] for d in drafts), sum(d["tokens_right"] for d in drafts)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def table(out):
    """Split by whether it had a draft; questions with a cached answer, word for word, are left out."""
    lines = ["| questions | drafted | pairs | without, ms | with, ms | without / with | 10 % | 90 % | drafts right |", "|---|---|---|---|---|---|---|---|---|"]
    for same, name in ((True, "paraphrases"), (False, "neighbours")):
        for drafted, origins in (("yes", ("draft",)), ("no", ("miss",)), ("all", ("draft", "miss"))):
            rows = [r for r in out if r["same"] is same and r["from"] in origins]
            if len(rows) < 3:
                continue
            ratios = sorted(r["without_s"] / r["with_s"] for r in rows)
            cut = statistics.quantiles(ratios, n=10)
            tried, right = sum(r["tried"] for r in rows), sum(r["right"] for r in rows)
            lines.append(f"| {name} | {drafted} | {len(rows)} | {1e3 * statistics.median(r['without_s'] for r in rows):.1f} | "
                         f"{1e3 * statistics.median(r['with_s'] for r in rows):.1f} | {statistics.median(ratios):.2f} | {cut[0]:.2f} | "
                         f"{cut[-1]:.2f} | {right} of {tried} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description="Drafts from answers to similar questions, against none.")
    p.add_argument("embedder")
    p.add_argument("--model", default=str(ROOT / "tools" / "demo_model" / "model"))
    p.add_argument("--pairs", type=int, default=60, help="of each kind")
    p.add_argument("--max-tokens", type=int, default=200)
    p.add_argument("--threshold", default="0.8")
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    text = subprocess.run([sys.executable, ROOT / "tests" / "bench" / "similar" / "similar_pairs.py", "--demo"], capture_output=True, text=True, check=True).stdout
    pairs = [json.loads(line) for line in text.splitlines()]
    chosen = {same: [p for p in pairs if p["same"] is same][:a.pairs] for same in (True, False)}
    on = Server(a.model, "--semantic-cache", a.embedder, "--semantic-threshold", a.threshold, "--response-cache-entries", "1000")
    off = Server(a.model)
    out = []
    try:
        for same, some in chosen.items():
            for i, pair in enumerate(some):
                first = [server.ask(pair["a"], a.max_tokens) for server in (on, off)][0]
                tried, right = on.drafts()
                got = {}
                for server in ((on, off), (off, on))[i % 2]:
                    got[server] = server.ask(pair["b"], a.max_tokens)
                if got[on]["said"] != got[off]["said"]:
                    sys.exit(f"{pair}: another answer with a draft")
                now_tried, now_right = on.drafts()
                out.append({"same": same, "from": got[on]["from"], "with_s": got[on]["s"], "without_s": got[off]["s"], "tokens": got[on]["tokens"],
                            "same_answer": first["said"] == got[on]["said"], "tried": now_tried - tried, "right": now_right - right})
                print(f"\r{len(out)} pairs", end="", file=sys.stderr)
    finally:
        print(file=sys.stderr)
        on.stop()
        off.stop()
    print(table(out))
    if a.json:
        a.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
