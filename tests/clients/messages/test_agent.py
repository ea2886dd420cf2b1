"""The agent of agent_messages.py: every call is parsed, and a turn hits all that came before its new text."""

import json
import shutil

import agent_messages
import pytest
from conftest import MODEL, Server


@pytest.fixture(scope="module")
def agents_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "model"
    shutil.copytree(MODEL, path)
    config = json.loads((path / "tokenizer_config.json").read_text())
    config["chat_template"] = agent_messages.TEMPLATE
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    config = json.loads((path / "config.json").read_text())
    config["max_position_embeddings"] = 8192
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_twenty_turns(agents_model, stream):
    server = Server("serve", agents_model, "--port", "0", "--served-model-name", "demo")
    try:
        numbers = agent_messages.run(server.url, stream)
    finally:
        assert server.stop() == 0, server.output()
    print(numbers)
    assert numbers["turns"] == 20 and numbers["calls"] == 25
    assert numbers["hit_share"] >= 0.94, numbers
