"""faiss, GPTCache's vector store, on the vectors that vector_bench wrote.

    vector_bench 100000 384 topics 200 FILE
    python3 tests/bench/similar/vector_peer.py FILE 100000 384 200        (needs numpy and faiss-cpu)

One thread, one query at a time, the nearest one. IndexFlatIP compares all; IndexHNSWFlat is a graph (M 32, built with
efConstruction 100), whose recall is the share of nearest ones it finds. Prints JSON lines.
"""
import json
import sys
import time

import faiss
import numpy


def look(index, queries):
    took, found = [], []
    for q in queries:
        begun = time.perf_counter()
        _, ids = index.search(q[None, :], 1)
        took.append((time.perf_counter() - begun) * 1e3)
        found.append(int(ids[0][0]))
    took.sort()
    return {"mean_ms": round(sum(took) / len(took), 3), "p50_ms": round(took[len(took) // 2], 3),
            "p95_ms": round(took[len(took) * 95 // 100], 3)}, found


def main():
    path, n, width, n_queries = sys.argv[1], *map(int, sys.argv[2:5])
    data = numpy.fromfile(path, dtype=numpy.float32).reshape(n + n_queries, width)
    vectors, queries = data[:n], data[n:]
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(width)
    flat.add(vectors)
    figures, nearest = look(flat, queries)
    print(json.dumps({"peer": f"faiss {faiss.__version__} IndexFlatIP", "vectors": n, **figures}), flush=True)
    graph = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 100
    begun = time.perf_counter()
    graph.add(vectors)
    built_s = round(time.perf_counter() - begun, 1)
    for ef in (16, 64, 256, 1024):
        graph.hnsw.efSearch = ef
        figures, found = look(graph, queries)
        recall = [a == b for a, b in zip(found, nearest)]
        near = [r for i, r in enumerate(recall) if (n + i) % 2]
        print(json.dumps({"peer": "IndexHNSWFlat", "vectors": n, "ef": ef, "built_s": built_s, **figures,
                          "recall": sum(recall) / len(recall), "recall_paraphrases": sum(near) / len(near)}), flush=True)


if __name__ == "__main__":
    main()
