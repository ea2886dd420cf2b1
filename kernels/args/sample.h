/* The arguments of sampling and of its plan. The rules of all operations (threads, order, memory, errors) are in
 * kernels/backend.h.
 *
 * Shapes: row-major, last index fastest. V = vocabulary. Logits are f32; probabilities are 0 to 1 and logprobs natural
 * logarithms. */
#ifndef QUIRE_KERNELS_ARGS_SAMPLE_H
#define QUIRE_KERNELS_ARGS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#define K_MAX_LOGPROBS 20

/* How often a token occurs in a sequence, for penalties. Ids are ascending and unique. */
struct k_token_count {
    uint32_t id;
    uint32_t n_output; /* among generated tokens */
};
struct k_logit_bias {
    uint32_t id;
    float bias; /* -INFINITY forbids the token */
};

/* How to sample from one row of logits. */
struct k_sample_row {
    float temperature; /* < 1e-5: greedy */
    float top_p; /* (0, 1]; 1 = off */
    float min_p; /* [0, 1]; 0 = off */
    uint32_t top_k; /* 0 = off */
    float repetition_penalty; /* 1 = off; over prompt and output tokens */
    float presence_penalty; /* 0 = off; over output tokens */
    float frequency_penalty; /* 0 = off; over output tokens */
    const struct k_token_count *counts; /* required when a penalty is on */
    uint32_t n_counts;
    const struct k_logit_bias *biases; /* added first; each id at most once */
    uint32_t n_biases;
    const uint32_t *mask; /* NULL, or one bit per token; a set bit allows the token */
    uint64_t seed; /* the draw depends only on (seed, position, choice) */
    uint32_t position; /* the position of the token to draw */
    uint32_t choice;
    int32_t n_logprobs; /* -1: off; 0: the chosen token's; 1..20: also this many of the best */
    int64_t forced; /* -1, or the token to report instead of drawing one (prompt logprobs) */
};

struct k_sample_result {
    uint32_t token;
    uint32_t rank; /* 1 = the best raw logit; only when n_logprobs >= 0 */
    float logprob; /* log softmax of the raw logits at token; only when n_logprobs >= 0 */
    uint32_t n_top; /* min(n_logprobs, V) */
    bool bad_logits; /* a raw logit was NaN or +inf, or no token is allowed; token is then meaningless */
    uint32_t top_ids[K_MAX_LOGPROBS]; /* best first; ties: lower id first */
    float top_logprobs[K_MAX_LOGPROBS];
};

/* Prepares the data of a step's rows for a device: the numbers, and as parts the masks, biases and counts. Made on the
 * host and copied to the device with the rest of the step's input. Host backends read the rows directly and write
 * nothing. If the parts of many rows do not fit, only the first rows are planned; the caller plans the others after
 * these are sampled. */
struct k_sample_plan_args {
    const struct k_sample_row *rows; /* [n_rows] HOST memory, read before the call returns; QUIRE_INVALID names a
                                      * wrong value */
    void *plan; /* HOST memory, 16-byte aligned, k_plan_bytes.sample_plan for this many rows */
    void *parts; /* HOST memory, 16-byte aligned, after the plan, k_plan_bytes.sample_parts */
    uint32_t n_rows, n_vocab;
    uint32_t *n_planned; /* number of planned rows */
    uint64_t *parts_bytes; /* number of bytes written to parts */
};

struct k_sample_args {
    float *logits_dev; /* [n_rows, V]: destroyed */
    /* [n_rows] HOST memory, the planned rows. Not read between graph_begin and graph_end; there n_rows is an upper
     * bound and the plan holds the number of rows. */
    const struct k_sample_row *rows;
    const void *plan_dev; /* a copy of their plan, followed by a copy of its parts at the same offset as on the host */
    struct k_sample_result *results_dev; /* [n_rows] */
    uint32_t *sampled_dev; /* [n_rows]: the results' tokens, for place_tokens() */
    void *workspace_dev; /* k_plan_bytes.sample */
    uint32_t n_rows, n_vocab;
};

#endif
