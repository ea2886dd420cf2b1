"""Writes a qwen2 checkpoint as GGUF with the same weights, and quantizes it with llama.cpp's own quantizer.

    python tools/bench/to_gguf.py build/bench/models/qwen2.5-0.5b-f16 [q8_0|q4_0|q4_k_m]

Matrices keep their 16 bits; norms and biases become f32, as llama.cpp's own converter writes them. The tokenizer is
the checkpoint's, so Quire can open the file, too.
"""
import argparse
import json
import pathlib

import gguf
import numpy
import torch
from safetensors import safe_open

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def add_tokenizer(w, directory, size):
    model = json.loads((directory / "tokenizer.json").read_text())
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [gguf.TokenType.UNUSED] * size
    for text, i in model["model"]["vocab"].items():
        tokens[i], kinds[i] = text, gguf.TokenType.NORMAL
    for added in model["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], gguf.TokenType.CONTROL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["model"]["merges"]])
    w.add_eos_token_id(model["added_tokens"][0]["id"])
    w.add_add_bos_token(False)


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    layer, module = name.removeprefix("model.layers.").split(".", 1)
    module, kind = module.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[module]}.{kind}"


def convert(directory):
    """Returns the path of the GGUF file, DIRECTORY/model.gguf; an existing file is kept."""
    directory = pathlib.Path(directory)
    path = directory / "model.gguf"
    if path.exists():
        return path
    c = json.loads((directory / "config.json").read_text())
    if c["model_type"] != "qwen2" or not c["tie_word_embeddings"]:
        raise SystemExit(f"{directory}: only qwen2 with tied embeddings is converted")
    bf16 = c["torch_dtype"] == "bfloat16"
    unfinished = path.with_suffix(".part")
    w = gguf.GGUFWriter(unfinished, "qwen2")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if bf16 else gguf.LlamaFileType.MOSTLY_F16)
    w.add_vocab_size(c["vocab_size"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    add_tokenizer(w, directory, c["vocab_size"])
    with safe_open(directory / "model.safetensors", "pt") as checkpoint:
        for name in checkpoint.keys():
            tensor = checkpoint.get_tensor(name)
            if tensor.dim() == 1:
                w.add_tensor(gguf_name(name), tensor.float().numpy())
            elif bf16:
                raw = tensor.view(dtype=torch.uint16).numpy()
                w.add_tensor(gguf_name(name), raw.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                w.add_tensor(gguf_name(name), tensor.numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    unfinished.rename(path)
    return path


FILE_TYPES = {"q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
              "q4_k_m": gguf.LlamaFileType.MOSTLY_Q4_K_M}


def quantize(directory, kind):
    """Returns the path of DIRECTORY-KIND.gguf; an existing file is kept."""
    import llama_cpp as lc
    source, directory = convert(directory), pathlib.Path(directory)
    path = directory.with_name(f"{directory.name}-{kind}.gguf")
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    parameters = lc.llama_model_quantize_default_params()
    parameters.ftype = int(FILE_TYPES[kind])
    if lc.llama_model_quantize(str(source).encode(), str(unfinished).encode(), parameters) != 0:
        raise SystemExit(f"llama.cpp could not write {path}")
    unfinished.rename(path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("kind", nargs="?", choices=FILE_TYPES, help="quantize it as well")
    arguments = parser.parse_args()
    print(quantize(arguments.directory, arguments.kind) if arguments.kind else convert(arguments.directory))
