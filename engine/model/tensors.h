/* A model's tensors, by the rows of tensor_table.h: which it has, their sizes, names and formats, and the objects in
 * memory that they are parts of. Sizes are in elements, except where a name says bytes. Pure; any thread. */
#ifndef QUIRE_ENGINE_MODEL_TENSORS_H
#define QUIRE_ENGINE_MODEL_TENSORS_H

#include "engine/model/model.h"
#include "engine/model/sizes.h"
#include "engine/model/tensor_table.h"
#include "kernels/planner.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_PARTS 4u
/* One object in memory: a vector, or neighbouring matrices or biases of one site, its parts from top to bottom. */
struct model_stack {
    const struct model_tensor *parts;
    uint32_t n_parts;
    uint32_t layer; /* n_layers: beside the layers */
    uint32_t first, count; /* matrices of each part: experts [first, first + count) that the rank holds; else 0 and 1 */
    uint32_t rows; /* of all parts */
    uint32_t cols;
};

/* The next object that the model has: begin with a zeroed stack. false: there is no other. Layer by layer; what lies
 * beside the layers comes last. */
bool model_next_stack(const struct model_desc *desc, struct model_stack *stack);

/* layer: n_layers of what lies beside the layers. */
bool model_has_tensor(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor);

/* Prefix under which the Dense module's own file joins the model's tensors (weights_open()). */
#define MODEL_DENSE_PREFIX "dense."
#define MODEL_NAME_BYTES 160
#define MODEL_ALL_OF UINT32_MAX /* index: the one tensor that holds all `count` matrices */
/* index: of a row with several matrices, below its count; else unused. bare: of a checkpoint saved from the model
 * without its head, whose names have no "model.", "bert." or "roberta." */
void model_tensor_name(const struct model_desc *desc, const struct model_tensor *tensor, uint32_t layer, uint32_t index,
                       bool bare, char out[MODEL_NAME_BYTES]);

/* The name under which a checkpoint has a part of a tensor of all experts, or of one, apart (experts/apart.h). Returns
 * false if the row has no such name. */
bool model_apart_name(const struct model_desc *desc, const struct model_tensor *tensor, uint32_t layer, uint32_t index,
                      bool bare, char out[MODEL_NAME_BYTES]);

/* A tensor with several parts has a row for each. Return the row of the next part above or below, or NULL. */
const struct model_tensor *model_part_above(const struct model_tensor *row);
const struct model_tensor *model_part_below(const struct model_tensor *row);
/* Whether a row of several matrices may have a tensor for each. */
bool model_is_numbered(const struct model_tensor *row);

/* Whether this is the name of a tensor that the model computes with; of one that is quantized, "...weight" for all its parts. */
bool model_uses_name(const struct model_desc *desc, bool bare, const char *name);
/* Whether a name is one of the architecture's, used or not. */
bool model_knows_name(const struct model_desc *desc, const char *name);

/* Columns to a unit of the segments in which a matrix' GEMM sums (numerics.md §5): a head, or what k_segment_unit() says,
 * where devices share it by columns; else 0. */
uint32_t model_unit_of(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor);

/* The site whose weight makes logits. */
enum model_site model_head_site(const struct model_desc *desc);

/* Floats that a stack of vectors takes in the parameter arena, where each vector begins on a 64-byte boundary. NULL:
 * the whole arena, in the order of model_next_stack(), with the inverse frequencies at its end. */
uint64_t model_stack_floats(const struct model_stack *stack);
uint64_t model_rope_floats(const struct model_rope *rope); /* of its frequencies, likewise */
uint64_t model_param_floats(const struct model_desc *desc);

/* The format that --quantization produces for a matrix; bits 0: it stays as stored. */
struct k_format model_made_format(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor);

/* Bytes of a device's copy of a stack of matrices. formats: of its parts; bits 0: the checkpoint lacks the part. */
uint64_t model_copy_bytes(const struct model_desc *desc, const struct model_stack *stack,
                          const struct k_format formats[MODEL_MAX_PARTS], const struct k_planner *planner);

#endif
