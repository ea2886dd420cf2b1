"""Greedy tenants beside light ones, on a live server on a CPU: the first loads of docs/internals/scheduling.md in small.

    python3 tools/bench/fair_live.py build/quire --output docs/benchmarks/fair-live.jsonl

A model of random weights with 16,384 positions, one thread. Each load runs beside its measure in alternation, five times,
once with a cost file of `quire bench steps` and once with the model that the server fits to its own steps. The machine may
be busy with other work: only ratios of neighbouring runs are reported, and their medians. Standard library only.

prompts   two tenants send four prompts of 6,000 tokens each, with a step target: the time of 128 prompt tokens after 3,000
          others. Goals: until the last of them is computed, steps compute at least 0.98 of the tokens in a second that they
          compute under fcfs; the light tenants' p95 TTFT is at most 1.5 times that without the greedy ones
seats     a tenant with answers of 2,000 tokens, three for each seat. Goal: the light p95 TTFT is at most 0.2 s, and here at
          most as many times that alone as 0.2 s is in the simulation, 7.4
contexts  a tenant's requests with a cached prefix of 6,000 tokens. Goal: the light p95 end to end is at most 3 times that
          alone
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
HIDDEN, LAYERS, HEADS, KV_HEADS, MLP, VOCAB, POSITIONS = 512, 2, 8, 2, 1408, 2048, 16384
KEYS = {name: f"key-of-{name}-0123456789" for name in ("light1", "light2", "greedy1", "greedy2")}
SERVER = ["--port", "0", "--threads", "1", "--max-model-len", "8192", "--max-num-batched-tokens", "512", "--num-kv-blocks", "4000"]
LONG = 6000  # tokens of a greedy prompt or prefix
WARM_S, RUN_S, MOST_S = 1, 12, 90
RATE, LIGHT = 1, (150, 450)  # of each light tenant: requests a second, tokens of a prompt
GOALS = {"prompts": {"throughput": 0.98, "ttft": 1.5}, "seats": {"ttft": 7.4}, "contexts": {"e2e": 3}}


def make_model(directory):
    """Weights spread like a trained model's, from one block of random numbers; the demo model's tokenizer."""
    rng, head = random.Random(0), HIDDEN // HEADS
    noise = [struct.pack("<e", rng.gauss(0, 1)) for _ in range(1 << 16)]
    shapes = {"model.embed_tokens.weight": (0.02, VOCAB, HIDDEN), "model.norm.weight": (None, HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (None, HIDDEN)
        for name, n_out, n_in in (("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", KV_HEADS * head, HIDDEN),
                                  ("self_attn.v_proj", KV_HEADS * head, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
                                  ("mlp.gate_proj", MLP, HIDDEN), ("mlp.up_proj", MLP, HIDDEN), ("mlp.down_proj", HIDDEN, MLP)):
            shapes[f"{layer}{name}.weight"] = (n_in ** -0.5, n_out, n_in)
            if name[:11] in ("self_attn.q", "self_attn.k", "self_attn.v"):
                shapes[f"{layer}{name}.bias"] = (0.02, n_out)
    header, data = {}, bytearray()
    for number, (name, (deviation, *shape)) in enumerate(shapes.items()):
        n = 1
        for size in shape:
            n *= size
        if deviation is None:
            values = struct.pack("<e", 1) * n
        else:
            block = b"".join(struct.pack("<e", deviation * struct.unpack("<e", x)[0]) for x in noise)
            turn = 2 * (number * 7919 % len(noise))
            values = ((block[turn:] + block[:turn]) * (n // len(noise) + 1))[:2 * n]
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * n]}
        data += values
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": HIDDEN,
              "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True,
              "torch_dtype": "float16", "use_sliding_window": False, "vocab_size": VOCAB, "bos_token_id": 2045, "eos_token_id": 2047}
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(ROOT / "tools/demo_model/model" / name, directory / name)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class Server:
    def __init__(self, quire, model, directory, arguments):
        tenants = directory / "tenants.json"
        tenants.write_text(json.dumps([{"name": name, "key": key} for name, key in KEYS.items()]))
        self.process = subprocess.Popen([quire, "serve", model, *SERVER, "--tenants", tenants, *map(str, arguments)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        log = ""
        while "ready on http" not in log:
            line = self.process.stderr.readline()
            if not line:
                sys.exit(f"the server did not start:\n{log}")
            log += line
        self.port = int(re.search(r"http://[0-9.]+:(\d+)", log).group(1))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, tenant, prompt, max_tokens):
        """Returns the seconds to the first token and to the end; None once the server is gone."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            began, first = time.monotonic(), None
            connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": max_tokens, "stream": True,
                                                                     "ignore_eos": True, "temperature": 0}),
                               {"authorization": f"Bearer {KEYS[tenant]}", "content-type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                sys.exit(reply.read().decode())
            for line in reply:
                if line.startswith(b"data: ") and first is None:
                    first = time.monotonic() - began
            return first, time.monotonic() - began
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics", headers={"authorization": f"Bearer {KEYS['light1']}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return float(re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M).group(1))


