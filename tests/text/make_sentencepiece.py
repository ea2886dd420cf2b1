#!/usr/bin/env python3
"""Makes tests/text/data/sentencepiece: small SentencePiece models, the same in GGUF, and goldens of what SentencePiece
and transformers make of texts.

Needs the Python packages sentencepiece, transformers and gguf; the tests need only what this leaves in data/. Usage:
make_sentencepiece.py
"""
import json
import pathlib
import random
import shutil
import tempfile

import gguf
import sentencepiece
import transformers

from make_data import CORPUS, dump_lines

DATA = pathlib.Path(__file__).resolve().parent / "data" / "sentencepiece"
SPACES = ["▁" * n for n in range(2, 17)]
# Compatibility characters as NFKC has them, without its map of 240 kB.
RULES = "FB01\t66 69\nBD\t31 2F 32\n3000\t20\nA0\t20\n9\t20\nA\t20\nFF21\t41\n"
MODELS = {
    "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", split_digits=True,
                  remove_extra_whitespaces=False, user_defined_symbols=["<tool>"], vocab_size=560),
    "gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", split_digits=True,
                  remove_extra_whitespaces=False, add_dummy_prefix=False, control_symbols=["<ctl>"], vocab_size=580,
                  user_defined_symbols=["<mask>", "\n", "\n\n", *SPACES, "<start_of_turn>"],
                  pad_id=0, eos_id=1, bos_id=2, unk_id=3),
    "unigram": dict(model_type="unigram", vocab_size=150),
    "rules": dict(model_type="bpe", byte_fallback=True, vocab_size=540),
}
CONFIGS = {
    "llama": {},
    "llama_first": {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True,
                    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                    "added_tokens_decoder": {"560": {"content": "<|more|>", "special": True},
                                             "561": {"content": "<plain>", "special": False}}},
    "llama_bare": {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": False, "add_eos_token": True,
                   "add_prefix_space": False},
    "gemma": {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>",
              "unk_token": "<unk>", "pad_token": "<pad>",
              "added_tokens_decoder": {"23": {"content": "<start_of_turn>", "special": True}}},
    "unigram": {},
    "rules": {},
}
PLAIN = [
    "", " ", "  ", "   ", "a", "x", " a", " x", "  a", "a ", "a  ", "a b", "a  b", "a   b", " a  b   c    d ",
    "The tide comes in.", "The tide comes in twice a day, and twice a day it goes out again.", " leading", "trailing ",
    "two  spaces", "wasn't it?", "1234567", "3.14159", "1,000,000", "naïve façade", "Größe Ärger", "Œuvre",
    "Привет, мир", "Добрый день!", "今日は天気がいい。", "海へ", "안녕하세요", "مرحبا", "😀", "😀 smile", "👩‍🚀 flies",
    "a😀b", "e\u0301 combining", "A\u030a", "\u200bzero", "ﬁ ligature", "½ of ﬁ", "Ａ wide", "\u3000ideographic",
    "no\u00a0break", "<0x41>", "<0x0A>", "##ing", "Ġtrick", "def add(a, b):", "return a + b  # nothing", "a" * 40,
    "the the then there these those", "water winter wind window", "x" * 20, " " * 5 + "five", " " * 9 + "nine",
    "q z x j", "~!@#$%^&*()_+", "{\"a\": [1, 2]}", "https://a.b/c?d=e&f", "ÀÉÎÕÜ", "ß", "\u00e9 é", "thing think though",
]
LINES = ["\n", "a\nb", "\n\n", "a\n\nb", "\n\n\n", "\tIndented\r\n", "a\tb", " \n ", "if a:\n    b\n        c", "end\n"]
UNDERSCORES = ["▁", "▁▁", "▁under▁score", "a▁b", "▁ mixed ▁"]
SYMBOLS = ["<tool>", "a<tool>b", "<tool> x<tool>", "a <tool>", "<mask>ed", "<start_of_turn>user\nHi"]
SPECIALS = ["<s>", "hi <s> you", "</s>b", "a</s>", "<unk>", "<s>  two", "x <s> y </s>", "<ctl>", "a<ctl> b",
            "<|more|>x", "a <|more|> b", "<plain> c"]


def train(name, directory):
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        lines = [line for text in CORPUS for line in text.replace("\t", " ").splitlines()]
        (place / "corpus").write_text("\n".join(lines))
        options = dict(MODELS[name])
        if "normalization_rule_name" not in options:
            (place / "rules").write_text(RULES)
            options["normalization_rule_tsv"] = str(place / "rules")
        sentencepiece.SentencePieceTrainer.train(
            input=str(place / "corpus"), model_prefix=str(place / "tokenizer"), num_threads=1, minloglevel=2,
            hard_vocab_limit=False, character_coverage=0.98, **options)
        shutil.copy(place / "tokenizer.model", directory / "tokenizer.model")


def write_gguf(name, model):
    """As llama.cpp's converter writes the model."""
    writer = gguf.GGUFWriter(DATA / f"{name}.gguf", "llama")
    kinds = []
    for i in range(model.vocab_size()):
        kinds.append(2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else
                     4 if model.id_to_piece(i) in MODELS[name]["user_defined_symbols"] else 1)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([model.id_to_piece(i).encode() for i in range(model.vocab_size())])
    writer.add_token_scores([model.get_score(i) for i in range(model.vocab_size())])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    writer.add_add_space_prefix(name == "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def by_sentencepiece(model, texts):
    """It shows the unknown token as a mark of its own, and removes more than one space at the start if its normalizer
    does: no ids of those are decoded here."""
    encode = [{"text": t, "special": False, "ids": model.encode(t)} for t in texts]
    decoded = [case["ids"] for case in encode if model.unk_id() not in case["ids"] and case["text"][:1] != "▁"]
    return {"encode": encode, "decode": [{"ids": ids, "skip": False, "text": model.decode(ids)} for ids in decoded]}


def by_transformers(directory, texts, rng):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    encode = [{"text": t, "special": s, "ids": tokenizer.encode(t, add_special_tokens=s)}
              for t in texts for s in (False, True)]
    lists = [case["ids"] for case in encode]
    for _ in range(200):
        top = rng.choice((264, len(tokenizer)))
        lists.append([rng.randrange(top) for _ in range(rng.randrange(1, 16))])
    return {"encode": encode,
            "decode": [{"ids": ids, "skip": skip, "text": tokenizer.decode(
                ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)} for ids in lists for skip in (False, True)]}


def main():
    rng = random.Random(20261127)
    goldens = {}
    for name, config in CONFIGS.items():
        directory = DATA / name
        directory.mkdir(parents=True, exist_ok=True)
        base = name.partition("_")[0]
        if base == name:
            train(name, directory)
        else:
            shutil.copy(DATA / base / "tokenizer.model", directory)
        if config:
            (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        model = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
        if config:
            goldens[name] = by_transformers(directory, PLAIN + LINES + UNDERSCORES + SYMBOLS + SPECIALS, rng)
        else:
            goldens[name] = by_sentencepiece(model, PLAIN + LINES + UNDERSCORES)
        if name == "gemma":
            for text in PLAIN + LINES + UNDERSCORES + SYMBOLS:
                if model.encode(text) != next(c["ids"] for c in goldens[name]["encode"] if c["text"] == text):
                    print("gemma: SentencePiece and transformers differ:", repr(text))
        if base == name and base in ("llama", "gemma"):
            write_gguf(name, model)
    (DATA / "goldens.json").write_text(dump_lines(goldens))


if __name__ == "__main__":
    main()
