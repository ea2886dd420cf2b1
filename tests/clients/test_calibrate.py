"""quire cache calibrate: equal numbers from a model that it opens and from a server, and errors that name the place."""

import json
import re
import subprocess
import xml.etree.ElementTree

import pytest
from conftest import QUIRE, Server
from test_embeddings import model

PAIRS = [("a b c", "a b c", True), ("one two", "one two", True), ("turn it on", "turn it off", False), ("take 15 mg", "take 50 mg", False),
         ("what is x", "explain x", True)]


def calibrate(*arguments):
    return subprocess.run([QUIRE, "cache", "calibrate", *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return model(tmp_path_factory.mktemp("calibrate") / "tiny", "bert_mean")


def test_calibrate(tiny, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"a": a, "b": b, "same": same, "kind": "test"}) + "\n" for a, b, same in PAIRS))
    opened = calibrate(pairs, "--embedding-model", tiny, "--json", "--picture", tmp_path / "p.svg", "--precision", "1")
    assert opened.returncode == 0, opened.stderr
    result = json.loads(opened.stdout)
    assert result["pairs"] == 5 and result["same"] == 3 and result["turned_down"]["numbers"] == {"different": 1, "same": 0}
    assert result["with_guards"]["points"][0]["answered"] == 3 and result["with_guards"]["points"][0]["wrong"] == 0
    assert result["with_guards"]["named"]["recall"] == 1 and result["without_guards"]["points"][0]["wrong"] == 2
    assert result["without_guards"]["points"][99]["answered"] >= 2  # those with the same words
    picture = xml.etree.ElementTree.parse(tmp_path / "p.svg").getroot()
    assert picture.tag.endswith("svg") and "recall, guarded" in "".join(picture.itertext())

    s = Server("serve", tiny, "--port", "0")
    asked = calibrate(pairs, "--url", s.url, "--json", "--precision", "1")
    assert s.stop() == 0, s.output()
    assert asked.returncode == 0 and json.loads(asked.stdout) == result
    table = calibrate(pairs, "--embedding-model", tiny)
    assert table.returncode == 0 and "with guards: --semantic-threshold" in table.stdout
    assert "too few answers to be sure: a precision of 0.99 takes 299 answers and none of them wrong (95 %)\n" in table.stdout
    assert "too few" not in calibrate(pairs, "--embedding-model", tiny, "--precision", "0.3").stdout
    assert re.search(r"\n  numbers +0 +1\n  polarity +0 +1\n\n", table.stdout), table.stdout
    # A paraphrase whose words a guard does not know, and nothing else: its line, its guard, and no precision of no answers.
    pairs.write_text("\n" + json.dumps({"a": "what is the capital of france", "b": "which town rules france", "same": True}) + "\n" + json.dumps({"a": "on", "b": "off", "same": False}) + "\n")
    table = calibrate(pairs, "--embedding-model", tiny).stdout
    assert "with the same answer: line 2 (words)\n" in table and re.search(r"\n +0.70 +\d+ +\d+ +[\d.]+ +[\d.]+ +0 +0 +- +0.000\n", table), table
    assert "with guards: no threshold gives a precision of 0.99; --semantic-mode draft" in table


def test_errors_say_where(tiny, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"a": "x", "b": "y", "same": true}\n{"a": "x", "same": true}\n')
    for arguments, code, says in ((("--embedding-model", tiny), 1, "pairs.jsonl: line 2: b: must be a text"),
                                  ((), 2, "--embedding-model MODEL or --url URL is needed"), (("--url", "u", "--embedding-model", tiny), 2, "--embedding-model MODEL or --url URL is needed"),
                                  (("--embedding-model", tmp_path), 1, "no tokenizer.json")):
        if code == 1 and "line" not in says:
            pairs.write_text('{"a": "x", "b": "y", "same": true}\n')
        out = calibrate(pairs, *arguments)
        assert out.returncode == code and says in out.stderr, (arguments, out.stderr)
    pairs.write_text('\n{"a": "x", "b": "y", "same": true}\n')
    out = calibrate(pairs, "--url", "http://127.0.0.1:9")
    assert out.returncode == 1 and "pairs.jsonl: lines 2 to 2" in out.stderr
