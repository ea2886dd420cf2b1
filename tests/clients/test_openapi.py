"""docs/reference/openapi.json describes the server: its routes, its replies and streams, and thousands of generated
requests.

A long run by hand: QUIRE_SCHEMATHESIS_EXAMPLES=1000 build/venv/bin/pytest -q -p no:cacheprovider
tests/clients/test_openapi.py
"""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema_rs
import pytest
import rig
from conftest import MODEL, ROOT

FILE = ROOT / "docs" / "reference" / "openapi.json"
DOC = json.loads(FILE.read_bytes())
KEY = {"x-api-key": "k"}
CHAT = [{"role": "user", "content": "Tell me a story."}]


def request(server, method, path, body=None, headers=KEY):
    return rig.ask(server, path, body, method=method, headers=headers)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server whose only key has all rights, and whose context is short: a generated max_tokens ends soon."""
    from conftest import Server
    tenants = tmp_path_factory.mktemp("openapi") / "tenants.json"
    tenants.write_text('[{"name": "ops", "key": "k", "admin": true}]')
    s = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "64", "--tenants", tenants, "--batch-dir", tenants.parent / "batches")
    yield s
    assert s.process.poll() is None, "the server ended while being tested:\n" + s.output()
    assert s.stop() == 0, s.output()


def test_it_is_served_as_it_is(guarded):
    status, headers, body = request(guarded, "GET", "/openapi.json", headers={})
    assert status == 200 and headers["Content-Type"] == "application/json" and body == FILE.read_bytes()
    assert DOC["info"]["version"] == json.loads(request(guarded, "GET", "/version")[2])["version"]


def test_it_has_the_routes_of_the_server_and_no_others(guarded):
    source = (ROOT / "server" / "front" / "api" / "routes.c").read_text()
    table = set(re.findall(r'\{"(/[^"]*)", "([A-Z]+)", \w+, \w+\}', source))
    bulk = (ROOT / "server" / "bulk" / "routes.c").read_text()
    table |= {(path, method) for method, path in re.findall(r'\{"([A-Z]+)", "(/[^"]*)", \w+, \w+\}', bulk)} | {("/ui/batches", "GET")}
    assert len(table) > 15
    mine = {("/v1/models/" if path == "/v1/models/{id}" else path, method.upper()) for path, item in DOC["paths"].items() for method in item}
    assert mine == table
    for path, item in DOC["paths"].items():
        allowed = {m.upper() for m in item} | ({"HEAD"} if "get" in item else set())
        for slash in ("", "/"):
            status, headers, _ = request(guarded, "PUT", path.replace("{id}", "demo") + (slash if "{id}" not in path else ""))
            assert status == 405 and set(headers["Allow"].split(", ")) == allowed, path
        open_to_all = request(guarded, "PUT", path.replace("{id}", "demo"), headers={})[0] != 401
        assert open_to_all == all(o.get("security") == [] for o in item.values()), path


def closed(schema):
    """The schema without unnamed fields."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: closed(v) for k, v in schema.items()}
    if isinstance(out.get("properties"), dict) and out.get("type") == "object":
        out.setdefault("additionalProperties", False)
    return out


SCHEMAS = closed(DOC["components"]["schemas"])


def check(name, value):
    jsonschema_rs.validate({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}, value)


RICH = {"temperature": 0, "max_tokens": 6, "quire_trace": True, "seed": 1}
OPENAI = {**RICH, "n": 2, "return_token_ids": True}
REPLIES = [
    ("/v1/chat/completions", {**OPENAI, "messages": CHAT, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1}, "ChatReply"),
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 30, "stop": "e"}, "ChatReply"),
    ("/v1/completions", {**OPENAI, "prompt": ["a b", "c"], "logprobs": 2, "prompt_logprobs": 1}, "CompletionReply"),
    ("/v1/completions", {"prompt": "Once upon", "max_tokens": 0, "echo": True, "logprobs": 1}, "CompletionReply"),
    ("/v1/responses", {"input": "Hello", "max_output_tokens": 4, "include": ["message.output_text.logprobs"], "top_logprobs": 2,
                       "quire_trace": True}, "ResponseReply"),
    ("/v1/responses", {"input": "Hello", "stop": "e"}, "ResponseReply"),
    ("/v1/messages", {"messages": CHAT, "max_tokens": 30, "stop_sequences": ["e"], "quire_trace": True}, "MessageReply"),
    ("/v1/messages/count_tokens", {"messages": CHAT}, "CountTokensReply"),
    ("/api/chat", {"model": "demo", "messages": CHAT, "stream": False, "options": {"num_predict": 3}, "logprobs": True}, "OllamaChatReply"),
    ("/api/generate", {"model": "demo", "prompt": "Hello", "stream": False, "options": {"num_predict": 3}}, "OllamaGenerateReply"),
    ("/api/show", {"model": "demo"}, "OllamaShow"),
    ("/tokenize", {"prompt": "Hello", "return_token_strs": True}, "TokenizeReply"),
    ("/detokenize", {"tokens": [1, 2]}, "DetokenizeReply"),
    ("/completion", {"prompt": "Once upon", "n_predict": 4, "n_probs": 2, "return_tokens": True, "quire_trace": True}, "LlamaCppEvent"),
    ("/apply-template", {"messages": CHAT}, "ApplyTemplateReply"),
    ("/v1/cache/pins", {"prompt": "Hello there " * 8}, "PinReply"),
    ("/v1/admin/scheduling-policy", {"policy": "fcfs"}, "PolicyReply"),
]


