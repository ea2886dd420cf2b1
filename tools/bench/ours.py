"""Quire's measurements: `quire bench latency` for speed, `quire serve` for tokens, memory and idle cost."""
import json
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.request


class Failed(Exception):
    """A measurement that failed; the text is the program's own."""


class Quire:
    def __init__(self, binary, threads):
        self.binary = pathlib.Path(binary)
        self.threads = threads

    def run(self, arguments, isa=None):
        environment = dict(os.environ)
        environment.pop("QUIRE_ISA", None)
        if isa:
            environment["QUIRE_ISA"] = isa
        done = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise Failed(lines[-1].removeprefix("quire: ") if lines else f"exit status {done.returncode}")
        return done.stdout

    def plan(self, model, *flags):
        return json.loads(self.run(["plan", model, "--json", "--threads", self.threads, *flags]))

    def latency(self, model, batch, length_in, length_out, times=1, isa=None, flags=()):
        """Seconds of `times` consecutive batches, and the rates of prefill and decode, after one warm-up."""
        return json.loads(self.run(
            ["bench", "latency", model, "--threads", self.threads, "--batch-size", batch, "--input-len", length_in,
             "--output-len", length_out, "--num-iters", times, "--num-iters-warmup", 1, "--json", *flags], isa))

    def first_token_seconds(self, model):
        """From before exec to the first byte of the answer, everything included: loader, checkpoint, tokenizer, prefill."""
        begin = time.perf_counter()
        process = subprocess.Popen(
            [self.binary, "generate", model, "Hello", "--raw", "--max-tokens", "1", "--temperature", "0",
             "--threads", str(self.threads)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.read(1)
        seconds = time.perf_counter() - begin
        process.stdout.read()
        if process.wait() != 0:
            raise Failed("quire generate failed")
        return seconds


class Server:
    """A running `quire serve`; use as a context."""

    def __init__(self, quire, model, *flags):
        self.process = subprocess.Popen(
            [quire.binary, "serve", model, "--port", "0", "--threads", str(quire.threads), *map(str, flags)],
            stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line.strip())
            if found := re.search(r"ready on (http://\S+)/v1", line):
                self.url = found[1]
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise Failed(said[-1] if said else "quire serve ended without a word")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.wait()

    def generate(self, prompts, tokens):
        """Greedy continuations, ignoring the end of text, of prompts sent together: lists of token ids."""
        body = {"prompt": prompts, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            choices = json.load(reply)["choices"]
        return [choice["token_ids"] for choice in sorted(choices, key=lambda c: c["index"])]

    def resident_bytes(self):
        """(resident memory, the part of it that is the mapped checkpoint)"""
        everything = weights = 0
        in_weights = False
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                in_weights = line.endswith(".safetensors")
            elif line.startswith("Rss:"):
                size = int(line.split()[1]) * 1024
                everything += size
                weights += size * in_weights
        return everything, weights

    def cpu_seconds(self):
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the process's CPU clock, as clock_getcpuclockid() names it
