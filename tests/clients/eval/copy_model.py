"""A model whose weights are constructed so that it copies: after a word it says what followed that word the last time.

Llama with two layers of one head of 64 and no MLP to speak of. The stream is [code of the token | code of the token
before | code to say | one]. Layer 1 attends to the position before: its q and k are constants, which RoPE turns so that
the score is largest at distance 1. Layer 2 attends to where the code of the token before is this token's: q and k lie in
the pairs that RoPE hardly turns. Words are tokens.
"""

import json
import math
import random
import struct

CODE, HEAD = 32, 64
HIDDEN = 4 * CODE
ROPE_THETA = 1e12
MLP = 16


def half(values):
    return struct.pack(f"<{len(values)}f", *values)


def matrix(rows, cols, entries):
    values = [0.0] * (rows * cols)
    for (r, c), v in entries.items():
        values[r * cols + c] = v
    return (rows, cols), half(values)


def write(directory, words):
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = ["<unk>", *dict.fromkeys(words)]
    draw = random.Random(1)
    codes = [[draw.choice((-1.0, 1.0)) for _ in range(CODE)] for _ in vocabulary]
    one = 3 * CODE
    freq = [ROPE_THETA ** (-2 * i / HEAD) for i in range(HEAD // 2)]
    turning, still = range(8), range(16, 32)  # pairs (i, i + HEAD / 2)
    tensors = {"model.embed_tokens.weight": ((len(vocabulary), HIDDEN), half([x for code in codes for x in code + [0.0] * (2 * CODE) + [4.0] + [0.0] * (CODE - 1)])),
               "model.norm.weight": ((HIDDEN,), half([1.0] * HIDDEN)),
               "lm_head.weight": ((len(vocabulary), HIDDEN), half([x for code in codes for x in [0.0] * (2 * CODE) + [8 * c for c in code] + [0.0] * CODE]))}
    # Score of distance d: sum over pairs of cos((d - 1) freq): k is ahead by one turn.
    first_q = {(i, one): 20.0 for i in turning}
    first_k = {}
    for i in turning:
        first_k[(i, one)] = 20 * math.cos(freq[i])
        first_k[(i + HEAD // 2, one)] = 20 * math.sin(freq[i])
    # 32 numbers of a code lie in the 16 pairs that stand still, two in each.
    place = [*still, *(i + HEAD // 2 for i in still)]
    second_q = {(place[c], c): 12.0 for c in range(CODE)}
    second_k = {(place[c], CODE + c): 12.0 for c in range(CODE)}
    value = {(c, c): 1.0 for c in range(CODE)}
    for layer, (q, k, to) in enumerate(((first_q, first_k, CODE), (second_q, second_k, 2 * CODE))):
        at = f"model.layers.{layer}."
        tensors[at + "self_attn.q_proj.weight"] = matrix(HEAD, HIDDEN, q)
        tensors[at + "self_attn.k_proj.weight"] = matrix(HEAD, HIDDEN, k)
        tensors[at + "self_attn.v_proj.weight"] = matrix(HEAD, HIDDEN, value)
        tensors[at + "self_attn.o_proj.weight"] = matrix(HIDDEN, HEAD, {(to + c, c): 1.0 for c in range(CODE)})
        for name, rows, cols in (("gate", MLP, HIDDEN), ("up", MLP, HIDDEN), ("down", HIDDEN, MLP)):
            tensors[f"{at}mlp.{name}_proj.weight"] = matrix(rows, cols, {})
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = ((HIDDEN,), half([1.0] * HIDDEN))
    header, data = {}, b""
    for name, (shape, payload) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": 2,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": HEAD, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": ROPE_THETA,
        "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": len(vocabulary), "bos_token_id": 0, "eos_token_id": 0}))
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}, "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(vocabulary)}, "unk_token": "<unk>"}}))
