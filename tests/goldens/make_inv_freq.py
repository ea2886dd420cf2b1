#!/usr/bin/env python3
"""Makes tests/goldens/inv_freq.json: the inverse frequencies of rotary configurations met in the wild,
as transformers 5 computes them (f32 throughout), and in f64 rounded once.

    python tests/goldens/make_inv_freq.py
"""

import json
import pathlib

import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

import naive

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
DYNAMIC = dict(rope_type="dynamic", factor=4.0)
LONG = dict(rope_type="longrope", short_factor=[1.0 + 0.01 * i for i in range(24)],
            long_factor=[1.5 + i * i / 16 for i in range(24)], original_max_position_embeddings=4096)
CASES = {  # head_dim, max_position_embeddings, theta, rope_scaling, and the length that an engine is opened for
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
    "dynamic, not longer than the model": (128, 4096, 10000.0, DYNAMIC, 4096),
    "dynamic, just longer": (128, 4096, 10000.0, DYNAMIC, 4097),
    "dynamic, four times as long": (128, 4096, 10000.0, DYNAMIC, 16384),
    "dynamic, factor 1": (64, 2048, 500000.0, dict(type="dynamic", factor=1.0), 2048),
    "dynamic with an original length, which does not count": (
        64, 2048, 500000.0, dict(rope_type="dynamic", factor=2.0, original_max_position_embeddings=512), 3000),
    "longrope, as long as the original": (48, 131072, 10000.0, LONG, 4096),
    "longrope, just longer": (48, 131072, 10000.0, LONG, 4097),
    "longrope, as long as the model": (48, 131072, 10000.0, LONG, 131072),
}


def of_transformers(config, length):
    """Frequencies, after a text of `length` tokens where one is given, and the factor of cos and sin."""
    is_long = config["rope_scaling"] is not None and config["rope_scaling"].get("rope_type") == "longrope"
    of_config, of_rotary = (Phi3Config, Phi3RotaryEmbedding) if is_long else (LlamaConfig, LlamaRotaryEmbedding)
    rotary = of_rotary(of_config(**json.loads(json.dumps(config))))
    if length:
        rotary(torch.zeros(1, 1, 8), torch.arange(length)[None])
    return rotary.inv_freq.double().tolist(), rotary.attention_scaling


def main():
    cases = []
    for name, (head_dim, max_position, theta, scaling, *length) in CASES.items():
        kind = "phi3" if scaling is LONG else "llama"
        config = dict(architectures=[f"{kind.capitalize()}ForCausalLM"], model_type=kind, vocab_size=64,
                      hidden_size=2 * head_dim, intermediate_size=64, num_hidden_layers=1,
                      num_attention_heads=2, head_dim=head_dim, max_position_embeddings=max_position,
                      rope_theta=theta, rope_scaling=scaling)
        if kind == "phi3":
            config.update(original_max_position_embeddings=scaling["original_max_position_embeddings"], pad_token_id=0)
        theirs, scale = of_transformers(config, length[0] if length else 0)
        fields = dict(naive.rope_fields(config), **({"length": length[0]} if length else {}))
        exact, attention = naive.inverse_frequencies(head_dim, fields)
        assert abs(attention - scale) < 1e-12, name
        cases.append(dict(
            name=name, config=config, attention_factor=attention, **({"length": length[0]} if length else {}),
            transformers=theirs,
            exact=torch.tensor(exact, dtype=torch.float64).float().double().tolist()))
    out = pathlib.Path(__file__).resolve().parent / "inv_freq.json"
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
