"""Measures the time until a client learns that the network between two ranks is cut: two namespaces, a wire, and an
answer that streams over it when the wire goes down. By hand, as root:

    python tests/clients/ranks/cuts.py 30
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parent)]

from conftest import QUIRE, Server
from test_hosts import ASK, SERVE, ip
from test_ranks import LONG

NAMES = ["quirecut0", "quirecut1"]
SECRET = {**os.environ, "QUIRE_GROUP_SECRET": "correct horse battery staple"}


def cut(n_before):
    """Seconds from the cut to the error event; the cut comes after this number of lines of the stream."""
    ip("-n", NAMES[1], "link", "set", "wire1", "up")
    flags = [*map(str, SERVE), "-tp", "2", "--nnodes", "2", "--master-addr", "10.98.0.1"]
    other = subprocess.Popen(["ip", "netns", "exec", NAMES[1], str(QUIRE), *flags, "--node-rank", "1"], env=SECRET, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = Server(*flags, "--node-rank", "0", before=["ip", "netns", "exec", NAMES[0]], environment=SECRET)
    asks = subprocess.Popen(["ip", "netns", "exec", NAMES[0], "python3", "-c", ASK, first.url + "/v1/completions", json.dumps({**LONG, "stream": True})], stdout=subprocess.PIPE, text=True)
    for _ in range(1 + n_before):
        assert asks.stdout.readline()
    ip("-n", NAMES[1], "link", "set", "wire1", "down")
    since = time.monotonic()
    line = next(line for line in asks.stdout if '"error"' in line)
    took = time.monotonic() - since
    assert "rank 1 (" in line and asks.wait(30) == 0
    assert first.process.wait(30) == 1 and other.wait(30) == 1
    return took


def main(n):
    for i, name in enumerate(NAMES):
        ip("netns", "add", name)
    try:
        ip("link", "add", "wire0", "netns", NAMES[0], "type", "veth", "peer", "name", "wire1", "netns", NAMES[1])
        for i, name in enumerate(NAMES):
            ip("-n", name, "addr", "add", f"10.98.0.{i + 1}/24", "dev", f"wire{i}")
            ip("-n", name, "link", "set", f"wire{i}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        times = [cut(3 * i) for i in range(n)]
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name])
    print(*(f"{t:.2f}" for t in times))
    print(f"{n} of {n} told; seconds: median {statistics.median(times):.2f}, most {max(times):.2f}")


main(int(sys.argv[1]))
