"""OpenAI's client with a chat model and a companion embedding model in one process; and a classifier of pairs alone."""

import base64
import json
import shutil
import string
import struct
import subprocess

import openai
import pytest
from conftest import MODEL, QUIRE, ROOT
from rig import answered, metrics

GOLDENS = ROOT / "tests" / "goldens" / "vectors"
LETTERS = string.ascii_lowercase
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *("##" + c for c in LETTERS)]
CLS, SEP = 2, 3


def ids_of(text):
    return [i for word in text.split() for i in (WORDS.index(word[0]), *(WORDS.index("##" + c) for c in word[1:]))]


def model(place, golden, between=("[SEP]",), second=1):
    """The golden's model with a tokenizer of letters. The tokenizer's own truncation, to 4 tokens, is ignored.
    between, second: the tokens between a pair's texts, and the type of the second one."""
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
                           "pair": [token("[CLS]"), text("A", 0), *map(token, between), text("B", second), {"SpecialToken": {"id": "[SEP]", "type_id": second}}],
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
    reply = client.embeddings.create(model="tiny", input=texts)  # the client requests base64
    assert reply.model == "tiny" and [d.index for d in reply.data] == [0, 1, 2]
    assert reply.usage.prompt_tokens == sum(len(ids_of(t)) + 2 for t in texts)
    for text, among in zip(texts, reply.data):
        assert len(among.embedding) == 64 and abs(sum(x * x for x in among.embedding) - 1) < 1e-5
        alone = client.embeddings.create(model="tiny", input=text, encoding_format="float").data[0].embedding
        by_ids = client.embeddings.create(model="tiny", input=[CLS, *ids_of(text), SEP], encoding_format="base64").data[0].embedding
        bits = struct.pack("<64f", *among.embedding)
        assert struct.pack("<64f", *alone) == bits == base64.b64decode(by_ids)
    assert 'quire:vectors_total{model_name="demo",engine="0"} 0\nquire:vectors_total{model_name="tiny",engine="1"} 9\n' in metrics(both)
    short = client.embeddings.create(model="tiny", input="three", dimensions=8).data[0].embedding
    assert len(short) == 8 and abs(sum(x * x for x in short) - 1) < 1e-5


def test_long_texts_are_cut_at_the_models_length(both):
    client, long = both.client(), "abc " * 100
    reply = client.embeddings.create(model="tiny", input=long)
    assert reply.usage.prompt_tokens == 140
    same = client.embeddings.create(model="tiny", input=[CLS, *ids_of(long)[:138], SEP])
    assert same.data[0].embedding == reply.data[0].embedding


