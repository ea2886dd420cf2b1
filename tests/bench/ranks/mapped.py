"""The parts of a checkpoint that each rank reads, and whether the host reads each byte once.

    python3 tests/bench/ranks/mapped.py MODEL [--output FILE] -- -tp 2 --threads 1

The file is dropped from the page cache, an engine loads it and decodes, and each process is observed meanwhile: pages
of the file that it has mapped (/proc/PID/smaps) and bytes read from the disk for it (/proc/PID/io); at the end, the
part of the file in the page cache (mincore). MODEL: a directory of safetensors that no other process uses."""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import time

QUIRE = pathlib.Path(__file__).resolve().parents[3] / "build" / "quire"


def drop(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path):
    """Bytes of the file in the page cache."""
    n = path.stat().st_size
    with open(path, "rb") as f, mmap.mmap(f.fileno(), n, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as m:
        pages = (n + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        there = (ctypes.c_ubyte * pages)()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(n), 1, 2, f.fileno(), ctypes.c_size_t(0))
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(n), there) == 0
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(n))
        return min(n, sum(b & 1 for b in there) * mmap.PAGESIZE)


def mapped(pid, paths):
    """Bytes of these files that the process has mapped, and those that no other process has."""
    rss = own = 0
    mine = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mine = any(line.endswith(str(p)) for p in paths)
        elif mine and (m := re.match(r"(Rss|Private_Clean|Private_Dirty): +(\d+) kB", line)):
            rss += 1024 * int(m[2]) * (m[1] == "Rss")
            own += 1024 * int(m[2]) * (m[1] != "Rss")
    return rss, own


def read_bytes(pid):
    return int(re.search(r"^read_bytes: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text(), re.M)[1])


def ranks_of(first):
    listed = subprocess.run(["ps", "-o", "pid=,stat=,args=", "--ppid", str(first)], capture_output=True, text=True).stdout
    return [first] + [int(line.split()[0]) for line in listed.splitlines() if line.split()[2:4] == ["quire", "rank"] and line.split()[1][0] != "Z"]


def look(first, paths, n_ranks):
    """Of all ranks, while all exist: reads of a child count as its parent's after it has ended."""
    ranks, rows = ranks_of(first), []
    try:
        for n, pid in enumerate(ranks):
            rss, own = mapped(pid, paths)
            rows.append({"rank": n, "mapped_bytes": rss, "mapped_alone_bytes": own, "read_bytes": read_bytes(pid)})
    except (FileNotFoundError, ProcessLookupError, PermissionError, TypeError):
        return None
    return rows if len(ranks) == n_ranks and all(r["mapped_bytes"] for r in rows) and ranks_of(first) == ranks else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quire", default=str(QUIRE))
    parser.add_argument("--output")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    engine, seen = sys.argv[at + 1:], []
    paths = [p.resolve() for p in pathlib.Path(args.model).glob("*.safetensors")]
    for path in paths:
        drop(path)
    left = sum(map(cached, paths))
    plan = json.loads(subprocess.run([args.quire, "plan", args.model, "--json", *engine], capture_output=True, text=True, check=True).stdout)
    process = subprocess.Popen([args.quire, "bench", "latency", args.model, "--device", "cpu", "--input-len", "32", "--output-len", "4", "--batch-size", "2", "--num-iters", "1", "--num-iters-warmup", "1", *engine],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        seen = look(process.pid, paths, max(1, len(plan["ranks"]))) or seen
        time.sleep(0.05)
    size = sum(p.stat().st_size for p in paths)
    ranks = [row | {"planned_weight_bytes": (plan["ranks"][row["rank"]] if plan["ranks"] else plan)["weight_bytes"]} for row in seen]
    result = {"engine": engine, "status": process.returncode, "file_bytes": size, "cached_before": left, "cached_after": sum(map(cached, paths)),
              "read_by_all": sum(r["read_bytes"] for r in ranks), "ranks": ranks}
    print(json.dumps(result, indent=1))
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(result) + "\n")
    raise SystemExit(process.returncode)


if __name__ == "__main__":
    main()
