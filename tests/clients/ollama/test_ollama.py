"""Ollama's API, with its Python client and with the requests of Open WebUI as bytes."""

import asyncio
import json
import math
import re

import ollama
import pydantic
import pytest
import rig
from conftest import MODEL
from test_embeddings import model as vector_model
from test_tools import CALL, OTHER, FakeServer, model  # noqa: F401 (a fixture)

EXACT = {"temperature": 0, "num_predict": 40}
ASK = [{"role": "user", "content": "What is 27 plus 48?"}]


@pytest.fixture(scope="module")
def llama(server):
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def fake(model):  # noqa: F811
    """The model repeats the last message."""
    server = FakeServer(model)
    yield ollama.Client(host=server.url)
    assert server.stop() == 0


def lines(reply):
    assert reply.headers["content-type"] == "application/x-ndjson" and reply.body.endswith(b"\n")
    return [json.loads(line) for line in reply.body.splitlines()]


# ---- the client ----


def test_a_chat_is_the_same_as_openais(server, llama):
    own = llama.chat("demo", ASK, options=EXACT)
    other = server.client().chat.completions.create(model="demo", messages=ASK, temperature=0, max_tokens=40)
    assert own.message.content == other.choices[0].message.content and own.message.role == "assistant"
    assert (own.prompt_eval_count, own.eval_count) == (other.usage.prompt_tokens, other.usage.completion_tokens)
    assert own.done and own.done_reason == {"stop": "stop", "length": "length"}[other.choices[0].finish_reason] and own.model == "demo"
    assert 0 < own.prompt_eval_duration <= own.total_duration and 0 < own.eval_duration <= own.total_duration


def test_a_stream_is_the_whole(llama):
    whole = llama.chat("demo", ASK, options=EXACT)
    parts = list(llama.chat("demo:latest", ASK, options=EXACT, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content and len(parts) > 10
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True] and all(p.model == "demo" and p.created_at for p in parts)
    assert (parts[-1].done_reason, parts[-1].eval_count) == (whole.done_reason, whole.eval_count)


def test_seeds_and_stops(llama):
    options = {"temperature": 1.2, "seed": 7, "num_predict": 30, "top_k": 50, "top_p": 0.99, "min_p": 0.0, "repeat_penalty": 1.1,
               "presence_penalty": 0.1, "frequency_penalty": 0.1, "num_ctx": 4096, "num_gpu": 0, "num_thread": 2, "num_keep": 5, "mirostat": 0, "typical_p": 1.0}
    story = [{"role": "user", "content": "Tell me a story."}]
    first, second = (llama.chat("demo", story, options=options).message.content for _ in range(2))
    assert first == second != llama.chat("demo", story, options={**options, "seed": 8}).message.content
    assert llama.chat("demo", ASK, options={**EXACT, "stop": [","]}).message.content == "Ones: 7 + 8 = 15"


def test_generate(server, llama):
    raw = llama.generate("demo", "Once upon a time", raw=True, options=EXACT)
    other = server.client().completions.create(model="demo", prompt="Once upon a time", temperature=0, max_tokens=40)
    assert raw.response == other.choices[0].text and raw.done
    asked = llama.generate("demo", ASK[0]["content"], options=EXACT)
    assert asked.response == llama.chat("demo", ASK, options=EXACT).message.content
    system = [{"role": "system", "content": "Be brief."}, *ASK]
    assert llama.generate("demo", ASK[0]["content"], system="Be brief.", options=EXACT).response == llama.chat("demo", system, options=EXACT).message.content
    assert "".join(p.response for p in llama.generate("demo", ASK[0]["content"], options=EXACT, stream=True)) == asked.response


@pytest.mark.parametrize("length", [{}, {"num_predict": -1}, {"num_predict": -2}, {"num_predict": 0}])
def test_a_raw_prompt_has_the_whole_context(llama, length):
    reply = llama.generate("demo", "Once upon a time", raw=True, options={"temperature": 0, **length})
    assert reply.done_reason == "stop" and reply.eval_count > 100


def test_a_schema(llama):
    class Person(pydantic.BaseModel, extra="forbid"):
        name: str = pydantic.Field(max_length=12)
        age: int = pydantic.Field(ge=0, le=99)

    reply = llama.chat("demo", ASK, format=Person.model_json_schema(), options={"temperature": 0})
    assert 0 <= Person.model_validate_json(reply.message.content).age <= 99
    assert llama.generate("demo", "JSON, please", format="json", options=EXACT).response.startswith("{")


def test_logprobs(server, llama):
    reply = rig.answered(server, "/api/chat", {"model": "demo", "messages": ASK, "options": EXACT, "logprobs": True, "top_logprobs": 2, "stream": False}).json()
    assert len(reply["logprobs"]) == reply["eval_count"] and all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in reply["logprobs"])
    text = "".join(bytes(t["bytes"]).decode() for t in reply["logprobs"])
    assert text.startswith(reply["message"]["content"])


