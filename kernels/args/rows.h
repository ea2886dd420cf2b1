/* The arguments of the operations that look up, gather, pool and activate rows, and place tokens. The rules of all
 * operations (threads, order, memory, errors) are in kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, H = hidden size, V = vocabulary. Activations are
 * f32. */
#ifndef QUIRE_KERNELS_ARGS_ROWS_H
#define QUIRE_KERNELS_ARGS_ROWS_H

#include "kernels/weight.h"

#include <stdbool.h>
#include <stdint.h>

struct k_embed_args { /* out[t] = table[ids[t]] widened to f32, times scale */
    const struct k_weight *table; /* [V, H] */
    const uint32_t *ids_dev; /* [T], each < V */
    float *out_dev; /* [T, H] */
    uint32_t n_tokens;
    bool into; /* out += the row */
    float scale; /* 0 means 1 */
};

enum k_activation {
    K_ACT_GELU,
    K_ACT_TANH,
    K_ACT_SCALE, /* x by */
    K_ACT_SOFTCAP, /* by tanh(x / by), with 1 / by rounded */
};
struct k_activate_args { /* x = act(x), in place */
    float *x_dev; /* [T, n] */
    uint32_t n_tokens, n_cols;
    enum k_activation activation;
    float by; /* of K_ACT_SCALE; of K_ACT_SOFTCAP positive and normal */
};

enum k_pooling { K_POOL_FIRST, K_POOL_LAST, K_POOL_MEAN };
struct k_pool_row { /* the tokens of one text in the step */
    uint32_t token, n_tokens;
};
struct k_pool_args { /* out[r] = the row's first or last token, or the mean of all, optionally normalized to length 1 */
    const float *x_dev; /* [T, H] */
    const struct k_pool_row *rows_dev; /* [n_rows], at least one token each */
    float *out_dev; /* [n_rows, H]; may be x_dev if row r is token r alone */
    uint32_t n_rows, n_cols;
    enum k_pooling pooling;
    bool normalize; /* divide by the length, or by 1e-12 if the length is less */
};

struct k_gather_args { /* out[i] = x[index[i]] */
    const float *x_dev; /* [T, H] */
    const uint32_t *index_dev; /* [n_rows] */
    float *out_dev; /* [n_rows, H] */
    uint32_t n_rows, n_cols;
    bool for_gemm; /* out_dev is only for a GEMM of n_rows; x_dev holds floats */
};

/* A token of this step that the previous step sampled: ids[token] = sampled[row]. */
struct k_token_source {
    uint32_t token, row;
};
#define K_NO_TOKEN UINT32_MAX /* the token of a padding source */
struct k_place_tokens_args {
    uint32_t *ids_dev; /* [T] */
    const uint32_t *sampled_dev; /* from k_sample_args */
    const struct k_token_source *sources_dev; /* [n] */
    uint32_t n;
};

#endif
