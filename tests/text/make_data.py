#!/usr/bin/env python3
"""Makes tests/text/data: small tokenizers, and goldens of what `tokenizers` and transformers do.

Needs the Python packages transformers and tokenizers; the tests need only what this leaves in
data/. Templates and expressions are written by hand beside it. Usage: make_data.py
"""
import datetime
import json
import pathlib
import random

import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
NOW = datetime.datetime(2026, 7, 4, 9, 5, 3)

CORPUS = [
    "The tide comes in twice a day, and twice a day it goes out again.",
    "A lamp, a table, two chairs: that's all the room had, wasn't it?",
    "Count with me: 1, 2, 3, 10, 200, 3000!\n\tIndented\r\n",
    "Él comió pan; l'été fut court. Größe? Ärger! Œuvre, naïve, façade.",
    "Привет, мир. Добрый день! 今日は天気がいい。海へ行く。",
    "def add(a, b):\n    return a + b  # nothing more\n",
    "the the then there these those though through thing think",
    "water winter wind window wish with without within",
] * 8
TEXTS = [
    "", " ", "  ", "\n", "a", "The tide comes in.", " leading", "trailing ", "two  spaces",
    "wasn't it?", "1234567", "\tIndented\r\n", "naïve façade", "Привет, мир", "今日は", "😀 smile 👩‍🚀",
    "<|im_start|>user\nHi<|im_end|>", "a<tool_call>b", "x <s> y </s>", "<unk>", "▁under▁score",
    "Ġtrick Ċ", "e\u0301 combining", "\u200bzero width", "\x00nul", "ﬁ ligature", "<0x41>", "##ing",
]


def bytelevel():
    tok = tokenizers.Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tok.add_tokens([tokenizers.AddedToken("<tool_call>", normalized=False),
                    tokenizers.AddedToken("two words", normalized=False),
                    tokenizers.AddedToken("é́", normalized=False, lstrip=True)])
    return json.loads(tok.to_str())


def fallback():
    """SentencePiece as Llama 2's tokenizer.json has it."""
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    tok = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                     decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.train_from_iterator([line for line in CORPUS if line.isascii()], trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens,
        show_progress=False, max_token_length=8))
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    # Left in by training; encoding must not obey them.
    tok.enable_truncation(4)
    tok.enable_padding(length=16)
    data = json.loads(tok.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 3]
    return data


def metaspace():
    tok = tokenizers.Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.decoder = decoders.Metaspace()
    tok.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    return json.loads(tok.to_str())


def wordpiece():
    tok = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece(cleanup=True)
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    return json.loads(tok.to_str())


def wordlevel():
    """No decoder at all."""
    words = {w: i for i, w in enumerate(["<unk>", "the", "tide", "comes", "in", ".", "a", "é"])}
    tok = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    return json.loads(tok.to_str())


def suffix():
    """A decoder that needs the last token."""
    tok = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.decoder = decoders.BPEDecoder(suffix="</w>")
    tok.train_from_iterator([line for line in CORPUS if line.isascii()], trainers.BpeTrainer(
        vocab_size=160, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False))
    return json.loads(tok.to_str())


MAKERS = [bytelevel, fallback, metaspace, wordpiece, wordlevel, suffix]


