/* The data that sample.c prepares from a step's rows for sample.cu: a header and the rows, followed at some offset by
 * the parts: the mask words, biases and counts of rows that have them. Offsets in units of 4 bytes from the header
 * locate a row's parts, so a recorded step finds them at any position. Pure data; no owner. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_PLAN_H
#define QUIRE_KERNELS_CUDA_SAMPLE_PLAN_H

struct sample_row_dev {
    uint64_t seed;
    float temperature, top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k; /* 0 = off; also 0 if it would keep every token */
    uint32_t position, choice;
    int32_t n_logprobs;
    int32_t forced; /* -1: draw a token */
    uint32_t n_biases, n_counts;
    uint32_t mask; /* offsets; 0: no mask */
    uint32_t biases, counts;
    uint32_t saved; /* offset in the workspace of the raw logits that biases and counts change */
    uint32_t is_saved; /* raw logits are saved, for logprobs */
};

/* For up to this many rows, many blocks first collect data before one block samples each row: this many of the best
 * keys and, for a row that only top_p limits, the histogram of its weights, the keys of the bucket in which top_p ends
 * and, for each 16th of the row, the weights above it. */
#define SAMPLE_SURVEY_ROWS 32u
#define SAMPLE_BESTS 128u
#define SAMPLE_BUCKETS 2048u
#define SAMPLE_LIST 8192u
#define SAMPLE_PARTS 16u

struct sample_survey {
    uint64_t bests[SAMPLE_BESTS], buckets[SAMPLE_BUCKETS], above[SAMPLE_PARTS], list[SAMPLE_LIST];
    uint64_t n_list; /* number of keys for the list, including those that did not fit */
};

struct sample_plan_dev { /* the rows follow */
    uint32_t n_rows, reserved[3];
};

#endif
