"""The log as JSON, and its line for each request."""

import json
import socket
import subprocess

import openai
import pytest

from conftest import ALWAYS_GUESSES, MODEL, QUIRE
from rig import wait_until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "Zanzibar"


def log_of(server):
    """Every line of the log, each of which must be a JSON object; stops the process first, so that no line is
    missing."""
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.output().splitlines()]
    for line in lines:
        assert {"ts", "level", "module", "room", "msg"} <= line.keys() and line["module"] == line["room"] and line["level"] in ("error", "warn", "info"), line
    return lines


def requests_of(server):
    return [line for line in log_of(server) if line["msg"] == "request"]


def test_a_line_for_each_request_and_none_of_its_text(start, tmp_path):
    tenants = tmp_path / "tenants.json"
    tenants.write_text(json.dumps([{"name": "search", "key": "k"}, {"name": "slow", "key": "s", "requests_per_minute": 1}]))
    server = start("serve", MODEL, "--port", "0", "--log-format", "json", "--log-requests", "--tenants", tenants,
                   "--max-model-len", "2048", *ALWAYS_GUESSES)
    client, slow = server.client(api_key="k"), server.client(api_key="s")
    told = {"X-Request-Id": "first", "traceparent": f"00-{TRACE}-{SPAN}-01"}
    for guess in ({}, {"prediction": {"type": "content", "content": f"{SECRET} " * 5}}):
        answer = client.completions.create(model="model", prompt=f"{SECRET} " * 40, max_tokens=5, n=2,
                                           extra_headers=told, extra_body={"ignore_eos": True, **guess})
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="model", messages=[{"role": "user", "content": SECRET}], max_tokens=5000)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="model", prompt=SECRET, extra_headers={"x-quire-trace": "2"})
    slow.completions.create(model="model", prompt=SECRET, max_tokens=1)
    with pytest.raises(openai.RateLimitError):
        slow.completions.create(model="model", prompt=SECRET, max_tokens=1)
    stream = client.completions.create(model="model", prompt=SECRET, max_tokens=1900, n=16, stream=True,
                                       extra_body={"ignore_eos": True, "request_id": "left"})
    next(iter(stream))
    stream.response.close()
    wait_until(lambda: '"left"' in server.output(), server.output)

    got = requests_of(server)
    assert SECRET not in server.output()
    assert [r["status"] for r in got] == [200, 200, 400, 400, 200, 429, 499]
    assert [r["finish"] for r in got] == ["length", "length", "error", "error", "length", "error", "abort"]
    assert [r["tenant"] for r in got] == ["search"] * 4 + ["slow"] * 2 + ["search"]
    first, again, too_long, header, _, limited, left = got
    assert first["request_id"] == "first" and first["trace_id"] == TRACE and first["route"] == "/v1/completions"
    assert first["prompt_tokens"] == answer.usage.prompt_tokens and first["generated_tokens"] == 10
    assert first["cached_tokens"] == 0 and again["cached_tokens"] == answer.usage.prompt_tokens_details.cached_tokens > 0
    assert 0 < first["text_ms"] <= first["ttft_ms"] <= first["total_ms"] and first["queue_ms"] >= 0
    assert "draft_tokens" not in first and again["draft_tokens"] >= again["accepted_tokens"] >= 0 and again["draft_tokens"] > 0
    assert again["engine_request"] > first["engine_request"] > 0
    assert too_long["error"] == "context_length_exceeded" and too_long["route"] == "/v1/chat/completions"
    assert header["error"] == "invalid_value" and limited["error"] == "rate_limit_exceeded"
    assert "trace_id" not in left and left["request_id"] == "left" and "queue_ms" not in left
    assert 1 <= left["generated_tokens"] < 16 * 1900


def test_without_the_flag_nothing_is_said_of_requests(start):
    server = start("serve", MODEL, "--port", "0", "--log-format", "json")
    server.client().completions.create(model="model", prompt="Once", max_tokens=1)
    assert requests_of(server) == []


def test_a_start_that_fails_says_so_in_json(monkeypatch, tmp_path):
    monkeypatch.setenv("HWLOC_FSROOT", str(tmp_path))  # without /sys, hwloc would print its own line
    taken = socket.create_server(("127.0.0.1", 0))
    done = subprocess.run([str(QUIRE), "serve", str(MODEL), "--log-format", "json", "--port", str(taken.getsockname()[1])],
                          capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1 and lines[-1]["level"] == "error" and "cannot listen" in lines[-1]["msg"]
    done = subprocess.run([str(QUIRE), "engine", str(MODEL), "--log-format", "xml"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "must be text or json" in done.stderr
