#!/usr/bin/env python3
"""Times what is installed on a machine with a GPU beside Quire, in turns: cuBLAS and SDPA by torch, transformers' generate.

    python3 tools/gpu_peers.py "build/quire" [MODEL]      one JSON object on standard output

Both sides are timed alike: a burst of calls recorded as a CUDA graph, on copies that together exceed the GPU's cache, the median
of several bursts; Quire, torch, Quire, torch. Quire's kernels take f32 activations and give f32, torch's BF16 or F16: the rows
say so. What is not installed is null, which means not measured.
"""
import json
import statistics
import subprocess
import sys
import time

import torch

GEMMS = [(tokens, rows, cols) for rows, cols in ((28672, 4096), (4096, 4096), (4096, 14336)) for tokens in (1, 32, 256, 2048)]
ATTENTIONS = [(64, 1, 4096), (1, 1, 32767), (1, 2048, 0)]  # sequences, tokens of each, positions before them
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
COLD_BYTES = 256 << 20
ROUNDS = 2
SECONDS = 100  # what begins later is left out
BEGUN = time.monotonic()


def quire_us(quire, *arguments):
    got = subprocess.run([*quire.split(), "bench", "kernels", "--device", "cuda", "--json", *map(str, arguments)],
                         capture_output=True, text=True, timeout=60)
    return json.loads(got.stdout)["cases"][0]["median_us"] if got.returncode == 0 else None


def torch_us(call, n_copies):
    """call(i) works on copy i."""
    for i in range(n_copies):
        call(i)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(n_copies):
        call(i)
    torch.cuda.synchronize()
    n = max(n_copies, min(1000, int(2e-3 * n_copies / (time.perf_counter() - begin))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            call(i % n_copies)
    samples = []
    for _ in range(16):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) / n * 1e6)
    return statistics.median(samples[1:])


def in_turns(case, quire, arguments, call, n_copies):
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(quire_us(quire, *arguments))
        theirs.append(torch_us(call, n_copies))
    mean = None if None in ours else statistics.mean(ours)
    return {"case": case, "quire_us": ours, "torch_us": theirs,
            "quire_to_torch": None if mean is None else mean / statistics.mean(theirs)}


def gemm(quire, tokens, rows, cols):
    n_copies = max(1, min(16, -(-COLD_BYTES // (2 * rows * cols))))
    weights = [torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * cols**-0.5 for _ in range(n_copies)]
    x = torch.randn(tokens, cols, device="cuda", dtype=torch.bfloat16)
    arguments = ("--op", "gemm", "--tokens", tokens, "--rows", rows, "--cols", cols, "--dtype", "bfloat16")
    return in_turns(f"gemm bfloat16 T{tokens} N{rows} K{cols}", quire, arguments,
                    lambda i: torch.nn.functional.linear(x, weights[i]), n_copies)


def attention(quire, n_seqs, tokens, before):
    length = before + tokens
    q = torch.randn(n_seqs, HEADS, tokens, HEAD_DIM, device="cuda", dtype=torch.float16)
    k = torch.randn(n_seqs, KV_HEADS, length, HEAD_DIM, device="cuda", dtype=torch.float16)
    v = torch.randn_like(k)
    arguments = ("--op", "attention", "--heads", f"{HEADS}/{KV_HEADS}", "--head-dim", HEAD_DIM, "--seqs", f"{n_seqs}x{tokens}@{before}")

    def call(_):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1, enable_gqa=True)

    return in_turns(f"attention float16 {n_seqs}x{tokens}@{before}, contiguous for torch", quire, arguments, call, 1)


def library_tflop_s(dtype):
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * n**3 / torch_us(lambda _: a @ b, 1) * 1e-6


def generate(quire, model):
    """Tokens a second of one greedy sequence, 128 in and 128 out, in turns with `quire bench latency`."""
    try:
        import transformers
    except ImportError:
        return None
    peer = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).cuda().eval()
    ids = torch.randint(0, 100000, (1, 128), device="cuda")
    ours, theirs = [], []
    for _ in range(ROUNDS):
        got = subprocess.run([*quire.split(), "bench", "latency", model, "--device", "cuda", "--batch-size", "1", "--input-len", "128",
                              "--output-len", "128", "--num-iters", "3", "--num-iters-warmup", "1", "--max-model-len", "4096",
                              "--kv-cache-memory", "1GiB", "--json"], capture_output=True, text=True, timeout=60)
        ours.append(128 / json.loads(got.stdout)["avg_latency"] if got.returncode == 0 else None)
        with torch.inference_mode():
            for _ in range(2):  # the first warms
                torch.cuda.synchronize()
                begin = time.perf_counter()
                peer.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=128, min_new_tokens=128, do_sample=False)
                torch.cuda.synchronize()
                seconds = time.perf_counter() - begin
        theirs.append(128 / seconds)
    return {"quire_tokens_per_second": ours, "transformers_tokens_per_second": theirs, "transformers": transformers.__version__}


def tried(what, *arguments):
    if time.monotonic() - BEGUN > SECONDS:
        return None
    try:
        return what(*arguments)
    except Exception as error:  # one peer that fails leaves the others
        print(f"{what.__name__}{arguments[1:]}: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def main():
    quire, model = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    print(json.dumps({
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "cublas_bf16_tflop_s": tried(library_tflop_s, torch.bfloat16), "cublas_f16_tflop_s": tried(library_tflop_s, torch.float16),
        "gemm": [tried(gemm, quire, *shape) for shape in GEMMS],
        "attention": [tried(attention, quire, *shape) for shape in ATTENTIONS],
        "generate": tried(generate, quire, model) if model else None,
    }))


if __name__ == "__main__":
    main()
