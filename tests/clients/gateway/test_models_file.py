"""The models file as a user sees it: quire check, the published schema and documents, quire route explain."""

import json
import os
import re
import subprocess

import jsonschema_rs
import pytest
import yaml

from conftest import QUIRE, ROOT

SCHEMA = json.loads((ROOT / "docs/reference/models-file.schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
ISSUE = (ROOT / "tests/fuzz/corpus/models_file/issue").read_text()


def quire(*arguments):
    return subprocess.run([str(QUIRE), *map(str, arguments)], capture_output=True, text=True, timeout=300, env={**os.environ, "UPSTREAM_KEY": "sk-1", "OTHER_KEY": "sk-2"}, check=False)


@pytest.fixture
def check(tmp_path):
    def run(text, *arguments):
        path = tmp_path / "models.yaml"
        path.write_text(text)
        return quire("check", path, *arguments)

    return run


def documented():
    for page in ("docs/reference/models-file.md", "docs/guides/gateway.md", "docs/guides/experiments.md"):
        path = ROOT / page
        for text in re.findall(r"```yaml\n(.*?)```", path.read_text() if path.exists() else "", re.DOTALL):
            if "models:" in text:
                yield pytest.param(text, id=path.stem)


@pytest.mark.parametrize("text", [*documented(), pytest.param(ISSUE, id="issue")])
def test_documented_files(check, tmp_path, text):
    assert not [e.message for e in VALIDATOR.iter_errors(yaml.safe_load(text))]
    key = tmp_path / "engine.key"
    key.write_text("a-secret-of-at-least-sixteen-bytes\n")
    key.chmod(0o600)
    shown = check(re.sub(r"/etc/quire/\S+?\.key", str(key), text), "--json")
    assert shown.returncode == 0, shown.stderr
    assert [m["name"] for m in json.loads(shown.stdout)["models"]] == list(yaml.safe_load(text)["models"])


def test_the_table(check):
    shown = check(ISSUE)
    assert shown.returncode == 0
    assert "simple small, moderate large, complex large" in shown.stdout
    assert "0.00015 input, 0.00002 cached input, 0.0006 output" in shown.stdout
    assert "model large: tokenizer: is missing" in shown.stderr
    assert quire("check").returncode == 2
    missing = quire("check", "/nonexistent.yaml")
    assert missing.returncode == 1 and "/nonexistent.yaml: cannot be opened" in missing.stderr


A = "models:\n  a: {targets: [{model: m}]%s}\n"
REFUSED = {  # the schema refuses these, too
    "unknown field": A % ", prize: 1",
    "negative price": A % ", price_per_1k: {input: -1, output: 0}",
    "half a price": A % ", price_per_1k: {input: 1}",
    "price twice": A % ", price_per_1k: {input: 1, output: 1}, cost_per_1k_input: 1, cost_per_1k_output: 1",
    "quoted price": A % ", price_per_1k: {input: '1', output: 0}",
    "no models": "models: {}\n",
    "no targets": "models: {a: {}}\n",
    "empty targets": "models: {a: {targets: []}}\n",
    "no place": "models: {a: {targets: [{weight: 1}]}}\n",
    "two places": "models: {a: {targets: [{model: m, engine: 'unix:/e'}]}}\n",
    "key of an engine": "models: {a: {targets: [{model: m, api_key_env: K}]}}\n",
    "two keys": "models: {a: {targets: [{url: 'http://h', api_key_env: K, api_key_file: k}]}}\n",
    "weight": "models: {a: {targets: [{model: m, weight: 0}]}}\n",
    "scheme": "models: {a: {targets: [{url: 'ftp://h'}]}}\n",
    "user": "models: {a: {targets: [{url: 'http://u:p@h'}]}}\n",
    "address": "models: {a: {targets: [{engine: 'tcp:h'}]}}\n",
    "route": A % "" + "  b: {route: speed}\n",
    "half a route": A % "" + "  b: {route: complexity, simple: a}\n",
    "route and targets": A % ", route: latency, among: [a]",
    "price of a route": A % "" + "  b: {route: latency, among: [a], max_tokens: 1}\n",
    "fields of two routes": A % "" + "  b: {route: latency, among: [a], simple: a}\n",
    "one arm": A % "" + "  b: {route: experiment, arms: {x: {model: a}}}\n",
    "weight of an arm": A % "" + "  b: {route: experiment, arms: {x: {model: a}, y: {model: a, weight: 0}}}\n",
    "arm without a model": A % "" + "  b: {route: experiment, arms: {x: {model: a}, y: {weight: 1}}}\n",
    "arms of another route": A % "" + "  b: {route: latency, among: [a], arms: {x: {model: a}, y: {model: a}}}\n",
    "metric without an experiment": A % ", metric: cost",
    "unknown metric": A % "" + "  b: {route: experiment, metric: speed, arms: {x: {model: a}, y: {model: a}}}\n",
    "name": "models: {'a b': {targets: [{model: m}]}}\n",
    "batch": A % ", batch: {max_wait_ms: 1}",
    "root": "model: {}\n",
}
ONLY_CODE = {  # no schema can say this
    "unknown model": A % ", fallback: [b]",
    "circle": A % ", fallback: [a]",
    "circle through a route": A % ", fallback: [b]" + "  b: {route: latency, among: [a]}\n",
    "unknown model of an arm": A % "" + "  b: {route: experiment, arms: {x: {model: a}, y: {model: c}}}\n",
    "circle through an experiment": A % ", fallback: [b]" + "  b: {route: experiment, arms: {x: {model: a}, y: {model: a}}}\n",
    "experiment in an experiment": A % "" + "  b: {route: experiment, arms: {x: {model: a}, y: {model: c}}}\n  c: {route: experiment, arms: {x: {model: a}, y: {model: a}}}\n",
    "arm twice": A % "" + "  b: {route: experiment, arms: {x: {model: a}, x: {model: a}}}\n",
    "alias twice": A % ", aliases: [a]",
    "key twice": A % "" + "  a: {targets: [{model: n}]}\n",
    "too exact": A % ", price_per_1k: {input: 0.0000000001, output: 0}",
    "unset variable": "models: {a: {targets: [{url: 'http://h', api_key_env: QUIRE_TEST_UNSET}]}}\n",
    "bomb": "x: &a [1, 2]\ny: &b [*a, *a]\nmodels: {a: *b}\n",
}


@pytest.mark.parametrize("what", [*REFUSED, *ONLY_CODE])
def test_refused(check, what):
    text = REFUSED.get(what) or ONLY_CODE[what]
    if what in REFUSED:
        assert not VALIDATOR.is_valid(yaml.safe_load(text))
    shown = check(text)
    assert shown.returncode == 1 and not shown.stdout
    assert re.match(r"quire: \S+/models.yaml:\d+:\d+: ", shown.stderr), shown.stderr


@pytest.mark.parametrize(("options", "says"), [("{max-model-lem: 5}", "--max-model-len"), ("{max-model-len: x}", "--max-model-len"), ("{port: 1}", "--port"), ("{help: true}", "help is not an option of a target"),
                                               ("{max_model_len: 4096, enforce-eager: true, scheduling-policy: sjf}", None)])
def test_options_of_engines(check, options, says):
    """The names and values of quire serve's options, without starting an engine."""
    shown = check("models:\n  a: {targets: [{model: m, options: %s}]}\n  b: {targets: [{engine: 'unix:/e'}], tokenizer: m}\n" % options)
    assert shown.returncode == (1 if says else 0), shown.stderr
    if says:
        assert re.match(r"quire: \S+/models.yaml:2:\d+: model a: target m: ", shown.stderr) and says in shown.stderr


def test_key_file_that_others_can_read(check, tmp_path):
    key = tmp_path / "key"
    key.write_text("sk-secret-text\n")
    text = f"models:\n  a: {{targets: [{{url: 'https://h/v1', api_key_file: {key}}}]}}\n"
    key.chmod(0o604)
    shown = check(text)
    assert shown.returncode == 1 and ":2:" in shown.stderr and "chmod 600" in shown.stderr
    key.chmod(0o600)
    for arguments in ([], ["--json"]):
        shown = check(text, *arguments)
        assert shown.returncode == 0 and "sk-secret-text" not in shown.stdout + shown.stderr


# ---- routes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("What is a KV cache?", {"complexity": "simple", "words": 5, "indicator": "what is"}),
        ("Compare TCP and QUIC.", {"complexity": "complex", "words": 4, "indicator": "compare"}),
        ("w " * 201, {"complexity": "complex", "words": 201, "indicator": None}),
        ("", {"complexity": "moderate", "words": 0, "indicator": None}),
    ],
)
def test_explain(prompt, found):
    """tests/gateway/rule_test.py compares the rule itself with Python's."""
    assert json.loads(quire("route", "explain", prompt, "--json").stdout) == {**found, "model": None, "why": None}


def test_explain_with_a_file(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(ISSUE)
    assert "model       small (complexity: simple (3 words, \"what is\"))" in quire("route", "explain", "What is this?", "--models", path).stdout
    assert "model       large (name)" in quire("route", "explain", "x", "--models", path, "--model", "large").stdout
    wrong = quire("route", "explain", "x", "--models", path, "--model", "none")
    assert wrong.returncode == 1 and "--model none: is not a model of" in wrong.stderr
    assert quire("route", "explain").returncode == 2
    assert quire("route", "guess", "x").returncode == 2
