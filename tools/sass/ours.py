"""Quire's kernels: the shared memory that a launch gives them, and the work that docs/benchmarks/gpu-predicted.md predicts.

Values that no listing contains, with their reasons: dynamic shared memory and warps, from the launches in
kernels/cuda; the time of small kernels, which is latency; the gaps between kernels of a step.
"""
import re

from sass import listing, model

# 8192 x 8192 x 8192, BF16 in, random data, H100 SXM, driver 580.159.04, by torch 2.11: 792 in docs/benchmarks/gpu-h100/peers.json
# and 798 measured before it on another machine of that kind.
CUBLAS_TFLOPS = 798

# Microseconds of kernels that a step of one sequence waits for, the node of the graph included: chains of dependent loads and
# sums, not throughput (RMSNorm's chain of 256 steps alone is 0.83).
NORM_US, ROPE_US, ATTENTION_US, OTHER_US = 2.75, 2.0, 4.0, 2.0
FILL_US = 0.8  # a GEMM's first bytes
SAMPLING_US = 25  # a row of 128k tokens by top_p: counted by hand (sample.cu); 200 for commits in which one block had all of it
IDLE_US = 6  # between recorded steps: one copy in, one graph


def numbers(name):
    return [int(n) for n in re.findall(r"(?<![A-Za-z0-9_])(\d+)u?(?![A-Za-z0-9_])", name)]


def warps_of(kernel):
    return kernel.threads // 32 or 1


def shared_bytes(kernel):
    """Dynamic shared memory of a block as it is launched, and the static one."""
    name, n = kernel.readable, numbers(kernel.readable)
    dynamic = 0
    if name.startswith("gemm_large") and len(n) >= 5:
        rows, tokens, _, _, stages = n[-5:]
        dynamic = (rows + tokens) * 128 * stages
    elif name.startswith("gemm_small") and len(n) >= 3:
        dynamic = warps_of(kernel) * n[2] * (8 * n[0] + 16 * n[1]) * 128
    elif re.match("attention_(mma|decode)", name) and n:
        row = (n[0] + 63) // 64 * 128
        small = 1024 + (4 if n[0] <= 128 else 2) * 64 * row + 16 * row + 16 * 128
        has_large = name.startswith("attention_mma") and n[0] <= 128
        large = 1024 + 2 * 64 * row + (64 * row if n[0] > 64 else 0) + 64 * n[0] * 4 if has_large else 0
        dynamic = max(small, large)
    return kernel.static_shared + dynamic


def tile_loops(kernel):
    """The innermost loops with tensor work, and their hot paths."""
    f = kernel.function
    for loop in f.loops:
        if f.works(loop) and not any(f.works(l) for l in f.inside(loop)):
            yield loop, f.way(loop)


def way_that_copies(kernel, loop, n_bytes):
    """The hot path, with inner loops copying the rest of n_bytes for a warp."""
    f = kernel.function
    once, twice = (f.way(loop, lambda _, t=t: t) for t in (1, 2))
    each = 512 * (twice.opcodes["LDGSTS"] - once.opcodes["LDGSTS"])
    trips = 1 + (n_bytes - 512 * once.opcodes["LDGSTS"]) / each if each else 1
    return f.way(loop, lambda _: max(1, round(trips)))


def find(kernels, *parts):
    """The kernel whose name has all these parts and most tensor work in its loop, or None."""
    found = [k for k in kernels if all(re.search(p, k.readable) for p in parts) and k.function.hot()[1]]
    return max(found, key=lambda k: k.function.hot()[1].flops, default=None)


# ---- what is predicted ----

# Rows, columns, and which instantiation: <is_gated, is_segmented, ...>.
PLAIN, SEGMENTED, GATED = r"<false,(false,)?(large|\d)", r"<false,(true,)?(large|\d)", r"<true,(false,)?(large|\d)"
LLAMA_8B = {"qkv": (6144, 4096, PLAIN), "o": (4096, 4096, SEGMENTED), "gate, up": (28672, 4096, GATED),
            "down": (4096, 14336, SEGMENTED)}
