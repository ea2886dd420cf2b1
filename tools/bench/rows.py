"""The rows of the table: the measurement, the contenders and the goal.

A row is a function of the bench (run.py) that returns a Row. Its entries alternate, round after round. An entry with
several settings tries each first and keeps the best, so that a peer is shown at its best.
"""
import dataclasses
import json
import pathlib
import subprocess
import time
import typing

import ours
from proof import random_prompts

SMALL, LARGER = "qwen2.5-0.5b", "qwen2.5-1.5b"
TOKENS_PER_S, SECONDS, MIB = "tok/s", "s", "MiB"


@dataclasses.dataclass
class Entry:
    who: str
    measure: typing.Callable  # (**setting) → (value, what the program said)
    settings: tuple = ({},)
    isa: str = "avx2"  # the least that it needs


@dataclasses.dataclass
class Goal:
    """At least `factor` times what `of` reaches; with of = "read" a share of the row-stream read, with of = "" an upper bound.
    It is set for machines that have the instruction set."""
    factor: float
    of: str = ""
    who: str = "quire"
    isa: str = "avx2"
    later: float = 0  # the goal after this one, where there is one


@dataclasses.dataclass
class Row:
    name: str
    title: str
    unit: str
    entries: list
    goals: list
    bytes_per_token: int = 0  # of weights: what a decoded token must read
    rounds: int = 0  # 0: as the command line says


ROWS = {}


def row(name):
    def add(function):
        ROWS[name] = function
        return function
    return add


FLASH = ({"flash": False}, {"flash": True})
FLASH_AND_CACHES = tuple({"flash": f, "unified": u} for f in (False, True) for u in (False, True))
CACHES = ({"static": False}, {"static": True})


def peer_entry(who, peer, prompts, tokens, rate, settings):
    """rate: of the answer, the figure"""
    peer.call("generate", prompts=[prompts[0]], tokens=2)

    def measure(**setting):
        answer = peer.call("generate", prompts=prompts, tokens=tokens, **setting)
        del answer["tokens"]
        return rate(answer), answer
    return Entry(who, measure, settings)


def quire_entry(who, bench, rate, model, batch, length_in, length_out, times=1, isa=None, flags=()):
    def measure():
        answer = bench.quire.latency(model, batch, length_in, length_out, times, isa, flags)
        return rate(answer), answer
    return Entry(who, measure, isa=isa or "avx2")


# ---- one request --------------------------------------------------------------------------------------------------


def model_of(bench, dtype):
    """A checkpoint of 16 bits, or a GGUF file of fewer."""
    return bench.model(SMALL, dtype) if dtype in ("f16", "bf16") else bench.gguf(SMALL, dtype)


def decode(bench, dtype, goals):
    model, length, steps = model_of(bench, dtype), 32, 128
    return Row(
        f"decode-{dtype}", f"decode, 1 request, {dtype.upper()}", TOKENS_PER_S,
        [quire_entry("quire", bench, lambda a: a["decode_tokens_per_second"], model, 1, length, steps + 1),
         peer_entry("llama.cpp", bench.llama(model), random_prompts(1, length, 2), steps + 1,
                    lambda a: steps / a["later"], FLASH)],
        goals, bytes_per_token=bench.quire.plan(model)["weight_bytes"])


@row("decode-f16")
def decode_f16(bench):
    return decode(bench, "f16", [Goal(1.05, "llama.cpp"), Goal(0.80, "read", later=0.85)])


@row("decode-bf16")
def decode_bf16(bench):
    return decode(bench, "bf16", [Goal(1.4, "llama.cpp")])


@row("decode-q8_0")
def decode_q8_0(bench):
    return decode(bench, "q8_0", [Goal(1.1, "llama.cpp"), Goal(0.80, "read")])


@row("decode-q4_0")
def decode_q4_0(bench):
    return decode(bench, "q4_0", [Goal(1.1, "llama.cpp")])


@row("decode-q4_k_m")
def decode_q4_k_m(bench):
    return decode(bench, "q4_k_m", [Goal(1.1, "llama.cpp")])


# ---- 16 requests --------------------------------------------------------------------------------------------------


def concurrent(bench, dtype, goals, flags=()):
    model, n, length, tokens = model_of(bench, dtype), 16, 128, 64
    prompts = random_prompts(n, length, 3)
    llama = bench.llama(model)
    name = "-".join((dtype, *flags[1::2]))
    return Row(
        f"concurrent-{name}", f"{n} concurrent requests, {length} in, {tokens} out, {name.upper()}, all in", TOKENS_PER_S,
        [quire_entry("quire", bench, lambda a: n * tokens / a["avg_latency"], model, n, length, tokens, flags=flags),
         peer_entry("llama.cpp", llama, prompts, tokens, lambda a: n * tokens / a["seconds"], FLASH_AND_CACHES),
         peer_entry("llama.cpp, one by one", llama, prompts[:1], tokens, lambda a: tokens / a["seconds"], FLASH)],
        goals)