@pytest.mark.parametrize("mark", ["-", "—", "。", "a-", "--- "])
def test_a_million_marks_are_tokens(both, mark):
    """BERT makes a token of each; the model reads its maximum number of them."""
    client = both.client()
    read = lambda n: client.embeddings.create(model="tiny", input=mark * n, encoding_format="float")
    whole, short = read(1_000_000 // len(mark)), read(600)
    assert whole.usage.prompt_tokens == short.usage.prompt_tokens and whole.data[0].embedding == short.data[0].embedding


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


def test_both_models_are_seen(both):
    read = lambda path: answered(both, path).json()
    for path in ("/health", "/health/live"):
        assert read(path) == {"status": "ok", "models": {"demo": "ok", "tiny": "ok"}}
    both.client().embeddings.create(model="tiny", input="abc")
    lines = metrics(both).splitlines()
    value = lambda name, labels: next(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{{labels}}} "))
    first, second = 'model_name="demo",engine="0"', 'model_name="tiny",engine="1"'
    assert value("quire:engine_up", first) == value("quire:engine_up", second) == 1
    assert value("quire:engine_prompt_tokens_total", second) >= 5 and value("vllm:num_requests_running", second) == 0
    assert value("quire:kv_blocks", first) != value("quire:kv_blocks", second) > 0
    assert value("vllm:e2e_request_latency_seconds_count", second) >= 1
    for i, line in enumerate(lines):  # samples of a metric are contiguous
        assert line.startswith("#") or "engine=\"1\"" not in line or lines[i - 1].split("{")[0].rsplit("_", 1)[0] in line, line


def test_text_of_either_model(both):
    assert answered(both, "/tokenize", {"model": "tiny", "prompt": "one two"}).json() == {
        "count": 8, "max_model_len": 140, "tokens": [CLS, *ids_of("one two"), SEP], "token_strs": None}
    assert answered(both, "/detokenize", {"model": "tiny", "tokens": ids_of("one two")}).json()["prompt"] == "one two"
    of_first = answered(both, "/tokenize", {"prompt": "one two"}).json()
    assert of_first == answered(both, "/tokenize", {"model": "demo", "prompt": "one two"}).json() and of_first["max_model_len"] == 64


def test_the_plan_of_both(tmp_path):
    tiny = model(tmp_path / "tiny", "bert_mean")
    plan = lambda *more: subprocess.run([QUIRE, "plan", MODEL, *map(str, more)], capture_output=True, text=True)
    alone, both = (json.loads(plan(*more, "--json").stdout) for more in ((), ("--embedding-model", tiny)))
    second = both.pop("embedding_model")
    assert both.pop("resident_bytes") > alone.pop("resident_bytes") > alone["total_bytes"]  # of the process
    assert both == alone and second["architecture"] == "BertModel" and second["total_bytes"] > second["kv_bytes"] > 0
    text = plan("--embedding-model", tiny).stdout
    assert f"{alone['total_bytes'] + second['total_bytes']} bytes" in next(l for l in text.splitlines() if l.startswith("  both"))
    for more, says in (([tmp_path / "absent"], "--embedding-model: "), ([tiny, "--task", "sing"], "--task: must be"),
                       ([tiny, "--task", "embed"], "is an embedding model, too")):
        got = plan("--embedding-model", *more)
        assert got.returncode == 1 and says in got.stderr, got
    got = subprocess.run([QUIRE, "plan", tiny, "--swap-space", "1"], capture_output=True, text=True)
    assert got.returncode == 1 and "--swap-space" in got.stderr


def test_batches_that_wait_give_the_same_bits(both, start, tmp_path):
    tiny = model(tmp_path / "tiny", "bert_mean")
    s = start("serve", MODEL, "--embedding-model", tiny, "--port", "0", "--embedding-batch-size", "3", "--embedding-batch-wait-ms", "20")
    texts = ["one", "two", "three", "four"]
    got = [c.embeddings.create(model="tiny", input=texts).data for c in (s.client(), both.client())]
    assert [d.embedding for d in got[0]] == [d.embedding for d in got[1]]
    assert s.stop() == 0, s.output()


@pytest.mark.parametrize("golden, between, second, transformers", [
    ("bert_labels", ["[SEP]"], 1, [0.6875866, 0.6452518, 0.7918027]),
    ("xlmr_labels", ["[SEP]", "[SEP]"], 0, [0.3282616, 0.3394015, 0.4399507]),  # like XLM-R's: <s> A </s></s> B </s>
])
def test_scores_of_pairs(start, tmp_path, golden, between, second, transformers):
    s = start("serve", model(tmp_path / "pairs", golden, between, second), "--port", "0")
    texts = ["three", "four", "one two"]
    reply = lambda a, b: answered(s, "/v1/score", {"text_1": a, "text_2": b}).json()
    score = lambda a, b: [d["score"] for d in reply(a, b)["data"]]
    many = score("one two", texts)
    assert many == pytest.approx(transformers, abs=1e-6) and len(set(many)) == 3
    assert reply("one two", "three")["usage"]["prompt_tokens"] == 11 + 2 + len(between)
    assert [score("one two", t)[0] for t in texts] == many
    assert score("three", "one two") != score("one two", "three")
    ranked = answered(s, "/v2/rerank", {"query": "one two", "documents": texts, "top_n": 2}).json()["results"]
    assert [r["relevance_score"] for r in ranked] == sorted(many, reverse=True)[:2] and ranked[0]["index"] == many.index(max(many))
    with pytest.raises(openai.BadRequestError, match="/v1/score"):
        s.client().embeddings.create(model="pairs", input="a")
    assert s.stop() == 0
