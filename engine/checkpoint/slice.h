/* Parts of a tensor along its first dimension: a matrix of several in one tensor, or rows of a matrix. They lie in the
 * checkpoint, in place. Pure functions; any thread. */
#ifndef QUIRE_ENGINE_CHECKPOINT_SLICE_H
#define QUIRE_ENGINE_CHECKPOINT_SLICE_H

#include "engine/checkpoint/checkpoint.h"

#include <stdint.h>

/* Makes *t its part `index`, which has one dimension less: [N, K] of [E, N, K], [N] of [E, N]. At least two dimensions,
 * and index < shape[0]. data may be NULL. */
void checkpoint_take(struct checkpoint_tensor *t, uint64_t index);

/* Makes *t its parts [first, first + n). At least one dimension, n > 0 and first + n <= shape[0]. data may be NULL. */
void checkpoint_take_rows(struct checkpoint_tensor *t, uint64_t first, uint64_t n);

/* Element i of a plain tensor, widened to f32 (exact). */
float checkpoint_element(const struct checkpoint_tensor *t, uint64_t i);

#endif
