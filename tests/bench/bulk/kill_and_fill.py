#!/usr/bin/env python3
"""quire batch over many lines: killed with SIGKILL again and again, with a full disk once. Each line must be in the output
exactly once, in order. Prints one JSON object for each run, and a summary.

  tests/bench/bulk/kill_and_fill.py build/quire tools/demo_model/model --lines 100000 --kills 10 > raw.jsonl
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

p = argparse.ArgumentParser()
p.add_argument("quire")
p.add_argument("model")
p.add_argument("--lines", type=int, default=100000)
p.add_argument("--kills", type=int, default=10)
a = p.parse_args()
folder = pathlib.Path(tempfile.mkdtemp())
path, out = folder / "in.jsonl", folder / "out.jsonl"
state = folder / "out.jsonl.state"


def rows():
    try:
        with sqlite3.connect(f"file:{state}?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.Error:
        return 0


def start(limit=None):
    def full_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return subprocess.Popen([a.quire, "batch", str(path), "-o", str(out), "--model", a.model, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=full_disk if limit else None)


def wait_for(process, n):
    while rows() < n and process.poll() is None:
        time.sleep(0.02)


with path.open("w") as f:
    for i in range(a.lines):
        body = {"prompt": f"{i} is", "max_tokens": 1, "temperature": 0}
        print(json.dumps({"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions", "body": body}), file=f)

# A file may not grow beyond 1 MiB: rows wait in memory. Then there is space again.
process = start(1 << 20)
for line in process.stderr:
    if "cannot be written" in line:
        break
time.sleep(2)
stuck = rows()
resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wait_for(process, a.lines // (a.kills + 2))
process.kill()
process.communicate()
print(json.dumps({"run": 0, "end": "full disk, space again, SIGKILL", "rows_while_full": stuck, "rows_after": rows()}), flush=True)

for i in range(1, a.kills + 1):
    before, begun = rows(), time.monotonic()
    process = start()
    wait_for(process, before + 1)
    resumed_s = time.monotonic() - begun
    cpu = sum(map(int, pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    wait_for(process, (i + 1) * a.lines // (a.kills + 2))
    process.kill()
    process.communicate()
    print(json.dumps({"run": i, "end": "SIGKILL", "rows_before": before, "rows_after": rows(), "first_new_row_s": round(resumed_s, 2), "cpu_s": cpu, "load": os.getloadavg()[0]}), flush=True)

process = start()
stdout, stderr = process.communicate()
print(json.dumps({"run": a.kills + 1, "end": f"status {process.returncode}", "summary": json.loads(stdout)}), flush=True)
ids = [json.loads(line)["custom_id"] for line in out.open()]
print(json.dumps({"lines": a.lines, "in_output": len(ids), "each_once_in_order": ids == [f"line-{i}" for i in range(a.lines)], "state_removed": not state.exists()}))
shutil.rmtree(folder)
