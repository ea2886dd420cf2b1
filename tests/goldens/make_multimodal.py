#!/usr/bin/env python3
"""Makes tests/goldens/models/gemma3_vision: gemma3's text model inside Gemma3ForConditionalGeneration, as transformers
saves it, with a small vision tower.

    python tests/goldens/make_multimodal.py     (torch, transformers 5, safetensors; after make_goldens.py)

For a text without images transformers computes the same with both, which the script checks; so the golden is gemma3's.
"""

import json
import shutil

import torch
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from make_goldens import ROOT, reference_logits

NAME, TEXT = "gemma3_vision", "gemma3"
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28,
              patch_size=14, model_type="siglip_vision_model")


def main():
    torch.manual_seed(0)
    directory, source = ROOT / NAME, ROOT / TEXT
    text = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    config = Gemma3Config(text_config=text.config.to_dict(), vision_config=VISION, mm_tokens_per_image=4,
                          image_token_index=319, boi_token_index=317, eoi_token_index=318)
    config.tie_word_embeddings = config.text_config.tie_word_embeddings
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config).eval()
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    golden = (source / "golden.txt").read_text()
    prompt = next(line for line in golden.splitlines() if line.startswith("prompt "))
    ids = [int(word) for word in prompt.split()[2:]]
    worst = (reference_logits(model, ids) - reference_logits(text, ids)).abs().max().item()
    assert worst < 1e-5, worst
    shutil.rmtree(directory, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    written = json.loads((directory / "config.json").read_text())
    for key in ("_name_or_path", "dtype"):  # as files on the hub
        written["text_config"].pop(key)
    (directory / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    (directory / "golden.txt").write_text(golden.replace(f"name {TEXT}\n", f"name {NAME}\n"))
    for path in directory.iterdir():
        path.chmod(0o644)
    print(f"{NAME}: logits differ by {worst:.2g}")


if __name__ == "__main__":
    main()
