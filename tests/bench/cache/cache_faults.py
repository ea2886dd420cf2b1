#!/usr/bin/env python3
"""A million lookups of the response cache under faults: does it ever return a wrong reply, and does the loop ever
stall?

    python3 tests/bench/cache/cache_faults.py [--store sqlite|redis] [--lookups 1000000] [--json FILE]

Two `quire serve` of the demo model share one store. Clients send both of them completions drawn from a seeded Zipf
distribution, a tenth of them streamed, some with `max-age`; every reply is compared with the bytes of a server
without a cache. Meanwhile, on a fixed timetable: `kill -9` of one server every four seconds, now and then `POST
/cache/clear`, and

  sqlite: rows overwritten with random bytes, with half an answer, with one bit flipped, with another question's answer; pages of
          the file overwritten under the servers
  redis:  the same of its values; SIGSTOP for two seconds; kill -9, and a fresh empty one a second later

Counted, with exit status 1 if not 0: replies that are torn (a part of the right one), foreign (another question's),
stale (older than the time to live, than the request's max-age, or than the clear before it) or wrong in any other
way. A reply cut off by its server's death does not count.

loop_turns.c records inside the servers how long the loop is away from epoll_wait(), turn by turn: with the cache and
faults, and before that without a cache under the same load. A turn of more than 5 ms in which the thread neither
worked nor waited that long was caused by the machine: another process had the processor. For the others, the call in
which the thread waited is reported.
"""

import argparse
import atexit
import bisect
import collections
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "tools" / "demo_model" / "model"
BUILD = ROOT / "build"
TTL_S = 20
MAX_AGE_S = 3
TOKENS = 12
CONNECTIONS = 8  # of a client process
COUNTS = "lookups exact miss off torn foreign stale wrong interrupted refused".split()
BAD = ("torn", "foreign", "stale", "wrong")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- what is asked -----------------------------------------------------------------------------

def prompts(n):
    rng = random.Random(19)
    words = "river house apple window quiet garden letter morning stone winter music road story king ship".split()
    return [f"{i}: the " + " ".join(rng.choice(words) for _ in range(rng.randint(3, 24))) for i in range(n)]


def request(i, text, stream, headers=""):
    """Drawn with a seed, because the greedy demo model gives many prompts the same answer."""
    body = {"prompt": text, "max_tokens": TOKENS, "temperature": 1, "seed": i, "ignore_eos": True}
    if stream:
        body["stream"] = True
    body = json.dumps(body)
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


class Connection:
    """A connection to one server, which may die at any time. Returns a whole reply or raises ConnectionError."""

    def __init__(self, port):
        self.port = port
        self.socket = None
        self.left = b""

    def send(self, data):
        if not self.socket:
            self.socket = socket.create_connection(("127.0.0.1", self.port), 5)
            self.socket.settimeout(60)
        self.socket.sendall(data)

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed")
        self.left += data

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket, self.left = None, b""

    def receive(self):
        """(status, head, body) of one reply; a chunked body is joined."""
        while b"\r\n\r\n" not in self.left:
            self.more()
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if length:
            n = int(length[1])
            while len(self.left) < n:
                self.more()
            body, self.left = self.left[:n], self.left[n:]
        else:
            while not self.left.endswith(b"0\r\n\r\n"):
                self.more()
            body, rest = b"", self.left
            while rest != b"0\r\n\r\n":
                size, rest = rest.split(b"\r\n", 1)
                n = int(size, 16)
                body, rest = body + rest[:n], rest[n + 2:]
            self.left = b""
        return int(head[9:12]), head, body


NAMES = re.compile(rb'"id":"[^"]*"|"created":\d+')


def essence(body, stream):
    """The part that must be equal each time: all except the reply's id and time."""
    return NAMES.sub(b"", body) if stream else body[body.find(b'"model":'):]


