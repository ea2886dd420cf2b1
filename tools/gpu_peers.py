#!/usr/bin/env python3
"""Times what is installed on a machine with a GPU beside Quire, in turns, all peers in this one process.

    python3 tools/gpu_peers.py "bin/quire" [SECONDS]      one row of JSON on each line

cuBLAS and cuBLASLt by torch; cuDNN's, FlashAttention-2's and torch's own SDPA by torch; FlashAttention 2 and 3 and FlashInfer
where their packages are. All are timed alike: a burst of calls recorded as a CUDA graph, on copies that together exceed the GPU's
cache, the median of several bursts; Quire, the peers, Quire, the peers. Quire is a process for each shape of weights or of
sequences, which times all its numbers of tokens. Its kernels take f32 activations and give f32, the peers' BF16 or F16: the rows
say what each is. A peer that is missing, or that cannot do a shape, has a row that says so. What begins after SECONDS is left out.
"""
import json
import statistics
import subprocess
import sys
import time

WEIGHTS = ((28672, 4096), (4096, 4096), (4096, 14336))  # rows, columns: gate and up, o, down of an 8B model
TOKENS = (1, 16, 64, 2048)
ATTENTIONS = ((64, 1, 4095), (16, 1, 8191), (1, 8192, 0))  # sequences, tokens of each, positions before them
HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 16
SAMPLED, VOCABULARY = 128, 131072
COLD_BYTES = 192 << 20
ROUNDS = 2
BEGUN = time.monotonic()


def say(**row):
    print(json.dumps(row), flush=True)


def quire_us(quire, *arguments):
    """Microseconds of each case, in order."""
    got = subprocess.run([*quire.split(), "bench", "kernels", "--device", "cuda", "--json", *map(str, arguments)],
                         capture_output=True, text=True, timeout=60)
    if got.returncode != 0:
        raise RuntimeError((got.stderr.strip().splitlines() or ["quire failed"])[-1])
    return [case["median_us"] for case in json.loads(got.stdout)["cases"]]


def call_us(call, n_copies=1):
    """call(i) works on copy i."""
    def run(n):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(n):
            call(i % n_copies)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    run(n_copies)
    n = max(n_copies, min(1000, int(2e-3 * n_copies / run(n_copies))))
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                call(i % n_copies)
        replay = graph.replay
    except RuntimeError:  # one that waits for the GPU, or allocates
        torch.cuda.synchronize()
        replay = lambda: run(n)
    samples = []
    for _ in range(12):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        replay()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) / n * 1e6)
    return statistics.median(samples[1:])


def in_turns(cases, arguments, peers):
    """cases: names, in the order of Quire's; peers: name -> a function that gives a call and its number of copies for case i."""
    ours, theirs, why = [[] for _ in cases], {name: [[] for _ in cases] for name in peers}, {}
    for _ in range(ROUNDS):
        for i, us in enumerate(quire_us(QUIRE, *arguments)):
            ours[i].append(us)
        for name, make in peers.items():
            for i in range(len(cases)):
                if (name, i) in why:
                    continue
                try:
                    call, n_copies = make(i)
                    theirs[name][i].append(call_us(call, n_copies))
                except Exception as error:  # one that fails leaves the others
                    why[name, i] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
    for i, case in enumerate(cases):
        say(case=case, quire_us=ours[i], peers={
            name: {"not measured": why[name, i]} if (name, i) in why else
            {"us": theirs[name][i], "quire_to_peer": round(statistics.mean(ours[i]) / statistics.mean(theirs[name][i]), 4)} for name in peers})


