/* The input of a GGUF output: metadata, and tensors by GGUF's names. It comes from a GGUF file, whose metadata is
 * copied, or from a directory in transformers' format, whose metadata is converted (architectures llama, qwen2 and
 * qwen3 with byte-level BPE). Owns the opened files. One thread opens; any thread may read. */
#ifndef QUIRE_TOOLS_QUANTIZE_GGUF_SOURCE_H
#define QUIRE_TOOLS_QUANTIZE_GGUF_SOURCE_H

#include "engine/checkpoint/checkpoint.h"
#include "tools/quantize/gguf/pairs.h"

#include <stdint.h>

struct gguf_source_tensor {
    char name[65]; /* "blk.0.attn_q.weight" */
    struct checkpoint_tensor data; /* rows first; name and file for errors */
    /* 0, or heads of q or k whose rows are stored so that RoPE turns neighbours: row 2 i + j of a head is row
     * j D / 2 + i of the data. */
    uint32_t n_heads;
    float *made; /* owned: numbers that no file has; NULL otherwise. data points to it */
};

struct gguf_source {
    struct gguf_pairs pairs; /* without general.file_type and general.quantization_version */
    uint32_t alignment;
    struct gguf_source_tensor *tensors; /* in the order of the output */
    uint32_t n_tensors, n_layers;
    struct checkpoint *checkpoint;
    struct gguf *gguf; /* NULL: a directory */
};

/* Opens either. QUIRE_INVALID if weights are quantized already. Zeroed on failure. */
int gguf_source_open(const char *model, struct gguf_source *out, struct quire_error *err);
void gguf_source_close(struct gguf_source *s);

/* gguf_convert.c: of a directory. `s->checkpoint` is open. */
int gguf_source_convert(const char *model, struct gguf_source *s, struct quire_error *err);
/* gguf_vocabulary.c: the tokenizer's pairs. vocab_size: rows of the embedding; missing tokens get placeholders. */
int gguf_source_vocabulary(const char *model, uint32_t vocab_size, struct gguf_pairs *pairs, struct quire_error *err);

#endif