def collect(port, texts):
    """The correct answers, by (prompt, streamed), from a server without a cache."""
    right = {}
    connections = [Connection(port) for _ in range(16)]
    for stream in (False, True):
        for at in range(0, len(texts), 16):
            batch = list(zip(connections, range(at, min(at + 16, len(texts)))))
            for c, i in batch:
                c.send(request(i, texts[i], stream))
            for c, i in batch:
                status, _, body = c.receive()
                assert status == 200, body
                right[i, stream] = essence(body, stream)
    for c in connections:
        c.close()
    assert len(set(right.values())) > 1.9 * len(texts), "too many have the same answer: foreign ones would not show"
    return right


# ---- who asks ----------------------------------------------------------------------------------

def judge(i, stream, body, right, owners):
    """The fault of a reply's body; None: correct."""
    got, want = essence(body, stream), right[i, stream]
    if got == want:
        return None
    if got in owners:
        return "foreign"
    text = lambda data: "".join(re.findall(r'"text":"((?:[^"\\]|\\.)*)"', data.decode("utf-8", "replace")))
    return "torn" if text(want).startswith(text(got)) or len(got) < len(want) and want.startswith(got[:-1]) else "wrong"


def look_at(reply, i, stream, fresh, begun, ended, clear, right, owners, counts):
    """Counts one whole reply, requested at begun and complete at ended; clear: the last finished clear of its
    server."""
    status, head, body = reply
    if status != 200:
        counts["refused"] += 1
        return
    counts["lookups"] += 1
    how = re.search(rb"x-quire-cache: (\w+)", head)
    counts[how[1].decode() if how else "off"] += 1
    bad = judge(i, stream, body, right, owners)
    age = re.search(rb"x-quire-cache-age: (\d+)", head)
    if age and not bad:
        # It was computed in this second of the server (its now - age), or in the next one: none of these counts as
        # stale.
        computed_before = int(ended) - int(age[1]) + 1
        if int(age[1]) > TTL_S or fresh and int(age[1]) > MAX_AGE_S or computed_before <= clear[0] and clear[1] < begun:
            bad = "stale"
    if bad:
        counts[bad] += 1
        print(f"{bad}: prompt {i}, stream {stream}, max-age {fresh}: {head!r} {body!r}; wanted {right[i, stream]!r}", file=sys.stderr)


def client(seed, ports, n_lookups, n_prompts, skew, cached, right, total, cleared, out):
    rng = random.Random(seed)
    texts = prompts(n_prompts)
    owners = set(right.values())
    weights = list(itertools.accumulate((r + 1) ** -skew for r in range(n_prompts)))
    plain = {(i, s): request(i, t, s) for i, t in enumerate(texts) for s in (False, True)}
    counts = collections.Counter({name: 0 for name in COUNTS})
    connections = [Connection(ports[k % len(ports)]) for k in range(CONNECTIONS)]
    told = 0
    while total.value < n_lookups:
        asked = []
        for k, c in enumerate(connections):
            i = bisect.bisect(weights, rng.random() * weights[-1])
            stream, fresh = rng.random() < 0.1, cached and rng.random() < 0.05
            data = request(i, texts[i], stream, f"Cache-Control: max-age={MAX_AGE_S}\r\n") if fresh else plain[i, stream]
            begun = time.time()
            try:
                c.send(data)
                asked.append((c, k, i, stream, fresh, begun))
            except OSError:
                counts["interrupted"] += 1
                c.close()
        for c, k, i, stream, fresh, begun in asked:
            at = k % len(ports) * 2
            clear = cleared[at:at + 2]
            try:
                reply = c.receive()
            except OSError:
                counts["interrupted"] += 1
                c.close()
                continue
            look_at(reply, i, stream, fresh, begun, time.time(), clear, right, owners, counts)
        if not asked:
            time.sleep(0.01)
        with total.get_lock():
            total.value += counts["lookups"] - told
        told = counts["lookups"]
    out.put(counts)


# ---- what serves -------------------------------------------------------------------------------

