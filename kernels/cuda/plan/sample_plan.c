/* The memory that sampling takes. What rows bring beside their numbers has a bound that does not grow with their number;
 * but that of any one row must fit. */
#include "kernels/cuda/plan/plan.h"

#include "kernels/cuda/plan/sample_plan.h"

/* 256 requests with a mask of 152,064 tokens and 1,000 penalised ids each are 7.0 MB. */
#define PARTS_BYTES (UINT64_C(8) << 20)
/* For each token a bias and a count; a bit of mask, in whole 8 bytes. */
#define BYTES_PER_TOKEN 16u

uint64_t cuda_sample_plan_bytes(const struct k_plan_dims *dims)
{
    return sizeof(struct sample_plan_dev) + (uint64_t)dims->n_logits * sizeof(struct sample_row_dev);
}

uint64_t cuda_sample_parts_bytes(uint32_t n_vocab)
{
    uint64_t row = (uint64_t)n_vocab * BYTES_PER_TOKEN + ((uint64_t)n_vocab + 63) / 64 * 8;
    row = (row + 255) / 256 * 256;
    return row > PARTS_BYTES ? row : PARTS_BYTES;
}

/* The surveys of few rows; a saved logit for each bias and count, of 8 bytes each. A row's are an even number. */
uint64_t cuda_sample_workspace_bytes(const struct k_plan_dims *dims)
{
    return SAMPLE_SURVEY_ROWS * sizeof(struct sample_survey) + cuda_sample_parts_bytes(dims->n_vocab) / 2 +
           (uint64_t)dims->n_logits * sizeof(float);
}
