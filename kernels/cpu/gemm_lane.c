/* The lane form: y[t, r] = lane sum over k of w[r, k] · x[t, k] (docs/internals/numerics.md §5).
 *
 * A block of 4 rows is multiplied by T tokens at a time: 4 x T lane sums stay in registers, so a weight that has been
 * read and widened serves T tokens, and an activation serves 4 rows. Weights are read in place, once from memory per
 * block of tokens: all these tokens use the rows while they are in the caches.
 *
 * A thread's rows are divided into 4 runs, and a block has one row from each run. So memory sees 4 long streams; 4
 * short adjacent rows would end before the prefetchers adapt. Measured on two Zen 4 cores, f16, one token, relative to
 * a plain reader of 8 streams in the same run: 4 runs 1.04-1.13, 8 runs 0.88-0.93, 2 runs 1.00-1.05. If rows are 9.7 KB
 * long, the activations do not fit next to the streams, and 4 runs get 0.80 without prefetching and 1.02 with it. With
 * many tokens: 207-217 GFLOP/s with AVX-512 and 176-210 with AVX2, of about 237 that two cores can do.
 *
 * A segment ends with the fold of its 4 x T sums, 8 at a time, in registers: 4.6 instructions of 8 lanes per sum, in
 * addition to 2 K / 128 for the products (14 at K = 896). Storing the lanes first made a GEMM 1 to 2 % slower, and
 * folds of 16 registers gain nothing if 512 bits execute as two 256-bit halves (docs/benchmarks/segments.md).
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/simd/lanes.h"

#define ROWS 4u
#if defined(__AVX512F__)
#define TOKENS 6u /* 4 x 6 sums, 6 activations and a weight: 31 of 32 registers */
typedef __m512 vec;
#define VECS 1u /* registers for 16 lanes */
#else
#define TOKENS 3u /* 4 x 3 sums of 8 lanes, 3 activations and a weight: 16 of 16 */
typedef __m256 vec;
#define VECS 2u
#endif
#define VEC (K_LANES / VECS)
/* Prefetch distance in each stream, in bytes: into the first-level cache, and for 2 to 5 tokens also one page ahead
 * into the second level, because hardware prefetchers stop at the end of a page. Two cores, f16, 4 tokens: 137-182
 * GFLOP/s with both, 103-144 with the near one alone. For one token the far one gains nothing, and for 6 tokens, where
 * arithmetic is the limit, it costs up to 18 %. */
#define PREFETCH_NEAR 512u
#define PREFETCH_FAR 4096u
#define X_BLOCK_BYTES (384u << 10) /* activations that fit the second-level cache */

#if defined(__AVX512F__)
CPU_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
CPU_INLINE void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}
CPU_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
CPU_INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}
/* The first step of a fold, 8 apart: of all lanes, or of lanes 8..15 after lanes 0..7 in `before`. */
CPU_INLINE __m256 vec_halve(vec v, __m256 before, uint32_t h)
{
    (void)before, (void)h;
    return lanes_halve(v);
}
CPU_INLINE vec widen_f16(const uint16_t *p)
{
    return lanes_load_f16(p);
}
CPU_INLINE vec widen_bf16(const uint16_t *p)
{
    return lanes_load_bf16(p);
}
#else
CPU_INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
CPU_INLINE void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}
CPU_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
CPU_INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}
CPU_INLINE __m256 vec_halve(vec v, __m256 before, uint32_t h)
{
    return h == 0 ? v : _mm256_add_ps(before, v);
}
CPU_INLINE vec widen_f16(const uint16_t *p)
{
    return widen_f16x8(p);
}
CPU_INLINE vec widen_bf16(const uint16_t *p)
{
    return widen_bf16x8(p);
}
#endif

CPU_INLINE vec load_vec(const unsigned char *row, enum k_dtype dtype, uint64_t k)
{
    if (dtype == K_F16)
        return widen_f16((const uint16_t *)(const void *)row + k);
    if (dtype == K_BF16)
        return widen_bf16((const uint16_t *)(const void *)row + k);
    return vec_load((const float *)(const void *)row + k);
}

CPU_INLINE lanes load_lanes(const unsigned char *row, enum k_dtype dtype, uint64_t k)
{
    if (dtype == K_F16)
        return lanes_load_f16((const uint16_t *)(const void *)row + k);
    if (dtype == K_BF16)
        return lanes_load_bf16((const uint16_t *)(const void *)row + k);
    return lanes_load_f32((const float *)(const void *)row + k);
}

