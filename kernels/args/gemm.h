/* The arguments of the matrix products. The rules of all operations (threads, order, memory, errors) are in
 * kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, N = rows of the weight, K = its columns. Activations
 * are f32. */
#ifndef QUIRE_KERNELS_ARGS_GEMM_H
#define QUIRE_KERNELS_ARGS_GEMM_H

#include "kernels/weight.h"

#include <stdbool.h>
#include <stdint.h>

/* An operation that writes only for GEMMs (`for_gemm`) may store the data in the layout that the backend's GEMMs read,
 * for example as f16 factors instead of floats. The layout uses the bytes that the floats would use. The reader sets
 * `x_for_gemm`. */
struct k_gemm_args { /* y[t, r] = Σ_k w[r, k] x[t, k] (+ bias[r]) */
    const struct k_weight *weight; /* [N, K] */
    const float *x_dev; /* [T, K] */
    const float *bias_dev; /* [N] or NULL */
    float *y_dev; /* [T, N] */
    void *workspace_dev; /* k_plan_bytes.gemm */
    uint32_t n_tokens;
    /* K is summed in segments of whole units of this many columns, a multiple of 16 (segments.h). 0: one segment. */
    uint32_t unit;
    /* For a share of a GEMM of n_whole columns: K is the columns from first_col on, in whole segments. y is their sum
     * without a bias. The fold adds the shares (docs/internals/numerics.md §5). n_whole 0: K is all columns. */
    uint32_t n_whole, first_col;
    bool x_for_gemm; /* x_dev was written with for_gemm */
};

/* How gate and up become one number (docs/internals/numerics.md §11; kernels/math/gate.h computes it). */
enum k_gate_kind {
    K_GATE_SILU, /* silu(gate) up */
    K_GATE_GELU_TANH, /* gelu(gate) up, with GELU's approximation by tanh */
    K_GATE_CLAMPED, /* min(gate, limit) sigmoid(1.702 min(gate, limit)) (up within ±limit, plus 1) */
};
struct k_gate {
    enum k_gate_kind kind;
    float limit; /* of K_GATE_CLAMPED, above 0 */
};

struct k_gemm_gated_args { /* out[t, i] = gate(y[t, i], y[t, n + i]), with y from gemm() */
    /* Weight [2 n, K]: gate's rows, then up's; unit 0. y_dev is scratch of [T, 2 n], undefined afterwards. It is NULL
     * if the planner's needs_gate_up returns false. */
    struct k_gemm_args gemm;
    float *out_dev; /* [T, n] */
    struct k_gate gate;
    bool for_gemm; /* out_dev is only for GEMMs */
};

#endif
