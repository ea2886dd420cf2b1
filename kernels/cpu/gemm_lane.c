/* The lane form: y[t, r] = lane sum over k of w[r, k] · x[t, k] (docs/numerics.md §5).
 *
 * Weights are read in place, once per call. A thread's rows are cut into R runs of neighbouring
 * rows and a panel takes one row of each: R long streams from memory, where R adjacent short rows
 * would stop the prefetchers at every end of row.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lanes.h"

#if defined(__AVX512F__)
#define TOKENS 6u /* 4 x 6 sums, 4 weights and an activation: 29 of 32 registers */
#define ROWS 4u
#define ROWS_1 8u /* rows at once for one token */
#else
#define TOKENS 3u /* 2 x 3 sums of two registers each */
#define ROWS 2u
#define ROWS_1 4u
#endif

CPU_INLINE lanes load_weights(const unsigned char *row, enum k_dtype dtype, uint64_t k)
{
    if (dtype == K_F16)
        return lanes_load_f16((const uint16_t *)(const void *)row + k);
    if (dtype == K_BF16)
        return lanes_load_bf16((const uint16_t *)(const void *)row + k);
    return lanes_load_f32((const float *)(const void *)row + k);
}

CPU_INLINE lanes load_last_weights(const unsigned char *row, enum k_dtype dtype, uint64_t k, uint32_t n)
{
    float group[K_LANES] = {0};
    size_t size = dtype == K_F32 ? 4 : 2;
    memcpy(group, row + k * size, n * size);
    return load_weights((const unsigned char *)group, dtype, 0);
}

struct panel { /* R rows of a part, one of each run, and where their sums go */
    const unsigned char *rows[ROWS_1];
    uint32_t out[ROWS_1]; /* row of y */
};

/* R rows against T tokens. x's rows are n_cols apart. */
CPU_INLINE void dot(const struct k_gemm_args *a, const struct panel *panel, enum k_dtype dtype,
                    const float *x, float *y, const uint32_t R, const uint32_t T)
{
    const uint64_t n_cols = a->weight->n_cols, n_rows = a->weight->n_rows;
    lanes s[ROWS_1][TOKENS];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < R; i++)