def test_an_assistants_last_message_is_continued(llama):
    whole = llama.chat("demo", ASK, options=EXACT).message.content
    head = whole[:whole.index(",")]
    rest = llama.chat("demo", [*ASK, {"role": "assistant", "content": head}], options=EXACT).message.content
    assert not rest.startswith("Ones") and rest.strip()
    assert llama.chat("demo", [*ASK, {"role": "assistant", "content": head, "tool_calls": []}], options=EXACT).message.content == rest


def test_async(server):
    async def ask():
        client = ollama.AsyncClient(host=server.url)
        parts = [p async for p in await client.chat("demo", ASK, options=EXACT, stream=True)]
        both = await asyncio.gather(*(client.generate("demo", "Hello", options=EXACT) for _ in range(4)))
        return "".join(p.message.content for p in parts), {b.response for b in both}

    text, alike = asyncio.run(ask())
    assert text.startswith("Ones") and len(alike) == 1


def n_parameters():
    """The numbers in the demo model's weights, by the headers of its files."""
    n = 0
    for path in MODEL.glob("*.safetensors"):
        raw = path.read_bytes()
        tensors = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
        n += sum(math.prod(t["shape"]) for name, t in tensors.items() if name != "__metadata__")
    return n


def test_models(server, llama):
    [listed], [runs], shown = llama.list().models, llama.ps().models, llama.show("demo:latest")
    assert listed.model == runs.model == "demo" and listed.size == sum(p.stat().st_size for p in MODEL.glob("*.safetensors"))
    said = re.search(r"weights and buffers ([0-9.]+) MiB, KV cache ([0-9.]+) MiB", server.output())
    assert runs.size / 2**20 == pytest.approx(sum(map(float, said.groups())) + listed.size / 2**20, abs=0.2) and runs.size_vram == 0
    assert listed.details.parameter_size == runs.details.parameter_size == shown.details.parameter_size == f"{n_parameters() / 1e6:.2f}M"
    assert shown.modelinfo["general.parameter_count"] == n_parameters()
    assert listed.details.family == "qwen2" and listed.details.format == "safetensors" and re.fullmatch("[0-9a-f]{64}", listed.digest)
    assert runs.context_length == 1024 and shown.capabilities == ["completion"] and shown.modelinfo["qwen2.context_length"] == 1024
    assert rig.answered(server, "/api/version").json() == rig.answered(server, "/version").json()


def test_errors(server, llama):
    with pytest.raises(ollama.ResponseError, match="'nobody' does not exist; served here: 'demo'") as error:
        llama.chat("nobody", ASK)
    assert error.value.status_code == 404
    for call in (lambda: llama.pull("llama3.2"), lambda: llama.delete("demo"), lambda: llama.copy("demo", "other"), lambda: llama.create("x", from_="demo")):
        with pytest.raises(ollama.ResponseError, match="quire pull NAME"):
            call()
    with pytest.raises(ollama.ResponseError, match="gives no vectors"):
        llama.embed("demo", "text")


def test_embeddings(start, tmp_path):
    server = start("serve", MODEL, "--embedding-model", vector_model(tmp_path / "tiny", "bert_mean"), "--port", "0", "--served-model-name", "demo", "--max-model-len", "64")
    llama = ollama.Client(host=server.url)
    both = llama.embed("tiny", ["one two", "three"])
    other = server.client().embeddings.create(model="tiny", input=["one two", "three"], encoding_format="float", extra_body={"normalize": True})
    want = [d.embedding for d in other.data]
    assert [list(e) for e in both.embeddings] == want and both.prompt_eval_count == other.usage.prompt_tokens
    assert list(llama.embed("tiny:latest", "three").embeddings[0]) == want[1]
    assert list(llama.embeddings("tiny", "three").embedding) == want[1]
    assert len(llama.embed("tiny", "three", dimensions=4).embeddings[0]) == 4
    assert {m.model for m in llama.list().models} == {"demo", "tiny"} and llama.show("tiny").capabilities == ["embedding"]


