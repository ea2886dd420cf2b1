/* The int8 form (docs/internals/numerics.md §19): y[t, r] = sum over groups of (s · d) · f32(Σ q u), integers exact,
 * groups in rising order.
 *
 * ROWS rows are computed at a time, one lane each. The q of 256 columns are bytes, four columns of every row in a
 * register, and are multiplied by the tokens while they are in the first-level cache. So a product of bytes sums four
 * columns into each row's lane, eight products make a group of 32, and the chains of groups, one per row, run in ROWS
 * lanes. The code is the same for every format and any number of tokens. Formats differ in how their bytes are read
 * from repacked rows (quant/compute_row_block.h), or from planes, which have the file's layout and are transposed
 * (quant/unpack.h). A single token reads repacked rows directly (gemm_quant_one.c); planes have their own path for it,
 * below.
 *
 * VNNI multiplies unsigned bytes by signed ones: u + 128 by q, and the sum starts at -128 Σ q, which does not depend on
 * the token. AMX's tiles multiply signed bytes, a run's columns of 16 tokens by 16 rows at once (quant/tiles.h). AVX2
 * multiplies bytes in pairs that must not saturate (quant/pairs.h), and keeps 16 rows in two registers.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quant/bytes.h"
#include "kernels/cpu/quant/repacked_rows.h"
#include "kernels/cpu/quant/rows.h"
#include "kernels/cpu/quant/scales.h"
#include "kernels/cpu/quant/unpack.h"
#include "kernels/math/round.h"

#define PASS 64u /* tokens that use a chunk's bytes while they are in the cache */
#define X_BLOCK_BYTES (384u << 10) /* activations that fit the second-level cache */

#if defined(__AVX512VNNI__)
/* Returns c plus the sum of products of each lane's four bytes. */
CPU_INLINE ints dot_bytes(ints c, ints u, ints q)
{
    return _mm512_dpbusd_epi32(c, u, q);
}
#endif

/* ---- activations ------------------------------------------------------------------------------------- */

/* Copies 32 activations; those from n on are zeros. */
CPU_INLINE void gather_32(const struct k_weight_view *w, const float *x, uint32_t k, uint32_t n, float out[32])
{
    memset(out, 0, 32 * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[w->permutation ? w->permutation[k + i] : k + i];
}

/* Returns the larger |x|, compared as bits. */
CPU_INLINE __m256i larger(__m256i most, const float *x)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i_u *)(const void *)x);
    return _mm256_max_epu32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
}

CPU_INLINE float largest_of(__m256i most)
{
    const __m128i a = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    const __m128i b = _mm_max_epu32(a, _mm_shuffle_epi32(a, 0x4e));
    return k_f32_from_bits((uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1))));
}

CPU_INLINE float largest_32(const float x[32])
{
    __m256i most = _mm256_setzero_si256();
    for (uint32_t i = 0; i < 32; i += 8)
        most = larger(most, x + i);
    return largest_of(most);
}

/* k_round_int8() of eight numbers. */
CPU_INLINE __m256i round_8(const float *x, __m256 factor)
{
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), factor);
    v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    v = _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(v);
}

/* Rounds 32 columns, starting at k, and writes n of them: 16 or 32. */
CPU_INLINE void round_32(const struct inputs *in, uint32_t t, uint32_t k, uint32_t n, const float x[32], float factor)
{
    const __m256 by = _mm256_set1_ps(factor);
    const __m256i a = _mm256_packs_epi32(round_8(x, by), round_8(x + 8, by));
    const __m256i b = _mm256_packs_epi32(round_8(x + 16, by), round_8(x + 24, by));
    const __m256i u = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i above = _mm256_xor_si256(u, _mm256_set1_epi8((char)0x80));
    const __m256i sums = _mm256_sad_epu8(above, _mm256_setzero_si256());
    uint32_t words[8];
    int64_t sum[4];
    _mm256_storeu_si256((__m256i_u *)(void *)words, OFFSET ? above : u);
    _mm256_storeu_si256((__m256i_u *)(void *)sum, sums);
    for (uint32_t i = 0; i < n / 4; i++)
        in->u[(uint64_t)(k / 4 + i) * in->next_step + (uint64_t)t * in->next_token] = words[i];
    for (uint32_t i = 0; i < n / 16; i++)
        in->sum[(k / 16 + i) * in->T + t] = (float)(sum[2 * i] + sum[2 * i + 1] - 2048);
}

