/* The matrices of the model that is quantized, as f32. Any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_SOURCE_H
#define QUIRE_TOOLS_QUANTIZE_SOURCE_H

#include "engine/checkpoint/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns whether a tensor is the matrix of a linear layer of a text model's transformer block. Embeddings, the head,
 * routers, vision and audio parts are not. */
bool source_is_linear(const struct checkpoint_tensor *t);

/* Returns whether a tensor is the matrices of a layer's experts, one after the other: gpt-oss, Granite. */
bool source_is_experts(const struct checkpoint_tensor *t);

/* Widens n rows of a matrix that is plain or in blocks of MXFP4 from row `first`. QUIRE_INVALID names a weight that is not finite. */
int source_load(const struct checkpoint_tensor *t, uint64_t first, uint64_t n, float *out, struct quire_error *err);

#endif
