"""llama.cpp as a peer: a process that holds one model and runs the requested measurements (see peer.py).

Timings are wall time around llama_decode including the logits of the step; the greedy choice is numpy's argmax over
them, the cheapest available, so that no cost of Python counts for llama.cpp.
"""
import ctypes
import time

import llama_cpp as lc
import numpy

import peer


class Llama:
    def __init__(self, model, threads):
        lc.llama_backend_init()
        lc.llama_log_set(quiet, None)
        parameters = lc.llama_model_default_params()
        parameters.use_mmap = True
        path = model if model.suffix == ".gguf" else model / "model.gguf"
        self.model = lc.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab_size = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        self.threads = threads
        self.contexts = {}  # settings → context, kept warm

    def context(self, sequences=1, length=1024, flash=True, unified=True):
        key = (sequences, length, flash, unified)
        if key not in self.contexts:
            p = lc.llama_context_default_params()
            p.n_ctx = sequences * length
            p.n_batch = p.n_ubatch = 512
            p.n_seq_max = sequences
            p.n_threads = p.n_threads_batch = self.threads
            p.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
            p.kv_unified = unified
            p.type_k = p.type_v = lc.GGML_TYPE_F16
            p.no_perf = True
            context = lc.llama_init_from_model(self.model, p)
            if not context:
                raise SystemExit(f"llama.cpp cannot make a context of {p.n_ctx} tokens")
            self.contexts[key] = context
        context = self.contexts[key]
        lc.llama_memory_clear(lc.llama_get_memory(context), False)
        return context

    def decode(self, context, rows):
        """rows: (token, position, sequence, wants logits); at most 512. Returns the logits of the rows that want them."""
        batch = lc.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        if lc.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        out = [self.logits(context, i) for i, row in enumerate(rows) if row[3]]
        lc.llama_batch_free(batch)
        return out

    def logits(self, context, i):
        pointer = lc.llama_get_logits_ith(context, i)
        return numpy.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,))

    def fill(self, context, prompts):
        """All prompts into the cache, 512 tokens a batch; returns the next token of each."""
        rows = [(token, i, s, i == len(prompt) - 1)
                for s, prompt in enumerate(prompts) for i, token in enumerate(prompt)]
        nexts = []
        for i in range(0, len(rows), 512):
            nexts += [int(l.argmax()) for l in self.decode(context, rows[i:i + 512])]
        return nexts

    # What a peer answers ------------------------------------------------------------------------------------------

    def first_logits(self, prompt):
        return self.decode(self.context(), [(t, i, 0, i == len(prompt) - 1) for i, t in enumerate(prompt)])[0].copy()

    def generate(self, prompts, tokens, flash=True, unified=True):
        """Greedy continuations of all prompts together: {tokens, seconds, seconds to the first, of the later steps}."""
        context = self.context(len(prompts), 1024 if len(prompts) == 1 else 256, flash, unified)
        begin = time.perf_counter()
        nexts = self.fill(context, prompts)
        out = [[token] for token in nexts]
        first = time.perf_counter()
        for step in range(1, tokens):
            rows = [(o[-1], len(p) + step - 1, s, True) for s, (p, o) in enumerate(zip(prompts, out))]
            for o, logits in zip(out, self.decode(context, rows)):
                o.append(int(logits.argmax()))
        end = time.perf_counter()
        return {"tokens": out, "seconds": end - begin, "first": first - begin, "later": end - first}


@lc.llama_log_callback
def quiet(level, text, data):
    pass


if __name__ == "__main__":
    peer.serve(Llama)
