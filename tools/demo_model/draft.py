"""Trains a draft model for the demo model: a much smaller one that predicts the demo model's tokens.

    python tools/demo_model/draft.py --out tools/demo_model/draft

It reads the same text as the demo model, with another seed, and learns the demo model's own distribution at each
position of an answer. Its tokenizer is the demo model's file. Width and layers were chosen by time: at a width of 128
a step costs about a fifth of the demo model's. Two layers are the minimum to find earlier text again. One seed
decides everything.
"""

import argparse
import json
import math
import os
import shutil
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

import train
from corpus import Corpus

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 18
TOKENS_PER_STEP, ROW = 2048, 256
WARMUP_STEPS, PEAK_LR, FINAL_LR = 20, 8e-3, 2e-4
HELD_OUT_ROWS = 64


def make_model(teacher):
    c = teacher.config
    torch.manual_seed(SEED)
    model = Qwen2ForCausalLM(Qwen2Config(
        vocab_size=c.vocab_size, hidden_size=128, head_dim=64, intermediate_size=320, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=c.max_position_embeddings, tie_word_embeddings=True,
        bos_token_id=c.bos_token_id, eos_token_id=c.eos_token_id, attn_implementation="sdpa"))
    train.start_with_induction(model)
    with torch.no_grad():  # the demo model's embedding along the directions in which it is widest
        embedding = teacher.model.embed_tokens.weight
        wide = torch.linalg.svd(embedding, full_matrices=False).Vh[:model.config.hidden_size]
        mine = embedding @ wide.T
        model.model.embed_tokens.weight.copy_(mine * (0.08 / mine.std()))
    return model


def answers(model, inputs, learn):
    """Logits at the learned positions."""
    return model.lm_head(model.model(inputs, use_cache=False).last_hidden_state[learn])


def held_out(teacher, model, tokenizer):
    """How often both choose the same token, and how much of their distributions overlaps, on held-out text."""
    source = train.rows(Corpus(SEED + 1, "held_out"), tokenizer, ROW)
    same, shared, n = 0, 0.0, 0
    with torch.no_grad():
        for _ in range(HELD_OUT_ROWS // 8):
            inputs, _, learn = train.batch(source, 8)
            a, b = answers(teacher, inputs, learn), answers(model, inputs, learn)
            same += int((a.argmax(-1) == b.argmax(-1)).sum())
            shared += float(torch.minimum(a.softmax(-1), b.softmax(-1)).sum())
            n += len(a)
    return {"places": n, "same_choice": same / n, "shared_mass": shared / n}


def learn_from(teacher, model, tokenizer, steps):
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = (train.Muon(matrices), torch.optim.Adam(others, lr=0.0, betas=(0.9, 0.98), fused=True))
    source, started, mean = train.rows(Corpus(SEED), tokenizer, ROW), time.process_time(), None
    for step in range(steps):
        inputs, _, learn = train.batch(source, TOKENS_PER_STEP // ROW)
        with torch.no_grad():
            wanted = answers(teacher, inputs, learn).softmax(-1)
        loss = F.cross_entropy(answers(model, inputs, learn), wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        done = max(0, step - WARMUP_STEPS) / (steps - WARMUP_STEPS)
        rate = PEAK_LR * (step + 1) / WARMUP_STEPS if step < WARMUP_STEPS else \
            FINAL_LR + (PEAK_LR - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * done))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}/{steps} loss {mean:.4f} {time.process_time() - started:.0f} s of CPU", flush=True)


CARD = """---
license: apache-2.0
language: en
---
# A draft model for Folio, the demo model

{parameters:,} parameters: Qwen2, 2 layers, hidden size 128, 2 heads and 1 KV head of 64, intermediate size 320, fp16, the demo
model's tokenizer. It is there to guess what the demo model will say:

    quire serve tools/demo_model/model --speculative-config '{{"method": "draft_model", "model": "tools/demo_model/draft"}}'

On held-out text, at the {places:,} places where an answer stands, both would choose the same token in {same_choice:.1%}, and
share {shared_mass:.1%} of a draw at temperature 1 (fp32, weights before rounding to fp16).

Trained by `tools/demo_model/draft.py`: seed {seed}, {steps} steps of {tokens:,} tokens, one thread, {seconds:.0f} s of CPU. All text is
written by `corpus.py`; what is learned are the demo model's own distributions.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teacher", default=os.path.join(HERE, "model"), help="the demo model (%(default)s)")
    parser.add_argument("--out", required=True, help="directory of the finished model")
    parser.add_argument("--steps", type=int, default=700)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tokenizer = Tokenizer.from_file(os.path.join(args.teacher, "tokenizer.json"))
    teacher = Qwen2ForCausalLM.from_pretrained(args.teacher, dtype=torch.float32).eval()
    model = make_model(teacher)
    started = time.process_time()
    learn_from(teacher, model, tokenizer, args.steps)
    seconds = time.process_time() - started
    train.export(model, tokenizer, args.out)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(os.path.join(args.teacher, name), os.path.join(args.out, name))
    figures = {"parameters": sum(p.numel() for p in model.parameters()), **held_out(teacher, model, tokenizer)}
    with open(os.path.join(args.out, "README.md"), "w", encoding="utf-8") as out:
        out.write(CARD.format(**figures, seed=SEED, steps=args.steps, tokens=TOKENS_PER_STEP, seconds=seconds))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