def token_goldens():
    rng = random.Random(7)
    goldens = {}
    for make in MAKERS:
        name, data = make.__name__, make()
        (DATA / name).mkdir(parents=True, exist_ok=True)
        (DATA / name / "tokenizer.json").write_text(
            json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
        tok = tokenizers.Tokenizer.from_str(json.dumps(data))
        tok.no_truncation()
        tok.no_padding()
        n_ids = 1 + max(tok.get_vocab(with_added_tokens=True).values())
        encoded = [{"text": t, "special": s, "ids": tok.encode(t, add_special_tokens=s).ids}
                   for t in TEXTS for s in (False, True)]
        # The crate prepends even to nothing where the pre-tokenizer does so.
        encoded = [e for e in encoded if e["text"] or e["special"] or not e["ids"]]
        ids_lists = [[]] + [e["ids"] for e in encoded if e["ids"]]
        for _ in range(60):
            ids_lists.append([rng.randrange(n_ids + 3) for _ in range(rng.randrange(1, 12))])
        decoded = []
        for ids in ids_lists:
            for skip in (False, True):
                known = [i for i in ids if tok.id_to_token(i) is not None]
                decoded.append({"ids": ids, "skip": skip,
                                "text": tok.decode(ids, skip_special_tokens=skip) if known else ""})
        goldens[name] = {"n_ids": n_ids, "encode": encoded, "decode": decoded}
    (DATA / "tokens.json").write_text(dump_lines(goldens))


def dump_lines(value):
    """JSON with one case per line, for readable diffs."""
    def dump(v, depth):
        if depth == 0 or not isinstance(v, (dict, list)) or not v:
            return json.dumps(v, ensure_ascii=False)
        if isinstance(v, dict):
            items = [json.dumps(k) + ":" + dump(x, depth - 1) for k, x in v.items()]
            return "{\n" + ",\n".join(items) + "\n}"
        return "[\n" + ",\n".join(dump(x, depth - 1) for x in v) + "\n]"
    return dump(value, 3) + "\n"


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather now & <later>, in °C",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City, \"as written\""},
            "days": {"type": "integer", "default": 1},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "share": {"type": "number", "default": 1.0},
            "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
            "where": {"type": "object", "properties": {"items": {"type": "array"},
                                                       "keys": {"oneOf": [{"type": "string"},
                                                                          {"type": "number"}]}},
                      "required": ["keys"]}},
            "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": None}},
]
CALL = {"id": "abcdef123", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "share": 1.0}}}
TEXT_CALL = {"id": "abcdef123", "type": "function",
             "function": {"name": "get_weather", "arguments": "{\"city\": \"Köln\"}"}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


SYSTEM = say("system", "  Be kind.\n")
USER = say("user", "Hi there!")
ASSISTANT = say("assistant", " Hello, you. ")
CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ASSISTANT, say("user", "And now?\n\nTell me — ünïcode 😀 <b>&amp;</b>")],
    "turns_plain": [USER, ASSISTANT, say("user", "More")],
    "final": [USER, ASSISTANT],
    "final_trailing": [USER, say("assistant", "It begins:  \n")],
    "wrong_order": [USER, USER],
    "unknown_role": [USER, say("wizard", "Abracadabra")],
    "parts": [say("user", [{"type": "text", "text": "What is "}, {"type": "image"},
                           {"type": "text", "text": " this? "}])],
    "parts_final": [USER, say("assistant", [{"type": "text", "text": "one "},
                                            {"type": "text", "text": "two "}])],
    "call": [USER, say("assistant", None, tool_calls=[CALL]),
             say("tool", "{\"t\": 21.0}", tool_call_id="abcdef123"),
             say("assistant", "21 degrees."), say("user", "Thanks")],
    "call_open": [SYSTEM, USER, say("assistant", "", tool_calls=[CALL]),
                  say("tool", "21", tool_call_id="abcdef123"), say("tool", "22", tool_call_id="x")],
    "call_text": [USER, say("assistant", None, tool_calls=[TEXT_CALL]),
                  say("tool", "21", tool_call_id="abcdef123")],
    "call_two": [USER, say("assistant", "Both.", tool_calls=[CALL, CALL])],
    "bad_id": [USER, say("assistant", None, tool_calls=[{**CALL, "id": "short"}])],
    "thought": [USER, say("assistant", "<think>\nHm.\n</think>\n\nYes."), say("user", "Why?"),
                say("assistant", "<think>\nAgain.\n</think>\n\nBecause.")],
    "reasoned": [USER, say("assistant", "Yes.", reasoning="Hm."),
                 say("user", "Why?"), say("assistant", "So.", reasoning_content="Ah.", thinking="Oh.")],
    "reasoned_call": [USER, say("assistant", None, thinking="I need it.", tool_calls=[CALL]),
                      say("tool", {"t": 21.5}, tool_call_id="abcdef123")],
    "tool_first": [say("tool", "21", tool_call_id="abcdef123")],
    "no_content": [USER, {"role": "assistant"}],
    "empty": [],
}
KWARGS = {
    "thinking": [{"enable_thinking": False}, {"enable_thinking": True}],
    "headers_tools": [{"date_string": "1 Jan 2001"}, {"tools_in_user_message": False}],
    "macros": [{"reasoning_effort": "low", "builtin_tools": ["python", "browser"]}],
    "parts_filters": [{"dated": True}, {"max_messages": 1},
                      {"documents": [{"title": "the sea", "text": "a\nb"}, {"title": "x"}]}],
    "chatml": [{"bos_token": "changed", "unused": [1, {"a": None}]}],
}
NAMES = ["user", "system", "turns", "turns_plain", "call", "call_open", "parts", "thought"]
MORE = {
    "inst": ["wrong_order", "unknown_role", "call_two", "bad_id", "call_text"],
    "turns_parts": ["wrong_order"],
    "macros": ["reasoned_call", "tool_first"],
    "thinking": ["reasoned", "call_two", "call_text", "no_content", "empty"],
    "namespaces": ["call_text"],
    "headers_tools": ["call_two", "empty"],
    "parts_filters": ["unknown_role"],
    "generation": ["final"],
}
VARIABLES = {
    "s": "Hello World!", "text": "naïve “q” 日本 😀\n\x7f", "n": 3, "x": 2.5, "t": True, "f": False,
    "nothing": None, "list": [1, 2, 3], "nested": [[1, [2.0, None]], {"a": [True]}],
    "obj": {"b": "x\"y'z", "a": 1, "nested": {"deep": [{"k": False}]}}, "big": 1e22, "tiny": 1.5e-07,
    "whole": 100.0, "negative": -0.0,
    "tricky": {"items": 1, "keys": [2], "values": "three", "get": None},
}