struct row_block { /* R rows of a part, one from each run, and their rows of y */
    const unsigned char *rows[ROWS];
    uint32_t out[ROWS];
};

/* The last columns of a segment, fewer than 16, padded with zeros. */
struct rest {
    unsigned char w[ROWS][K_LANES * 4];
};

CPU_INLINE void fill_rest(struct rest *rest, const struct row_block *row_block, enum k_dtype dtype, uint64_t begin,
                          uint64_t end, const uint32_t R)
{
    const uint64_t size = dtype == K_F32 ? 4 : 2;
    memset(rest, 0, sizeof *rest);
    for (uint32_t i = 0; i < R; i++)
        memcpy(rest->w[i], row_block->rows[i] + begin * size, (end - begin) * size);
}

CPU_INLINE void prefetch_rows(const struct row_block *row_block, uint64_t offset, bool far, const uint32_t R)
{
#pragma GCC unroll 4
    for (uint32_t i = 0; i < R; i++) {
        const char *at = (const char *)row_block->rows[i] + offset;
        if (far)
            _mm_prefetch(at + PREFETCH_FAR, _MM_HINT_T1);
        _mm_prefetch(at + PREFETCH_NEAR, _MM_HINT_T0);
    }
}

/* Adds the segments' sums, R rows per token, and stores them. */
CPU_INLINE void put(const struct cpu_gemm *g, const struct row_block *row_block, uint32_t token, float *sums,
                    const uint32_t T, const uint32_t R)
{
    const struct k_gemm_args *a = &g->args;
    if (g->n_segments > 1)
        cpu_sum_segments(sums, T * ROWS, T * ROWS);
#pragma GCC unroll 6
    for (uint32_t t = 0; t < T; t++) {
        float *y = a->y_dev + (token + t) * (uint64_t)a->weight->n_rows;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < R; i++) {
            uint32_t r = row_block->out[i];
            y[r] = a->bias_dev ? sums[t * ROWS + i] + a->bias_dev[r] : sums[t * ROWS + i];
        }
    }
}

/* ---- one token ------------------------------------------------------------------------------- */

CPU_INLINE void add_group_1(lanes s[ROWS], const unsigned char *const *rows, enum k_dtype dtype, uint64_t k,
                            const float *x, const uint32_t R)
{
    lanes v = lanes_load_f32(x);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < R; i++)
        s[i] = lanes_fma(load_lanes(rows[i], dtype, k), v, s[i]);
}

CPU_INLINE void dot_1(const struct cpu_gemm *g, const struct row_block *row_block, enum k_dtype dtype, uint32_t token,
                      const uint32_t R)
{
    const float *x = g->args.x_dev + token * (uint64_t)g->args.weight->n_cols;
    __m256 halves[K_SEGMENTS * ROWS];
    float folded[K_SEGMENTS * ROWS];
    for (uint32_t segment = 0; segment < g->n_segments; segment++) {
        const uint64_t begin = g->column[segment], end = g->column[segment + 1], full = end - (end - begin) % K_LANES;
        lanes start = begin < end ? lanes_zero() : lanes_splat(CPU_NO_TERM), s[ROWS] = {start, start, start, start};
        for (uint64_t k = begin; k < full; k += K_LANES) {
            prefetch_rows(row_block, k * (dtype == K_F32 ? 4 : 2), false, R);
            add_group_1(s, row_block->rows, dtype, k, x + k, R);
        }
        if (full < end) {
            struct rest rest;
            float x_rest[K_LANES] = {0};
            fill_rest(&rest, row_block, dtype, full, end, R);
            memcpy(x_rest, x + full, (end - full) * sizeof *x);
            const unsigned char *const rows[ROWS] = {rest.w[0], rest.w[1], rest.w[2], rest.w[3]};
            add_group_1(s, rows, dtype, 0, x_rest, R);
        }
#pragma GCC unroll 4
        for (uint32_t i = 0; i < ROWS; i++)
            halves[segment * ROWS + i] = lanes_halve(s[i]);
    }
    lanes_fold_halves(halves, g->n_segments * ROWS, folded);
    put(g, row_block, token, folded, 1, R);
}

/* ---- several tokens -------------------------------------------------------------------------- */

/* Activations are repacked once per GEMM: the T tokens of a group are interleaved register by register, in the order in
 * which dot() reads them, with columns padded by zeros to a multiple of 16. If they are read in place, rows of 8 KiB
 * share one set of the first-level cache: 77 GFLOP/s instead of 191 (AVX2, 2048 columns). */
