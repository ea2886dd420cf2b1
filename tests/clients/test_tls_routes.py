"""The routes of Ollama and llama.cpp, and the page at /ui, over HTTPS."""

import json
import subprocess
import types

import ollama
import pytest

from test_tls import authority, certificate, https, trusting  # noqa: F401 (fixtures)
from test_ui import Page

ASK = [{"role": "user", "content": "What is 27 plus 48?"}]
EXACT = {"temperature": 0, "num_predict": 20}
LONG = "Once upon a time. " * 1000  # longer than a TLS record

# path, body, a member of the reply
ROUTES = [
    ("/api/version", None, "version"), ("/api/tags", None, "models"), ("/api/ps", None, "models"),
    ("/api/show", {"model": "demo"}, "details"),
    ("/api/chat", {"model": "demo", "messages": ASK, "stream": False, "options": EXACT}, "message"),
    ("/api/generate", {"model": "demo", "prompt": "Once", "stream": False, "options": EXACT}, "response"),
    ("/health", None, "status"), ("/props", None, "chat_template"), ("/slots", None, 0), ("/tokenizer_info", None, "tokenizer_class"),
    ("/completion", {"prompt": "Once", "n_predict": 5}, "content"), ("/completions", {"prompt": ["a", "b"], "n_predict": 5}, 1),
    ("/tokenize", {"content": LONG}, "tokens"), ("/detokenize", {"tokens": [100] * 20000}, "content"),
    ("/apply-template", {"messages": [{"role": "user", "content": LONG}]}, "prompt"),
]


@pytest.fixture
def curl(https, authority):  # noqa: F811
    def ask(path, body=None):
        data = () if body is None else ("--data-binary", "@-", "-H", "Content-Type: application/json")
        done = subprocess.run(["curl", "--silent", "--show-error", "--fail-with-body", "--no-buffer", "--cacert", authority.ca, *data,
                               f"https://127.0.0.1:{https.port}{path}"], input=json.dumps(body).encode(), capture_output=True, timeout=300)
        assert done.returncode == 0, (path, done)
        return done.stdout
    return ask


@pytest.mark.parametrize("path, body, member", ROUTES, ids=[path for path, _, _ in ROUTES])
def test_routes_by_curl(curl, path, body, member):
    assert json.loads(curl(path, body))[member] is not None


def test_streams_by_curl(curl):
    chat = {"model": "demo", "messages": ASK, "options": EXACT}
    parts = [json.loads(line) for line in curl("/api/chat", chat).splitlines()]
    assert "".join(p["message"]["content"] for p in parts) == json.loads(curl("/api/chat", {**chat, "stream": False}))["message"]["content"] != ""
    body = {"prompt": "Once upon", "n_predict": 20, "temperature": 0}
    parts = [json.loads(line[6:]) for line in curl("/completion", {**body, "stream": True}).splitlines() if line.startswith(b"data: {")]
    assert "".join(p["content"] for p in parts) == json.loads(curl("/completion", body))["content"] != ""


def test_ollamas_client(https, trusting):  # noqa: F811
    client = ollama.Client(host=f"https://127.0.0.1:{https.port}", verify=trusting)
    whole = client.chat("demo", ASK, options=EXACT).message.content
    assert whole and "".join(p.message.content for p in client.chat("demo", ASK, options=EXACT, stream=True)) == whole
    assert client.generate("demo", "Once", options=EXACT).response
    assert [m.model for m in client.list().models] == [m.model for m in client.ps().models] == ["demo"]
    assert client.show("demo").details.family
    with pytest.raises(ollama.ResponseError, match="does not exist"):
        client.chat("other", ASK)


def test_the_page(https, tmp_path):  # noqa: F811
    page = Page(tmp_path, trusts_all=True)
    try:
        page.open(types.SimpleNamespace(url=f"https://127.0.0.1:{https.port}"))
        page.wait("models.length > 0")
        page.fill("#f-max_tokens", "20")
        assert page.ask(ASK[0]["content"]) and page.js("return turns[1].error || null") is None
        page.js("window.copied = null; copyText('x', document.createElement('button')).then(() => { copied = true })")
        page.wait("copied")  # the clipboard exists with https only
        page.wait("points.length > 1")
        assert page.js("return isSecureContext") and page.said() == []
    finally:
        page.driver.quit()
