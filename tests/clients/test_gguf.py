"""GGUF files as users have them: whole, split, and damaged."""

import json
import os
import shutil
import struct

import rig
from conftest import MODEL, ROOT
from test_commands import quire

GOLDENS = ROOT / "tests" / "goldens" / "gguf"
MEASURE = ("--input-len", "4", "--output-len", "1", "--num-iters", "1", "--num-iters-warmup", "0")


# ---- the format, read and written here ------------------------------------------------------------------------------

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Gguf:
    """A file's keys as bytes, its tensors as [name, dimensions, type, data]."""

    def __init__(self, path):
        self.raw, self.at = path.read_bytes(), 8
        n_tensors, n_keys = self.take("<QQ")
        self.keys, described = {}, []
        for _ in range(n_keys):
            name, start = self.text(), self.at
            self.skip(self.take("<I")[0])
            self.keys[name] = self.raw[start:self.at]
        for _ in range(n_tensors):
            name = self.text()
            dims = self.take(f"<{self.take('<I')[0]}Q")
            described.append((name, dims, *self.take("<IQ")))
        base = (self.at + 31) // 32 * 32
        ends = sorted(t[3] for t in described) + [len(self.raw) - base]
        self.tensors = [[name, list(dims), kind, bytearray(self.raw[base + at:base + min(e for e in ends if e > at)])]
                        for name, dims, kind, at in described]

    def take(self, layout):
        values = struct.unpack_from(layout, self.raw, self.at)
        self.at += struct.calcsize(layout)
        return values

    def text(self):
        n, = self.take("<Q")
        self.at += n
        return self.raw[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            kind, n = self.take("<IQ")
            for _ in range(n):
                self.skip(kind)
        else:
            self.at += SIZES[kind]

    def tensor(self, name):
        return next(t for t in self.tensors if t[0] == name)

    def write(self, path, tensors=None, **keys):
        tensors, body, described = self.tensors if tensors is None else tensors, b"", b""
        for name, dims, kind, data in tensors:
            described += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(body))
            body += data + bytes(-len(data) % 32)
        known = self.keys | keys
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(known))
        head += b"".join(string(k) + v for k, v in known.items()) + described
        path.write_bytes(head + bytes(-len(head) % 32) + body)
        return path


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def u32(value):
    return struct.pack("<II", 4, value)


def f32(value):
    return struct.pack("<If", 6, value)


def text_value(value):
    return struct.pack("<I", 8) + string(value)


def measured(model):
    return quire("bench", "latency", model, *MEASURE)


def refusal(model):
    got = measured(model)
    lines = got.stderr.strip().splitlines()
    assert got.returncode == 1 and len(lines) == 1, got
    return lines[0]


# ---- the demo model as a GGUF file ----------------------------------------------------------------------------------

LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
BESIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
F32, F16 = 0, 1


def array(kind, values):
    form = {4: "I", 5: "i", 6: "f"}.get(kind)
    body = struct.pack(f"<{len(values)}{form}", *values) if form else b"".join(string(v) for v in values)
    return struct.pack("<IIQ", 9, kind, len(values)) + body


def file_name(name):
    layer, end = name.rsplit(".", 1)
    if layer in BESIDE:
        return f"{BESIDE[layer]}.{end}"
    _, _, number, layer = layer.split(".", 3)
    return f"blk.{number}.{LAYER[layer]}.{end}"


def tensors_of(checkpoint):
    raw = checkpoint.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    for name, about in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        data, kind = raw[8 + n + begin:8 + n + end], F16
        if len(about["shape"]) == 1:  # as every converter has them
            data, kind = struct.pack(f"<{len(data) // 2}f", *struct.unpack(f"<{len(data) // 2}e", data)), F32
        yield [file_name(name), about["shape"][::-1], kind, data]


