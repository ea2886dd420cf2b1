"""Loads that broke `fair` while it counted tokens: each with a goal for the tenants next to the greedy one. The same load
without the greedy tenant is the measure ("alone"). docs/internals/scheduling.md has the results.

usage: fair_loads_test.py QUIRE [--all]. Without --all a part of each table, with another seed for the arrivals.
"""
import json
import subprocess
import sys
import unittest

QUIRE = sys.argv.pop(1)
ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")

LIGHT = "light:rate=2:input=200..600:output=100:class=1"
LIGHTS = ",".join(f"l{i}:rate=1:input=200..600:output=100:class=1" for i in range(1, 5))


def sim(tenants, *arguments, policy="fair"):
    done = subprocess.run([QUIRE, "sim", "--trace-format", "synthetic", "--json", "--scheduling-policy", policy, "--tenants",
                           tenants, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def light(result, what, statistic):
    """Of the light tenants, which are class 1."""
    return result["per_class"]["1"][what][statistic]


def throughput(result):
    return (result["total_input_tokens"] + result["total_output_tokens"]) / result["duration"]


class Loads(unittest.TestCase):
    def long_prompts(self, n, target, seed):
        """n tenants send prompts of 100,000 tokens, faster than they can be computed."""
        heavy = "".join(f",h{i}:rate={1 / n}:input=100000:output=10" for i in range(n))
        common = ("--duration", 20, "--num-kv-blocks", 60000, "--step-target-ms", target, "--seed", seed)
        alone = light(sim(LIGHTS, *common), "ttft_ms", "p95")
        fair, fcfs = (sim(LIGHTS + heavy, *common, policy=p) for p in ("fair", "fcfs"))
        part = throughput(fair) / throughput(fcfs)
        times = light(fair, "ttft_ms", "p95") / alone
        print(f"{n} with long prompts, {target} ms, seed {seed}: {part:.3f} of the throughput of fcfs; "
              f"p95 TTFT {alone:.1f} ms alone, {times:.2f} x")
        self.assertGreaterEqual(part, 0.98)
        self.assertLessEqual(times, 2 if target == 20 else 1.5)

    def test_long_prompts(self):
        for n, target in ((2, 12), (2, 15), (2, 20), (4, 12), (4, 15), (4, 20), (8, 12), (8, 15), (8, 20)):
            if ALL or n + target in (14, 19, 28):
                with self.subTest(n=n, target=target):
                    self.long_prompts(n, target, 0)

    def test_long_prompts_alone(self):
        """Without light tenants: two prompts take turns, and lose nothing."""
        heavy = "h0:rate=2:input=100000:output=10,h1:rate=2:input=100000:output=10"
        common = ("--duration", 2, "--num-kv-blocks", 60000, "--step-target-ms", 15)
        part = throughput(sim(heavy, *common)) / throughput(sim(heavy, *common, policy="fcfs"))
        print(f"two with long prompts: {part:.3f} of the throughput of fcfs")
        self.assertGreaterEqual(part, 0.98)

    def test_full_cache(self):
        """More long prompts than the KV cache holds: those that wait for blocks stop nobody, and short ones find some."""
        for n, length, blocks in ((8, 100000, 25100), (16, 100000, 60000), (40, 50000, 30000)):
            heavy = "".join(f",h{i}:rate={1e5 / length / n}:input={length}:output=10" for i in range(n))
            common = ("--duration", 20, "--num-kv-blocks", blocks, "--step-target-ms", 15, "--seed", 3)
            alone = light(sim(LIGHTS, *common), "ttft_ms", "p95")
            fair, fcfs = (sim(LIGHTS + heavy, *common, policy=p) for p in ("fair", "fcfs"))
            part, times = throughput(fair) / throughput(fcfs), light(fair, "ttft_ms", "p95") / alone
            print(f"{n} with prompts of {length}, {blocks} blocks: {part:.3f} of the throughput of fcfs; p95 TTFT {times:.2f} x")
            self.assertGreaterEqual(part, 0.95)
            self.assertLessEqual(times, 1.5)

    def test_seats(self):
        """Long answers take all seats."""
        for seats in (256, 16) if ALL else (64,):
            load = LIGHT + f",hog:rate={seats / 6}:input=50:output=4000"
            fair = sim(load, "--duration", 20, "--max-num-seqs", seats)
            ttft = light(fair, "ttft_ms", "p95")
            print(f"{seats} seats taken by long answers: p95 TTFT {ttft:.0f} ms, {fair['preemptions']} preemptions")
            self.assertLessEqual(ttft, 200)
            self.assertLess(fair["preemptions"], fair["completed"])

    def test_long_context(self):
        """A cached prefix of 100,000 tokens costs hardly anything to compute, and much to read."""
        alone = light(sim(LIGHT, "--duration", 30), "e2el_ms", "p95")
        for target in ((), ("--step-target-ms", 15)):
            fair = sim(LIGHT + ",ctx:rate=1:prefix=100000:input=100001:output=500", "--duration", 30, *target)
            times = light(fair, "e2el_ms", "p95") / alone
            print(f"long contexts {target}: p95 end to end {alone:.0f} ms alone, {times:.2f} x")
            self.assertLessEqual(times, 3)

    def test_keys_of_one_organisation(self):
        """200 keys count as one."""
        common = ("--duration", 30, "--step-target-ms", 20)
        keys = "".join(f",k{i}:rate=0.1:input=2000:output=200:group=o" for i in range(200))
        one = light(sim(LIGHT + ",k:rate=20:input=2000:output=200", *common), "ttft_ms", "p95")
        many = light(sim(LIGHT + keys, *common), "ttft_ms", "p95")
        without = light(sim(LIGHT + keys.replace(":group=o", ""), *common), "ttft_ms", "p95")
        print(f"p95 TTFT beside one key {one:.1f} ms, beside 200 of one organisation {many / one:.2f} x, "
              f"of 200 organisations {without / one:.0f} x")
        self.assertLessEqual(many, 1.3 * one)
        self.assertGreater(without, 1.3 * one)

    def test_limits(self):
        """Limits hold in a simulation, too: a tenant with one seat runs its requests one after the other."""
        fair = sim("a:rate=10:input=50:output=100:max-seats=1,b:rate=10:input=50:output=100", "--duration", 5, policy="fcfs")
        a, b = (fair["per_tenant"][t] for t in "ab")
        self.assertGreater(a["queue_ms"]["mean"], 100 * b["queue_ms"]["mean"])
        self.assertLess(b["queue_ms"]["mean"], 50)

    def test_errors(self):
        for tenants, says in (("a:group=", "group="), ("a:group=o:group-weight=2,b:group=o", "group-weight: o has 2 in a and 1 in b"),
                              ("a:max-seats=-1", "max-seats=-1"), ("a:group-weight=0", "group-weight=0"), ("a:grp=o", "must be weight")):
            with self.assertRaisesRegex(AssertionError, f"--tenants: .*{says}"):
                sim(tenants)
        with self.assertRaisesRegex(AssertionError, "--fair-prefill-share .* --step-target-ms"):
            sim("a", "--fair-prefill-share", 50)


if __name__ == "__main__":
    unittest.main(verbosity=0)
