"""Streams one long answer from a server on this machine and prints its speed and memory as it grows.

    quire serve MODEL --attention-sinks 4 --attention-window 256 --max-model-len 1100000
    python3 tools/bench/endless.py --pid PID --tokens 1000000

One line for each --every tokens: tokens so far, seconds for the last --every tokens, milliseconds per token, resident
memory of the process, and KV blocks in use. The answer ignores the end of the text.
"""
import argparse
import json
import re
import time
import urllib.request


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def kv_blocks_in_use(url):
    with urllib.request.urlopen(url + "/metrics") as reply:
        text = reply.read().decode()
    blocks = float(re.search(r"^quire:kv_blocks\{.*\} (.*)$", text, re.M)[1])
    share = float(re.search(r"^vllm:kv_cache_usage_perc\{.*\} (.*)$", text, re.M)[1])
    return round(blocks * share)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--pid", type=int, required=True, help="process of the server")
    parser.add_argument("--tokens", type=int, default=100000)
    parser.add_argument("--every", type=int, default=10000)
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--prompt-tokens", type=int, default=0, help="repeat a prompt of token ids to this length instead")
    args = parser.parse_args()
    prompt = [1 + i * 7919 % 1000 for i in range(args.prompt_tokens)] if args.prompt_tokens else args.prompt
    body = {"prompt": prompt, "max_tokens": args.tokens, "temperature": 0.8, "seed": 1, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        args.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    print(f"{'tokens':>9} {'seconds':>9} {'ms/token':>9} {'RSS KiB':>9} {'KV blocks':>9}", flush=True)
    n, begin = 0, time.monotonic()
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            if b'"error"' in line:
                raise SystemExit(line.decode())
            n += 1
            if n == 1 and args.prompt_tokens:
                print(f"first token after {time.monotonic() - begin:.2f} s, RSS {resident_kib(args.pid)} KiB", flush=True)
                begin = time.monotonic()
            if n % args.every == 0:
                seconds = time.monotonic() - begin
                print(
                    f"{n:>9} {seconds:>9.2f} {1e3 * seconds / args.every:>9.3f} {resident_kib(args.pid):>9}"
                    f" {kv_blocks_in_use(args.url):>9}",
                    flush=True,
                )
                begin = time.monotonic()


if __name__ == "__main__":
    main()