#pragma GCC unroll 8
        for (uint32_t t = 0; t < T; t++)
            s[i][t] = lanes_zero();
    uint64_t full = n_cols - n_cols % K_LANES;
    for (uint64_t k = 0; k < full; k += K_LANES) {
        lanes w[ROWS_1];
#pragma GCC unroll 8
        for (uint32_t i = 0; i < R; i++)
            w[i] = load_weights(panel->rows[i], dtype, k);
#pragma GCC unroll 8
        for (uint32_t t = 0; t < T; t++) {
            lanes v = lanes_load_f32(x + t * n_cols + k);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < R; i++)
                s[i][t] = lanes_fma(w[i], v, s[i][t]);
        }
    }
    if (full < n_cols) {
        uint32_t rest = (uint32_t)(n_cols - full);
        for (uint32_t i = 0; i < R; i++) {
            lanes w = load_last_weights(panel->rows[i], dtype, full, rest);
            for (uint32_t t = 0; t < T; t++)
                s[i][t] = lanes_fma(w, lanes_load_last_f32(x + t * n_cols + full, rest), s[i][t]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t t = 0; t < T; t++) {
        float sums[ROWS_1];
#pragma GCC unroll 2
        for (uint32_t i = 0; i < R; i += 4) {
            lanes z = lanes_zero();
            _mm_storeu_ps(sums + i, lanes_fold4(s[i][t], i + 1 < R ? s[i + 1][t] : z, i + 2 < R ? s[i + 2][t] : z,
                                                i + 3 < R ? s[i + 3][t] : z));
        }
#pragma GCC unroll 8
        for (uint32_t i = 0; i < R; i++) {
            uint32_t r = panel->out[i];
            y[t * n_rows + r] = a->bias_dev ? sums[i] + a->bias_dev[r] : sums[i];
        }
    }
}

CPU_INLINE void panel_tokens(const struct k_gemm_args *a, const struct panel *panel, enum k_dtype dtype)
{
    const uint64_t n_cols = a->weight->n_cols, n_rows = a->weight->n_rows;
    uint32_t t = 0;
    for (; t + TOKENS <= a->n_tokens; t += TOKENS)
        dot(a, panel, dtype, a->x_dev + t * n_cols, a->y_dev + t * n_rows, ROWS, TOKENS);
    const float *x = a->x_dev + t * n_cols;
    float *y = a->y_dev + t * n_rows;
    switch (a->n_tokens - t) {
    case 1: dot(a, panel, dtype, x, y, ROWS, 1); break;
    case 2: dot(a, panel, dtype, x, y, ROWS, 2); break;
#if defined(__AVX512F__)
    case 3: dot(a, panel, dtype, x, y, ROWS, 3); break;
    case 4: dot(a, panel, dtype, x, y, ROWS, 4); break;
    case 5: dot(a, panel, dtype, x, y, ROWS, 5); break;
#endif
    default: break;
    }
}

/* Rows [begin, end) of a part, in panels of R rows that lie a run apart. */
CPU_INLINE void part_rows(const struct k_gemm_args *a, const struct host_part *part, enum k_dtype dtype,
                          uint32_t begin, uint32_t end, const uint32_t R)
{
    uint32_t run = (end - begin) / R;
    for (uint32_t i = 0; i < run; i++) {
        struct panel panel;
        for (uint32_t j = 0; j < R; j++) {
            uint32_t row = begin + j * run + i;
            panel.rows[j] = part->data + row * part->row_stride_bytes;
            panel.out[j] = part->first_row + row;
        }
        if (R == ROWS_1)
            dot(a, &panel, dtype, a->x_dev, a->y_dev, ROWS_1, 1);
        else
            panel_tokens(a, &panel, dtype);
    }
    for (uint32_t row = begin + R * run; row < end; row++) {
        struct panel panel = {{part->data + row * part->row_stride_bytes}, {part->first_row + row}};
        for (uint32_t t = 0; t < a->n_tokens; t++)
            dot(a, &panel, dtype, a->x_dev + t * (uint64_t)a->weight->n_cols, a->y_dev + t * (uint64_t)a->weight->n_rows, 1, 1);
    }
}

static void part_f16(const struct k_gemm_args *a, const struct host_part *part, uint32_t begin, uint32_t end)
{
    if (a->n_tokens == 1) part_rows(a, part, K_F16, begin, end, ROWS_1);
    else part_rows(a, part, K_F16, begin, end, ROWS);
}
static void part_bf16(const struct k_gemm_args *a, const struct host_part *part, uint32_t begin, uint32_t end)
{
    if (a->n_tokens == 1) part_rows(a, part, K_BF16, begin, end, ROWS_1);
    else part_rows(a, part, K_BF16, begin, end, ROWS);
}
static void part_f32(const struct k_gemm_args *a, const struct host_part *part, uint32_t begin, uint32_t end)
{
    if (a->n_tokens == 1) part_rows(a, part, K_F32, begin, end, ROWS_1);
    else part_rows(a, part, K_F32, begin, end, ROWS);
}

void CPU_NAME(cpu_gemm_lane)(void *context, uint32_t thread, uint32_t n_threads)
{
    const struct cpu_gemm *task = context;
    const struct k_gemm_args *a = &task->args;
    const struct k_weight *w = a->weight;
    uint64_t begin, end;
    k_pool_share(w->n_rows, thread, n_threads, &begin, &end);
    for (uint32_t p = 0; p < w->n_parts; p++) {
        const struct host_part *part = &w->parts[p];
        uint64_t part_end = (uint64_t)part->first_row + part->n_rows;
        uint64_t from = begin > part->first_row ? begin : part->first_row;
        uint64_t to = end < part_end ? end : part_end;
        if (from >= to)
            continue;
        uint32_t row_begin = (uint32_t)(from - part->first_row);
        uint32_t row_end = (uint32_t)(to - part->first_row);
        if (part->dtype == K_F16) part_f16(a, part, row_begin, row_end);
        else if (part->dtype == K_BF16) part_bf16(a, part, row_begin, row_end);
        else part_f32(a, part, row_begin, row_end);
    }
}
