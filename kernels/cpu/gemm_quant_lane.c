/* Quantized weights in the lane form (docs/internals/numerics.md §19, weight-only): a_j = fma(s, g_j, a_j) over groups
 * in rising order, where g_j is the lane sum of q x within a group.
 *
 * ROWS rows are computed at a time. 256 columns of each are unpacked to f32, 4 KiB that all tokens of a pass read from
 * the first-level cache. The lanes a and g of ROWS x TOKENS sums stay in registers meanwhile. Activations are repacked
 * first: in the order of the columns, padded with zeros to a multiple of 16.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quant/bytes.h"
#include "kernels/cpu/quant/scales.h"
#include "kernels/cpu/quant/unpack.h"
#include "kernels/cpu/simd/lanes.h"

#if defined(__AVX512F__)
#define ROWS 4u
#define TOKENS 3u /* 12 a, 12 g, 3 x, 3 t and a weight: 31 of 32 registers */
#else
#define ROWS 2u
#define TOKENS 1u /* 2 a, 2 g, x, t and a weight, of two registers each: 14 of 16 */
#endif
#define PASS 24u /* tokens per chunk; their lanes fit the first-level cache too */

/* ---- activations ------------------------------------------------------------------------------------- */

/* Returns the number of floats from one token to the next. Rows that are a multiple of 4 KiB long would share a set of
 * the cache. */
static uint64_t x_stride(const struct cpu_gemm *g)
{
    return ((uint64_t)g->args.weight->n_cols + 31) / 16 * 16;
}

void CPU_NAME(cpu_quant_gather)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *g = context;
    const struct k_weight_view *w = &g->args.weight->parts[g->first_part].view;
    uint64_t first, last;
    k_pool_share(g->args.n_tokens, piece, &first, &last);
    for (uint64_t t = first; t < last; t++) {
        const float *x = g->args.x_dev + t * w->n_cols;
        float *out = (float *)g->args.workspace_dev + t * x_stride(g);
        memset(out + w->n_cols / 16 * 16, 0, 16 * sizeof *out);
        if (!w->permutation)
            memcpy(out, x, w->n_cols * sizeof *out);
        for (uint32_t k = 0; w->permutation && k < w->n_cols; k++)
            out[k] = x[w->permutation[k]];
    }
}

/* ---- weights ----------------------------------------------------------------------------------------- */

struct chunk { /* of ROWS rows */
    float q[ROWS][CHUNK];
    float scale[ROWS][CHUNK_GROUPS + 15], least[ROWS][CHUNK_GROUPS + 15];
};

/* Loads eight FP8 numbers. Shifted into position, e4m3 is f16 with another bias, 2^8 less. Its one NaN becomes a
 * number. */
CPU_INLINE __m256 widen_fp8(const uint8_t *p, const enum k_dtype kind)
{
    const __m128i v = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i_u *)(const void *)p));
    if (kind == K_E5M2)
        return _mm256_cvtph_ps(_mm_slli_epi16(v, 8));
    const __m128i size = _mm_and_si128(v, _mm_set1_epi16(0x7f)), sign = _mm_and_si128(v, _mm_set1_epi16(0x80));
    const __m128i h = _mm_or_si128(_mm_slli_epi16(size, 7), _mm_slli_epi16(sign, 8));
    const __m256i is_nan = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(size, _mm_set1_epi16(0x7f)));
    return _mm256_or_ps(_mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256.0f)), _mm256_castsi256_ps(is_nan));
}

CPU_INLINE void unpack_fp8(const struct k_weight_view *w, uint32_t row, uint32_t k, uint32_t n, float *out,
                           const enum k_dtype kind)
{
    const uint8_t *from = (const uint8_t *)w->data + (uint64_t)row * w->row_stride_bytes + k;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, widen_fp8(from + i, kind));
    uint8_t last[8] = {0};
    for (; i < (n + 15) / 16 * 16; i += 8) {
        memset(last, 0, sizeof last);
        memcpy(last, from + i, i < n ? n - i : 0);
        _mm256_storeu_ps(out + i, widen_fp8(last, kind));
    }
}

