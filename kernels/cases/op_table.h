/* The table of kernel cases: it drives the tests and the benchmark of every backend. A commit that adds a kernel
 * adds its row here. Constant data; any thread, except for op_name(). */
#ifndef QUIRE_KERNELS_OP_TABLE_H
#define QUIRE_KERNELS_OP_TABLE_H

#include "kernels/args/gemm.h"
#include "kernels/args/moe.h"
#include "kernels/args/rows.h"
#include "kernels/backend.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/kv.h"

enum op_values {
    VALUES_PLAIN, /* within ±1 */
    VALUES_WIDE,  /* exponents from -20 to 20: sums that cancel and swamp */
    VALUES_TINY,  /* exponents around the smallest normal number, including denormals */
    VALUES_SHARP, /* attention: scores hundreds apart, so that exp reaches 0 */
    VALUES_BROKEN, /* quantized weights: of each three tokens, one has a NaN and one an infinity */
    VALUES_FULL, /* quantized weights: a row's bits are all set or all clear; a token's numbers are all 1 or all -1 */
};

enum op_sampling { /* the options of sampled rows */
                   SAMPLING_MIXED, /* every row differs: biases, masks, penalties, logprobs, bad rows */
                   SAMPLING_GREEDY,
                   SAMPLING_TEMPERATURE,
                   SAMPLING_TOP_P,
                   SAMPLING_FULL, /* top_k, top_p and logprobs */
                   N_SAMPLINGS
};

#define OP_MAX_SEQS 64
struct op_seq { /* a sequence's tokens in the step: n_tokens from this position on */
    uint32_t n_tokens, position;
};

struct op_moe { /* of operations on experts */
    uint32_t n_experts; /* 0: combine, which needs no number */
    uint32_t n_used;
    bool per_choice; /* moe_gemm: each choice has an input of its own */
    enum k_route_score score;
    uint32_t n_groups, n_groups_used;
    bool group_by_best, normalize;
};

struct op_stored { /* of quantized weights: what their format does not say */
    struct k_format other; /* format of the second and the fourth part; bits 0: the case's format too */
    uint32_t scale_rows, scale_step; /* as in struct k_weight_view */
    bool has_zeros, permuted; /* planes with zero points, planes with an order of columns */
    float x_scale;
};

struct op_case {
    enum k_operation op;
    enum op_values values;
    enum k_dtype dtype; /* dtype of the weights, or of the KV cache as k_kv_format() takes it */
    struct k_format format; /* format of quantized weights of a GEMM or a table; bits 0: plain, of `dtype` */
    const struct op_stored *stored; /* NULL: nothing but the format */
    enum k_gemm_form form;
    uint32_t n_tokens; /* T; rows of logits for sampling; blocks copied; 0: the sum over seqs */
    /* N of a GEMM (gate's and up's rows together), V of embed and sampling, rows that gather picks, blocks per arena of
     * a copy; rmsnorm: the width of rows that contain its row in their middle, in place. */
    uint32_t n_rows;
    uint32_t n_cols; /* K of a GEMM, H, frequencies of the angles */
    const struct op_moe *moe; /* NULL: an operation without experts; n_rows is N of one expert */
    uint32_t n_parts; /* parts of a weight; 0 counts as 1 */
    uint32_t unit; /* columns per unit of a GEMM that is summed in segments; 0: no segments */
    uint32_t n_q_heads, n_kv_heads, head_dim, block_tokens, window;
    uint32_t sinks; /* attention: positions of attention sinks; rope_kv: not 0: a second q for them */
    bool exact; /* angles: an f64 product */
    uint32_t most_position; /* angles: larger positions count as this one; 0: no limit */
    uint32_t n_fixed; /* RoPE: the last numbers of a head that are not rotated */
    uint32_t n_fill; /* RoPE: the last tokens of the step, which only pad it: their slot is K_NO_SLOT */
    enum op_sampling sampling;
    bool into; /* rmsnorm, embed: adds to the existing values; combine: the shared expert has weights */
    enum k_activation activation;
    enum k_gate_kind gate;
    enum k_pooling pooling; /* how to pool the texts in seqs */
    bool whole; /* attention: tokens read their row up to its end */
    bool extra; /* bias, residual add, head norms, sinks, shared expert; pool: normalized to length 1 */
    float scale; /* scale of the angles, of an embedding or of experts' weights, factor or cap of an activation,
                  * limit of a gate; 0 counts as 1 */
    float softcap; /* attention's softcap; 0: off */
    struct op_seq seqs[OP_MAX_SEQS];
};

extern const struct op_case op_test_cases[];
extern const size_t op_n_test_cases;
extern const struct op_case op_bench_cases[];
extern const size_t op_n_bench_cases;

uint32_t op_n_seqs(const struct op_case *c);
uint32_t op_n_tokens(const struct op_case *c);
bool op_is_gemm(const struct op_case *c); /* whether it has a weight, a bias and a form */
struct k_gate op_gate(const struct op_case *c);
bool op_is_moe_gemm(const struct op_case *c); /* whether it is a GEMM of experts */
uint64_t op_all_rows(const struct op_case *c); /* rows of the matrices of all experts; n_rows of others */
bool op_is_quantized(const struct op_case *c); /* whether its weights are quantized */
struct op_stored op_stored(const struct op_case *c); /* zeros if the case has none */
bool op_has_cache(const struct op_case *c);
bool op_has_byte_cache(const struct op_case *c); /* whether its KV cache has 8 bits and scales */
struct k_format op_format(const struct op_case *c, uint32_t part); /* format of a weight's part, or of the cache */
uint64_t op_cache_row_bytes(const struct op_case *c); /* bytes of one head of one token, with the scale */
uint32_t op_part_rows(const struct op_case *c, uint32_t part); /* rows of a part; parts have different heights */
uint64_t op_weight_bytes(const struct op_case *c); /* including scales and zero points */
bool op_is_fill(const struct op_case *c, uint64_t token);

/* Returns "greedy" and so on; "" if each row chooses. */
const char *op_sampling_name(enum op_sampling sampling);

/* Returns "gemm f16 lane T3 N17 K100 bias": static storage, overwritten by the next call. */
const char *op_name(const struct op_case *c);

#endif
