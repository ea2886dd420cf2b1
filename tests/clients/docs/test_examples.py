"""Runs docs/reference/examples.md as it stands: all shell blocks in one shell, all Python blocks in one interpreter, each
from top to bottom. The servers get free ports, and these replace the two ports of the page."""

import json
import re
import socket
import subprocess

import anthropic.resources
import openai.resources.responses
import pytest
from conftest import MODEL, QUIRE, ROOT, Server
from doc_blocks import block, blocks
from encoder_hub import home  # noqa: F401

PAGE = ROOT / "docs" / "reference" / "examples.md"
BLOCKS = blocks(PAGE.read_text())

# curl as on the page, with a line for each request on standard error, and without a proxy of this machine.
CURL = r"""set -e -o pipefail
curl() { command curl -sS --fail-with-body --noproxy '*' --max-time 300 -w '%{stderr}@%{method} %{url_effective}\n' "$@"; }
"""


def routes_of(heading):
    """[(method, path)] of a heading such as `POST /v1/score`, `/score`."""
    if not (found := re.findall(r"`(?:([A-Z]+) )?(/[^`]*)`", heading)):
        return []
    return [(found[0][0], path) for _, path in found]


def reached(requests):
    """The headings' routes that a set of (method, path) contains."""
    known = [route for b in BLOCKS for route in routes_of(b.heading)]
    pattern = {route: re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route[1])) + r"(\?.*)?") for route in known}
    return {(method, path) for (method, path), p in pattern.items() for m, asked in requests if m == method and p.fullmatch(asked)}


@pytest.fixture
def servers(home, tmp_path, start):  # noqa: F811
    """The two servers of the page, as it starts them: the ports of the page -> their real ports. New ones for each test,
    because a gateway that has issued a key needs one from then on."""
    place = tmp_path / "servers"
    place.mkdir()
    (place / "tools").symlink_to(ROOT / "tools")
    (place / "models.yaml").write_text(next(b.text for b in BLOCKS if b.language == "yaml"))
    text = PAGE.read_text().replace("\\\n", "")
    pull, *commands = re.findall(r"^    quire (pull .*|serve .*)$", text, re.M) + re.findall(r"`quire (serve --models [^`]*)--port 8001`", text)
    subprocess.run([QUIRE, *pull.split()], env=home, check=True, capture_output=True)
    both = [start(*command.split(), "--port", "0", cwd=place, environment=home) for command in commands]
    yield {"8000": both[0].port, "8001": both[1].port}
    for s in both:
        assert s.process.poll() is None, "the server ended while being tested:\n" + s.output()
        assert s.stop() in (0, 75), s.output()  # 75: the last batch of the page is still being cancelled


def here(text, servers):
    for written, port in servers.items():
        text = text.replace(f"127.0.0.1:{written}", f"127.0.0.1:{port}")
    return text


def test_it_has_every_route():
    there = {route for b in BLOCKS for route in routes_of(b.heading)}
    api = json.loads((ROOT / "docs/reference/openapi.json").read_bytes())["paths"]
    missing = {(method.upper(), path) for path, item in api.items() for method in item} - there
    assert not missing, f"{PAGE} has no heading with a curl and a Python block for {sorted(missing)}"
    section = (ROOT / "docs/reference/http-api.md").read_text().split("## 18. Gateway")[1].split("###")[0]
    gateway = {(method, path) for method, path in re.findall(r"`(GET|POST|PUT|DELETE) (/[^`]*)`", section)}
    account = (ROOT / "docs/guides/gateway-accounts.md").read_text().split("## Routes")[1]
    gateway |= {(method, path.replace("ID", "{id}").replace("KIND/NAME", "{kind}/{name}")) for method, path in re.findall(r"`(GET|POST|PUT|DELETE) (/[^`]*)`", account)}
    assert len(gateway) > 12 and gateway - there == set()
    for heading in {b.heading for b in BLOCKS if routes_of(b.heading)}:
        assert {b.language for b in BLOCKS if b.heading == heading} == {"sh", "python"}, heading


