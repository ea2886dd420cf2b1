/* The memory that sampling takes. A step's rows are packed into it in as many rounds as that needs, so it does not grow
 * with their number; but any one row must fit. */
#include "kernels/cuda/plan/plan.h"

/* 256 requests with a mask of 152,064 tokens and 1,000 penalised ids each are 7.0 MB. */
#define ROUND_BYTES (UINT64_C(8) << 20)
/* For each token a bias, a count, and the two saved logits of these; a bit of mask; the row and its result. */
#define BYTES_PER_TOKEN 24u
#define BYTES_PER_ROW 1024u

uint64_t cuda_sample_round_bytes(uint32_t n_vocab)
{
    uint64_t row = (uint64_t)n_vocab * BYTES_PER_TOKEN + n_vocab / 8 + BYTES_PER_ROW;
    row = (row + 255) / 256 * 256;
    return row > ROUND_BYTES ? row : ROUND_BYTES;
}

uint64_t cuda_sample_workspace_bytes(const struct k_plan_dims *dims)
{
    return cuda_sample_round_bytes(dims->n_vocab);
}
