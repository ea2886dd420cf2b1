"""Embeddings, scores and ranks, over a fake engine whose vectors a test can compute."""

import base64
import json
import math
import pathlib
import struct
import sys
import tempfile
import threading

from harness import Server, post_bytes, run_tests

EMBED, SCORE, RERANK = "/v1/embeddings", "/v1/score", "/v1/rerank"
SIZE = 5
WORDS = ["[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "one", "two", "three", "four", "word"]


def encoder_tokenizer(place, begin, end, between, second):
    """A tokenizer of words, with special tokens around a text and between the two texts of a pair, like BERT's and
    XLM-R's."""
    token = lambda name, kind=0: {"SpecialToken": {"id": name, "type_id": kind}}
    text = lambda name, kind=0: {"Sequence": {"id": name, "type_id": kind}}
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    pathlib.Path(place, "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [{"id": i, "content": w, **special} for i, w in enumerate(WORDS[:5])],
        "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None,
        "post_processor": {"type": "TemplateProcessing", "single": [token(begin), text("A"), token(end)],
                           "pair": [token(begin), text("A"), *map(token, between), text("B", second), token(end, second)],
                           "special_tokens": {w: {"id": w, "ids": [i], "tokens": [w]} for i, w in enumerate(WORDS[:5])}},
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {w: i for i, w in enumerate(WORDS)}}}))
    return place


def words(*names):
    return [WORDS.index(name) for name in names]


def ids_of(text, special=True):
    return embedder.post("/tokenize", {"prompt": text, "add_special_tokens": special})[1]["tokens"]


def vector(ids, segment_from=0):
    return [sum((2 if segment_from and i >= segment_from else 1) * ((t + i) % (k + 3)) for i, t in enumerate(ids)) for k in range(SIZE)]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def embed(body, **kwargs):
    status, reply = embedder.post(EMBED, body, **kwargs)
    assert status == 200, reply
    assert reply["object"] == "list" and [d["index"] for d in reply["data"]] == list(range(len(reply["data"])))
    return reply


def refused(server, path, body, status, word):
    got, reply = server.post(path, body)
    assert got == status and word in reply["error"]["message"], (got, reply)


def test_texts_ids_and_lists():
    one, two = ids_of("hello there"), ids_of("a river")
    for body, want in (("hello there", [one]), (["hello there", "a river"], [one, two]), (one, [one]), ([one, two, [7]], [one, two, [7]])):
        reply = embed({"input": body, "model": "fake"})
        assert [d["embedding"] for d in reply["data"]] == [vector(ids) for ids in want], body
        assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] == sum(map(len, want))


def test_base64_is_the_same_numbers():
    want = embed({"input": ["one", "two words"]})["data"]
    got = embed({"input": ["one", "two words"], "encoding_format": "base64"})["data"]
    for a, b in zip(want, got):
        raw = base64.b64decode(b["embedding"])
        assert list(struct.unpack(f"<{SIZE}f", raw)) == a["embedding"]


def test_dimensions_are_of_length_one():
    whole = embed({"input": "one two three"})["data"][0]["embedding"]
    some = embed({"input": "one two three", "dimensions": 3})["data"][0]["embedding"]
    length = math.sqrt(sum(x * x for x in whole[:3]))
    assert len(some) == 3 and all(abs(a / length - b) < 1e-6 for a, b in zip(whole, some))
    for body in ({"dimensions": SIZE}, {"dimensions": float(SIZE)}, {"normalize": True}, {"use_activation": True}):
        full = embed({"input": "one two three", **body})["data"][0]["embedding"]
        length = math.sqrt(sum(x * x for x in whole))
        assert len(full) == SIZE and all(abs(a / length - b) < 1e-6 for a, b in zip(whole, full)), body


