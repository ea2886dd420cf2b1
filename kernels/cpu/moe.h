/* The cpu backend's GEMMs of experts, and their memory. The layout is pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_MOE_H
#define QUIRE_KERNELS_CPU_MOE_H

#include "base/status.h"
#include "kernels/segments.h"

#include <stdint.h>

/* Tokens that are sorted by expert at a time. Of 64 experts, 8 for each token, one then has 32 on average, which fill
 * the tiles of its GEMM. */
#define CPU_MOE_TOKENS 256u
#define CPU_MOE_RUN_BYTES 384u /* at least an expert's GEMM on its way, struct run */

/* Byte offsets in the workspace. n choices at a time, K columns, N rows, E experts. */
struct cpu_moe_layout {
    uint64_t runs; /* [min(E, n)] */
    uint64_t order; /* [n] */
    uint64_t starts; /* [E + 2] */
    uint64_t x; /* [n, K] */
    uint64_t y; /* [n, N] */
    uint64_t gemm; /* of each expert the workspace of its GEMM */
    uint64_t total;
};

/* Floats of the workspace of a GEMM: as kernels/plan.c has them. */
static inline uint64_t cpu_moe_gemm_floats(uint64_t n_tokens, uint32_t n_cols)
{
    return (n_tokens + 15) / 16 * 16 * (((uint64_t)n_cols + 31) / 32 + K_SEGMENTS) * 32;
}

static inline struct cpu_moe_layout cpu_moe_layout(uint32_t n_tokens, uint32_t n_used, uint32_t n_experts,
                                                   uint32_t n_cols, uint32_t n_rows)
{
    const uint64_t n = (uint64_t)(n_tokens < CPU_MOE_TOKENS ? n_tokens : CPU_MOE_TOKENS) * n_used;
    const uint64_t n_runs = n_experts < n ? n_experts : n;
    struct cpu_moe_layout l = {.runs = 0};
    l.order = l.runs + n_runs * CPU_MOE_RUN_BYTES;
    l.starts = l.order + (n * 4 + 63) / 64 * 64;
    l.x = l.starts + ((n_experts + 2) * UINT64_C(4) + 63) / 64 * 64;
    l.y = l.x + (n * n_cols * 4 + 63) / 64 * 64;
    l.gemm = l.y + (n * n_rows * 4 + 63) / 64 * 64;
    l.total = l.gemm + cpu_moe_gemm_floats(n + 15 * n_runs, n_cols) * 4;
    return l;
}

struct k_backend;
struct k_moe_gemm_args;
struct k_moe_gemm_gated_args;
int cpu_moe_gemm(struct k_backend *b, const struct k_moe_gemm_args *a, struct quire_error *err);
int cpu_moe_gemm_gated(struct k_backend *b, const struct k_moe_gemm_gated_args *a, struct quire_error *err);

#endif