def render(tok, source, chat, **options):
    def with_nulls():
        """The template's output for `"content": null`, which apply_chat_template leaves out."""
        texts, _ = chat_template_utils.render_jinja_template(
            [chat], chat_template=source, **{**tok.special_tokens_map, **options})
        return texts[0]

    try:
        return {"text": tok.apply_chat_template(chat, chat_template=source, tokenize=False, **options)}
    except Exception as e:  # the template's message, or a failure
        if any(v is None for message in chat for v in message.values()):
            try:
                return {"text": with_nulls()}
            except Exception:
                pass
        raised = type(e).__name__ == "TemplateError"
        return {"raised": str(e)} if raised else {"failed": f"{type(e).__name__}: {e}"[:200]}


def chat_goldens():
    class FixedTime(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return NOW

    chat_template_utils.datetime = FixedTime
    data = json.loads((DATA / "bytelevel" / "tokenizer.json").read_text())
    tok = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(data)),
        bos_token="<s>", eos_token="</s>")
    rendered = []

    def add(template, source, chat_name, chat, **options):
        case = {"template": template, "chat": chat_name, **options}
        rendered.append({**case, **render(tok, source, json.loads(json.dumps(chat)), **options)})

    for path in sorted((DATA / "templates").glob("*.jinja")):
        name, source = path.stem, path.read_text()
        for chat in NAMES + MORE.get(name, []):
            for prompt in (True, False):
                add(name, source, chat, CHATS[chat], add_generation_prompt=prompt)
            add(name, source, chat, CHATS[chat], add_generation_prompt=True, tools=TOOLS)
        for chat in ("final", "final_trailing", "parts_final", "no_content"):
            add(name, source, chat, CHATS[chat], continue_final_message=True)
        for kwargs in KWARGS.get(name, []):
            add(name, source, "turns", CHATS["turns"], add_generation_prompt=True, tools=TOOLS,
                **kwargs)
    expressions = []
    for line in (HERE / "expressions.txt").read_text().splitlines():
        if not line.startswith("#"):
            result = render(tok, line, CHATS["turns"], **VARIABLES)
            expressions.append({"source": line, **result})
    known = {"add_generation_prompt", "continue_final_message", "tools"}
    for case in rendered:
        special = {"template", "chat", "text", "raised", "failed"} | known
        case["kwargs"] = {k: case.pop(k) for k in list(case) if k not in special}
        if "tools" in case:
            case["tools"] = True
    (DATA / "chat.json").write_text(dump_lines({
        "chats": CHATS, "tools": TOOLS, "variables": VARIABLES, "rendered": rendered,
        "expressions": expressions}))


if __name__ == "__main__":
    token_goldens()
    chat_goldens()
