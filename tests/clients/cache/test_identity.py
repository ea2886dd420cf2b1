"""Edits every field of every small file of a checkpoint. A server with a response cache (SQLite, vectors of
questions) and the stores of the unedited model then answers. Its answers must equal those of a server without
caches on the edited model. A field that changes an answer but not the identity fails.

Each edit is one case. tests/sample.h's QUIRE_TEST_SAMPLE draws one in SAMPLE of them; all run if it is empty.
"""

import collections
import concurrent.futures
import copy
import json
import os
import shutil
import struct

import pytest
import rig
from conftest import MODEL, ROOT, Server
from rig import wait_until
from test_redis_cache import redis  # noqa: F401: a fixture
from test_embeddings import model as with_letters
from test_commands import quire
from test_gguf import Gguf, array, demo, f32, text_value, u32

GOLDENS = ROOT / "tests" / "goldens"
SAMPLE = 24
# Always drawn: users make these edits.
OFTEN = ("rope_theta put", "rope_scaling put", "eos_token_id put", "chat_template put", "template.jinja: other roles", "normalizer put", "alone",
         "scaling.factor: put", "yarn")
DELETE = object()


def drawn(cases):
    """The cases of this run: one of each SAMPLE neighbours, a different one in each neighbourhood."""
    seed = os.environ.get("QUIRE_TEST_SAMPLE")
    if not seed:
        return cases
    return [case for i, case in enumerate(cases) if i % SAMPLE == (int(seed) + 7 * (i // SAMPLE)) % SAMPLE or any(o in case[0] for o in OFTEN)]


# ---- edits of JSON ----------------------------------------------------------------------------------------------------

# Replacement values by a field's last name; a string that is not here gets one more letter.
WORDS = {
    "hidden_act": ["gelu", "relu"], "torch_dtype": ["float32", "bfloat16", "float16"], "dtype": ["float32", "float16"],
    "rope_type": ["linear", "yarn", "default", "dynamic"], "model_type": ["llama", "mistral", "qwen3"],
    "architectures": ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Olmo2ForCausalLM", "BertModel", "RobertaModel"],
    "activation_function": ["torch.nn.modules.linear.Identity"], "quant_method": ["awq"], "checkpoint_format": ["gptq", "gptq_v2"],
    "clean_up_tokenization_spaces": [True, None], "prepend_scheme": ["never", "always", "first"],
    "behavior": ["Removed", "Merged"], "type": ["Lowercase", "BPE", "Whitespace"],
}
# Fields that may be added to a file.
ADDED = {
    "config.json": {
        "rope_scaling": [{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, {"type": "linear", "factor": 2.0},
                         {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "beta_fast": 16, "attention_factor": 0.5},
                         {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}],
        "rope_parameters": [{"rope_type": "default", "rope_theta": 500.0}], "rope_theta": [700.0], "partial_rotary_factor": [0.5],
        "rms_norm_eps": [0.01], "layer_norm_eps": [0.01], "sliding_window": [8], "use_sliding_window": [True], "max_window_layers": [0, 1],
        "layer_types": [["full_attention"] * 4], "attention_bias": [True], "mlp_bias": [True], "tie_word_embeddings": [True, False],
        "eos_token_id": [[5, 9, 40], None], "bos_token_id": [None, 7], "head_dim": [32], "num_key_value_heads": [1, 4], "logit_scale": [2.0],
        "final_logit_softcapping": [5.0], "quantization_config": [{"quant_method": "fp8", "activation_scheme": "dynamic"}],
        "note": ["changes no bit"], "id2label": [{"0": "a"}], "pad_token_id": [3], "position_embedding_type": ["relative_key"]},
    "generation_config.json": {
        "eos_token_id": [[5, 9, 40], 11], "temperature": [0.0, 1.5], "top_p": [0.3], "top_k": [2], "min_p": [0.2], "repetition_penalty": [1.7],
        "presence_penalty": [1.0], "max_new_tokens": [3], "max_length": [3], "bad_words_ids": [[[5]]], "suppress_tokens": [[5]], "stop_strings": [["e"]],
        "transformers_version": ["1"]},
    "tokenizer_config.json": {
        "add_bos_token": [True], "add_eos_token": [True], "bos_token": ["<|endoftext|>", None], "eos_token": ["<|endoftext|>"],
        "chat_template": ["{{ messages[-1]['content'] }}"], "legacy": [False], "do_lower_case": [True], "truncation_side": ["left"],
        "tokenizer_class": ["LlamaTokenizer"]},
    "special_tokens_map.json": {"bos_token": ["<|im_start|>"], "eos_token": ["<|endoftext|>"], "unk_token": ["<|im_end|>"]},
    "tokenizer.json": {"normalizer": [{"type": "Lowercase"}, None], "post_processor": [None], "truncation": [None], "padding": [None]},
    "sentence_bert_config.json": {"max_seq_length": [7], "do_lower_case": [True]},
    "config_sentence_transformers.json": {"prompts": [{"query": "q: "}], "default_prompt_name": ["query"], "similarity_fn_name": ["dot"]},
    "modules.json": {}, "1_Pooling/config.json": {"include_prompt": [False], "pooling_mode_mean_sqrt_len_tokens": [True]},
    "2_Dense/config.json": {"bias": [False]},
}


def places(value, path=()):
    """The paths of all fields; for a vocabulary or a long list, the first, the middle and the last ones."""
    if path:
        yield path
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if len(keys) > 40:
        keys = [*keys[:2], keys[len(keys) // 2], keys[300 % len(keys)], *keys[-2:]]
    for key in keys:
        yield from places(value[key], (*path, key))


def instead(value, name):
    """The values that may replace it."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value + 1, value // 2]
    if isinstance(value, float):
        return [value * 0.5, value * 3, 0.0]
    if isinstance(value, str):
        return [w for w in WORDS.get(name, [value + "x"]) if w != value]
    if value is None:
        return [True, "x", 3]
    if isinstance(value, list):
        return [value[::-1], value[1:], value[:-1], [*value, *value[:1]]] if value else []
    return [{}]


def changed(root, path, value):
    root = copy.deepcopy(root)
    at = root
    for key in path[:-1]:
        at = at[key]
    if value is not DELETE:
        at[path[-1]] = value
    else:
        del at[path[-1]]
    return root


def edits_of_json(name, root):
    """(description, new text) for a file."""
    for path in places(root):
        at = root
        for key in path:
            at = at[key]
        last = next((key for key in reversed(path) if isinstance(key, str)), "")
        values = [*instead(at, last), *([DELETE] if isinstance(path[-1], str) else [])]
        for value in values:
            what = ".".join(map(str, path)) + (" deleted" if value is DELETE else f" = {json.dumps(value)[:60]}")
            yield f"{name}: {what}", json.dumps(changed(root, path, value))
    for key, values in ADDED.get(name, {}).items():
        for value in values:
            if isinstance(root, dict) and root.get(key, DELETE) != value:
                yield f"{name}: {key} put = {json.dumps(value)[:60]}", json.dumps({**root, key: value})
    if name == "1_Pooling/config.json":
        for mode in ("cls_token", "mean_tokens", "lasttoken"):
            modes = {key: key == "pooling_mode_" + mode for key in root if key.startswith("pooling_mode_")}
            yield f"{name}: {mode} alone", json.dumps({**root, **modes})
    yield f"{name}: laid out anew", json.dumps(root, indent=3)


def edits_of_template(name, text):
    yield f"{name}: a word before", "Now. " + text
    yield f"{name}: a line behind", text + "\n\n"
    yield f"{name}: other roles", text.replace("assistant", "model").replace("role", "content")
    yield f"{name}: a comment", "{# nothing #}" + text
    yield f"{name}: the content alone", "{{ messages[-1]['content'] }}"


def edits_of_header(raw):
    """Edits a safetensors file: a tensor's entry changes, the data stays."""
    n = int.from_bytes(raw[:8], "little")
    head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    names = [name for name in head if name != "__metadata__"]
    again = {"F16": "BF16", "BF16": "F16", "F32": "I32", "I32": "F32"}

    def put(edited):
        text = json.dumps(edited).encode()
        return len(text).to_bytes(8, "little") + text + data

    for i, name in enumerate(names):
        about = head[name]
        yield f"{name} as {again.get(about['dtype'])}", put({**head, name: {**about, "dtype": again.get(about["dtype"], "F16")}})
        if len(about["shape"]) == 2:
            yield f"{name} turned", put({**head, name: {**about, "shape": about["shape"][::-1]}})
        for other in names[i + 1:]:
            if head[other]["shape"] == about["shape"] and head[other]["dtype"] == about["dtype"]:
                yield f"{name} and {other} change places", put({**head, name: head[other], other: about})
                break
    yield "__metadata__ put", put({**head, "__metadata__": {"note": "changes no bit"}})


def edits_of_folder(folder):
    """(description, file name, new text or None) for every small file in the folder, and for files that may be
    added."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            for what, text in edits_of_json(name, json.loads(path.read_text())):
                yield what, name, text
        elif path.suffix == ".jinja":
            for what, text in edits_of_template(name, path.read_text()):
                yield what, name, text
        elif path.suffix == ".safetensors" and path.stat().st_size < 20 << 20:
            for what, raw in edits_of_header(path.read_bytes()):
                yield f"{name}: {what}", name, raw
        if path.suffix in (".json", ".jinja"):
            yield f"{name}: deleted", name, None


def edited_folder(folder, to, name, text):
    """The same files except for one; weights are linked."""
    for path in folder.rglob("*"):
        if path.is_file():
            at = to / path.relative_to(folder)
            at.parent.mkdir(parents=True, exist_ok=True)
            at.symlink_to(path)
    (to / name).unlink(missing_ok=True)
    if text is not None:
        (to / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return to


# ---- edits of GGUF ----------------------------------------------------------------------------------------------------

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
GGUF_ADDED = {
    "qwen2.rope.scaling.type": [text_value("yarn"), text_value("linear")], "qwen2.rope.scaling.factor": [f32(4.0)],
    "qwen2.rope.scaling.original_context_length": [u32(64)], "qwen2.attention.sliding_window": [u32(8)], "qwen2.logit_scale": [f32(2.0)],
    "qwen2.attention.causal": [struct.pack("<I?", 7, False)], "qwen2.attention.key_length": [u32(64), u32(32)], "qwen2.rope.dimension_count": [u32(64), u32(32)],
    "tokenizer.ggml.add_bos_token": [struct.pack("<I?", 7, True)], "tokenizer.ggml.eot_token_id": [u32(300)], "tokenizer.ggml.eom_token_id": [u32(299)],
    "general.sampling.min_p": [f32(0.3)], "general.sampling.penalty_repeat": [f32(1.7)], "general.name": [text_value("no bit")],
    "general.file_type": [u32(1)],
    "qwen2.attention.clamp_kqv": [f32(0.5)], "qwen2.attn_logit_softcapping": [f32(5.0)], "qwen2.final_logit_softcapping": [f32(5.0)],
    "qwen2.attention.scale": [f32(0.5)], "qwen2.embedding_scale": [f32(3.0)], "qwen2.residual_scale": [f32(0.5)], "qwen2.expert_count": [u32(2)],
    "qwen2.rope.scaling.attn_factor": [f32(0.5)], "qwen2.rope.scaling.yarn_log_multiplier": [f32(0.2)], "qwen2.pooling_type": [u32(1)],
    "qwen2.attention.layer_norm_epsilon": [f32(0.01)], "qwen2.use_parallel_residual": [struct.pack("<I?", 7, True)], "qwen2.vocab_size": [u32(2000)],
    "tokenizer.ggml.add_eos_token": [struct.pack("<I?", 7, True)], "tokenizer.ggml.add_space_prefix": [struct.pack("<I?", 7, True)],
    "tokenizer.ggml.remove_extra_whitespaces": [struct.pack("<I?", 7, True)], "tokenizer.ggml.padding_token_id": [u32(5)],
    "tokenizer.ggml.unknown_token_id": [u32(5)],
}


def edits_of_value(raw):
    """Edits a key's bytes: its type, then the value."""
    kind, = struct.unpack_from("<I", raw)
    if kind == 8:
        text = raw[12:].decode()
        yield from (text_value(t) for t in (text + "x", text.replace("user", "human").replace("<|im_end|>", "\n"), "qwen3", "llama") if t != text)
    elif kind == 9:
        inner, n = struct.unpack_from("<IQ", raw, 4)
        yield from edits_of_array(inner, n, raw)
    else:
        form = FORMS[kind]
        value, = struct.unpack_from("<" + form, raw, 4)
        others = [not value] if form == "?" else [value * 0.5, value * 3] if form in "fd" else [value * 2, value + 1, value // 2]
        yield from (struct.pack("<I" + form, kind, v) for v in others if v != value)


def edits_of_array(inner, n, raw):
    if inner == 8:
        values, at = [], 16
        for _ in range(n):
            size, = struct.unpack_from("<Q", raw, at)
            values.append(raw[at + 8:at + 8 + size].decode())
            at += 8 + size
        other = lambda v: v + "x"
    else:
        values = list(struct.unpack_from(f"<{n}{FORMS[inner]}", raw, 16))
        other = lambda v: v + 1
    for i in sorted({0, 40 % n, n // 2, 300 % n, n - 2, n - 1}):
        yield array(inner, [*values[:i], other(values[i]), *values[i + 1:]])
        j = (i + 7) % n
        swapped = list(values)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        if swapped != values:
            yield array(inner, swapped)
    yield array(inner, values[:-1])


def edits_of_gguf(path):
    """(description, keys) for every key, and for keys that may be added."""
    keys = Gguf(path).keys
    for name, raw in keys.items():
        for i, value in enumerate(edits_of_value(raw)):
            yield f"{name}: edit {i}", {**keys, name: value}
        yield f"{name}: deleted", {k: v for k, v in keys.items() if k != name}
    for name, values in GGUF_ADDED.items():
        for i, value in enumerate(values):
            yield f"{name}: put {i}", {**keys, name: value}
    yield "yarn", {**keys, "qwen2.rope.scaling.type": text_value("yarn"), "qwen2.rope.scaling.factor": f32(4.0),
                   "qwen2.rope.scaling.original_context_length": u32(2048)}


# ---- requests --------------------------------------------------------------------------------------------------------

LONG = "once upon a time there was a little dog who lived in a big house by the sea and the dog had a red ball. " * 2
GREEDY = {"temperature": 0, "max_tokens": 12}
QUESTIONS = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story about a dog"}], **GREEDY, "logprobs": True, "top_logprobs": 5}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why is the sky blue?"}], **GREEDY}),
    # The checkpoint's temperature, top_p ...
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Where is the ball?"}], "seed": 7, "max_tokens": 12}),
    ("/v1/completions", {"prompt": LONG, **GREEDY, "logprobs": 5}),
    ("/v1/completions", {"prompt": "One day", **GREEDY, "max_tokens": 40, "stop": ["a", "th", "12"]}),
    ("/v1/completions", {"prompt": "The  CAT sat!", "seed": 3, "n": 2}),
    ("/v1/completions", {"prompt": [7 * i % 90 for i in range(100)], **GREEDY, "max_tokens": 40, "logprobs": 5}),
    ("/v1/completions", {"prompt": "a<|im_end|>b", **GREEDY, "echo": True, "logprobs": 1}),
]


def ask(server, question):
    """The answer in a reply, and x-quire-cache."""
    path, body = question
    reply = rig.ask(server, path, body)
    got = reply.json()
    if reply.status != 200:
        return [reply.status, got], "error"
    return [got["choices"], got["usage"]["prompt_tokens"], got["usage"]["completion_tokens"]], reply.cache


FLAGS = ("--port", "0", "--served-model-name", "demo", "--threads", "1", "--kv-cache-memory", "32M")


def serve(model, *more):
    """None: it is rejected."""
    try:
        return Server("serve", model, *FLAGS, *more)
    except RuntimeError:
        return None


def keeping(place, embedder):
    return ("--response-cache", f"sqlite:{place}/answers.db", *(
        ("--semantic-cache", embedder, "--semantic-mode", "answer", "--semantic-threshold", "0.999") if embedder else ()))


def stop(server):
    assert server.stop() == 0, server.output()


def fill(model, place, embedder):
    """Stores with the answers of the unedited model."""
    place.mkdir()
    server = Server("serve", model, *FLAGS, *keeping(place, embedder))
    first = [ask(server, q) for q in QUESTIONS]
    assert [ask(server, q)[1] for q in QUESTIONS] == ["exact"] * len(QUESTIONS)
    stop(server)
    assert all(how == "miss" for _, how in first), first
    return [answer for answer, _ in first]


def settle(answers, model, stores, place, embedder):
    """Returns the result of one edit. An edit with a wrong answer fails."""
    plain = serve(model)
    if not plain:
        return "refused"
    shutil.copytree(stores, place)
    kept = serve(model, *keeping(place, embedder))
    assert kept, "it starts without the stores, and not with them"
    right = [ask(plain, q)[0] for q in QUESTIONS]
    got = [ask(kept, q) for q in QUESTIONS]
    again = [ask(kept, q)[0] for q in QUESTIONS]  # the same words
    for q, r, (g, how), a in zip(QUESTIONS, right, got, again):
        assert g == r, f"{how}: {json.dumps(q)}:\n{json.dumps(g)[:300]}\nis not\n{json.dumps(r)[:300]}"
        assert a == r, f"asked again: {json.dumps(q)}"
    stop(plain)
    stop(kept)
    n = sum(how == "exact" for _, how in got)
    return ("moved" if right != answers else "same") + (", kept" if n == len(QUESTIONS) else ", missed" if n == 0 else ", some kept")


def run(cases, settle_one, tmp_path):
    """Runs every case in its own folder, two at a time; fails with all faults."""
    wrong, counts = [], collections.Counter()

    def one(numbered):
        i, case = numbered
        place = tmp_path / f"case{i}"
        place.mkdir()
        try:
            return case[0], settle_one(place, case)
        except AssertionError as e:
            return case[0], e
        finally:
            shutil.rmtree(place)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for what, outcome in pool.map(one, enumerate(cases)):
            if isinstance(outcome, AssertionError):
                wrong.append(f"{what}: {outcome}")
            else:
                counts[outcome] += 1
            if os.environ.get("QUIRE_TEST_EDITS"):
                print(what, "->", "WRONG" if isinstance(outcome, AssertionError) else outcome)
    print(f"{len(cases)} edits: {dict(counts)}, wrong {len(wrong)}")
    assert not wrong, f"{len(wrong)} of {len(cases)} edits are answered wrongly:\n" + "\n".join(wrong[:20])
    return counts


def run_drawn(cases, settle_one, tmp_path):
    counts = run(drawn(cases), settle_one, tmp_path)
    if len(drawn(cases)) == len(cases):  # the edits have all kinds
        for begin, least in (("moved", 25), ("same", 15), ("refused", 15)):
            assert sum(n for name, n in counts.items() if name.startswith(begin)) >= least, counts


# ---- the kinds --------------------------------------------------------------------------------------------------------

def own_tokenizer(place, n_vocab):
    """The demo's tokenizer with fewer tokens, so that a golden has one; its template is in a separate file."""
    tokenizer, about = (json.loads((MODEL / f"{name}.json").read_text()) for name in ("tokenizer", "tokenizer_config"))
    n = n_vocab - len(tokenizer["added_tokens"])
    tokenizer["model"]["vocab"] = {t: i for t, i in tokenizer["model"]["vocab"].items() if i < n}
    known = tokenizer["model"]["vocab"]
    tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if all(t in known for t in (*m, "".join(m)))]
    for i, added in enumerate(tokenizer["added_tokens"]):
        added["id"] = n + i
    about.pop("added_tokens_decoder")
    (place / "chat_template.jinja").write_text(about.pop("chat_template"))
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    (place / "tokenizer_config.json").write_text(json.dumps(about))
    (place / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>", "lstrip": False}}))


def make(kind, place):
    """A model of this kind in its own folder."""
    if kind == "demo":
        shutil.copytree(MODEL, place)
        (place / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        return place
    shutil.copytree(GOLDENS / kind, place)
    config = json.loads((place / "config.json").read_text())
    own_tokenizer(place, config["vocab_size"])
    if not (place / "generation_config.json").exists():
        (place / "generation_config.json").write_text(json.dumps({"eos_token_id": config["eos_token_id"], "temperature": 0.8, "top_k": 30}))
    return place


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return with_letters(tmp_path_factory.mktemp("identity") / "tiny", "bert_mean")


@pytest.mark.parametrize("kind", ["demo", *(pytest.param(kind, marks=pytest.mark.wide) for kind in (
    "models/llama3", "models/qwen2_window", "models/qwen2_yarn", "models/llama_bias", "quantized/gptq_4_32_order_zeros_v2"))])
def test_edits_of_a_checkpoints_files(kind, tiny, tmp_path):
    model = make(kind, tmp_path / "model")
    answers = fill(model, tmp_path / "stores", tiny)

    def settle_one(place, case):
        edited = edited_folder(model, place / "model", *case[1:])
        return settle(answers, edited, tmp_path / "stores", place / "stores", tiny)

    run_drawn(list(edits_of_folder(model)), settle_one, tmp_path)


@pytest.mark.wide
def test_edits_of_a_gguf_files_keys(tiny, tmp_path):
    model = demo(tmp_path / "demo.gguf")
    answers = fill(model, tmp_path / "stores", tiny)

    def settle_one(place, case):
        file = Gguf(model)
        file.keys = case[1]
        return settle(answers, file.write(place / "demo.gguf"), tmp_path / "stores", place / "stores", tiny)

    run_drawn(list(edits_of_gguf(model)), settle_one, tmp_path)


# ---- the model whose vectors compare questions --------------------------------------------------------------------------

TEXTS = ["tell me about a dog", "Where IS the ball?", "abc " * 60, "caf\u00e9 [SEP] x", "a"]


def vectors(server):
    reply = rig.ask(server, "/v1/embeddings", {"model": "model", "input": TEXTS, "encoding_format": "base64"})
    return [d["embedding"] for d in reply.json()["data"]] if reply.status == 200 else reply.status


@pytest.mark.parametrize("golden", ["bert_dense", pytest.param("qwen3_last", marks=pytest.mark.wide)])
def test_edits_of_an_embedding_model(golden, tmp_path):
    """Vectors cached under another identity are not used."""
    model = with_letters(tmp_path / "model", golden)
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 40, "do_lower_case": False}))
    (model / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "[SEP]", "model_max_length": 128}))
    (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {}, "default_prompt_name": None}))
    stores = tmp_path / "stores"
    stores.mkdir()
    begin = lambda model, stores: serve(MODEL, *keeping(stores, model))
    server = begin(model, stores)
    first = vectors(server)
    assert ask(server, QUESTIONS[0])[1] == "miss"
    stop(server)
    assert (stores / "answers.db.vectors").stat().st_size > 100

    def settle_one(place, case):
        edited = edited_folder(model, place / "model", *case[1:])
        shutil.copytree(stores, place / "stores")
        server = begin(edited, place / "stores")
        if not server:
            return "refused"
        got = vectors(server)
        stop(server)
        is_aside = any(".vectors.old-" in p.name for p in (place / "stores").iterdir())
        assert got == first or is_aside, "vectors of the unedited model are compared with others"
        return ("same" if got == first else "moved") + (", missed" if is_aside else ", kept")

    run_drawn(list(edits_of_folder(model)), settle_one, tmp_path)


