"""OpenAI's client and an embedder beside a chat model, in one process; a classifier of pairs by itself."""

import base64
import json
import shutil
import string
import struct
import urllib.request

import openai
import pytest
from conftest import MODEL, ROOT

GOLDENS = ROOT / "tests" / "goldens" / "vectors"
LETTERS = string.ascii_lowercase
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *("##" + c for c in LETTERS)]
CLS, SEP = 2, 3


def ask(url, body):
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=60).read())


def ids_of(text):
    return [i for word in text.split() for i in (WORDS.index(word[0]), *(WORDS.index("##" + c) for c in word[1:]))]


def model(place, golden):
    """The golden's model with a tokenizer of letters, whose own truncation, to 4 tokens, is not obeyed."""
    shutil.copytree(GOLDENS / golden, place)
    special = [{"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, w in enumerate(WORDS[:4])]
    side = lambda name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]}
    token, text = (lambda name: {"SpecialToken": {"id": name, "type_id": 0}}), (lambda name, of: {"Sequence": {"id": name, "type_id": of}})
    (place / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": special, "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": [token("[CLS]"), text("A", 0), token("[SEP]")],
                           "pair": [token("[CLS]"), text("A", 0), token("[SEP]"), text("B", 1), token("[SEP]")],
                           "special_tokens": {n: side(n) for n in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {w: i for i, w in enumerate(WORDS)}}}))
    return place


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    from conftest import Server
    tiny = model(tmp_path_factory.mktemp("vectors") / "tiny", "bert_mean")
    s = Server("serve", MODEL, "--embedding-model", tiny, "--port", "0", "--served-model-name", "demo", "--max-model-len", "64")
    yield s
    assert s.process.poll() is None, "the server ended while being tested:\n" + s.output()
    assert s.stop() == 0, s.output()


def test_embeddings(both):
    client = both.client()
    assert [m.id for m in client.models.list()] == ["demo", "tiny"] and client.models.retrieve("tiny").id == "tiny"
    texts = ["one two", "three", "a b c"]
    reply = client.embeddings.create(model="tiny", input=texts)  # the client asks for base64
    assert reply.model == "tiny" and [d.index for d in reply.data] == [0, 1, 2]
    assert reply.usage.prompt_tokens == sum(len(ids_of(t)) + 2 for t in texts)
    for text, among in zip(texts, reply.data):
        assert len(among.embedding) == 64 and abs(sum(x * x for x in among.embedding) - 1) < 1e-5
        alone = client.embeddings.create(model="tiny", input=text, encoding_format="float").data[0].embedding
        by_ids = client.embeddings.create(model="tiny", input=[CLS, *ids_of(text), SEP], encoding_format="base64").data[0].embedding
        bits = struct.pack("<64f", *among.embedding)
        assert struct.pack("<64f", *alone) == bits == base64.b64decode(by_ids)
    metrics = urllib.request.urlopen(both.url + "/metrics").read().decode()
    assert 'quire:vectors_total{model_name="demo",engine="0"} 0\nquire:vectors_total{model_name="tiny",engine="1"} 9\n' in metrics
    short = client.embeddings.create(model="tiny", input="three", dimensions=8).data[0].embedding
    assert len(short) == 8 and abs(sum(x * x for x in short) - 1) < 1e-5


def test_long_texts_are_cut_at_the_models_length(both):
    client, long = both.client(), "abc " * 100
    reply = client.embeddings.create(model="tiny", input=long)
    assert reply.usage.prompt_tokens == 140
    same = client.embeddings.create(model="tiny", input=[CLS, *ids_of(long)[:138], SEP])
    assert same.data[0].embedding == reply.data[0].embedding


def test_each_model_is_asked_for_what_it_gives(both):
    client, chat = both.client(), [{"role": "user", "content": "Hi"}]
    alone = client.chat.completions.create(model="demo", messages=chat, max_tokens=5, temperature=0).choices[0].message.content
    assert alone == client.chat.completions.create(model="demo", messages=chat, max_tokens=5, temperature=0).choices[0].message.content
    for wrong in (lambda: client.chat.completions.create(model="tiny", messages=chat, max_tokens=5),
                  lambda: client.embeddings.create(model="demo", input="a")):
        with pytest.raises(openai.BadRequestError, match="demo") as error:
            wrong()
        assert "tiny" in error.value.message and error.value.code == "model_not_supported"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="absent", input="a")


def test_batches_that_wait_give_the_same_bits(both, start, tmp_path):
    tiny = model(tmp_path / "tiny", "bert_mean")
    s = start("serve", MODEL, "--embedding-model", tiny, "--port", "0", "--embedding-batch-size", "3", "--embedding-batch-wait-ms", "20")
    texts = ["one", "two", "three", "four"]
    got = [c.embeddings.create(model="tiny", input=texts).data for c in (s.client(), both.client())]
    assert [d.embedding for d in got[0]] == [d.embedding for d in got[1]]
    assert s.stop() == 0, s.output()


def test_scores_of_pairs(start, tmp_path):
    s = start("serve", model(tmp_path / "pairs", "bert_labels"), "--port", "0")
    score = lambda a, b: [d["score"] for d in ask(s.url + "/v1/score", {"text_1": a, "text_2": b})["data"]]
    many = score("one two", ["three", "four", "one two"])
    assert all(0 < x < 1 for x in many) and len(set(many)) == 3
    assert [score("one two", t)[0] for t in ("three", "four", "one two")] == many
    assert score("three", "one two") != score("one two", "three")
    ranked = ask(s.url + "/v2/rerank", {"query": "one two", "documents": ["three", "four", "one two"], "top_n": 2})["results"]
    assert [r["relevance_score"] for r in ranked] == sorted(many, reverse=True)[:2] and ranked[0]["index"] == many.index(max(many))
    with pytest.raises(openai.BadRequestError, match="/v1/score"):
        s.client().embeddings.create(model="pairs", input="a")
    assert s.stop() == 0
