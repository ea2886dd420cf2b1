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
};

#endif
