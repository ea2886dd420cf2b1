/* The memory of sampling. The size of the rows' parts has a limit that does not depend on the number of rows, but the
 * parts of any single row must fit. */
#include "kernels/cuda/plan/plan.h"

#include "kernels/cuda/plan/sample_plan.h"

/* 256 requests with a mask of 152,064 tokens and 1,000 penalized ids each take 7.0 MB. */
#define PARTS_BYTES (UINT64_C(8) << 20)
/* A bias and a count per token, and a bit of mask, in whole 8 bytes. */
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

/* The surveys of a few rows, and a saved logit for each bias and count, 8 bytes each. A row has an even number of
 * them. */
uint64_t cuda_sample_workspace_bytes(const struct k_plan_dims *dims)
{
    return SAMPLE_SURVEY_ROWS * sizeof(struct sample_survey) + cuda_sample_parts_bytes(dims->n_vocab) / 2 +
           (uint64_t)dims->n_logits * sizeof(float);
}
