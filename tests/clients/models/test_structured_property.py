"""Random schemas on a random model: each finished answer is valid, and no other request moves it."""

import concurrent.futures
import json
import random
import shutil
import struct

import jsonschema_rs
import pytest
import requests

from conftest import ROOT

N_SCHEMAS = 120
NAMES = ["a", "b c", "é", "😀", '"q"', "\\", "line\nbreak", "</s>", "p0", "名前"]
PATTERNS = ["^[a-z]+$", r"^\d{3}$", "^(foo|bar)+$", "^(a|aa)+$", "^.{0,3}$", r"^[A-F0-9]{2}(-[A-F0-9]{2}){2}$", '^["\\\\]{1,3}$']
# Of each tokenizer, the id that ends an answer.
TOKENIZERS = {"bytelevel": 421, "fallback": 2}


def write_tensors(path, shapes, rng):
    head, data = {}, b""
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        scale = 3 * shape[-1] ** -0.5
        values = [rng.gauss(0, scale) for _ in range(n)] if len(shape) > 1 else [1.0] * n
        head[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * n]}
        data += struct.pack(f"<{n}e", *values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_model(folder, tokenizer, eos):
    """A llama model of one layer with random weights. Its vocabulary is larger than the tokenizer's."""
    width, inner, n_vocab = 64, 64, 448
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "text" / "data" / tokenizer / "tokenizer.json", folder)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": width,
              "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
              "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "torch_dtype": "float16", "vocab_size": n_vocab, "bos_token_id": None, "eos_token_id": eos}
    (folder / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [n_vocab, width], "lm_head.weight": [n_vocab, width], "model.norm.weight": [width],
              layer + "input_layernorm.weight": [width], layer + "post_attention_layernorm.weight": [width],
              layer + "self_attn.q_proj.weight": [width, width], layer + "self_attn.k_proj.weight": [width // 2, width],
              layer + "self_attn.v_proj.weight": [width // 2, width], layer + "self_attn.o_proj.weight": [width, width],
              layer + "mlp.gate_proj.weight": [inner, width], layer + "mlp.up_proj.weight": [inner, width],
              layer + "mlp.down_proj.weight": [width, inner]}
    write_tensors(folder / "model.safetensors", shapes, random.Random(1))
    return folder


def leaf(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return {"enum": rng.sample([None, True, 0, -1, 3.5, "é😀", [], {"a": 1}, "\n"], rng.randrange(1, 5))}
    if kind == 1:
        least = rng.randrange(-1000, 1000)
        return {"type": "integer", "minimum": least, "exclusiveMaximum": least + rng.choice([1, 3, 10**6, 10**17])}
    if kind == 2:
        return {"type": "number", "exclusiveMinimum": rng.uniform(-5, 0), "maximum": rng.choice([0, 1, 7.25])}
    if kind == 3:
        return {"type": "string", "pattern": rng.choice(PATTERNS), "maxLength": rng.randrange(8, 16)}
    if kind == 4:
        return {"type": "string", "minLength": rng.randrange(3), "maxLength": rng.randrange(3, 8)}
    return {"type": rng.sample(["null", "boolean", "integer"], rng.randrange(1, 4)), "maximum": 99, "minimum": -9}


def schema(rng, depth):
    kind = rng.random() if depth else 1
    if kind < 0.45:
        names = rng.sample(NAMES, rng.randrange(4))
        return {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names},
                "required": [name for name in names if rng.random() < 0.7], "additionalProperties": False}
    if kind < 0.65:
        least = rng.randrange(3)
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": least, "maxItems": least + rng.randrange(3)}
    if kind < 0.75:
        return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randrange(1, 4))]}
    return leaf(rng)


def request(seed):
    rng = random.Random(seed)
    return {"prompt": rng.choice(["hi", "[1, 2", "a b c"]), "max_tokens": 300, "seed": seed, "n": rng.choice([1, 1, 3]),
            "temperature": rng.choice([0.3, 0.7, 1, 1.5]), "logprobs": 1, "return_token_ids": True,
            "structured_outputs": {"json": schema(rng, 3)}}


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_finished_answer_is_valid(tokenizer, start, tmp_path):
    model = make_model(tmp_path / "model", tokenizer, TOKENIZERS[tokenizer])
    # Few blocks: in the busy batch, sequences are preempted.
    server = start("serve", model, "--port", "0", "--max-model-len", "512", "--num-kv-blocks", "80", "--served-model-name", "m")

    def ask(body):
        answer = requests.post(server.url + "/v1/completions", json={"model": "m", **body}, timeout=300)
        assert answer.status_code == 200, (body, answer.text)
        return answer.json()["choices"]

    bodies = [request(seed) for seed in range(N_SCHEMAS)]
    alone = [ask(body) for body in bodies]
    n_finished = 0
    for body, choices in zip(bodies, alone):
        for choice in choices:
            assert choice["finish_reason"] in ("stop", "length")
            if choice["finish_reason"] == "stop":
                value = json.loads(choice["text"])
                jsonschema_rs.Draft202012Validator(body["structured_outputs"]["json"]).validate(value)
                n_finished += 1
    assert n_finished > 0.8 * sum(len(choices) for choices in alone)
    without_forced = [{**body, "num_speculative_tokens": 0} for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, bodies)) == alone
        assert list(pool.map(ask, without_forced)) == alone
    assert server.metric("quire:kv_blocks_leaked") == 0
