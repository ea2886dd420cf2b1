"""Writes demo_goldens.json: the greedy answers of transformers (fp32) with the demo model.

usage: make_demo_goldens.py      needs torch and transformers 5 (tools/demo_model/requirements.txt)

Each step has the margin between the two best logits. test_demo_goldens.py compares the answer up to the first
step whose margin is below the bound of docs/internals/numerics.md §15, 0.02 nats.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "tools" / "demo_model" / "model"
QUESTIONS = ["Tell me a story.", "What is 27 plus 48?", "Count from 3 to 12.", "Who are you?",
             "The key to the barn is red. What colour is the key to the barn?"]
N = 120

torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
cases = []
for question in QUESTIONS:
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    ids, tokens, margins = list(prompt), [], []
    with torch.no_grad():
        for _ in range(N):
            logprobs = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            best = logprobs.topk(2)
            tokens.append(int(best.indices[0]))
            margins.append(round(float(best.values[0] - best.values[1]), 4))
            ids.append(tokens[-1])
            if tokens[-1] == tokenizer.eos_token_id:
                break
    cases.append({"messages": messages, "prompt": list(map(int, prompt)), "tokens": tokens, "margins": margins,
                  "text": tokenizer.decode(tokens, skip_special_tokens=True)})
(HERE / "demo_goldens.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")
