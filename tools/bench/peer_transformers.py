"""transformers on PyTorch as a peer: a process that holds one model and runs the requested measurements (see peer.py).

The loop below is `generate` without its bookkeeping, which favours transformers: one forward per step, the cache
kept, the logits of the last position only, argmax.
"""
import sys
import time

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache

import peer


class Transformers:
    def __init__(self, model, threads):
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        dtype = getattr(torch, sys.argv[3])
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def reference(self, prompt, tokens):
        """{tokens, logits: the first step's, gaps: best logit less second best of each step, over the logits' RMS}"""
        cache, step, out = DynamicCache(), torch.tensor([prompt]), {"tokens": [], "gaps": []}
        for _ in range(tokens):
            logits = self.model(step, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1].float()
            out.setdefault("logits", logits.tolist())
            best = logits.topk(2)
            out["tokens"].append(int(best.indices[0]))
            out["gaps"].append(float((best.values[0] - best.values[1]) / logits.square().mean().sqrt()))
            step = best.indices[:1].view(1, 1)
        return out

    @torch.inference_mode()
    def first_logits(self, prompt):
        return self.model(torch.tensor([prompt]), logits_to_keep=1).logits[0, -1].float().numpy()

    @torch.inference_mode()
    def generate(self, prompts, tokens, static=False):
        """Greedy continuations of prompts of one length: {tokens, seconds, seconds to the first, of the later steps}."""
        begin = time.perf_counter()
        length = len(prompts[0]) + tokens
        cache = StaticCache(config=self.model.config, max_cache_len=length) if static else DynamicCache()
        step = torch.tensor(prompts)
        out = []
        for i in range(tokens):
            logits = self.model(step, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            step = logits[:, -1].argmax(-1, keepdim=True)
            out.append(step)
            if i == 0:
                first = time.perf_counter()
        out = torch.cat(out, 1).tolist()
        end = time.perf_counter()
        return {"tokens": out, "seconds": end - begin, "first": first - begin, "later": end - first}


if __name__ == "__main__":
    peer.serve(Transformers)