/* Loads the columns starting at k. With fewer than ROWS rows, the last row is repeated. */
CPU_INLINE void fill_chunk(const struct k_weight_view *w, const enum k_packing packing, const enum k_dtype kind,
                           uint32_t row, uint32_t last, uint32_t k, struct chunk *out)
{
    const uint32_t n = w->n_cols - k < CHUNK ? w->n_cols - k : CHUNK;
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t r = row + i < last ? row + i : last;
        int8_t bytes[CHUNK];
        prefetch_chunk(w, packing, row + i + ROWS, k, n);
        unpack_scales(w, packing, r, k, n, out->scale[i], out->least[i]);
        if (kind != K_INT) {
            unpack_fp8(w, r, k, n, out->q[i], kind);
            continue;
        }
        if (n == CHUNK) /* without the checks at a row's end */
            unpack_chunk(w, packing, r, k, CHUNK, bytes);
        else
            unpack_chunk(w, packing, r, k, n, bytes);
        for (uint32_t j = 0; j < n; j += 8) {
            const __m128i eight = _mm_loadl_epi64((const __m128i_u *)(const void *)(bytes + j));
            _mm256_storeu_ps(out->q[i] + j, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
        }
        if (n % 16 != 0 && n % 16 <= 8)
            _mm256_storeu_ps(out->q[i] + n / 16 * 16 + 8, _mm256_setzero_ps());
    }
}

/* ---- products ---------------------------------------------------------------------------------------- */

struct sums { /* sums of the tokens of a pass */
    float a[PASS][ROWS][K_LANES];
    float open[PASS][ROWS][K_LANES]; /* g of a group that continues in the next chunk */
    float y[K_SEGMENTS][PASS][ROWS];
};

/* Computes runs of a chunk within one segment for T tokens. */
CPU_INLINE void add_runs(const struct chunk *c, const struct cpu_quant_run *runs, uint32_t n, const float *x,
                         uint64_t stride, struct sums *sums, uint32_t first, const bool has_least, const uint32_t T)
{
    lanes a[ROWS][TOKENS], g[ROWS][TOKENS], t[TOKENS];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < T; j++)
            a[i][j] = lanes_load_f32(sums->a[first + j][i]);
    for (uint32_t r = 0; r < n; r++) {
        const struct cpu_quant_run *run = &runs[r];
        const bool goes_on = r == 0 && run->is_rest;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < T; j++) {
            t[j] = lanes_zero();
#pragma GCC unroll 4
            for (uint32_t i = 0; i < ROWS; i++)
                g[i][j] = goes_on ? lanes_load_f32(sums->open[first + j][i]) : lanes_zero();
        }
        for (uint32_t k = run->step * 4u, end = k + run->n_steps * 4u, at = run->column; k < end; k += 16, at += 16) {
            lanes v[TOKENS];
#pragma GCC unroll 4
            for (uint32_t j = 0; j < T; j++) {
                v[j] = lanes_load_f32(x + j * stride + at);
                if (has_least)
                    t[j] = lanes_add(t[j], v[j]);
            }
#pragma GCC unroll 4
            for (uint32_t i = 0; i < ROWS; i++) {
                const lanes q = lanes_load_f32(c->q[i] + k);
#pragma GCC unroll 4
                for (uint32_t j = 0; j < T; j++)
                    g[i][j] = lanes_fma(q, v[j], g[i][j]);
            }
        }
#pragma GCC unroll 4
        for (uint32_t i = 0; i < ROWS; i++)
#pragma GCC unroll 4
            for (uint32_t j = 0; j < T; j++) {
                if (run->ends)
                    a[i][j] = lanes_fma(lanes_splat(c->scale[i][run->group]), g[i][j], a[i][j]);
                else
                    lanes_store_f32(sums->open[first + j][i], g[i][j]);
                if (has_least)
                    a[i][j] = lanes_fma(lanes_splat(c->least[i][run->group]), t[j], a[i][j]);
            }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < T; j++)
            lanes_store_f32(sums->a[first + j][i], a[i][j]);
}

/* The same for any number of tokens. */
CPU_INLINE void add_tokens(const struct cpu_gemm *g, const struct chunk *c, const struct cpu_quant_run *runs,
                           uint32_t n, uint32_t first, uint32_t last, struct sums *sums, const bool has_least)
{
    const uint64_t stride = x_stride(g);
    for (uint32_t t = first; t < last; t += TOKENS) {
        const float *x = (const float *)g->args.workspace_dev + t * stride;
        const uint32_t left = last - t;
        if (left >= TOKENS)
            add_runs(c, runs, n, x, stride, sums, t - first, has_least, TOKENS);
        else if (left == 1)
            add_runs(c, runs, n, x, stride, sums, t - first, has_least, 1);
#if defined(__AVX512F__)
        else
            add_runs(c, runs, n, x, stride, sums, t - first, has_least, 2);
#endif
    }
}

