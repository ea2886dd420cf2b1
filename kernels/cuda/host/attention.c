/* The host side of attention: selects the form and makes the plan. */
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/plan/attention_plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/check.h"

/* The mma form needs an f16 cache and reads no later positions. Everything else uses the lane form, which needs no
 * plan. An 8-bit cache is read as f32(u) · scale, which is not an f16 number; the specification requires the same
 * reading in every form. */
static bool is_mma(struct k_backend *b, const struct k_kv_shape *kv, bool whole)
{
    return b->form == K_FORM_MMA && kv->format.kind == K_F16 && !whole;
}

/* Returns the number of thread blocks that are on the GPU together. By registers these are two per SM of the kernel
 * with large query tiles and three of the other, and fewer if shared memory limits them. Every plan and every recorded
 * launch uses this grid. */
static uint32_t n_blocks_of(struct k_backend *b, uint32_t head_dim, bool is_small)
{
    const struct cuda_backend *c = cuda_of(b);
    int sm = c->compute_capability;
    uint32_t sm_bytes = sm >= 90 && sm < 120 ? 228 << 10 : sm == 80 || sm == 87 ? 164 << 10 : 100 << 10;
    uint32_t of_registers = is_small ? ATTN_SMALL_PER_SM(head_dim) : 2;
    uint32_t of_memory = sm_bytes / (attention_mma_shared_bytes(head_dim, is_small) + 1024); /* 1 KB is the driver's */
    uint32_t n = (of_memory < of_registers ? of_memory : of_registers) * c->n_sms;
    return n < ATTN_MAX_BLOCKS ? n : ATTN_MAX_BLOCKS;
}

int cuda_attention_plan(struct k_backend *b, const struct k_attention_plan_args *a, struct quire_error *err)
{
    struct k_attention_args args = {
        .rows = a->rows, .kv = a->kv, .n_rows = a->n_rows, .n_tokens = a->n_tokens, .n_q_heads = a->n_q_heads};
    int status = cuda_eager(b, "attention_plan", err);
    if (status == QUIRE_OK)
        status = k_check_attention(&args, err);
    if (status != QUIRE_OK || !is_mma(b, a->kv, a->whole))
        return status;
    uint32_t head_dim = a->kv->head_dim;
    bool is_small = attn_is_small(a->rows, a->n_rows, a->n_q_heads / a->kv->n_kv_heads, head_dim);
    attn_plan_make(a, n_blocks_of(b, head_dim, is_small), attn_partial_rows(head_dim), a->plan);
    return QUIRE_OK;
}

/* While a graph is recorded there are no rows yet; it will run steps in which each row has one token. */
int cuda_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err)
{
    struct k_attention_args own = *a;
    own.n_rows = 0;
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK)
        status = k_check_attention(&own, err);
    if (status != QUIRE_OK || a->n_rows == 0 || a->n_tokens == 0)
        return status;
    struct cuda_backend *c = cuda_of(b);
    uint32_t head_dim = a->kv->head_dim, group = a->n_q_heads / a->kv->n_kv_heads;
    bool is_small = attn_is_small(c->is_recording ? NULL : a->rows, a->n_rows, group, head_dim);
    own.n_rows = a->n_rows;
    own.for_gemm = cuda_leaves_factors(b, a->for_gemm, a->out_dev, a->n_q_heads * head_dim);
    cudaError_t error = is_mma(b, a->kv, a->whole)
                            ? launch_attention_mma(c->stream, &own, is_small, n_blocks_of(b, head_dim, is_small))
                            : launch_attention_lane(c->stream, &own);
    return cuda_check(b, error, "attention", err);
}