/* Rounds a piece of at most 32 columns that has its own scale. */
CPU_INLINE void round_piece(const struct k_weight_view *w, const struct inputs *in, uint32_t t, const float *x,
                            uint32_t k, uint32_t n, uint32_t segment)
{
    float some[32];
    const float *from = x + k;
    if (n < 32 || w->permutation) {
        gather_32(w, x, k, n, some);
        from = some;
    }
    const float most = w->x_scale == 0 ? largest_32(from) : 0;
    const float factor = w->x_scale == 0 ? k_round_factor(most) : 1.0f / w->x_scale;
    round_32(in, t, k, k + n == w->n_cols ? 32 - k % 32 : n, from, factor);
    in->scale[(k / 32 + segment) * in->T + t] = w->x_scale == 0 ? k_round_scale(most) : w->x_scale;
}

/* Rounds all columns of a token with one scale. */
static void round_token(const struct k_weight_view *w, const struct inputs *in, uint32_t t, const float *x)
{
    float some[32];
    __m256i most = _mm256_setzero_si256();
    for (uint32_t k = 0; k < w->n_cols && w->x_scale == 0; k += 32) {
        gather_32(w, x, k, w->n_cols - k < 32 ? w->n_cols - k : 32, some);
        for (uint32_t i = 0; i < 32; i += 8)
            most = larger(most, some + i);
    }
    const float largest = largest_of(most), factor = w->x_scale == 0 ? k_round_factor(largest) : 1.0f / w->x_scale;
    for (uint32_t k = 0; k < w->n_cols; k += 32) {
        gather_32(w, x, k, w->n_cols - k < 32 ? w->n_cols - k : 32, some);
        round_32(in, t, k, 32, some, factor);
    }
    in->scale[t] = w->x_scale == 0 ? k_round_scale(largest) : w->x_scale;
}

void CPU_NAME(cpu_quant_round)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *g = context;
    const struct k_weight_view *w = &g->args.weight->parts[g->first_part].view;
    uint64_t first, last;
    k_pool_share(g->args.n_tokens, piece, &first, &last);
    for (uint64_t token = first; token < last; token++) {
        const float *x = g->args.x_dev + token * w->n_cols;
        const uint32_t t = (uint32_t)token % TOKENS;
        const struct inputs in = inputs_at(g, (uint32_t)token - t);
        if (w->format.group == 0) {
            round_token(w, &in, t, x);
            continue;
        }
        for (uint32_t i = 0; i < g->n_segments; i++)
            for (uint32_t k = g->column[i], stop; k < g->column[i + 1]; k = stop) {
                stop = k - k % 32 + 32 < g->column[i + 1] ? k - k % 32 + 32 : g->column[i + 1];
                round_piece(w, &in, t, x, k, stop - k, i);
            }
    }
}

/* ---- a block of weight rows -------------------------------------------------------------------------- */

#define ROW_GROUPS 20u /* CHUNK_GROUPS, rounded up to a multiple of four */
#define MAX_RUNS (CHUNK / 16)

struct row_block {
    _Alignas(64) uint32_t words[CHUNK / 4][ROWS]; /* four columns of each row */
    float scale[ROW_GROUPS][ROWS], least[ROW_GROUPS][ROWS];
#if HALVES == 1
    int32_t begin[MAX_RUNS][ROWS]; /* the initial value of each run's sum */
#endif
    const char *next; /* the data of the next row block to prefetch, if it is one stream */
    uint32_t next_step; /* bytes of it per step of this block */
};

/* A chunk, row by row. */
struct rows {
    int8_t q[ROWS][CHUNK];
    float scale[ROWS][ROW_GROUPS];
};

CPU_INLINE ints rows_of(const char *at, uint64_t stride)
{
#if defined(__AVX512VNNI__)
    __m512i v = _mm512_castsi128_si512(load_16((const uint8_t *)at));
    v = _mm512_inserti32x4(v, load_16((const uint8_t *)at + 4 * stride), 1);
    v = _mm512_inserti32x4(v, load_16((const uint8_t *)at + 8 * stride), 2);
    return _mm512_inserti32x4(v, load_16((const uint8_t *)at + 12 * stride), 3);
#else
    return _mm256_set_m128i(load_16((const uint8_t *)at + 4 * stride), load_16((const uint8_t *)at));
#endif
}

