/* Names of experts that a checkpoint has apart, of models whose plain checkpoints have the experts of a layer in one tensor.
 * Writers of quantized checkpoints name them so: vLLM has Mixtral's names for Granite, llm-compressor those of linear
 * layers for gpt-oss. Constant data; any thread. */
#ifndef QUIRE_ENGINE_EXPERTS_APART_H
#define QUIRE_ENGINE_EXPERTS_APART_H

#include <stdbool.h>
#include <stdint.h>

#define EXPERTS_MAX_PARTS 2u

struct experts_apart {
    const char *all; /* the end of the name of the tensor of all experts */
    const char *parts[EXPERTS_MAX_PARTS]; /* what stands there instead, from top to bottom; '*' is the expert */
    uint32_t n_parts;
    bool is_bias;
    bool in_turn; /* rows of a matrix are the file's columns, and those of the parts stand in turn */
};

/* NULL: the name is not one of a tensor of all experts. */
const struct experts_apart *experts_apart_of(const char *name);

#endif