@row("concurrent-f16")
def concurrent_f16(bench):
    return concurrent(bench, "f16", [Goal(2, "llama.cpp")])


@row("concurrent-bf16")
def concurrent_bf16(bench):
    return concurrent(bench, "bf16", [Goal(4, "llama.cpp", isa="amx")])


@row("concurrent-q8_0")
def concurrent_q8_0(bench):
    return concurrent(bench, "q8_0", [Goal(1.5, "llama.cpp")])


@row("concurrent-q4_0")
def concurrent_q4_0(bench):
    return concurrent(bench, "q4_0", [Goal(1.5, "llama.cpp")])


@row("concurrent-bf16-int8")
def concurrent_bf16_int8(bench):
    """A BF16 checkpoint that Quire quantizes while loading, compared with llama.cpp's BF16."""
    return concurrent(bench, "bf16", [Goal(2, "llama.cpp")], flags=("--quantization", "int8"))


# ---- prefill ------------------------------------------------------------------------------------------------------

PREFILL = 512
TILE = ("--gemm-form", "tile")
ROUNDED = ("--activation-dtype", "bfloat16")


def prefill(bench, dtype, variants, goals, more=()):
    """variants: (who, isa, flags) of Quire"""
    model = model_of(bench, dtype)
    prompts = random_prompts(1, PREFILL, 4)
    entries = [quire_entry(who, bench, lambda a: a["prefill_tokens_per_second"], model, 1, PREFILL, 1, isa=isa,
                           flags=flags) for who, isa, flags in variants]
    entries.append(peer_entry("llama.cpp", bench.llama(model), prompts, 1, lambda a: PREFILL / a["first"], FLASH))
    for dtype_name in more:
        peer = bench.transformers(model, dtype_name)
        entries.append(peer_entry(f"PyTorch {dtype_name}", peer, prompts, 1, lambda a: PREFILL / a["first"], CACHES))
    return Row(f"prefill-{dtype}", f"prefill {PREFILL} tokens, {dtype.upper()}", TOKENS_PER_S, entries, goals)


@row("prefill-f16")
def prefill_f16(bench):
    variants = [("quire, AVX2", "avx2", ()), ("quire, AVX-512", "avx512", ()),
                ("quire, AMX", "amx", TILE)]
    return prefill(bench, "f16", variants,
                   [Goal(1.5, "llama.cpp", "quire, AVX-512", "avx512"), Goal(1, "llama.cpp", "quire, AVX2"),
                    Goal(2, "llama.cpp", "quire, AMX", "amx")])


@row("prefill-bf16")
def prefill_bf16(bench):
    torch, tile, rounded = "PyTorch bfloat16", "quire, tile form", "quire, bf16 activations"
    variants = [("quire", None, ()), (tile, None, TILE), (rounded, None, ROUNDED)]
    return prefill(bench, "bf16", variants,
                   [Goal(4, "llama.cpp", tile, "amx"), Goal(1, torch, tile, "amx"),
                    Goal(8, "llama.cpp", rounded, "amx"), Goal(2, torch, rounded, "amx")], more=["bfloat16"])


def prefill_blocks(bench, dtype):
    return prefill(bench, dtype, [("quire, VNNI", "avx512vnni", ()), ("quire, AMX", "amx", ())],
                   [Goal(1.2, "llama.cpp", "quire, VNNI", "avx512vnni"), Goal(3, "llama.cpp", "quire, AMX", "amx")])


@row("prefill-q8_0")
def prefill_q8_0(bench):
    return prefill_blocks(bench, "q8_0")


@row("prefill-q4_0")
def prefill_q4_0(bench):
    return prefill_blocks(bench, "q4_0")


# ---- several prompts, one by one and together ---------------------------------------------------------------------


