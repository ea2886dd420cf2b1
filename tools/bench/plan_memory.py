"""Compares `quire plan` with processes that serve: resident memory and KV bytes of 12 configurations of one model.

    python3 tools/bench/make_random_model.py qwen2.5-0.5b build/bench/models/qwen2.5-0.5b-bf16 --dtype bf16
    python3 tools/bench/plan_memory.py build/quire build/bench/models/qwen2.5-0.5b-bf16 docs/benchmarks/plan-memory.jsonl

The configurations with Q4_K_M need a tokenizer that GGUF has a name for: --tokenizer with Qwen2's tokenizer.json.
Quantized models are made beside the given one. The KV pool of each server holds exactly the requests, which run together,
so all its blocks are used. A short request behind them asks for logprobs of its prompt, which fill the logits. One line of JSON for each
configuration: the plan's bytes; the most resident memory, and the mapped weights' part of it; blocks in use by /metrics times
the plan's bytes of a block. Standard library only.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import threading
import time
import urllib.request

MIB = 2**20
# name, weights, further options, requests, tokens of each
CONFIGURATIONS = [
    ("bf16", "bf16", [], 1, 640),
    ("bf16, KV int8", "bf16", ["--kv-cache-dtype", "int8"], 4, 512),
    ("bf16, KV float32, no prefix cache", "bf16", ["--kv-cache-dtype", "float32", "--no-enable-prefix-caching"], 2, 768),
    ("bf16, window of 512", "bf16", ["--attention-sinks", "4", "--attention-window", "512"], 1, 1536),
    ("bf16, int8 while loading", "bf16", ["--quantization", "int8"], 1, 1024),
    ("int8", "absmax-int8", [], 2, 512),
    ("int4", "int4-block", ["--max-num-batched-tokens", "256"], 1, 2048),
    ("int4, KV fp8", "int4-block", ["--kv-cache-dtype", "fp8"], 8, 256),
    ("Q4_K_M", "gguf-q4_k_m", [], 1, 1024),
    ("Q4_K_M, no prefix cache", "gguf-q4_k_m", ["--no-enable-prefix-caching"], 16, 128),
    ("fp8", "fp8-e4m3", [], 2, 512),
    ("fp8, KV int8, steps of 2,048", "fp8-e4m3", ["--kv-cache-dtype", "int8", "--max-num-batched-tokens", "2048"], 1, 2048),
]
ANSWER = 64  # tokens of requests that run together: enough that all are there at once
ALONE = 8  # tokens of one that runs alone
BLOCK = 16


def made(quire, model, weights):
    if weights == "bf16":
        return model
    out = model.with_name(f"{model.name}-{weights}" + (".gguf" if weights.startswith("gguf") else ""))
    if not out.exists():
        subprocess.run([quire, "quantize", model, out, "--method", weights], check=True)
    return out


class Server:
    def __init__(self, quire, model, flags):
        self.process = subprocess.Popen([quire, "serve", model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"ready on (http://\S+)/v1", line):
                self.url = found[1]
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit("".join(said[-3:]))

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def resident(self):
        """Bytes in all, and of mapped weights."""
        everything = weights = 0
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                in_weights = line.endswith((".safetensors", ".gguf"))
            elif line.startswith("Rss:"):
                n = int(line.split()[1]) * 1024
                everything, weights = everything + n, weights + n * in_weights
        return everything, weights

    def blocks(self):
        """In use, and of the pool."""
        with urllib.request.urlopen(self.url + "/metrics") as reply:
            text = reply.read().decode()
        n = float(re.search(r"^quire:kv_blocks\{.*\} (.*)$", text, re.M)[1])
        return round(n * float(re.search(r"^vllm:kv_cache_usage_perc\{.*\} (.*)$", text, re.M)[1])), n

    def complete(self, prompt, tokens, with_logprobs=False):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        if with_logprobs:
            body["prompt_logprobs"] = 0
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            reply.read()


def measure(quire, model, options, n_requests, length):
    drawn = random.Random(1)
    blocks = n_requests * -(-length // BLOCK)
    flags = ["--max-num-seqs", str(n_requests), "--max-model-len", str(length), "--threads", "2", *options]
    if "--attention-window" not in options:
        flags += ["--num-kv-blocks", str(blocks)]
    else:
        flags += ["--num-kv-blocks", "72"] # the window, the sinks and a step
    plan = json.loads(subprocess.run([quire, "plan", model, *flags, "--json"], check=True, capture_output=True, text=True).stdout)
    server = Server(quire, model, flags)
    at_start = server.resident()
    tokens = ANSWER if n_requests > 1 else ALONE
    prompts = [[drawn.randrange(1000, 100000) for _ in range(length - tokens)] for _ in range(n_requests)]
    threads = [threading.Thread(target=server.complete, args=(p, tokens)) for p in prompts]
    most, most_blocks = (0, 0), 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most, most_blocks = max(most, server.resident()), max(most_blocks, server.blocks()[0])
        time.sleep(0.1)
    server.complete([drawn.randrange(1000, 100000) for _ in range(80)], 1, with_logprobs=True)
    most = max(most, server.resident())
    pool = server.blocks()[1]
    server.stop()
    planned = plan["resident_bytes"]
    group = plan["kv_groups"][0]
    kv = most_blocks * group["block_bytes"]
    wanted = group["request_bytes"] * n_requests
    return {"planned": planned, "resident": most[0], "difference": most[0] - planned, "allowed": planned // 50 + 32 * MIB,
            "planned_weights": plan["weight_bytes"], "resident_weights": most[1], "resident_at_start": at_start[0],
            "planned_kv": plan["kv_bytes"], "pool_kv": int(pool) * group["block_bytes"],
            "planned_requests_kv": wanted, "used_kv": kv,
            "plan": {k: v for k, v in plan.items() if k.endswith("_bytes") and v}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of configurations, from 0")
    args = parser.parse_args()
    wrong = 0
    with args.out.open("w") as out:
        for i, (name, weights, options, n, length) in enumerate(CONFIGURATIONS):
            if args.only is not None and i not in args.only:
                continue
            row = measure(args.quire, made(args.quire, args.model, weights), options, n, length)
            fits = abs(row["difference"]) <= row["allowed"] and row["used_kv"] <= row["planned_requests_kv"]
            wrong += not fits
            out.write(json.dumps({"name": name, "requests": n, "tokens": length, "options": options, **row}) + "\n")
            out.flush()
            print(f"{name:34} planned {row['planned'] / MIB:8.1f}  resident {row['resident'] / MIB:8.1f}  {row['difference'] / MIB:+7.1f} MiB "
                  f"({100 * row['difference'] / row['planned']:+.2f} %)  KV {row['planned_requests_kv'] / MIB:.1f} {row['used_kv'] / MIB:.1f}"
                  f"{'' if fits else '  OUTSIDE'}", flush=True)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