/* Transposes n words of ROWS rows, `stride` bytes apart: out[word][row]. n is a multiple of 4. */
CPU_INLINE void turn(const void *from, const uint64_t stride, uint32_t n, void *out)
{
    for (uint32_t i = 0; i < n; i += 4) {
        const char *at = (const char *)from + (uint64_t)i * 4;
        char *to = (char *)out + (uint64_t)i * ROWS * 4;
        const ints a = rows_of(at, stride), b = rows_of(at + stride, stride);
        const ints c = rows_of(at + 2 * stride, stride), d = rows_of(at + 3 * stride, stride);
        const ints ab = OP(unpacklo_epi32)(a, b), cd = OP(unpacklo_epi32)(c, d);
        const ints AB = OP(unpackhi_epi32)(a, b), CD = OP(unpackhi_epi32)(c, d);
        store_ints(to, OP(unpacklo_epi64)(ab, cd));
        store_ints(to + ROWS * 4, OP(unpackhi_epi64)(ab, cd));
        store_ints(to + ROWS * 8, OP(unpacklo_epi64)(AB, CD));
        store_ints(to + ROWS * 12, OP(unpackhi_epi64)(AB, CD));
    }
}

/* Loads the chunk starting at column k of the rows that start at `row`. Rows after `last` repeat the last one. */
static void fill_of_planes(const struct k_weight_view *w, uint32_t row, uint32_t last, uint32_t k,
                           struct row_block *out)
{
    const enum k_packing packing = K_PACKING_PLANES;
    struct rows rows;
    const uint32_t n = w->n_cols - k < CHUNK ? w->n_cols - k : CHUNK;
    const uint32_t group = w->format.group, n_groups = group ? (k + n - 1) / group - k / group + 1 : 1;
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t r = row + i < last ? row + i : last;
        prefetch_chunk(w, packing, row + i + ROWS, k, n);
        unpack_chunk(w, packing, r, k, n, rows.q[i]);
        unpack_scales(w, packing, r, k, n, rows.scale[i], NULL);
    }
    turn(rows.q, CHUNK, (n + 31) / 32 * 8, out->words);
    turn(rows.scale, sizeof rows.scale[0], (n_groups + 3) / 4 * 4, out->scale);
}

/* Returns whether the row block stores q instead of n. */
CPU_INLINE bool is_lessened(const enum k_packing packing)
{
    return HALVES == 1 || has_bytes(packing);
}

/* Loads 32 columns of a chunk of a repacked weight. */
CPU_INLINE void fill_32(struct repacked_chunk c, const enum k_packing packing, const uint32_t r, struct row_block *out)
{
    const ints z = OP(set1_epi8)((char)(is_lessened(packing) ? offset_of(packing) : 0));
#pragma GCC unroll 8
    for (uint32_t s = r * 8; s < r * 8 + 8; s++)
        store_ints(out->words[s], OP(sub_epi8)(repacked_bytes(c, packing, s), z));
    const uint32_t per_32 = has_sixteens(packing) ? 2 : 1;
#pragma GCC unroll 2
    for (uint32_t j = r * per_32; j < (r + 1) * per_32; j++) {
        OP(storeu_ps)(out->scale[j], repacked_scale(c, packing, j));
        if (has_least(packing))
            OP(storeu_ps)(out->least[j], repacked_least(c, packing, j));
    }
}

CPU_INLINE void fill_row_block(const struct host_part *part, const enum k_packing packing, uint32_t row, uint32_t last,
                               uint32_t k, struct row_block *out)
{
    const uint32_t n_cols = part->view.n_cols, n = n_cols - k < CHUNK ? n_cols - k : CHUNK;
    out->next_step = 0;
    if (packing == K_PACKING_PLANES) {
        fill_of_planes(&part->view, row, last, k, out);
        return;
    }
    const struct repacked_chunk c = repacked_chunk_at(part, row, k, n);
    const uint32_t bytes = cpu_repacked_chunk_bytes(k_blocks_of(packing), n / k_blocks_of(packing)->columns);
    out->next = (const char *)c.halves + bytes;
    out->next_step = (bytes + n / 4 - 1) / (n / 4);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < 8; r++)
        if (r * 32 < n)
            fill_32(c, packing, r, out);
}

