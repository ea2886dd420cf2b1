"""A user whose hub is a stub (fake_hub.py) that has a small encoder under the name of the model that the pages pull."""

import os

import pytest
from fake_hub import FakeHub, Repo
from test_embeddings import model

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def home(tmp_path):
    """The user's environment."""
    hub = FakeHub()
    encoder = model(tmp_path / "encoder", "bert_mean")
    hub.repos[ENCODER] = Repo({str(p.relative_to(encoder)): p.read_bytes() for p in encoder.rglob("*") if p.is_file()})
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_")) and "proxy" not in k.lower()}
    yield {**env, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url}
    hub.close()