# ---- other users of the identity -------------------------------------------------------------------------------------

def edited_demo(place, name="config.json", **fields):
    """Changes the positions, unless other fields are given."""
    said = json.loads((MODEL / name).read_text()) | (fields or {"rope_theta": 5000.0})
    return edited_folder(MODEL, place, name, json.dumps(said))


def test_models_that_share_a_redis_share_no_answers(redis, tmp_path):
    edited = edited_demo(tmp_path / "model")
    flags = ("--response-cache", redis.url)
    first, second, plain = serve(MODEL, *flags), serve(edited, *flags), serve(edited)
    for server in (first, second, first, second):
        got = [ask(server, q) for q in QUESTIONS]
        assert server is first or [g for g, _ in got] == [ask(plain, q)[0] for q in QUESTIONS]
    assert [how for _, how in got] == ["exact"] * len(QUESTIONS)
    wait_until(lambda: len({name.split(":")[1] for name in redis.names()}) == 2)
    for server in (first, second, plain):
        stop(server)


def test_exported_answers_are_not_taken_over_by_an_edited_model(tmp_path):
    file = tmp_path / "answers.jsonl"
    flags = ("--response-cache", "memory")
    first, second = serve(MODEL, *flags), serve(edited_demo(tmp_path / "model"), *flags)
    for q in QUESTIONS:
        ask(first, q)
    assert quire("cache", "export", first.url, "--file", file).returncode == 0
    got = quire("cache", "import", second.url, "--file", file)
    assert got.returncode == 1 and "these answers were made under" in got.stderr, got
    assert {ask(second, q)[1] for q in QUESTIONS} == {"miss"}
    stop(first)
    stop(second)