#if HALVES == 1
/* Computes where the sums start. They start at 0 if u is signed. */
CPU_INLINE void fill_begins(const struct cpu_quant_run *runs, uint32_t n, struct row_block *p)
{
    for (uint32_t i = 0; i < n && OFFSET != 0; i++) {
        ints sum = OP_SI(setzero)();
        for (uint32_t s = runs[i].step; s < runs[i].step + runs[i].n_steps; s++)
            sum = dot_bytes(sum, OP(set1_epi8)((char)OFFSET), load_ints(p->words[s]));
        store_ints(p->begin[i], OP(sub_epi32)(OP_SI(setzero)(), sum));
    }
}
#endif

/* Prefetches a share of the next rows during each run. A prefetch of all at once would stall. */
CPU_INLINE void fetch_next(const struct row_block *p, const struct cpu_quant_run *run)
{
    for (uint32_t i = 0; i < run->n_steps * p->next_step; i += 64)
        _mm_prefetch(p->next + run->step * p->next_step + i, _MM_HINT_T0);
}

/* ---- products ---------------------------------------------------------------------------------------- */

struct sums { /* the tokens of a pass by the rows of a block */
    _Alignas(64) float y[K_SEGMENTS][PASS][CPU_REPACKED_ROWS];
    int32_t open[PASS][CPU_REPACKED_ROWS]; /* partial sums of a run that is longer than a chunk and has not ended */
#if defined(CPU_AMX_INT8)
    uint32_t tiles; /* the tile configuration */
#endif
};