QWEN_06B = {"qkv": (4096, 1024, PLAIN), "o": (1024, 2048, SEGMENTED), "gate, up": (6144, 1024, GATED),
            "down": (1024, 3072, SEGMENTED)}
CHUNK_STAGES = 8     # of 64 columns; then their sums are added to those before
SEGMENT_SETS = 2 * 7 # sums of a tile that are written to L2 and read again
L2_BYTES = 46        # a clock and SM: DeepGEMM's csrc/jit_kernels/heuristics/sm90.hpp has 6,154 for all


def a_stage_with_its_chunk(kernel):
    """A stage plus an eighth of the per-chunk part, for a warp."""
    f = kernel.function
    loop, once = f.hot()
    chunk = f.around(loop)
    if not chunk:
        return once
    stage = listing.Counts()
    stage.add_all(f.way(chunk, lambda inner: CHUNK_STAGES if inner is loop else 1), 1 / CHUNK_STAGES)
    return stage


def prefill_gemm(kernels, machine, tokens=2048):
    """Yields (matrix, TFLOP/s, terms of a stage, tile), of each matrix by the shape that is fastest for it."""
    for name, (rows, cols, which) in LLAMA_8B.items():
        best = None
        for kernel in kernels:
            if not kernel.readable.startswith("gemm_large") or not re.search(which, kernel.readable):
                continue
            tile_rows, tile_tokens = numbers(kernel.readable)[-5:-3]
            counts = a_stage_with_its_chunk(kernel)
            terms = model.limits(machine, counts, warps_of(kernel))
            if "true," in which and re.search(r"<false,true,", kernel.readable):
                terms["memory"] = SEGMENT_SETS * tile_rows * tile_tokens * 4 / L2_BYTES / (cols / 64)
            per_sm = model.occupancy(machine, kernel.registers, kernel.threads, shared_bytes(kernel))
            share = model.waves(-(-rows // tile_rows) * -(-tokens // tile_tokens), machine.sms * per_sm)
            rate = share * model.teraflops(machine, counts.flops * warps_of(kernel), model.clocks(terms))
            if best is None or rate > best[1]:
                best = (name, rate, terms, f"{tile_rows} x {tile_tokens}")
        if best:
            yield best


def decode_attention(kernels, machine):
    """(share of bandwidth, terms of a tile, blocks an SM) of heads 128 wide, four query heads to a KV head, long contexts."""
    best = None
    for kernel in kernels:
        if not kernel.readable.startswith("attention_decode_kernel") or 128 not in numbers(kernel.readable):
            continue
        if "true" in kernel.readable:  # with a softcap
            continue
        for loop, once in tile_loops(kernel):
            if once.flops != 16 * 64 * 128 * 4 // 4:  # 16 rows over a tile, shared by four warps
                continue
            counts = way_that_copies(kernel, loop, 2 * 64 * 256 // 4)
            terms = model.limits(machine, counts, 4, hbm_bytes=2 * 64 * 256)
            share = terms["memory"] / model.clocks(terms)
            blocks = model.occupancy(machine, kernel.registers, kernel.threads, shared_bytes(kernel))
            if best is None or share > best[0]:
                best = (share, terms, blocks)
    return best


def small_gemm_share(kernels, machine, which, rows):
    """Of bandwidth, one token: a warp's stages against its SM's share of memory. 32 rows to a warp, or 16 where that leaves SMs
    without a block, as gemm_small.cu's fills_gpu() finds it: so for every matrix of an 8B and for layers of a 0.6B."""
    name = r"^gemm_small<true,false,small" if which == GATED else r"^gemm_small<false,false,small"
    kernel = find([k for k in kernels if numbers(k.readable)[:2] == [1, rows // 16]], name)
    if not kernel:
        return None
    counts = a_stage_with_its_chunk(kernel)
    terms = model.limits(machine, counts, 1, hbm_bytes=rows * 128)  # of 64 columns
    return terms["memory"] / model.clocks(terms)


# The choice of gemm_large.cu's few_clocks() for 33 to 64 tokens: rows of a tile, and the blocks that share its
# segments; qkv uses gemm_small.cu's kernel.
FEW_TILES = {"o": (128, 4), "gate, up": (224, 1), "down": (128, 4)}
ARRIVAL_CLOCKS = 1500  # a fence and a counter of the GPU's


def spread_gemm(kernels, machine, rows, cols):
    """Clocks of gemm_small.cu's kernel of 48 rows and 64 tokens, four warps with a chunk each; rounds of four chunks."""
    kernel = find([k for k in kernels if numbers(k.readable)[:2] == [8, 3]], r"^gemm_small")
    if not kernel:
        return None
    counts = kernel.function.hot()[1]
    n_blocks = -(-rows // 48)
    by_memory = model.hbm_bytes_a_clock(machine) * machine.sms / min(n_blocks, machine.sms)
    by_flight = 4 * 2 * 48 * 128 / (model.LATENCY_NS * machine.clock_ghz)
    terms = model.limits(machine, counts, 1)
    terms["memory"] = 48 * 128 / min(by_memory, by_flight)
    a_round = 4 * CHUNK_STAGES * model.clocks(terms) + 2 * 4 * 48 * 64 * 4 / model.SHARED_BYTES  # four sums in, four out
    return -(-n_blocks // machine.sms) * -(-cols // 2048) * a_round


def middle_gemm(kernels, machine):
    """Yields (matrix, share of bandwidth, share with the fold of blocks that share a tile) at 33 to 64 tokens."""
    for name, (rows, cols, which) in LLAMA_8B.items():
        limit = 2 * rows * cols / (model.hbm_bytes_a_clock(machine) * machine.sms)
        if name == "qkv":
            clocks = spread_gemm(kernels, machine, rows, cols)
            if clocks:
                yield name, limit / clocks, limit / clocks
            continue
        tile, owners = FEW_TILES[name]
        kernel = find([k for k in kernels if numbers(k.readable)[-5:-3] == [tile, 64]], r"^gemm_large", which)
        if not kernel:
            continue
        n_blocks = -(-rows // tile) * owners
        busy = min(n_blocks, machine.sms)
        stages = numbers(kernel.readable)[-1]
        per_sm = -(-n_blocks // machine.sms)
        resident = min(per_sm, model.occupancy(machine, kernel.registers, kernel.threads, shared_bytes(kernel)))
        # For a busy SM: its share of memory bandwidth, and the bytes in flight.
        by_memory = model.hbm_bytes_a_clock(machine) * machine.sms / busy
        by_flight = resident * (stages - 1) * tile * 128 / (model.LATENCY_NS * machine.clock_ghz)
        counts = kernel.function.hot()[1]
        terms = model.limits(machine, counts, warps_of(kernel))
        terms["memory"] = tile * 128 / min(by_memory, by_flight)
        clocks = per_sm * cols / 64 / owners * model.clocks(terms)
        # A block writes its sums, and the last one of a tile reads the others'.
        fold = ARRIVAL_CLOCKS + owners * tile * 64 * 4 / L2_BYTES if owners > 1 else 0
        yield name, limit / clocks, limit / (clocks + fold)


def step_ms(kernels, machine, matrices, layers, vocabulary, hidden, warp_rows):
    """A decode step of one sequence with a short context."""
    rate = model.HBM_SHARE * machine.hbm_gb_s * 1e3  # bytes a microsecond
    kinds = [(which, rows) for which in (PLAIN, SEGMENTED, GATED) for rows in (16, 32)]
    shares = {kind: small_gemm_share(kernels, machine, *kind) for kind in kinds}
    if None in shares.values():
        return None

    def gemm(rows, cols, which, of_warp=warp_rows):
        return 2 * rows * cols / (rate * shares[which, of_warp]) + FILL_US + model.GRAPH_NODE_US

    layer = sum(gemm(*m) for m in matrices.values()) + 2 * NORM_US + ROPE_US + ATTENTION_US
    return (layers * layer + gemm(vocabulary, hidden, PLAIN, 32) + NORM_US + 3 * OTHER_US + SAMPLING_US + IDLE_US) / 1e3


# How the benchmark's cases are called that the predictions above are of.
CASE_OF = {"qkv": "gemm bfloat16 mma T{} N6144 K4096", "o": "gemm bfloat16 mma T{} N4096 K4096 segments of 128",
           "gate, up": "gemm_gated bfloat16 mma T{} N28672 K4096",
           "down": "gemm bfloat16 mma T{} N4096 K14336 segments of 256"}
ATTENTION_CASE = ("attention float16 mma 32/8 heads of 128, blocks of 16, window 0, "
                  "from 4095 4095 4095 4095 and 60 more T64")
ATTENTION_BYTES = 64 * 4096 * 2 * 8 * 128 * 2


def predicted_cases(kernels, machine):
    """Yields (case of `quire bench kernels` or step, microseconds)."""
    rate = model.HBM_SHARE * machine.hbm_gb_s * 1e3  # bytes a microsecond
    for name, teraflops, _, _ in prefill_gemm(kernels, machine):
        rows, cols, _ = LLAMA_8B[name]
        yield CASE_OF[name].format(2048), 2 * 2048 * rows * cols / teraflops * 1e-6
    for name, _, folded in middle_gemm(kernels, machine):
        rows, cols, _ = LLAMA_8B[name]
        yield CASE_OF[name].format(64), 2 * rows * cols / (rate * folded)
    for name, (rows, cols, which) in LLAMA_8B.items():
        share = small_gemm_share(kernels, machine, which, 32)
        if share:
            yield CASE_OF[name].format(1), 2 * rows * cols / (rate * share) + FILL_US
    attention = decode_attention(kernels, machine)
    if attention:
        yield ATTENTION_CASE, ATTENTION_BYTES / (rate * attention[0])
    for name, args in (("8B", (LLAMA_8B, 32, 128256, 4096, 32)), ("0.6B", (QWEN_06B, 28, 151936, 1024, 16))):
        ms = step_ms(kernels, machine, *args)
        if ms:
            yield f"step of one sequence, {name}", ms * 1e3


def show_cases(kernels):
    """tools/gpu_predicted.txt: GPU|case|microseconds."""
    for machine in (model.H100, model.H200):
        for case, us in predicted_cases(kernels, machine):
            print(f"{machine.name.split()[0]}|{case}|{us:.1f}")


def show_terms(title, terms):
    total = model.clocks(terms)
    print(f"| {title} | " + " | ".join(f"{terms[k]:.0f}" for k in terms) + f" | {total:.0f} |")


def show(kernels):
    for machine in (model.H100, model.H200):
        print(f"\n## {machine.name}, predicted\n")
        print("| work | predicted |\n|---|---|")
        for name, rate, _, tile in prefill_gemm(kernels, machine):
            print(f"| prefill GEMM, {name}, 2,048 tokens, tiles of {tile} | {rate:.0f} TFLOP/s = "
                  f"{rate / CUBLAS_TFLOPS:.2f} of cuBLAS |")
        attention = decode_attention(kernels, machine)
        if attention:
            print(f"| decode attention, 4k and more | {attention[0]:.2f} of bandwidth, {attention[2]} blocks an SM |")
        for name, share, folded in middle_gemm(kernels, machine):
            print(f"| GEMM, {name}, 64 tokens | {share:.2f} of bandwidth, {folded:.2f} with the blocks' fold |")
        for name, (_, _, which) in LLAMA_8B.items():
            share = small_gemm_share(kernels, machine, which, 32)
            if share:
                print(f"| GEMM, {name}, one token | {share:.2f} of bandwidth |")
        for name, args in (("8B", (LLAMA_8B, 32, 128256, 4096, 32)), ("0.6B", (QWEN_06B, 28, 151936, 1024, 16))):
            ms = step_ms(kernels, machine, *args)
            if ms:
                print(f"| step of one sequence, {name} | {ms:.2f} ms |")
    print("\n## Clocks of an SM for a stage, H100\n")
    rows = [(f"prefill GEMM, {name}, {tile}", terms) for name, _, terms, tile in prefill_gemm(kernels, model.H100)]
    attention = decode_attention(kernels, model.H100)
    rows += [("decode attention, a tile", attention[1])] if attention else []
    if rows:
        print("| loop | " + " | ".join(rows[0][1]) + " | together |\n|" + "---|" * (len(rows[0][1]) + 2))
        for title, terms in rows:
            show_terms(title, terms)
