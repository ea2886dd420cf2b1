"""The cost of structured requests on a running server, in pairs A-B-A-B. docs/benchmarks/structured.md has results.

    python3 tests/bench/structured/load.py beside --url URL --pid PID >OUT.jsonl
    python3 tests/bench/structured/load.py throughput --url URL --pid PID
    python3 tests/bench/structured/load.py forced --url URL --pid PID

- beside: the inter-token latency of --measured plain streams beside --others streams, plain (A) or structured (B)
- throughput: --others requests at once, plain (A) or structured (B), each of --tokens tokens
- only: --others structured requests at once, forced tokens on (A) or off (B)
- forced: one request with long fixed keys, forced tokens on (A) or off (B)

The structured answers cannot end before their token limit, except in `forced`. Answers are greedy. A line of the
output is one run: latencies in ms, CPU time of the server's process, load of the machine, and what its counters
gained. The last line has the median of the pairs' ratios B / A. --llama: the server is llama.cpp's. Standard library
only. A first pair warms up and does not count.
"""
import argparse
import http.client
import json
import os
import re
import statistics
import threading
import time
import urllib.parse
import urllib.request

TEXT = {"type": "string", "maxLength": 16}
PERSON = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "status": {"enum": ["active", "on_leave", "retired"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
    },
}
PERSON |= {"required": list(PERSON["properties"]), "additionalProperties": False}
PEOPLE = {"type": "array", "items": PERSON, "minItems": 1000}
KEYS = ["customer_shipping_address_line", "preferred_contact_telephone_number", "estimated_delivery_date_and_time",
        "insurance_policy_reference_number", "warehouse_location_identifier", "international_bank_account_number"]
LONG = {"type": "object", "properties": {k: {"type": "integer", "minimum": 0, "maximum": 9999} for k in KEYS},
        "required": KEYS, "additionalProperties": False}
OFF = {"speculative": {"num_speculative_tokens": 0}}  # also of tokens that a grammar forces
COUNTERS = {"steps": "engine_steps_total", "masks": "grammar_masks_total", "mask_s": "grammar_mask_seconds_total",
            "wait_s": "grammar_mask_wait_seconds_total", "forced": "grammar_forced_tokens_total"}


def grammar_of_llama():
    """PEOPLE as GBNF; llama.cpp bounds repetitions, so the array may end and does not."""
    return r'''root ::= "[" person ("," person)* "]"
person ::= "{\"name\":" name ",\"age\":" age ",\"status\":" status ",\"tags\":" tags "}"
name ::= "\"" char{0,16} "\""
tag ::= "\"" char{0,12} "\""
char ::= [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4})
age ::= [0-9] | [1-9] [0-9] | "1" ([0-4] [0-9] | "50")
status ::= "\"active\"" | "\"on_leave\"" | "\"retired\""
tags ::= "[" (tag ("," tag){0,2})? "]"
'''


class Stream(threading.Thread):
    """One streamed request. times: of its events with text."""

    def __init__(self, options, number, structured, tokens, **fields):
        super().__init__(daemon=True)
        body = {"model": options.model, "prompt": f"Story {number} about a fox, a lantern and {number + 7} kettles:",
                "temperature": 0, "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True}}
        if not structured or options.llama:
            body["ignore_eos"] = True
        if structured and options.llama:
            body["grammar"] = grammar_of_llama()
        elif structured:
            body["structured_outputs"] = {"json": structured}
        if options.llama:
            body["cache_prompt"] = False
        self.body, self.times, self.usage, self.error = json.dumps(body | fields), [], None, None
        self.first, self.text = threading.Event(), ""
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(options.url).netloc)

    def run(self):
        try:
            self.read()
        except (OSError, AttributeError, http.client.HTTPException) as error:
            self.error = error
        self.first.set()

    def read(self):
        self.connection.request("POST", "/v1/completions", self.body, {"content-type": "application/json"})
        answer = self.connection.getresponse()
        if answer.status != 200:
            raise OSError(answer.read())
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now, event = time.perf_counter(), json.loads(line[6:])
            if event.get("choices") and event["choices"][0].get("text"):
                self.times.append(now)
                self.text += event["choices"][0]["text"]
                self.first.set()
            self.usage = event.get("usage") or self.usage

    def cancel(self):
        if self.connection.sock:
            self.connection.sock.shutdown(2)