@row("together")
def together(bench):
    """The experiment at the start of the project: the gain of a batch."""
    dtype, n, length, tokens = "bf16", 4, 16, 64
    model = bench.model(LARGER, dtype)
    prompts = random_prompts(n, length, 5)
    peers = {name: bench.transformers(model, name) for name in ("bfloat16", "float16")}
    for peer in peers.values():
        peer.call("generate", prompts=prompts[:1], tokens=2)
    settings = tuple({"dtype": name, **cache} for name in peers for cache in CACHES)

    def one_by_one(dtype, **setting):
        answers = [peers[dtype].call("generate", prompts=[prompt], tokens=tokens, **setting) for prompt in prompts]
        seconds = sum(answer["seconds"] for answer in answers)
        return n * tokens / seconds, {"seconds": seconds}

    def at_once(dtype, **setting):
        answer = peers[dtype].call("generate", prompts=prompts, tokens=tokens, **setting)
        del answer["tokens"]
        return n * tokens / answer["seconds"], answer
    entries = [
        quire_entry("quire, one by one", bench, lambda a: tokens / a["avg_latency"], model, 1, length, tokens, times=n),
        Entry("transformers, one by one", one_by_one, settings),
        quire_entry("quire, together", bench, lambda a: n * tokens / a["avg_latency"], model, n, length, tokens),
        Entry("transformers, together", at_once, settings)]
    return Row("together", f"Qwen2.5-1.5B shape, {dtype.upper()}, {n} prompts × {tokens} tokens", TOKENS_PER_S, entries,
               [Goal(3.5, "quire, one by one", "quire, together"),
                Goal(1.5, "transformers, one by one", "quire, one by one"),
                Goal(1.5, "transformers, together", "quire, together")])


# ---- the process --------------------------------------------------------------------------------------------------


@row("first-token")
def first_token(bench):
    model = bench.model(SMALL, "f16")
    checkpoint = model / "model.safetensors"

    def measure():
        subprocess.run(["cat", checkpoint], stdout=subprocess.DEVNULL, check=True)  # into the page cache
        seconds = bench.quire.first_token_seconds(model)
        return seconds, {"seconds": seconds, "checkpoint_bytes": checkpoint.stat().st_size}
    return Row("first-token", "exec to first token, 1 GB checkpoint in page cache", SECONDS, [Entry("quire", measure)],
               [Goal(1)])


@row("memory")
def memory(bench):
    """An upper bound: everything resident but the mapped checkpoint and the KV pool, of which the load touches every
    block. Step buffers count in full; a small token budget makes them small. The tokenizer is one of 256 tokens."""
    model = bench.model(SMALL, "f16", small_tokenizer=True)
    n, length, tokens, block = 16, 128, 64, 16
    flags = ("--max-num-seqs", n, "--num-kv-blocks", n * (length + tokens) // block, "--block-size", block,
             "--max-num-batched-tokens", n)

    def measure():
        kv = bench.quire.plan(model, *map(str, flags))["kv_bytes"]
        with ours.Server(bench.quire, model, *flags) as server:
            server.generate(random_prompts(n, length, 6), tokens)
            everything, weights = server.resident_bytes()
        return (everything - weights - kv) / 2**20, {"resident": everything, "weights": weights, "kv": kv}
    return Row("memory", "resident memory beyond weights, KV pool and tokenizer, after 16 requests", MIB,
               [Entry("quire", measure)], [Goal(64)])


@row("idle")
def idle(bench):
    model = bench.model(SMALL, "f16")

    def measure():
        with ours.Server(bench.quire, model, "--kv-cache-memory", "256M") as server:
            server.generate(random_prompts(1, 16, 7), 4)
            time.sleep(1)
            begin, cpu = time.monotonic(), server.cpu_seconds()
            time.sleep(4)
            used, seconds = server.cpu_seconds() - cpu, time.monotonic() - begin
        return 1e6 * used / seconds, {"cpu_seconds": used, "seconds": seconds}
    return Row("idle", "CPU time of an idle server", "µs/s", [Entry("quire", measure)], [Goal(1000)])


# Goals of the rows of tests/bench/host_bench.
HOST_GOALS = {
    "engine: host time of a step, 256 running": Goal(100, later=30),
    "scheduling: 1000 running, prefix caching off": Goal(50),
    "scheduling: 1000 running, prefix caching on": Goal(50),
    "prefix cache: a new block of 16 tokens, no hits": Goal(1),
    "1,024 streams: whole server": Goal(10),
    "1,024 streams: memory but weights, arenas, tokenizer": Goal(64),
    "1,024 streams: CPU time while idle": Goal(1000),
}


@row("host")
def host(bench):
    """A separate program measures the host's cost in addition to the kernels; its rows are copied."""
    program = bench.quire.binary.parent / "tests" / "bench" / "host_bench"
    if not program.exists():
        raise ours.Failed(f"{program.name} is not built: cmake --build --target host_bench")
    model = pathlib.Path(__file__).parents[1] / "demo_model" / "model"
    done = subprocess.run([program, "--json", model], capture_output=True, text=True)
    if done.returncode != 0:
        raise ours.Failed(done.stderr.strip().splitlines()[-1])
    return [Row("host: " + said["name"], said["name"], said["unit"].replace("us", "µs"),
                [Entry("quire", lambda said=said: (said["median"], {**said, "low": said["p5"], "high": said["p95"]}))],
                [HOST_GOALS[said["name"]]] if said["name"] in HOST_GOALS else [], rounds=1)
            for said in json.loads(done.stdout)]