#if defined(CPU_AMX_INT8)
#include "kernels/cpu/quant/tiles.h"
#elif HALVES == 2
#include "kernels/cpu/quant/pairs.h"
#else
/* Computes runs of a chunk within one segment for the T tokens of a group. */
CPU_INLINE void add_runs(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                         const struct inputs *in, float (*y)[ROWS], int32_t (*open)[ROWS], const uint32_t T,
                         const bool least, const bool is_long)
{
    floats sum[TOKENS];
#pragma GCC unroll 8
    for (uint32_t t = 0; t < T; t++)
        sum[t] = OP(loadu_ps)(y[t]);
    for (uint32_t r = first; r < last; r++) {
        const struct cpu_quant_run *run = &runs[r];
        fetch_next(p, run);
        ints c[TOKENS];
#pragma GCC unroll 8
        for (uint32_t t = 0; t < T; t++) {
            c[t] = load_ints(p->begin[r]);
            if (is_long)
                c[t] = OP(add_epi32)(c[t], load_ints(open[t]));
        }
        const uint32_t *u = in->u + (uint64_t)run->column / 4 * T;
        for (uint32_t s = run->step, end = s + run->n_steps; s < end; s += 4)
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++, u += T) {
                const ints q = load_ints(p->words[s + i]);
#pragma GCC unroll 8
                for (uint32_t t = 0; t < T; t++)
                    c[t] = dot_bytes(c[t], spread(u + t), q);
            }
        if (is_long)
            for (uint32_t t = 0; t < T; t++)
                store_ints(open[t], run->ends ? OP_SI(setzero)() : c[t]);
        if (is_long && !run->ends)
            continue;
        const floats scale = OP(loadu_ps)(p->scale[run->group]);
        const float *d = in->scale + (uint64_t)run->scale * T;
#pragma GCC unroll 8
        for (uint32_t t = 0; t < T; t++)
            sum[t] = OP(fmadd_ps)(OP(mul_ps)(scale, OP(set1_ps)(d[t])), OP(cvtepi32_ps)(c[t]), sum[t]);
        if (!least)
            continue;
        const floats by = OP(loadu_ps)(p->least[run->group]);
        const float *half = in->sum + (uint64_t)run->column / 16 * T;
#pragma GCC unroll 8
        for (uint32_t t = 0; t < T; t++) {
            float inputs = run->n_steps > 4 ? half[t] + half[T + t] : half[t];
            sum[t] = OP(fmadd_ps)(OP(mul_ps)(by, OP(set1_ps)(d[t])), OP(set1_ps)(inputs), sum[t]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t t = 0; t < T; t++)
        OP(storeu_ps)(y[t], sum[t]);
}

/* One copy of the loops for each number of tokens and kind of run. */
#define RUNS(name, T, least, is_long) \
    static void name(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last, \
                     const struct inputs *in, float(*y)[ROWS], int32_t(*open)[ROWS]) \
    { \
        add_runs(p, runs, first, last, in, y, open, T, least, is_long); \
    }
#define RUNS_OF(T) \
    RUNS(runs_##T, T, false, false) \
    RUNS(runs_least_##T, T, true, false) \
    RUNS(runs_long_##T, T, false, true)
RUNS_OF(1)
RUNS_OF(2)
RUNS_OF(3)
RUNS_OF(4)
RUNS_OF(5)
RUNS_OF(6)
RUNS_OF(7)
RUNS_OF(8)
typedef void (*runs_fn)(const struct row_block *p, const struct cpu_quant_run *runs, uint32_t first, uint32_t last,
                        const struct inputs *in, float (*y)[ROWS], int32_t (*open)[ROWS]);
#define KINDS(T) {runs_##T, runs_least_##T, runs_long_##T}
static const runs_fn runs_fns[TOKENS + 1][3] = {{0},      KINDS(1), KINDS(2), KINDS(3), KINDS(4),
                                                KINDS(5), KINDS(6), KINDS(7), KINDS(8)};
#endif

/* Computes a chunk's runs for tokens [first, last). kind: see product_kind(). */
static void add_chunk(const struct cpu_gemm *g, struct row_block *p, const struct cpu_quant_run *runs, uint32_t n,
                      uint32_t kind, float z, uint32_t first, uint32_t last, struct sums *sums)
{
    const uint32_t next_step = p->next_step;
    for (uint32_t r = 0, end; r < n; r = end) {
        for (end = r + 1; end < n && runs[end].segment == runs[r].segment;)
            end++;
        for (uint32_t t = first; t < last; t += TOKENS) {
            const struct inputs in = inputs_at(g, t);
            float(*y)[CPU_REPACKED_ROWS] = sums->y[runs[r].segment] + (t - first);
            p->next_step = t == first ? next_step : 0; /* prefetch only once */
#if defined(CPU_AMX_INT8)
            (void)z;
            tile_runs(p, runs, r, end, &in, y, sums->open + (t - first), kind, &sums->tiles);
#elif HALVES == 2
            runs_fns[in.T][kind](p, runs, r, end, &in, y, sums->open + (t - first), z);
#else
            (void)z;
            runs_fns[in.T][kind](p, runs, r, end, &in, y, sums->open + (t - first));
#endif
        }
    }
}

/* Selects the loops: 1 if the format has a least value, 2 if a run is longer than a chunk; for pairs, their kind. */
CPU_INLINE uint32_t product_kind(const struct host_part *part, const enum k_packing packing)
{
    const bool is_long = part->view.format.group == 0;
#if HALVES == 2
    return pairs_kind_of(packing, is_long);
#else
    return is_long ? 2 : has_least(packing) ? 1 : 0;
#endif
}

/* Computes rows [row, row + n_rows), at most one row block, for tokens [first, last), at most PASS. */
CPU_INLINE void repacked_pass(const struct cpu_gemm *g, const struct host_part *part, const enum k_packing packing,
                              uint32_t row, uint32_t n_rows, uint32_t first, uint32_t last)
{
    struct row_block row_block[HALVES];
    struct sums sums;
    const struct cpu_quant_run *runs = g->runs;
    const uint32_t kind = product_kind(part, packing);
    for (uint32_t i = 0; i < g->n_segments; i++)
        memset(sums.y[i], 0, (last - first) * sizeof sums.y[i][0]);
    memset(sums.open, 0, (last - first) * sizeof sums.open[0]);
#if defined(CPU_AMX_INT8)
    sums.tiles = 0;
#endif
    for (uint32_t i = 0, n; i < g->n_runs; i += n) {
        const uint32_t k = runs[i].column - runs[i].step * 4;
        for (n = 1; i + n < g->n_runs && runs[i + n].step != 0;)
            n++;
        for (uint32_t h = 0; h < HALVES; h++)
            fill_row_block(part, packing, row + h * ROWS, row + n_rows - 1, k, &row_block[h]);
#if HALVES == 1
        fill_begins(runs + i, n, row_block);
#endif
        add_chunk(g, row_block, runs + i, n, kind, (float)offset_of(packing), first, last, &sums);
    }
    cpu_put_sums(g, part, row, n_rows, first, last, sums.y[0][0], PASS, CPU_REPACKED_ROWS);
}

/* ---- one token --------------------------------------------------------------------------------------- */

#if defined(__AVX512VNNI__)
/* Repacking the bytes of planes would delay a single token. So its columns lie along the register: 32 columns of a row
 * at a time, unsigned n = q + z times the signed u, and eight such sums are added together; Σ q u = Σ n u - z Σ u. The
 * results of 256 columns and 16 rows are transposed, so that the chain of groups runs in 16 lanes again. Runs consist
 * of whole groups of 32 columns here. */

#define BLOCK 4u /* chunks of a row that are read in sequence, so that memory sees long runs */
#define AHEAD 10u /* distance in rows of the prefetch */
#define UNITS 8u /* groups of 32 columns in a chunk, summed separately */

/* Returns z: n = q + z. */
CPU_INLINE int plane_offset(struct k_format format)
{
    return format.kind == K_E2M1 ? 12 : format.bits == 4 ? 8 : 128;
}

/* Returns n of 32 columns: the i-th group of 32 in a chunk that starts at column k of the row; `left` columns remain
 * from there. */
CPU_INLINE __m256i unsigned_32(const struct k_weight_view *w, const uint8_t *row, uint32_t k, const uint32_t i,
                               uint32_t left)
{
    if (w->format.kind == K_E2M1)
        return _mm256_add_epi8(numbers_of(k_codes_e2m1(), plane_run(row, k + i * 32, left, 4)),
                               _mm256_set1_epi8((char)plane_offset(w->format)));
    if (w->format.bits == 4)
        return plane_run(row, k + i * 32, left, 4);
    return _mm256_xor_si256(plane_run(row, k + i * 32, left, 8), _mm256_set1_epi8((char)0x80));
}

/* Returns the sums of the halves of four registers: first those of the low halves, then those of the high halves. */
CPU_INLINE __m256i sum_halves(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

CPU_INLINE void store_16(int32_t *p, __m128i v)
{
    _mm_storeu_si128((__m128i_u *)(void *)p, v);
}

/* Computes Σ n u for each unit of a chunk of a row. */
CPU_INLINE void row_products(const struct k_weight_view *w, uint32_t row, uint32_t k, uint32_t n, const uint8_t *u,
                             int32_t out[UNITS])
{
    const uint8_t *data = (const uint8_t *)w->data + (uint64_t)row * w->row_stride_bytes;
    __m256i c[8];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; i++) {
        c[i] = _mm256_setzero_si256();
        if (i * 32 < n)
            c[i] = _mm256_dpbusd_epi32(c[i], unsigned_32(w, data, k, i, n - i * 32), load_32(u + i * 32));
    }
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 8; i += 4) {
        const __m256i sums = sum_halves(c[i], c[i + 1], c[i + 2], c[i + 3]);
        const __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
        store_16(out + i, _mm_add_epi32(low, high));
    }
}

struct one_block { /* by unit and by row */
    int32_t c[BLOCK][UNITS][ROWS];
    float scale[BLOCK][ROW_GROUPS][ROWS];
};

struct rows_of_sums {
    int32_t c[ROWS][BLOCK][UNITS];
    float scale[ROWS][BLOCK][ROW_GROUPS];
};

/* Prefetches the data needed soon: the same columns of a later row, or the next columns after the block's last row. */
CPU_INLINE void prefetch_ahead(const struct k_weight_view *w, uint32_t row, uint32_t i, uint32_t k, uint32_t n)
{
    const bool is_in_row_block = i + AHEAD < ROWS, has_more = k + BLOCK * CHUNK < w->n_cols;
    const uint32_t next = is_in_row_block || !has_more ? row + i + AHEAD : row + i + AHEAD - ROWS;
    prefetch_chunk(w, K_PACKING_PLANES, next,
                   is_in_row_block ? k
                   : has_more      ? k + BLOCK * CHUNK
                                   : k % (BLOCK * CHUNK),
                   n);
}

/* Computes columns [k, stop), row by row as they lie in memory. */
CPU_INLINE void fill_rows(const struct k_weight_view *w, const uint8_t *u, uint32_t row, uint32_t last, uint32_t k,
                          uint32_t stop, struct rows_of_sums *rows)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t r = row + i < last ? row + i : last;
        for (uint32_t b = 0, at = k; at < stop; b++, at += CHUNK) {
            const uint32_t n = stop - at < CHUNK ? stop - at : CHUNK;
            prefetch_ahead(w, row, i, at, n);
            if (n == CHUNK) { /* without branches */
                row_products(w, r, at, CHUNK, u + (at - k), rows->c[i][b]);
                unpack_scales(w, K_PACKING_PLANES, r, at, CHUNK, rows->scale[i][b], NULL);
                continue;
            }
            row_products(w, r, at, n, u + (at - k), rows->c[i][b]);
            unpack_scales(w, K_PACKING_PLANES, r, at, n, rows->scale[i][b], NULL);
        }
    }
}

CPU_INLINE void fill_one(const struct k_weight_view *w, const struct inputs *in, uint32_t row, uint32_t last,
                         uint32_t k, struct one_block *out)
{
    struct rows_of_sums rows;
    uint8_t u[BLOCK * CHUNK];
    const uint32_t stop = w->n_cols - k < BLOCK * CHUNK ? w->n_cols : k + BLOCK * CHUNK, group = w->format.group;
    for (uint32_t i = 0; i < stop - k; i += 32)
        store_32((int8_t *)u + i,
                 _mm256_xor_si256(load_32((const uint8_t *)in->u + k + i), _mm256_set1_epi8((char)OFFSET)));
    fill_rows(w, u, row, last, k, stop, &rows);
    for (uint32_t b = 0, at = k; at < stop; b++, at += CHUNK) {
        const uint32_t n = stop - at < CHUNK ? stop - at : CHUNK;
        const uint32_t n_groups = group ? (at + n - 1) / group - at / group + 1 : 1;
        turn(rows.c[0][b], sizeof rows.c[0], UNITS, out->c[b]);
        turn(rows.scale[0][b], sizeof rows.scale[0], (n_groups + 3) / 4 * 4, out->scale[b]);
        for (uint32_t i = 0; i * 32 < n; i++) {
            const float *half = in->sum + at / 16 + i * 2;
            const int sum = (int)(half[0] + half[1]) * plane_offset(w->format);
            store_ints(out->c[b][i], _mm512_sub_epi32(load_ints(out->c[b][i]), _mm512_set1_epi32(sum)));
        }
    }
}

/* Returns a run's sum and, at the end of the run, adds its term to y. */
CPU_INLINE floats add_run(const struct one_block *block, const struct cpu_quant_run *run, const struct inputs *in,
                          ints *open, floats y)
{
    const uint32_t b = run->column / CHUNK % BLOCK;
    ints c = *open;
    for (uint32_t s = run->step; s < run->step + (uint32_t)run->n_steps; s += 8)
        c = _mm512_add_epi32(c, load_ints(block->c[b][s / 8]));
    *open = run->ends ? _mm512_setzero_si512() : c;
    if (!run->ends)
        return y;
    const floats d = _mm512_set1_ps(in->scale[run->scale]);
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(block->scale[b][run->group]), d), _mm512_cvtepi32_ps(c), y);
}

