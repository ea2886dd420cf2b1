#!/usr/bin/env python3
"""Makes tests/goldens/vectors/*: tiny random checkpoints of models that return vectors, and the results of
transformers in fp32. README.md describes each file.

    python tests/goldens/make_vectors.py [NAME ...]     (torch, transformers 5, safetensors)
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

ROOT = pathlib.Path(__file__).resolve().parent / "vectors"
BERT = dict(model_type="bert", vocab_size=130, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=150, max_position_embeddings=160, type_vocab_size=2, hidden_act="gelu",
            layer_norm_eps=1e-12, initializer_range=0.2, pad_token_id=0, torch_dtype="float32")
QWEN3 = dict(model_type="qwen3", vocab_size=130, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, intermediate_size=150, max_position_embeddings=160,
             rms_norm_eps=1e-6, initializer_range=0.2, torch_dtype="float32", tie_word_embeddings=True)
# name: config.json, the mode of pooling (None: no modules.json), normalised, max_seq_length; a Dense module's size, bias, activation
MODELS = {
    "bert_mean": (dict(BERT, architectures=["BertModel"]), "mean_tokens", True, 140),
    "bert_cls": (dict(BERT, architectures=["BertModel"]), "cls_token", False, None),
    "bert_labels": (dict(BERT, architectures=["BertForSequenceClassification"],
                         id2label={"0": "a", "1": "b", "2": "c"}), None, False, None),
    "roberta": (dict(BERT, model_type="roberta", architectures=["RobertaModel"], pad_token_id=1, type_vocab_size=1),
                None, False, None),
    "xlmr_labels": (dict(BERT, model_type="xlm-roberta", architectures=["XLMRobertaForSequenceClassification"], pad_token_id=1,
                         type_vocab_size=1, id2label={"0": "LABEL_0"}), None, False, None),
    "qwen3_last": (dict(QWEN3, architectures=["Qwen3ForCausalLM"]), "lasttoken", True, None),
    "bert_dense": (dict(BERT, architectures=["BertModel"]), "mean_tokens", True, None, (40, True, torch.nn.Tanh())),
    "qwen3_dense": (dict(QWEN3, architectures=["Qwen3ForCausalLM"]), "lasttoken", False, None, (24, False, torch.nn.Identity())),
}
# Lengths around tiles of attention, and a pair of texts where the model reads one.
LENGTHS = [(1, 0), (3, 0), (17, 9), (64, 0), (65, 30), (129, 70)]


def vector(model, name, pooling, normalize, ids, segment, dense):
    kinds = torch.tensor([[int(segment > 0 and i >= segment) for i in range(len(ids))]])
    pairs = {"token_type_ids": kinds} if name.startswith("bert") else {}
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), **pairs)
    if name.endswith("_labels"):
        return out.logits[0]
    h = out.last_hidden_state[0]
    v = {"cls_token": h[0], "lasttoken": h[-1]}.get(pooling, h.mean(0))
    with torch.no_grad():
        v = dense(v)
    return v / v.norm() if normalize else v


def make_dense(where, size, bias, activation):
    """The module as sentence-transformers 5 saves it, and the layer that computes it."""
    linear = torch.nn.Linear(64, size, bias=bias)
    torch.nn.init.normal_(linear.weight, std=0.05)  # so that tanh is steep somewhere, and flat elsewhere
    where.mkdir(exist_ok=True)
    save_file({f"linear.{k}": v.contiguous() for k, v in linear.state_dict().items()}, where / "model.safetensors")
    kind = type(activation)
    (where / "config.json").write_text(json.dumps(dict(in_features=64, out_features=size, bias=bias,
                                                       activation_function=f"{kind.__module__}.{kind.__name__}"), indent=1) + "\n")
    return torch.nn.Sequential(linear, activation)


def make(name, config, pooling, normalize, longest, dense=None):
    where = ROOT / name
    where.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(sum(map(ord, name)))
    auto = AutoModelForSequenceClassification if name.endswith("_labels") else AutoModel
    kept = {k: v for k, v in config.items() if k not in ("architectures", "torch_dtype")}
    model = auto.from_config(AutoConfig.for_model(**kept), attn_implementation="eager").eval().float()
    for key, p in model.named_parameters():  # transformers begins with norms of 1 and biases of 0
        if p.dim() == 1:
            p.data += 0.3 * torch.randn_like(p)
    state = {("model." if name == "qwen3_last" else "") + k: v.contiguous() for k, v in model.state_dict().items()
             if "position_ids" not in k and (name.endswith("_labels") or not k.startswith("pooler"))}
    save_file(state, where / "model.safetensors")
    (where / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    layer = make_dense(where / "2_Dense", *dense) if dense else torch.nn.Identity()
    if pooling:
        kind = "sentence_transformers.models."
        modules = [dict(idx=0, name="0", path="", type=kind + "Transformer"),
                   dict(idx=1, name="1", path="1_Pooling", type=kind + "Pooling")]
        if dense:
            modules.append(dict(idx=2, name="2", path="2_Dense", type=kind + "Dense"))
        if normalize:
            n = str(len(modules))
            modules.append(dict(idx=int(n), name=n, path=f"{n}_Normalize", type=kind + "Normalize"))
        (where / "modules.json").write_text(json.dumps(modules, indent=1) + "\n")
        (where / "1_Pooling").mkdir(exist_ok=True)
        modes = {f"pooling_mode_{m}": m == pooling for m in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
        (where / "1_Pooling" / "config.json").write_text(
            json.dumps(dict(word_embedding_dimension=64, **modes), indent=1) + "\n")
    if longest:
        (where / "sentence_bert_config.json").write_text(json.dumps(dict(max_seq_length=longest)) + "\n")
    lines = []
    for n, segment in LENGTHS:
        segment = segment if name.startswith("bert") else 0
        ids = torch.randint(5, 130, (n,)).tolist()
        v = vector(model, name, pooling, normalize, ids, segment, layer)
        lines += [f"text {n} {segment} {len(v)}", " ".join(map(str, ids)), " ".join(f"{x:.9g}" for x in v.tolist())]
    (where / "golden.txt").write_text("\n".join(lines) + "\n")


for name in sys.argv[1:] or MODELS:
    make(name, *MODELS[name])