@functools.cache
def copies(directory):
    """The program and the preloaded library, copied now, because they are started again and again."""
    names = BUILD / "quire", next(BUILD.glob("tests/bench/*loop_turns.so"))
    return [shutil.copy2(name, directory) for name in names]


class Server:
    """quire serve on one port, again and again."""

    def __init__(self, name, directory, *flags):
        self.name, self.directory, self.port, self.n_starts = name, directory, free_port(), 0
        self.command = [copies(directory)[0], "serve", MODEL, "--port", self.port, "--no-enable-prefix-caching", "--max-num-seqs", 32,
                        "--disable-log-stats", *flags]
        self.log = open(pathlib.Path(directory, name + ".log"), "ab")
        self.turns = []
        self.start()
        atexit.register(lambda: self.process.kill())

    def start(self):
        self.n_starts += 1
        self.turns.append(pathlib.Path(self.directory, f"{self.name}.{self.n_starts}.turns"))
        self.process = subprocess.Popen([str(c) for c in self.command], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "LOOP_TURNS": str(self.turns[-1]), "LD_PRELOAD": copies(self.directory)[1]})
        deadline = time.monotonic() + 60
        while self.call("GET", "/health")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server does not start: see {self.log.name}")
            time.sleep(0.01)

    def call(self, method, path):
        c = Connection(self.port)
        try:
            c.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            return c.receive()
        except OSError:
            return 0, b"", b""
        finally:
            c.close()

    def stats(self):
        status, _, body = self.call("GET", "/cache/stats")
        return json.loads(body) if status == 200 else None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def read_turns(paths, program):
    """All loops' turns together, with the cause of the long ones."""
    n, by_log2, long, format = 0, [0] * 32, [], "QIIIIQII"
    for path in paths:
        data = path.read_bytes()
        n_turns, n_long, *hist = struct.unpack_from("34Q", data)
        n += n_turns
        by_log2 = [a + b for a, b in zip(by_log2, hist)]
        for i in range(min(n_long, 65536)):
            ended, wall, cpu, waits, preempted, at, call, ours = struct.unpack_from(format, data, 272 + struct.calcsize(format) * i)
            long.append({"ended_ns": ended, "ended": ended / 1e9, "wall_ms": wall / 1e3, "cpu_ms": cpu / 1e3, "waits": waits, "preempted": preempted,
                         "call_ms": call / 1e3, "call_at": at if ours else None})
    over = sorted((t for t in long if t["wall_ms"] > 5), key=lambda t: -t["wall_ms"])
    own = [t for t in over if t["cpu_ms"] > 5 or t["waits"]]
    samples = read_samples(paths)
    for t in own:
        t["cause"] = cause(t, program)
    for t in long:
        if t["ended_ns"] in samples:
            t["samples"] = samples[t["ended_ns"]]
    causes = collections.defaultdict(lambda: [0, 0.0])
    for t in own:
        causes[t["cause"]] = [causes[t["cause"]][0] + 1, max(causes[t["cause"]][1], t["wall_ms"])]
    return {"turns": n, "over_1ms": len(long), "over_5ms": len(over), "longest_ms": over[0]["wall_ms"] if over else None,
            "over_5ms_own": len(own), "causes_of_own": {name: {"turns": k, "longest_ms": ms} for name, (k, ms) in causes.items()},
            "longest_cpu_ms": max((t["cpu_ms"] for t in long), default=0), "by_log2_us": by_log2, "longest": over[:20], "own": own[:200], "most_work": sorted(long, key=lambda t: -t["cpu_ms"])[:10]}


@functools.cache
def kernel_symbols():
    try:
        lines = [line.split() for line in open("/proc/kallsyms")]
    except OSError:
        lines = []
    found = sorted((int(line[0], 16), line[2]) for line in lines if line[1] in "tT" and line[0].strip("0"))
    return [at for at, _ in found], [name for _, name in found]


def frame_name(frame):
    where, address = frame.rsplit(":", 1)
    if where == "k":
        at, names = kernel_symbols()
        i = bisect.bisect(at, int(address, 16)) - 1
        return names[i] if i >= 0 else "kernel"
    return function_at(int(address, 16) + 1, where).split(" ")[0] if where != "?" else "?"


