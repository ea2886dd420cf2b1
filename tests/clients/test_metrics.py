"""/metrics as operators use it, read with Prometheus' own parser, and its listener."""

import json
import os
import re
import subprocess
import time

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import rig
from conftest import MODEL, QUIRE, ROOT


def get(url, **headers):
    """Status and text."""
    reply = rig.ask(url, "", headers=headers)
    return reply.status, reply.text


def watcher_url(server):
    return "http://127.0.0.1:" + re.search(r"metrics and health, without a key, on port (\d+)", server.output()).group(1)


def test_the_listener_for_metrics_asks_no_key_and_has_nothing_else(start):
    server = start("serve", MODEL, "--port", "0", "--api-key", "k", "--metrics-listen", "127.0.0.1:0",
                   wait_for=r"(?s)ready on http://[0-9.]+:(\d+).*metrics and health")
    watch = watcher_url(server)
    assert get(server.url + "/metrics")[0] == 401
    status, text = get(watch + "/metrics")
    assert status == 200 and "\nvllm:num_requests_running{" in text
    assert get(watch + "/health")[0] == 200
    for path in ("/v1/models", "/version", "/", "/v1/models/model", "/metrics/x"):
        status, text = get(watch + path, Authorization="Bearer k")
        assert status == 404 and json.loads(text)["error"]["code"] == "unknown_url", path
    assert rig.ask(watch, "/v1/completions", {}, headers={"Authorization": "Bearer k"}).status in (413, 404)
    server.client(api_key="k").completions.create(model="model", prompt="Once", max_tokens=2)
    assert server.stop() == 0


