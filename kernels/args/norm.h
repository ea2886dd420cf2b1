/* The arguments of the normalizations. The rules of all operations (threads, order, memory, errors) are in
 * kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, H = hidden size. Activations are f32. */
#ifndef QUIRE_KERNELS_ARGS_NORM_H
#define QUIRE_KERNELS_ARGS_NORM_H

#include <stdbool.h>
#include <stdint.h>

struct k_rmsnorm_args { /* x += add; out = x * rsqrt(mean(x²) + eps) * weight, or out += that */
    float *x_dev; /* [T, H] residual stream; updated in place unless add_dev is NULL */
    const float *add_dev; /* [T, H] or NULL */
    /* add_dev holds this rank's part of a sum: run all_reduce() with this bias first. Rows must not be strided then.
     * The content of add_dev is undefined afterwards. */
    bool add_is_part;
    const float *add_bias_dev; /* [H] or NULL */
    const float *weight_dev; /* [H] */
    float *out_dev; /* [T, H]; not x_dev, unless nothing is added to x_dev or out_dev */
    uint32_t n_tokens, n_cols;
    uint32_t row_stride; /* floats from a row of x, add and out to the next; 0 means n_cols */
    bool into; /* out += the norm; add_dev must be NULL */
    bool for_gemm; /* only GEMMs of n_tokens with x_for_gemm read out_dev; not with `into` */
    float eps;
};

struct k_layernorm_args { /* out = (s - mean(s)) * rsqrt(var(s) + eps) * weight + bias, s = x + add */
    const float *x_dev; /* [T, H] */
    const float *add_dev; /* [T, H] or NULL */
    const float *weight_dev, *bias_dev; /* [H] */
    float *out_dev; /* [T, H]; may be x_dev */
    uint32_t n_tokens, n_cols;
    float eps;
};

#endif