def test_what_would_change_the_numbers_is_refused():
    for field, values in (("input_type", ["query", 1]), ("prompt_name", ["query"]), ("prompt", ["Represent this: "]), ("normalize", [False, 1, "x"]),
                          ("embed_dtype", ["float16", "bfloat16", 1]), ("output_dtype", ["int8"]), ("endianness", ["big"]),
                          ("task", ["retrieval.query"]), ("late_chunking", [True]), ("truncation_direction", ["Left"]), ("task_type", ["retrieval"]),
                          ("embedding_type", ["binary"]), ("use_activation", [False, 1]), ("activation", [False]), ("truncation", [False]), ("truncate", [False, "START", "NONE"])):
        for value in values:
            status, reply = embedder.post(EMBED, {"input": "one", field: value})
            error = reply["error"]
            assert (status, error["param"]) == (400, field) and field in error["message"], (field, value, reply)
    plain = embed({"input": "one"})["data"]
    for same in ({"input_type": None}, {"prompt_name": ""}, {"embed_dtype": "float32"}, {"endianness": "little"}, {"late_chunking": False},
                 {"embedding_type": "float"}, {"truncate": "END"}, {"truncate": True}, {"truncation": True}):
        assert embed({"input": "one", **same})["data"] == plain, same
    for mixed in (["one", [1]], [[1], "one"], ["one", "two", [1]]):
        status, reply = embedder.post(EMBED, {"input": mixed})
        assert (status, reply["error"]["param"]) == (400, "input"), (mixed, reply)
    for path, pair in (("/v1/score", {"text_1": "one", "text_2": "two"}), ("/v1/rerank", {"query": "one", "documents": ["two"]})):
        scores = lambda **body: embedder.post(path, {**pair, **body})
        for body in ({"use_activation": False}, {"activation": False}, {"raw_scores": True}, {"overlap_tokens": 2}, {"truncation": False}):
            assert (scores(**body)[0], scores(**body)[1]["error"]["param"]) == (400, list(body)[0]), (path, body)
        for body in ({"use_activation": True}, {"raw_scores": False}):
            assert scores(**body)[0] == 200, (path, body)
    score = {"text_1": "one", "text_2": "two", "max_tokens_per_doc": 4}
    assert embedder.post("/v1/score", score)[1]["error"]["param"] == "max_tokens_per_doc"


def test_documents_are_cut():
    """max_tokens_per_doc counts a document's own tokens, for a model that embeds and for one that scores pairs."""
    long, short = "two " * 50, "two two two"
    ask = {"query": "one " * 9, "documents": [long, short]}
    with tempfile.TemporaryDirectory() as place:
        tokenizer = encoder_tokenizer(place, "[CLS]", "[SEP]", ["[SEP]"], 1)
        for arguments, n_whole, n_cut in ((["--vectors", SIZE], 11 + 52 + 5, 11 + 5 + 5), (["--scores", 1], 2 * 12 + 53, 2 * 12 + 6)):
            with Server(*arguments, "--max-model-len", 100, tokenizer=tokenizer) as s:
                def ranked(**body):
                    status, reply = s.post("/v1/rerank", {**ask, **body})
                    assert status == 200, reply
                    return reply["usage"]["prompt_tokens"], {r["index"]: r["relevance_score"] for r in reply["results"]}
                assert ranked()[0] == ranked(max_tokens_per_doc=0)[0] == ranked(max_tokens_per_doc=99)[0] == n_whole
                assert ranked(max_tokens_per_doc=3)[0] == ranked(max_tokens_per_doc=3.0)[0] == n_cut
                assert len(set(ranked(max_tokens_per_doc=3)[1].values())) == 1, "cut, they are the same document"
                for bad in (-1, "x", 1.5):
                    assert s.post("/v1/rerank", {**ask, "max_tokens_per_doc": bad})[1]["error"]["param"] == "max_tokens_per_doc"


def test_long_texts_are_cut():
    long = "word " * 500
    with tempfile.TemporaryDirectory() as place, Server(
            "--vectors", SIZE, "--max-model-len", 16, tokenizer=encoder_tokenizer(place, "[CLS]", "[SEP]", ["[SEP]"], 1)) as s:
        def read(n_tokens, **body):
            reply = s.post(EMBED, body)[1]
            assert reply["usage"]["prompt_tokens"] == n_tokens, reply
            return [d["embedding"] for d in reply["data"]]
        whole = words("[CLS]", *["word"] * 14, "[SEP]")
        assert read(16 + 3, input=[long, "two"]) == [vector(whole), vector(words("[CLS]", "two", "[SEP]"))]
        assert read(4, input=long, truncate_prompt_tokens=4) == [vector(words("[CLS]", "word", "word", "[SEP]"))]
        assert read(16, input=long, add_special_tokens=False) == [vector(words(*["word"] * 16))]
        # ids also keep their end token
        assert read(16, input=words(*["word"] * 99)) == [vector(words(*["word"] * 15, "[SEP]"))]


