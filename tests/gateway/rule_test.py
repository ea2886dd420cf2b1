#!/usr/bin/env python3
"""Compares the rule of complexity with the one that was published, in Python: 60 labelled prompts and 8,000 random ones.

  rule_test.py RULE_PROGRAM
"""

import random
import subprocess
import sys

SIMPLE = ["what is", "define", "list", "name", "yes or no", "true or false"]
COMPLEX = ["analyze", "compare", "evaluate", "synthesize", "explain in detail", "step by step", "comprehensive"]


def reference(prompt):
    """The rule as it was published."""
    words, text = len(prompt.split()), prompt.lower()
    if any(i in text for i in SIMPLE) and words < 50:
        return "simple", words
    if any(i in text for i in COMPLEX) or words > 200:
        return "complex", words
    return "moderate", words


LABELLED = {
    "simple": [
        "What is the capital of France?", "Define entropy.", "List three colours.", "Name a prime number above ten.", "Is water wet? Yes or no.", "True or false: the sun is a star.",
        "WHAT IS AN LLM", "define: recursion", "Please list the planets", "What is 2 + 2?", "Name it.", "Can you define photosynthesis?", "yes or no?", "I wonder what is behind the door.",
        "Give me a list.", "Make a playlist", "Rename this variable to x", "what is a KV cache, and who needs one", "List the steps, step by step.", "What is the best way to compare two lists?",
    ],
    "moderate": [
        "Hello", "Tell me a story about a dragon.", "Write a haiku about rain.", "Translate 'good morning' into Spanish.", "How do I boil an egg?", "Summarize this paragraph for a child.",
        "Why is the sky blue?", "Explain quantum computing in simple terms.", "What are the benefits of meditation?", "Give me a summary of climate change effects.", "Write a function that reverses a string.",
        "Who wrote Faust?", "what  is", "Fix the grammar of this sentence.", "Convert 5 miles to kilometres.", "Suggest a title for my talk.", "Recommend a book about Rome.", "", "Describe your day.",
        "Step by\tstep",
    ],
    "complex": [
        "Analyze the causes of the first world war.", "Compare TCP and QUIC.", "Evaluate this business plan.", "Synthesize these three reports into one.", "Explain in detail how a transformer works.",
        "Solve this step by step: 17 × 23.", "Write a comprehensive guide to SQL.", "COMPARE apples and oranges", "Please analyze: 1, 2, 3, 5", "Evaluate 3x + 2 for x = 5.", "Show me step by step how to bake bread.",
        "I need a comprehensive overview of HTTP.", "Explain in detail the water cycle.", "Could you compare these two poems?", "Reanalyze the data", "word " * 201, "What is " + "very " * 210 + "long?",
        "Define and compare " + "x " * 60, "Synthesize a melody.", "Incomprehensive, you say?",
    ],
}



def found(prompts):
    """The results of the C code: (complexity, words, indicator)."""
    done = subprocess.run([sys.argv[1]], input="".join(p + "\0" for p in prompts).encode(), capture_output=True, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(prompts)
    return [(kind, int(words), indicator) for kind, words, indicator in (line.split("|") for line in lines)]


def check(prompts, labels):
    for prompt, label, (kind, words, indicator) in zip(prompts, labels, found(prompts), strict=True):
        assert (kind, words) == reference(prompt), (prompt, kind, words, reference(prompt))
        assert label in (None, kind), (prompt, label, kind)
        assert indicator in prompt.lower()
        assert (indicator in SIMPLE) == (kind == "simple") or not indicator


def random_prompts(draw):
    spaces = [" ", "  ", "\t", "\n", "\u00a0", "\u2003", "\u3000", "\x1c", "\x85", "\u200b", "\u2028", "\ufeff"]
    pieces = [*SIMPLE, *COMPLEX, "K", "\u212a", "\u0130", "DEF\u0130NE", "ß", "日本", "\ufb01", "w", "😀", "lis", "t", "Σ", "ſtep by ſtep"]
    for _ in range(8000):
        n = draw.choice([0, 1, 3, 10, 48, 49, 50, 51, 199, 200, 201, 202])
        words = [draw.choice(pieces) if draw.random() < 2 / n else "w" for _ in range(n)]
        prompt = "".join(w + draw.choice(spaces) for w in words)
        yield "".join(c.upper() if draw.random() < 0.3 else c for c in prompt)
    for c in [*range(1, 0x3100), *range(0x3100, 0x110000, 17)]:  # a word or white space, as in Python
        if not 0xD800 <= c < 0xE000:
            yield f"a{chr(c)}b"


labelled = [(prompt, label) for label, prompts in LABELLED.items() for prompt in prompts]
assert len(labelled) == 60
check([p for p, _ in labelled], [label for _, label in labelled])
prompts = list(random_prompts(random.Random(42)))
check(prompts, [None] * len(prompts))
kinds = [reference(p)[0] for p in prompts[:8000]]
assert min(kinds.count(kind) for kind in LABELLED) > 800
print(f"{len(labelled)} labelled and {len(prompts)} other prompts are equal")