static uint64_t packed_steps(const struct k_gemm_args *a)
{
    return ((uint64_t)a->weight->n_cols + K_LANES - 1) / K_LANES;
}

/* Returns the group of T tokens starting at `token`: [VECS][steps][T][VEC]. */
static float *packed_group(const struct k_gemm_args *a, uint32_t token)
{
    return (float *)a->workspace_dev + token * packed_steps(a) * K_LANES;
}

static void pack_group(const struct k_gemm_args *a, uint32_t token, uint32_t n_tokens)
{
    const uint64_t n_cols = a->weight->n_cols, steps = packed_steps(a);
    float *group = packed_group(a, token);
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *x = a->x_dev + (token + t) * n_cols;
        for (uint64_t step = 0; step < steps; step++) {
            float last[K_LANES] = {0};
            const float *from = x + step * K_LANES;
            if (n_cols - step * K_LANES < K_LANES)
                from = memcpy(last, from, (n_cols % K_LANES) * sizeof *x);
            for (uint32_t h = 0; h < VECS; h++)
                vec_store(group + ((h * steps + step) * n_tokens + t) * VEC, vec_load(from + h * VEC));
        }
    }
}

void CPU_NAME(cpu_lane_pack)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *task = context;
    const struct k_gemm_args *a = &task->args;
    uint64_t begin, end;
    k_pool_share((a->n_tokens + TOKENS - 1) / TOKENS, piece, &begin, &end);
    for (uint64_t g = begin; g < end; g++) {
        uint32_t token = (uint32_t)g * TOKENS, left = a->n_tokens - token;
        pack_group(a, token, left < TOKENS ? left : TOKENS);
    }
}

/* Adds one register's lanes of columns k to k + 15. */
CPU_INLINE void add_group(vec s[ROWS][TOKENS], const unsigned char *const *rows, enum k_dtype dtype, uint64_t k,
                          const float *x, const uint32_t T)
{
    vec v[TOKENS];
#pragma GCC unroll 6
    for (uint32_t t = 0; t < T; t++) {
        v[t] = vec_load(x + t * VEC);
        /* Loaded once for all rows: otherwise a compiler rereads it in each fma, and loads limit AVX2 to 150
         * GFLOP/s. */
        __asm__("" : "+v"(v[t]));
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < ROWS; i++) {
        vec w = load_vec(rows[i], dtype, k);
#pragma GCC unroll 6
        for (uint32_t t = 0; t < T; t++)
            s[i][t] = vec_fma(w, v[t], s[i][t]);
    }
}

/* Computes a segment's sums of a block of rows with T tokens, [token][row]. AVX2 reads the rows twice, for lanes 0..7
 * and 8..15, because the sums of both do not fit its registers. */
CPU_INLINE void dot_segment(const struct cpu_gemm *g, const struct row_block *row_block, enum k_dtype dtype,
                            uint32_t token, uint32_t segment, bool prefetch, const uint32_t T, float *out)
{
    const struct k_gemm_args *a = &g->args;
    const uint64_t begin = g->column[segment], end = g->column[segment + 1], full = end - (end - begin) % K_LANES;
    __m256 halves[TOKENS * ROWS];
    for (uint32_t h = 0; h < VECS; h++) {
        const float *x = packed_group(a, token) + (h * packed_steps(a) + begin / K_LANES) * T * VEC;
        vec s[ROWS][TOKENS];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < ROWS; i++)
#pragma GCC unroll 6
            for (uint32_t t = 0; t < T; t++)
                s[i][t] = vec_zero();
        for (uint64_t k = begin; k < full; k += K_LANES, x += T * VEC) {
            if (prefetch && h == 0)
                prefetch_rows(row_block, k * (dtype == K_F32 ? 4 : 2), T < 6, ROWS);
            add_group(s, row_block->rows, dtype, k + h * VEC, x, T);
        }
        if (full < end) {
            struct rest rest;
            fill_rest(&rest, row_block, dtype, full, end, ROWS);
            const unsigned char *const rows[ROWS] = {rest.w[0], rest.w[1], rest.w[2], rest.w[3]};
            add_group(s, rows, dtype, h * VEC, x, T);
        }
#pragma GCC unroll 6
        for (uint32_t t = 0; t < T; t++)
#pragma GCC unroll 4
            for (uint32_t i = 0; i < ROWS; i++)
                halves[t * ROWS + i] = vec_halve(s[i][t], halves[t * ROWS + i], h);
    }
    lanes_fold_halves(halves, T * ROWS, out);
}

