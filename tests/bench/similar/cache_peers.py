#!/usr/bin/env python3
"""500 pairs of questions sent to real caches: which answer does the second one get?

    python3 tests/bench/similar/similar_pairs.py > pairs.jsonl
    VENV/bin/python tests/bench/similar/cache_peers.py pairs.jsonl MINILM [--json FILE]

Each pair by itself: its first question is answered, then the second is sent. "given": it got the first one's answer;
"wrong": it did although it is a different question. At thresholds 0.80, 0.92 and 0.95, the same vectors
(all-MiniLM-L6-v2) for all:

  GPTCache   adapter.api put and get: SBERT, faiss, SQLite, SearchDistanceEvaluation, as its documentation begins.
  Its threshold is a share of the range of squared distances (0 to 4), so 0.80 accepts a cosine of 0.6.
  LiteLLM    completion() with Cache(type="qdrant-semantic") and mock replies. Vectors come from a Quire's /v1/embeddings. Qdrant is its client's
             local mode behind the five routes that LiteLLM calls: no server of it is in a package registry.
  Quire      --semantic-mode answer, and draft, over HTTP: the demo model. Draft's replies are compared with a server's without caches.

VENV: gptcache, faiss-cpu, sqlalchemy below 2, sentence-transformers, litellm[proxy], qdrant-client. MINILM: the model's directory.
"""

import argparse
import atexit
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parents[3]
QUIRE = os.environ.get("QUIRE", str(ROOT / "build" / "quire"))
MODEL = ROOT / "tools" / "demo_model" / "model"
THRESHOLDS = (0.80, 0.92, 0.95)


