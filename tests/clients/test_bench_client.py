"""The requests of `vllm bench serve` in its order, with its rules for reading a stream (own code)."""

import codecs
import http.client
import json

import pytest

PROMPT = "Once upon a time"


class Reader:
    """vLLM's way to read a stream: it strips blanks from each read, splits events at empty lines, and takes the rest
    as an event too if it is whole JSON. It loses tokens of a server whose events are not one line of JSON each."""

    def __init__(self):
        self.decode, self.rest = codecs.getincrementaldecoder("utf-8")().decode, ""

    def events(self, data):
        self.rest += self.decode(data.strip())
        while "\n\n" in self.rest:
            event, self.rest = self.rest.split("\n\n", 1)
            if event.strip():
                yield event.strip()
        text = self.rest.removeprefix("data: ").strip()
        if self.rest.startswith("data: ") and text:
            try:
                text == "[DONE]" or json.loads(text)
            except ValueError:
                return
            yield self.rest.strip()
            self.rest = ""


def bench(server, path, payload, size):
    """(text, events with a choice, usage), read in pieces of at most this number of bytes."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    c.request("POST", path, json.dumps(payload), {"Content-Type": "application/json", "x-request-id": "bench-0"})
    reply = c.getresponse()
    assert reply.status == 200 and reply.headers["x-request-id"] == "bench-0"
    reader, text, n, usage, done = Reader(), "", 0, None, 0
    while data := reply.read1(size):
        for event in reader.events(data):
            if event.startswith(":"):
                continue
            event = event.removeprefix("data: ")
            if event == "[DONE]":
                done += 1
                continue
            data = json.loads(event)
            if choices := data.get("choices"):
                text += (choices[0]["delta"].get("content") if "chat" in path else choices[0].get("text")) or ""
                n += 1
            elif data.get("usage"):
                usage = data["usage"]
    c.close()
    assert done == 1
    return text, n, usage


@pytest.mark.parametrize("size", [65536, 1448])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_its_requests(server, path, size):
    chat = "chat" in path
    payload = {"model": "demo", "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0}
    payload |= ({"messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}], "max_completion_tokens": 32} if chat else
                {"prompt": PROMPT, "repetition_penalty": 1.0, "max_tokens": 32, "logprobs": None})
    text, n, usage = bench(server, path, payload, size)
    # It counts the first event with a choice as the first token, and each further one as a pause between tokens.
    assert 32 <= n <= 32 + 3 and usage["completion_tokens"] == 32 and usage["prompt_tokens"] > 0
    whole = server.client().post(path.removeprefix("/v1"), cast_to=object,
                                 body={k: v for k, v in payload.items() if not k.startswith("stream")})
    choice = whole["choices"][0]
    assert text == (choice["message"]["content"] if chat else choice["text"]) and whole["usage"]["completion_tokens"] == 32


def test_the_model_it_finds(server):
    """It takes the first model's id, and its root as the name of the tokenizer."""
    client = server.client()
    first = client.get("/models", cast_to=object)["data"][0]
    assert first["id"] == "demo" and isinstance(first["root"], str) and first["root"] and first["max_model_len"] == 1024


def test_a_tokenizer_that_is_the_server(server):
    """It makes random data sets by encoding and decoding until the length is right."""
    client = server.client()

    def post(path, body):
        return client.post("/.." + path, cast_to=object, body={"model": "demo", **body})

    ids = post("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})
    assert ids["count"] == len(ids["tokens"]) and ids["max_model_len"] == 1024
    assert post("/detokenize", {"tokens": ids["tokens"]}) == {"prompt": PROMPT, "content": PROMPT}
    chat = post("/tokenize", {"messages": [{"role": "user", "content": PROMPT}], "add_generation_prompt": True})
    reply = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": PROMPT}], max_tokens=1)
    assert reply.usage.prompt_tokens == chat["count"]


def test_is_it_up(server):
    """Its check before the run: one request like the others, and /health."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    c.request("GET", "/health")
    assert c.getresponse().status == 200
    c.close()
