"""quire sim from the command line: hit rates against a naive model of an LRU cache, sweeps, the page, and errors.

usage: sim_command_test.py QUIRE MODEL. With QUIRE_TRACES=DIRECTORY it also checks Mooncake's conversation trace there.
"""
import collections
import html.parser
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

QUIRE, MODEL = sys.argv.pop(1), sys.argv.pop(1)
BLOCK = 512


def sim(*arguments, code=0):
    done = subprocess.run([QUIRE, "sim", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def sim_json(*arguments):
    return json.loads(sim(*arguments, "--json"))


CROWD = ("--trace-format", "synthetic", "--request-rate", "60", "--num-requests", "1000")


def conversations(n, seed):
    """Turns of conversations that share a first block, some of them a few more, as in Mooncake's traces."""
    rng = random.Random(seed)
    rows, open_ones, fresh = [], [], iter(range(1, 1 << 30))
    for i in range(n):
        if open_ones and rng.random() < 0.6:
            ids = rng.choice(open_ones)
            ids += [next(fresh) for _ in range(rng.randrange(1, 6))]
        else:
            ids = [0] + [next(fresh) for _ in range(rng.randrange(0, 12))]
            open_ones.append(ids)
            if len(open_ones) > 12:
                open_ones.pop(rng.randrange(len(open_ones)))
        length = len(ids) * BLOCK - rng.randrange(0, BLOCK)
        rows.append({"timestamp": i * 100, "input_length": length, "output_length": 5, "hash_ids": list(ids)})
    return rows


def naive_hits(rows, n_blocks):
    """Blocks found, and blocks looked up, in an LRU cache of n_blocks: a prompt takes its blocks and one for the
    token that a hit never covers; the oldest blocks are evicted; afterwards its blocks are the newest, the last one
    of them the oldest of these."""
    cache, hits, asked = collections.OrderedDict(), 0, 0
    for row in rows:
        ids = row["hash_ids"]
        found = 0
        while found < len(ids) and ids[found] in cache:
            found += 1
        for block in ids[:found]:
            del cache[block]
        while len(cache) + len(ids) + 1 > n_blocks:
            cache.popitem(last=False)
        for block in reversed(ids):
            assert block not in cache
            cache[block] = True
        hits += found
        asked += len(ids)
    return hits, asked


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = collections.Counter(), []

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.links += [value for name, value in attributes if name in ("src", "href")]


class Sim(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.dir.cleanup()

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def write(self, rows, name="trace.jsonl"):
        with open(self.path(name), "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        return self.path(name)

    def check_hits(self, path, rows, n_blocks):
        hits, asked = naive_hits(rows, n_blocks or 1 << 40)
        got = sim_json("--trace", path, "--block-size", BLOCK, "--num-kv-blocks", n_blocks, "--service-time", 0)
        self.assertAlmostEqual(got["prefix_hit_rate_blocks"], hits / asked, places=8)
        return hits / asked

    def test_hit_rates_are_those_of_a_naive_cache(self):
        rates = set()
        for seed in range(3):
            rows = conversations(700, seed)
            path = self.write(rows)
            for n_blocks in (0, 60, 150, 400):
                rates.add(self.check_hits(path, rows, n_blocks))
        self.assertGreater(len(rates), 9)  # pools of all these sizes differ

    def test_mooncake(self):
        directory = os.environ.get("QUIRE_TRACES", "")
        path = os.path.join(directory, "mooncake_conversation_trace.jsonl")
        if not directory or not os.path.exists(path):
            print("QUIRE_TRACES names no directory with mooncake_conversation_trace.jsonl: not checked")
            self.skipTest("no traces")
        with open(path) as f:
            rows = [json.loads(line) for line in f]
        for n_blocks, rate in ((0, 0.366), (10000, 0.212), (30000, 0.326)):
            self.assertAlmostEqual(self.check_hits(path, rows, n_blocks), rate, delta=0.0006)

    def test_sweeps_are_the_single_runs(self):
        base = ("--trace-format", "synthetic", "--num-requests", 200, "--request-rate", 20, "--num-kv-blocks", 900)
        swept = sim_json(*base, "--sweep", "policy=fcfs,priority", "budget=256,1024")
        self.assertEqual([(r["sweep"]["scheduling-policy"], r["sweep"]["max-num-batched-tokens"]) for r in swept],
                         [("fcfs", "256"), ("fcfs", "1024"), ("priority", "256"), ("priority", "1024")])
        for one in swept:
            alone = sim_json(*base, "--scheduling-policy", one["sweep"]["scheduling-policy"],
                             "--max-num-batched-tokens", one["sweep"]["max-num-batched-tokens"])
            self.assertEqual(one["decision_log_sha256"], alone["decision_log_sha256"])
            self.assertEqual(one["ttft_ms"], alone["ttft_ms"])
        table = sim(*base, "--sweep", "budget=256,1024")
        self.assertIn("budget=1024", table)
        self.assertIn("*", table)

    def test_the_machine_is_named(self):
        text = sim(*CROWD)
        self.assertIn("8b-h100-predicted: an 8B model in bf16 on one H100, from the limits of its data sheet (predicted, not measured)", text)
        self.assertRegex(sim(*CROWD, "--cost-model", "demo-cpu"), r"Machine: +demo-cpu: the demo model on 1 thread of an AMD EPYC .*\(measured\)\n")
        self.assertIn("demo-cpu: the demo model", sim_json(*CROWD, "--cost-model", "demo-cpu")["machine"])
        self.assertIn("Machine: demo-cpu", sim(*CROWD, "--cost-model", "demo-cpu", "--sweep", "policy=fcfs,sjf"))
        self.assertIn("--trace FILE is missing (--trace-format mooncake); --trace-format synthetic draws requests", sim(code=2))
        self.assertIn("neither a file nor one of 8b-h100-predicted, demo-cpu;", sim(*CROWD, "--cost-model", "demo-cpus", code=2))
        with tempfile.TemporaryDirectory() as folder:
            cost, page = os.path.join(folder, "cost.json"), os.path.join(folder, "page.html")
            with open(cost, "w", encoding="utf-8") as file:
                json.dump({"about": "a <b> model", "points": [[1, 10], [100, 1000]]}, file)
            self.assertRegex(sim(*CROWD, "--cost-model", cost, "--html", page), r"Machine: +" + re.escape(cost) + ": a <b> model\n")
            with open(page, encoding="utf-8") as file:
                self.assertIn("cost.json: a &#60;b&#62; model<dt>", file.read())
        self.assertIsNone(sim_json("--trace-format", "synthetic", "--num-requests", "5", "--service-time", "0")["machine"])

    def test_long_times_are_seconds(self):
        text, value = sim(*CROWD, "--rate-scale", "5"), sim_json(*CROWD, "--rate-scale", "5")
        self.assertGreater(value["ttft_ms"]["mean"], 10000)
        self.assertLess(value["tpot_ms"]["mean"], 10000)
        self.assertRegex(text, rf"Time to first token +{value['ttft_ms']['mean'] / 1000:.2f} s ")
        self.assertRegex(text, rf"Time per output token +{value['tpot_ms']['mean']:.2f} ")
        self.assertRegex(sim(*CROWD, "--rate-scale", "5", "--sweep", "policy=fcfs,sjf"), rf" {value['ttft_ms']['mean'] / 1000:.2f} s")

    def test_ranks_that_share_the_model(self):
        """A single request takes the time of the formulas of docs/guides/simulator.md, and ranks are swept."""
        with open(self.path("cost.json"), "w") as f:
            json.dump({"points": [[1, 1000], [1001, 9000]], "logit_us": 8, "model": {"n_layers": 10, "hidden_size": 1000, "vocab_size": 100000}}, f)
        with open(self.path("plain.json"), "w") as f:
            json.dump({"points": [[1, 1000], [1001, 9000]]}, f)
        base = ("--trace", self.write([{"timestamp": 0, "input_length": 101, "output_length": 3, "hash_ids": [1]}], "one.jsonl"))
        got = sim_json(*base, "--cost-model", self.path("cost.json"), "--tensor-parallel-size", 4, "--link", "5,40")
        gather = 8 / 4 + 5 + 4 * 100000 * 3 / 4 / 40e3
        first, later = (us / 4 + 20 * (5 + 1.5 * 4000 * n / 40e3) + gather for n, us in ((101, 1800), (1, 1000)))
        self.assertAlmostEqual(got["ttft_ms"]["mean"], first / 1e3, delta=0.002)
        self.assertAlmostEqual(got["tpot_ms"]["mean"], later / 1e3, delta=0.002)
        swept = sim_json(*base, "--sweep", "tensor-parallel-size=1,2,8")
        self.assertEqual([r["ttft_ms"]["mean"] for r in swept], sorted((r["ttft_ms"]["mean"] for r in swept), reverse=True))
        for arguments, says in ((("-tp", 3), "must be 1, 2, 4 or 8"), (("-tp", 2, "--link", "tape"), "shared-memory, nvlink, pcie"), (("--link", "pcie"), "--link needs --tensor-parallel-size"),
                                (("-tp", 2, "--cost-model", self.path("plain.json")), "does not name the shape of its model"),
                                (("-tp", 2, "--service-time", 0), "leave --tensor-parallel-size out"), (("-pp", 2, "--service-time", 0), "leave --pipeline-parallel-size out"),
                                *((("-tp", 2, f"--link={link}"), f'--link: must be shared-memory, nvlink, pcie, or CALL_US,GB_PER_S such as 5,300, with 0 to 1000000 microseconds per call and 0.001 to 1000000 GB/s; got "{link}"')
                                  for link in (" 5,100", "0x5,1", "1,1e-300", "5,-1"))):
            self.assertIn(says, sim(*base, *arguments, code=2))

    def check_stages(self, stages, ranks, prompt, budget, least):
        """A single request, compared with stages that are coroutines: where two meet, both wait, and continue
        together."""
        layers, points = 11, lambda n: (992 + 8 * n) / ranks + (22 * (5 + 2 * (1 - 1 / ranks) * 4000 * n / 40e3) if ranks > 1 else 0)
        share = [layers // stages for s in range(stages)]
        for s in [*range(1, stages - 1), stages - 1][:layers % stages]:
            share[s] += 1
        share = [n / layers for n in share]
        logit, send = 8 / ranks + (5 + 400000 * (1 - 1 / ranks) / 40e3 if ranks > 1 else 0), lambda n: 5 + 4000 * n / 40e3
        programs, last = [[] for _ in range(stages)], stages - 1
        steps = [budget] * ((prompt - 1) // budget) + [prompt - (prompt - 1) // budget * budget, 1, 1]
        for number, n in enumerate(steps):
            draws, at, micros = number >= len(steps) - 3, 0, max(1, min(n // least, 4 * stages))
            for program in programs:
                program.append(("told", number, 0))
            for m in range(micros):
                begin, at = at, n * (m + 1) // micros
                for s in range(stages):
                    programs[s] += [("meet", (number, m, s), send(at - begin))] * (s > 0)
                    programs[s].append(("work", 0, points(at - begin) * share[s] + logit * (s == last and draws and m == micros - 1)))
                    programs[s] += [("meet", (number, m, s + 1), send(at - begin))] * (s < last)
            for s in (0, last) if draws else ():
                programs[s].append(("meet", (number, "logits"), 5 + 400000 / 40e3))
            programs[0].append(("over", number, 0))
        now, at, heard, told, over = [0.0] * stages, [0] * stages, {}, {}, {}
        turns = 0
        while at != [len(p) for p in programs]:
            turns += 1
            self.assertLess(turns, 100000)
            for s in (s for s in range(stages) if at[s] < len(programs[s])):
                what, which, us = programs[s][at[s]]
                if what == "told" and s == 0:  # after all have received the previous step
                    there = [heard.get((t, which - 1)) for t in range(1, stages)] if which > 0 else [0]
                    if None in there:
                        continue
                    now[0] = told[which] = max(now[0], *there)
                elif what == "told":
                    heard[s, which] = now[s]
                    if which not in told:
                        continue
                    now[s] = max(now[s], told[which])
                elif what == "meet":
                    other = [t for t in range(stages) if t != s and at[t] < len(programs[t]) and programs[t][at[t]] == (what, which, us)]
                    if not other:
                        continue
                    now[s] = now[other[0]] = max(now[s], now[other[0]]) + us
                    at[other[0]] += 1
                elif what == "over":
                    over[which] = now[s]
                now[s] += us if what == "work" else 0
                at[s] += 1
        trace = self.write([{"timestamp": 0, "input_length": prompt, "output_length": 3, "hash_ids": list(range((prompt + 511) // 512))}], "one.jsonl")
        got = sim_json("--trace", trace, "--cost-model", self.path(f"stages-{least}.json"), "--link", "5,40", "-tp", ranks, "-pp", stages, "--max-num-batched-tokens", budget)
        self.assertAlmostEqual(got["ttft_ms"]["mean"], over[len(steps) - 3] / 1e3, delta=0.002)
        self.assertAlmostEqual(got["e2el_ms"]["mean"], over[len(steps) - 1] / 1e3, delta=0.002)

    def test_stages(self):
        for least in (64, 256):  # missing values are a GPU's
            with open(self.path(f"stages-{least}.json"), "w") as f:
                json.dump({"points": [[1, 1000], [1001, 9000]], "logit_us": 8, "model": {"n_layers": 11, "hidden_size": 1000, "vocab_size": 100000}}
                          | ({"micro_batch_tokens": 64} if least == 64 else {}), f)
            for stages, ranks, prompt, budget in ((2, 1, 900, 512), (2, 4, 900, 512), (3, 2, 1000, 200), (4, 1, 1000, 100), (8, 1, 2500, 2048), (7, 1, 600, 70)):
                with self.subTest(stages=stages, ranks=ranks, budget=budget, least=least):
                    self.check_stages(stages, ranks, prompt, budget, least)
        with open(self.path("few.json"), "w") as f:
            json.dump({"points": [[1, 1000]], "model": {"n_layers": 4, "hidden_size": 10, "vocab_size": 10}}, f)
        base = ("--trace-format", "synthetic", "--num-requests", 10)
        for arguments, says in ((("-pp", 4, "-tp", 4), "16 ranks are more than the maximum of 8"), (("-pp", 2, "--overlap-depth", 1), "does not plan ahead"),
                                (("-pp", 8, "--cost-model", self.path("few.json")), "the model has only 4 layers")):
            self.assertIn(says, sim(*base, *arguments, code=2))

    def test_the_page_stands_alone(self):
        page = self.path("page.html")
        sim("--trace-format", "synthetic", "--num-requests", 100, "--tenants", "a:rate=5,b:rate=9", "--html", page)
        with open(page) as f:
            text = f.read().replace("http://www.w3.org/2000/svg", "")  # a name, which is not downloaded
        parser = Page()
        parser.feed(text)
        self.assertEqual(parser.links, [])
        self.assertFalse("http" in text or "@import" in text or "url(" in text)
        self.assertFalse(re.search(r"\b(nan|inf)\b", text))
        self.assertEqual(parser.tags["svg"], 4)

    def test_speculation(self):
        base = ("--trace-format", "synthetic", "--num-requests", 60, "--request-rate", 5, "--output-len", 40)
        drafts = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
        plain = sim_json(*base)
        self.assertIsNone(plain["speculation"])
        with_drafts = sim_json(*base, *drafts, "--speculative-acceptance", "0.8,0.6,0.3")
        spec = with_drafts["speculation"]
        for got, given in zip(spec["acceptance_per_position"], (0.8, 0.6, 0.3)):
            self.assertAlmostEqual(got, given, delta=0.05)
        self.assertEqual(spec["without"]["tpot_ms"], plain["tpot_ms"])
        self.assertAlmostEqual(spec["gain"]["tpot_ms"], plain["tpot_ms"]["mean"] / with_drafts["tpot_ms"]["mean"], places=6)
        self.assertGreater(spec["gain"]["tpot_ms"], 1.5)
        self.assertGreater(spec["tokens_per_step"], 2)
        self.assertEqual(plain["total_output_tokens"], with_drafts["total_output_tokens"])
        table = sim(*base, *drafts, "--speculative-acceptance", "0.5", "--sweep", "policy=fcfs,sjf")
        self.assertIn("TPOT gain", table)
        self.assertIn("were accepted", sim(*base, *drafts, "--speculative-acceptance", "0.5"))
        self.assertNotIn("TPOT gain", sim(*base, "--sweep", "policy=fcfs,sjf"))
        with open(self.path("draft.json"), "w") as f:
            json.dump({"points": [[1, 500]], "row_us": 1, "logit_us": 1, "context_us": 0, "pair_us": 0, "block_copy_us": 0}, f)
        model = ("--speculative-config", '{"model": "small", "num_speculative_tokens": 3}', "--speculative-acceptance", "0.8,0.6,0.3")
        slower = sim_json(*base, *model, "--draft-cost-model", self.path("draft.json"))["speculation"]
        self.assertLess(slower["gain"]["tpot_ms"], spec["gain"]["tpot_ms"])
        for wrong, word in (((*drafts,), "--speculative-acceptance 0.7"),
                            (model, "--draft-cost-model"),
                            ((*drafts, "--speculative-acceptance", "1", "--draft-cost-model", self.path("draft.json")), "leave it out"),
                            (("--speculative-acceptance", "0.7"), "--speculative-config"),
                            ((*drafts, "--speculative-acceptance", "0.4,0.5"), "must not rise"),
                            ((*drafts, "--speculative-acceptance", self.path("none.rec")), "none.rec"),
                            (("--speculative-config", "{}", "--speculative-acceptance", "1"), "method"),
                            ((*drafts, "--speculative-acceptance", "1", "--service-time", 0), "--service-time")):
            self.assertIn(word, sim(*base, *wrong, code=2))

    def test_timed_traces_and_seeds(self):
        path = self.write([{"timestamp": 1.5 * i, "input_length": 100, "output_length": 4, "hash_ids": [7, 8],
                            "tenant": "ab"[i % 2]} for i in range(6)])
        got = sim_json("--trace", path, "--trace-format", "timed")
        self.assertEqual(sorted(got["per_tenant"]), ["a", "b"])
        self.assertAlmostEqual(got["prefix_hit_rate_tokens"], 4 * 32 / 600)
        self.assertGreater(got["duration"], 7.5)
        faster = sim_json("--trace", path, "--trace-format", "timed", "--timestamp-unit", "ms")
        self.assertLess(faster["duration"], 1)
        seeds = {sim_json("--trace-format", "synthetic", "--num-requests", 50, "--seed", s)["decision_log_sha256"]
                 for s in (1, 2, 1)}
        self.assertEqual(len(seeds), 2)

    def test_what_is_wrong_is_said(self):
        good = self.write(conversations(3, 0))
        named = self.write([{"timestamp": i, "input_length": 4, "output_length": 4, "hash_ids": [i], "tenant": "ab"[i % 2]}
                            for i in range(4)], "named.jsonl")
        bad, lengths = self.path("bad.jsonl"), self.path("lengths.csv")
        with open(lengths, "w") as f:
            f.write("num_prefill_tokens,num_decode_tokens\n5,6\n")
        with open(bad, "w") as f:
            f.write('{"timestamp": 0, "input_length": 4, "output_length": 4}\n{"timestamp": 0, "input_length": -4}\n')
        for arguments, says in (
                (("--trace", bad), "line 2"),
                (("--trace", self.path("absent")), "cannot be read"),
                (("--trace", good, "--num-kv-blocks", 3), "--num-kv-blocks"),
                (("--trace", good, "--service-time", 1), "must be 0"),
                (("--trace", good, "--scheduling-policy", "best"), "fcfs"),
                (("--trace", good, "--adaptive-budget"), "--step-target-ms"),
                (("--trace", good, "--predict"), "recording"),
                (("--trace", good, "--trace-format", "recording"), "recording"),
                (("--trace", good, "--trace-format", "recording", "--predict"), "--cost-model"),
                (("--trace", good, "--trace-format", "recording", "--service-time", 0), "--service-time"),
                (("--trace", good, "--trace-format", "recording", "--num-requests", 2), "--num-requests"),
                (("--trace", good, "--trace-format", "recording", "--sweep", "policy=fcfs"), "--sweep"),
                (("--trace", good, "--trace-format", "recording", "--scheduling-policy", "sjf"), "--predict"),
                (("--trace", good, "--request-rate", 3), "--rate-scale"),
                (("--trace", good, "--input-len", 3), "--input-len"),
                (("--trace", good, "--tenants", "a:input=3"), "synthetic"),
                (("--trace", good, "--tenants", "a:prefix=3"), "synthetic"),
                (("--trace", named, "--tenants", "a,c:weight=2"), "c has no request"),
                (("--trace-format", "synthetic", "--lengths", lengths, "--tenants", "a:output=3"), "--lengths"),
                (("--trace", good, "--sweep", "policy=fcfs", "scheduling-policy=sjf"), "twice"),
                (("--trace", good, "--sweep", "save=a,b"), "no effect"),
                (("--trace", good, "--timestamp-unit", "ms"), "--trace-format timed"),
                (("--trace-format", "synthetic", "--hash-block-size", 16), "--hash-block-size"),
                (("--trace-format", "synthetic", "--lengths", good, "--output-len", 3), "--output-len"),
                (("--trace", good, "--num-host-blocks", 5), "--num-kv-blocks"),
                (("--trace", good, "--preemption-mode", "swap"), "--num-host-blocks"),
                (("--trace", good, "--trace-format", "timed", "--timestamp-unit", "h"), "s or ms"),
                (("--trace", good, "--sweep", "policy"), "policy=fcfs"),
                (("--trace", good, "--sweep", "policy=fcfs,nope"), "policy=nope"),
                (("--trace", good, "--sweep", "colour=red"), "colour"),
                (("--trace", good, "--goodput", "ttft"), "ttft:MS"),
                (("--trace", good, "--num-host-blocks", 5, "--no-enable-prefix-caching"), "--num-host-blocks"),
                (("--trace", good, "--html", "/absent/page.html"), "/absent/page.html")):
            code = 1 if "absent" in str(arguments) else 2
            self.assertIn(says, sim(*arguments, code=code), arguments)

    def record(self, path):
        """A recording server of the demo model, with a few requests, some of them at the same time."""
        server = subprocess.Popen([QUIRE, "serve", MODEL, "--port", "0", "--threads", "1", "--num-kv-blocks", "128", "--record",
                                   path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            url = next(match.group() for line in server.stdout if (match := re.search(r"http://[0-9.:]+", line)))
            subprocess.run([QUIRE, "bench", "serve", "--url", url, "--num-prompts", "24", "--request-rate", "40",
                            "--input-len", "50", "--output-len", "12", "--ignore-eos", "--json"],
                           check=True, capture_output=True, timeout=120)
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)

    def test_recordings_are_driven_and_predicted(self):
        path, cost = self.path("day.quirerec"), self.path("cost.json")
        self.record(path)
        live = sim_json("--trace", path, "--trace-format", "recording")
        self.assertTrue(live["decisions_agree"])
        self.assertTrue(live["closed"])
        self.assertEqual(live["decision_log_sha256"], live["recorded_decision_log_sha256"])
        self.assertGreaterEqual(live["requests"], 24)
        self.assertIsNone(live["kv_waste"])
        self.assertIsNone(live["per_tenant"]["0"]["service_tokens"])
        self.assertGreater(live["itl_ms"]["mean"], 0)
        # A hundred seconds for every step: whatever the machine and its sanitizers, the prediction is slower.
        with open(cost, "w") as f:
            json.dump({"points": [[1, 1e8]]}, f)
        guess = sim_json("--trace", path, "--trace-format", "recording", "--predict", "--cost-model", cost)
        self.assertEqual(guess["recorded"]["ttft_ms"], live["ttft_ms"])
        other = sim_json("--trace", path, "--trace-format", "recording", "--predict", "--cost-model", cost,
                         "--scheduling-policy", "sjf")
        self.assertEqual((other["policy"], other["recorded"]["policy"]), ("sjf", "fcfs"))
        self.assertEqual(guess["requests"], live["requests"])
        self.assertEqual(guess["total_output_tokens"], live["total_output_tokens"])
        self.assertEqual(guess["total_input_tokens"], live["total_input_tokens"])
        self.assertAlmostEqual(guess["tpot_ms"]["p50"], 100000, delta=1)
        for name in ("ttft_ms", "tpot_ms", "e2el_ms"):
            for part in ("mean", "p95"):
                off = 100 * (guess[name][part] / live[name][part] - 1)
                self.assertAlmostEqual(guess["error_percent"][name][part], off, delta=1e-4 * abs(off))
                self.assertGreater(off, 0)
        self.assertIn("off by", sim("--trace", path, "--trace-format", "recording", "--predict", "--cost-model", cost))
        with open(path, "rb") as f, open(self.path("torn.quirerec"), "wb") as torn:
            torn.write(f.read()[:-5])
        torn = subprocess.run([QUIRE, "sim", "--trace", torn.name, "--trace-format", "recording", "--json"],
                              capture_output=True, text=True, timeout=60)
        self.assertFalse(json.loads(torn.stdout)["closed"])
        self.assertRegex(torn.stderr, "its last [0-9]+ bytes were ignored")
        with open(path, "r+b") as f: # a byte in the middle
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)
            f.seek(-1, 1)
            f.write(bytes([byte[0] ^ 1]))
        self.assertIn("recording", sim("--trace", path, "--trace-format", "recording", code=2))

    def test_one_prefix_is_computed_once(self):
        for extra in (["--step-target-ms", 15], ["--long-prefill-token-threshold", 512]):
            for run in sim_json("--trace-format", "synthetic", "--duration", 3, *extra, "--tenants",
                                "light:rate=2:input=200..600:output=20,ctx:rate=20:prefix=30000:input=30100:output=2",
                                "--sweep", "policy=fcfs,priority,sjf,lpm,edf,fair"):
                tenants = run["per_tenant"]
                unique = 30000 + 100 * tenants["ctx"]["requests"] + tenants["light"]["total_input_tokens"]
                computed = run["total_input_tokens"] * (1 - run["prefix_hit_rate_tokens"]) + run["recomputed_tokens"]
                self.assertLessEqual(computed, 1.05 * unique, (extra, run["policy"]))

    def test_help(self):
        text = sim("--help", "all")
        for word in ("--trace-format", "--sweep", "--scheduling-policy", "examples:", "--num-kv-blocks"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
