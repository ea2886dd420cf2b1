"""Starts the real build/quire on the demo model; the tests here use it as a user would."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import openai
import pytest

import rig

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIRE = pathlib.Path(os.environ.get("QUIRE", ROOT / "build" / "quire"))
MODEL = ROOT / "tools" / "demo_model" / "model"
sys.path.append(str(ROOT / "tests" / "tools"))  # doc_blocks

# The number of proposed tokens of a prediction depends on the current cost of a wider step on this machine. The tests
# switch that off.
ALWAYS_GUESSES = ("--speculative-config", '{"method": "none", "adaptive": false}')


# Plain C on one core: an answer of 2,000 tokens takes seconds, so that a busy test still meets it.
SLOWLY = ("--device", "ref", "--threads", "1")


def cannot_run(because):
    """Ends a test that this machine has no means for. tools/test.sh counts it apart; any other skip is a failure."""
    pytest.skip(f"could not run here, because {because}")


def pytest_configure(config):
    config.addinivalue_line("markers", "wide: tools/test.sh wide runs it; real process groups, or a matrix of which the suite runs one row")


class Server:
    """One `quire` process and the address that it prints."""

    program = QUIRE

    def __init__(self, *arguments, wait_for=r"http://[0-9.]+:(\d+)", cwd=None, before=(), environment=None, program=None):
        """before: a program that starts it, such as mpirun. environment: added to the process's own."""
        self.process = subprocess.Popen(
            [*before, str(program or self.program), *map(str, arguments)], env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd)
        self.printed, self.lock = b"", threading.Lock()
        os.set_blocking(self.process.stdout.fileno(), False)
        threading.Thread(target=self.drain, daemon=True).start()
        self.port = None
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            match = re.search(wait_for, self.output())
            if match:
                self.port = int(match.group(1)) if match.groups() else None
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError("quire did not come up:\n" + self.output())

    def output(self):
        """Everything it has printed so far."""
        with self.lock:
            with contextlib.suppress(BlockingIOError, ValueError):  # ValueError: the test has closed it
                while data := os.read(self.process.stdout.fileno(), 1 << 16):
                    self.printed += data
            return self.printed.decode(errors="replace")

    def drain(self):
        """The server would stop at a pipe that is full, and a slow one prints more lines."""
        while self.process.poll() is None:
            time.sleep(0.5)
            self.output()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def client(self, **kwargs):
        return openai.OpenAI(base_url=self.url + "/v1", **{"api_key": "none", "max_retries": 0, **kwargs})

    def connect(self, timeout=300):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def metric(self, name):
        """The sum of a metric's samples on /metrics."""
        values = []

        def has_it():
            """Those of an engine are missing if it is busy for two seconds."""
            values[:] = [float(line.rsplit(" ", 1)[1]) for line in rig.metrics(self).splitlines()
                         if line.startswith(name) and line[len(name)] in " {"]
            return values

        rig.wait_until(has_it, f"{name} on /metrics")
        return sum(values)

    def stop(self, sig=signal.SIGTERM, timeout=300):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture(scope="session")
def server():
    s = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "1024", *ALWAYS_GUESSES)
    begun = time.monotonic()
    yield s
    assert s.process.poll() is None, "the server ended while being tested:\n" + s.output()
    said = re.search(r"engine: running \d+, waiting \d+; prompt [0-9.]+ tokens/s", s.output())
    assert said or time.monotonic() - begun < 60 or not s.metric("vllm:generation_tokens_total"), "it was busy and said nothing"
    assert s.stop() == 0, s.output()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def start():
    """Starts servers for one test and stops them."""
    servers = []

    def begin(*arguments, **kwargs):
        servers.append(Server(*arguments, **kwargs))
        return servers[-1]

    yield begin
    for s in servers:
        if s.process.poll() is None:
            s.process.kill()
        s.process.wait()
