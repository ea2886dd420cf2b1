"""Keys, budgets and usage of a running gateway, with quire keys and over HTTP."""

import contextlib
import csv
import http.server
import io
import json
import os
import signal
import subprocess
import threading
from decimal import Decimal

import openai
import pytest

import rig
from conftest import QUIRE

USAGE = {"prompt_tokens": 21, "completion_tokens": 5, "total_tokens": 26}
COST = 21 * Decimal("0.00015") / 1000 + 5 * Decimal("0.0006") / 1000


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "Hi"}
        body = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "u", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def upstream():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def gateway(start, tmp_path):
    with upstream() as port:
        models = tmp_path / "models.yaml"
        models.write_text(f"models:\n  m: {{targets: [{{url: 'http://127.0.0.1:{port}/v1'}}], price_per_1k: {{input: 0.00015, output: 0.0006}}}}\n")

        def begin():
            return start("serve", "--models", models, "--ledger", tmp_path / "ledger", "--port", "0")

        yield begin


def keys(server, *arguments):
    done = subprocess.run([str(QUIRE), "keys", *map(str, arguments), "--url", server.url], capture_output=True, text=True, timeout=300, env={**os.environ, "QUIRE_ADMIN_KEY": ""}, check=False)
    return done.returncode, done.stdout, done.stderr


def issue(server, name, *arguments):
    code, out, error = keys(server, "issue", name, "--json", *arguments)
    assert code == 0, error
    return json.loads(out)


def chat(server, key):
    return rig.ask(server, "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, headers={"Authorization": f"Bearer {key}"} if key else {})


def admin(server, path, body=None, method=None):
    return rig.answered(server, path, body, method=method).json()


def test_life_of_a_key(gateway):
    server = gateway()
    assert chat(server, None).status == 200  # no key was issued yet
    key = issue(server, "CI", "--organisation", "acme", "--tenant", "ci")
    assert chat(server, None).status == 401 and chat(server, "sk-quire-wrong").status == 401
    assert chat(server, key["key"]).status == 200
    code, out, _ = keys(server, "rotate", key["id"], "--grace", "3600", "--json")
    second = json.loads(out)["key"]
    assert code == 0 and chat(server, key["key"]).status == chat(server, second).status == 200
    code, out, _ = keys(server, "list")
    assert code == 0 and key["id"] in out and "acme" in out and second not in out
    # A killed gateway has the same keys.
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server = gateway()
    assert chat(server, second).status == 200
    code, out, _ = keys(server, "revoke", key["id"])
    assert code == 0 and out == f"{key['id']} is revoked\n"
    assert chat(server, second).status == chat(server, key["key"]).status == 401
    # The last key is revoked, and requests still need one.
    assert chat(server, None).status == 401
    code, _, error = keys(server, "revoke", "key_0000000000000001")
    assert code == 1 and "there is no key" in error
    code, _, error = keys(server, "revoke", "../x")
    assert code == 1 and "is not the id of a key" in error


def test_a_key_is_no_admin(gateway):
    server = gateway()
    key = issue(server, "a")["key"]
    for path, method in (("/admin/keys", "GET"), ("/admin/keys", "POST"), ("/admin/budgets", "GET"), ("/usage?tenant=default", "GET")):
        reply = rig.ask(server, path, {} if method == "POST" else None, method=method, headers={"Authorization": f"Bearer {key}"})
        assert reply.status == 403, path


def test_budget_warns_and_then_refuses(gateway):
    server = gateway()
    key = issue(server, "a", "--tenant", "t", "--organisation", "o")["key"]
    assert chat(server, key).headers["x-quire-budget-warning"] is None
    admin(server, "/admin/budgets/organisation/o", {"budget": f"{COST * 10 / 9:.12f}"}, method="PUT")
    assert "organisation o has used 9" in chat(server, key).headers["x-quire-budget-warning"]
    with pytest.raises(openai.RateLimitError) as refused:
        server.client(api_key=key).chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert refused.value.code == "insufficient_quota"
    assert "it is renewed at" in refused.value.message and "T00:00:00Z" in refused.value.message
    assert 0 < int(refused.value.response.headers["Retry-After"]) <= 86400
    admin(server, "/admin/budgets/organisation/o", {"budget": None}, method="PUT")
    assert chat(server, key).status == 200


def test_usage_to_the_last_digit(gateway):
    server = gateway()
    one, two = issue(server, "one"), issue(server, "two")
    for key, n in ((one, 7), (two, 3)):
        for _ in range(n):
            assert f'"cost":{COST}' in chat(server, key["key"]).text
    headers = {"Authorization": f"Bearer {one['key']}"}
    own = rig.ask(server, "/usage", headers=headers)
    total = json.loads(own.text, parse_float=Decimal)["total"]
    assert total["requests"] == 7 and total["input_tokens"] == 147 and total["output_tokens"] == 35 and total["cost"] == 7 * COST
    rows = list(csv.DictReader(io.StringIO(rig.answered(server, "/usage?format=csv").text)))
    assert {row["key"]: Decimal(row["cost"]) for row in rows} == {one["id"]: 7 * COST, two["id"]: 3 * COST}
    assert server.stop() == 0
    server = gateway()
    assert json.loads(rig.answered(server, "/usage").text, parse_float=Decimal)["total"]["cost"] == 10 * COST
