"""Budgets of reasoning, and structured answers behind a reasoning. The demo model never heard of reasoning: it writes
something until the budget ends it, or until it is told to answer."""

import json
import shutil

import anthropic
import jsonschema_rs
import openai
import pytest
import requests

from conftest import MODEL, Server
from test_structured import CHAT, PERSON, SMALL, TOOL

FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": PERSON}}}
OPEN = {"chat_template_kwargs": {"open": True}}
CLOSED = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """As Qwen 3: enable_thinking false closes the reasoning in the prompt. `open` opens it there, as DeepSeek R1."""
    path = tmp_path_factory.mktemp("thinker")
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(MODEL / name, path)
    config = json.loads((path / "tokenizer_config.json").read_text())
    template = config.pop("chat_template") + (
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% elif open %}<think>\n{% endif %}")
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "chat_template.jinja").write_text(template)
    return path


@pytest.fixture(scope="module", params=[(), ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')],
                ids=["plain", "speculation"])
def served(model, request):
    s = Server("serve", model, "--port", "0", "--served-model-name", "demo", *request.param)
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def thinker(served):
    return served.client()


def ask(client, *extra, **fields):
    body = {k: v for e in extra for k, v in e.items()}
    native = {k: body.pop(k) for k in ("response_format", "tools", "tool_choice") if k in body}
    return client.chat.completions.create(**{"model": "demo", "messages": CHAT, "max_tokens": 200, "temperature": 0.8, "seed": 5,
                                             **native, **fields}, extra_body=body)


def thought(message):
    return (message.model_extra or {}).get("reasoning_content") or ""


def n_end(served):
    """The tokens of </think>, which are counted as reasoning."""
    return requests.post(served.url + "/tokenize", json={"prompt": "x</think>", "add_special_tokens": False}).json()["count"] - 1


@pytest.mark.parametrize("budget", [0, 1, 7, 40])
@pytest.mark.parametrize("form", [{}, FORMAT], ids=["free", "json"])
def test_a_budget_ends_the_reasoning(served, thinker, budget, form):
    reply = ask(thinker, OPEN, form, {"thinking_token_budget": budget})
    message, usage = reply.choices[0].message, reply.usage
    used = usage.completion_tokens_details.reasoning_tokens
    assert budget <= used <= budget + n_end(served) + 1
    assert bool(thought(message)) == (budget > 0)
    assert "think>" not in (message.content or "")
    if form:
        jsonschema_rs.validate(PERSON, json.loads(message.content))
    again = ask(thinker, OPEN, form, {"thinking_token_budget": budget}, stream=True)
    deltas = [c.choices[0].delta for c in again if c.choices]
    assert "".join(d.content or "" for d in deltas) == (message.content or "")
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == thought(message)


def test_a_long_budget_changes_nothing(thinker):
    for seed in range(4):
        long = {**OPEN, "min_tokens": 30}  # with a budget, an answer does not end in its reasoning
        free = ask(thinker, long, max_tokens=30, seed=seed).choices[0]
        same = ask(thinker, long, {"thinking_token_budget": 30}, max_tokens=30, seed=seed).choices[0].message
        assert (free.message.content, thought(free.message)) == (same.content, thought(same))
        less = ask(thinker, long, {"thinking_token_budget": 5}, max_tokens=30, seed=seed).choices[0].message
        assert thought(free.message).startswith(thought(less))


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_reasoning_has_the_form_alone(thinker, stream):
    """The grammar allows blanks behind a reasoning, and so at the beginning of an answer that has none."""
    choices = ["tea", "coffee"]
    for seed in range(8):
        reply = ask(thinker, {"structured_outputs": {"choice": choices}}, seed=seed, stream=stream)
        text = "".join(c.choices[0].delta.content or "" for c in reply if c.choices) if stream else reply.choices[0].message.content
        assert text in choices, repr(text)


def test_the_form_begins_where_the_reasoning_ends(thinker):
    for extra in (CLOSED, {}):  # closed by the prompt; and one that the model does not open
        message = ask(thinker, extra, FORMAT).choices[0].message
        jsonschema_rs.validate(PERSON, json.loads(message.content))
        assert not thought(message)
    message = ask(thinker, OPEN, FORMAT, max_tokens=20).choices[0].message
    assert thought(message) and not message.content  # no budget, and no end yet
    message = ask(thinker, CLOSED, {"thinking_token_budget": 3}).choices[0].message
    assert message.content and not thought(message)


@pytest.mark.parametrize("form,check", [
    ({"structured_outputs": {"regex": "[ab]{3}-x"}}, lambda t: len(t) == 5 and t.endswith("-x")),
    ({"structured_outputs": {"choice": ["red", "blue"]}}, lambda t: t in ("red", "blue")),
    ({"structured_outputs": {"grammar": 'start: "A" /[0-9]{2}/'}}, lambda t: t[0] == "A" and len(t) == 3),
    ({"structured_outputs": {"json": SMALL}}, lambda t: json.loads(t).keys() == {"ok"}),
], ids=["regex", "choice", "lark", "json"])
def test_every_form_follows_a_reasoning(thinker, form, check):
    message = ask(thinker, OPEN, form, {"thinking_token_budget": 9}).choices[0].message
    assert check(message.content), message.content
    assert thought(message)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}], ids=["required", "named"])
