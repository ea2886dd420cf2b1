#!/usr/bin/env python3
"""Writes the performance table of README.md from the raw records in docs/benchmarks.

  python3 tools/docs/performance.py            write the table between its two markers
  python3 tools/docs/performance.py --check    status 1 if the table is out of date
"""

import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN = "<!-- performance: written by tools/docs/performance.py -->"
END = "<!-- end of performance -->"

# Title, file of raw records, row, Quire's entry, the peer's entry.
ROWS = [
    ("Decode, F16, 0.5B", "cpu", "decode-f16", "quire", "llama.cpp"),
    ("Decode, GGUF Q4_K_M, 0.5B", "quantized-models", "decode-q4_k_m", "quire", "llama.cpp"),
    ("Prefill 512 tokens, BF16, 0.5B", "cpu", "prefill-bf16", "quire", "llama.cpp"),
]


GPU = "docs/benchmarks/gpu-h100"
WEIGHTS_8B_GB = 15.01


def records_of(name):
    with open(ROOT / "docs/benchmarks" / f"{name}-raw.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def figure(value):
    return f"{value:.3g}"


def line(title, name, row, ours, peer):
    records = records_of(name)
    run = next(r for r in records if r["record"] == "run")
    described = next(r for r in records if r["record"] == "row" and r["row"] == row)
    samples = [r for r in records if r["record"] == "sample" and r["row"] == row]
    speeds, bandwidths, shares = {}, [], []
    for sample in samples:
        speeds.setdefault(sample["who"], []).append(sample["value"])
        if sample["who"] == ours and described["bytes_per_token"]:
            bandwidths.append(sample["value"] * described["bytes_per_token"] / 1e9)
            shares.append(bandwidths[-1] / statistics.mean(sample["read_gb_s"]))
    mine, other = statistics.median(speeds[ours]), statistics.median(speeds[peer])
    limit = "–"
    if shares:
        limit = f"{figure(statistics.median(bandwidths))} GB/s, {100 * statistics.median(shares):.0f} % of read bandwidth"
    machine = f"{run['cpu']['Model name'].replace('(R)', '').replace(' Processor', '')}, {run['threads']} cores"
    link = f"[{run['date']}](docs/benchmarks/{name}.md)"
    return f"| {title} | {figure(mine)} tok/s | {limit} | {peer} {figure(other)} tok/s | {machine}, {link} |"


def gpu_json(name):
    return json.loads((ROOT / GPU / f"{name}.json").read_text(encoding="utf-8"))


def gpu_lines():
    """The two rows of an H100, where no peer ran in turns."""
    where = f"H100 SXM, [2026-11-26]({GPU}.md)"
    token_s = gpu_json("latency_1_llama-3.1-8b")["avg_tpot"]
    rate = WEIGHTS_8B_GB / token_s
    share = rate / gpu_json("limits")["read_gb_s"]
    yield (f"| Decode, BF16, 8B, GPU | {figure(1 / token_s)} tok/s | {rate:.0f} GB/s, {100 * share:.0f} % of read bandwidth "
           f"| – | {where} |")
    requests = gpu_json("hopper/throughput_500")["requests_per_second"]
    yield (f"| 500 chats of 202 + 179 tokens, 8B, GPU | {figure(requests)} requests/s | – "
           f"| – | {where} |")


def table():
    head = "| Work | Quire | of the limit | peer | machine, date |\n|---|---|---|---|---|\n"
    return head + "\n".join([*(line(*row) for row in ROWS), *gpu_lines()])


def main():
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    new = "\n" + table() + "\n"
    if "--check" in sys.argv:
        if new != old:
            print("README.md: the performance table is out of date; run python3 tools/docs/performance.py")
        return int(new != old)
    path.write_text(before + BEGIN + new + END + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
