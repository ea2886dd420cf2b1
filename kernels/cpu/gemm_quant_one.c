/* One token with repacked rows in the int8 form (docs/internals/numerics.md §19). Each load reads four columns of up to
 * 16 rows, as unsigned n = q + z, and multiplies them by four u that are broadcast over the register. A lane is a row's
 * sum, so no addition along the register is needed, and Σ q u = Σ n u - z Σ u. A group's sum is less than 2^24, so both
 * are also exact as floats. All reads form one stream. A group of 16 rows of Q4_0 takes 288 bytes and 40 instructions.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quant/repacked_rows.h"
#include "kernels/cpu/quant/rows.h"

/* The sums of 16 rows during a pass over the columns. */
struct walk {
    const struct cpu_gemm *g;
    const float *scale, *sum; /* the activations' scales and sums, by 32 columns and segment, and by 16 columns */
    uint32_t column, segment;
    floats y[HALVES];
    float (*sums)[CPU_REPACKED_ROWS]; /* of finished segments */
};

/* Finishes the segments that end before the column. */
static __attribute__((noinline, cold)) void next_segment(struct walk *w)
{
    while (w->column == w->g->column[w->segment + 1]) {
        const bool is_empty = w->g->column[w->segment] == w->column;
        for (uint32_t h = 0; h < HALVES; h++) {
            OP(storeu_ps)(w->sums[w->segment] + h * ROWS, is_empty ? OP(set1_ps)(CPU_NO_TERM) : w->y[h]);
            w->y[h] = OP(setzero_ps)();
        }
        if (++w->segment == w->g->n_segments)
            return;
    }
}

#if defined(__AVX512VNNI__)
#define LESSENED 0 /* whether n of 8 bits is converted to q */
/* Returns the products with u of each lane's bytes, summed over steps [s, s + n). */
CPU_INLINE ints dot_group(struct repacked_chunk c, const enum k_packing packing, const uint32_t s, const uint32_t n,
                          const uint32_t *u)
{
    ints dot = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (uint32_t i = s; i < s + n; i++)
        dot = _mm512_dpbusd_epi32(dot, repacked_bytes(c, packing, i), spread(u + i));
    return dot;
}
#else
#define LESSENED has_bytes(packing)
/* Returns how many steps' pairs fit a sum of 16 bits (quant/pairs.h). Q8_0's n u would saturate. */
CPU_INLINE uint32_t steps_of_16_bits(const enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0:
    case K_PACKING_IQ4_NL:
    case K_PACKING_IQ4_XS: return 1;
    case K_PACKING_Q6_K: return 2;
    case K_PACKING_MXFP4:
    case K_PACKING_Q5_0:
    case K_PACKING_Q5_1:
    case K_PACKING_Q5_K: return 4;
    default: return 8;
    }
}

CPU_INLINE ints dot_group(struct repacked_chunk c, const enum k_packing packing, const uint32_t s, const uint32_t n,
                          const uint32_t *u)
{
    const uint32_t most = steps_of_16_bits(packing);
    ints dot = _mm256_setzero_si256(), pairs = dot;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n; i++) {
        const ints q = repacked_bytes(c, packing, s + i), by = spread(u + s + i);
        if (LESSENED) {
            const ints lessened = _mm256_xor_si256(q, _mm256_set1_epi8((char)0x80));
            pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(lessened), _mm256_sign_epi8(by, lessened));
        } else {
            const ints some = _mm256_maddubs_epi16(q, by);
            pairs = i % most == 0 ? some : _mm256_add_epi16(pairs, some);
        }
        if ((i + 1) % most == 0 || i + 1 == n)
            dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return dot;
}
#endif

/* Returns the h-th register of 16 repacked rows. */
CPU_INLINE struct repacked_chunk half_of(struct repacked_chunk c, const uint32_t h)
{
    return (struct repacked_chunk){c.halves + h * ROWS * 2, c.words + h * ROWS * 4};
}

/* Adds group j of a chunk. */
CPU_INLINE void add_group(struct walk *w, struct repacked_chunk c, const enum k_packing packing, const uint32_t j,
                          const uint32_t *u)
{
    const uint32_t n_steps = has_sixteens(packing) ? 4 : 8;
    const int z = LESSENED ? 0 : offset_of(packing);
    ints dot[HALVES];
#pragma GCC unroll 2
    for (uint32_t h = 0; h < HALVES; h++)
        dot[h] = dot_group(half_of(c, h), packing, j * n_steps, n_steps, u);
    if (w->column == w->g->column[w->segment + 1])
        next_segment(w);
    const float *half = w->sum + w->column / 16;
    const floats sum = OP(set1_ps)(n_steps == 8 ? half[0] + half[1] : half[0]);
    const floats d = OP(set1_ps)(w->scale[w->column / 32 + w->segment]);
#pragma GCC unroll 2
    for (uint32_t h = 0; h < HALVES; h++) {
        floats f = OP(cvtepi32_ps)(dot[h]);
        if (z != 0)
            f = OP(fnmadd_ps)(OP(set1_ps)((float)z), sum, f);
        w->y[h] = OP(fmadd_ps)(OP(mul_ps)(repacked_scale(half_of(c, h), packing, j), d), f, w->y[h]);
        if (has_least(packing))
            w->y[h] = OP(fmadd_ps)(OP(mul_ps)(repacked_least(half_of(c, h), packing, j), d), sum, w->y[h]);
    }
    w->column += n_steps * 4;
}

