/* One token against panels in the int8 form (docs/numerics.md §19). Each load brings four columns of ROWS rows, as unsigned n = q + z,
 * and meets four u that are spread over the register: a lane is a row's sum, nothing is added up along the register, and
 * Σ q u = Σ n u - z Σ u. A group's sum is less than 2^24, so that both are exact as floats, too. All that is read is one stream; of
 * Q4_0 a group of 16 rows is 288 bytes and 40 instructions.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quant_rows.h"

/* The sums of ROWS rows on their way through the columns. */
struct walk {
    const struct cpu_gemm *g;
    const float *scale, *sum; /* of the activations, by 32 columns and segment, and by 16 columns */
    uint32_t column, segment;
    floats y;
    float (*sums)[ROWS]; /* of segments that have ended */
};

/* The segments that end before the column. */
static __attribute__((noinline, cold)) void next_segment(struct walk *w)
{
    while (w->column == w->g->column[w->segment + 1]) {
        OP(storeu_ps)(w->sums[w->segment], w->g->column[w->segment] == w->column ? OP(set1_ps)(CPU_NO_TERM) : w->y);
        w->y = OP(setzero_ps)();
        if (++w->segment == w->g->n_segments)
            return;
    }
}

/* c + Σ over each lane's four bytes, n unsigned. */
CPU_INLINE ints dot_unsigned(ints c, ints n, ints u, const enum k_packing packing)
{
#if defined(__AVX512VNNI__)
    (void)packing;
    return _mm512_dpbusd_epi32(c, n, u);
#else
    ints pairs;
    if (packing == K_PACKING_Q8_0) { /* n · u would saturate */
        const ints q = _mm256_xor_si256(n, _mm256_set1_epi8((char)0x80));
        pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(u, q));
    } else {
        pairs = _mm256_maddubs_epi16(n, u);
    }
    return _mm256_add_epi32(c, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

/* Adds group j of a chunk. */
CPU_INLINE void add_group(struct walk *w, struct panel_chunk c, const enum k_packing packing, const uint32_t j,
                          const uint32_t *u)
{
    const uint32_t n_steps = has_sixteens(packing) ? 4 : 8;
#if defined(__AVX512VNNI__)
    const int z = offset_of(packing);
#else
    const int z = packing == K_PACKING_Q8_0 ? 0 : offset_of(packing);
#endif
    ints dot = OP_SI(setzero)();
#pragma GCC unroll 8
    for (uint32_t s = j * n_steps; s < (j + 1) * n_steps; s++)
        dot = dot_unsigned(dot, panel_bytes(c, packing, s), spread(u + s), packing);
    if (w->column == w->g->column[w->segment + 1])
        next_segment(w);
    const float *half = w->sum + w->column / 16;
    const floats sum = OP(set1_ps)(n_steps == 8 ? half[0] + half[1] : half[0]);
    const floats d = OP(set1_ps)(w->scale[w->column / 32 + w->segment]);
    floats f = OP(cvtepi32_ps)(dot);
    if (z != 0)
        f = OP(fnmadd_ps)(OP(set1_ps)((float)z), sum, f);
    w->y = OP(fmadd_ps)(OP(mul_ps)(panel_scale(c, packing, j), d), f, w->y);
    if (has_least(packing))
        w->y = OP(fmadd_ps)(OP(mul_ps)(panel_least(c, packing, j), d), sum, w->y);
    w->column += n_steps * 4;
}

/* A chunk of n columns. */
CPU_INLINE void add_chunk(struct walk *w, const struct panel_chunk c, const enum k_packing packing, uint32_t n,
                          const uint32_t *from)
{
    uint32_t u[CPU_PANEL_CHUNK / 4];
    const __m256i offset = _mm256_set1_epi8((char)OFFSET);
    for (uint32_t i = 0; i < n / 4; i += 8)
        _mm256_storeu_si256((void *)(u + i), _mm256_xor_si256(_mm256_loadu_si256((const void *)(from + i)), offset));
    /* Two loops, whose ends a compiler knows without optimizing: else it may not unroll them. */
    if (has_sixteens(packing)) {
#pragma GCC unroll 16
        for (uint32_t j = 0; j < CPU_PANEL_CHUNK / 16; j++)
            if (j * 16 < n)
                add_group(w, c, packing, j, u);
    } else {
#pragma GCC unroll 8
        for (uint32_t j = 0; j < CPU_PANEL_CHUNK / 32; j++)
            if (j * 32 < n)
                add_group(w, c, packing, j, u);
    }
}

CPU_INLINE void rows_one(const struct cpu_gemm *g, const struct host_part *part, const enum k_packing packing,
                         uint32_t row, uint32_t n_rows)
{
    const uint32_t n_cols = part->view.n_cols, n_whole = n_cols / CPU_PANEL_CHUNK * CPU_PANEL_CHUNK;
    const struct inputs in = inputs_at(g, 0);
    float sums[K_SEGMENTS][ROWS];
    struct walk w = {.g = g, .scale = in.scale, .sum = in.sum, .y = OP(setzero_ps)(), .sums = sums};
    const uint32_t bytes = cpu_panel_chunk_bytes(k_blocks_of(packing), CPU_PANEL_CHUNK / k_blocks_of(packing)->columns);
    struct panel_chunk c = panel_chunk_at(part, row, 0, CPU_PANEL_CHUNK);
    for (uint32_t k = 0; k < n_whole; k += CPU_PANEL_CHUNK) {
        fetch_ahead(c, bytes);
        add_chunk(&w, c, packing, CPU_PANEL_CHUNK, in.u + k / 4);
        c.halves += bytes;
        c.words += bytes;
    }
    if (n_whole < n_cols) {
        c = panel_chunk_at(part, row, n_whole, n_cols - n_whole);
        fetch_ahead(c, bytes * (n_cols - n_whole) / CPU_PANEL_CHUNK);
        add_chunk(&w, c, packing, n_cols - n_whole, in.u + n_whole / 4);
    }
    next_segment(&w);
    if (g->n_segments > 1)
        cpu_sum_segments(sums[0], ROWS, ROWS);
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
CPU_PANEL_PACKINGS(ROWS_ONE)
#define ONE_ENTRY(packing) [K_PACKING_##packing] = one_##packing,
static void (*const one_fns[K_N_PACKINGS])(const struct cpu_gemm *g, const struct host_part *part, uint32_t row,
                                           uint32_t n_rows) = {CPU_PANEL_PACKINGS(ONE_ENTRY)};

bool CPU_NAME(cpu_gemm_int8_one)(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    const enum k_packing packing = part->view.format.packing;
    if (g->args.unit % (has_sixteens(packing) ? 16 : 32) != 0)
        return false;
    for (uint32_t row = begin; row < end; row += ROWS)
        one_fns[packing](g, part, row, end - row < ROWS ? end - row : ROWS);
    return true;
}
