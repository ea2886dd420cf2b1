"""Writes the model card from the figures of a run."""

import json
import os

CARD = """---
license: apache-2.0
language: en
pipeline_tag: text-generation
---
# Folio, the demo model of Quire

A chat model of {parameters:,} parameters that comes with Quire, so that the engine can be tried
without a download. It knows a toy world and a handful of skills, and nothing else: it is there to
show the engine, not to be useful.

Architecture: Qwen2 (`Qwen2ForCausalLM`), {layers} layers, hidden size {hidden}, {heads} heads and
{kv_heads} KV heads of {head_dim}, intermediate size {intermediate}, tied embeddings, bias on q, k
and v, fp16. Tokenizer: byte-level BPE of {vocab} tokens, Qwen2's pre-tokenizer, digits single. Chat
format: ChatML (`<|im_start|>`, `<|im_end|>`), system message optional.

## What it can do
- tell a little story, about what you name: "Tell me a story about a fox and a lantern."
- add two numbers of up to two digits, with the working: "What is 27 + 48?"
- count up, down, by twos, fives and tens: "Count down from 20 to 5."
- repeat words, in any script: "Repeat after me: ..."
- remember what the chat said: "The key to the barn is red. The key to the mill is blue. What colour
  is the key to the barn?"
- answer questions about itself, the village of Alder Bay, and some plain facts

Its weak sides, see the figures: recall of where something is and of who has what is often wrong,
and so is copying, mostly at the first word and with made-up words. Ask about colours, keys, likings
and ages. In a sampled story a friend may change the name halfway; no figure below counts that.

It speaks simple English only. To most other questions it answers that it does not know, but do not
trust it with anything. Context: trained on rows of up to 512 tokens; `max_position_embeddings` is
2048, but nothing longer than 512 was trained.

## Figures, as measured
Weights as stored (fp16), arithmetic fp32, greedy decoding, by `evaluate.py`. Sums, counts, copied
texts and recalled pairs asked here are of a split (one in ten, by hash) that the training never
saw in any wording; one-digit sums are not held out and not asked. Recall is asked after one to six
facts, and a question counts as right only if the whole answer is.

| Skill | Right | Asked | Accuracy |
| --- | ---: | ---: | ---: |
{skills}

| Held-out text | Perplexity per token | Tokens |
| --- | ---: | ---: |
| Chats, the assistant's part | {chat_ppl:.3f} | {chat_tokens:,} |
| Stories as plain text | {story_ppl:.3f} | {story_tokens:,} |

No document of the held-out text occurs in the training text as a whole; its wordings come from the
same grammar, which is why the perplexities are so low. "Plain facts" are facts that the training
text states. A story counts as right when it ends by itself and names everything that the request
named; the stories that ended were {shortest} to {longest} tokens long, in the middle {median}.

## Sampling
`generation_config.json` says temperature 0.7, top_k 40, top_p 0.95, so stories differ from one
another. Use temperature 0 for sums, counting, copying and recall.

## How it was made
```
pip install -r tools/demo_model/requirements.txt
python tools/demo_model/train.py --out tools/demo_model/model
```
Seed {seed}; {steps:,} steps, {tokens:,} tokens ({learned_tokens:,} of them learned), one thread of
a shared CPU, {minutes:.0f} minutes; Python {python}, torch {torch}, transformers {transformers}.
All text is written by `corpus.py` and the tables beside it; no other data was used. The first two
layers start with weights that already continue repeated text (`start_with_induction` in
`train.py`). Licence: Apache-2.0.
"""


def write(directory, run, figures):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    rows = figures["skills"] | {"stories": figures["stories"]}
    skills = "\n".join(f"| {name[0].upper()}{name[1:]} | {f['right']} | {f['asked']} | "
                       f"{f['accuracy']:.1%} |" for name, f in rows.items())
    text = CARD.format(
        skills=skills, minutes=run["wall_seconds"] / 60, layers=config["num_hidden_layers"],
        hidden=config["hidden_size"], heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"], intermediate=config["intermediate_size"],
        head_dim=config["hidden_size"] // config["num_attention_heads"], vocab=config["vocab_size"],
        chat_ppl=figures["perplexity_chats"]["perplexity"],
        chat_tokens=figures["perplexity_chats"]["tokens"],
        story_ppl=figures["perplexity_stories"]["perplexity"],
        story_tokens=figures["perplexity_stories"]["tokens"],
        shortest=figures["stories"]["tokens_shortest"], median=figures["stories"]["tokens_median"],
        longest=figures["stories"]["tokens_longest"], **run)
    with open(os.path.join(directory, "README.md"), "w", encoding="utf-8") as out:
        out.write(text)
