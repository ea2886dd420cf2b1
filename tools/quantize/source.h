/* The matrices of the model that is quantized, as f32, and the model's small files. Any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_SOURCE_H
#define QUIRE_TOOLS_QUANTIZE_SOURCE_H

#include "engine/checkpoint/checkpoint.h"
#include "tools/quantize/writer/output.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns whether a tensor is the matrix of a linear layer of a text model's transformer block. Embeddings, the head,
 * routers, vision and audio parts are not. */
bool source_is_linear(const struct checkpoint_tensor *t);

/* Widens n rows of a matrix that is plain or in blocks of MXFP4 from row `first`. QUIRE_INVALID names a weight that is not finite. */
int source_load(const struct checkpoint_tensor *t, uint64_t first, uint64_t n, float *out, struct quire_error *err);

/* Copies the files of a checkpoint's directory that are not weights, except config.json. */
int source_copy_files(const char *dir, struct quantizer_output *output, struct quire_error *err);

#endif