/* Folds the lanes at the end of a segment. */
static void fold(struct sums *sums, uint32_t n_tokens, uint32_t segment)
{
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t i = 0; i < ROWS; i++)
            sums->y[segment][t][i] = lanes_fold(lanes_load_f32(sums->a[t][i]));
    memset(sums->a, 0, n_tokens * sizeof sums->a[0]);
}

/* Computes rows [row, row + n_rows), at most ROWS, for tokens [first, last), at most PASS. */
CPU_INLINE void rows_pass(const struct cpu_gemm *g, const struct host_part *part, const enum k_packing packing,
                          const enum k_dtype kind, uint32_t row, uint32_t n_rows, uint32_t first, uint32_t last)
{
    struct chunk chunk;
    struct sums sums;
    const struct cpu_quant_run *runs = g->runs;
    const bool has_least = packing == K_PACKING_Q4_1 || packing == K_PACKING_Q5_1 || packing == K_PACKING_Q2_K ||
                           packing == K_PACKING_Q4_K || packing == K_PACKING_Q5_K;
    memset(sums.a, 0, (last - first) * sizeof sums.a[0]);
    for (uint32_t i = 0, n; i < g->n_runs; i += n) {
        if (i == 0 || runs[i].step == 0)
            fill_chunk(&part->view, packing, kind, row, row + n_rows - 1, runs[i].column, &chunk);
        for (n = 1; i + n < g->n_runs && runs[i + n].step != 0 && runs[i + n].segment == runs[i].segment;)
            n++;
        add_tokens(g, &chunk, runs + i, n, first, last, &sums, has_least);
        if (i + n == g->n_runs || runs[i + n].segment != runs[i].segment)
            fold(&sums, last - first, runs[i].segment);
    }
    cpu_put_sums(g, part, row, n_rows, first, last, sums.y[0][0], PASS, ROWS);
}

CPU_INLINE void part_rows(const struct cpu_gemm *g, const struct host_part *part, const enum k_packing packing,
                          const enum k_dtype kind, uint32_t begin, uint32_t end)
{
    const uint32_t n_tokens = g->args.n_tokens;
    for (uint32_t row = begin; row < end; row += ROWS)
        for (uint32_t t = 0; t < n_tokens; t += PASS)
            rows_pass(g, part, packing, kind, row, end - row < ROWS ? end - row : ROWS, t,
                      n_tokens - t < PASS ? n_tokens : t + PASS);
}

/* One copy for each format. */
#define PART_ROWS(packing) \
    static void part_##packing(const struct cpu_gemm *g, const struct host_part *part, uint32_t b, uint32_t e) \
    { \
        part_rows(g, part, K_PACKING_##packing, K_INT, b, e); \
    }
CPU_QUANT_PACKINGS(PART_ROWS)
#define PART_ENTRY(packing) [K_PACKING_##packing] = part_##packing,
static void (*const part_fns[K_N_PACKINGS])(const struct cpu_gemm *g, const struct host_part *part, uint32_t b,
                                            uint32_t e) = {CPU_QUANT_PACKINGS(PART_ENTRY)};

static void part_e4m3(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    part_rows(g, part, K_PACKING_PLANES, K_E4M3, begin, end);
}

static void part_e5m2(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    part_rows(g, part, K_PACKING_PLANES, K_E5M2, begin, end);
}

#if defined(__AVX512F__)
#include "kernels/cpu/quant/lane_one.h"
#else
static bool part_one(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    (void)g, (void)part, (void)begin, (void)end;
    return false;
}
#endif

void CPU_NAME(cpu_gemm_quant_lane)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *g = context;
    const struct k_weight *w = g->args.weight;
    uint32_t begin, end;
    for (uint32_t p = g->first_part; p < g->last_part; p++) {
        const struct host_part *part = &w->parts[p];
        if (!host_part_share(w, part, ROWS, piece, &begin, &end))
            continue;
        if (part_one(g, part, begin, end))
            continue;
        if (part->view.format.kind == K_E4M3)
            part_e4m3(g, part, begin, end);
        else if (part->view.format.kind == K_E5M2)
            part_e5m2(g, part, begin, end);
        else
            part_fns[part->view.format.packing](g, part, begin, end);
    }
}
