/* The matrices of the model that is quantized, as f32. Any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_SOURCE_H
#define QUIRE_TOOLS_QUANTIZE_SOURCE_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/experts/apart.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns whether a tensor belongs to a text model by its name, and not to a part for vision or audio. */
bool source_is_of_text(const char *name);
/* Returns whether a tensor is the matrix of a linear layer of a text model's transformer block. Embeddings, the head,
 * routers, vision and audio parts are not. */
bool source_is_linear(const struct checkpoint_tensor *t);

/* Returns how the experts of a layer are named apart that a tensor has together, matrices or biases (gpt-oss, Granite). NULL:
 * it is no such tensor. */
const struct experts_apart *source_experts(const struct checkpoint_tensor *t);

/* A matrix or a bias of experts that a tensor has together. `part` is below n_parts. */
struct source_part {
    struct checkpoint_tensor tensor; /* with all experts */
    const struct experts_apart *apart;
    uint32_t expert, part;
};
uint64_t source_part_rows(const struct source_part *p);
uint64_t source_part_cols(const struct source_part *p); /* of a matrix */
/* The part's own name: that of the tensor it would be alone. Returns false if it is too long. */
bool source_part_name(const struct source_part *p, char *out, size_t n_bytes);
/* Widens a matrix. out: [rows, cols] */
int source_part_load(const struct source_part *p, uint32_t n_threads, float *out, struct quire_error *err);
/* Copies a bias as stored. out: [rows] of the tensor's dtype */
void source_part_bias(const struct source_part *p, uint8_t *out);

/* Widens n rows of a matrix that is plain or in blocks of MXFP4 from row `first`. QUIRE_INVALID names a weight that is not finite. */
int source_load(const struct checkpoint_tensor *t, uint64_t first, uint64_t n, float *out, struct quire_error *err);

#endif
