/* The lane form for many tokens in AVX2, with rows instead of lanes in a register.
 *
 * gemm_lane.c keeps 8 lanes of a sum in a register: each sum ends with shuffles, and weights are widened once per 3
 * tokens. Here a register holds one lane of 8 rows. For each lane separately, 16 rows are multiplied by 6 tokens as in
 * any GEMM, over k = lane, lane + 16 and so on. The result is added to the lanes with which it folds, 8 rows at a time.
 * Each sum still takes the fmas and the additions of docs/internals/numerics.md §4 in their order, so the bits equal
 * those of gemm_lane.c, which computes GEMMs of fewer tokens.
 *
 * The cost is that weights are repacked, 16 rows at a time, into a thread's scratch, which takes as long as 5 tokens.
 * One lane of 16 rows and the sums of a block of tokens stay in the first-level cache, and activations stream in the
 * order in which they are read. The 12 stores that end a lane take about 24 clocks, as much as 4 steps: of 100 GFLOP/s
 * that a Zen 3 core can do, 24 steps per lane reach 82 and 96 steps reach 96 if nothing else limits
 * (docs/benchmarks/lane-rows.txt).
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lane_rows.h"
#include "kernels/cpu/simd/lanes.h"

#define ROWS CPU_LANE_ROWS
#define TOKENS 6u /* 2 x 6 sums, 2 registers of weights and an activation: 15 of 16 */
#define BLOCK_GROUPS 8u
#define BLOCK (BLOCK_GROUPS * TOKENS)
#define LEVELS 4u /* steps of the fold of 16 lanes */

/* The lanes in an order in which their fold walks a tree from left to right. */
static const uint8_t place_of_lane[K_LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

static uint64_t n_steps(const struct k_gemm_args *a)
{
    return ((uint64_t)a->weight->n_cols + K_LANES - 1) / K_LANES;
}

/* The token groups of 5 or 6 tokens are distributed over blocks, both as evenly as possible. */
static uint32_t n_blocks(const struct k_gemm_args *a)
{
    return (a->n_tokens + BLOCK - 1) / BLOCK;
}

static uint32_t n_groups(const struct k_gemm_args *a)
{
    return (a->n_tokens + TOKENS - 1) / TOKENS;
}

static uint32_t group_begin(const struct k_gemm_args *a, uint32_t group)
{
    return (uint32_t)((uint64_t)a->n_tokens * group / n_groups(a));
}

/* Returns groups [first, end) of block b. */
static void block_groups(const struct k_gemm_args *a, uint32_t b, uint32_t *first, uint32_t *end)
{
    *first = (uint32_t)((uint64_t)n_groups(a) * b / n_blocks(a));
    *end = (uint32_t)((uint64_t)n_groups(a) * (b + 1) / n_blocks(a));
}

CPU_INLINE void transpose8(__m256 r[8])
{
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Stores a group's activations of 16 columns, each at its lane's position: T tokens next to each other. */
CPU_INLINE void pack_x_step(const float *const x[TOKENS], float *to, uint64_t stride, const uint32_t T)
{
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; h++) {
        __m256 r[8];
#pragma GCC unroll 8
        for (uint32_t t = 0; t < 8; t++)
            r[t] = t < T ? _mm256_loadu_ps(x[t] + h * 8) : _mm256_setzero_ps();
        transpose8(r);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < 8; j++) {
            float *at = to + place_of_lane[h * 8 + j] * stride;
            const __m128 last = _mm256_extractf128_ps(r[j], 1);
            _mm_storeu_ps(at, _mm256_castps256_ps128(r[j]));
            if (T == TOKENS)
                _mm_storel_pi((__m64 *)(void *)(at + 4), last);
            else
                _mm_store_ss(at + 4, last);
        }
    }
}

