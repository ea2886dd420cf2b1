"""quire bench, as a person or a script runs it: the fields, and sums that must hold."""

import http.server
import json
import statistics
import subprocess
import threading
import time

import pytest

from conftest import MODEL, QUIRE


def bench(*arguments, timeout=300, **kwargs):
    return subprocess.run([str(QUIRE), "bench", *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **kwargs)


def bench_json(*arguments):
    got = bench(*arguments, "--json")
    assert got.returncode == 0, got.stderr
    assert got.stdout.endswith("}\n")
    return json.loads(got.stdout)


@pytest.mark.parametrize("name", ["throughput", "latency", "serve", "compare", "steps", "kernels", "collectives"])
def test_help_teaches(name):
    shown = bench(name, "--help")
    assert shown.returncode == 0 and f"usage: quire bench {name}" in shown.stdout and "example" in shown.stdout
    assert name in bench("--help").stdout
    wrong = bench("sreve")
    assert wrong.returncode == 2 and "sreve" in wrong.stderr


# ---- offline ----


def check_throughput(result, n, n_prompt, n_output):
    assert result["num_requests"] == n
    assert result["total_prompt_tokens"] == n_prompt and result["total_output_tokens"] == n_output
    assert result["total_num_tokens"] == n_prompt + n_output
    s = result["elapsed_time"]
    assert s > 0
    assert result["requests_per_second"] == pytest.approx(n / s, rel=1e-6)
    assert result["tokens_per_second"] == pytest.approx((n_prompt + n_output) / s, rel=1e-6)
    assert result["output_tokens_per_second"] == pytest.approx(n_output / s, rel=1e-6)


def test_collectives():
    result = bench_json("collectives", "--ranks", 2, "--calls", 20)
    assert result["ranks"] == 2 and result["calls"] == 20
    assert [row["name"].split()[0] for row in result["collectives"]] == ["barrier", "all-reduce", "all-reduce", "all-reduce", "plan", "memory"]
    assert all((row["link_share"] > 0) == (row["name"].split()[0] == "all-reduce") for row in result["collectives"])
    assert all(0 < row["median_us"] <= row["p95_us"] for row in result["collectives"])
    wrong = bench("collectives", "--ranks", 3)
    assert wrong.returncode == 2 and wrong.stderr == "quire: --ranks: must be 1, 2, 4 or 8\n"


def test_throughput():
    result = bench_json("throughput", MODEL, "--num-prompts", 5, "--input-len", 20, "--output-len", 7)
    check_throughput(result, 5, 100, 35)
    table = bench("throughput", MODEL, "--num-prompts", 2, "--input-len", 9, "--output-len", 3).stdout
    assert "Output token throughput (tok/s):" in table and "Elapsed time (s):" in table


def test_throughput_needs_no_tokenizer_and_more_requests_than_run_at_once(tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(MODEL / name)
    result = bench_json("throughput", tmp_path, "--num-prompts", 1100, "--input-len", 1, "--output-len", 1)
    check_throughput(result, 1100, 1100, 1100)


def test_throughput_of_files(tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]},
            {"timestamp": 10, "input_length": 9000, "output_length": 3},
            {"timestamp": 3600000, "input_length": 600, "output_length": 4, "hash_ids": [1, 3]}]
    trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
    got = bench("throughput", MODEL, "--dataset", "trace", "--dataset-path", trace, "--json")
    check_throughput(json.loads(got.stdout), 2, 1300, 7)
    assert "1 requests of" in got.stderr and "left out" in got.stderr
    talk = tmp_path / "talk.json"
    turns = [{"from": "human", "value": "Once upon a time there was a cat."}, {"from": "gpt", "value": "It had a red ball to play with."}]
    talk.write_text(json.dumps([{"id": "a", "conversations": turns}]))
    result = bench_json("throughput", MODEL, "--dataset", "sharegpt", "--dataset-path", talk)
    assert result["num_requests"] == 1 and 5 < result["total_output_tokens"] < 30
    trace.write_text('{"timestamp": 0, "input_length": "many"}\n')
    wrong = bench("throughput", MODEL, "--dataset", "trace", "--dataset-path", trace)
    assert wrong.returncode == 1 and "trace.jsonl: line 1: input_length" in wrong.stderr