# ---- tools ----


TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}},
         {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text,names,content", [(CALL, ["weather"], ""), (CALL + "\n" + OTHER, ["weather", "clock"], ""), ("I'll look. " + CALL, ["weather"], "I'll look."), ("No call.", [], "No call.")])
def test_calls(fake, text, names, content, stream):
    reply = fake.chat("fake", [{"role": "user", "content": text}], tools=TOOLS, stream=stream)
    parts = list(reply) if stream else [reply]
    calls = [call.function for part in parts for call in part.message.tool_calls or []]
    assert [c.name for c in calls] == names and all(isinstance(c.arguments, dict) for c in calls)
    assert "".join(p.message.content or "" for p in parts).strip() == content and parts[-1].done_reason == "stop"


def test_results_find_their_calls(fake):
    calls = [{"function": {"name": "weather", "arguments": {"city": "Paris"}}}, {"function": {"name": "clock", "arguments": {}}}]
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": calls},
             {"role": "tool", "tool_name": "clock", "content": "noon"}, {"role": "tool", "content": "rain"}]
    assert fake.chat("fake", [*turns, {"role": "user", "content": "Thanks."}]).message.content.strip() == "Thanks."
    with pytest.raises(ollama.ResponseError, match=r"messages\[4\].*no call"):
        fake.chat("fake", [*turns, {"role": "tool", "tool_name": "clock", "content": "late"}])


# ---- bytes ----


def test_open_webuis_requests(server):
    """What Open WebUI's router for Ollama sends for the list of models, a chat, and the title of the chat."""
    names = [m["model"] for m in rig.answered(server, "/api/tags").json()["models"]]
    rig.answered(server, "/api/ps"), rig.answered(server, "/api/version")
    chat = {"stream": True, "model": names[0], "messages": ASK, "options": {"temperature": 0, "num_predict": 20}, "keep_alive": "5m"}
    parts = lines(rig.answered(server, "/api/chat", chat))
    assert parts[-1]["done"] and not parts[0]["done"] and parts[0]["message"]["role"] == "assistant"
    title = rig.answered(server, "/api/generate", {"model": names[0], "prompt": "A title for this chat:", "stream": False, "options": {"num_predict": 5}}).json()
    assert title["done"] and title["eval_count"] <= 5


@pytest.mark.parametrize("path,body,says", [("/api/chat", {"messages": []}, "load"), ("/api/chat", {}, "load"), ("/api/generate", {}, "load"),
                                            ("/api/generate", {"prompt": "", "keep_alive": 0}, "unload"), ("/api/chat", {"messages": [], "keep_alive": "0"}, "load")])
def test_a_request_without_a_prompt_loads(server, path, body, says):
    reply = rig.answered(server, path, {"model": "demo", **body}).json()
    assert reply["done"] and reply["done_reason"] == says


