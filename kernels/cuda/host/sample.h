/* The launch of sample.cu. Private to this folder. One thread, the engine's. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_H
#define QUIRE_KERNELS_CUDA_SAMPLE_H

#include "kernels/args/sample.h"
#include "kernels/cuda/host/state.h"
#include "kernels/cuda/plan/sample_plan.h"
#include "kernels/kv.h"

struct sample_launch {
    float *logits_dev; /* [n_rows, n_vocab] */
    uint32_t *sampled_dev;
    struct k_sample_result *results_dev;
    const struct sample_plan_dev *plan_dev;
    struct sample_survey *surveys_dev; /* [SAMPLE_SURVEY_ROWS], at the start of the workspace */
    float *saved_dev; /* after the surveys */
    uint32_t n_rows, n_vocab; /* n_rows is a maximum */
};

#ifdef __cplusplus
extern "C"
#endif
    cudaError_t
    launch_sample(cudaStream_t stream, const struct sample_launch *launch);

#endif