@pytest.mark.parametrize("address", ["9100", "host:", "::1:9100", "host:70000", "host:9x"])
def test_an_address_that_is_none(address):
    done = subprocess.run([str(QUIRE), "serve", str(MODEL), "--metrics-listen", address],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "must be HOST:PORT" in done.stderr


# vLLM's names, types and bounds, from vllm/v1/metrics/loggers.py and buckets.py. The parser removes "_total" from
# counters.
LATENCY = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
FIRST = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
BETWEEN = [0.001, 0.0025, 0.005,  # these three are ours, for models faster than vLLM's smallest bound
           0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]  # up to --max-model-len
STEP = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
VLLM_GAUGES = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"}
VLLM_COUNTERS = {"prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens",
                 "request_success", "spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
                 "spec_decode_num_accepted_tokens_per_pos"}
VLLM_HISTOGRAMS = {
    "time_to_first_token_seconds": FIRST, "inter_token_latency_seconds": BETWEEN, "time_per_output_token_seconds": BETWEEN,
    "request_time_per_output_token_seconds": BETWEEN, "e2e_request_latency_seconds": LATENCY,
    "request_queue_time_seconds": LATENCY, "request_prefill_time_seconds": LATENCY, "request_decode_time_seconds": LATENCY,
    "request_inference_time_seconds": LATENCY, "request_prompt_tokens": TOKENS, "request_generation_tokens": TOKENS,
    "request_max_num_generation_tokens": TOKENS, "request_params_max_tokens": TOKENS, "request_params_n": [1, 2, 5, 10, 20],
    "iteration_tokens_total": STEP}
PROCESS = {"process_cpu_seconds", "process_resident_memory_bytes", "process_virtual_memory_bytes",
           "process_start_time_seconds", "process_open_fds", "process_max_fds"}


def families(text):
    """By name. Every sample belongs to its family, every family is announced once, and no label appears twice."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, family.name
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
        found[family.name] = family
        seen = set()
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, key
            seen.add(key)
    n_lines = sum(not line.startswith("#") for line in text.splitlines())
    assert n_lines == sum(len(family.samples) for family in found.values()), "the parser skipped a line"
    return found


@pytest.fixture
def served(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", 'a "name\\', "--max-model-len", "1024",
                   "--tenant-metrics")
    client = server.client()
    client.completions.create(model='a "name\\', prompt="Once upon a time", max_tokens=7, n=2,
                              extra_body={"ignore_eos": True})
    client.chat.completions.create(model='a "name\\', messages=[{"role": "user", "content": "Hello"}], max_tokens=3,
                                   extra_body={"ignore_eos": True})
    client.completions.create(model='a "name\\', prompt="Once upon a time", max_tokens=1)
    return server


def test_the_names_labels_and_bounds_are_vllms(served):
    found = families(get(served.url + "/metrics")[1])
    wanted = {name: "gauge" for name in VLLM_GAUGES} | {name: "counter" for name in VLLM_COUNTERS}
    wanted |= {name: "histogram" for name in VLLM_HISTOGRAMS}
    assert {"vllm:" + name for name in wanted} == {name for name in found if name.startswith("vllm:")}
    for name, kind in wanted.items():
        family = found["vllm:" + name]
        assert family.type == kind, name
        for sample in family.samples:
            assert sample.labels["model_name"] == 'a "name\\' and sample.labels["engine"] == "0", sample
    for name, bounds in VLLM_HISTOGRAMS.items():
        samples = found["vllm:" + name].samples
        buckets = [s for s in samples if s.name.endswith("_bucket")]
        # The exact text counts: Prometheus 2 distinguishes series by it.
        assert [s.labels["le"] for s in buckets] == [prometheus_client.utils.floatToGoString(b) for b in bounds] + ["+Inf"], name
        values = [s.value for s in buckets]
        count = [s.value for s in samples if s.name.endswith("_count")]
        assert values == sorted(values) and values[-1] == count[0], name
    places = found["vllm:spec_decode_num_accepted_tokens_per_pos"].samples
    assert [(s.labels["position"], s.value) for s in places] == [(str(i), 0) for i in range(16)]  # no drafts
    assert PROCESS == {name for name in found if name.startswith("process_")}


def value(found, name, sample=None, **labels):
    [got] = [s.value for s in found[name].samples
             if s.name == (sample or name) and all(s.labels.get(k) == v for k, v in labels.items())]
    return got


def test_the_numbers_are_those_of_the_requests(served):
    found = families(get(served.url + "/metrics")[1])

    def sums(name):
        return tuple(value(found, "vllm:" + name, f"vllm:{name}_{what}") for what in ("sum", "count"))

    assert sums("request_params_n") == (4, 3)
    assert sums("request_params_max_tokens") == (7 + 3 + 1, 3)
    assert sums("request_max_num_generation_tokens") == (7 + 3 + 1, 3)
    assert sums("request_generation_tokens") == (2 * 7 + 3 + 1, 4)
    assert value(found, "vllm:generation_tokens", "vllm:generation_tokens_total") == 18
    for name in ("queue", "prefill", "decode", "inference"):
        assert sums(f"request_{name}_time_seconds")[1] == 4
    assert sums("request_time_per_output_token_seconds")[1] == 3  # a choice of one token has no such time
    queue, prefill, decode, inference = (sums(f"request_{name}_time_seconds")[0]
                                         for name in ("queue", "prefill", "decode", "inference"))
    assert abs(prefill + decode - inference) < 1e-6 and 0 <= queue and 0 < prefill and 0 < decode
    first, between = sums("time_to_first_token_seconds")[0], sums("inter_token_latency_seconds")
    assert queue + prefill <= first and between[1] == 18 - 4 and abs(between[0] - decode) < 1e-6
    assert sums("inter_token_latency_seconds") == sums("time_per_output_token_seconds")
    tokens, steps = sums("iteration_tokens_total")
    assert steps == value(found, "quire:engine_steps", "quire:engine_steps_total") and tokens >= steps
    config = found["vllm:cache_config_info"].samples[0]
    assert config.value == 1 and config.labels["block_size"] == "16" and config.labels["enable_prefix_caching"] == "True"
    assert config.labels["cache_dtype"] == "float16"
    assert float(config.labels["num_gpu_blocks"]) == value(found, "quire:kv_blocks")
    assert 0 < time.time() - value(found, "process_start_time_seconds") < 300
    fds = len(os.listdir(f"/proc/{served.process.pid}/fd"))
    assert abs(value(found, "process_open_fds") - fds) <= 2
    assert value(found, "process_resident_memory_bytes") > 1 << 20


@pytest.mark.parametrize("options,window,sinks", [((), 0, 0), (("--attention-window", "64", "--attention-sinks", "4"), 64, 4)])
def test_the_attention_window_and_its_sinks(start, options, window, sinks):
    server = start("serve", MODEL, "--port", "0", *options)
    found = families(get(server.url + "/metrics")[1])
    assert value(found, "quire:attention_window_tokens") == window and value(found, "quire:attention_sink_tokens") == sinks


def test_the_dashboard_asks_for_what_there_is(served):
    """tools/check_dashboard.py lets Prometheus evaluate every expression; this test checks what is possible without it."""
    board = json.loads((ROOT / "docs" / "grafana" / "quire.json").read_text())
    told = {sample.name for family in families(get(served.url + "/metrics")[1]).values() for sample in family.samples}
    # Without a response cache, its metrics are absent.
    for source in ("server/front/observe/cache_metrics.c", "server/cache/stats_rows.h"):
        told |= set(re.findall(r"quire:response_cache_\w+", (ROOT / source).read_text()))
    told.add("quire:rank_wait_seconds_total")  # nor of ranks if there is only one (test_ranks.py)
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:vllm:|quire:|process_)\w+", target["expr"]))
            assert names and names <= told, (panel["title"], names - told)
            asked |= names
    assert len(asked) > 40 and len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