def metrics(options):
    if options.llama:
        return {}
    text = urllib.request.urlopen(options.url + "/metrics").read().decode()
    return {k: float(re.search(rf"^quire:{name}\S* (\S+)$", text, re.M)[1]) for k, name in COUNTERS.items()} | {
        "running": float(re.search(r"^vllm:num_requests_running\S* (\S+)$", text, re.M)[1])}


def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def at(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)]


class Clock:
    def __init__(self, options):
        self.options, self.before, self.cpu, self.begun = options, metrics(options), cpu_s(options.pid), time.perf_counter()

    def __call__(self):
        took, cpu, after = time.perf_counter() - self.begun, cpu_s(self.options.pid) - self.cpu, metrics(self.options)
        gained = {k: round(after[k] - self.before[k], 6) for k in self.before if k != "running"}
        return {"wall_s": round(took, 3), "cpu_s": round(cpu, 2), "load": os.getloadavg()[0]} | gained


def checked(streams):
    for stream in streams:
        stream.join()
        if stream.error or not stream.usage:
            raise SystemExit(f"a request failed: {stream.error}")
    return sum(stream.usage["completion_tokens"] for stream in streams)


def fields_of(options):
    return {} if options.forced or options.llama else OFF


def beside(options, structured):
    others = [Stream(options, i, PEOPLE if structured else None, 100 + options.tokens * 4,
                     **(fields_of(options) if structured else {})) for i in range(options.others)]
    for stream in others:
        stream.start()
    for stream in others:
        stream.first.wait()
    clock = Clock(options)
    measured = [Stream(options, 100 + i, None, options.tokens) for i in range(options.measured)]
    for stream in measured:
        stream.start()
    checked(measured)
    out = clock()
    if any(stream.error or not stream.is_alive() for stream in others):
        raise SystemExit(f"a stream of the others ended: {[str(s.error) for s in others]}")
    for stream in others:
        stream.cancel()
    while metrics(options).get("running"):
        time.sleep(0.05)
    gaps = [1e3 * (b - a) for stream in measured for a, b in zip(stream.times, stream.times[1:])]
    return {"itl_p50": at(gaps, 50), "itl_p99": at(gaps, 99), "n": len(gaps)} | out


def throughput(options, structured):
    streams = [Stream(options, i, PEOPLE if structured else None, options.tokens,
                      **(fields_of(options) if structured else {})) for i in range(options.others)]
    clock = Clock(options)
    for stream in streams:
        stream.start()
    n = checked(streams)
    out = clock()
    return {"tokens": n, "tokens_per_s": n / out["wall_s"]} | out


def only(options, off):
    streams = [Stream(options, i, PEOPLE, options.tokens, **(OFF if off else {})) for i in range(options.others)]
    clock = Clock(options)
    for stream in streams:
        stream.start()
    n = checked(streams)
    return {"tokens": n} | clock()


def forced(options, off):
    stream = Stream(options, 1, LONG, 400, **(OFF if off else {}))
    clock = Clock(options)
    stream.start()
    n = checked([stream])
    return {"tokens": n, "text": stream.text} | clock()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("beside", "throughput", "only", "forced"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the server")
    parser.add_argument("--model", default="model")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--measured", type=int, default=8)
    parser.add_argument("--others", type=int, default=16)
    parser.add_argument("--forced", action="store_true", help="leave forced tokens on in `beside` and `throughput`")
    parser.add_argument("--llama", action="store_true")
    options = parser.parse_args()
    run = {"beside": beside, "throughput": throughput, "only": only, "forced": forced}[options.what]
    pairs = []
    for pair in range(-1, options.pairs):
        results = {}
        for arm in "AB":
            results[arm] = run(options, arm == "B")
            print(json.dumps({"what": options.what, "pair": pair, "arm": arm} | results[arm]), flush=True)
        if pair >= 0:
            pairs.append(results)
    keys = [k for k, v in pairs[0]["A"].items() if isinstance(v, float) and v and k != "load"]
    ratios = {k: [round(p["B"][k] / p["A"][k], 4) for p in pairs if p["A"][k]] for k in keys}
    medians = {k: {"A": statistics.median(p["A"][k] for p in pairs), "B": statistics.median(p["B"][k] for p in pairs),
                   "ratio": statistics.median(ratios[k]), "ratios": ratios[k]} for k in keys}
    print(json.dumps({"what": options.what, "medians": medians, "command": vars(options)}))


if __name__ == "__main__":
    main()