def read_samples(paths):
    """Number of samples per place, by the turn's end. For an interrupt, its kind and function; otherwise the entry
    into the kernel, if any."""
    found = collections.defaultdict(collections.Counter)
    for path in paths:
        file = path.with_name(path.name + ".samples")
        for line in file.read_text().splitlines() if file.exists() else ():
            ended, *frames = line.split(" ")
            kernel = [frame_name(f) for f in frames if f.startswith("k:")]
            user = [frame_name(f) for f in frames if not f.startswith("k:")][:1]
            interrupt = [f for f in kernel if re.match(r"asm_(sysvec|common_interrupt)|handle_softirqs|irq_exit", f)]
            where = f"interrupt: {interrupt[0]}" if interrupt else kernel[-1] + ": " if len(kernel) > 1 else ""
            found[int(ended)][" ".join([where, *kernel[:1], *(["in", *user] if user else [])]).strip()] += 1
    return {ended: dict(counts.most_common()) for ended, counts in found.items()}


@functools.cache
def function_at(address, program):
    said = subprocess.run(["addr2line", "-f", "-s", "-e", program, hex(address - 1)], capture_output=True, text=True).stdout.split()
    return f"{said[0]} ({said[1].split(':')[0]})" if len(said) > 1 else "?"


def cause(turn, program):
    """For a turn that worked or waited: the call that took most of the time without work."""
    if turn["cpu_ms"] > 5:
        return "work"  # "samples" says where
    if turn["call_ms"] < 0.5 * (turn["wall_ms"] - turn["cpu_ms"]):
        return "preempted, mostly" if turn["preempted"] else "not known"
    return function_at(turn["call_at"], program) if turn["call_at"] is not None else "a library"


# ---- what breaks -------------------------------------------------------------------------------

def spoil(rng, value, other):
    """One of four ways to corrupt a value."""
    how = rng.randrange(4)
    if how == 0:
        return rng.randbytes(rng.randint(0, 2000))
    if how == 1:
        return value[:len(value) // 2]
    if how == 2:
        at = rng.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1:]
    return other


