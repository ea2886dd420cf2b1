"""A random Qwen3-MoE for speed runs, as a GGUF file in BF16: 1.9 billion parameters, of which a token uses 0.36.

usage: make_random_experts.py OUT.gguf        needs numpy and gguf; llama-quantize makes the other types of it"""
import sys

import gguf
import numpy as np

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 1024, 24, 16, 4, 64
EXPERTS, USED, INNER, VOCABULARY = 64, 8, 384, 32000


def tokens():
    """256 characters of bytes, as GPT-2 writes them, then names that no text has, then two control tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + i for i in range(256 - len(plain))]
    names = [f"t{i}" for i in range(VOCABULARY - 256 - 2)]
    return [chr(c) for c in plain + others] + names + ["<|endoftext|>", "<|im_end|>"]


def keys(w):
    w.add_block_count(LAYERS)
    w.add_context_length(4096)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(3072)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(USED)
    w.add_expert_feed_forward_length(INNER)
    w.add_vocab_size(VOCABULARY)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens())
    w.add_token_types([1] * (VOCABULARY - 2) + [3, 3])
    w.add_token_merges(["t h"])
    w.add_eos_token_id(VOCABULARY - 2)
    w.add_bos_token_id(VOCABULARY - 2)


def tensors(w):
    rng = np.random.default_rng(0)

    def matrix(name, *shape):
        values = rng.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5
        w.add_tensor(name, (values.view(np.uint32) >> 16).astype(np.uint16), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def ones(name, n):
        w.add_tensor(name, np.ones(n, np.float32))

    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    matrix("output.weight", VOCABULARY, HIDDEN)
    ones("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight", HIDDEN)
        ones(block + "ffn_norm.weight", HIDDEN)
        ones(block + "attn_q_norm.weight", HEAD_DIM)
        ones(block + "attn_k_norm.weight", HEAD_DIM)
        matrix(block + "attn_q.weight", HEADS * HEAD_DIM, HIDDEN)
        matrix(block + "attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        matrix(block + "attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        matrix(block + "attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
        router = rng.standard_normal((EXPERTS, HIDDEN)) * HIDDEN**-0.5
        w.add_tensor(block + "ffn_gate_inp.weight", router.astype(np.float32))
        matrix(block + "ffn_gate_exps.weight", EXPERTS, INNER, HIDDEN)
        matrix(block + "ffn_up_exps.weight", EXPERTS, INNER, HIDDEN)
        matrix(block + "ffn_down_exps.weight", EXPERTS, HIDDEN, INNER)


def main():
    w = gguf.GGUFWriter(sys.argv[1], "qwen3moe")
    keys(w)
    tensors(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
