"""Measures an exported demo model on held-out questions and text.

    python tools/demo_model/evaluate.py tools/demo_model/model

The weights are the exported fp16 ones, the arithmetic is fp32, decoding is greedy.
"""

import json
import math
import random
import re
import sys

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpus import END_OF_TEXT, FRAMES, IM_END, TRAINING_SEED, Corpus, chat_document
from stories import asked_story, story

SEED = 4242
QUESTIONS = 400
BATCH = 40
# More documents than the training draws (it stops when its steps are done).
TRAINING_DOCUMENTS = 100000
# The kinds of recall: they differ in the distance of the value from its key.
RECALL_KINDS = {
    "recall: colours, keys, likings, ages": [FRAMES[i] for i in (0, 1, 4, 7)],
    "recall: codes, made-up words": [FRAMES[i] for i in (8, 9)],
    "recall: where things and people are": [FRAMES[i] for i in (2, 3)],
    "recall: who has what": [FRAMES[i] for i in (5, 6)],
}


def answers(model, tokenizer, chats, max_new_tokens=200):
    """Greedy answers to a list of message lists; None where the answer did not end."""
    out = []
    for start in range(0, len(chats), BATCH):
        prompts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
                   for chat in chats[start:start + BATCH]]
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        with torch.no_grad():
            ids = model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
        for row in ids[:, inputs["input_ids"].shape[1]:]:
            text = tokenizer.decode(row, skip_special_tokens=False)
            end = text.find(IM_END)
            out.append(text[:end] if end >= 0 else None)
    return out


def messages(turns):
    """The messages of a chat up to its last question, and that question's answer."""
    chat = []
    for ask, answer in turns:
        chat += [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]
    return chat[:-1], chat[-1]["content"]


def skill(model, tokenizer, draw, judge=lambda got, want: got == want, count=QUESTIONS):
    """Share of correct answers, over chats drawn without repetition."""
    cases, seen, tries = [], set(), 0
    while len(cases) < count and tries < 50 * count:
        case = messages(draw())
        tries += 1
        if str(case) not in seen:
            seen.add(str(case))
            cases.append(case)
    got = answers(model, tokenizer, [chat for chat, _ in cases])
    right = sum(g is not None and judge(g, want) for g, (_, want) in zip(got, cases))
    wrong = [(chat[-1]["content"], g) for g, (chat, want) in zip(got, cases)
             if g is None or not judge(g, want)]
    for ask, answer in wrong[:3]:
        print(f"  wrong: {ask!r} -> {answer!r}", file=sys.stderr)
    return {"right": right, "asked": len(cases), "accuracy": right / len(cases)}


def same_total(got, want):
    found = re.search(r"The answer is (\d+)\.$", got)
    return bool(found) and found.group(0) == re.search(r"The answer is (\d+)\.$", want).group(0)


def stories(model, tokenizer, count=100):
    """Share of stories, one per request, that end and name what the request named."""
    rng = random.Random(SEED)
    requests = []
    while len(requests) < count:
        ask, _ = asked_story(rng)
        named = re.findall(r"\b(?:about|and|at|called) (?:an? |the )?(\w+)", ask)
        if named:
            requests.append((ask, named))
    got = answers(model, tokenizer, [[{"role": "user", "content": a}] for a, _ in requests], 400)
    right = sum(g is not None and all(re.search(rf"\b{n}\b", g) for n in named)
                for g, (_, named) in zip(got, requests))
    lengths = sorted(len(tokenizer(g)["input_ids"]) for g in got if g is not None)
    return {"right": right, "asked": count, "accuracy": right / count,
            "tokens_shortest": lengths[0], "tokens_median": lengths[len(lengths) // 2],
            "tokens_longest": lengths[-1]}


def perplexity(model, tokenizer, documents):
    """exp of the mean loss over the learned tokens of documents, each scored by itself."""
    total, count = 0.0, 0
    for document in documents:
        ids, learn = [], []
        for text, is_learned in document:
            part = tokenizer.encode(text, add_special_tokens=False).ids
            ids += part
            learn += [is_learned] * len(part)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].float()
        mask = torch.tensor(learn[1:])
        total += F.cross_entropy(logits[mask], torch.tensor(ids[1:])[mask], reduction="sum").item()
        count += int(mask.sum())
    return {"perplexity": math.exp(total / count), "tokens": count, "documents": len(documents)}


def whole(document):
    return "".join(text for text, _ in document)


def trained_texts():
    """Every document of the training text, and every learned part of one by itself."""
    corpus, out = Corpus(TRAINING_SEED), set()
    for _ in range(TRAINING_DOCUMENTS):
        document = corpus.document()
        out.add(whole(document))
        out.update(text.removesuffix(IM_END).removesuffix(END_OF_TEXT)
                   for text, learn in document if learn)
    return out


def evaluate(directory):
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    plain = Tokenizer.from_file(f"{directory}/tokenizer.json")
    held_out, rng = Corpus(SEED, "held_out"), random.Random(SEED)
    trained = trained_texts()
    chats, tales = [], []
    while len(chats) < 300:
        names, weights = zip(*held_out.SKILLS)
        turns = getattr(held_out, held_out.rng.choices(names, weights)[0])()
        if whole(chat_document(turns)) not in trained:
            chats.append(chat_document(turns))
    while len(tales) < 150:
        text = story(rng)
        if text not in trained:
            tales.append([(text + END_OF_TEXT, True)])
    draw = {"sums": held_out.sums, "counting": held_out.counting,
            "next number": held_out.next_number, "copying": held_out.copying,
            "first or last word": held_out.pick_words,
            "plain facts (trained on)": held_out.fact, "recall, all kinds": held_out.recall}
    for name, frames in RECALL_KINDS.items():
        draw[name] = lambda frames=frames: held_out.recall(frames)
    out = {"perplexity_chats": perplexity(model, plain, chats),
           "perplexity_stories": perplexity(model, plain, tales), "skills": {}}
    for name, one in draw.items():
        judge = {"judge": same_total} if name == "sums" else {}
        out["skills"][name] = skill(model, tokenizer, one, **judge)
        print(name, out["skills"][name], file=sys.stderr, flush=True)
    out["stories"] = stories(model, tokenizer)
    return out


if __name__ == "__main__":
    print(json.dumps(evaluate(sys.argv[1]), indent=2))
