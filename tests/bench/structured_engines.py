"""Engines of structured output that tell whether a schema's grammar accepts a text.

quire: quire_grammar_normal() from a shared library made of libquire_text.a, compiled by llguidance.
llguidance, xgrammar: as their users get them from PyPI.
"""
import ctypes
import json
import os
import subprocess
import sys
from unittest import mock

FORMS = ["json_object", "json_schema", "regex", "choice", "lark", "gbnf", "structural_tag", "tools"]


class Refused(Exception):
    """The engine does not take the schema."""


def shared_library(archive, out):
    """A library for ctypes out of build/cargo/release/libquire_text.a."""
    subprocess.run(
        ["cc", "-shared", "-o", out, "-Wl,--undefined=quire_grammar_normal", archive, "-lm", "-lpthread", "-ldl"],
        check=True,
    )
    return out


class _Source(ctypes.Structure):
    _fields_ = [
        ("form", ctypes.c_int),
        ("text", ctypes.c_char_p),
        ("n_bytes", ctypes.c_size_t),
        ("whitespace", ctypes.c_int),
        ("reasoning_end", ctypes.c_char_p),
        ("reasoning_end_is_special", ctypes.c_bool),
    ]


class _Error(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 512), ("parameter", ctypes.c_char_p)]


class Normal:
    """quire_grammar_normal()."""

    def __init__(self, library):
        self.library = ctypes.CDLL(os.path.abspath(library))

    def __call__(self, form, text, whitespace=0):
        data = text.encode()
        source = _Source(FORMS.index(form), data, len(data), whitespace, None, False)
        out, n, error = ctypes.c_void_p(), ctypes.c_size_t(), _Error()
        status = self.library.quire_grammar_normal(
            ctypes.byref(source), ctypes.byref(out), ctypes.byref(n), ctypes.byref(error)
        )
        if status:
            raise Refused(error.text.decode())
        return ctypes.string_at(out, n.value).decode()


class Llguidance:
    name = "llguidance"

    def __init__(self):
        import llguidance

        self.api = llguidance.LLMatcher
        self.tokenizer = llguidance.LLTokenizer("byte")

    def grammar(self, schema):
        return self.api.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})

    def compile(self, schema):
        try:
            grammar = self.grammar(json.dumps(schema))
        except ValueError as e:
            raise Refused(str(e)) from e
        matcher = self.matcher(grammar)
        if matcher.is_error():
            raise Refused(matcher.get_error())
        return grammar

    def matcher(self, grammar):
        return self.api(self.tokenizer, grammar, log_level=0)

    def accepts(self, grammar, text):
        matcher = self.matcher(grammar)
        tokens = self.tokenizer.tokenize_bytes(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


class Quire(Llguidance):
    name = "quire"

    def __init__(self, library):
        super().__init__()
        self.normal = Normal(library)

    def grammar(self, schema):
        return self.api.grammar_from_lark(self.normal("json_schema", schema))


class Xgrammar:
    name = "xgrammar"

    def __init__(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            # Its masks are torch tensors; whether a grammar accepts a text needs none.
            import tvm_ffi  # noqa: F401 (it would look into the real one)

            for name in "torch", "transformers":
                sys.modules[name] = mock.MagicMock()
        import xgrammar
        from xgrammar.testing import _is_grammar_accept_string

        self.api, self.accept = xgrammar.Grammar, _is_grammar_accept_string

    def compile(self, schema):
        try:
            return self.api.from_json_schema(
                json.dumps(schema), any_whitespace=False, separators=(",", ":"), strict_mode=False
            )
        except Exception as e:
            raise Refused(str(e)) from e

    def accepts(self, grammar, text):
        return self.accept(grammar, text)
