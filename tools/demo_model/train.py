"""Trains Quire's demo model from nothing: text, tokenizer, weights, figures, model card.

    python tools/demo_model/train.py --out tools/demo_model/model

One seed decides everything. On the same machine type and library versions a second run gives the
same text and the same tokenizer; the weights agree as far as torch's CPU arithmetic does.
"""

import argparse
import json
import math
import os
import platform
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM

import card
import evaluate
from corpus import END_OF_TEXT, IM_END, IM_START, TRAINING_SEED, Corpus

VOCAB_SIZE = 2048
TOKENIZER_DOCUMENTS = 12000
TOKENS_PER_STEP = 4096
# (steps, tokens in a row): most of the training on short rows, then rows as long as a chat.
PHASES = ((1000, 256), (500, 512))
WARMUP_STEPS = 40
PEAK_LR, FINAL_LR = 5e-3, 1e-4

# Qwen2's pre-tokenizer: words keep the space before them, every digit stands alone.
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
               r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer():
    """Byte-level BPE: the alphabet holds all 256 bytes, so every text has an encoding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    special = [END_OF_TEXT, IM_START, IM_END]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(special), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    corpus = Corpus(TRAINING_SEED + 1)
    texts = []
    for _ in range(TOKENIZER_DOCUMENTS):
        text = "".join(part for part, _ in corpus.document())
        for token in special:
            text = text.replace(token, "\n")
        texts.append(text)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    return tokenizer


def encode(tokenizer, document):
    """(ids, learn) of one document; each segment is encoded by itself, and joins cleanly."""
    ids, learn = [], []
    for text, is_learned in document:
        part = tokenizer.encode(text, add_special_tokens=False).ids
        ids += part
        learn += [is_learned] * len(part)
    return ids, learn


def rows(corpus, tokenizer, length):
    """Rows of `length` + 1 tokens, filled with whole documents; what is left over is padding."""
    pad = tokenizer.token_to_id(END_OF_TEXT)
    pool = []
    while True:
        while len(pool) < 48:
            document = encode(tokenizer, corpus.document())
            if len(document[0]) <= length + 1:
                pool.append(document)
        ids, learn = pool.pop(0)
        ids, learn = list(ids), list(learn)
        while True:
            room = length + 1 - len(ids)
            fitting = [i for i, document in enumerate(pool) if len(document[0]) <= room]
            if not fitting:
                break
            more = pool.pop(max(fitting, key=lambda i: len(pool[i][0])))
            ids += more[0]
            learn += more[1]
        room = length + 1 - len(ids)
        yield ids + [pad] * room, learn + [False] * room


def batch(source, count):
    ids, learn = zip(*(next(source) for _ in range(count)))
    ids, learn = torch.tensor(ids), torch.tensor(learn)
    return ids[:, :-1], ids[:, 1:], learn[:, 1:]


def loss_of(model, inputs, targets, learn):
    """Cross entropy of the learned positions; the head is computed for those alone."""
    hidden = model.model(inputs, use_cache=False).last_hidden_state
    return F.cross_entropy(model.lm_head(hidden[learn]), targets[learn])


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made nearly orthogonal by Newton-Schulz steps, for matrices.

    The factor 0.2 * sqrt(longer side) gives its updates the size of Adam's, so that both share one
    schedule.
    """

    def __init__(self, params, momentum=0.95):
        super().__init__(params, {"lr": 0.0, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(velocity, group["momentum"]))
                p.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(p.shape)))


def orthogonal(matrix, steps=4):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        xx = x @ x.T
        x = a * x + torch.addmm(xx, xx, xx, beta=b, alpha=c) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def learning_rate(step, total):
    if step < WARMUP_STEPS:
        return PEAK_LR * (step + 1) / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / (total - WARMUP_STEPS)
    return FINAL_LR + (PEAK_LR - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * done))


def make_model(tokenizer):
    torch.manual_seed(TRAINING_SEED)
    eos = tokenizer.token_to_id(IM_END)
    model = Qwen2ForCausalLM(Qwen2Config(
        vocab_size=VOCAB_SIZE, hidden_size=256, head_dim=64, intermediate_size=640,
        num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=2048, tie_word_embeddings=True,
        bos_token_id=tokenizer.token_to_id(END_OF_TEXT), eos_token_id=eos, attn_implementation="sdpa"))
    start_with_induction(model)
    return model