class Server:
    def __init__(self, *arguments):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([QUIRE, "serve", *map(str, arguments), "--port", "0"], stdout=self.log, stderr=subprocess.STDOUT)
        atexit.register(self.process.kill)
        while not (match := re.search(r"http://[0-9.]+:(\d+)", pathlib.Path(self.log.name).read_text())):
            if self.process.poll() is not None:
                raise RuntimeError(pathlib.Path(self.log.name).read_text())
            time.sleep(0.05)
        self.url = f"http://127.0.0.1:{match.group(1)}"

    def ask(self, question, pair):
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 400, "cache": {"namespace": str(pair)}}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["choices"][0]["message"]["content"], reply.headers["x-quire-cache"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def count(pairs, given):
    """given: for each pair whether its second question got the first one's answer."""
    return {"given": sum(given), "wrong": sum(g and not p["same"] for g, p in zip(given, pairs)), "right": sum(g and p["same"] for g, p in zip(given, pairs)),
            "of_differing": sum(not p["same"] for p in pairs), "of_same": sum(p["same"] for p in pairs)}


def gptcache_given(pairs, minilm):
    from gptcache import Cache, Config
    from gptcache.adapter.api import get, put
    from gptcache.embedding import SBERT
    from gptcache.manager import CacheBase, VectorBase, get_data_manager
    from gptcache.processor.pre import get_prompt
    from gptcache.similarity_evaluation import SearchDistanceEvaluation
    sbert = SBERT(minilm)
    given = {t: [] for t in THRESHOLDS}
    directory = tempfile.mkdtemp()  # it writes there when the process ends
    for i, p in enumerate(pairs):
        cache = Cache()
        cache.init(pre_embedding_func=get_prompt, embedding_func=sbert.to_embeddings, similarity_evaluation=SearchDistanceEvaluation(),
                   data_manager=get_data_manager(CacheBase("sqlite", sql_url=f"sqlite:///{directory}/{i}.db"),
                                                 VectorBase("faiss", dimension=sbert.dimension, index_path=f"{directory}/{i}")))
        put(p["a"], "the first", cache_obj=cache)
        for t in THRESHOLDS:
            cache.config = Config(similarity_threshold=t)
            given[t].append(get(p["b"], cache_obj=cache) == "the first")
    return given


class Qdrant(BaseHTTPRequestHandler):
    """The routes of Qdrant's HTTP interface that LiteLLM calls, implemented by its client's local mode."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    client = None

    def log_message(self, *_):
        pass

    def reply(self, result):
        text = json.dumps({"result": result, "status": "ok"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer(self):
        from qdrant_client import models
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        parts = self.path.split("?")[0].strip("/").split("/")
        name, rest, c = parts[1], parts[2:], Qdrant.client
        with Qdrant.lock:
            if rest == ["exists"]:
                return self.reply({"exists": c.collection_exists(name)})
            if rest == ["points", "search"]:
                must = [models.FieldCondition(key=m["key"], match=models.MatchValue(value=m["match"]["value"])) for m in body["filter"]["must"]]
                found = c.query_points(name, query=body["vector"], query_filter=models.Filter(must=must), limit=body["limit"], with_payload=True).points
                return self.reply([{"id": f.id, "score": f.score, "payload": f.payload} for f in found])
            if rest == ["points"]:
                c.upsert(name, [models.PointStruct(**p) for p in body["points"]])
            elif rest == [] and self.command == "PUT":
                c.create_collection(name, models.VectorParams(size=body["vectors"]["size"], distance=models.Distance.COSINE))
            return self.reply(True)

    do_GET = do_PUT = do_POST = answer


def litellm_given(pairs, minilm):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from qdrant_client import QdrantClient
    Qdrant.client = QdrantClient(":memory:")
    qdrant = ThreadingHTTPServer(("127.0.0.1", 0), Qdrant)
    threading.Thread(target=qdrant.serve_forever, daemon=True).start()
    embedder = Server(minilm, "--served-model-name", "minilm")
    os.environ.update(OPENAI_API_KEY="none", OPENAI_API_BASE=embedder.url + "/v1", OPENAI_BASE_URL=embedder.url + "/v1")
    litellm.cache = litellm.Cache(type="qdrant-semantic", qdrant_api_base=f"http://127.0.0.1:{qdrant.server_port}", qdrant_collection_name="c",
                                  similarity_threshold=1, qdrant_semantic_cache_embedding_model="openai/minilm", qdrant_semantic_cache_vector_size=384)
    given = {t: [] for t in THRESHOLDS}

    def say(question, pair, reply):
        return litellm.completion(model=f"openai/m{pair}", messages=[{"role": "user", "content": question}], mock_response=reply,
                                  cache={"no-store": reply != "the first"}).choices[0].message.content
    for i, p in enumerate(pairs):
        say(p["a"], i, "the first")
        for _ in range(200):  # it is written by a thread
            if Qdrant.client.count("c").count > i:
                break
            time.sleep(0.01)
        for t in THRESHOLDS:
            litellm.cache.cache.similarity_threshold = t
            given[t].append(say(p["b"], i, "the second") == "the first")
    embedder.stop()
    qdrant.shutdown()
    return given


def quire_given(pairs, minilm, threshold):
    on = Server(MODEL, "--served-model-name", "demo", "--semantic-cache", minilm, "--semantic-threshold", threshold, "--semantic-mode", "answer")
    given = []
    for i, p in enumerate(pairs):
        on.ask(p["a"], i)
        given.append(on.ask(p["b"], i)[1] in ("semantic", "exact"))
    on.stop()
    return given


def quire_drafts(pairs, minilm):
    """Replies that differ from those of a server without caches, at the least threshold; and how many had a draft."""
    off, on = Server(MODEL), Server(MODEL, "--served-model-name", "demo", "--semantic-cache", minilm, "--semantic-threshold", THRESHOLDS[0])
    differ = drafts = 0
    for i, p in enumerate(pairs):
        for q in (p["a"], p["b"]):
            said, how = on.ask(q, i)
            differ += said != off.ask(q, i)[0]
            drafts += how == "draft"
    on.stop()
    off.stop()
    return {"replies": 2 * len(pairs), "drafted": drafts, "wrong": differ}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pairs")
    p.add_argument("minilm")
    p.add_argument("--json")
    p.add_argument("--only", nargs="*", default=["gptcache", "litellm", "quire"])
    options = p.parse_args()
    pairs = [json.loads(line) for line in open(options.pairs, encoding="utf-8")]
    out = {"pairs": len(pairs)}
    if "gptcache" in options.only:
        out["gptcache"] = {t: count(pairs, g) for t, g in gptcache_given(pairs, options.minilm).items()}
    if "litellm" in options.only:
        out["litellm"] = {t: count(pairs, g) for t, g in litellm_given(pairs, options.minilm).items()}
    if "quire" in options.only:
        out["quire answer"] = {t: count(pairs, quire_given(pairs, options.minilm, t)) for t in THRESHOLDS}
        out["quire draft"] = quire_drafts(pairs, options.minilm)
    print(json.dumps(out, indent=1))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