def test_a_front_end_leaves_an_engine_of_other_defaults(start, tmp_path):
    address = f"unix:{tmp_path}/engine"
    engine = start("engine", edited_demo(tmp_path / "model", "generation_config.json", eos_token_id=5), "--listen", address, wait_for="ready")
    got = quire("serve", MODEL, "--port", "0", "--engine", address)
    assert got.returncode == 1 and "identity_generation" in got.stdout + got.stderr, got
    assert engine.stop() == 0


def test_the_same_words_mean_another_request_to_an_engine_of_another_length(start, tmp_path):
    """A response found by its words is not served if the current engine would reject the request."""
    address, question = f"unix:{tmp_path}/engine", ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story"}], "temperature": 0, "max_tokens": 60})
    engine = lambda length: start("engine", MODEL, "--listen", address, "--max-model-len", length, wait_for="ready")
    first = engine(128)
    server = start("serve", MODEL, "--port", "0", "--engine", address, "--response-cache", "memory")
    wait_until(lambda: ask(server, question)[1] == "exact")
    assert first.stop() == 0
    second = engine(64)
    wait_until(lambda: isinstance(ask(server, question)[0][0], int) and ask(server, question)[0][0] != 503)
    assert ask(server, question)[0][0] == 400
    assert second.stop() == 0
