/* The list of operations. All code that enumerates operations expands this list. X(NAME, name, "what it computes"); the
 * arguments of an operation are struct k_<name>_args of kernels/args/, which documents the shapes.
 *
 * The list generates enum k_operation, the members of struct k_backend_ops, the tables of ref and cuda (cpu copies
 * ref's table and replaces some entries), the names of the cases and of `quire bench kernels`, the wrapper backends of
 * tests and benchmarks, and the table of docs/internals/kernels.md, which kernels_public_header_test compares with the list.
 */
#ifndef QUIRE_KERNELS_OPERATIONS_H
#define QUIRE_KERNELS_OPERATIONS_H

/* The computation of a step. May be called between graph_begin and graph_end, and has cases in kernels/cases. */
#define K_RECORDED_OPERATIONS(X) K_DENSE_OPERATIONS(X) K_MOE_OPERATIONS(X)

#define K_DENSE_OPERATIONS(X) \
    X(EMBED, embed, "rows of a table by token id, widened to f32") \
    X(RMSNORM, rmsnorm, "the residual stream plus an addend, and the RMSNorm of the sum") \
    X(GEMM, gemm, "weights times activations, and a bias") \
    X(ROPE_ANGLES, rope_angles, "cosine and sine of each position's angles, once a step for all layers") \
    X(ROPE_KV, rope_kv, "norms of the heads of q and k, RoPE, and K and V into their blocks") \
    X(ATTENTION, attention, "attention of a step's queries over the paged KV cache") \
    X(GEMM_GATED, gemm_gated, "gate and up of an MLP in one weight, then its gate of both") \
    X(LAYERNORM, layernorm, "the residual stream plus an addend, normalized by mean and variance") \
    X(ACTIVATE, activate, "GELU or tanh of each number") \
    X(POOL, pool, "one vector from the tokens of each text") \
    X(GATHER, gather, "the rows of activations that need logits") \
    X(SAMPLE, sample, "a token, and logprobs, from each row of logits")

/* Mixtures of experts. */
#define K_MOE_OPERATIONS(X) \
    X(MOE_ROUTE, moe_route, "each token's experts and their weights") \
    X(MOE_GEMM, moe_gemm, "the weights of each token's experts times its activations, and a bias") \
    X(MOE_GEMM_GATED, moe_gemm_gated, "gate and up of each token's experts, then the gate of both") \
    X(MOE_COMBINE, moe_combine, "the weighted sum of the outputs of a token's experts")

/* Has cases too, but is never recorded, because it reads host memory that differs on each call. */
#define K_EAGER_OPERATIONS(X) X(KV_COPY, kv_copy, "whole KV blocks of a layer between a pool and its host tier")

/* Links two steps, and is recorded too. kernels_step_test tests it. */
#define K_LINKING_OPERATIONS(X) \
    X(PLACE_TOKENS, place_tokens, "copies the previous step's sampled tokens into this step's token ids")

/* Prepares other operations on the host before they run or launch. Queues nothing and is never recorded. The cases of
 * attention and of sampling make their plans with it. */
#define K_PREPARING_OPERATIONS(X) \
    X(ATTENTION_PLAN, attention_plan, "division of a step's attention among thread blocks; host backends do nothing") \
    X(SAMPLE_PLAN, sample_plan, "a step's sampling rows in the form that a device reads; host backends do nothing")

/* Involves several ranks, and is recorded too. kernels_group_test and kernels_cuda_group_test have its cases. */
#define K_GROUP_OPERATIONS(X) \
    X(ALL_REDUCE, all_reduce, "the sum over the ranks, by one tree, plus a bias") \
    X(ALL_GATHER, all_gather, "the columns of all ranks, side by side") \
    X(CHECKSUM, checksum, "a checksum of rows that must be equal on all ranks")

#define K_OPERATIONS(X) \
    K_RECORDED_OPERATIONS(X) \
    K_EAGER_OPERATIONS(X) K_LINKING_OPERATIONS(X) K_PREPARING_OPERATIONS(X) K_GROUP_OPERATIONS(X)

#endif