def keys_of(model):
    config, generation, tokenizer, about = (json.loads((model / f"{name}.json").read_text()) for name in (
        "config", "generation_config", "tokenizer", "tokenizer_config"))
    tokens, types = [""] * config["vocab_size"], [1] * config["vocab_size"]
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i] = token
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], 3
    sizes = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
             "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
             "attention.head_count_kv": "num_key_value_heads"}
    return {"general.architecture": text_value("qwen2"), **{f"qwen2.{k}": u32(config[v]) for k, v in sizes.items()},
            "qwen2.attention.layer_norm_rms_epsilon": f32(config["rms_norm_eps"]), "qwen2.rope.freq_base": f32(config["rope_theta"]),
            "general.sampling.temp": f32(generation["temperature"]), "general.sampling.top_p": f32(generation["top_p"]),
            "general.sampling.top_k": u32(generation["top_k"]), "tokenizer.ggml.model": text_value("gpt2"),
            "tokenizer.ggml.pre": text_value("qwen2"), "tokenizer.ggml.tokens": array(8, tokens),
            "tokenizer.ggml.token_type": array(5, types),
            "tokenizer.ggml.merges": array(8, [" ".join(m) for m in tokenizer["model"]["merges"]]),
            "tokenizer.ggml.eos_token_id": u32(config["eos_token_id"]), "tokenizer.ggml.bos_token_id": u32(config["bos_token_id"]),
            "tokenizer.chat_template": text_value(about["chat_template"])}


def demo(path):
    file = Gguf(GOLDENS / "qwen2" / "model.gguf")
    file.keys, file.tensors = keys_of(MODEL), list(tensors_of(MODEL / "model.safetensors"))
    return file.write(path)


HARD = [" ", "  two", "\n\n \n\t\r\n x ", "I'm we'LL DON'T it's", "3.14159 1000000 x2", "e\u0301\u212b \ufb01 \u00a0\u3000",
        "\u4f60\u597d\uff0c\u4e16\u754c", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "<|im_end|>a<|im_start|> <|im_", "\x01\x7f", "a" * 300,
        "\u0627\u0644\u0633\u0644\u0627\u0645", "##__==//\\\\", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"]


def ask(server, path, **body):
    return rig.answered(server, path, body | {"model": "demo"}).json()


def test_the_demo_model_says_the_same_from_a_gguf_file(start, tmp_path):
    path = demo(tmp_path / "demo.gguf")
    assert json.loads(quire("inspect", path, "--json").stdout)["quantization"] == "gguf"
    servers = [start("serve", model, "--port", "0", "--served-model-name", "demo", "--threads", "1") for model in (MODEL, path)]
    for text in HARD:
        ids = [ask(s, "/tokenize", prompt=text)["tokens"] for s in servers]
        assert ids[0] == ids[1], text
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell a story."}]
    said = [ask(s, "/v1/chat/completions", messages=messages, seed=7, max_tokens=40, logprobs=True) for s in servers]
    # Drawn with the file's own temperature, top_k and top_p; ended by its own tokens.
    assert said[0]["choices"] == said[1]["choices"] and said[0]["usage"] == said[1]["usage"]


def test_either_file_of_a_model_guesses_for_the_other(start, tmp_path):
    path = demo(tmp_path / "demo.gguf")
    said = []
    for model, draft in ((MODEL, None), (MODEL, path), (path, MODEL)):
        flags = ["--speculative-config", json.dumps({"method": "draft_model", "model": str(draft)})] if draft else []
        server = start("serve", model, "--port", "0", "--served-model-name", "demo", "--threads", "1", *flags)
        said.append(ask(server, "/v1/completions", prompt="Once upon a time", seed=7, max_tokens=40)["choices"])
        if draft:
            metrics = rig.metrics(server)
            drafted, accepted = (float(next(line.split()[-1] for line in metrics.splitlines() if line.startswith(f"vllm:spec_decode_num_{what}_total")))
                                 for what in ("draft_tokens", "accepted_tokens"))
            assert 0 < accepted <= drafted
    assert said[0] == said[1] == said[2]


# ---- split files ----------------------------------------------------------------------------------------------------

def count(no, n):
    return {"split.no": struct.pack("<IH", 2, no), "split.count": struct.pack("<IH", 2, n)}


def test_a_split_file_is_the_whole_one(tmp_path):
    file = Gguf(GOLDENS / "llama" / "model.gguf")
    first, second, third = (tmp_path / f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3))
    back = file.tensors[::-1]  # the head, and q and k, in files that do not name their model
    parts = back[:2], back[2:7], back[7:]
    assert {"output.weight", "token_embd.weight", "blk.0.attn_q.weight"} <= {t[0] for t in back[2:]}
    file.write(first, parts[0], **count(0, 3))
    keys, file.keys = file.keys, {}
    file.write(second, parts[1], **count(1, 3))
    file.write(third, parts[2], **count(2, 3))
    assert measured(first).returncode == 0
    whole, split = (json.loads(quire("plan", m, "--json").stdout) for m in (GOLDENS / "llama" / "model.gguf", first))
    assert {k: v for k, v in whole.items() if k != "model"} == {k: v for k, v in split.items() if k != "model"}
    file.write(third, parts[2], **count(1, 3))
    assert "model-00003-of-00003.gguf: split" in refusal(first)
    third.unlink()
    assert "model-00003-of-00003.gguf: cannot be opened" in refusal(first)
    file.keys = keys
    file.write(first, parts[0], **count(1, 3))
    assert "split" in refusal(first)


