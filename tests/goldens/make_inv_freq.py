#!/usr/bin/env python3
"""Makes tests/goldens/inv_freq.json: the inverse frequencies of rotary configurations met in the wild,
as transformers 5 computes them (f32 throughout), and in f64 rounded once.

    python tests/goldens/make_inv_freq.py
"""

import json
import pathlib

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import naive

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
CASES = {
    "Llama 2": (128, 4096, 10000.0, None),
    "Llama 3": (128, 8192, 500000.0, None),
    "Llama 3.1": (128, 131072, 500000.0, dict(LLAMA3, factor=8.0)),
    "Llama 3.2 1B": (64, 131072, 500000.0, dict(LLAMA3, factor=32.0)),
    "Mistral 7B v0.3": (128, 32768, 1000000.0, None),
    "Qwen2.5 with YaRN": (128, 32768, 1000000.0,
                          dict(type="yarn", factor=4.0, original_max_position_embeddings=32768)),
    "head_dim 80, linear": (80, 4096, 10000.0, dict(type="linear", factor=2.5)),
    "head_dim 96": (96, 4096, 10000.0, None),
    "head_dim 256": (256, 4096, 10000.0, None),
    "head_dim 16": (16, 1024, 1000000.0, None),
    "YaRN, every field": (64, 16384, 150000.0,
                          dict(rope_type="yarn", factor=32.0, beta_fast=16.0, beta_slow=2.0,
                               original_max_position_embeddings=4096, truncate=False,
                               mscale=0.9, mscale_all_dim=0.5)),
    "YaRN, attention_factor": (64, 4096, 10000.0,
                               dict(rope_type="yarn", factor=1.5, attention_factor=1.25)),
    "YaRN, tiny original": (16, 64, 10000.0,
                            dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
}


def main():
    cases = []
    for name, (head_dim, max_position, theta, scaling) in CASES.items():
        config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=64,
                      hidden_size=2 * head_dim, intermediate_size=64, num_hidden_layers=1,
                      num_attention_heads=2, head_dim=head_dim, max_position_embeddings=max_position,
                      rope_theta=theta, rope_scaling=scaling)
        rotary = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
        exact, attention = naive.inverse_frequencies(head_dim, naive.rope_fields(config))
        assert abs(attention - rotary.attention_scaling) < 1e-12
        cases.append(dict(
            name=name, config=config, attention_factor=attention,
            transformers=rotary.inv_freq.double().tolist(),
            exact=torch.tensor(exact, dtype=torch.float64).float().double().tolist()))
    out = pathlib.Path(__file__).resolve().parent / "inv_freq.json"
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