CPU_INLINE void pack_x_group(const struct cpu_gemm *g, uint32_t group, const uint32_t T, uint32_t in_block,
                             uint32_t block_tokens, float *block)
{
    const struct k_gemm_args *a = &g->args;
    const uint64_t n_cols = a->weight->n_cols;
    const float *x = a->x_dev + group_begin(a, group) * n_cols;
    for (uint32_t segment = 0; segment < g->n_segments; segment++) {
        const uint64_t begin = g->column[segment], end = g->column[segment + 1];
        const uint64_t steps = (end - begin + K_LANES - 1) / K_LANES;
        float *to = block + begin * block_tokens + in_block * steps;
        for (uint64_t step = 0; step < steps; step++) {
            const uint64_t k = begin + step * K_LANES;
            float last[TOKENS][K_LANES];
            const float *from[TOKENS];
            for (uint32_t t = 0; t < T; t++) {
                from[t] = x + t * n_cols + k;
                if (end - k < K_LANES) {
                    memset(last[t], 0, sizeof last[t]);
                    from[t] = memcpy(last[t], from[t], (end - k) * sizeof *x);
                }
            }
            pack_x_step(from, to + step * T, steps * block_tokens, T);
        }
    }
}

static float *packed_block(const struct k_gemm_args *a, uint32_t first_token)
{
    return (float *)a->workspace_dev + first_token * n_steps(a) * K_LANES;
}

void CPU_NAME(cpu_lane_rows_pack)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *task = context;
    const struct k_gemm_args *a = &task->args;
    uint64_t begin, end;
    k_pool_share(n_groups(a), piece, &begin, &end);
    for (uint32_t b = 0; b < n_blocks(a); b++) {
        uint32_t first, last;
        block_groups(a, b, &first, &last);
        const uint32_t token = group_begin(a, first), n_tokens = group_begin(a, last) - token;
        for (uint32_t i = first; i < last; i++) {
            if (i < begin || i >= end)
                continue;
            const uint32_t at = group_begin(a, i), n = group_begin(a, i + 1) - at;
            if (n == TOKENS)
                pack_x_group(task, i, TOKENS, at - token, n_tokens, packed_block(a, token));
            else
                pack_x_group(task, i, TOKENS - 1, at - token, n_tokens, packed_block(a, token));
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

CPU_INLINE __m256 load8(const unsigned char *row, enum k_dtype dtype, uint64_t k)
{
    if (dtype == K_F16)
        return widen_f16x8((const uint16_t *)(const void *)row + k);
    if (dtype == K_BF16)
        return widen_bf16x8((const uint16_t *)(const void *)row + k);
    return _mm256_loadu_ps((const float *)(const void *)row + k);
}

CPU_INLINE void pack_w_step(const unsigned char *const rows[ROWS], enum k_dtype dtype, uint64_t k, float *to,
                            uint64_t stride)
{
    for (uint32_t h = 0; h < 2; h++)
        for (uint32_t half = 0; half < 2; half++) {
            __m256 r[8];
#pragma GCC unroll 8
            for (uint32_t i = 0; i < 8; i++)
                r[i] = load8(rows[half * 8 + i], dtype, k + h * 8);
            transpose8(r);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < 8; j++)
                _mm256_storeu_ps(to + place_of_lane[h * 8 + j] * stride + half * 8, r[j]);
        }
}

CPU_INLINE void pack_w(const struct cpu_gemm *g, const unsigned char *const rows[ROWS], enum k_dtype dtype,
                       float *row_block)
{
    const uint64_t size = dtype == K_F32 ? 4 : 2;
    for (uint32_t segment = 0; segment < g->n_segments; segment++) {
        const uint64_t begin = g->column[segment], end = g->column[segment + 1], full = end - (end - begin) % K_LANES;
        const uint64_t steps = (end - begin + K_LANES - 1) / K_LANES;
        float *to = row_block + begin * ROWS;
        for (uint64_t k = begin; k < full; k += K_LANES, to += ROWS)
            pack_w_step(rows, dtype, k, to, steps * ROWS);
        if (full < end) {
            unsigned char rest[ROWS][K_LANES * 4] = {{0}};
            const unsigned char *at[ROWS];
            for (uint32_t i = 0; i < ROWS; i++)
                at[i] = memcpy(rest[i], rows[i] + full * size, (end - full) * size);
            pack_w_step(at, dtype, 0, to, steps * ROWS);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Computes lane `place` of a group, and the part of the fold that it completes. */
CPU_INLINE void dot_lane(const float *w, const float *x, uint64_t steps, uint32_t place, float (*levels)[BLOCK * ROWS],
                         uint32_t in_block, float *sums, const uint32_t T)
{
    __m256 s[TOKENS][2];
#pragma GCC unroll 6
    for (uint32_t t = 0; t < T; t++)
        s[t][0] = s[t][1] = _mm256_setzero_ps();
    for (uint64_t step = 0; step < steps; step++, w += ROWS, x += T) {
        const __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + 8);
#pragma GCC unroll 6
        for (uint32_t t = 0; t < T; t++) {
            const __m256 v = _mm256_broadcast_ss(x + t);
            s[t][0] = _mm256_fmadd_ps(low, v, s[t][0]);
            s[t][1] = _mm256_fmadd_ps(high, v, s[t][1]);
        }
    }
    uint32_t level = 0;
    for (; place >> level & 1; level++) {
        const float *before = levels[level] + in_block * ROWS;
#pragma GCC unroll 6
        for (uint32_t t = 0; t < T; t++) {
            s[t][0] = _mm256_add_ps(_mm256_loadu_ps(before + t * ROWS), s[t][0]);
            s[t][1] = _mm256_add_ps(_mm256_loadu_ps(before + t * ROWS + 8), s[t][1]);
        }
    }
    float *to = (level < LEVELS ? levels[level] : sums) + in_block * ROWS;
#pragma GCC unroll 6
    for (uint32_t t = 0; t < T; t++) {
        _mm256_storeu_ps(to + t * ROWS, s[t][0]);
        _mm256_storeu_ps(to + t * ROWS + 8, s[t][1]);
    }
}

/* Adds the segments' sums of 8 rows of a token, as cpu_sum_segments() does. */
CPU_INLINE __m256 sum_segments8(const float *s)
{
    __m256 v[K_SEGMENTS];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < K_SEGMENTS; i++)
        v[i] = _mm256_loadu_ps(s + i * BLOCK * ROWS);
    return _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3])),
                         _mm256_add_ps(_mm256_add_ps(v[4], v[5]), _mm256_add_ps(v[6], v[7])));
}