def gemms(rows, cols):
    n_copies = max(1, min(16, -(-COLD_BYTES // (2 * rows * cols))))
    weights = [torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * cols**-0.5 for _ in range(n_copies)]
    xs = [torch.randn(tokens, cols, device="cuda", dtype=torch.bfloat16) for tokens in TOKENS]

    def by(library):
        def make(i):
            torch.backends.cuda.preferred_blas_library(library)
            return lambda copy: torch.nn.functional.linear(xs[i], weights[copy]), n_copies
        return make

    in_turns([f"gemm bfloat16 T{tokens} N{rows} K{cols}" for tokens in TOKENS],
             ("--op", "gemm", "--tokens", ",".join(map(str, TOKENS)), "--rows", rows, "--cols", cols, "--dtype", "bfloat16"),
             {"cuBLAS (torch)": by("cublas"), "cuBLASLt (torch)": by("cublaslt")})


def sdpa_by(backend, q, k, v, causal):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(_):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return lambda _: (call, 1)


def flash_attention(module, q, k, v, causal):
    """Contiguous K and V, [sequences, tokens, heads, width]."""
    def make(_):
        flash = __import__(module)
        qt, kt, vt = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        return (lambda _: flash.flash_attn_func(qt, kt, vt, causal=causal)), 1
    return make


def flashinfer_attention(n_seqs, tokens, length):
    """Pages as ours."""
    def make(_):
        import flashinfer
        n_pages = -(-length // PAGE)
        cache = torch.randn(n_seqs * n_pages, 2, PAGE, KV_HEADS, HEAD_DIM, device="cuda", dtype=torch.float16)
        workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
        starts = torch.arange(n_seqs + 1, dtype=torch.int32, device="cuda")
        last = torch.full((n_seqs,), (length - 1) % PAGE + 1, dtype=torch.int32, device="cuda")
        pages = torch.randperm(n_seqs * n_pages, device="cuda").int()
        q = torch.randn(n_seqs * tokens, HEADS, HEAD_DIM, device="cuda", dtype=torch.float16)
        if tokens == 1:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
            wrapper.plan(starts * n_pages, pages, last, HEADS, KV_HEADS, HEAD_DIM, PAGE, q_data_type=torch.float16)
        else:
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(starts * tokens, starts * n_pages, pages, last, HEADS, KV_HEADS, HEAD_DIM, PAGE, causal=True, q_data_type=torch.float16)
        return (lambda _: wrapper.run(q, cache)), 1
    return make


def attention(n_seqs, tokens, before):
    length = before + tokens
    q = torch.randn(n_seqs, HEADS, tokens, HEAD_DIM, device="cuda", dtype=torch.float16)
    k = torch.randn(n_seqs, KV_HEADS, length, HEAD_DIM, device="cuda", dtype=torch.float16)
    v = torch.randn_like(k)
    causal = tokens > 1
    peers = {f"{name} (SDPA, contiguous)": sdpa_by(backend, q, k, v, causal)
             for name, backend in (("cuDNN", "CUDNN_ATTENTION"), ("FlashAttention-2", "FLASH_ATTENTION"))}
    if "flash_attn" in HERE:
        peers["FlashAttention-2 (contiguous)"] = flash_attention("flash_attn", q, k, v, causal)
    if "flash_attn_interface" in HERE:
        peers["FlashAttention-3 (contiguous)"] = flash_attention("flash_attn_interface", q, k, v, causal)
    if "flashinfer" in HERE:
        peers["FlashInfer (paged)"] = flashinfer_attention(n_seqs, tokens, length)
    in_turns([f"attention float16 {n_seqs}x{tokens}@{before}, {HEADS}/{KV_HEADS} heads of {HEAD_DIM}, pages of {PAGE}"],
             ("--op", "attention", "--heads", f"{HEADS}/{KV_HEADS}", "--head-dim", HEAD_DIM, "--block-tokens", PAGE,
              "--seqs", f"{n_seqs}x{tokens}@{before}"), peers)


def sampling():
    def by_flashinfer(_):
        import flashinfer
        p = torch.softmax(torch.randn(SAMPLED, VOCABULARY, device="cuda"), -1)
        return (lambda _: flashinfer.sampling.top_p_sampling_from_probs(p, 0.9)), 1

    def by_sorting(_):
        logits = torch.randn(SAMPLED, VOCABULARY, device="cuda")

        def call(_):
            p, order = torch.softmax(logits, -1).sort(-1, descending=True)
            p = p.masked_fill(p.cumsum(-1) - p > 0.9, 0)
            return order.gather(1, (p / torch.empty_like(p).exponential_()).argmax(-1, keepdim=True))
        return call, 1

    peers = {"torch, by sorting": by_sorting}
    if "flashinfer" in HERE:
        peers["FlashInfer"] = by_flashinfer
    in_turns([f"sample T{SAMPLED} N{VOCABULARY} top_p"],
             ("--op", "sample", "--tokens", SAMPLED, "--rows", VOCABULARY, "--sampling", "top_p"), peers)


def library_tflop_s(dtype):
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    say(case=f"cuBLAS (torch) {n} cubed, {dtype}", tflop_s=2 * n**3 / call_us(lambda _: a @ b) * 1e-6)


def tried(what, *arguments):
    if time.monotonic() - BEGUN > SECONDS:
        say(what=f"{what.__name__}{arguments}", **{"not measured": "ran out of time"})
        return
    try:
        what(*arguments)
    except Exception as error:  # one shape that fails leaves the others
        say(what=f"{what.__name__}{arguments}", **{"not measured": f"{type(error).__name__}: {error}"[:200]})
    torch.cuda.empty_cache()


def find_peers():
    """Names of packages that are here; a row for each that is not."""
    import importlib.util
    here = set()
    for package, name in (("flash_attn", "FlashAttention-2"), ("flash_attn_interface", "FlashAttention-3"), ("flashinfer", "FlashInfer"),
                          ("vllm", "vLLM"), ("sglang", "SGLang")):
        if importlib.util.find_spec(package):
            here.add(package)
        else:
            say(peer=name, **{"not measured": f"{name} is not installed"})
    return here


if __name__ == "__main__":
    QUIRE, SECONDS = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 100
    try:
        import torch
    except ImportError:
        say(**{"peer": "torch: cuBLAS, cuBLASLt, cuDNN", "not measured": "torch is not installed"})
        print("torch is not installed", file=sys.stderr)
        sys.exit(77)
    if not torch.cuda.is_available():
        print("torch has no GPU", file=sys.stderr)
        sys.exit(77)
    say(gpu=torch.cuda.get_device_name(), torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
    HERE = find_peers()
    tried(library_tflop_s, torch.bfloat16)
    tried(gemms, *WEIGHTS[0])
    for shape in ATTENTIONS:
        tried(attention, *shape)
    for shape in WEIGHTS[1:]:
        tried(gemms, *shape)
    tried(sampling)
    tried(library_tflop_s, torch.float16)
