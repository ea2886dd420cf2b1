/* The arguments of the operations of several ranks. Only a backend that has joined a group (kernels/group.h) computes
 * them. The rules of all operations (threads, order, memory, errors) are in kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step. Activations are f32. */
#ifndef QUIRE_KERNELS_ARGS_GROUP_H
#define QUIRE_KERNELS_ARGS_GROUP_H

#include "kernels/group.h"

#include <stdbool.h>
#include <stdint.h>

struct k_all_reduce_args { /* x[t, c] = the tree sum over the ranks of x[t, c], plus bias[c] */
    float *x_dev; /* [T, n_cols] */
    const float *bias_dev; /* [n_cols], the same on every rank, or NULL */
    uint32_t n_tokens, n_cols;
};

struct k_all_gather_args { /* out[t] = row t of rank 0, of rank 1, ... */
    /* [T, columns of this rank]. On a host there is space for a row of the widest part after the start of the last
     * row. */
    const float *own_dev;
    float *out_dev; /* [T, all columns]; not own_dev or scratch_dev */
    /* For host backends: [ranks, T, the widest part], or [ranks, the widest part] with to_first. own_dev may lie in
     * it. */
    float *scratch_dev;
    uint32_t first_cols[K_MAX_RANKS + 1]; /* rank r has the columns [first_cols[r], first_cols[r + 1]) */
    uint32_t n_tokens;
    bool to_first; /* only rank 0 receives out; it is undefined on other ranks */
};

struct k_checksum_args { /* *sum += the checksum of x (k_checksum_term()): integers, so order does not matter */
    const float *x_dev; /* [T, n_cols] */
    uint64_t *sum_dev;
    uint32_t n_tokens, n_cols;
};

#endif
