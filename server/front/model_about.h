/* A value type: what a model is made of, for lists that people read. */
#ifndef QUIRE_FRONT_MODEL_ABOUT_H
#define QUIRE_FRONT_MODEL_ABOUT_H

#include <stdbool.h>
#include <stdint.h>

/* Zero: unknown. */
struct model_about {
    char family[64]; /* "qwen2" */
    char quantization[32]; /* "BF16", "awq" */
    bool is_gguf;
    uint64_t n_bytes; /* of its weights' files */
    uint64_t n_parameters;
    /* Of the engine in this process, weights and KV cache included; several ranks: the first one's. vram_bytes: the part
     * on a GPU. */
    uint64_t memory_bytes, vram_bytes;
};

#endif
