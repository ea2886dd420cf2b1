/* The host side of attention: selects the form, makes the plan, and has the table of the kernels
 * (kernels/kernel_table.h). */
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

/* ---- the table ---- */

/* The `call` of the rows. */
struct attention_call {
    const struct k_attn_row *rows; /* NULL: a recorded step, in which each row will have one token */
    uint32_t n_rows, group, head_dim;
};

static bool takes_all(const struct k_kernel *kernel, const void *call)
{
    (void)kernel, (void)call;
    return true;
}

static bool takes_small_tiles(const struct k_kernel *kernel, const void *of)
{
    const struct attention_call *call = of;
    (void)kernel;
    return attn_is_small(call->rows, call->n_rows, call->group, call->head_dim);
}

static bool takes_large_tiles(const struct k_kernel *kernel, const void *of)
{
    (void)kernel;
    return ((const struct attention_call *)of)->head_dim <= ATTN_MOST_LARGE;
}

typedef cudaError_t attention_launch_fn(struct k_backend *b, const struct k_attention_args *a);

static cudaError_t launch_lane(struct k_backend *b, const struct k_attention_args *a)
{
    return launch_attention_lane(cuda_of(b)->stream, a);
}

static cudaError_t launch_small_tiles(struct k_backend *b, const struct k_attention_args *a)
{
    return launch_attention_mma(cuda_of(b)->stream, a, true, n_blocks_of(b, a->kv->head_dim, true));
}

static cudaError_t launch_large_tiles(struct k_backend *b, const struct k_attention_args *a)
{
    return launch_attention_mma(cuda_of(b)->stream, a, false, n_blocks_of(b, a->kv->head_dim, false));
}

struct attention_kernel {
    struct k_kernel kernel;
    bool is_small; /* query tiles, of the mma form: the plan's grid is that kernel's */
    attention_launch_fn *launch;
};
#define LANE K_FORM_BIT(K_FORM_LANE)
#define MMA K_FORM_BIT(K_FORM_MMA)
static const struct attention_kernel kernels[] = {
    {{"lane", LANE, 80, 0, takes_all, NULL}, false, launch_lane},
    {{"mma of small query tiles", MMA, 80, 0, takes_small_tiles, NULL}, true, launch_small_tiles},
    {{"mma of large query tiles", MMA, 80, 0, takes_large_tiles, NULL}, false, launch_large_tiles},
};
static const struct k_kernel_table table = K_KERNEL_TABLE(kernels);

const struct k_kernel *cuda_attention_kernel_at(uint32_t i)
{
    return k_kernel_at(&table, i);
}

/* The plan and the launch of the same rows get the same kernel. */
static const struct attention_kernel *choose(struct k_backend *b, const struct k_attn_row *rows, uint32_t n_rows,
                                             uint32_t n_q_heads, const struct k_kv_shape *kv, bool whole)
{
    const struct attention_call call = {rows, n_rows, n_q_heads / kv->n_kv_heads, kv->head_dim};
    const enum k_gemm_form form = is_mma(b, kv, whole) ? K_FORM_MMA : K_FORM_LANE;
    uint32_t from = 0;
    return (const void *)k_kernel_choose(&table, &b->choice, form, (uint32_t)cuda_of(b)->compute_capability, &call,
                                         &from);
}

/* ---- the operations ---- */

int cuda_attention_plan(struct k_backend *b, const struct k_attention_plan_args *a, struct quire_error *err)
{
    struct k_attention_args args = {
        .rows = a->rows, .kv = a->kv, .n_rows = a->n_rows, .n_tokens = a->n_tokens, .n_q_heads = a->n_q_heads};
    int status = cuda_eager(b, "attention_plan", err);
    if (status == QUIRE_OK)
        status = k_check_attention(&args, err);
    if (status != QUIRE_OK || !is_mma(b, a->kv, a->whole))
        return status;
    const struct attention_kernel *kernel = choose(b, a->rows, a->n_rows, a->n_q_heads, a->kv, a->whole);
    const uint32_t head_dim = a->kv->head_dim;
    attn_plan_make(a, n_blocks_of(b, head_dim, kernel->is_small), attn_partial_rows(head_dim), a->plan);
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
    const struct k_attn_row *rows = cuda_of(b)->is_recording ? NULL : a->rows;
    const struct attention_kernel *kernel = choose(b, rows, a->n_rows, a->n_q_heads, a->kv, a->whole);
    own.n_rows = a->n_rows;
    own.for_gemm = cuda_leaves_factors(b, a->for_gemm, a->out_dev, a->n_q_heads * a->kv->head_dim);
    return cuda_check(b, kernel->launch(b, &own), "attention", err);
}