CPU_INLINE void dot(const struct cpu_gemm *g, const struct row_block *row_block, enum k_dtype dtype, uint32_t token,
                    bool prefetch, const uint32_t T)
{
    float folded[K_SEGMENTS * TOKENS * ROWS];
    for (uint32_t segment = 0; segment < g->n_segments; segment++) {
        float *out = folded + segment * T * ROWS;
        if (g->column[segment] < g->column[segment + 1]) {
            dot_segment(g, row_block, dtype, token, segment, prefetch, T, out);
            continue;
        }
        for (uint32_t i = 0; i < T * ROWS; i++)
            out[i] = CPU_NO_TERM;
    }
    put(g, row_block, token, folded, T, ROWS);
}

/* Computes tokens [begin, end) with a block of rows. The first group reads the rows from memory. */
CPU_INLINE void dot_tokens(const struct cpu_gemm *g, const struct row_block *row_block, enum k_dtype dtype,
                           uint32_t begin, uint32_t end)
{
    uint32_t t = begin;
    for (; t + TOKENS <= end; t += TOKENS) {
        if (t == begin)
            dot(g, row_block, dtype, t, true, TOKENS);
        else
            dot(g, row_block, dtype, t, false, TOKENS);
    }
    switch (end - t) {
    case 1: dot(g, row_block, dtype, t, true, 1); break;
    case 2: dot(g, row_block, dtype, t, true, 2); break;
#if defined(__AVX512F__)
    case 3: dot(g, row_block, dtype, t, true, 3); break;
    case 4: dot(g, row_block, dtype, t, true, 4); break;
    case 5: dot(g, row_block, dtype, t, true, 5); break;
#endif
    default: break;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Computes rows [begin, end) of a part for tokens [first, last). */
CPU_INLINE void part_block(const struct cpu_gemm *g, const struct host_part *part, enum k_dtype dtype, uint32_t begin,
                           uint32_t end, uint32_t first, uint32_t last)
{
    const uint32_t run = (end - begin) / ROWS;
    for (uint32_t i = 0; i < run; i++) {
        struct row_block row_block;
        for (uint32_t j = 0; j < ROWS; j++) {
            /* Each stream is a row ahead of the previous one: runs are often a multiple of 4 KiB apart, and synchronous
             * streams would share one set of the first-level cache. */
            uint32_t row = begin + j * run + (i + j) % run;
            row_block.rows[j] = host_row(part, row);
            row_block.out[j] = part->first_row + row;
        }
        if (g->args.n_tokens == 1)
            dot_1(g, &row_block, dtype, 0, ROWS);
        else
            dot_tokens(g, &row_block, dtype, first, last);
    }
    for (uint32_t row = begin + ROWS * run; row < end; row++) {
        struct row_block row_block = {{host_row(part, row)}, {part->first_row + row}};
        for (uint32_t t = first; t < last; t++)
            dot_1(g, &row_block, dtype, t, 1);
    }
}

CPU_INLINE void part_rows(const struct cpu_gemm *g, const struct host_part *part, enum k_dtype dtype, uint32_t begin,
                          uint32_t end)
{
    const struct k_gemm_args *a = &g->args;
    const uint64_t row_bytes = a->weight->n_cols * sizeof(float);
    uint32_t block = (uint32_t)(X_BLOCK_BYTES / row_bytes) / TOKENS * TOKENS;
    block = block < TOKENS ? TOKENS : block;
    for (uint32_t first = 0; first < a->n_tokens; first += block)
        part_block(g, part, dtype, begin, end, first, a->n_tokens - first < block ? a->n_tokens : first + block);
}

/* One copy of the loops for each dtype. */
static void part_rows_f16(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    part_rows(g, part, K_F16, begin, end);
}

static void part_rows_bf16(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    part_rows(g, part, K_BF16, begin, end);
}

static void part_rows_f32(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    part_rows(g, part, K_F32, begin, end);
}

void CPU_NAME(cpu_gemm_lane)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *task = context;
    const struct k_weight *w = task->args.weight;
    uint32_t row_begin, row_end;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        const struct host_part *part = &w->parts[p];
        if (!k_format_is_plain(part->view.format) || !host_part_share(w, part, ROWS, piece, &row_begin, &row_end))
            continue;
        if (part->view.format.kind == K_F16)
            part_rows_f16(task, part, row_begin, row_end);
        else if (part->view.format.kind == K_BF16)
            part_rows_bf16(task, part, row_begin, row_end);
        else
            part_rows_f32(task, part, row_begin, row_end);
    }
}
