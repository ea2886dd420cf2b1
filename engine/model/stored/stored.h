/* Where a checkpoint has a matrix or a vector of a model: its tensor, name, shape and rows. Experts of a layer are tensors of
 * their own, or one tensor; parts of a fused matrix are rows of one tensor. Pure functions; any thread. */
#ifndef QUIRE_ENGINE_STORED_STORED_H
#define QUIRE_ENGINE_STORED_STORED_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/experts/transpose.h"
#include "engine/model/model.h"
#include "engine/model/tensor_table.h"
#include "engine/model/tensors.h"

#include <stdbool.h>
#include <stdint.h>

struct stored_model {
    const struct checkpoint *checkpoint;
    const struct model_desc *desc;
    bool bare; /* a checkpoint of a model without its head: names without "model." or "bert." */
};

/* A matrix of the model: of the table's row, in a layer, and of several of one shape (experts) the one at `index`. */
struct matrix_at {
    const struct model_tensor *row;
    uint32_t layer, index;
};

/* Whether it is an expert's, and the checkpoint has the experts apart that the row names in one tensor. */
bool stored_apart(const struct stored_model *s, struct matrix_at at);
/* The name that the checkpoint has for it. */
void stored_name(const struct stored_model *s, struct matrix_at at, char name[MODEL_NAME_BYTES]);
/* QUIRE_INVALID: the file has the experts twice, one of them by the name `one`, and all of them in one tensor. */
int stored_refuse_both(const struct stored_model *s, struct matrix_at at, const char *one, struct quire_error *err);
/* Rows of a fused tensor before a part of it; *all: those of all its parts. */
uint32_t stored_rows_before(const struct stored_model *s, struct matrix_at at, uint64_t *all);
/* Whether the rows of a tensor's parts stand in turn, and those of a matrix are the file's columns. */
bool stored_transposed(const struct stored_model *s, struct matrix_at at);
/* The rows of a part of such a tensor. */
struct transpose_rows stored_rows_in_turn(const struct stored_model *s, struct matrix_at at);
/* Finds the tensor and checks its shape. *out has the rows of `at` alone, but those that stand in turn. QUIRE_NOT_FOUND,
 * QUIRE_INVALID. */
int stored_find(const struct stored_model *s, struct matrix_at at, struct checkpoint_tensor *out,
                struct quire_error *err);

#endif