@pytest.mark.parametrize("path,fields,field", [
    ("/api/chat", {"model": 3}, "model"), ("/api/chat", {"model": None}, "model"), ("/api/chat", {"messages": "hi"}, "messages"),
    ("/api/chat", {"messages": [3]}, "messages[0]"), ("/api/chat", {"messages": [{"content": "x"}]}, "messages[0].role"),
    ("/api/chat", {"messages": [{"role": "user", "content": [1]}]}, "messages[0].content"),
    ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
    ("/api/chat", {"messages": [{"role": "assistant", "tool_calls": [{"name": "x"}]}]}, "messages[0].tool_calls"),
    ("/api/chat", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
    ("/api/chat", {"options": [1]}, "options"), ("/api/chat", {"options": {"num_predict": "x"}}, "options.num_predict"),
    ("/api/chat", {"options": {"num_predict": 1.5}}, "options.num_predict"), ("/api/chat", {"options": {"seed": 1e300}}, "options.seed"),
    ("/api/chat", {"options": {"temperature": "hot"}}, "options.temperature"), ("/api/chat", {"options": {"temperature": -1}}, "options.temperature"),
    ("/api/chat", {"options": {"mirostat": 2}}, "options.mirostat"), ("/api/chat", {"options": {"stop": [3]}}, "options.stop"),
    ("/api/chat", {"options": {"repeat_penalty": 0}}, "options.repeat_penalty"), ("/api/generate", {"raw": True, "options": {"top_k": 1.5}}, "options.top_k"),
    ("/api/chat", {"format": "yaml"}, "format"), ("/api/chat", {"format": {"type": 3}}, "format"), ("/api/chat", {"think": 3}, "think"),
    ("/api/generate", {"format": {"type": "object", "properties": {"a": {"$ref": "#/none"}}}}, "format"),
    ("/api/generate", {"raw": True, "logprobs": True, "top_logprobs": 21}, "top_logprobs"), ("/api/generate", {"prompt": "word " * 1100}, "prompt"),
    ("/api/chat", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]}, "messages[0].tool_calls: function.arguments"),
    ("/api/chat", {"stream": "yes"}, "stream"), ("/api/chat", {"tools": 3}, "tools"),
    ("/api/generate", {"prompt": 3}, "prompt"), ("/api/generate", {"suffix": "end"}, "suffix"), ("/api/generate", {"template": "{{ .Prompt }}"}, "template"),
    ("/api/generate", {"context": [1, 2]}, "context"), ("/api/generate", {"images": ["aGk="]}, "images"), ("/api/generate", {"raw": 1}, "raw"),
    ("/api/generate", {"system": 3}, "system"),
])
def test_wrong_fields_are_named(server, path, fields, field):
    reply = rig.ask(server, path, {"model": "demo", "messages": ASK, "prompt": "x", "options": EXACT, **fields})
    error = reply.json()
    assert reply.status == 400 and set(error) == {"error"} and error["error"].startswith(field), error


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model":"demo","model":"demo"}', b'{"model":"\xff"}', b"[" * 100])
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/show", "/api/embed"])
def test_what_is_no_body(server, path, body):
    reply = rig.ask(server, path, body)
    assert reply.status == 400 and list(reply.json()) == ["error"]


def test_a_long_body_of_show_is_not_parsed(server):
    reply = rig.ask(server, "/api/show", {"model": "demo", "options": {"x": "x" * 5000}})
    assert reply.status == 413 and "5" in reply.json()["error"]


def test_a_client_that_leaves_is_cancelled(server):
    body = json.dumps({"model": "demo", "messages": ASK, "options": {"temperature": 0, "num_predict": 900, "stop": []}, "format": {"type": "array", "items": {"const": "again"}, "minItems": 150}}).encode()
    before = server.metric("vllm:request_success_total")
    with server.connect() as s:
        s.sendall(b"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert b'"done":false' in s.recv(65536)
    rig.wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("vllm:request_success_total") == before + 1 or server.metric("vllm:request_success_total") == before


def test_keys_and_limits(start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "256", environment={"QUIRE_API_KEY": "sk-secret-key"})
    for path in ("/api/tags", "/api/ps"):
        reply = rig.ask(server, path)
        assert reply.status == 401 and list(reply.json()) == ["error"]
    client = ollama.Client(host=server.url, headers={"Authorization": "Bearer sk-secret-key"})
    assert client.chat("demo", ASK, options=EXACT).message.content.startswith("Ones")
    long = client.chat("demo", ASK, options={"temperature": 0, "num_predict": 5000})  # cut to the context, as in Ollama
    assert long.eval_count <= 256
    with pytest.raises(ollama.ResponseError, match="maximum context length is 256"):
        client.chat("demo", [{"role": "user", "content": "word " * 400}])


def test_a_silent_stream_gets_an_object(model):  # noqa: F811
    """A comment, as in streams of events, would not be JSON."""
    server = FakeServer(model, "--ping-ms", "20", "--interval-us", "200000")
    parts = lines(rig.answered(server, "/api/chat", {"model": "fake", "messages": [{"role": "user", "content": "a b c"}]}))
    assert any(p["message"]["content"] == "" for p in parts[:-1]) and [p["done"] for p in parts] == [False] * (len(parts) - 1) + [True]
    assert "".join(p["message"]["content"] for p in parts) == "a b c"
    assert server.stop() == 0
