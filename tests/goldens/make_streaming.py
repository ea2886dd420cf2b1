#!/usr/bin/env python3
"""Makes tests/goldens/streaming/*/golden.txt: the results of checkpoints of models/ with attention sinks and a window, by
transformers in fp32 with a changed attention. README.md describes each file.

    python tests/goldens/make_streaming.py [NAME ...]     (torch, transformers 5, safetensors; after make_goldens.py)

The attention is written from its definition. The head at position p reads positions j with j < sinks or
p - window < j <= p. K has the rotation of its own position. The sinks are scored by a second q, whose rotation is that of
position min(p, sinks + window - 1). A layer with a window of its own keeps it. Angles are exact products in float64, since
positions have no limit.
"""

import pathlib
import sys
import zlib

import torch
from transformers import AttentionInterface

import make_goldens

ROOT = pathlib.Path(__file__).resolve().parent / "streaming"

# name: checkpoint, sinks, window, prompt tokens
CASES = {
    "qwen2": ("qwen2", 4, 24, 1100),  # more than its 1,024 positions
    "llama3": ("llama3", 4, 64, 600),  # more than its 512 positions, with scaled frequencies
    "llama_bias": ("llama_bias", 70, 20, 200),  # more sinks than a tile of 64 has positions
    "no_sinks": ("llama3", 0, 16, 90),
    "qwen3": ("qwen3", 4, 20, 12),  # the answer leaves the window behind, not the prompt
    "qwen2_window": ("qwen2_window", 3, 40, 200),  # beside layers with a window of their own
    "smollm3": ("smollm3", 5, 30, 200),  # one layer without RoPE
    "gpt_oss": ("gpt_oss", 4, 32, 320),  # a logit of sinks in addition, YaRN, more than 256 positions
}


class Streaming:
    def __init__(self, sinks, window):
        self.sinks, self.window = sinks, window
        self.second = None  # q's other rotation, from a layer's rotation to its attention

    def install(self, model):
        module = sys.modules[type(model).__module__]
        self.rotate = getattr(module.apply_rotary_pos_emb, "original", module.apply_rotary_pos_emb)

        def rotate(q, k, cos, sin, **more):
            return self.rotate_twice(q, k, cos, sin, **more)

        rotate.original = self.rotate
        module.apply_rotary_pos_emb = rotate
        self.rotary = model.model.rotary_emb
        AttentionInterface.register("streaming", self.attend)
        model.set_attn_implementation("streaming")

    def turns(self, n, width):
        """cos and sin of all positions: of each frequency once, or once for each half of a head."""
        angles = torch.arange(n, dtype=torch.float64)[:, None] * self.rotary.inv_freq.double()
        angles = angles.repeat(1, width // angles.shape[1])
        return [(f(angles) * self.rotary.attention_scaling).float()[None] for f in (torch.cos, torch.sin)]

    def rotate_twice(self, q, k, cos, sin, **more):
        cos, sin = self.turns(q.shape[2], cos.shape[-1])
        at = torch.arange(q.shape[2]).clamp(max=self.sinks + self.window - 1)
        self.second = self.rotate(q, k, cos[:, at], sin[:, at], **more)[0]
        return self.rotate(q, k, cos, sin, **more)

    def attend(self, layer, q, k, v, mask, scaling, sliding_window=None, s_aux=None, **unused):
        n, shared = q.shape[2], q.shape[1] // k.shape[1]
        second, self.second = q if self.second is None else self.second, None
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        p, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
        scores = q @ k.transpose(2, 3) * scaling
        if sliding_window:
            readable = (j <= p) & (j > p - sliding_window)
        else:
            is_sink = j < self.sinks
            readable = (j <= p) & (is_sink | (j > p - self.window))
            scores = torch.where(is_sink, second @ k.transpose(2, 3) * scaling, scores)
        scores = scores.masked_fill(~readable, float("-inf"))
        if s_aux is not None:
            scores = torch.cat((scores, s_aux.reshape(1, -1, 1, 1).expand(1, -1, n, 1)), -1)
        weights = torch.softmax(scores, -1)[..., :n]
        return (weights @ v).transpose(1, 2), weights


def make(name, attempt):
    checkpoint, sinks, window, n_prompt = CASES[name]
    generator = torch.Generator().manual_seed(zlib.crc32(f"streaming {name} {attempt}".encode()))
    directory = ROOT / name
    directory.mkdir(parents=True, exist_ok=True)
    return make_goldens.golden(checkpoint, directory, n_prompt, generator, make_goldens.ROOT / checkpoint,
                               streaming=Streaming(sinks, window))


if __name__ == "__main__":
    make_goldens.make_all(ROOT, CASES, make)