def test_latency():
    result = bench_json("latency", MODEL, "--batch-size", 3, "--input-len", 10, "--output-len", 5, "--num-iters", 4,
                        "--num-iters-warmup", 1)
    latencies = sorted(result["latencies"])
    assert len(latencies) == 4
    assert result["avg_latency"] == pytest.approx(sum(latencies) / 4, rel=1e-6)
    assert set(result["percentiles"]) == {"10", "25", "50", "75", "90", "99"}
    assert result["percentiles"]["50"] == pytest.approx((latencies[1] + latencies[2]) / 2, rel=1e-6)
    # Prefill and decode are all of the time. When the last request has its first token, the two others have at least
    # one.
    prefill_s = 30 / result["prefill_tokens_per_second"]
    assert result["avg_ttft"] <= prefill_s * 1.000001
    n_decoded = (result["avg_latency"] - prefill_s) * result["decode_tokens_per_second"]
    assert 4 <= n_decoded <= 12.000001
    assert 0 < result["avg_tpot"] <= (result["avg_latency"] - result["avg_ttft"]) / 4 * 1.000001
    assert (result["batch_size"], result["input_len"], result["output_len"]) == (3, 10, 5)


@pytest.mark.parametrize("arguments,says", [
    (["throughput", MODEL, "--input-len", 2000, "--output-len", 49], "2048"),
    (["throughput", MODEL, "--dataset", "sonnet"], "sonnet"),
    (["latency", MODEL, "--batch-size", 9, "--max-num-seqs", 8], "--max-num-seqs"),
    (["latency", "absent"], "no downloaded model has this name"),
])
def test_what_cannot_be_measured_is_explained(arguments, says):
    got = bench(*arguments)
    assert got.returncode == 1 and says in got.stderr and got.stderr.count("\n") == 1


# ---- a server ----


def check_serve(result, n, n_output):
    assert result["completed"] == n and result["failed"] == 0
    assert result["total_output_tokens"] == n_output
    s = result["duration"]
    assert result["request_throughput"] == pytest.approx(n / s, rel=1e-6)
    assert result["output_throughput"] == pytest.approx(n_output / s, rel=1e-6)
    assert result["total_token_throughput"] == pytest.approx((result["total_input_tokens"] + n_output) / s, rel=1e-6)
    for key in ("ttft", "tpot", "itl", "e2el"):
        assert 0 < result[f"median_{key}_ms"] == pytest.approx(result[f"p50_{key}_ms"])
        assert result[f"p50_{key}_ms"] <= result[f"p95_{key}_ms"] <= result[f"p99_{key}_ms"]
        assert result[f"std_{key}_ms"] >= 0
    assert result["mean_ttft_ms"] < result["mean_e2el_ms"] <= 1000 * s


def test_serve_completions(server):
    result = bench_json("serve", "--url", server.url, "--num-prompts", 6, "--input-len", 15, "--output-len", 8, "--ignore-eos",
                        "--goodput", "ttft:60000", "e2el:60000")
    check_serve(result, 6, 48)
    assert result["total_input_tokens"] == 90
    assert result["model_id"] == "demo" and result["request_rate"] == "inf" and result["num_prompts"] == 6
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert 1 <= result["max_concurrent_requests"] <= 6
    # If equal answers come token by token, TPOT and ITL have the same mean, except for the event that ends the answer.
    assert result["mean_tpot_ms"] == pytest.approx(result["mean_itl_ms"], rel=0.2)


