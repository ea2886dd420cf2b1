/* The arguments of a mixture of experts (docs/internals/numerics.md §20): route, the experts' products, combine. The
 * rules of all operations (threads, order, memory, errors) are in kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, H = hidden size, E = experts, C = experts that one
 * token uses, N = rows and K = columns of one expert's matrix. A choice is one of a token's C experts. A token's choices
 * stand in rising order of the expert, so that the sum over them has one order. Activations are f32. */
#ifndef QUIRE_KERNELS_ARGS_MOE_H
#define QUIRE_KERNELS_ARGS_MOE_H

#include "kernels/args/gemm.h"

#include <stdbool.h>
#include <stdint.h>

#define K_MOE_MAX_EXPERTS 1024u
#define K_MOE_MAX_USED 32u

enum k_route_score {
    K_ROUTE_SOFTMAX, /* softmax over all experts, then the choice (Mixtral, Qwen, OLMoE) */
    K_ROUTE_TOP_SOFTMAX, /* the choice by logits, then softmax over what is chosen (gpt-oss, Granite) */
    K_ROUTE_SIGMOID, /* sigmoid of each logit, then the choice (DeepSeek, GLM) */
};

/* Chooses each token's experts and their weights. The logits are lane sums (§4) in every form: x is never stored for
 * GEMMs, and the router's matrix is f32. */
struct k_moe_route_args {
    const float *x_dev; /* [T, H] */
    const float *router_dev; /* [E, H] */
    const float *bias_dev; /* [E] or NULL: added to the logits */
    const float *correction_dev; /* [E] or NULL: added to the scores for the choice, not for the weights */
    const float *shared_gate_dev; /* [H] or NULL: the gate of the shared expert */
    uint32_t *experts_dev; /* out: [T, C], rising in each token */
    float *weights_dev; /* out: [T, C] */
    float *shared_weights_dev; /* out: [T], if there is a shared_gate_dev: sigmoid of its product with x */
    void *workspace_dev; /* k_plan_bytes.moe */
    uint32_t n_tokens, n_cols; /* T, H */
    uint32_t n_experts, n_used; /* E, C: 1 <= C <= E */
    uint32_t n_groups, n_groups_used; /* the choice falls within the best n_groups_used of n_groups equal groups of
                                       * neighbours; 0 or 1 groups: all experts */
    bool group_by_best; /* a group's score: its best expert's; else the sum of its best two */
    enum k_route_score score;
    bool normalize; /* divide the weights by their sum */
    float scale; /* the weights are multiplied by it, unless it is 1 */
};

/* y[t, c, r] = Σ_k w[e][r, k] x[k] (+ bias[e, r]), e = experts[t, c]. Each row has the bits of a gemm() with the matrix of
 * its expert. */
struct k_moe_gemm_args {
    const struct k_weight *weight; /* experts [first_expert, first_expert + the weight's n_experts), each [N, K] */
    const float *x_dev; /* [T, K]; or [T, C, K] with per_choice */
    const uint32_t *experts_dev; /* [T, C], from moe_route() */
    const float *bias_dev; /* [the weight's n_experts, N] or NULL */
    float *y_dev; /* [T, C, N]; a choice whose expert another rank holds gets rows of -0 */
    void *workspace_dev; /* k_plan_bytes.moe */
    uint32_t n_tokens, n_used;
    uint32_t first_expert;
    uint32_t unit, n_whole, first_col; /* as in k_gemm_args */
    bool per_choice;
    bool x_for_gemm; /* x_dev was written with for_gemm */
};

/* out[t, c, i] = the gate's function of y[t, c, i] and y[t, c, n + i], with y from moe_gemm() */
struct k_moe_gemm_gated_args {
    struct k_moe_gemm_args gemm; /* weight [2 n, K]: gate's rows, then up's; unit 0. y_dev as in k_gemm_gated_args */
    float *out_dev; /* [T, C, n] */
    struct k_gate gate;
    bool for_gemm; /* out_dev is only for moe_gemm() with per_choice */
};

/* out[t] = Σ_c weights[t, c] y[t, c], by fma in rising c from a first product; then the shared expert: + shared[t], or
 * fma(shared_weights[t], shared[t], out). */
struct k_moe_combine_args {
    const float *y_dev; /* [T, C, H] */
    const float *weights_dev; /* [T, C] */
    const float *shared_dev; /* [T, H] or NULL */
    const float *shared_weights_dev; /* [T] or NULL */
    float *out_dev; /* [T, H]; may be shared_dev */
    uint32_t n_tokens, n_used, n_cols;
};

#endif
