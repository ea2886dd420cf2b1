"""quire with --device cuda on the emulator, as a user runs it: the same bits as the CPU in the lane form, too little
memory, and a GPU that breaks while it serves. Only the standard library.

usage: gpu_test.py QUIRE MODEL
"""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time

QUIRE, MODEL = sys.argv[1:3]
LAUNCH_FAILURE = 719  # cudaErrorLaunchFailure


class Process:
    def __init__(self, *arguments, **environment):
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen([QUIRE, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=self.stderr,
                                        env={**os.environ, **environment})

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(300)

    def log(self):
        return os.pread(self.stderr.fileno(), 1 << 24, 0).decode()  # the process writes at the file's own offset

    def wait_for(self, pattern, seconds=300):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            match = re.search(pattern, self.log())
            if match:
                return match
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.log()}"
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in:\n{self.log()}")


def serve(*arguments, **environment):
    p = Process("serve", MODEL, "--port", 0, "--served-model-name", "demo", *arguments, **environment)
    p.port = int(p.wait_for(r"http://127\.0\.0\.1:(\d+)").group(1))
    return p


def ask(port, **body):
    """(status, body) of a completion."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        c.request("POST", "/v1/completions", json.dumps({"model": "demo", **body}), {"Content-Type": "application/json"})
        reply = c.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        c.close()


def answers(port):
    """The values to compare: text and logprobs of a few requests."""
    out = []
    for prompt, more in (("Once upon a time", {"temperature": 0}),
                         ("red blue red blue red", {"temperature": 0.8, "seed": 3, "top_p": 0.9, "n": 2}),
                         ("one two three four", {"temperature": 0.7, "seed": 4, "frequency_penalty": 0.4, "top_k": 20})):
        status, body = ask(port, prompt=prompt, max_tokens=12, logprobs=3, **more)
        assert status == 200, body
        out += [(choice["text"], choice["logprobs"]) for choice in body["choices"]]
    return out


def the_lane_form_is_a_cpus():
    with serve("--device", "cpu", "--gemm-form", "lane") as p:
        want = answers(p.port)
    for more in ((), ("--enforce-eager",)):
        with serve("--device", "cuda", "--gemm-form", "lane", *more) as p:
            assert answers(p.port) == want, more
            log = p.log()
            assert "GPU memory: weights" in log and ("of which 0 recorded steps" in log) == bool(more), log


def auto_is_never_the_emulator():
    with serve() as p:
        p.wait_for(r"on cpu \(the CUDA backend of this build is an emulator\)")


def memory_that_does_not_suffice():
    with Process("serve", MODEL, "--port", 0, "--device", "cuda", "--gpu-memory-utilization", "0.06") as p:
        assert p.process.wait(300) == 1
        assert "--gpu-memory-utilization" in p.log(), p.log()


def a_gpu_that_is_not_there():
    with Process("serve", MODEL, "--port", 0, "--device", "cuda:7") as p:
        assert p.process.wait(300) == 1
        assert "cuda:7" in p.log() or "GPU 7" in p.log(), p.log()


def a_gpu_that_breaks():
    """The running request ends with an error, and the process with status 1 and the reason in its last line, apart
    from the line that comes every ten seconds."""
    with serve("--device", "cuda", QUIRE_SIMT_FAIL=f"kernel:3000:{LAUNCH_FAILURE}") as p:
        status, body = 200, {}
        try:
            for _ in range(50):
                status, body = ask(p.port, prompt="Once upon a time", max_tokens=200, temperature=0, ignore_eos=True)
                if status != 200:
                    break
        except (ConnectionError, http.client.HTTPException, json.JSONDecodeError):
            status = None
        assert status != 200, body
        assert p.process.wait(300) == 1, p.log()
        last = [line for line in p.log().strip().splitlines() if "info  engine: running" not in line][-1]
        assert "the engine has stopped" in last and "exiting with status 1" in last, last


def a_front_end_outlives_its_engine():
    """503 at once while the engine is down, and served again when another one is ready."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/engine.sock"
        with Process("engine", MODEL, "--listen", address, "--device", "cuda", QUIRE_SIMT_FAIL=f"kernel:3000:{LAUNCH_FAILURE}") as engine:
            engine.wait_for("ready on")
            front = serve("--engine", address)
            with front:
                for _ in range(50):
                    status, body = ask(front.port, prompt="Once upon a time", max_tokens=200, temperature=0, ignore_eos=True)
                    if status != 200:
                        break
                assert engine.process.wait(300) == 1, engine.log()
                end = time.monotonic() + 300
                while status != 503 and time.monotonic() < end:
                    status, body = ask(front.port, prompt="x", max_tokens=1)
                assert status == 503, body
                with Process("engine", MODEL, "--listen", address, "--device", "cuda") as again:
                    again.wait_for("ready on")
                    end = time.monotonic() + 300
                    while status != 200 and time.monotonic() < end:
                        time.sleep(0.1)
                        status, body = ask(front.port, prompt="x", max_tokens=1)
                    assert status == 200, body


for test in (the_lane_form_is_a_cpus, auto_is_never_the_emulator, memory_that_does_not_suffice, a_gpu_that_is_not_there,
             a_gpu_that_breaks, a_front_end_outlives_its_engine):
    began = time.monotonic()
    test()
    print(f"ok   {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