/* Does the work of cpu_put_sums() for all ROWS rows. */
static void put_rows(const struct cpu_gemm *g, const struct host_part *part, uint32_t row, uint32_t first,
                     uint32_t last, const float *sums)
{
    const struct k_gemm_args *a = &g->args;
    const uint64_t to = (uint64_t)part->first_row + row;
    for (uint32_t t = first; t < last; t++, sums += ROWS)
#pragma GCC unroll 2
        for (uint32_t h = 0; h < ROWS; h += 8) {
            __m256 s = g->n_segments > 1 ? sum_segments8(sums + h) : _mm256_loadu_ps(sums + h);
            if (a->bias_dev)
                s = _mm256_add_ps(s, _mm256_loadu_ps(a->bias_dev + to + h));
            _mm256_storeu_ps(a->y_dev + t * (uint64_t)a->weight->n_rows + to + h, s);
        }
}

/* Computes a lane of all groups of a block. `sizes` are their numbers of tokens. */
static void dot_groups(const float *w, const float *x, uint64_t steps, uint32_t place, const uint8_t *sizes,
                       uint32_t n_groups, float (*levels)[BLOCK * ROWS], float *sums)
{
    for (uint32_t i = 0, at = 0; i < n_groups; i++) {
        const uint32_t n = sizes[i];
        if (n == TOKENS)
            dot_lane(w, x, steps, place, levels, at, sums, TOKENS);
        else
            dot_lane(w, x, steps, place, levels, at, sums, TOKENS - 1);
        x += n * steps;
        at += n;
    }
}

