/* The operations: the one list that everything which names them all is made from. X(NAME, name, "what it computes");
 * name's arguments are struct k_<name>_args of kernels.h, which says the shapes.
 *
 * From it follow enum k_operation, the members of struct k_backend_ops, the tables of ref and cuda (cpu takes ref's and
 * puts its own over some), the names of the cases and of `quire bench kernels`, the backends that tests and benchmarks
 * put in between, and the table of docs/kernels.md, which kernels_door_test holds against it.
 */
#ifndef QUIRE_KERNELS_OPERATIONS_H
#define QUIRE_KERNELS_OPERATIONS_H

/* What a step computes: may stand between graph_begin and graph_end, and has cases in kernels/cases. */
#define K_RECORDED_OPERATIONS(X) \
    X(EMBED, embed, "rows of a table by token id, widened to f32") \
    X(RMSNORM, rmsnorm, "the residual stream plus what is added to it, and its RMSNorm") \
    X(GEMM, gemm, "weights times activations, and a bias") \
    X(ROPE_ANGLES, rope_angles, "cosine and sine of each position's angles, once a step for all layers") \
    X(ROPE_KV, rope_kv, "norms of the heads of q and k, RoPE, and K and V into their blocks") \
    X(ATTENTION, attention, "attention of a step's queries over the paged KV cache") \
    X(GEMM_SILU_MUL, gemm_silu_mul, "gate and up of an MLP in one weight, then SiLU of gate times up") \
    X(LAYERNORM, layernorm, "the residual stream plus what is added to it, normed by mean and variance") \
    X(ACTIVATE, activate, "GELU or tanh of each number") \
    X(POOL, pool, "one vector from the tokens of each text") \
    X(GATHER, gather, "the rows of activations that logits are wanted of") \
    X(SAMPLE, sample, "a token, and logprobs, from each row of logits")

/* What has cases too, and is never recorded: it reads host memory that is another each time. */
#define K_EAGER_OPERATIONS(X) X(KV_COPY, kv_copy, "whole KV blocks of a layer between a pool and its host tier")

/* What stands between two steps, and is recorded too; kernels_step_test places tokens. */
#define K_LINKING_OPERATIONS(X) \
    X(PLACE_TOKENS, place_tokens, "tokens that the step before sampled, to where this step embeds them")

/* What prepares the others on the host, before they are run or launched: it queues nothing and is never recorded. The
 * cases of attention and of sampling make their plans. */
#define K_PREPARING_OPERATIONS(X) \
    X(ATTENTION_PLAN, attention_plan, "how a step's attention is divided among the device; host backends need none") \
    X(SAMPLE_PLAN, sample_plan, "what a device reads of a step's rows; host backends need none")

/* What several ranks do together, and is recorded too; kernels_group_test and kernels_cuda_group_test have its cases. */
#define K_GROUP_OPERATIONS(X) \
    X(ALL_REDUCE, all_reduce, "the sum of what the ranks have, by one tree, and a bias") \
    X(ALL_GATHER, all_gather, "the columns that the ranks have, side by side") \
    X(CHECKSUM, checksum, "a number of rows that all ranks should have alike")

#define K_OPERATIONS(X) \
    K_RECORDED_OPERATIONS(X) \
    K_EAGER_OPERATIONS(X) K_LINKING_OPERATIONS(X) K_PREPARING_OPERATIONS(X) K_GROUP_OPERATIONS(X)

#endif
