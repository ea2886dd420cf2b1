"""Starts front_test_server and sends requests to it; uses only the standard library."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

PROGRAM, TOKENIZER = sys.argv[1:3]
RACES = b"__tsan_init" in open(PROGRAM, "rb").read()
SANITIZED = RACES or b"__asan_init" in open(PROGRAM, "rb").read()


class Server:
    def __init__(self, *arguments, tokenizer=TOKENIZER):
        self.process = subprocess.Popen([PROGRAM, tokenizer, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        match = re.search(r"http://[0-9.]+:(\d+)", line)
        assert match, f"the server said {line!r}"
        self.port = int(match.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.process.stdout.close()
        if error[0] is None:
            assert self.process.returncode == 0, f"the server ended with {self.process.returncode}"

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            c.request(method, path, body, headers or {})
            reply = c.getresponse()
            return reply.status, reply.headers, reply.read()
        finally:
            c.close()

    def get(self, path, **kwargs):
        status, _, body = self.request("GET", path, **kwargs)
        return status, json.loads(body)

    def post(self, path, body, **kwargs):
        status, _, reply = self.request("POST", path, body, **kwargs)
        return status, json.loads(reply)

    def stream(self, path, body):
        """Returns the events of a stream without [DONE], which must be present."""
        status, headers, data = self.request("POST", path, {**body, "stream": True})
        assert status == 200, data
        assert headers["Content-Type"] == "text/event-stream" and headers["Cache-Control"] == "no-cache"
        events = [e for e in data.decode().split("\n\n") if e and not e.startswith(":")]
        assert all(e.startswith("data: ") and "\n" not in e for e in events)
        assert events[-1] == "data: [DONE]"
        return [json.loads(e[6:]) for e in events[:-1]]

    def connect(self, timeout=60, source=None):
        """source: the address to connect from, one of 127.0.0.0/8."""
        return socket.create_connection(("127.0.0.1", self.port), timeout, (source, 0) if source else None)

    def raw(self, data, timeout=60):
        """Sends these bytes and returns everything that the server sends, up to the end of the connection."""
        with self.connect(timeout) as s:
            s.sendall(data)
            return read_all(s)

    def metric(self, name):
        _, _, body = self.request("GET", "/metrics")
        values = [float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines()
                  if line.startswith(name) and line[len(name)] in " {"]
        assert values, f"/metrics has no {name}"
        return sum(values)

    def idle(self):
        return wait_until(lambda: self.metric("vllm:num_requests_running") == 0)

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_kb(self):
        text = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1))


def read_all(s):
    data = b""
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def post_bytes(path, body, extra=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: {len(data)}\r\n\r\n").encode() + data


def wait_until(condition, seconds=60):
    """Long enough beside other programs that compute."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def run_tests(module):
    """Runs every function test_*; the exit status is the number of failed tests."""
    failed = 0
    wanted = sys.argv[3:]
    for name, test in list(vars(module).items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        started = time.monotonic()
        try:
            test()
            print(f"ok      {name}  {time.monotonic() - started:.1f} s", flush=True)
        except Exception:
            import traceback
            traceback.print_exc()
            print(f"FAILED  {name}", flush=True)
            failed += 1
    if failed:
        raise SystemExit(min(failed, 100))