def test_replies_are_bounded():
    """64 MiB with 15 or 6 bytes per number: 4,473,924 or 11,184,810 numbers."""
    size = 8000
    with Server("--vectors", size) as s:
        for n, more in ((560, {}), (1399, {"encoding_format": "base64"})):
            refused(s, EMBED, {"input": ["x"] * n, **more}, 400, "64 MiB")
            reply = s.post(EMBED, {"input": ["x"] * n, "dimensions": 2, **more})[1]
            assert len(reply.get("data", [])) == n, reply


def test_many_texts_come_in_their_order():
    texts = [f"text number {i} " + "x " * (i % 7) for i in range(700)]
    reply = embed({"input": texts})
    for i in (0, 1, 15, 16, 17, 333, 699):
        assert reply["data"][i]["embedding"] == vector(ids_of(texts[i])), i


def test_scores_are_cosines_of_an_embedder():
    a, b, c = (vector(ids_of(t)) for t in ("one", "two three", "four"))
    reply = embedder.post(SCORE, {"text_1": "one", "text_2": ["two three", "four"]})[1]
    assert [abs(d["score"] - w) < 1e-6 for d, w in zip(reply["data"], (cosine(a, b), cosine(a, c)))] == [True, True], reply
    reply = embedder.post("/score", {"text_1": ["one", "four"], "text_2": ["two three", "one"]})[1]
    assert abs(reply["data"][1]["score"] - cosine(c, a)) < 1e-6


def test_ranks():
    docs = ["two three", {"text": "four"}, "one"]
    for path in (RERANK, "/rerank", "/v2/rerank"):
        reply = embedder.post(path, {"query": "one", "documents": docs})[1]
        got = [(r["index"], r["document"]["text"]) for r in reply["results"]]
        assert got[0] == (2, "one") and {i for i, _ in got} == {0, 1, 2}
        scores = [r["relevance_score"] for r in reply["results"]]
        assert scores == sorted(scores, reverse=True)
        reply = embedder.post(path, {"query": "one", "documents": docs, "top_n": 1, "return_documents": False})[1]
        assert len(reply["results"]) == 1 and "document" not in reply["results"][0]


def test_a_classifier_gets_pairs():
    for begin, end, between, second in (("[CLS]", "[SEP]", ["[SEP]"], 1), ("<s>", "</s>", ["</s>", "</s>"], 0)):
        with tempfile.TemporaryDirectory() as place, Server(
                "--scores", 1, "--max-model-len", 16, tokenizer=encoder_tokenizer(place, begin, end, between, second)) as s:
            def check(a, b, reply, n_tokens):
                ids = words(begin, *a, *between, *b, end)
                x = vector(ids, second and 1 + len(a) + len(between))[0] / 16 - 2
                assert abs(reply["data"][0]["score"] - 1 / (1 + math.exp(-x))) < 1e-6, (reply, x)
                assert reply["usage"]["prompt_tokens"] == len(ids) == n_tokens
            n = 2 + len(between)
            check(["one", "two"], ["three"], s.post(SCORE, {"text_1": "one two", "text_2": "three"})[1], n + 3)
            # The longer text is cut.
            check(["word"] * (14 - n), ["two"] * 2, s.post(SCORE, {"text_1": "word " * 50, "text_2": "two two"})[1], 16)
            check(["two"] * 2, ["word"] * (14 - n), s.post(SCORE, {"text_1": "two two", "text_2": "word " * 50})[1], 16)
            refused(s, SCORE, {"text_1": "one", "text_2": "two", "truncate_prompt_tokens": n + 1}, 400, "no room")
            assert s.post(RERANK, {"query": "one", "documents": ["three", "four"]})[0] == 200
            refused(s, EMBED, {"input": "one"}, 400, "/v1/score")
            refused(s, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, 400, "/v1/score")
    with tempfile.TemporaryDirectory() as place, Server("--scores", 1, tokenizer=encoder_tokenizer(place, "[CLS]", "[SEP]", [], 0)) as s:
        assert s.post(SCORE, {"text_1": "one", "text_2": "two"})[0] == 200
        broken = pathlib.Path(place, "tokenizer.json")
        text = json.loads(broken.read_text())
        text["post_processor"]["pair"] = text["post_processor"]["pair"][1:]
        broken.write_text(json.dumps(text))
        with Server("--scores", 1, tokenizer=place) as other:
            refused(other, SCORE, {"text_1": "one", "text_2": "two"}, 400, "post_processor")