/* Prefetches columns [begin, end) of a row, so that the next rows come from the second-level cache: 1536 rows of 384
 * floats with 128 tokens, 72 GFLOP/s with it and 66 without. */
CPU_INLINE void prefetch_row(const struct host_part *part, uint32_t row, uint64_t begin, uint64_t end)
{
    const uint64_t size = part->view.format.kind == K_F32 ? 4 : 2;
    const char *at = (const char *)host_row(part, row);
    for (uint64_t i = begin * size; i < end * size; i += 64)
        _mm_prefetch(at + i, _MM_HINT_T1);
}

/* Computes repacked rows for a block of tokens. The first block prefetches the next n_next rows. */
static void dot_block(const struct cpu_gemm *g, const struct host_part *part, uint32_t row, uint32_t n_rows,
                      const float *row_block, uint32_t b, uint32_t n_next)
{
    const struct k_gemm_args *a = &g->args;
    uint32_t first, last;
    uint8_t sizes[BLOCK_GROUPS];
    block_groups(a, b, &first, &last);
    const uint32_t token = group_begin(a, first), end = group_begin(a, last), n_tokens = end - token;
    for (uint32_t i = first; i < last; i++)
        sizes[i - first] = (uint8_t)(group_begin(a, i + 1) - group_begin(a, i));
    _Alignas(64) float levels[LEVELS][BLOCK * ROWS], sums[K_SEGMENTS * BLOCK * ROWS];
    for (uint32_t segment = 0; segment < g->n_segments; segment++) {
        const uint64_t begin = g->column[segment];
        const uint64_t steps = (g->column[segment + 1] - begin + K_LANES - 1) / K_LANES;
        const float *w = row_block + begin * ROWS, *x = packed_block(a, token) + begin * n_tokens;
        float *to = sums + segment * BLOCK * ROWS;
        for (uint32_t i = 0; steps == 0 && i < n_tokens * ROWS; i++)
            to[i] = CPU_NO_TERM;
        for (uint32_t place = 0; steps > 0 && place < K_LANES; place++) {
            if (b == 0 && place < n_next)
                prefetch_row(part, row + ROWS + place, begin, g->column[segment + 1]);
            dot_groups(w + place * steps * ROWS, x + place * steps * n_tokens, steps, place, sizes, last - first,
                       levels, to);
        }
    }
    if (n_rows == ROWS)
        put_rows(g, part, row, token, end, sums);
    else
        cpu_put_sums(g, part, row, n_rows, token, end, sums, BLOCK, ROWS);
}

/* Computes rows [row, row_end) of a part, at most ROWS, for all tokens. If there are fewer rows, the first row fills
 * the others. */
static void compute_row_block(const struct cpu_gemm *g, const struct host_part *part, uint32_t row, uint32_t row_end,
                              float *row_block)
{
    const uint32_t left = row_end - row, n_rows = left < ROWS ? left : ROWS;
    const unsigned char *rows[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = host_row(part, row + (i < n_rows ? i : 0));
    if (part->view.format.kind == K_F16)
        pack_w(g, rows, K_F16, row_block);
    else if (part->view.format.kind == K_BF16)
        pack_w(g, rows, K_BF16, row_block);
    else
        pack_w(g, rows, K_F32, row_block);
    for (uint32_t b = 0; b < n_blocks(&g->args); b++)
        dot_block(g, part, row, n_rows, row_block, b, left - n_rows);
}

void CPU_NAME(cpu_gemm_lane_rows)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *task = context;
    const struct k_gemm_args *a = &task->args;
    const struct k_weight *w = a->weight;
    float *row_block = packed_block(a, a->n_tokens) + piece.thread * cpu_lane_rows_floats(w->n_cols);
    uint32_t begin, end;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        const struct host_part *part = &w->parts[p];
        if (!k_format_is_plain(part->view.format) || !host_part_share(w, part, ROWS, piece, &begin, &end))
            continue;
        for (uint32_t row = begin; row < end; row += ROWS)
            compute_row_block(task, part, row, end, row_block);
    }
}
