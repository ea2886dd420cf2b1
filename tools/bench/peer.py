"""The common part of the peers' processes: each holds one model, stays warm and answers lines of JSON.

    python tools/bench/peer_llama.py MODEL THREADS
    → {"call": "generate", "prompts": [[…]], "tokens": 64}
    ← {"tokens": [[…]], "seconds": 4.1, "first": 0.2, "later": 3.9}

A process that waits for its next line uses no CPU, so peers can alternate on one machine.
"""
import json
import pathlib
import subprocess
import sys


def serve(make):
    engine = make(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not break the protocol
    print("{}", file=answers, flush=True)  # ready
    for line in sys.stdin:
        arguments = json.loads(line)
        answer = getattr(engine, arguments.pop("call"))(**arguments)
        if hasattr(answer, "tolist"):
            answer = answer.tolist()
        print(json.dumps(answer), file=answers, flush=True)


class Peer:
    def __init__(self, program, model, threads, *more):
        command = [sys.executable, str(pathlib.Path(__file__).parent / program), str(model), str(threads), *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = program
        self.answer()

    def call(self, call, **arguments):
        print(json.dumps({"call": call, **arguments}), file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}; its own words are above")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
