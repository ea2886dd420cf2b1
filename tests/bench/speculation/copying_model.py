#!/usr/bin/env python3
"""Writes a checkpoint that copies: the shape, and so the cost, of Qwen2.5-0.5B, with constructed weights instead of
trained ones.

    python tests/bench/speculation/copying_model.py build/bench/models/copying [--gguf]

It continues with the word that followed the last eight words before, and replaces a few words (EDITS): it copies a
document with edits, and does nothing else. Speculation can thus be measured on repetitive text, at the cost of a real
model's steps, without a real model. Three of the 24 layers do that, the others have random weights and nearly no
effect:

- each token has a code of a few numbers (C), another by which the head tells it (O), and all have a one;
- layer 0: eight heads look one, two … eight tokens back (under RoPE the biases of q and k alone can do that), and write the codes;
- layer 1: one head of each KV head finds where these eight stood one place further on, and fetches O of what stood next;
- layer 1's MLP writes what was fetched as the answer, or the word that is to replace it. A replacement has the code
  of the word it replaces, so that the text is found again after it.

The tokenizer is a BPE of LICENSE's own words; the rest of the 151,936 tokens is never used. --gguf writes the same weights
for llama.cpp. Needs numpy, safetensors and tokenizers; --gguf needs gguf. One seed decides everything.
"""
import argparse
import json
import pathlib

