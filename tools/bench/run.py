"""Measures Quire against its peers on this machine and writes the table. Start it by tools/bench/run.sh."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import machine
import make_random_model
import ours
import proof
import report
import to_gguf
from peer import Peer
from rows import ROWS

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
DISTURBED = 0.03  # share of the machine's CPU time used by others: about the size of the differences of interest
PROOFS = {  # the timed contenders, which are compared with the reference first
    "decode-f16": ("f16", ["llama.cpp"]),
    "concurrent-f16": ("f16", ["llama.cpp"]),
    "prefill-f16": ("f16", ["llama.cpp"]),
    "decode-bf16": ("bf16", ["llama.cpp"]),
    "concurrent-bf16": ("bf16", ["llama.cpp"]),
    "prefill-bf16": ("bf16", ["llama.cpp", "bfloat16"]),
    "together": ("bf16", ["bfloat16", "float16"]),
}


class Bench:
    def __init__(self, arguments):
        self.quire = ours.Quire(arguments.quire.resolve(), arguments.threads)
        self.threads, self.rounds = arguments.threads, arguments.rounds
        self.work, self.tokenizer = arguments.work, arguments.tokenizer
        self.peers, self.records, self.raw = [], [], None
        self.read_limit = self.work / "read_limit"

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def record(self, record):
        self.records.append(record)
        self.raw.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.raw.flush()

    def model(self, shape, dtype, small_tokenizer=False):
        directory = self.work / "models" / f"{shape}-{dtype}"
        if not (directory / "model.safetensors").exists():
            self.say(f"making random weights: {directory.name}")
            make_random_model.make(shape, directory, dtype, self.tokenizer)
        if small_tokenizer:
            return make_random_model.with_small_tokenizer(directory)
        return directory

    def gguf(self, shape, kind):
        """A GGUF file, quantized from the model of float16."""
        return to_gguf.quantize(self.model(shape, "f16"), kind)

    def llama(self, model):
        if model.suffix != ".gguf":
            to_gguf.convert(model)
        return self.keep(Peer("peer_llama.py", model, self.threads))

    def transformers(self, model, dtype):
        return self.keep(Peer("peer_transformers.py", model, self.threads, dtype))

    def keep(self, peer):
        self.peers.append(peer)
        return peer

    def close_peers(self):
        while self.peers:
            self.peers.pop().close()

    def read_gb_s(self):
        if not self.read_limit.exists():
            subprocess.run(["cc", "-std=gnu11", "-O3", "-march=native", "-pthread", HERE / "read_limit.c", "-o",
                            self.read_limit], check=True)
        return float(subprocess.run([self.read_limit, str(self.threads)], capture_output=True, check=True).stdout)


def prove(bench, names):
    """A contender that computes another result is not timed: it ends the run."""
    wanted = {}
    for name in names:
        if name in PROOFS:
            dtype, peers = PROOFS[name]
            shape = "qwen2.5-1.5b" if name == "together" else "qwen2.5-0.5b"
            known = wanted.setdefault((shape, dtype), [])
            known += [peer for peer in peers if peer not in known]
    for (shape, dtype), peers in wanted.items():
        bench.say(f"same model? {shape} {dtype}, against transformers float32")
        for record in proof.prove(bench, shape, dtype, peers):
            record["model"] = f"{shape} {dtype}"
            bench.record(record)
            error = record["logits_error"]
            bench.say(f"  {record['who']}: {record['tokens_equal']} of {record['tokens']} tokens equal"
                      + (f", logits {error:.2g} apart (bound {record['bound']:.2g})" if error is not None else ""))
            if not record["ok"]:
                raise SystemExit(f"{record['who']} computes another model: nothing was timed")


def sample(bench, row, entry, round_number, setting):
    """One measurement, with the read limit before and after it where the row needs that. A disturbed measurement is
    recorded and repeated, up to 3 times, except for trials of settings. None: the measurement failed."""
    for _ in range(3):
        before = bench.read_gb_s() if row.bytes_per_token else None
        others = machine.Others([peer.process.pid for peer in bench.peers])
        try:
            value, said = entry.measure(**setting)
        except ours.Failed as failure:
            bench.record({"record": "absent", "row": row.name, "who": entry.who, "why": str(failure)})
            return None
        record = {"record": "sample" if round_number else "trial", "row": row.name, "who": entry.who,
                  "round": round_number, "value": value, "unit": row.unit, "setting": setting, "said": said,
                  "others": round(others.share(), 3)}
        if before:
            record["read_gb_s"] = [before, bench.read_gb_s()]
        if record["others"] <= DISTURBED or not round_number:
            break
        bench.record({**record, "record": "disturbed"})
    bench.record(record)
    return value


def measure(bench, row, heading):
    bench.record({"record": "row", "row": row.name, "title": row.title, "unit": row.unit,
                  "bytes_per_token": row.bytes_per_token, "entries": [entry.who for entry in row.entries],
                  "goals": [vars(goal) for goal in row.goals]})
    here, settings = [], {}
    isas = machine.isas()
    for entry in row.entries:
        if entry.isa not in isas:
            name = report.ISA_NAMES[entry.isa]
            bench.record({"record": "absent", "row": row.name, "who": entry.who, "why": f"this machine has no {name}"})
            continue
        # Each setting twice, alternately, because the first run is not warm; the better figure counts.
        tried = {}
        for _ in range(2 if len(entry.settings) > 1 else 0):
            for i, setting in enumerate(entry.settings):
                tried[i] = max(tried.get(i, 0), sample(bench, row, entry, 0, setting) or 0)
        settings[entry.who] = entry.settings[max(tried, key=tried.get) if tried else 0]
        here.append(entry)
    rounds = row.rounds or bench.rounds
    for number in range(1, rounds + 1):
        values = []
        for entry in list(here):
            value = sample(bench, row, entry, number, settings[entry.who])
            if value is None:
                here.remove(entry)
            else:
                values.append(f"{entry.who} {value:.4g}")
        bench.say(f"{heading} {row.name}, round {number} of {rounds}: {' · '.join(values)} {row.unit}")


def parse():
    parser = argparse.ArgumentParser(prog="tools/bench/run.sh", description=__doc__,
                                     epilog="docs/benchmarks/README.md says what is compared and how fairness is kept.")
    parser.add_argument("rows", nargs="*", metavar="row", help="which rows; all without any: " + " ".join(ROWS))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/benchmarks/cpu",
                        help="writes OUT.md, OUT-raw.jsonl and OUT.svg (docs/benchmarks/cpu)")
    parser.add_argument("--rounds", type=int, default=5, help="times that all take turns (5)")
    parser.add_argument("--threads", type=int, default=2, help="of every contender (2)")
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "build/quire", help="the program (build/quire)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/bench",
                        help="where models are made and kept, about 12 GB (build/bench)")
    parser.add_argument("--tokenizer", help="the tokenizer.json of Qwen2.5; without it one of its size is made up")
    arguments = parser.parse_args()
    for name in arguments.rows:
        if name not in ROWS:
            parser.error(f"there is no row {name}; the rows are: {' '.join(ROWS)}")
    if not shutil.which(arguments.quire):
        parser.error(f"{arguments.quire} is not there: build it first, or name it with --quire")
    return arguments


def main():
    arguments = parse()
    bench = Bench(arguments)
    names = arguments.rows or list(ROWS)
    raw = arguments.out.with_name(arguments.out.name + "-raw.jsonl")
    raw.parent.mkdir(parents=True, exist_ok=True)
    bench.work.mkdir(parents=True, exist_ok=True)
    with open(raw, "w") as bench.raw:
        bench.record({"record": "run", **machine.describe(bench.quire), "isas": machine.isas(),
                      "disturbed_above": DISTURBED, "threads": bench.threads, "rounds": bench.rounds, "command": "bash tools/bench/run.sh " + " ".join(arguments.rows)})
        prove(bench, names)
        for i, name in enumerate(names):
            try:
                made = ROWS[name](bench)
            except ours.Failed as failure:
                bench.record({"record": "row", "row": name, "title": name, "unit": "", "bytes_per_token": 0,
                              "entries": ["quire"], "goals": []})
                bench.record({"record": "absent", "row": name, "who": "quire", "why": str(failure)})
                bench.say(f"[{i + 1}/{len(names)}] {name}: {failure}")
                continue
            for row in made if isinstance(made, list) else [made]:
                measure(bench, row, f"[{i + 1}/{len(names)}]")
            bench.close_peers()
    report.write(bench.records, arguments.out)
    bench.say(f"written: {arguments.out}.md")


if __name__ == "__main__":
    main()
