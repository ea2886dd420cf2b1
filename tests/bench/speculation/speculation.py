#!/usr/bin/env python3
"""The gain of speculation: every method compared with the same server without it, in one run, and llama.cpp's lookup
compared with llama.cpp.

    python3 tests/bench/speculation/speculation.py --out docs/benchmarks/speculation [--quick] [--rows copy,draft,saturation]
                                       [--llama-server PATH]

Writes OUT.md and OUT.json, every sample in it. Runs about ten minutes on two cores, --quick one. Models are created
in --work if missing (copying_model.py, wide_demo.py: 1 GB and 0.7 GB, another 1 GB as GGUF for llama.cpp), which
needs numpy, safetensors, tokenizers and gguf; the rest is the standard library. Without --llama-server there is no
peer.

All servers of a row run at once; those that wait compute nothing. They take turns, in one order in even rounds and in
the other in odd ones, and a gain is the ratio of two rates of the same round: the table gives the median of the rounds,
and the lowest and highest. Where hundredths matter, each server is paired with one without drafts and both run
equally often, in three pairs of new servers: the placement of a server's memory is random, and the one that ran last
is faster. A second server without drafts shows the noise of such a gain. A round has its own text, the same for all
servers, and its own cache_salt, so that no server drafts from the previous round. Every answer of Quire's must be, to
the letter, that of the server without drafts; a run in which one is not ends with an error. Other activity of the
machine is reported as its load.
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import copying_model
    import wide_demo
except ImportError as error:
    sys.exit(f"{error}: python3 -m pip install numpy safetensors tokenizers gguf")

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO, DRAFT = ROOT / "tools/demo_model/model", ROOT / "tools/demo_model/draft"
STORIES = ("a fox and a lantern", "a hare and a boat", "an owl and a key", "a cat and a drum", "a bear and a kite", "a mouse and a bell",
           "a frog and a map", "a goat and a basket", "a dog and a wheel", "a hen and a coat", "a mole and a ladder", "an otter and a cup")


# Servers -------------------------------------------------------------------------------------------------------------------------

class Server:
    """A process that serves the OpenAI API, started and ready; ends with the stack."""

    def __init__(self, stack, name, command, ready, port=None):
        self.name = name
        log = stack.enter_context(tempfile.NamedTemporaryFile("w+"))
        self.process = process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        self.url = f"http://127.0.0.1:{port}"
        while not self.is_ready(log.name, ready):
            if process.poll() is not None:
                sys.exit(f"{name}: {pathlib.Path(log.name).read_text()[-2000:]}")
            time.sleep(0.05)

    def is_ready(self, log, ready):
        found = re.search(ready, pathlib.Path(log).read_text(errors="replace"))
        if found and found.groups():
            self.url = found[1]
        return found

    def post(self, route, body):
        request = urllib.request.Request(self.url + route, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            return urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            sys.exit(f"{self.name}: {route}: {error.read().decode()}")

    def whole(self, route, body):
        """An answer in one piece: {text, tokens, seconds}."""
        begin = time.perf_counter()
        with self.post(route, body) as reply:
            answer = json.load(reply)
        seconds = time.perf_counter() - begin
        choice = answer["choices"][0]
        return {"text": choice["text"] if "text" in choice else choice["message"]["content"],
                "tokens": answer["usage"]["completion_tokens"], "seconds": seconds}

    def stream(self, route, body):
        """An answer as it comes; `seconds` are those between its first and its last token, which `tokens` leaves out."""
        text, times, usage = "", [], None
        with self.post(route, {**body, "stream": True, "stream_options": {"include_usage": True}}) as reply:
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    piece = choice["text"] if "text" in choice else choice["delta"].get("content")
                    if piece:
                        text += piece
                        times.append(time.perf_counter())
        return {"text": text, "tokens": usage["completion_tokens"] - 1, "seconds": times[-1] - times[0], "usage": usage}

    def cpu_seconds(self):
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the process's CPU clock, as clock_getcpuclockid() names it

    def drafts(self):
        """(steps with drafts, drafts, accepted drafts), from /metrics since the start."""
        with urllib.request.urlopen(self.url + "/metrics") as reply:
            lines = reply.read().decode().splitlines()
        return [sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"vllm:spec_decode_num_{name}_total[ {{]", line))
                for name in ("drafts", "draft_tokens", "accepted_tokens")]


def quire(stack, o, name, model, config=None, *flags):
    command = [o.quire, "serve", model, "--port", "0", "--threads", o.threads, "--kv-cache-memory", "256M", *flags]
    if config:
        command += ["--speculative-config", json.dumps(config)]
    return Server(stack, name, command, r"ready on (http://\S+)/v1")


def llama(stack, o, name, model, *flags):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    return Server(stack, name, [o.llama_server, "-m", model / "model.gguf", "--port", port, "-t", o.threads, "-tb", o.threads, "-c", 4096, "-np", 1,
                                "--no-warmup", "--cache-ram", 0, *flags], r"listening on http", port)


# Rounds --------------------------------------------------------------------------------------------------------------------------

class Row:
    """Contenders with the same work, and the one each is compared with."""

    def __init__(self, o, name, work, goals):
        self.o, self.name, self.work, self.goals, self.samples = o, name, work, goals, []

    def run(self, contenders, rounds):
        """contenders: {name: (server, its base's name, do)}; do(server, round) → list of answers."""
        for turn in [-1, *rounds]:
            said = {}
            for name in list(contenders) if turn % 2 else list(contenders)[::-1]:
                server, base, do = contenders[name]
                counted, cpu, began = self.counters(server), server.cpu_seconds(), time.perf_counter()
                answers = do(server, turn)
                now, cpu, ended = self.counters(server), server.cpu_seconds() - cpu, time.perf_counter()
                said[name] = [a["text"] for a in answers]
                if turn < 0:
                    self.tell(f"{self.name}: warming up, {name}")
                    continue  # one warm-up: the weights into memory, pages into tables
                self.samples.append({
                    "round": turn, "who": name, "base": base, "tokens": sum(a["tokens"] for a in answers),
                    "seconds": sum(a["seconds"] for a in answers) if len(answers) < 64 else ended - began, "cpu_seconds": cpu,
                    "drafts": [b - a for a, b in zip(counted, now)] if now else None,
                    "load": os.getloadavg()[0]})
                self.tell(f"{self.name}: round {turn + 1}, {name}: {self.rate(self.samples[-1]):.1f} tokens/s")
            self.check(said, contenders)

    def counters(self, server):
        return server.drafts() if server.name.startswith("quire") else None

    def check(self, said, contenders):
        for name, (server, base, _) in contenders.items():
            if server.name.startswith("quire") and said[name] != said[base]:
                sys.exit(f"{self.name}: {name} does not say what {base} says")

    def tell(self, text):
        print(f"quire: {text}", file=sys.stderr, flush=True)

    @staticmethod
    def rate(sample):
        return sample["tokens"] / sample["seconds"]

    def of(self, who):
        return [s for s in self.samples if s["who"] == who]

    def against_base(self, who, value):
        """A sample's value over its base's in the same round."""
        bases = {(s["who"], s["round"]): value(s) for s in self.samples}
        return [value(s) / bases[s["base"], s["round"]] for s in self.of(who)]

    def costs(self, who):
        """CPU time of the server's process for a token: what noise of the machine moves less than rates."""
        return self.against_base(who, lambda s: s["cpu_seconds"] / s["tokens"])

    def gains(self, who):
        return self.against_base(who, self.rate)

    def table(self):
        lines = []
        for who in dict.fromkeys(s["who"] for s in self.samples):
            mine, gains = self.of(who), self.gains(who)
            drafts = [sum(n) for n in zip(*(s["drafts"] for s in mine if s["drafts"]))]
            is_base = mine[0]["base"] == who
            cells = [self.work, who, f"{statistics.median(self.rate(s) for s in mine):.1f}", "–" if is_base else spread(gains),
                     "–" if is_base else spread(self.costs(who)),
                     f"{drafts[2] / drafts[1]:.0%} of {drafts[1]:.0f}" if drafts and drafts[1] else "–",
                     f"{tokens_a_step(mine, drafts):.2f}" if drafts and drafts[1] else "–", self.goal(who, gains)]
            lines.append("| " + " | ".join(cells) + " |")
        return lines

    def goal(self, who, gains):
        said = []
        for goal in self.goals.get(who, []):
            if isinstance(goal, str):  # a peer's gain
                if not self.of(goal):
                    continue
                peer, name = statistics.median(self.gains(goal)), f"{goal}'s gain"
            else:
                peer, name = goal, f"{goal:g} ×"
            said.append(f"≥ {name}: " + ("**yes**" if statistics.median(gains) >= peer else "no"))
        return "; ".join(said) or "–"


def tokens_a_step(samples, drafts):
    """A step gives one token, plus its accepted drafts."""
    tokens = sum(s["tokens"] for s in samples)
    return tokens / max(1, tokens - drafts[2])


def spread(values):
    return f"{statistics.median(values):.2f} × ({min(values):.2f} – {max(values):.2f})"


# Rows ----------------------------------------------------------------------------------------------------------------------------

class Copying:
    """The copying model's document, a part of it for each round, and the expected output."""

    def __init__(self, model, o):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self.ids = self.tokenizer.encode(copying_model.document()).ids
        self.edits = copying_model.edits(self.tokenizer)
        self.length, self.tokens = (200, 64) if o.quick else (400, 256)
        n = copying_model.BACK  # if so many tokens occur at two places of a part, the model may continue from the wrong one
        grams = [tuple(self.ids[at:at + n]) for at in range(len(self.ids) - n + 1)]
        self.places = [at for at in range(len(self.ids) - self.length)
                       if len(set(grams[at:at + self.length - n])) == self.length - n]

    def part(self, turn):
        at = self.places[turn * 61 % len(self.places)]
        return self.ids[at:at + self.length]

    def prompt(self, turn):
        """A document, and the first twelve tokens of its edited copy."""
        ids = self.part(turn)
        return ids + self.tokenizer.encode("\n").ids + [self.edits.get(i, i) for i in ids[:12]]

    def wanted(self, turn):
        return self.tokenizer.decode([self.edits.get(i, i) for i in self.part(turn)[12:12 + self.tokens]])

    def body(self, turn):
        return {"prompt": self.prompt(turn), "max_tokens": self.tokens, "temperature": 0, "ignore_eos": True,
                "cache_salt": f"round {turn}"}

    def ask(self, server, turn):
        body = self.body(turn)
        if not server.name.startswith("quire"):
            del body["cache_salt"]
            body["cache_prompt"] = False
        answer = server.stream("/v1/completions", body)
        if answer["text"] != self.wanted(turn):
            sys.exit(f"{server.name}: the copy is not right:\n{answer['text']}")
        return [answer]

    def predicted(self, turn, wrong=0.1):
        """The expected output, with a tenth of the tokens changed, removed or inserted, in runs of one to three."""
        rng, ids, out = random.Random(turn), [self.edits.get(i, i) for i in self.part(turn)[12:12 + self.tokens]], []
        change = 0
        for i in ids:
            if not change and rng.random() < wrong / 2:  # runs are of two in the middle
                change, kind = rng.randint(1, 3), rng.choice(("other", "none", "more"))
            if not change:
                out.append(i)
                continue
            change -= 1
            if kind != "none":
                out.append(rng.choice(self.ids))
            if kind == "more":
                out.append(i)
        return self.tokenizer.decode(out)

    def ask_predicted(self, server, turn):
        body = {**self.body(turn), "prediction": {"type": "content", "content": self.predicted(turn)}}
        return [server.stream("/v1/completions", body)]


LOOKUPS = {"llama.cpp ngram-cache": ("--spec-type", "ngram-cache", "--spec-draft-n-max", 16),
           "llama.cpp ngram-simple": ("--spec-type", "ngram-simple", "--spec-draft-n-max", 16, "--spec-ngram-simple-size-n", 3,
                                      "--spec-ngram-simple-size-m", 16),
           "llama.cpp ngram-map-k": ("--spec-type", "ngram-map-k", "--spec-draft-n-max", 16, "--spec-ngram-map-k-size-n", 3,
                                     "--spec-ngram-map-k-size-m", 16)}


def copy_row(o, stack):
    model = o.work / "copying"
    copying_model.make(model, gguf=bool(o.llama_server))
    text, row = Copying(model, o), Row(o, "copy", "copying a document with edits, 0.5B shape, 1 request", {
        "quire ngram": [1.8, *LOOKUPS], "quire suffix": [1.8, *LOOKUPS], "quire prediction, 90 % right": [2.5]})
    contenders, base = {}, "quire without"
    contenders[base] = (quire(stack, o, base, model), base, text.ask)
    for method in [m for m in o.methods if m != "draft_model"]:
        name = f"quire {method}"
        contenders[name] = (quire(stack, o, name, model, {"method": method}), base, text.ask)
    contenders["quire prediction, 90 % right"] = (contenders[base][0], base, text.ask_predicted)
    if o.llama_server:
        base = "llama.cpp without"
        contenders[base] = (llama(stack, o, base, model), base, text.ask)
        for name, flags in LOOKUPS.items():
            contenders[name] = (llama(stack, o, name, model, *flags), base, text.ask)
    row.run(contenders, range(1 if o.quick else 5))
    return row


def chat(turn, i, tokens, temperature):
    story = STORIES[(turn * 5 + i) % len(STORIES)]
    return {"messages": [{"role": "user", "content": f"Tell me a story about {story}."}], "max_tokens": tokens, "temperature": temperature,
            "seed": i, "cache_salt": f"round {turn}"}


def draft_rows(o, stack):
    wide_demo.make(o.work / "wide-demo")
    rows = []
    for name, model, work, tokens, asked in (("draft", DEMO, "the demo model, 1 request", 160, 12),
                                              ("draft-wide", o.work / "wide-demo", "the demo model within 0.5B's layers, 1 request", 96, 2)):
        base, drafted = "quire without", "quire draft_model"
        servers = {base: quire(stack, o, base, model), drafted: quire(stack, o, drafted, model, {"method": "draft_model", "model": str(DRAFT)})}
        for temperature in (0, 0.7):
            def do(server, turn):
                return [server.whole("/v1/chat/completions", chat(turn, i, tokens, temperature)) for i in range(2 if o.quick else asked)]

            row = Row(o, name, f"{work}, temperature {temperature:g}", {drafted: [1.5]})
            row.run({who: (server, base, do) for who, server in servers.items()}, range(1 if o.quick else 7 if model == DEMO else 3))
            rows.append(row)
    return rows


def saturation_row(o, _):
    running, tokens, runs = 64, 32 if o.quick else 128, itertools.count()

    def do(server, turn, more=lambda i: {}):
        salt = f"run {next(runs)}"  # so that no server has the prompts of the previous run either
        bodies = [{**chat(0, i, tokens, 0.7), "cache_salt": salt, "ignore_eos": True, **more(i)}
                  for i in range(running if o.quick else 3 * running)]
        with concurrent.futures.ThreadPoolExecutor(running) as pool:
            return list(pool.map(lambda body: server.whole("/v1/chat/completions", body), bodies))

    base, said = "quire without", []

    def first(server, turn):
        answers = do(server, turn)
        said[:] = [a["text"] for a in answers]  # the same in every round; the warm-up begins with this
        return answers

    def predicted(server, turn):
        return do(server, turn, lambda i: {"prediction": {"type": "content", "content": spoil(said[i], i)}})

    flags, methods = ("--max-num-seqs", running), {"ngram": {}, "suffix": {}, "draft_model": {"model": str(DRAFT)}}
    goals = {f"quire {method}": [0.98] for method in methods}
    row = Row(o, "saturation", "the demo model, 64 running", {**goals, "quire prediction, 90 % right": [0.98]})
    turns, pairs = itertools.count(), 1 if o.quick else 3
    for method in [m for _ in range(pairs) for m in (*o.methods, "prediction", None)]:
        name = {None: "quire without, another one", "prediction": "quire prediction, 90 % right"}.get(method, f"quire {method}")
        with contextlib.ExitStack() as stack:  # two servers that run as often as each other, and new ones for each pair
            config = {"method": method, **methods[method]} if method in methods else None
            contenders = {base: (quire(stack, o, base, DEMO, None, *flags), base, first),
                          name: (quire(stack, o, name, DEMO, config, *flags), base, predicted if method == "prediction" else do)}
            row.run(contenders, [next(turns) for _ in range(1 if o.quick else 4)])
    return row


def spoil(text, seed):
    """One word of ten is another one."""
    rng, words = random.Random(seed), text.split(" ")
    return " ".join(rng.choice(words) if rng.random() < 0.1 else word for word in words)


# -------------------------------------------------------------------------------------------------------------------------------

def cost_ratio(o):
    """A step of the draft model over one of the demo model, both decoding one sequence: the fastest of some, in turns."""
    fastest = {}
    for _ in range(3 if o.quick else 9):
        for model in (DEMO, DRAFT):
            out = json.loads(subprocess.run(
                [o.quire, "bench", "latency", model, "--threads", str(o.threads), "--batch-size", "1", "--input-len", "32", "--output-len", "256",
                 "--num-iters", "3", "--num-iters-warmup", "1", "--json"], check=True, capture_output=True, text=True).stdout)
            fastest[model] = min(fastest.get(model, 1e9), out["avg_tpot"])
    return {"demo_us": fastest[DEMO] * 1e6, "draft_us": fastest[DRAFT] * 1e6, "ratio": fastest[DRAFT] / fastest[DEMO]}


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {"cpu": cpu[1] if cpu else platform.machine(), "cpus": os.cpu_count(), "commit": commit,
            "date": datetime.date.today().isoformat()}


def report(o, rows, about):
    out = [f"# What speculation gains\n\nWritten by `tests/bench/speculation/speculation.py`; every sample is in [{o.out.name}.json]({o.out.name}.json). "
           "A gain is the ratio of two rates of the same round, and CPU time that of the server's process for a token, prompts included: median (lowest – highest).\n",
           f"```\nmachine   {about['cpu']}, {about['cpus']} CPUs\nversion   commit {about['commit']}"
           + (f", llama.cpp {about['llama']}" if about.get("llama") else "")
           + f"\nrun       {about['date']}, {o.threads} threads{', --quick' if o.quick else ''}: {about['command']}"
           f"\nload      {about['load'][0]:.1f} before, {about['load'][1]:.1f} after\n```\n"]
    if about.get("cost"):
        cost = about["cost"]
        out.append(f"The draft model of the demo model, [tools/demo_model/draft.py](../../tools/demo_model/draft.py): a step of it takes "
                   f"{cost['draft_us']:.0f} µs, one of the demo model {cost['demo_us']:.0f}: {cost['ratio']:.2f}.\n")
    out.append("| work | engine | tokens/s | gain | CPU time | accepted drafts | tokens a step | goal |\n|---|---|---|---|---|---|---|---|")
    out += [line for row in rows for line in row.table()]
    return "\n".join(out) + "\n"


ROWS = {"copy": copy_row, "draft": draft_rows, "saturation": saturation_row}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench/speculation", help="OUT.md and OUT.json (%(default)s)")
    parser.add_argument("--rows", default="copy,draft,saturation")
    parser.add_argument("--methods", default="ngram,suffix,draft_model")
    parser.add_argument("--quick", action="store_true", help="one short round of each: does it work?")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "build/quire")
    parser.add_argument("--llama-server", type=pathlib.Path, help="of llama.cpp, for its lookup")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/bench/models", help="where models are made (%(default)s)")
    o = parser.parse_args()
    o.rows, o.methods = o.rows.split(","), o.methods.split(",")
    for name in o.rows:
        if name not in ROWS:
            parser.error(f"--rows: there are {', '.join(ROWS)}, not '{name}'")
    return o


def main():
    o = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end, too
    about = {**machine(), "command": "python3 tests/bench/speculation/speculation.py --rows " + ",".join(o.rows) + (" --llama-server PATH" if o.llama_server else ""),
             "load": [os.getloadavg()[0]]}
    if o.llama_server:
        said = subprocess.run([o.llama_server, "--version"], capture_output=True, text=True)
        about["llama"] = re.search(r"version: (.*)", said.stdout + said.stderr)[1]
    rows = []
    for name in o.rows:
        if name == "draft":
            about["cost"] = cost_ratio(o)
        with contextlib.ExitStack() as stack:
            made = ROWS[name](o, stack)
            rows += made if isinstance(made, list) else [made]
    about["load"].append(os.getloadavg()[0])
    o.out.parent.mkdir(parents=True, exist_ok=True)
    text = report(o, rows, about)
    o.out.with_name(o.out.name + ".md").write_text(text)
    o.out.with_name(o.out.name + ".json").write_text(json.dumps(
        {**about, "threads": o.threads, "rows": [{"row": r.name, "work": r.work, "samples": r.samples} for r in rows]}, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
