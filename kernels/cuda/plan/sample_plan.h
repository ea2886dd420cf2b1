/* What sample.c makes of a step's rows for sample.cu: a header and the rows; as parts, somewhere behind them, the mask
 * words, biases and counts of the rows that have them. A row's parts are found by offsets in units of 4 bytes from the
 * header, so that a recorded step finds them wherever a step has room for them. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_PLAN_H
#define QUIRE_KERNELS_CUDA_SAMPLE_PLAN_H

#include "kernels/kernels.h"

struct sample_row_dev {
    uint64_t seed;
    float temperature, top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k; /* 0 = off, or where it keeps everything */
    uint32_t position, choice;
    int32_t n_logprobs;
    int32_t forced; /* -1: drawn */
    uint32_t n_biases, n_counts;
    uint32_t mask; /* offsets; 0: no mask */
    uint32_t biases, counts;
    uint32_t saved; /* in the workspace: where raw logits that biases and counts change are kept */
    uint32_t is_saved; /* for logprobs */
};

/* Of so few rows many blocks find, before one samples each: that many of the best keys, and of a row that top_p alone decides
 * the histogram of its weights, the keys of the bucket in which top_p ends and, for each 16th of the row, the weights above. */
#define SAMPLE_SURVEY_ROWS 32u
#define SAMPLE_BESTS 128u
#define SAMPLE_BUCKETS 2048u
#define SAMPLE_LIST 8192u
#define SAMPLE_PARTS 16u

struct sample_survey {
    uint64_t bests[SAMPLE_BESTS], buckets[SAMPLE_BUCKETS], above[SAMPLE_PARTS], list[SAMPLE_LIST];
    uint64_t n_list; /* keys in the list, or those that would be */
};

struct sample_plan_dev { /* the rows follow */
    uint32_t n_rows, reserved[3];
};

#endif