def test_with_curl(servers, tmp_path):
    script = CURL + "".join(f"echo '@{b.line}' >&2\n{b.text}" for b in BLOCKS if b.language == "sh")
    done = subprocess.run(["bash", "-c", here(script, servers)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    said = done.stderr.splitlines()
    last = [line[1:] for line in said if re.fullmatch(r"@\d+", line)][-1]
    assert done.returncode == 0, f"{PAGE}, line {last}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    asked = {(m, path) for m, path in re.findall(r"@([A-Z]+) http://[^/]+(/\S*)", done.stderr)}
    # -I of the example of the redirect sends HEAD.
    asked |= {("GET", path) for m, path in asked if m == "HEAD"}
    assert {routes_of(b.heading)[0] for b in BLOCKS if routes_of(b.heading)} - reached(asked) == set()
    assert "The answer is 75." in done.stdout


def test_other_names(servers, tmp_path):
    """The other names of a route answer the same example."""
    for b in BLOCKS:
        first, *others = routes_of(b.heading) or [None]
        for _, path in others:
            if b.language == "sh":
                script = CURL + f"URL=http://127.0.0.1:{servers['8000']}\n" + b.text.replace("$URL" + first[1], "$URL" + path)
                done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
                assert done.returncode == 0 and path in done.stderr, (path, done.stdout, done.stderr)


def test_with_python(servers, tmp_path, monkeypatch, capsys):
    sent = set()

    def watch(name):
        original = getattr(socket.socket, name)

        def send(self, data, *how):
            if found := re.match(rb"([A-Z]+) (/\S*) HTTP/1.1\r\n", bytes(data[:2000])):
                sent.add((found.group(1).decode(), found.group(2).decode()))
            return original(self, data, *how)

        monkeypatch.setattr(socket.socket, name, send, raising=False)

    for name in "send", "sendall":
        watch(name)
    monkeypatch.chdir(tmp_path)
    for name in "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy":
        monkeypatch.delenv(name, raising=False)
    scope = {}
    for b in BLOCKS:
        if b.language == "python":
            exec(compile("\n" * (b.line - 1) + here(b.text, servers), str(PAGE), "exec"), scope)  # a fault names the page's line
    assert {routes_of(b.heading)[0] for b in BLOCKS if routes_of(b.heading)} - reached(sent) == set()
    assert "The answer is 75." in capsys.readouterr().out


# Pages with shell and Python blocks for one server with the demo model.
GUIDES = ("start/quickstart.md", "guides/structured-output.md")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    s = Server("serve", MODEL, "--port", "0", "--batch-dir", tmp_path_factory.mktemp("demo") / "batches")
    yield {"8000": s.port}
    assert s.stop() == 0, s.output()


def run_python(text, page, demo):
    exec(compile(here(text, demo), page, "exec"), {})


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide(demo, page, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    run = 0
    for b in blocks((ROOT / "docs" / page).read_text()):
        if b.language == "sh":
            done = subprocess.run(["bash", "-c", CURL + here(b.text, demo)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, (page, b.line, done.stdout, done.stderr)
            json.loads(json.loads(done.stdout)["choices"][0]["message"]["content"])
        elif b.language == "python":
            run_python("\n" * (b.line - 1) + b.text, page, demo)
        else:
            continue
        run += 1
    assert run > 0


def test_the_batch_of_the_guide(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/guides/batches.md").read_text()
    (tmp_path / "requests.jsonl").write_text(block(page, "json"))
    run_python(block(page, "python"), "guides/batches.md", demo)
    (line,) = capsys.readouterr().out.strip().splitlines()
    assert json.loads(line)["custom_id"] == "a" and json.loads(line)["response"]["status_code"] == 200


# ---- agents: the model's texts are scripted, because the demo model calls no tools by itself ----

def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


@pytest.fixture
def scripted(monkeypatch):
    """scripted(cls, texts): each create() of a client's class gets the next text as its answer. Returns the calls' fields."""
    def begin(cls, texts):
        create, asked, rest = cls.create, [], iter(texts)

        def scripted_create(self, **fields):
            asked.append(json.loads(json.dumps(fields, default=lambda block: block.model_dump())))
            return create(self, **fields, extra_body={"structured_outputs": {"choice": [next(rest)]}})

        monkeypatch.setattr(cls, "create", scripted_create)
        monkeypatch.setenv("NO_PROXY", "*")
        return asked

    return begin


def agents():
    """The two programs of docs/guides/tools.md."""
    return [b.text for b in blocks((ROOT / "docs/guides/tools.md").read_text()) if b.language == "python"]


def test_an_agent_over_responses(demo, scripted, capsys):
    asked = scripted(openai.resources.responses.Responses, [call("weather", city="Paris"), "It is sunny."])
    run_python(agents()[0], "guides/tools.md", demo)
    assert capsys.readouterr().out == "It is sunny.\n" and len(asked) == 2
    assert [item["output"] for item in asked[1]["input"]] == ["sunny"]


def test_an_agent_over_messages(demo, scripted, tmp_path, monkeypatch, capsys):
    asked = scripted(anthropic.resources.Messages, [call("read_file", path="notes.txt"), call("read_file", path="missing.txt"), "It says hello."])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    run_python(agents()[1], "guides/tools.md", demo)
    assert capsys.readouterr().out == "It says hello.\n" and len(asked) == 3
    results = [m["content"][0]["content"] for m in asked[-1]["messages"] if m["role"] == "user" and isinstance(m["content"], list)]
    assert results == ["hello", "[Errno 2] No such file or directory: 'missing.txt'"]
