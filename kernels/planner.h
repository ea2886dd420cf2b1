/* What a backend needs, known without opening it. Host arithmetic only, so memory can be planned for a device that this
 * machine does not have. Constant data and pure functions; any thread. Sizes are in bytes. */
#ifndef QUIRE_KERNELS_PLANNER_H
#define QUIRE_KERNELS_PLANNER_H

#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>

struct k_plan_dims {
    uint32_t n_tokens; /* most tokens in a step */
    uint32_t n_seqs; /* most sequences in a step */
    uint32_t n_logits; /* most logit rows in a step */
    uint32_t n_vocab, n_q_heads, n_kv_heads, head_dim;
    uint32_t max_gemm_cols; /* the widest input of a GEMM */
    uint32_t max_model_len;
    uint32_t window; /* of attention; 0: none */
    uint32_t n_threads; /* as in k_backend_options, including 0: host backends need scratch per thread */
    bool not_invariant; /* as in k_backend_options, with 16-bit weights in the mma form */
    uint32_t n_ranks; /* ranks that compute together; 0 means 1 */
    /* Mixtures of experts: experts, those that a token uses, the most rows of an expert's matrix, and the most columns
     * of one that has an input for each choice. 0: none. */
    uint32_t n_experts, n_used, expert_rows, choice_cols;
};
struct k_plan_bytes {
    uint64_t gemm;
    uint64_t attention;
    uint64_t attention_plan; /* per plan */
    uint64_t sample;
    uint64_t sample_plan;
    uint64_t sample_parts; /* enough for the parts of any single row */
    uint64_t moe; /* of any of the operations on experts */
    uint64_t group; /* memory that join() uses */
};

/* A backend's requirements, known without opening it. Constant and static. An opened backend points to its own
 * planner. */
struct k_planner {
    const char *name; /* the backend's name: "ref", "cpu", "cuda" */
    bool on_host; /* computes in host memory with n_threads compute threads; otherwise in a device's own memory */
    uint32_t overlap_depth; /* steps that may be in flight in addition to the one being planned: 0 or 1 */
    /* The minimum number of tokens in a micro-batch that passes from stage to stage. Half as many take the device
     * nearly as long, because it reads the same weights. */
    uint32_t micro_batch_tokens;
    void (*workspace)(const struct k_plan_dims *dims, struct k_plan_bytes *out);
    bool (*needs_gate_up)(const struct k_plan_dims *dims); /* whether gemm_gated() needs its scratch */
    /* Device memory for one part of a weight, in all its experts (1 of others); 0 if it is used in place. On a host, the
     * memory for weights that the int8 form repacks. */
    uint64_t (*weight_bytes)(struct k_format format, uint32_t n_experts, uint32_t n_rows, uint32_t n_cols);
};
/* Returns the planner of a device named as in options: "ref", "cpu", "cuda" or "cuda:N". Returns NULL if no such device
 * exists. */
const struct k_planner *k_planner_find(const char *device);

#endif