def tokens(rng, n):
    return [rng.randrange(300, 2000) for _ in range(n)]


class Load:
    """Traffic on a server: light tenants at a rate, greedy ones as a number of clients that ask again at once."""

    def __init__(self, server, seed):
        self.server, self.seed, self.threads, self.times, self.stop = server, seed, [], [], False

    def start(self, target, *arguments):
        self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self.threads[-1].start()

    def one_light(self, tenant, prompt):
        sent = time.monotonic()
        got = self.server.ask(tenant, prompt, 20)
        if got and got[0] is not None:
            self.times.append((sent, *got))

    def light(self, tenant, rate):
        rng = random.Random(f"{tenant} {self.seed}")
        due = time.monotonic()
        while not self.stop:
            due += rng.expovariate(rate)
            time.sleep(max(0, due - time.monotonic()))
            self.start(self.one_light, tenant, tokens(rng, rng.randrange(*LIGHT)))

    def greedy(self, tenant, number, n_requests, prefix, n_prompt, max_tokens):
        """n_requests, one after the other; None: until the server ends."""
        rng = random.Random(f"{tenant} {number} {self.seed}")
        while not self.stop and n_requests != 0 and self.server.ask(tenant, prefix + tokens(rng, n_prompt), max_tokens):
            n_requests = n_requests and n_requests - 1


def warm_up(server, fits):
    """Short requests; where the server fits its model, until it has one."""
    rng, until = random.Random(1), time.monotonic() + 60
    for n in (1, 30, 120, 500, 1500) + (3000, LONG, 700, 300, 70) * (12 if fits else 0):
        server.ask("light1", tokens(rng, n), 20)
        if fits and server.metric("quire:cost_model_changes_total") > 0 and n == LONG:
            return
        if time.monotonic() > until:
            break
    if fits and server.metric("quire:cost_model_changes_total") == 0:
        sys.exit("the server did not fit a cost model")


def run(context, arguments, seed, greedy):
    """Returns p95s of the light requests that were sent after the warm-up, and the tokens that steps computed in a second."""
    server = Server(context.quire, context.model, context.directory, [*context.cost, *arguments])
    load = Load(server, seed)
    try:
        warm_up(server, not context.cost)
        prefix = tokens(random.Random(2), LONG)
        if greedy and greedy[0][3]:
            server.ask("greedy1", prefix, 1)
        began, before = time.monotonic(), server.metric("vllm:iteration_tokens_total_sum")
        for tenant, n, n_requests, has_prefix, n_prompt, max_tokens in greedy:
            for number in range(n):
                load.start(load.greedy, tenant, number, n_requests, prefix if has_prefix else [], n_prompt, max_tokens)
        works = load.threads[:] if greedy and greedy[0][2] else []
        for tenant in ("light1", "light2"):
            load.start(load.light, tenant, RATE)
        if not works:
            time.sleep(RUN_S + WARM_S)
        while any(thread.is_alive() for thread in works) and time.monotonic() < began + MOST_S:
            time.sleep(0.01)
        took, n_tokens = time.monotonic() - began, server.metric("vllm:iteration_tokens_total_sum") - before
        load.stop = True
        time.sleep(2)
        preemptions = server.metric("vllm:num_preemptions_total")
        changes = server.metric("quire:cost_model_changes_total")
    finally:
        load.stop = True
        server.end()
    after = [(ttft, e2e) for sent, ttft, e2e in load.times if began + WARM_S <= sent < began + took]
    p95 = [statistics.quantiles([t[i] for t in after], n=20)[-1] for i in (0, 1)] if len(after) > 2 else [float("inf")] * 2
    return {"n": len(after), "ttft_p50_ms": 1000 * statistics.median(t[0] for t in after) if after else None, "ttft_ms": 1000 * p95[0], "e2e_ms": 1000 * p95[1], "tokens_s": n_tokens / took, "seconds": took, "preemptions": preemptions,
            "cost_models": changes}