def test_forced_calls_follow_a_reasoning(thinker, choice):
    reply = ask(thinker, OPEN, {"tools": [TOOL], "tool_choice": choice, "thinking_token_budget": 9}, parallel_tool_calls=False)
    message = reply.choices[0].message
    assert reply.choices[0].finish_reason == "tool_calls" and thought(message) and not message.content
    assert len(message.tool_calls) == 1
    jsonschema_rs.validate(TOOL["function"]["parameters"], json.loads(message.tool_calls[0].function.arguments))


def test_messages(served):
    claude = anthropic.Anthropic(base_url=served.url, api_key="none")
    fields = dict(model="demo", messages=CHAT, max_tokens=1200, extra_body={"seed": 5, "temperature": 0.8, **OPEN},
                  thinking={"type": "enabled", "budget_tokens": 1024})
    tools = [{"name": "weather", "input_schema": TOOL["function"]["parameters"]}]
    reply = claude.messages.create(**fields, tools=tools, tool_choice={"type": "any"})
    kinds = [b.type for b in reply.content]
    assert kinds[0] == "thinking" and set(kinds[1:]) <= {"tool_use"}
    assert len(kinds) > 1 or reply.stop_reason == "max_tokens"
    for budget in (1023, 1200):  # as Anthropic's API: at least 1024, and less than max_tokens
        with pytest.raises(anthropic.BadRequestError, match="thinking.budget_tokens"):
            claude.messages.create(**{**fields, "thinking": {"type": "enabled", "budget_tokens": budget}})


def test_completions(served):
    def complete(prompt, **fields):
        body = {"model": "demo", "prompt": prompt, "max_tokens": 60, "seed": 5, **fields}
        return requests.post(served.url + "/v1/completions", json=body)

    text = complete("1 + 1 is <think>", thinking_token_budget=4).json()["choices"][0]["text"]
    assert "</think>" in text
    form = {"structured_outputs": {"choice": ["red", "blue"]}}
    assert complete("<think>", thinking_token_budget=4, **form).json()["choices"][0]["text"].split("</think>")[1].strip() in ("red", "blue")
    assert complete("<think>", **form).json()["choices"][0]["text"] in ("red", "blue")  # without a budget, no reasoning
    refused = complete(["a<think>", "b"], thinking_token_budget=4)
    assert refused.status_code == 400 and "prompt 1" in refused.json()["error"]["message"], refused.text


@pytest.mark.parametrize("budget", [-2, "x", 1.5, 1 << 40])
def test_wrong_budgets(thinker, budget):
    with pytest.raises(openai.BadRequestError, match="thinking_token_budget"):
        ask(thinker, OPEN, {"thinking_token_budget": budget})


def test_a_model_without_a_reasoning(client):
    with pytest.raises(openai.BadRequestError, match="thinking_token_budget: .*--reasoning-parser"):
        client.chat.completions.create(model="demo", messages=CHAT, max_tokens=5, extra_body={"thinking_token_budget": 5})
    for none in (None, -1):
        client.chat.completions.create(model="demo", messages=CHAT, max_tokens=5, extra_body={"thinking_token_budget": none})