def test_the_wrong_model():
    with Server() as s:
        for path, body in ((EMBED, {"input": "x"}), (SCORE, {"text_1": "x", "text_2": "y"}), (RERANK, {"query": "x", "documents": ["y"]})):
            refused(s, path, body, 400, "--task embed")
    refused(embedder, "/v1/completions", {"prompt": "x"}, 400, "/v1/embeddings")


def test_bad_bodies():
    for body, word in (({}, "input"), ({"input": []}, "input"), ({"input": ""}, "input"), ({"input": [""]}, "input"), ({"input": 5}, "input"),
                       ({"input": [[]]}, "input"), ({"input": [1, "a"]}, "input"), ({"input": ["a", 1]}, "input"), ({"input": [10**9]}, "input"),
                       ({"input": [[1], [-1]]}, "input"), ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": 99}, "dimensions"),
                       ({"input": "a", "dimensions": 1.5}, "dimensions"), ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
                       ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"), ({"input": ["a"] * 2049}, "2048"), ({"input": {"a": 1}}, "input")):
        refused(embedder, EMBED, body, 400, word)
    refused(embedder, EMBED, {"input": "a", "model": "other"}, 404, "other")
    for body, word in (({"text_1": "a"}, "text_2"), ({"text_1": ["a", "b"], "text_2": ["c"]}, "text_2"), ({"text_1": [], "text_2": "a"}, "text_1"),
                       ({"text_1": "a", "text_2": [1]}, "text_2"), ({"text_1": "a", "text_2": ["x"] * 2049}, "2048")):
        refused(embedder, SCORE, body, 400, word)
    for body, word in (({"query": "a"}, "documents"), ({"query": ["a"], "documents": ["b"]}, "query"), ({"query": "a", "documents": [{}]}, "documents"),
                       ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n")):
        refused(embedder, RERANK, body, 400, word)


def test_bytes_that_are_no_bodies():
    for data in (b'{"input": "a", "dimensions": NaN}', b'{"input": "a", "dimensions": 1e999}', b'{"input": "a"', b"[]", b"", b'{"input": "\xff"}'):
        status, _, reply = embedder.request("POST", EMBED, data)
        assert status == 400 and json.loads(reply)["error"]["message"], (data, reply)


def test_many_at_once():
    """Requests of the largest size together with small ones, and some that leave: each gets its own reply."""
    right = []

    def ask(n):
        texts = [[n + 1, i % 200] for i in range(2048 if n == 0 else 1 + 9 * n)]
        if n % 5 == 4:
            with embedder.connect() as c:
                c.sendall(post_bytes(EMBED, {"input": texts * 10}))
        elif [d["embedding"] for d in embed({"input": texts})["data"]] == [vector(ids) for ids in texts]:
            right.append(n)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(15)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(right) == [n for n in range(15) if n % 5 != 4], right
    assert embedder.idle()


def test_who_leaves_is_cancelled():
    with Server("--vectors", SIZE, "--interval-us", 200000) as s:
        import socket
        c = socket.create_connection(("127.0.0.1", s.port))
        body = json.dumps({"input": ["a b c"] * 300}).encode()
        c.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        c.close()
        assert s.post(EMBED, {"input": "still there"})[0] == 200


with Server("--vectors", SIZE) as embedder:
    run_tests(sys.modules[__name__])