def loads(target_ms):
    fair = ["--scheduling-policy", "fair"]
    timed = ["--step-target-ms", f"{target_ms:.2f}"]
    two = [("greedy1", 2, 2, False, LONG, 2), ("greedy2", 2, 2, False, LONG, 2)]
    yield "prompts", [("alone", [*fair, *timed], []), ("fair", [*fair, *timed], two), ("fcfs", ["--scheduling-policy", "fcfs", *timed], two)]
    seats = ["--max-num-seqs", "8"]
    yield "seats", [("alone", [*fair, *seats], []), ("fair", [*fair, *seats], [("greedy1", 24, None, False, 10, 2000)])]
    yield "contexts", [("alone", fair, []), ("fair", fair, [("greedy1", 2, None, True, 1, 100)])]


def ratios(load, runs):
    fair, alone = runs["fair"], runs["alone"]
    if load == "prompts":
        return {"throughput": fair["tokens_s"] / runs["fcfs"]["tokens_s"], "ttft": fair["ttft_ms"] / alone["ttft_ms"]}
    what = "ttft" if load == "seats" else "e2e"
    return {what: fair[what + "_ms"] / alone[what + "_ms"]}


def verdict(name, median, goal):
    """Within 1.5 times the goal: of a throughput, the loss and not the rest."""
    return median >= 1 - 1.5 * (1 - goal) if name == "throughput" else median <= 1.5 * goal


def write(path, lines):
    if path:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def chunk_us(model, n, context):
    """The time of a step of n prompt tokens after `context` others."""
    (n0, us0), (n1, us1) = next((a, b) for a, b in zip(model["points"], model["points"][1:]) if b[0] >= n)
    return (us0 + (us1 - us0) * (n - n0) / (n1 - n0) + model["row_us"] + model["context_us"] * (context + n)
            + model["pair_us"] * n * (context + n / 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("--output", type=pathlib.Path, help="raw results, one JSON object a line")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="loads")
    parser.add_argument("--cost", choices=("file", "fitted"), nargs="*", default=("file", "fitted"))
    parser.add_argument("--fit-seconds", type=int, default=40)
    context = parser.parse_args()
    costs, lines = context.cost, []
    with tempfile.TemporaryDirectory() as name:
        context.directory = pathlib.Path(name)
        context.model = context.directory / "model"
        make_model(context.model)
        cost = context.directory / "cost.json"
        subprocess.run([context.quire, "bench", "steps", context.model, *SERVER[2:], "--max-num-seqs", "16", "--seconds",
                        str(context.fit_seconds), "--output", cost], check=True, stdout=subprocess.DEVNULL)
        model = json.loads(cost.read_text())
        target_ms = chunk_us(model, 128, LONG // 2) / 1000
        lines.append({"cost_model": model, "step_target_ms": target_ms})
        print(f"a step of one token takes {model['points'][0][1] / 1000:.2f} ms; step target {target_ms:.1f} ms", flush=True)
        for kind in costs:
            context.cost = ["--cost-model", cost] if kind == "file" else []
            for load, variants in loads(target_ms):
                if context.only and load not in context.only:
                    continue
                got = []
                for seed in range(context.repeat):
                    runs = {what: run(context, arguments, seed, greedy) for what, arguments, greedy in variants}
                    got.append(ratios(load, runs))
                    lines.append({"cost": kind, "load": load, "seed": seed, "runs": runs, "ratios": got[-1]})
                    write(context.output, lines)
                    print(kind, load, seed, {k: round(v, 3) for k, v in got[-1].items()},
                          {k: round(r["ttft_ms"], 1) for k, r in runs.items()}, flush=True)
                for what, goal in GOALS[load].items():
                    median = statistics.median(g[what] for g in got)
                    print(f"{kind:6} {load:8} {what:10} median {median:.3f}, goal {goal}: "
                          f"{'within' if verdict(what, median, goal) else 'NOT within'} 1.5 times", flush=True)


if __name__ == "__main__":
    main()