@torch.no_grad()
def start_with_induction(model):
    """Initial weights under which the model already continues what it has seen before.

    Copying, recall and stories with the same names throughout all rest on one circuit, which
    training by itself finds only after millions of tokens. Here it is there from the start, and
    training is free to change it. Its parts:
    - layer 0, heads 0 and 1 look one and two tokens back. Under RoPE the biases of q and k alone
      can do that: their product depends on the distance only, and is largest where the rotation
      between them is undone. Each writes a random projection of what it sees to its own subspace.
    - layer 1, head 0 looks for a token that came after the current one: its q projects the current
      token as above, its k reads the subspace of "one back". Only slowly rotating dimensions take
      part, so that distance matters little. It adds what it finds to the prediction, which is
      simple because the output head is the embedding.
    """
    width, size = model.config.hidden_size, model.config.head_dim
    half = size // 2
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    embedding_std, amplitude, fast, match, copy = 0.08, 4.3, 16, 2.3, 1.6
    model.model.embed_tokens.weight.normal_(std=embedding_std)
    theta = model.config.rope_parameters["rope_theta"]
    angle = theta ** (-torch.arange(fast) * 2 / size)
    seen = torch.randn(size, width) / width ** 0.5
    subspaces = torch.linalg.qr(torch.randn(width, 2 * size)).Q
    first.v_proj.weight[:size] = seen
    first.k_proj.bias[:fast] = amplitude
    for head, distance in ((0, 1), (1, 2)):
        part = slice(head * size, (head + 1) * size)
        q = first.q_proj.bias[part]
        q[:fast] = amplitude * torch.cos(distance * angle)
        q[half:half + fast] = -amplitude * torch.sin(distance * angle)
        first.o_proj.weight[:, part] = 2 * embedding_std * subspaces[:, part]
    for slow in (slice(fast, half), slice(half + fast, size)):
        second.q_proj.weight[slow] = match * seen[slow]
        second.k_proj.weight[slow] = match * subspaces[:, slow].T
    found = torch.randn(size, width) / width ** 0.5
    second.v_proj.weight[:size] = found
    second.o_proj.weight[:, :size] = copy * found.T


def train(model, tokenizer, save):
    """Runs all steps; returns the figures of the run. save(step) is called now and then."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = (Muon(matrices), torch.optim.Adam(others, lr=0.0, betas=(0.9, 0.98), fused=True))
    total = sum(steps for steps, _ in PHASES)
    corpus = Corpus(TRAINING_SEED)
    step, started, learned, mean = 0, time.time(), 0, None
    for steps, length in PHASES:
        source = rows(corpus, tokenizer, length)
        for _ in range(steps):
            inputs, targets, learn = batch(source, TOKENS_PER_STEP // length)
            loss = loss_of(model, inputs, targets, learn)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(others, 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, total)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            learned += int(learn.sum())
            mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
            if step % 20 == 0:
                elapsed = time.time() - started
                print(f"step {step}/{total} loss {mean:.4f} "
                      f"{step * TOKENS_PER_STEP / elapsed:.0f} tokens/s {elapsed:.0f} s",
                      flush=True)
            if step % 100 == 0 and step < total:
                save(step)
    return {"steps": step, "tokens": step * TOKENS_PER_STEP, "learned_tokens": learned,
            "wall_seconds": time.time() - started, "final_loss": mean}


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2, ensure_ascii=False)
        out.write("\n")


def export(model, tokenizer, directory):
    """The checkpoint directory as the hub lays it out: fp16, tied head left out."""
    os.makedirs(directory, exist_ok=True)
    tensors = {n: p.detach().to(torch.float16).contiguous() for n, p in model.named_parameters()}
    weights = os.path.join(directory, "model.safetensors")
    save_file(tensors, weights, metadata={"format": "pt"})
    os.chmod(weights, 0o644)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    c = model.config
    end, eos = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(IM_END)
    write_json(os.path.join(directory, "config.json"), {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": end,
        "eos_token_id": eos, "hidden_act": "silu", "hidden_size": c.hidden_size,
        "initializer_range": 0.02, "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_position_embeddings, "model_type": "qwen2",
        "num_attention_heads": c.num_attention_heads, "num_hidden_layers": c.num_hidden_layers,
        "num_key_value_heads": c.num_key_value_heads, "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "float16",
        "transformers_version": transformers.__version__, "use_cache": True,
        "use_sliding_window": False, "vocab_size": c.vocab_size})
    write_json(os.path.join(directory, "generation_config.json"), {
        "bos_token_id": end, "do_sample": True, "eos_token_id": [eos, end], "pad_token_id": end,
        "temperature": 0.7, "top_k": 40, "top_p": 0.95})
    special = {str(tokenizer.token_to_id(t)): {
        "content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
        "special": True} for t in (END_OF_TEXT, IM_START, IM_END)}
    write_json(os.path.join(directory, "tokenizer_config.json"), {
        "add_prefix_space": False, "added_tokens_decoder": special,
        "additional_special_tokens": [IM_START, IM_END], "bos_token": None,
        "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
        "eos_token": IM_END, "errors": "replace", "model_max_length": c.max_position_embeddings,
        "pad_token": END_OF_TEXT, "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="directory of the finished model")
    parser.add_argument("--checkpoints", help="directory for exports along the way")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tokenizer = train_tokenizer()
    model = make_model(tokenizer)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)

    def save(step):
        if args.checkpoints:
            export(model, tokenizer, os.path.join(args.checkpoints, f"step-{step}"))

    run = train(model, tokenizer, save)
    run |= {"seed": TRAINING_SEED, "torch": torch.__version__,
            "transformers": transformers.__version__, "python": platform.python_version(),
            "parameters": sum(p.numel() for p in model.parameters())}
    export(model, tokenizer, args.out)
    figures = evaluate.evaluate(args.out)
    print(json.dumps({"run": run, "figures": figures}, indent=2))
    card.write(args.out, run, figures)


if __name__ == "__main__":
    main()