def test_serve_chat_with_a_bound_and_a_rate(server, tmp_path):
    saved = tmp_path / "result.json"
    result = bench_json("serve", "--url", server.url + "/v1/", "--endpoint", "/v1/chat/completions", "--num-prompts", 8, "--input-len",
                        12, "--output-len", 4, "--ignore-eos", "--max-concurrency", 2, "--request-rate", 100, "--save", saved)
    check_serve(result, 8, 32)
    assert result["max_concurrent_requests"] <= 2 == result["max_concurrency"]
    assert result["duration"] > 8 / 100 * 0.5
    assert result["total_input_tokens"] > 8 * 12  # the template's tokens count
    assert json.loads(saved.read_text()) == pytest.approx(result)
    assert result["request_goodput"] is None


def test_serve_replays_a_trace(server, tmp_path):
    trace = tmp_path / "azure.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,30,3\n2023-11-16 18:17:07.9,5000,3\n"
                     "2023-11-16 18:17:13.9,20,5\n")
    got = bench("serve", "--url", server.url, "--dataset", "trace", "--dataset-path", trace, "--rate-scale", 10, "--ignore-eos", "--json")
    result = json.loads(got.stdout)
    assert result["completed"] == 2 and result["total_input_tokens"] == 50 and result["total_output_tokens"] == 8
    assert 1 <= result["duration"] < 60 and result["request_rate"] == "trace"
    assert "left out" in got.stderr
    table = bench("serve", "--url", server.url, "--num-prompts", 2, "--percentile-metrics", "ttft", "--metric-percentiles", "99.9").stdout
    assert " Serving Benchmark Result " in table and "P99.9 TTFT (ms):" in table and "ITL" not in table


def test_serve_says_what_is_wrong(server):
    got = bench("serve", "--url", server.url, "--model", "nosuch")
    assert got.returncode == 1 and "HTTP 404" in got.stderr and "nosuch" in got.stderr
    for arguments, says in ([], "--url"), (["--url", "ftp://x"], "http://"), (["--url", server.url, "--request-rate", "0"], "--request-rate"):
        got = bench("serve", *arguments)
        assert got.returncode in (1, 2) and says in got.stderr, got.stderr
    got = bench("serve", "--url", "http://127.0.0.1:1")
    assert got.returncode == 1 and "127.0.0.1" in got.stderr


def choice(text, finish=None, **more):
    return "data: " + json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}) + "\n\n"