# ---- damaged files --------------------------------------------------------------------------------------------------

NAN16, INF16 = b"\x00\x7e", b"\x00\x7c"
# The offset of a block's f16 numbers.
SCALES = [("qwen2", "blk.0.attn_q.weight", 0), ("qwen2", "blk.0.attn_v.weight", 2), ("qwen2", "blk.0.ffn_gate.weight", 2),
          ("llama", "blk.0.ffn_gate.weight", 80), ("llama", "blk.0.ffn_gate.weight", 82), ("llama", "blk.0.attn_output.weight", 108),
          ("llama", "blk.0.attn_q.weight", 0), ("llama", "blk.0.attn_v.weight", 2), ("llama", "blk.0.attn_k.weight", 208),
          ("llama", "token_embd.weight", 2)]


def test_scales_that_are_no_numbers(tmp_path):
    for i, (name, tensor, at) in enumerate(SCALES):
        file = Gguf(GOLDENS / name / "model.gguf")
        file.tensor(tensor)[3][at:at + 2] = (NAN16, INF16)[i % 2]
        told = refusal(file.write(tmp_path / "damaged.gguf"))
        assert "damaged.gguf: tensor '" in told and "row 0, block 0: its scale (Q" in told, (tensor, told)
    zero = Gguf(GOLDENS / "qwen2" / "model.gguf")  # a block of zeros is valid
    zero.tensor("blk.0.attn_q.weight")[3][:2] = bytes(2)
    assert measured(zero.write(tmp_path / "zero.gguf")).returncode == 0


BAD_KEYS = [
    ({"general.architecture": text_value("gemma9")}, "general.architecture: 'gemma9' is not supported; supported: llama"),
    ({"llama.block_count": u32(2)}, "tensor 'model.layers.1.self_attn.q_proj.weight' is missing"),
    ({"llama.block_count": u32(1 << 31)}, "num_hidden_layers"),
    ({"llama.attention.head_count": u32(0)}, "num_attention_heads"),
    ({"llama.attention.head_count": u32(3)}, "num_key_value_heads: 2 does not divide"),
    ({"llama.embedding_length": u32(128)}, "config.json: partial_rotary_factor"),
    ({"llama.feed_forward_length": u32(0)}, "intermediate_size"),
    ({"llama.expert_count": u32(8)}, "llama.expert_used_count: is missing"),
    ({"llama.rope.freq_base": f32(float("nan"))}, "llama.rope.freq_base: must be finite"),
    ({"llama.rope.scaling.type": text_value("longrope")}, "llama.rope.scaling.type"),
    ({"llama.context_length": text_value("many")}, "llama.context_length: must be a non-negative integer"),
    ({"llama.attention.layer_norm_rms_epsilon": f32(-1)}, "rms_norm_eps"),
    ({"general.alignment": u32(48)}, "general.alignment: must be a power of two"),
    ({"split.count": u32(2)}, "split"),
]


def test_keys_that_cannot_be(tmp_path):
    file = Gguf(GOLDENS / "llama" / "model.gguf")
    for keys, says in BAD_KEYS:
        told = refusal(file.write(tmp_path / "damaged.gguf", **keys))
        assert says in told and "damaged" in told, (keys, told)