@pytest.mark.parametrize("path,body,schema", REPLIES, ids=[f"{r[0]}-{i}" for i, r in enumerate(REPLIES)])
def test_a_reply_has_what_its_schema_names_and_nothing_else(guarded, path, body, schema):
    status, _, reply = request(guarded, "POST", path, body)
    assert status == 200, reply
    check(schema, json.loads(reply))
    with pytest.raises(jsonschema_rs.ValidationError):
        check(schema, {**json.loads(reply), "unheard_of": 1})


@pytest.mark.parametrize("path,body", [(r[0], r[1]) for r in REPLIES[:4]], ids=[f"{r[0]}-{i}" for i, r in enumerate(REPLIES[:4])])
def test_so_does_each_event_of_a_stream(guarded, path, body):
    schema = DOC["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"]["x-event"]["$ref"].rsplit("/", 1)[1]
    body = {k: v for k, v in body.items() if k != "prompt_logprobs"}
    status, _, data = request(guarded, "POST", path, {**body, "stream": True, "stream_options": {"include_usage": True}})
    events = data.decode().split("\n\n")
    assert status == 200 and events[-2:] == ["data: [DONE]", ""]
    for event in events[:-2]:
        check(schema, json.loads(event.removeprefix("data: ")))
    assert len(events) > 3


def test_other_replies(guarded):
    for path, schema in (("/health", "Health"), ("/version", "Version"), ("/v1/models", "ModelList"), ("/v1/models/demo", "ModelEntry"),
                         ("/api/tags", "OllamaTags"), ("/api/ps", "OllamaPs"), ("/api/version", "Version")):
        check(schema, json.loads(request(guarded, "GET", path)[2]))
    check("Error", json.loads(request(guarded, "GET", "/v1/models/absent")[2]))
    check("MessagesError", json.loads(request(guarded, "POST", "/v1/messages", {})[2]))
    check("OllamaError", json.loads(request(guarded, "POST", "/api/chat", {})[2]))
    check("LlamaCppProps", json.loads(request(guarded, "GET", "/props")[2]))
    check("LlamaCppSlots", json.loads(request(guarded, "GET", "/slots")[2]))
    check("LlamaCppError", json.loads(request(guarded, "POST", "/completion", {})[2]))
    check("UnpinReply", json.loads(request(guarded, "DELETE", "/v1/cache/pins")[2]))


@pytest.mark.wide
def test_generated_requests(guarded, tmp_path):
    """Valid and invalid requests for every route: no reply is a 500 or violates its schema, and a request that the
    schema forbids is a 4xx."""
    doc = copy.deepcopy(DOC)
    doc["components"]["schemas"]["Model"] = {"enum": ["demo", None]}  # any other name would end most requests early
    examples = os.environ.get("QUIRE_SCHEMATHESIS_EXAMPLES")
    # fields common to all generating routes are tried at one route, unimplemented ones once; fields_test.py has all
    if not examples:
        common = doc["components"]["schemas"]["Sampling"]["properties"]
        for name in [n for n, s in common.items() if s == {"$ref": "#/components/schemas/NotBuilt"}][1:]:
            del common[name]
        few = {"type": "object", "properties": {n: common[n] for n in ("model", "stream", "seed", "min_tokens")}}
        for name in ("CompletionRequest", "ResponseRequest", "MessagesRequest"):
            doc["components"]["schemas"][name]["allOf"][0] = few
    (tmp_path / "openapi.json").write_text(json.dumps(doc))
    # A schema cannot express some rules: whether a prompt fits the context, which ids exist, which fields go together.
    (tmp_path / "schemathesis.toml").write_text('[checks.positive_data_acceptance]\nexpected-statuses = ["2xx", 304, 307, 400, 404, 429]\n\n'
                                               # An unknown header or parameter is ignored.
                                               '[generation]\nallow-extra-parameters = false\n\n'
                                               # llama.cpp's routes that are always 501. tests/clients/llama_cpp has them.
                                               '[[operations]]\nenabled = false\n'
                                               'include-name = ["POST /props", "POST /slots/{id}", "POST /infill", "POST /embedding"]\n')
    how = ["--max-examples", examples, "--seed", "1"] if examples else ["--max-examples", "5", "--generation-deterministic"]
    run = subprocess.run(
        [pathlib.Path(sys.executable).parent / "st", "--config-file", tmp_path / "schemathesis.toml", "run", tmp_path / "openapi.json",
         "--url", guarded.url, "-H", "x-api-key: k", "-H", "Authorization: Bearer k", "--phases", "coverage,fuzzing", "--checks", "all",
         "--generation-allow-x00", "false", "--continue-on-failure", "--no-shrink", "--warnings", "off",
         "--suppress-health-check", "too_slow", "--request-timeout", "120", *how],  # of a busy machine
        cwd=tmp_path, capture_output=True, text=True, timeout=3600)
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    n = int(re.search(r"(\d+) generated", run.stdout).group(1))
    assert n > 1000, run.stdout[-2000:]
