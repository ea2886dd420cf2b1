"""Writes texts/made/FORMAT.jsonl: texts in the notations of eleven families and four kinds of reasoning, with the parts
that they have. The parts are chosen first and the text is written from them, so the expectation does not come from the
parser. Notations follow the chat templates of the families. The seed makes the files the same in each run.

    python3 tests/front/tools/make_texts.py
"""

import json
import pathlib
import random

HERE = pathlib.Path(__file__).resolve().parent
PER_FORMAT = 32

NAMES = ["get_weather", "read_file", "fs.write", "search-web", "run_2", "mcp__git__log", "f", "Calculator", "résumé"]
TEXTS = ["I look.", "Let me check that for you:", "Ich schaue nach – Moment.", "調べます。", "Step 1 of 2 (`ls`):", "So, 3 < 4 and {x}.",
         "**Plan**\n1. read\n2. write", "Use <b>this</b> & that.", "🙂 On it!", "```py\nprint('a')\n```", "A [link](x) and {\"a\": 1}."]
STRINGS = ["Paris", "São Paulo", "東京", "", " a b ", "it's", 'say "hi"', "back\\slash", "a\nb\n", "tab\there", "{not: json}", "[1, 2", "x}}",
           "</div><p>", "🙂🙃", "# Title\n\n```sh\nls -l | wc\n```", "path/to/file.c", "1,5 €", "null", "True", "a;b", "key=value", "%s %d\\n"]
NUMBERS = [0, 1, -7, 42, 3.5, -0.25, 1e21, 2.5e-7, 123456789012]
WHOLE = [v for v in NUMBERS if isinstance(v, int)]
KEYS = ["city", "path", "q", "text", "n", "options", "naïve", "max_results", "a-b"]

# What a model may write where a call should be, by format: it is all text.
MALFORMED = {
    "hermes": ["<tool_call>{}</tool_call>", "<tool_call>\n{\"name\": f}\n</tool_call>", "<tool_call>\nnothing\n</tool_call>",
               "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"],
    "llama3_json": ["{\"a\": 1}", "{name: f}", "Call {\"name\": \"f\", \"parameters\": {}}", "{\"name\": 3, \"parameters\": {}}", "{}"],
    "pythonic": ["[]", "[1, 2]", "[link](x)", "f(x=1)", "[f]"],
    "llama4_pythonic": ["[]", "[1, 2]", "[link](x)", "f(x=1)", "[f]"],
    "mistral": ["[TOOL_CALLS]", "[TOOL_CALLS] none", "[TOOL_CALLS]()", "[TOOL_CALLS][1]", "[TOOL_CALL][]"],
    "qwen3_coder": ["<function=>\n</function>", "<function>", "<tool_call>x</tool_call>", "<function=a b>", "<parameter=x>1</parameter>"],
    "deepseek_v3": ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>f", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nnone"],
    "deepseek_v31": ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>f", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>none"],
    "glm45": ["<tool_call>", "<tool_call>\n</tool_call>", "<arg_key>a</arg_key>", "<tool_call>f g h <b>"],
    "kimi_k2": ["<|tool_calls_section_begin|>", "<|tool_call_begin|>f", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>x"],
}
TAGS = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]", "qwen3_coder": "<function=", "deepseek_v3": "<｜tool▁calls▁begin｜>",
        "deepseek_v31": "<｜tool▁calls▁begin｜>", "glm45": "<tool_call>", "kimi_k2": "<|tool_calls_section_begin|>"}


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


