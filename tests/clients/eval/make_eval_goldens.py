"""Writes eval_goldens.json: perplexities and divergences by transformers (fp32) with the demo model, for test_eval.py.

usage: make_eval_goldens.py      needs torch and transformers 5 (tools/demo_model/requirements.txt)

The text is held out of the demo model's training. The divergence is that of a second model whose final norm has its weights
times 1.25, in float16 as the test writes them: what no figure of this program decides.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parents[2] / "tools" / "demo_model"
sys.path.insert(0, str(DEMO))
from corpus import Corpus  # noqa: E402

FACTOR, DEPTHS = 1.25, 8
WINDOWS = [(128, 128, 0), (256, 64, 0), (512, 512, 4), (2000, 1000, 0)]
tokenizer = AutoTokenizer.from_pretrained(DEMO / "model")


def load():
    return AutoModelForCausalLM.from_pretrained(DEMO / "model", dtype=torch.float32).eval()


def windows(ids, window, stride, most):
    """Begin, end, and how many of the last tokens are scored."""
    end = 0
    for i, begin in enumerate(range(0, len(ids), stride)):
        if most and i == most:
            return
        last = min(begin + window, len(ids))
        yield begin, last, min(last - end, last - begin - 1)
        end = last
        if last == len(ids):
            return


def rows(model, ids):
    with torch.no_grad():
        return torch.log_softmax(model(ids[None]).logits[0].double(), -1)


def perplexity(model, ids, window, stride, most):
    nll, n, count, scored_ids = 0.0, 0, 0, []
    for begin, end, scored in windows(ids, window, stride, most):
        count += 1
        if scored:
            part = ids[begin:end]
            got = rows(model, part)[:-1].gather(1, part[1:, None])[:, 0]
            nll -= got[-scored:].sum().item()
            n += scored
            scored_ids += part[-scored:].tolist()
    bytes_ = len(tokenizer.decode(scored_ids, skip_special_tokens=True).encode())
    return {"window": window, "stride": stride, "windows": most, "tokens": n, "bytes": bytes_, "perplexity": math.exp(nll / n), "byte_perplexity": math.exp(nll / bytes_)}


def divergence(a, b, ids, window):
    kl, same, depths = [], 0, [[] for _ in range(DEPTHS)]
    for begin, end, scored in windows(ids, window, window, 0):
        if not scored:
            continue
        p, q = rows(a, ids[begin:end])[:-1], rows(b, ids[begin:end])[:-1]
        each = (p.exp() * (p - q)).sum(-1).tolist()
        kl += each
        for i, value in enumerate(each):
            depths[(i + 1) * DEPTHS // window].append(value)
        same += (p.argmax(-1) == q.argmax(-1)).sum().item()
    median, p999 = np.percentile(kl, [50, 99.9]).tolist()
    return {"window": window, "tokens": len(kl), "kl_mean": sum(kl) / len(kl), "kl_median": median, "kl_p999": p999, "kl_max": max(kl),
            "same_top1": same / len(kl), "by_depth": [sum(d) / len(d) if d else 0 for d in depths]}


corpus, text = Corpus(4242, "held_out"), ""
while len(tokenizer(text).input_ids) < 5000:
    text += "".join(part for part, _ in corpus.document())
ids, model, other = tokenizer(text, return_tensors="pt").input_ids[0], load(), load()
with torch.no_grad():
    other.model.norm.weight.copy_((other.model.norm.weight * FACTOR).half().float())
goldens = {"factor": FACTOR, "text": text, "perplexities": [perplexity(model, ids, *w) for w in WINDOWS], "divergence": divergence(model, other, ids, 256)}
(HERE / "eval_goldens.json").write_text(json.dumps(goldens, indent=1, ensure_ascii=False) + "\n")
