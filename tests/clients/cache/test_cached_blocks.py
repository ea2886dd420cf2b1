"""KV blocks of cached responses: in a small pool with other requests in between, a conversation that continues after
a cached response finds its blocks if the pool reserves a share for them."""

from conftest import MODEL, Server
from rig import answered, clear_cache, stats, wait_until

BLOCK = 16


def ask(server, body, path="/v1/completions"):
    reply = answered(server, path, body).json()
    return reply["choices"][0], reply["usage"]


QUESTION = {"prompt": "Once upon a time there was a dog who", "temperature": 0, "ignore_eos": True}


def serve(*options):
    return Server("serve", MODEL, "--port", "0", "--response-cache", "memory", "--block-size", BLOCK, "--num-kv-blocks", 48,
                  "--max-model-len", 384, *options)


def churn(server):
    """At least twice the pool; these responses are cached, too."""
    for i in range(16):
        ask(server, {"prompt": f"{i}: {' '.join(chr(97 + (i + k) % 26) for k in range(40))}", "max_tokens": 60, "temperature": 0,
                     "ignore_eos": True})


def goes_on(*options, n_hits=2):
    """Requests an answer of 64 tokens, then the same n_hits times. Other requests use a pool of 48 blocks; then 120
    tokens continue the conversation. Returns the number of prompt tokens computed for that, the answer, and the
    cache's figures before it."""
    server = serve(*options)
    try:
        for _ in range(1 + n_hits):
            ask(server, {**QUESTION, "max_tokens": 64})
        churn(server)
        # The engine's figures are as old as its last step.
        wait_until(lambda: server.metric("quire:pinned_answer_kv_blocks") == stats(server)["pinned_blocks"])
        told = stats(server)
        before = server.metric("vllm:prefix_cache_queries_total"), server.metric("vllm:prefix_cache_hits_total")
        answer, usage = ask(server, {**QUESTION, "max_tokens": 120})
        assert usage["completion_tokens"] == 120 and stats(server)["resumed"] == 1
        n_asked = server.metric("vllm:prefix_cache_queries_total") - before[0]
        assert n_asked == usage["prompt_tokens"] + 64
        n_computed = n_asked - (server.metric("vllm:prefix_cache_hits_total") - before[1])
        clear_cache(server)
        ask(server, {"prompt": "a", "max_tokens": 1})
        wait_until(lambda: server.metric("quire:pinned_answer_kv_blocks") == 0)
        assert server.metric("quire:kv_blocks_leaked") == 0
        return n_computed, answer, told
    finally:
        assert server.stop() == 0, server.output()


def test_a_longer_answer_goes_on_in_a_pool_under_pressure():
    without, answer, told = goes_on("--max-pinned-percent", "0")
    assert without > 64 and told["pinned_answers"] == 0
    least, same, told = goes_on("--max-pinned-percent", "25")
    assert least <= BLOCK and same == answer
    assert 0 < told["pinned_blocks"] <= 12 and told["pinned_answers"] > 0 and told["pinned_bytes"] > 0
    # It was never served again: the later responses, which rank equal, took its blocks.
    assert goes_on("--max-pinned-percent", "25", n_hits=0)[0] > 64


def test_a_chat_goes_on_after_its_answer():
    said = []
    for percent in (0, 25):
        server = serve("--max-pinned-percent", str(percent))
        try:
            body = {"messages": [{"role": "user", "content": "please tell me about the dog"}], "temperature": 0}
            for _ in range(3):
                answer, first = ask(server, body, "/v1/chat/completions")
            churn(server)
            body["messages"] += [{"role": "assistant", "content": answer["message"]["content"]}, {"role": "user", "content": "and the cat"}]
            answer, usage = ask(server, body, "/v1/chat/completions")
            said.append(answer)
            n_there, n_found = first["total_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
            assert n_found == 0 if percent == 0 else n_there - n_found <= BLOCK, (first, usage)
        finally:
            assert server.stop() == 0, server.output()
    assert said[0] == said[1]