class Maker:
    def __init__(self, form, seed):
        self.form, self.r = form, random.Random(f"{form} {seed}")

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 2 else 5)
        if kind < 3:
            return self.r.choice(STRINGS)
        if kind < 5:
            return self.r.choice([*NUMBERS, True, False, None])
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.r.randrange(4))]
        return {k: self.value(depth + 1) for k in self.r.sample(KEYS, self.r.randrange(3))}

    def arguments(self):
        return {k: self.value() for k in self.r.sample(KEYS, self.r.choice([0, 1, 1, 2, 3]))}

    def json_text(self, value):
        """As some model writes it; the server passes it on unchanged."""
        style = self.r.randrange(4)
        if style == 0:
            return json.dumps(value)
        if style == 1:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return json.dumps(value, ensure_ascii=False, indent=2 if style == 2 and len(dumps(value)) < 60 else None)

    def name(self):
        ascii_only = self.form in ("mistral", "pythonic", "llama4_pythonic")
        names = [n for n in NAMES if n.isascii() and "-" not in n] if ascii_only else NAMES
        return self.r.choice(names)

    def calls(self):
        return [(self.name(), self.arguments()) for _ in range(self.r.choice([1, 1, 1, 2, 2, 3]))]

    # Each writes calls and returns (text, parts).

    def hermes(self):
        texts, parts = [], []
        for name, arguments in self.calls():
            a = self.json_text(arguments)
            n = dumps(name)
            space = self.r.choice(["\n", ""])
            body = f'{{"name": {n}, "arguments": {a}}}' if self.r.random() < 0.8 else f'{{"arguments": {a}, "name": {n}}}'
            texts.append(f"<tool_call>{space}{body}{space}</tool_call>")
            parts.append(["call", name, a])
        return self.r.choice(["\n", "", "\n\n"]).join(texts), parts

    def llama3_json(self):
        parts = [["call", name, self.json_text(a)] for name, a in self.calls()]
        key = self.r.choice(["parameters", "arguments"])
        body = self.r.choice(["; ", ";", ";\n"]).join(f'{{"name": {dumps(n)}, "{key}": {a}}}' for _, n, a in parts)
        return self.r.choice(["", "<|python_tag|>"]) + body, parts

    def python(self, value):
        """With either quote, as repr() does."""
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.python(k)}: {self.python(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.python, value)) + "]"
        if isinstance(value, str) and self.r.random() < 0.5:
            return '"' + repr("'" + value)[2:-1].replace("\\'", "'").replace('"', '\\"') + '"' if '"' not in value else repr(value)
        return repr(value)

    def pythonic(self):
        words, parts = [], []
        for name, arguments in self.calls():
            arguments = {k.replace("-", "_").replace("ï", "i"): v for k, v in arguments.items()}
            words.append(f"{name}(" + ", ".join(f"{k}={self.python(v)}" for k, v in arguments.items()) + ")")
            parts.append(["call", name, dumps(arguments)])
        return "[" + ", ".join(words) + "]", parts

    def llama4_pythonic(self):
        text, parts = self.pythonic()
        return (f"<|python_start|>{text}<|python_end|>" if self.r.random() < 0.5 else text), parts

    def mistral(self):
        parts = [["call", name, self.json_text(a)] for name, a in self.calls()]
        style = self.r.randrange(4)
        if style == 0:
            return "[TOOL_CALLS] [" + ", ".join(f'{{"name": {dumps(n)}, "arguments": {a}}}' for _, n, a in parts) + "]", parts
        if style == 3:
            parts = [[*p, "".join(self.r.choices("abcdefXYZ0123456789", k=9))] for p in parts]
            return "".join(f"[TOOL_CALLS]{n}[CALL_ID]{i}[ARGS]{a}" for _, n, a, i in parts), parts
        return "".join(f"[TOOL_CALLS]{n}{'[ARGS]' if style == 1 else ''}{a}" for _, n, a in parts), parts

    def tagged(self, call, argument, close):
        """qwen3_coder and glm45: the types are in the tools, so strings stay strings and the others are JSON."""
        texts, parts = [], []
        for _ in range(self.r.choice([1, 1, 2])):
            words, expected = [], {}
            for key, make in self.r.sample(list(self.types.items()), self.r.randrange(4)):
                expected[key] = make()
                words.append(argument(key, expected[key] if isinstance(expected[key], str) else dumps(expected[key])))
            texts.append(call("get_weather") + "".join(words) + close)
            parts.append(["call", "get_weather", "{" + ", ".join(f"{dumps(k)}: {dumps(v)}" for k, v in expected.items()) + "}"])
        return "\n".join(texts), parts

    @property
    def types(self):
        strings = [s for s in STRINGS if s.strip() == s]
        return {"city": lambda: self.r.choice(strings), "days": lambda: self.r.choice(WHOLE), "metric": lambda: self.r.random() < 0.5,
                "places": lambda: [self.r.choice(STRINGS[:3]), {"n": 1}][:self.r.randrange(3)]}

    def qwen3_coder(self):
        return self.tagged(lambda n: f"<tool_call>\n<function={n}>\n", lambda k, v: f"<parameter={k}>\n{v}\n</parameter>\n",
                           "</function>\n</tool_call>")

    def glm45(self):
        return self.tagged(lambda n: f"<tool_call>{n}\n", lambda k, v: f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n", "</tool_call>")

    def section(self, begin, end, one):
        parts = [["call", name, self.json_text(a)] for name, a in self.calls()]
        return begin + "".join(one(i, n, a) for i, (_, n, a) in enumerate(parts)) + end, parts

    def deepseek_v3(self):
        return self.section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", lambda i, n, a:
                            ("\n" if i else "") + f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{a}\n```<｜tool▁call▁end｜>")

    def deepseek_v31(self):
        return self.section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                            lambda i, n, a: f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{a}<｜tool▁call▁end｜>")

    def kimi_k2(self):
        text, parts = self.section("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", lambda i, n, a:
                                   f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{a}<|tool_call_end|>")
        return text, [[*p, f"functions.{p[1]}:{i}"] for i, p in enumerate(parts)]

    def openai(self):
        messages, parts = [], []
        if self.r.random() < 0.7:
            parts.append(["reasoning", self.r.choice(TEXTS)])
            messages.append(f"<|channel|>analysis<|message|>{parts[-1][1]}<|end|>")
        if self.r.random() < 0.4:
            parts.append(["text", self.r.choice(TEXTS)])
            messages.append(f"<|channel|>commentary<|message|>{parts[-1][1]}<|end|>")
        for name, arguments in self.calls() if self.r.random() < 0.8 else []:
            parts.append(["call", name, self.json_text(arguments)])
            head = self.r.choice([f"<|channel|>commentary to=functions.{name} <|constrain|>json", f" to=functions.{name}<|channel|>commentary json"]
                                 if messages else [f"<|channel|>commentary to=functions.{name} <|constrain|>json"])
            messages.append(f"{head}<|message|>{parts[-1][2]}<|call|>")
        if parts[-1:] == [] or parts[-1][0] != "call":
            final = self.r.choice(TEXTS)
            messages.append(f"<|channel|>final<|message|>{final}<|return|>")
            if parts and parts[-1][0] == "text":
                parts[-1] = ["text", parts[-1][1] + final]
            else:
                parts.append(["text", final])
        return "<|start|>assistant".join(messages), parts

    # Whole answers.

    def answer(self, i):
        text, parts = getattr(self, self.form)()
        at_start = self.form in ("llama3_json", "pythonic", "llama4_pythonic")
        if self.form == "openai":
            return text, parts
        if i % 8 == 7:
            bad = self.r.choice(MALFORMED[self.form])
            text = bad if at_start else f"{self.r.choice(TEXTS)}\n{bad}"
            return text, [["text", text]]
        if i % 8 == 6 and self.form in TAGS:  # the end of the text cuts the first tag
            tag = TAGS[self.form]
            text = self.r.choice(TEXTS) + "\n" + tag[:self.r.randrange(1, len(tag))]
            return text, [["text", text]]
        before = self.r.choice(TEXTS) if not at_start and self.r.random() < 0.5 else ""
        after = self.r.choice(["Done.", "Anything else?"]) if self.form not in ("pythonic", "llama4_pythonic") and self.r.random() < 0.2 else ""
        blank = self.r.choice(["\n", "\n\n", " "])
        if before:
            text, parts = before + blank + text, [["text", before], *parts]
        if after:
            text, parts = text + "\n" + after, [*parts, ["text", ("\n" if before else "") + after]]
        return text, parts


TOOL_LIST = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"}, "places": {"type": "array"}}}}}]


def thinking(i):
    m = Maker("hermes", i)
    form = ["qwen3", "glm45", "deepseek_r1"][i % 3]
    text, parts = m.answer(0) if i % 2 else (None, [["text", m.r.choice(TEXTS)]])
    text = text or parts[0][1]
    thought = m.r.choice([*TEXTS, "a </thin> b", "Maybe <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>?", "x < y\n\nz"])
    inside = form == "deepseek_r1" or i % 5 == 0
    blank = m.r.choice(["\n", "", "\n\n"])
    if i % 7 == 6:  # the end of the text cuts the reasoning
        return {"tools": "hermes", "reasoning": form, "inside": inside, "text": ("" if inside else "<think>") + blank + thought,
                "expected": [["reasoning", thought]]}
    return {"tools": "hermes", "reasoning": form, "inside": inside, "text": ("" if inside else "<think>") + f"{blank}{thought}{blank}</think>{blank}{text}",
            "expected": [["reasoning", thought], *parts]}


def main():
    folder = HERE / "texts" / "made"
    folder.mkdir(exist_ok=True)
    rows = {"think": [thinking(i) for i in range(PER_FORMAT)]}
    for form in ("hermes", "llama3_json", "pythonic", "llama4_pythonic", "mistral", "qwen3_coder", "deepseek_v3", "deepseek_v31", "glm45",
                 "kimi_k2", "openai"):
        rows[form] = []
        for i in range(PER_FORMAT):
            text, parts = Maker(form, i).answer(i)
            row = {"tools": form, "text": text, "expected": parts}
            if form == "openai":
                row["reasoning"] = "openai_gptoss"
            if form in ("qwen3_coder", "glm45"):
                row["tool_list"] = TOOL_LIST
            rows[form].append(row)
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
