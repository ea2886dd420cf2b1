"""The effect of lost ranks on clients: a server with --restart under load, of which a random process is killed or
stopped at random times.

    python3 tests/bench/ranks/faults.py MODEL [--times 100] [--seed 1] [--output FILE] -- -tp 2 --threads 1

Each time, clients stream and wait; the victim is any rank, including rank 0; the signal is SIGKILL or SIGSTOP.
Counted: clients with an answer, an error event or a 503 with Retry-After within 5 s of the signal; the time of that;
the time until requests were served again; processes, shared memory and sockets left behind. Exits with 1 if a
guarantee is violated."""

import argparse
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

QUIRE = pathlib.Path(__file__).resolve().parents[3] / "build" / "quire"
PROMISED_S = 5
IN_A_ROW = 5  # as many starts as a server has by default; then a fresh server


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quire", default=str(QUIRE))
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    args.engine = sys.argv[at + 1:]
    return args


def children(pid):
    """Of all of them: process and first argument."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [(int(line.split()[0]), line.split()[2]) for line in listed.splitlines() if len(line.split()) > 2]


def engine_of(server):
    """Rank 0 and the others; None: no rank exists at the moment."""
    engines = [pid for pid, name in children(server.pid) if name == "engine"]
    return [engines[0]] + [pid for pid, name in children(engines[0]) if name == "rank"] if engines else None


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Client(threading.Thread):
    """One request: when it was over, and how."""

    def __init__(self, port, stream):
        super().__init__()
        self.port, self.stream, self.told, self.how = port, stream, None, None
        self.start()

    def run(self):
        body = {"prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "temperature": 0, "stream": self.stream}
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read().decode()
            if reply.status == 503:
                self.how = "503" if reply.headers["Retry-After"] else "503 without Retry-After"
            elif reply.status == 200 and self.stream and '"error"' in text:
                self.how = "event"
            else:
                self.how = "answer" if reply.status == 200 else f"status {reply.status}"
        except OSError as error:
            self.how = f"no answer: {error}"
        self.told = time.monotonic()


def is_served(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1}), {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except OSError:
        return False


def one_fault(server, port, draw, n_clients):
    ranks = engine_of(server)
    clients = [Client(port, i % 2 == 0) for i in range(n_clients)]
    time.sleep(draw.uniform(0.02, 0.6))
    rank, how = draw.randrange(len(ranks)), draw.choice([signal.SIGKILL, signal.SIGSTOP])
    os.kill(ranks[rank], how)
    since = time.monotonic()
    for client in clients:
        client.join()
    deadline = time.monotonic() + 60
    while (any(map(is_alive, ranks)) or not is_served(port)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return {"rank": rank, "signal": how.name, "told_s": [round(max(0, c.told - since), 3) for c in clients], "how": [c.how for c in clients],
            "served_again_s": round(time.monotonic() - since, 3), "left": sum(map(is_alive, ranks))}


def memory_of(pids):
    """The shared memory of groups that these processes hold, by inode."""
    found = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if "memfd:quire-group" in os.readlink(fd):
                    found.add(os.stat(fd).st_ino)
            except OSError:
                pass
    return found


def summary(faults):
    told = sorted(max(f["told_s"]) for f in faults)
    again = sorted(f["served_again_s"] for f in faults)
    hows = [h for f in faults for h in f["how"]]
    wrong = [h for h in hows if h not in ("503", "event", "answer")]
    return {"faults": len(faults), "in_time": sum(t <= PROMISED_S for t in told), "told_s_median": told[len(told) // 2], "told_s_most": told[-1],
            "served_again_s_median": again[len(again) // 2], "served_again_s_most": again[-1], "clients": {h: hows.count(h) for h in sorted(set(hows))},
            "wrong": wrong, "processes_left": sum(f["left"] for f in faults),
            "by_signal": {s: {"faults": sum(f["signal"] == s for f in faults), "told_s_most": max((max(f["told_s"]) for f in faults if f["signal"] == s), default=None)} for s in ("SIGKILL", "SIGSTOP")}}


def begin(args):
    server = subprocess.Popen([args.quire, "serve", args.model, "--port", "0", "--device", "cpu", "--restart", "on-failure", *args.engine], stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if port := re.search(r"ready on http://127.0.0.1:(\d+)", line):
            threading.Thread(target=lambda: list(server.stderr), daemon=True).start()
            return server, int(port.group(1))
    raise SystemExit("the server did not come up")


def main():
    args = parse()
    draw, memory, faults, ends, left = random.Random(args.seed), set(), [], [], 0
    while len(faults) < args.times:
        server, port = begin(args)
        for _ in range(min(IN_A_ROW, args.times - len(faults))):
            memory |= memory_of(engine_of(server))
            faults.append(one_fault(server, port, draw, args.clients))
            print(len(faults), faults[-1], flush=True)
        ranks = engine_of(server)
        server.send_signal(signal.SIGTERM)
        ends.append(server.wait(60))
        left += sum(map(is_alive, ranks))
    held = memory & memory_of(p.name for p in pathlib.Path("/proc").glob("[0-9]*"))
    result = {"engine": args.engine, "seed": args.seed, "clients_each": args.clients, **summary(faults), "servers": len(ends), "ended_with_status_0": ends.count(0),
              "processes_left_at_the_end": left, "memories_seen": len(memory), "memories_left": len(held), "each": faults}
    print(json.dumps({k: v for k, v in result.items() if k != "each"}, indent=1))
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(result) + "\n")
    good = result["in_time"] == args.times and not result["wrong"] and not result["processes_left"] and not any(ends) and not left and not held
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
