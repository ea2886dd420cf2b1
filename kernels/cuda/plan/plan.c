#include "kernels/cuda/plan/plan.h"

#include "kernels/planners.h"

/* Rows begin on 16 bytes, the size of one lane's read. */
uint64_t cuda_weight_row_stride(struct k_format format, uint32_t n_cols)
{
    return (k_format_bytes(format, n_cols) + 15) / 16 * 16;
}

uint64_t cuda_quant_row_stride(struct k_format format, uint32_t n_cols)
{
    uint32_t bits = k_format_is_integers(format) && format.bits <= 4 ? 4 : 8;
    return (uint64_t)cuda_quant_columns(n_cols) * bits / 8;
}

uint32_t cuda_quant_groups(struct k_format format, uint32_t n_cols)
{
    return format.group ? (n_cols + format.group - 1) / format.group : 1;
}

/* Returns the bytes of rows, groups and, for planes, a column order. */
static uint64_t quant_bytes(struct k_format format, uint32_t n_rows, uint32_t n_cols)
{
    uint64_t row = cuda_quant_row_stride(format, n_cols) + cuda_quant_groups(format, n_cols) * UINT64_C(8);
    return n_rows * row + (format.packing == K_PACKING_PLANES ? n_cols * UINT64_C(4) : 0);
}

/* The driver allocates 2 MiB at a time; smaller allocations share them. */
uint64_t cuda_weight_bytes(struct k_format format, uint32_t n_rows, uint32_t n_cols)
{
    const uint64_t page = UINT64_C(2) << 20;
    uint64_t bytes = k_format_is_plain(format)
                         ? n_rows * cuda_weight_row_stride(format, n_cols) + (format.kind == K_BF16 ? n_rows : 0)
                         : quant_bytes(format, n_rows, n_cols);
    if (bytes > page / 2)
        return (bytes + page - 1) / page * page;
    return (bytes + 255) / 256 * 256;
}

_Static_assert(CUDA_PEER_HEAD_BYTES >= CUDA_PEER_FLAG_BYTES + (CUDA_PEER_BLOCKS + 1) * 4 &&
                   CUDA_PEER_HEAD_BYTES + CUDA_PEER_BLOCKS * UINT64_C(2) * CUDA_PEER_AREA_BYTES <= CUDA_PEER_BYTES,
               "flags, counts and areas");

static void cuda_workspace(const struct k_plan_dims *dims, struct k_plan_bytes *out)
{
    *out = (struct k_plan_bytes){
        .gemm = cuda_gemm_workspace_bytes(dims),
        .attention = cuda_attention_workspace_bytes(dims),
        .attention_plan = cuda_attention_plan_bytes(dims),
        .sample = cuda_sample_workspace_bytes(dims),
        .sample_plan = cuda_sample_plan_bytes(dims),
        .sample_parts = cuda_sample_parts_bytes(dims->n_vocab),
        .group = dims->n_ranks > 1 ? CUDA_PEER_BYTES : 0,
    };
}

/* Our kernels keep gate and up in registers; cuBLASLt's do not. */
static bool cuda_needs_gate_up(const struct k_plan_dims *dims)
{
    return dims->not_invariant;
}

const struct k_planner cuda_planner = {
    .name = "cuda",
    .overlap_depth = 1,
    /* An assumption, to be measured: by the cost model of quire sim, 160 tokens take an H100 as long as one token, and
     * 256 tokens are limited by arithmetic. */
    .micro_batch_tokens = 256,
    .workspace = cuda_workspace,
    .needs_gate_up = cuda_needs_gate_up,
    .weight_bytes = cuda_weight_bytes,
};