/* Prefetches a share of a later chunk's bytes while group j is computed. */
CPU_INLINE void fetch_group(const struct repacked_chunk c, const enum k_packing packing, const uint32_t j,
                            uint32_t bytes)
{
    const uint32_t groups = CPU_REPACKED_CHUNK / (has_sixteens(packing) ? 16 : 32);
    fetch_ahead(c.halves + j * bytes / groups, bytes / groups + 63);
}

/* Adds a chunk of n columns. `bytes` is the size of a whole chunk. */
CPU_INLINE void add_chunk(struct walk *w, const struct repacked_chunk c, const enum k_packing packing, uint32_t n,
                          const uint32_t *from, uint32_t bytes)
{
    uint32_t u[CPU_REPACKED_CHUNK / 4];
    const __m256i offset = _mm256_set1_epi8((char)OFFSET);
    for (uint32_t i = 0; i < n / 4; i += 8)
        _mm256_storeu_si256((void *)(u + i), _mm256_xor_si256(_mm256_loadu_si256((const void *)(from + i)), offset));
    /* Two loops whose bounds a compiler knows without optimization; otherwise it may not unroll them. */
    if (has_sixteens(packing)) {
#pragma GCC unroll 16
        for (uint32_t j = 0; j < CPU_REPACKED_CHUNK / 16; j++)
            if (j * 16 < n) {
                fetch_group(c, packing, j, bytes);
                add_group(w, c, packing, j, u);
            }
    } else {
#pragma GCC unroll 8
        for (uint32_t j = 0; j < CPU_REPACKED_CHUNK / 32; j++)
            if (j * 32 < n) {
                fetch_group(c, packing, j, bytes);
                add_group(w, c, packing, j, u);
            }
    }
}

CPU_INLINE void rows_one(const struct cpu_gemm *g, const struct host_part *part, const enum k_packing packing,
                         uint32_t row, uint32_t n_rows)
{
    const uint32_t n_cols = part->view.n_cols, n_whole = n_cols / CPU_REPACKED_CHUNK * CPU_REPACKED_CHUNK;
    const struct inputs in = inputs_at(g, 0);
    float sums[K_SEGMENTS][CPU_REPACKED_ROWS];
    struct walk w = {.g = g, .scale = in.scale, .sum = in.sum, .sums = sums};
    for (uint32_t h = 0; h < HALVES; h++)
        w.y[h] = OP(setzero_ps)();
    const uint32_t bytes = cpu_repacked_chunk_bytes(k_blocks_of(packing),
                                                    CPU_REPACKED_CHUNK / k_blocks_of(packing)->columns);
    struct repacked_chunk c = repacked_chunk_at(part, row, 0, CPU_REPACKED_CHUNK);
    for (uint32_t k = 0; k < n_whole; k += CPU_REPACKED_CHUNK) {
        add_chunk(&w, c, packing, CPU_REPACKED_CHUNK, in.u + k / 4, bytes);
        c.halves += bytes;
        c.words += bytes;
    }
    if (n_whole < n_cols) {
        c = repacked_chunk_at(part, row, n_whole, n_cols - n_whole);
        add_chunk(&w, c, packing, n_cols - n_whole, in.u + n_whole / 4, bytes);
    }
    next_segment(&w);
    if (g->n_segments > 1)
        cpu_sum_segments(sums[0], CPU_REPACKED_ROWS, CPU_REPACKED_ROWS);
    const uint32_t first = part->first_row + row;
    for (uint32_t j = 0; j < n_rows; j++)
        g->args.y_dev[first + j] = g->args.bias_dev ? sums[0][j] + g->args.bias_dev[first + j] : sums[0][j];
}

/* One copy for each format. */
#define ROWS_ONE(packing) \
    static void one_##packing(const struct cpu_gemm *g, const struct host_part *part, uint32_t row, uint32_t n_rows) \
    { \
        rows_one(g, part, K_PACKING_##packing, row, n_rows); \
    }
CPU_REPACKED_PACKINGS(ROWS_ONE)
#define ONE_ENTRY(packing) [K_PACKING_##packing] = one_##packing,
static void (*const one_fns[K_N_PACKINGS])(const struct cpu_gemm *g, const struct host_part *part, uint32_t row,
                                           uint32_t n_rows) = {CPU_REPACKED_PACKINGS(ONE_ENTRY)};

bool CPU_NAME(cpu_gemm_int8_one)(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    const enum k_packing packing = part->view.format.packing;
    if (g->args.unit % (has_sixteens(packing) ? 16 : 32) != 0)
        return false;
    for (uint32_t row = begin; row < end; row += CPU_REPACKED_ROWS)
        one_fns[packing](g, part, row, end - row < CPU_REPACKED_ROWS ? end - row : CPU_REPACKED_ROWS);
    return true;
}
