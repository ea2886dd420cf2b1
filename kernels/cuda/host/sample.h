/* What sample.c packs for sample.cu: a round of rows, in one piece of the workspace.
 *
 *   results[n_rows], rows[n_rows], then the mask words, biases and counts of the rows that have them, then room for the
 *   raw logits that biases and counts change, where logprobs are wanted afterwards.
 *
 * A row's parts are found by offsets in units of 4 bytes from the workspace's beginning. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_H
#define QUIRE_KERNELS_CUDA_SAMPLE_H

#include "kernels/cuda/host/state.h"

struct sample_row_dev {
    uint64_t seed;
    float temperature, top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k; /* 0 = off, or where it keeps everything */
    uint32_t position, choice;
    int32_t n_logprobs;
    int32_t forced; /* -1: drawn */
    uint32_t n_biases, n_counts;
    uint32_t mask, saved; /* offsets; 0: no mask; nothing is restored */
    uint32_t biases, counts; /* offsets */
};

struct sample_round {
    float *logits_dev; /* [n_rows, n_vocab] */
    uint32_t *sampled_dev;
    uint32_t *workspace_dev;
    const struct sample_row_dev *rows_dev; /* in the workspace, which begins with the results */
    uint32_t n_rows, n_vocab;
};

#ifdef __cplusplus
extern "C"
#endif
    cudaError_t
    launch_sample(cudaStream_t stream, const struct sample_round *round);

#endif