static void planes_one(const struct cpu_gemm *g, const struct host_part *part, uint32_t row, uint32_t n_rows)
{
    struct one_block block;
    float sums[K_SEGMENTS][ROWS];
    const struct inputs in = inputs_at(g, 0);
    ints open = _mm512_setzero_si512();
    floats y = _mm512_setzero_ps();
    for (uint32_t i = 0; i < g->n_segments; i++)
        for (uint32_t j = 0; j < ROWS; j++)
            sums[i][j] = CPU_NO_TERM;
    for (uint32_t i = 0; i < g->n_runs; i++) {
        const struct cpu_quant_run *run = &g->runs[i];
        if (run->column % (BLOCK * CHUNK) == 0)
            fill_one(&part->view, &in, row, row + n_rows - 1, run->column, &block);
        y = add_run(&block, run, &in, &open, y);
        if (i + 1 == g->n_runs || run[1].segment != run->segment) {
            _mm512_storeu_ps(sums[run->segment], y);
            y = _mm512_setzero_ps();
        }
    }
    if (g->n_segments > 1)
        cpu_sum_segments(sums[0], ROWS, ROWS);
    const float *bias = g->args.bias_dev ? g->args.bias_dev + part->first_row + row : NULL;
    for (uint32_t j = 0; j < n_rows; j++)
        g->args.y_dev[part->first_row + row + j] = bias ? sums[0][j] + bias[j] : sums[0][j];
}

