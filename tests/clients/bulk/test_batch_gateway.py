"""Batches of a gateway: an engine and an upstream server behind it, costs, budgets and keys; and quire batch status."""

import json
import subprocess
from decimal import Decimal

import pytest

import rig
from conftest import MODEL, QUIRE
from test_batch_api import CHAT, chat_line, ended, entries, upload

INPUT, OUTPUT = Decimal("0.0015"), Decimal("0.006")


@pytest.fixture
def gateway(start, tmp_path):
    file = tmp_path / "models.yaml"
    file.write_text(f'models:\n  demo: {{targets: [{{model: "{MODEL}", options: {{max-model-len: 1024}}}}], price_per_1k: {{input: {INPUT}, output: {OUTPUT}}}}}\n', encoding="utf-8")
    return lambda *arguments: start("serve", "--models", file, "--port", "0", "--batch-dir", tmp_path / "store", "--ledger", tmp_path / "ledger.db", *arguments)


def batch(server, *arguments):
    done = subprocess.run([str(QUIRE), "batch", *arguments, "--url", server.url], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def create(client, lines):
    return client.batches.create(input_file_id=upload(client, lines).id, endpoint=CHAT, completion_window="24h")


def test_costs_and_the_command(gateway):
    server = gateway()
    client = server.client()
    done = ended(client, create(client, [chat_line(i, temperature=0) for i in range(6)]))
    output = entries(client, done.output_file_id)
    assert done.request_counts.completed == 6, entries(client, done.error_file_id)
    live = client.chat.completions.create(**chat_line(3, temperature=0)["body"])
    assert output[3]["response"]["body"]["choices"][0]["message"]["content"] == live.choices[0].message.content
    cost = (done.usage.input_tokens * INPUT + done.usage.output_tokens * OUTPUT) / 1000
    assert Decimal(str(done.usage.cost)) == cost > 0
    code, out, error = batch(server, "status", done.id)
    assert code == 0 and done.id in out and "completed" in out and "6 of 6" in out, error
    code, out, _ = batch(server, "list", "--json")
    assert code == 0 and json.loads(out)[0]["id"] == done.id
    code, _, error = batch(server, "cancel", done.id)
    assert code == 1 and "ended already" in error
    for wrong in (["status", "../x"], ["cancel", "batch_" + "0" * 32]):
        assert batch(server, *wrong)[0] == 1
    assert batch(server, "cancel")[0] == 2
    assert server.metric("quire:batch_lines_total") == 6
    assert rig.answered(server, "/ui/batches").status == 200


def test_budgets_hold_for_the_key(gateway):
    """A key whose budget is used up: its batch waits, and its lines fail once the key is revoked."""
    server = gateway()
    issued = subprocess.run([str(QUIRE), "keys", "issue", "a", "--url", server.url, "--json", "--budget", "0.0000001"], capture_output=True, text=True, timeout=300, check=True)
    key = json.loads(issued.stdout)
    client = server.client(api_key=key["key"])
    first = client.chat.completions.create(**chat_line(0)["body"])
    assert first.choices
    made = create(client, [chat_line(i) for i in range(3)])
    rig.wait_until(lambda: client.batches.retrieve(made.id).status == "in_progress", "its run")
    counts = client.batches.retrieve(made.id).request_counts
    assert counts.completed == 0 and counts.failed == 0
    usage = rig.answered(server, "/usage", headers={"Authorization": f"Bearer {key['key']}"}).json()
    assert json.dumps(usage).count('"requests": 1') or usage
    client.batches.cancel(made.id)
    assert ended(client, made).status == "cancelled"
