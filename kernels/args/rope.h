/* The arguments of RoPE, whose second operation stores K and V. The rules of all operations (threads, order, memory,
 * errors) are in kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, D = head_dim, Q = query heads, KV = KV heads.
 * Activations are f32. */
#ifndef QUIRE_KERNELS_ARGS_ROPE_H
#define QUIRE_KERNELS_ARGS_ROPE_H

#include "kernels/kv.h"

#include <stdbool.h>
#include <stdint.h>

struct k_rope_angles_args { /* cos and sin of position × inv_freq, once per step, for every layer */
    const uint32_t *positions_dev; /* [T] */
    const float *inv_freq_dev; /* [n_freqs] */
    float *cos_sin_dev; /* [T, n_freqs, 2], each multiplied by scale */
    uint32_t n_tokens, n_freqs;
    float scale; /* YaRN's attention factor, otherwise 1 */
    bool exact; /* the angle is an f64 product, for positions of any length; otherwise an f32 product */
    uint32_t most_position; /* larger positions count as this one; 0: no limit */
};

struct k_rope_kv_args { /* per-head RMSNorm of q and k (optional), RoPE, storing K and V into their blocks */
    float *qkv_dev; /* [T, (Q + 2 KV) * D]: q rotated in place */
    const float *q_norm_dev; /* [D] or NULL */
    const float *k_norm_dev; /* [D] or NULL */
    float eps;
    const float *cos_sin_dev; /* [T, (D - n_fixed) / 2, 2]; NULL if n_fixed is D */
    const uint32_t *slots_dev; /* [T]: block id * block_tokens + offset, or K_NO_SLOT */
    const struct k_kv_shape *kv;
    const struct k_kv_layer *layer;
    /* NULL, or [T, Q * D]: q rotated by sink_cos_sin_dev, which has the shape of cos_sin_dev. It is the query for the
     * positions of attention sinks. */
    float *sink_q_dev;
    const float *sink_cos_sin_dev;
    uint32_t n_tokens, n_q_heads;
    uint32_t n_fixed; /* the last numbers of each head that are not rotated: a multiple of 16, at most D */
};

#endif