/* Returns whether runs are whole units and all rows subtract the same number. */
static bool is_for_one(const struct cpu_gemm *g, const struct host_part *part)
{
    return !part->view.zero_points && g->args.unit % 32 == 0 && part->view.format.group % 32 == 0;
}
#endif

/* ---- rows -------------------------------------------------------------------------------------------- */

CPU_INLINE void part_rows(const struct cpu_gemm *g, const struct host_part *part, const enum k_packing packing,
                          uint32_t begin, uint32_t end)
{
    const uint32_t n_tokens = g->args.n_tokens;
    uint32_t block = (uint32_t)(X_BLOCK_BYTES / (CPU_QUANT_INPUT_WORDS(padded(&g->args)) * 4)) / PASS * PASS;
    block = block < PASS ? PASS : block;
    if (n_tokens == 1 && packing != K_PACKING_PLANES && CPU_NAME(cpu_gemm_int8_one)(g, part, begin, end))
        return;
#if defined(__AVX512VNNI__)
    if (n_tokens == 1 && packing == K_PACKING_PLANES && is_for_one(g, part)) {
        for (uint32_t row = begin; row < end; row += ROWS)
            planes_one(g, part, row, end - row < ROWS ? end - row : ROWS);
        return;
    }
#endif
    for (uint32_t from = 0; from < n_tokens; from += block) {
        const uint32_t to = n_tokens - from < block ? n_tokens : from + block;
        for (uint32_t row = begin; row < end; row += CPU_REPACKED_ROWS)
            for (uint32_t t = from; t < to; t += PASS)
                repacked_pass(g, part, packing, row, end - row < CPU_REPACKED_ROWS ? end - row : CPU_REPACKED_ROWS, t,
                              to - t < PASS ? to : t + PASS);
    }
}