class SqliteStore:
    name = "sqlite"
    timetable = {"garbage": 3.1, "damage": 75}

    def __init__(self, directory):
        self.path = pathlib.Path(directory, "answers.db")
        self.flag = f"sqlite:{self.path}"
        self.done = collections.Counter()

    def garbage(self, rng):
        db = sqlite3.connect(self.path, timeout=2)
        try:
            rows = db.execute("SELECT id, bytes FROM answers ORDER BY used DESC, id LIMIT 400").fetchall()
            for at in rng.sample(range(len(rows)), min(40, len(rows))):
                db.execute("UPDATE answers SET bytes = ? WHERE id = ?", (spoil(rng, rows[at][1], rng.choice(rows)[1]), rows[at][0]))
            db.commit()
            self.done["garbage"] += min(40, len(rows))
        except sqlite3.Error:  # damaged, or busy
            self.done["garbage_refused"] += 1
        finally:
            db.close()

    def damage(self, rng):
        n_pages = self.path.stat().st_size // 4096
        with open(self.path, "r+b") as file:
            for page in rng.sample(range(1, max(2, n_pages)), max(1, n_pages // 4)):
                file.seek(page * 4096)
                file.write(rng.randbytes(4096))
        self.done["damage"] += 1

    def close(self):
        self.done["files_set_aside"] = len([p for p in self.path.parent.glob("answers.db.old-*") if not p.name.endswith(("-wal", "-shm"))])


class RedisStore:
    name = "redis"
    timetable = {"garbage": 3.1, "pause": 11, "restart": 17}

    def __init__(self, directory):
        self.directory, self.port = directory, free_port()
        self.flag = f"redis://127.0.0.1:{self.port}"
        self.done = collections.Counter()
        self.start()
        atexit.register(lambda: self.process.kill())

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", self.directory,
                                         "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL)

    def ask(self, *words):
        """One command; bulk strings, integers and flat arrays come back."""
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        with socket.create_connection(("127.0.0.1", self.port), 2) as s:
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            file = s.makefile("rb")

            def read():
                line = file.readline()
                if line[:1] == b"*":
                    return [read() for _ in range(int(line[1:]))]
                if line[:1] == b"$":
                    n = int(line[1:])
                    return None if n < 0 else file.read(n + 2)[:-2]
                if line[:1] == b"-":
                    raise OSError(line.decode())
                return line[1:-2]
            return read()

    def garbage(self, rng):
        try:
            keys = self.ask("KEYS", "quire:*")
            for key in rng.sample(keys, min(40, len(keys))):
                if self.ask("TYPE", key) != b"string" or rng.random() < 0.05:
                    self.ask("DEL", key)
                    self.ask("LPUSH", key, "a list")
                else:
                    value, other = self.ask("GET", key), self.ask("GET", rng.choice(keys))
                    self.ask("SET", key, spoil(rng, value or b"x", other or b""), "KEEPTTL")
                self.done["garbage"] += 1
        except OSError:
            self.done["garbage_refused"] += 1

    def pause(self, rng):
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        self.process.send_signal(signal.SIGCONT)
        self.done["pauses"] += 1

    def restart(self, rng):
        self.process.kill()
        self.process.wait()
        time.sleep(1)
        self.start()
        self.done["restarts"] += 1

    def close(self):
        self.process.kill()
        self.process.wait()


class Faults(threading.Thread):
    """Runs every fault on its own timetable, one at a time, until it is stopped."""

    def __init__(self, servers, store, cleared):
        super().__init__()
        self.servers, self.store, self.cleared, self.over = servers, store, cleared, threading.Event()
        self.done, self.sums, self.trouble = collections.Counter(), collections.Counter(), set()

    def note(self, server):
        """A server's counters end with it."""
        s = server.stats()
        if not s:
            return
        for name in ("hits", "misses", "joined", "stored", "unsound", "differing", "verified"):
            self.sums[name] += s[name]
        for layer, counted in s["layers"].items():
            self.sums[layer + "_lookups"] += counted["lookups"]
            self.sums[layer + "_hits"] += counted["hits"]
        for name in ("away", "puts", "puts_failed", "reconnects"):
            self.sums["store_" + name] += s["store"][name]
        if s["store"]["trouble"]:
            self.trouble.add(re.sub(r"\d{8}T\d{6}Z(\.\d+)?", "TIME", s["store"]["trouble"]))

    def kill(self, rng):
        server = self.servers[self.done["kill -9"] % len(self.servers)]
        self.note(server)
        server.kill()
        server.start()
        self.done["kill -9"] += 1

    def clear(self, rng):
        at = self.done["clears"] % len(self.servers)
        asked = time.time()
        if self.servers[at].call("POST", "/cache/clear")[0] == 200:
            with self.cleared.get_lock():
                self.cleared[2 * at:2 * at + 2] = asked, time.time()
        self.done["clears"] += 1

    def run(self):
        rng = random.Random(7)
        table = {self.kill: 4, self.clear: 31, **{getattr(self.store, name): every for name, every in self.store.timetable.items()}}
        due = {what: time.monotonic() + every for what, every in table.items()}
        while not self.over.wait(0.05):
            for what, every in table.items():
                if time.monotonic() >= due[what]:
                    what(rng)
                    due[what] = time.monotonic() + every


# ---- the whole ---------------------------------------------------------------------------------

def load(options, servers, n_lookups, seconds, right, cached, cleared):
    """Sends requests until this many lookups or seconds are over; returns the clients' counts together."""
    total, out = multiprocessing.Value("q", 0), multiprocessing.Queue()
    clients = [multiprocessing.Process(target=client, args=(seed, [s.port for s in servers], n_lookups, options.prompts, options.skew, cached, right,
                                                            total, cleared, out)) for seed in range(options.clients)]
    begun, said = time.monotonic(), 0
    for c in clients:
        c.start()
    while total.value < n_lookups:
        time.sleep(0.2)
        if time.monotonic() - begun > seconds:
            with total.get_lock():
                total.value = n_lookups
        if time.monotonic() - begun > said + 30:
            said += 30
            print(f"  {said} s: {min(total.value, n_lookups):,} lookups", flush=True)
    counts = collections.Counter({name: 0 for name in COUNTS})
    for _ in clients:
        counts.update(out.get())
    for c in clients:
        c.join()
    return {"seconds": round(time.monotonic() - begun, 1), **counts}


def say_turns(name, t):
    print(f"{name}: {t['turns']:,} turns of the loop, {t['over_1ms']} over 1 ms, {t['over_5ms']} over 5 ms, the longest {t['longest_ms']} ms; of these "
          f"{t['over_5ms_own']} worked or waited: {t['causes_of_own']}; most work in one {t['longest_cpu_ms']} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "redis"], default="sqlite")
    parser.add_argument("--lookups", type=int, default=1000000)
    parser.add_argument("--seconds", type=int, default=3000, help="at most")
    parser.add_argument("--baseline", type=int, default=30, help="seconds without a cache")
    parser.add_argument("--prompts", type=int, default=1500)
    parser.add_argument("--skew", type=float, default=0.9)
    parser.add_argument("--clients", type=int, default=3, help="processes")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="a directory for logs and files that stays")
    options = parser.parse_args()
    directory = str(options.keep) if options.keep else tempfile.mkdtemp(prefix="quire_faults_")
    pathlib.Path(directory).mkdir(exist_ok=True)
    cleared = multiprocessing.Array("d", 4)
    found = {"store": options.store, "prompts": options.prompts, "skew": options.skew, "ttl_s": TTL_S, "load_before": os.getloadavg()[0]}

    plain = Server("plain", directory)
    right = collect(plain.port, prompts(options.prompts))
    found["without_cache"] = load(options, [plain], 1 << 60, options.baseline, right, False, cleared)
    plain.stop()
    found["turns_without_cache"] = read_turns(plain.turns, copies(directory)[0])
    print(f"without a cache: {found['without_cache']['lookups']:,} answers in {found['without_cache']['seconds']} s")
    say_turns("without a cache", found["turns_without_cache"])

    store = {"sqlite": SqliteStore, "redis": RedisStore}[options.store](directory)
    servers = [Server(name, directory, "--response-cache", store.flag, "--response-cache-ttl", TTL_S) for name in ("a", "b")]
    faults = Faults(servers, store, cleared)
    faults.start()
    try:
        found["with_faults"] = load(options, servers, options.lookups, options.seconds, right, True, cleared)
    finally:
        faults.over.set()
        faults.join()
        for s in servers:
            faults.note(s)
            s.stop()
        store.close()
    found["faults"] = {**faults.done, **store.done}
    found["counted_by_servers"] = dict(faults.sums)
    found["trouble"] = sorted(faults.trouble)
    found["turns"] = read_turns([t for s in servers for t in s.turns], copies(directory)[0])
    found["load_after"] = os.getloadavg()[0]
    counts = found["with_faults"]
    print(f"{counts['lookups']:,} lookups in {counts['seconds']} s: " + ", ".join(f"{name} {counts[name]:,}" for name in COUNTS[1:] if counts[name]))
    print("faults: " + ", ".join(f"{name} {n}" for name, n in found["faults"].items()))
    print("servers: " + ", ".join(f"{name} {n:,}" for name, n in found["counted_by_servers"].items()))
    say_turns("with the cache", found["turns"])
    print("torn, foreign, stale, wrong: " + ", ".join(str(counts[name]) for name in BAD))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if not options.keep:
        shutil.rmtree(directory)
    sys.exit(1 if any(counts[name] for name in BAD) else 0)


if __name__ == "__main__":
    main()
