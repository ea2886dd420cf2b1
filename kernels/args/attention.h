/* The arguments of attention and of its plan. The rules of all operations (threads, order, memory, errors) are in
 * kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, D = head_dim, Q = query heads, KV = KV heads.
 * Activations are f32. Positions count from 0. */
#ifndef QUIRE_KERNELS_ARGS_ATTENTION_H
#define QUIRE_KERNELS_ARGS_ATTENTION_H

#include "kernels/kv.h"

#include <stdbool.h>
#include <stdint.h>

/* A sequence's tokens in this step. Position p reads the KV of positions (p - window, p]. With `whole` attention it
 * reads all positions up to the row's last one. With attention sinks it also reads positions [0, n_sink_positions). */
struct k_attn_row {
    uint32_t token; /* index of its first token in the step's arrays */
    uint32_t n_tokens; /* 0: a padding row */
    uint32_t position; /* of that first token */
    uint32_t table; /* offset of its block table in tables_dev */
};
#define K_MAX_SINK_POSITIONS 512u /* a split (docs/internals/numerics.md §10) */

/* Divides a step's attention among the device's thread blocks. Made on the host, once for all layers with these rows
 * and this window, and copied to the device with the rest of the step's input. Host backends do nothing. */
struct k_attention_plan_args {
    const struct k_attn_row *rows; /* [n_rows] HOST memory, read before the call returns */
    const struct k_kv_shape *kv;
    void *plan; /* HOST memory, 16-byte aligned, k_plan_bytes.attention_plan for this many rows and tokens */
    uint32_t n_rows, n_tokens, n_q_heads;
    uint32_t window;
    bool whole;
};
struct k_attention_args {
    const float *qkv_dev; /* [T, (Q + 2 KV) * D]: only q is read; K and V come from the cache */
    float *out_dev; /* [T, Q * D]; tokens outside all rows stay unchanged */
    const struct k_attn_row *rows; /* [n_rows] HOST memory; not read between graph_begin and graph_end, where n_rows
                                    * is an upper bound */
    const struct k_attn_row *rows_dev; /* the same in backend memory */
    /* A copy of the plan of these rows and this window, 16-byte aligned. A device uses counters in it and resets
     * them. */
    void *plan_dev;
    const uint32_t *tables_dev; /* block ids; entry i of a table covers positions [i, i+1) * block_tokens */
    const struct k_kv_shape *kv;
    const struct k_kv_layer *layer;
    void *workspace_dev; /* k_plan_bytes.attention */
    uint32_t n_rows, n_tokens, n_q_heads;
    uint32_t window; /* 0 = all earlier positions */
    bool whole; /* all positions up to the last of a token's row, including later ones; window must be 0 */
    /* NULL, or [T, Q * D]: the queries for positions below n_sink_positions, which needs a window. The plan does not
     * depend on it. */
    const float *sink_q_dev;
    uint32_t n_sink_positions; /* at most K_MAX_SINK_POSITIONS */
    float scale;
    float softcap; /* 0 = off; otherwise positive and normal: a score s becomes softcap * tanh(s / softcap), after
                    * scale */
    const float *sinks_dev; /* [Q] or NULL: a logit per query head that takes part in the softmax without a value */
    bool for_gemm; /* out_dev is only for GEMMs */
};

#endif
