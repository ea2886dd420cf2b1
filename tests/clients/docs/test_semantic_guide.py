"""The semantic cache as docs/guides/caching.md sets it up: pull the embedding model, calibrate, serve, and see a draft. And
the start of docs/guides/embeddings.md."""

import json
import re
import shlex
import subprocess

import pytest
import rig
from conftest import MODEL, QUIRE, ROOT
from doc_blocks import block, blocks
from encoder_hub import home  # noqa: F401

GUIDE = (ROOT / "docs" / "guides" / "caching.md").read_text()
PULL, ASK, CALIBRATE = (b.text for b in blocks(GUIDE) if b.language == "sh")
(PAIRS,) = (b.text for b in blocks(GUIDE) if b.language == "json")


def test_the_guide(home, tmp_path, start):  # noqa: F811
    pull, serve = (shlex.split(line)[1:] for line in PULL.splitlines())
    subprocess.run([QUIRE, *pull], env=home, check=True, capture_output=True)
    (tmp_path / "pairs.jsonl").write_text(PAIRS)
    table = subprocess.run([QUIRE, *shlex.split(CALIBRATE)[1:]], env=home, cwd=tmp_path, capture_output=True, text=True)
    assert table.returncode == 0 and table.stdout.startswith("3 pairs, 1 of them with the same answer") and (tmp_path / "pairs.svg").is_file(), table
    server = start(*(str(MODEL) if word == "MODEL" else word for word in serve), "--port", "0", environment=home)

    def is_draft():
        """The vector of the second question may come too late on a busy machine: both are asked again."""
        replies = []
        for command in ASK.replace("\\\n", " ").splitlines():
            command = [*shlex.split(command.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")), "-sS", "--noproxy", "*", "--max-time", "300"]
            replies.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.lower())
        rig.clear_cache(server)
        assert "x-quire-cache: miss" in replies[0], replies
        return re.search(r"x-quire-cache: draft\r?\n", replies[1]) and "x-quire-similarity: 0." in replies[1]

    rig.wait_until(is_draft)


def test_embeddings(home, start, monkeypatch, capsys):  # noqa: F811
    guide = (ROOT / "docs" / "guides" / "embeddings.md").read_text()
    pull, serve = (shlex.split(line, comments=True) for line in re.findall(r"^    quire (.*MiniLM.*)$", guide, re.M))
    subprocess.run([QUIRE, *pull], env=home, check=True, capture_output=True)
    server = start(*serve, "--port", "0", environment=home)
    monkeypatch.setenv("NO_PROXY", "*")
    curl, python = (block(guide, language).replace("127.0.0.1:8000", f"127.0.0.1:{server.port}") for language in ("sh", "python"))
    asked = subprocess.run([*shlex.split(curl), "-sS", "--noproxy", "*", "--max-time", "300"], check=True, capture_output=True, text=True)
    exec(compile(python, "embeddings.md", "exec"), {})
    assert json.loads(asked.stdout)["data"][0]["embedding"] == pytest.approx(json.loads(capsys.readouterr().out), rel=1e-6)