def test_tensors_that_cannot_be(tmp_path):
    path = tmp_path / "damaged.gguf"
    file = Gguf(GOLDENS / "llama" / "model.gguf")
    for name, says in (("blk.0.ffn_down", "tensor 'model.layers.0.mlp.down_proj.weight' is missing"), ("token_embd", "vocab_size"),
                       ("blk.0.attn_norm", "input_layernorm.weight' is missing"), ("output_norm", "'model.norm.weight' is missing")):
        told = refusal(file.write(path, [t for t in file.tensors if t[0] != name + ".weight"]))
        assert "damaged.gguf: " in told and says in told, (name, told)
    for kind, says in ((16, "IQ2_XXS"), (34, "TQ1_0"), (40, "NVFP4"), (42, "Q2_0 is not supported"), (36, "IQ4_NL_4_4"), (4, "type: 4 is unknown"), (99, "type: 99 is unknown")):
        tensors = [[n, d, kind, bytes(1 << 17)] if n == "blk.0.attn_q.weight" else [n, d, k, x] for n, d, k, x in file.tensors]
        told = refusal(file.write(path, tensors))
        assert "damaged.gguf: tensor '" in told and "attn" in told and says in told, told
    assert "damaged.gguf: tensor 'rope_freqs.weight': also in" in refusal(file.write(path, file.tensors + [file.tensors[0]]))
    whole = (GOLDENS / "llama" / "model.gguf").read_bytes()
    for n in (0, 3, 24, 100, 1000, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:n])
        assert "damaged.gguf" in refusal(path)


# ---- --quantization -------------------------------------------------------------------------------------------------

def test_a_file_of_16_bits_is_gguf_and_can_be_quantized(tmp_path):
    file = Gguf(GOLDENS / "qwen2" / "model.gguf")
    for tensor in file.tensors:
        if len(tensor[1]) == 2:
            tensor[2:] = 1, bytes(2 * tensor[1][0] * tensor[1][1])
    model = file.write(tmp_path / "model-F16.gguf")
    for name, weights in (("gguf", "float16"), ("int8", "Q8_0")):
        told = quire("plan", model, "--json", "--quantization", name)
        assert told.returncode == 0 and json.loads(told.stdout)["weight_dtype"] == weights, told
    got = quire("plan", model, "--quantization", "gptq")
    assert got.returncode == 1 and "the checkpoint is not quantized" in got.stderr and got.stderr.count("\n") == 1


def test_names_of_files(tmp_path):
    """A store names a file by its digest, and a directory may hold one file."""
    blob = demo(tmp_path / "sha256-0a1b")
    (tmp_path / "one").mkdir()
    shutil.copy(blob, tmp_path / "one" / "demo.gguf")
    said = [quire("generate", path, "What is 27 plus 48?", "--temperature", "0").stdout for path in (blob, tmp_path / "one", tmp_path / "one" / "demo.gguf")]
    assert "75" in said[0] and said[0] == said[1] == said[2]
    shown = quire("show", blob)
    assert shown.stdout.startswith("sha256-0a1b\n") and "yes, without tools" in shown.stdout, shown
    shutil.copy(blob, tmp_path / "one" / "other.gguf")
    for path, says in (tmp_path / "one", "MODEL must be one GGUF file of this directory"), (ROOT / "README.md", "README.md is a file, but not a GGUF file"):
        got = quire("show", path)
        assert got.returncode == 1 and says in got.stderr and got.stderr.count("\n") == 1, got


# ---- not a GGUF file -------------------------------------------------------------------------------------------------

def test_what_is_no_file(tmp_path):
    path = tmp_path / "x.gguf"
    for make, says in ((os.mkfifo, "x.gguf"), (os.mkdir, "x.gguf"), (lambda p: p.touch(), "x.gguf: header: this is not a GGUF file"),
                       (lambda p: p.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)), "x.gguf: general.architecture: ''"),
                       (lambda p: p.symlink_to(p), "x.gguf")):
        make(path)
        for command in (("inspect", path), ("plan", path), ("generate", path, "hi")):
            got = quire(*command, timeout=300)
            assert got.returncode == 1 and got.stderr.count("\n") == 1 and says in got.stderr, (command, got)
        path.rmdir() if path.is_dir() else path.unlink()
