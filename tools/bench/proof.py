"""Proves that all timed programs compute the same model: a figure for wrong tokens is void.

The reference is transformers in fp32 on the same weights. An engine that rounds activations to 16 bits makes a
relative error of u (2^-11 for f16, 2^-8 for bf16) each time; such errors add up as their squares do, to about u *
sqrt(n * L + 1) of the logits after L layers with n roundings each, and one before the logits. llama.cpp rounds the
inputs of a layer's GEMMs, and K and V (n = 6: q, k and v share an input, and so do gate and up); PyTorch in 16 bits
rounds every result (n = 12: two norms, qkv, rotation, attention, o, two sums, gate, up, their product, down). That
bounds the RMS difference of the first logits (a wrong bias, rotation or layout makes it 0.1 to 1.4), and greedy
tokens may diverge only where the reference's two best logits are closer than 3 sqrt(2) times that: three standard
deviations of the difference of two such errors. Quire uses activations in fp32, or in two bf16 terms, and must meet
llama.cpp's bound.
"""
import json
import math
import random

import ours
from peer import Peer

UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}
N_PROMPTS, LENGTH, TOKENS = 2, 24, 16


def random_prompts(n, length, seed):
    rng = random.Random(seed)
    return [[rng.randrange(1000, 150000) for _ in range(length)] for _ in range(n)]


def compare(name, bound, references, tokens, logits=()):
    record = {"record": "proof", "who": name, "tokens_equal": 0, "tokens": N_PROMPTS * TOKENS, "near_ties": 0,
              "logits_error": None, "bound": bound, "ok": True}
    for i, reference in enumerate(references):
        for mine, theirs, gap in zip(tokens[i], reference["tokens"], reference["gaps"]):
            if mine != theirs:
                record["near_ties"] += 1
                record["ok"] &= gap <= 3 * math.sqrt(2) * bound
                break  # from here on the contexts differ
            record["tokens_equal"] += 1
        if logits:
            square = sum(x * x for x in reference["logits"])
            error = sum((x - y) ** 2 for x, y in zip(reference["logits"], logits[i]))
            error = math.sqrt(error / square)
            record["logits_error"] = max(record["logits_error"] or 0, error)
            record["ok"] &= error <= bound
    return record


def prove(bench, shape, dtype, peers):
    """Yields a record for Quire and for each of the peers ("llama.cpp", or a torch dtype) on one model."""
    model = bench.model(shape, dtype)
    layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    prompts = random_prompts(N_PROMPTS, LENGTH, seed=1)
    truth = Peer("peer_transformers.py", model, bench.threads, "float32")
    references = [truth.call("reference", prompt=prompt, tokens=TOKENS) for prompt in prompts]
    truth.close()
    gemm_inputs = UNIT[dtype] * math.sqrt(6 * layers + 1)
    forms = {"quire": ()}
    if dtype == "bf16":
        forms |= {"quire, tile form": ("--gemm-form", "tile"),
                  "quire, bf16 activations": ("--activation-dtype", "bfloat16")}
    for name, flags in forms.items():
        with ours.Server(bench.quire, model, "--kv-cache-memory", "256M", *flags) as server:
            yield compare(name, gemm_inputs, references, server.generate(prompts, TOKENS))
    for who in peers:
        if who == "llama.cpp":
            peer, name, bound = bench.llama(model), who, gemm_inputs
        else:
            peer, name = bench.transformers(model, who), f"transformers {who}"
            bound = UNIT["bf16" if who == "bfloat16" else "f16"] * math.sqrt(12 * layers + 1)
        tokens = [peer.call("generate", prompts=[prompt], tokens=TOKENS)["tokens"][0] for prompt in prompts]
        logits = [peer.call("first_logits", prompt=prompt) for prompt in prompts]
        yield compare(name, bound, references, tokens, logits)
        bench.close_peers()