/* One copy for each format. */
#define PART_ROWS(packing) \
    static void part_##packing(const struct cpu_gemm *g, const struct host_part *part, uint32_t b, uint32_t e) \
    { \
        part_rows(g, part, K_PACKING_##packing, b, e); \
    }
CPU_QUANT_PACKINGS(PART_ROWS)
#define PART_ENTRY(packing) [K_PACKING_##packing] = part_##packing,
static void (*const part_fns[K_N_PACKINGS])(const struct cpu_gemm *g, const struct host_part *part, uint32_t b,
                                            uint32_t e) = {CPU_QUANT_PACKINGS(PART_ENTRY)};

/* Row blocks are not divided: a block belongs to the piece that has its first row. */
static uint32_t repacked_end(const struct host_part *part, uint32_t row)
{
    const uint32_t end = (row + CPU_REPACKED_ROWS - 1) / CPU_REPACKED_ROWS * CPU_REPACKED_ROWS;
    return !part->repacked ? row : end < part->view.n_rows ? end : part->view.n_rows;
}

void CPU_NAME(cpu_gemm_int8)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *g = context;
    const struct k_weight *w = g->args.weight;
    uint32_t begin, end;
    for (uint32_t p = g->first_part; p < g->last_part; p++) {
        const struct host_part *part = &w->parts[p];
        if (host_part_share(w, part, CPU_REPACKED_ROWS, piece, &begin, &end))
            part_fns[part->view.format.packing](g, part, repacked_end(part, begin), repacked_end(part, end));
    }
#if defined(CPU_AMX_INT8)
    amx_release();
#endif
}