class OddServer(http.server.BaseHTTPRequestHandler):
    """Repeats answers of other or faulty servers. The client's first request gets answer 0."""

    protocol_version = "HTTP/1.1"
    n_asked = 0
    keys = set()

    def log_message(self, *arguments):
        pass

    def reply(self, code, kind, body, delay=0):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 5):  # events cut anywhere
            piece = body[at:at + 5]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(delay)
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        if self.path == "/metrics":  # vLLM's names; two accepted tokens in each answer, of four drafts in one step
            counters = {"drafts": 1, "draft_tokens": 4, "accepted_tokens": 2}
            text = "".join('vllm:spec_decode_num_%s_total{engine="0"} %.1f\n' % (name, 100 + n * OddServer.n_asked) for name, n in counters.items())
            text += "".join('vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="%d"} %.1f\n' % (place, OddServer.n_asked)
                            for place in range(2))
            self.reply(200, "text/plain", text.encode())
            return
        self.reply(200, "application/json", json.dumps({"data": [{"id": "odd"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["model"] == "odd" and body["stream"] and len(body["prompt"]) in (8, 16)
        OddServer.keys.add(self.headers["Authorization"])
        turn, OddServer.n_asked = OddServer.n_asked, OddServer.n_asked + 1
        good = choice("a") + choice("b") + choice("c", "length")
        if turn in (0, 1):
            self.reply(200, "text/event-stream", (good + "data: [DONE]\n\n").replace("\n", "\r\n").encode(), 0.001)
        elif turn == 2:
            self.reply(429, "application/json", b'{"error": {"message": "the \\u001b[2Jqueue is full"}}')
        elif turn == 3:
            self.reply(200, "text/event-stream", (choice("a") + 'data: {"error": {"message": "lost"}}\n\n').encode())
        elif turn == 4:
            self.reply(200, "text/event-stream", choice("a").encode())
        elif turn == 5:
            self.reply(200, "application/json", b'{"choices": [{"text": "all at once"}]}')
        else:
            usage = choice("", "stop") + 'data: {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 50}}\n\n'
            self.reply(200, "text/event-stream", (": hello\n\n" + choice("many tokens") + usage).encode())


def test_serve_counts_the_faults_of_others():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OddServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        got = bench("serve", "--url", f"http://127.0.0.1:{server.server_port}", "--num-prompts", 6, "--input-len", 16, "--max-concurrency", 1,
                    "--api-key", "secret", "--json")
    finally:
        server.shutdown()
        server.server_close()
    result = json.loads(got.stdout)
    assert OddServer.keys == {"Bearer secret"}
    assert result["completed"] == 2 and result["failed"] == 4
    assert result["first_error"] == "HTTP 429: the  [2Jqueue is full" and result["first_error"] in got.stderr
    assert result["total_input_tokens"] == 16 + 100  # the requested length, if the server reports none
    assert result["total_output_tokens"] == 3 + 50  # also the events
    assert result["spec_decode_num_drafts"] == 6 and result["spec_decode_draft_tokens"] == 24 and result["spec_decode_accepted_tokens"] == 12
    assert result["spec_decode_acceptance_rate"] == 50 and result["spec_decode_acceptance_length"] == 3
    assert result["spec_decode_per_position_acceptance_rates"] == [1, 1]
    assert result["spec_decode_tokens_a_step"] == pytest.approx(53 / 41)
    assert got.returncode == 0


# ---- two configurations ----


LOAD = ["--num-prompts", 24, "--input-len", 16, "--output-len", 24]


@pytest.mark.wide
def test_compare_finds_a_difference():
    """The oracle takes four times as long."""
    rounds = 12
    for _ in range(5):  # other programs may begin or end while one of the sides runs
        result = bench_json("compare", MODEL, "--a", "--device ref", "--b", "--max-num-seqs=8 --no-enable-prefix-caching", *LOAD, "--rounds", rounds)
        if result["output_throughput"]["better"] == "b":
            break
    assert result["a"] == "--device ref" and result["rounds"] == rounds and result["num_prompts"] == 24
    rate = result["output_throughput"]
    assert rate["better"] == "b" and 1 < rate["low"] <= rate["ratio"] <= rate["high"]
    assert len(rate["rounds"]) == rounds and rate["a"] == pytest.approx(statistics.median(a for a, _ in rate["rounds"]))
    assert set(result) > {"mean_ttft_ms", "p95_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"}
    for key in "mean_ttft_ms", "p95_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "output_throughput":
        figure = result[key]
        assert figure["low"] <= figure["ratio"] <= figure["high"]
        assert figure["better"] == "none" or figure["low"] > 1 or figure["high"] < 1


def test_compare_takes_no_noise_for_a_difference():
    # Five figures at 99 % each: for equal sides, at most 5 of 100 comparisons report a difference; five in a row do so
    # once in 3 million.
    for attempt in range(5):
        got = bench("compare", MODEL, "--b", "--max-num-seqs 64", "--max-num-seqs", 64, *LOAD, "--rounds", 10)
        assert got.returncode == 0, got.stderr
        if got.stdout.count("no difference beyond noise (99 % interval") == 5:
            return
    pytest.fail(got.stdout)


def test_compare_keeps_the_arrivals():
    result = bench_json("compare", MODEL, "--b", "--max-num-seqs 64", "--num-prompts", 6, "--input-len", 4, "--output-len", 1, "--rounds", 8,
                        "--request-rate", 20)
    # The sixth and last request comes at 6 / 20 s at the latest, and each answer is one token.
    assert "mean_tpot_ms" not in result
    for rates in result["output_throughput"]["rounds"]:
        assert all(rate < 6 / 0.29 for rate in rates)


@pytest.mark.parametrize("arguments,says", [
    (["compare", MODEL], "--a"),
    (["compare", MODEL, "--a", "--max-num-seqs x"], "--a: --max-num-seqs"),
    (["compare", MODEL, "--b", "fast"], "--b: \"fast\""),
    (["compare", MODEL, "--b", "--max-num-seqs 8", "--rounds", 7], "--rounds"),
    (["compare", MODEL, "--b", "--scheduling-policy nosuch"], "B: "),
])
def test_compare_says_what_is_wrong(arguments, says):
    got = bench(*arguments)
    assert got.returncode in (1, 2) and says in got.stderr and got.stderr.count("\n") == 1, got.stderr


# ---- steps ----


def predicted(cost, step):
    """The formula of scheduler/cost.h, implemented again."""
    points, n = cost["points"], step["tokens"]
    us = points[0][1]
    for (n0, us0), (n1, us1) in zip(points, points[1:]):
        if n > n0 and (n <= n1 or n1 == points[-1][0]):
            us = us0 + (us1 - us0) * (n - n0) / (n1 - n0)
    return (us + cost["row_us"] * step["rows"] + cost["logit_us"] * step["logits"] + cost["context_us"] * step["context"] + cost["pair_us"] * step["pairs"])


def test_steps(tmp_path):
    saved = tmp_path / "cost.json"
    for seconds in 3, 12, 48:  # a busy machine measures smaller steps in the same time
        result = bench_json("steps", MODEL, "--seconds", seconds, "--max-num-seqs", 8, "--max-num-batched-tokens", 64, "--output", saved)
        cost, steps = result["cost"], result["steps"]
        drafts = {(d["running"], d["drafts"]): d for d in result["drafts"]}
        if (4, 8) in drafts and max(s["context"] for s in steps if s["rows"] == 1) > 32:
            break
    written = json.loads(saved.read_text())
    assert "steps that it was not fitted on" in written.pop("about")
    assert written["points"] == [pytest.approx(p, rel=1e-6) for p in cost["points"]] and set(written) == set(cost)
    assert cost["micro_batch_tokens"] == 64  # a CPU's figure
    most = max(s["tokens"] for s in steps if not s["held_out"])  # as large as time permits
    assert 16 <= most <= 64
    assert cost["points"][0][0] == 1 and cost["points"] == sorted(cost["points"]) and cost["points"][-1][0] == most
    assert cost["block_copy_us"] > 0 and result["rounds"] >= 3
    assert {s["kind"] for s in steps} == {"decode", "prefill", "mixed", "verify"}
    # A row with k drafts is k + 1 tokens, and as many logit rows; all others have one.
    assert all((s["logits"] == s["tokens"] > s["rows"]) == (s["kind"] == "verify") for s in steps)
    assert {(1, 1), (1, 16), (4, 1), (4, 8)} <= set(drafts) and max(n * (1 + k) for n, k in drafts) <= 64
    for (n, k), d in drafts.items():
        assert n * (1 + k) in {s["tokens"] for s in steps if s["kind"] == "verify" and s["rows"] == n}
        assert d["us"] > 0 and d["times"] > 0 and d["predicted_us"] > 0
    assert max(s["rows"] for s in steps) == 8 and max(s["context"] for s in steps if s["rows"] == 1) > 32
    for s in steps:
        assert s["us"] > 0 and s["runs"] <= result["rounds"]
        assert s["predicted_us"] == pytest.approx(predicted(cost, s), rel=1e-4)
    for kind, errors in result["errors"].items():
        held = [s for s in steps if s["held_out"] and kind in ("all", s["kind"])]
        assert errors["held_out_steps"] == len(held) > 0
        assert errors["fitted_steps"] == sum(not s["held_out"] and kind in ("all", s["kind"]) for s in steps) > len(held)
        assert errors["mean_absolute_error"] == pytest.approx(sum(abs(s["predicted_us"] / s["us"] - 1) for s in held) / len(held), rel=1e-4)
        assert errors["bias"] == pytest.approx(sum(s["predicted_us"] for s in held) / sum(s["us"] for s in held) - 1, abs=1e-4)
    table = bench("steps", MODEL, "--seconds", 0.5, "--max-num-seqs", 4, "--max-num-batched-tokens", 16, "--cost-model", saved)
    assert table.returncode == 0 and "halves apart" in table.stdout and "by drafts per sequence" in table.stdout, table.stderr
    wrong = bench("steps", MODEL, "--cost-model", MODEL / "config.json")
    assert wrong.returncode == 2 and "config.json" in wrong.stderr
    for option in ("--seconds", "--threads"):
        wrong = bench("steps", "--recording", "monday.rec", option, 2)
        assert wrong.returncode == 2 and option in wrong.stderr


# ---- kernels ----


def test_kernels():
    result = bench_json("kernels", "--case", "gemm float16 T1 N4864", "--threads", 1)
    assert result["read_gb_s"] > 0 and result["fma_gflop_s"] > 0 and result["threads"] == 1
    [case] = result["cases"]
    assert case["case"].startswith("gemm float16 T1 N4864")
    assert case["p10_us"] <= case["median_us"] <= case["p90_us"]
    n_bytes, n_flops = 4864 * 896 * 2 + 4 * (4864 + 896), 2 * 4864 * 896
    assert case["gb_s"] == pytest.approx(n_bytes / case["median_us"] / 1e3, rel=1e-6)
    assert case["gflop_s"] == pytest.approx(n_flops / case["median_us"] / 1e3, rel=1e-6)
    bound = max(n_bytes / case["read_limit_gb_s"], n_flops / case["fma_limit_gflop_s"]) / 1e3
    assert case["share_of_limit"] == pytest.approx(bound / case["median_us"], rel=1e-6)
    wrong = bench("kernels", "--case", "nosuch")
    assert wrong.returncode == 2 and "--case" in wrong.stderr


def test_kernels_of_a_shape():
    result = bench_json("kernels", "--op", "gemm", "--rows", 96, "--cols", 64, "--tokens", "1,7", "--dtype", "bfloat16", "--form", "lane",
                        "--threads", 1)
    assert [c["case"] for c in result["cases"]] == [f"gemm bfloat16 T{t} N96 K64" for t in (1, 7)]
    for case, t in zip(result["cases"], (1, 7)):
        assert case["gflop_s"] == pytest.approx(2 * t * 96 * 64 / case["median_us"] / 1e3, rel=1e-6)
    result = bench_json("kernels", "--quick", "--op", "attention", "--heads", "4/2", "--head-dim", 32, "--seqs", "3x1@100,1x20@5")
    [case] = result["cases"]
    positions = 3 * 101 + 25
    assert case["calls"] == 1 and case["gb_s"] == pytest.approx(2 * positions * 2 * 32 * 2 / case["median_us"] / 1e3, rel=1e-6)


def test_kernels_of_experts():
    shape = ("--quick", "--tokens", 3, "--cols", 64, "--experts", "8/2")
    for op, of_weight in (("moe_gemm", " N96"), ("moe_gemm_gated", " N96"), ("moe_route", ""), ("moe_combine", "")):
        [case] = bench_json("kernels", "--op", op, *shape, *(("--rows", 96) if of_weight else ()))["cases"]
        assert case["case"].startswith(op) and " T3" in case["case"] and of_weight in case["case"] and " C2 E8" in case["case"]
    [case] = bench_json("kernels", "--op", "moe_gemm", *shape, "--rows", 96, "--dtype", "bfloat16")["cases"]
    n_bytes = 6 * 96 * 64 * 2 + 4 * 3 * 2 * (96 + 64)  # six of the eight experts at most
    assert case["gb_s"] == pytest.approx(n_bytes / case["median_us"] / 1e3, rel=1e-6)


def test_a_row_of_the_table_of_kernels():
    shape = ("kernels", "--quick", "--threads", 1, "--op", "gemm", "--rows", 96, "--cols", 64, "--tokens", 1, "--form", "lane")
    [case] = bench_json(*shape)["cases"]
    assert case["kernel"] in ("lane avx512", "lane avx2")
    [case] = bench_json(*shape, "--kernel", "lane avx2")["cases"]
    assert case["kernel"] == "lane avx2"
    unsuited, unknown = bench(*shape, "--kernel", "lane rows avx2"), bench(*shape, "--kernel", "nosuch")
    assert unsuited.returncode == 1 and "does not take gemm float16 T1 N96 K64" in unsuited.stderr
    assert unknown.returncode == 1 and "--kernel nosuch: gemm has no kernel of that name" in unknown.stderr


@pytest.mark.parametrize("kind", ["greedy", "temperature", "top_p", "full"])
def test_a_kind_of_sampling(kind):
    [case] = bench_json("kernels", "--quick", "--op", "sample", "--tokens", 2, "--rows", 100, "--sampling", kind)["cases"]
    assert case["case"] == f"sample T2 N100 {kind}"


@pytest.mark.wide
def test_rows_are_printed_as_they_are_measured():
    """An interrupted run has printed its measurements, one row per line."""
    run = subprocess.Popen([QUIRE, "bench", "kernels", "--json", "--op", "gemm", "--rows", "4864", "--cols", "896", "--tokens", "1,2000,2001,2002,2003,2004,2005,2006",
                            "--form", "lane", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert run.stdout.readline().endswith('"cases":[\n')
        assert json.loads(run.stdout.readline())["case"] == "gemm float16 T1 N4864 K896"
        assert run.poll() is None
    finally:
        run.kill()
        run.wait()


@pytest.mark.parametrize("arguments,says", [
    (["--op", "nosuch"], "--op"), (["--op", "sample", "--tokens", 1, "--rows", 9, "--sampling", "beam"], "--sampling"),
    (["--op", "gemm", "--rows", 4, "--cols", 4, "--tokens", 1, "--sampling", "full"], "--sampling"), (["--rows", 5], "--op"), (["--op", "gemm", "--tokens", 1, "--cols", 16], "--rows"),
    (["--op", "sample", "--tokens", 1, "--rows", 9, "--cols", 3], "--cols"), (["--op", "gemm", "--rows", 4, "--cols", 4, "--tokens", "1,"], "--tokens"),
    (["--op", "attention", "--heads", "3/2", "--head-dim", 64, "--seqs", "1x1@0"], "--heads"),
    (["--op", "moe_gemm", "--rows", 4, "--cols", 16, "--tokens", 1], "--experts"), (["--op", "moe_route", "--cols", 16, "--tokens", 1, "--experts", "4/5"], "--experts"),
    (["--op", "gemm", "--rows", 4, "--cols", 4, "--tokens", 1, "--experts", "4/2"], "--experts"),
    (["--op", "attention", "--heads", "4/2", "--head-dim", 60, "--seqs", "1x1@0"], "--head-dim"),
    (["--op", "attention", "--heads", "4/2", "--head-dim", 64, "--seqs", "65x1@0"], "--seqs"),
    (["--op", "gemm", "--rows", 1 << 24, "--cols", 1 << 24, "--tokens", 1], "2^33"),
])
def test_a_shape_that_is_none_is_explained(arguments, says):
    wrong = bench("kernels", *arguments)
    assert wrong.returncode == 2 and says in wrong.stderr and wrong.stderr.count("\n") == 1


def test_a_form_that_the_device_lacks_is_explained():
    wrong = bench("kernels", "--op", "gemm", "--rows", 16, "--cols", 16, "--tokens", 1, "--form", "mma")
    assert wrong.returncode == 1 and "form" in wrong.stderr