import numpy
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[3]
VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP = 151936, 896, 24, 14, 2, 64, 4864
# So steep that the first few dimensions of a head distinguish positions, and the others, from SLOW on, do not rotate.
THETA = 1e15
FAST, SLOW = 6, 9
BACK = 8                      # words that must agree
CODE = 2 * (HEAD // 2 - SLOW) // BACK
NAMED = 128                   # numbers by which the head tells tokens apart
# Where things are in the residual stream.
CODES = [slice(d * CODE, (d + 1) * CODE) for d in range(BACK + 1)]  # of this token, of the one before …
ONE = CODES[-1].stop
FETCHED = slice(ONE + 1, ONE + 1 + NAMED)
ANSWER = slice(FETCHED.stop, FETCHED.stop + NAMED)

EDITS = {" License": " Agreement", " Licensor": " Provider", " Work": " Program", " Contributor": " Author", " copyright": " ownership",
         " Works": " Programs", " Contribution": " Addition", " Legal": " Corporate", " document": " paper", " form": " shape"}
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # Qwen2's
END = "<|endoftext|>"


def document():
    """The copied text, one paragraph per line."""
    paragraphs = (ROOT / "LICENSE").read_text().split("END OF TERMS")[0].split("\n\n")
    return "\n".join(" ".join(p.split()) for p in paragraphs if p.strip())


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    words = "".join((old + new) * 50 for old, new in EDITS.items())
    tokenizer.train_from_iterator([document(), words], trainers.BpeTrainer(
        vocab_size=4000, min_frequency=1, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return tokenizer


def edits(tokenizer):
    """The ids of EDITS: {old: new}."""
    ids = {}
    for old, new in EDITS.items():
        (ids_old,), (ids_new,) = ([i] for i in (tokenizer.token_to_id(w.replace(" ", "Ġ")) for w in (old, new)))
        assert ids_old is not None and ids_new is not None, (old, new)
        ids[ids_old] = ids_new
    return ids


def unit(rng, *shape):
    x = rng.standard_normal(shape, dtype=numpy.float32)
    return x / numpy.linalg.norm(x, axis=-1, keepdims=True)


def apart(codes, n, rounds=400):
    """The first n codes, spread apart."""
    x = codes[:n].astype(numpy.float64)
    for _ in range(rounds):
        near = numpy.exp(24 * (x @ x.T - 1))
        numpy.fill_diagonal(near, 0)
        x -= 0.1 * near @ x / near.sum(1, keepdims=True)
        x /= numpy.linalg.norm(x, axis=1, keepdims=True)
    codes[:n] = x


def random_layer(rng, layer, w):
    """A layer with its full cost and nearly no effect."""
    def normal(name, rows, cols, scale):
        w[f"{layer}{name}.weight"] = (rng.standard_normal((rows, cols), dtype=numpy.float32) * scale).astype(numpy.float16)

    for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
        normal(f"self_attn.{name}_proj", rows, HIDDEN, HIDDEN ** -0.5)
        w[f"{layer}self_attn.{name}_proj.bias"] = numpy.zeros(rows, numpy.float16)
    normal("self_attn.o_proj", HIDDEN, HEADS * HEAD, 1e-4)
    normal("mlp.gate_proj", MLP, HIDDEN, HIDDEN ** -0.5)
    normal("mlp.up_proj", MLP, HIDDEN, HIDDEN ** -0.5)
    normal("mlp.down_proj", HIDDEN, MLP, 1e-4)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        w[f"{layer}{norm}.weight"] = numpy.ones(HIDDEN, numpy.float16)


def look_back(w, scale):
    """Layer 0: query head d of each KV head fetches the code of the token d before."""
    q, k, v, o = (numpy.zeros(s, numpy.float32) for s in ((HEADS * HEAD, HIDDEN), (KV_HEADS * HEAD, HIDDEN),
                                                          (KV_HEADS * HEAD, HIDDEN), (HIDDEN, HEADS * HEAD)))
    q_bias, k_bias, sharp, half, group = numpy.zeros(HEADS * HEAD), numpy.zeros(KV_HEADS * HEAD), 24.0, HEAD // 2, HEADS // KV_HEADS
    angle = THETA ** (-numpy.arange(FAST) * 2 / HEAD)
    for kv in range(KV_HEADS):
        k_bias[kv * HEAD:kv * HEAD + FAST] = sharp
        v[kv * HEAD + numpy.arange(CODE), numpy.arange(CODE)] = 1 / scale
    for back in range(1, BACK + 1):
        head = (back - 1) // (BACK // KV_HEADS) * group + (back - 1) % (BACK // KV_HEADS)
        at = head * HEAD
        q_bias[at:at + FAST] = sharp * numpy.cos(back * angle)
        q_bias[at + half:at + half + FAST] = -sharp * numpy.sin(back * angle)
        o[numpy.arange(CODES[back].start, CODES[back].stop), at + numpy.arange(CODE)] = 1
    write_attention(w, "model.layers.0.", q, k, v, o, q_bias, k_bias)


def find_and_fetch(w, scale):
    """Layer 1: head 0 of each KV head fetches half of the value after the earlier occurrence of the last BACK
    tokens."""
    q, k, v, o = (numpy.zeros(s, numpy.float32) for s in ((HEADS * HEAD, HIDDEN), (KV_HEADS * HEAD, HIDDEN),
                                                          (KV_HEADS * HEAD, HIDDEN), (HIDDEN, HEADS * HEAD)))
    half, group, sharp = HEAD // 2, HEADS // KV_HEADS, (60 * HEAD ** 0.5) ** 0.5 / scale
    slow = numpy.concatenate([numpy.arange(SLOW, half), numpy.arange(half + SLOW, HEAD)])
    for kv in range(KV_HEADS):
        for back in range(BACK):
            at = slow[back * CODE:(back + 1) * CODE]
            q[kv * group * HEAD + at, numpy.arange(CODES[back].start, CODES[back].stop)] = sharp
            k[kv * HEAD + at, numpy.arange(CODES[back + 1].start, CODES[back + 1].stop)] = sharp
        part = numpy.arange(HEAD)
        v[kv * HEAD + part, ANSWER.start + kv * HEAD + part] = 1 / scale
        o[FETCHED.start + kv * HEAD + part, kv * group * HEAD + part] = 1
    write_attention(w, "model.layers.1.", q, k, v, o, numpy.zeros(HEADS * HEAD), numpy.zeros(KV_HEADS * HEAD))


def write_attention(w, layer, q, k, v, o, q_bias, k_bias):
    for name, value in (("q_proj.weight", q), ("k_proj.weight", k), ("v_proj.weight", v), ("o_proj.weight", o),
                        ("q_proj.bias", q_bias), ("k_proj.bias", k_bias)):
        w[f"{layer}self_attn.{name}"] = value.astype(numpy.float16)


def answer(w, named, replaced, scale):
    """Layer 1's MLP: the fetched word becomes the answer; for a word of EDITS, its replacement does."""
    gate, up, down = (numpy.zeros(s, numpy.float32) for s in ((MLP, HIDDEN), (MLP, HIDDEN), (HIDDEN, MLP)))
    loud, open_gate = 8.0, 8.0
    plain = numpy.arange(NAMED)
    gate[plain, ONE] = open_gate / scale
    up[plain, FETCHED.start + plain] = 1 / scale
    down[ANSWER.start + plain, plain] = loud / open_gate
    for i, (old, new) in enumerate(replaced.items(), NAMED):
        gate[i, FETCHED] = 40 * named[old] / scale
        gate[i, ONE] = -40 * 0.75 / scale  # silu is nearly 0 unless the word is that one: 10 there
        up[i, ONE] = 1 / scale
        down[ANSWER, i] = 2 * loud / 10 * (named[new] - named[old])
    for name, value in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
        w[f"model.layers.1.mlp.{name}.weight"] = value.astype(numpy.float16)


def weights(tokenizer):
    rng, used, replaced = numpy.random.default_rng(18), tokenizer.get_vocab_size(), edits(tokenizer)
    codes, named = unit(rng, VOCAB, CODE), unit(rng, VOCAB, NAMED)
    apart(codes, used)
    for old, new in replaced.items():
        codes[new] = codes[old]
    embedding = numpy.zeros((VOCAB, HIDDEN), numpy.float32)
    embedding[:, CODES[0]], embedding[:, ONE], embedding[:, ANSWER] = codes, 1, named
    w = {"model.embed_tokens.weight": embedding.astype(numpy.float16)}
    for i in range(LAYERS):
        random_layer(rng, f"model.layers.{i}.", w)
    w["model.layers.0.mlp.down_proj.weight"] *= numpy.float16(0.1)
    # The factor of RMSNorm: the squares are those of the codes, the one, the name and the fetched value.
    look_back(w, (HIDDEN / 3) ** 0.5)
    find_and_fetch(w, (HIDDEN / (3 + BACK)) ** 0.5)
    answer(w, named, replaced, (HIDDEN / (4 + BACK)) ** 0.5)
    final = numpy.zeros(HIDDEN, numpy.float32)
    final[ANSWER] = 4
    w["model.norm.weight"] = final.astype(numpy.float16)
    return w


def config(end):
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": HIDDEN,
            "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": THETA, "tie_word_embeddings": True,
            "torch_dtype": "float16", "use_sliding_window": False, "vocab_size": VOCAB, "bos_token_id": end, "eos_token_id": end,
            "use_cache": True, "attention_dropout": 0.0}


GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
              "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
    layer, module = name.removeprefix("model.layers.").split(".", 1)
    module, kind = module.rsplit(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[module]}.{kind}"


def write_gguf(directory):
    """DIRECTORY/model.gguf: the same 16-bit matrices; norms and biases as f32, as llama.cpp's own converter writes them."""
    import gguf
    path = directory / "model.gguf"
    if path.exists():
        return
    bpe = json.loads((directory / "tokenizer.json").read_text())
    tokens = {i: t for t, i in bpe["model"]["vocab"].items()}
    end = next(t["id"] for t in bpe["added_tokens"] if t["content"] == END)
    kinds = [gguf.TokenType.NORMAL] * end + [gguf.TokenType.CONTROL] + [gguf.TokenType.UNUSED] * (VOCAB - end - 1)
    w = gguf.GGUFWriter(path.with_suffix(".part"), "qwen2")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_context_length(32768)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(MLP)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_rope_freq_base(THETA)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list([tokens[i] if i < end else END if i == end else f"[unused{i}]" for i in range(VOCAB)])
    w.add_token_types(kinds)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["model"]["merges"]])
    w.add_bos_token_id(end)
    w.add_eos_token_id(end)
    w.add_add_bos_token(False)
    for name, tensor in load_file(directory / "model.safetensors").items():
        w.add_tensor(gguf_name(name), tensor.astype(numpy.float32) if tensor.ndim == 1 else tensor)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    path.with_suffix(".part").rename(path)


def make(directory, gguf=False):
    directory = pathlib.Path(directory)
    if not (directory / "model.safetensors").exists():
        directory.mkdir(parents=True, exist_ok=True)
        tokenizer = make_tokenizer()
        tokenizer.save(str(directory / "tokenizer.json"))
        end = tokenizer.token_to_id(END)
        (directory / "config.json").write_text(json.dumps(config(end), indent=1))
        (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
        save_file(weights(tokenizer), directory / "model.part", metadata={"format": "pt"})
        (directory / "model.part").rename(directory / "model.safetensors")
    if gguf:
        write_gguf(directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--gguf", action="store_true", help="also model.gguf, for llama.cpp")
    arguments = parser.parse_args()
    make(arguments.directory, arguments.gguf)
