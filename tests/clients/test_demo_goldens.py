"""The demo model's greedy answers equal those of transformers (written by make_demo_goldens.py)."""

import json
import pathlib

import pytest

from test_openai import post

CASES = json.loads((pathlib.Path(__file__).parent / "demo_goldens.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[c["messages"][0]["content"] for c in CASES])
def test_greedy_answer(server, case):
    status, reply = post(server, "/v1/chat/completions", {
        "model": "demo", "messages": case["messages"], "temperature": 0, "max_tokens": len(case["tokens"]),
        "return_token_ids": True})
    assert status == 200
    assert reply["prompt_token_ids"] == case["prompt"]
    got = reply["choices"][0]["token_ids"]
    sure = next((i for i, m in enumerate(case["margins"]) if m < 0.02), len(case["margins"]))
    assert sure > 0 and got[:sure] == case["tokens"][:sure]
    if sure == len(case["tokens"]):
        assert reply["choices"][0]["message"]["content"] == case["text"]
