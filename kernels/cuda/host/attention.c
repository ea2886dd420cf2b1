/* The host side of attention: which form, and the plan. */
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/plan/attention_plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/check.h"

/* The mma form reads an f16 cache; everything else is the lane form, which needs no plan. */
static bool is_mma(struct k_backend *b, const struct k_kv_shape *kv)
{
    return b->form == K_FORM_MMA && kv->format.kind == K_F16;
}

/* Blocks that are on the GPU together: two on each SM, by registers (attention_mma.cu), and one where shared memory has no
 * room for a second. A plan is made for this grid, and so is every recorded launch. */
static uint32_t n_blocks_of(struct k_backend *b, uint32_t head_dim)
{
    const struct cuda_backend *c = cuda_of(b);
    int sm = c->compute_capability;
    uint32_t sm_bytes = sm >= 90 && sm < 120 ? 228 << 10 : sm == 80 || sm == 87 ? 164 << 10 : 100 << 10;
    uint32_t per_sm = 2 * (attention_mma_shared_bytes(head_dim) + 1024) <= sm_bytes ? 2 : 1; /* 1 KB is the driver's */
    uint32_t n = per_sm * c->n_sms;
    return n < ATTN_MAX_BLOCKS ? n : ATTN_MAX_BLOCKS;
}

int cuda_attention_plan(struct k_backend *b, const struct k_attention_plan_args *a, struct quire_error *err)
{
    struct k_attention_args args = {
        .rows = a->rows, .kv = a->kv, .n_rows = a->n_rows, .n_tokens = a->n_tokens, .n_q_heads = a->n_q_heads};
    int status = cuda_eager(b, "attention_plan", err);
    if (status == QUIRE_OK)
        status = k_check_attention(&args, err);
    if (status != QUIRE_OK || !is_mma(b, a->kv))
        return status;
    attn_plan_make(a, n_blocks_of(b, a->kv->head_dim), attn_partial_rows(a->kv->head_dim), a->plan);
    return QUIRE_OK;
}

/* Rows are not looked at: while a graph is recorded there are none yet, and otherwise the plan was made of them. */
int cuda_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err)
{
    struct k_attention_args shape = *a;
    shape.n_rows = 0;
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK)
        status = k_check_attention(&shape, err);
    if (status != QUIRE_OK || a->n_rows == 0 || a->n_tokens == 0)
        return status;
    cudaStream_t stream = cuda_of(b)->stream;
    cudaError_t error = is_mma(b, a->kv) ? launch_attention_mma(stream, a, n_blocks_of(b, a->kv->head_dim))
                                         : launch_attention_lane(stream, a);
    return cuda_check(b, error, "attention", err);
}
