/* The tile form by fma (docs/internals/numerics.md §6). A chain over k is serial, so a vector holds rows or tokens:
 * rows for few tokens, where weights must arrive at memory speed and a tile costs their transposition; tokens for many,
 * where the workspace holds transposed activations.
 *
 * The specification's flush of tiny numbers is the machine's flush-to-zero mode.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/simd/words.h"
#include "kernels/cpu/tile_split.h"

#define MXCSR_FLUSH 0x8040u /* flush denormal results and operands */

/* Sets the flush mode. Returns the previous mode. */
static unsigned flush_begin(void)
{
    unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | MXCSR_FLUSH);
    return saved;
}

/* Adds the sums of segments, with denormals kept. Not inline, like the kernels, so that no compiler moves arithmetic
 * across a change of the mode. */
static __attribute__((noinline)) void sum_kept(float *s, uint64_t stride, uint32_t n)
{
    cpu_sum_segments(s, stride, n);
}

static void sum_segments(const struct cpu_gemm *task, float *s, uint64_t stride, uint32_t n)
{
    unsigned flushing = _mm_getcsr();
    if (task->n_segments == 1)
        return;
    _mm_setcsr(flushing & ~MXCSR_FLUSH);
    sum_kept(s, stride, n);
    _mm_setcsr(flushing);
}

/* ---- a vector of rows ------------------------------------------------------------------------ */

#if defined(__AVX512F__)
#define MAX_COLUMNS 8u /* columns of x at once, one term of a token each. 16 sums, and 16 registers of weights */
#else
#define MAX_COLUMNS \
    4u /* 8 sums: 12 would need one register too many, and a sum in memory makes its chain twice as long */
#endif

/* Prefetch distance in each stream, in bytes. Two cores of Zen 4, one token, weights from memory, where the lane form
 * gets 62-67 GB/s: AVX2 17-32 without and 33-35 with it; AVX-512 32-38 and 35-40. The rest is arithmetic: one core
 * reaches 20 and 31 GB/s with weights in the cache. */
#define PREFETCH 512u

struct rows_job {
    const struct cpu_gemm *task;
    const unsigned char *rows[VEC_WIDTH];
    enum k_dtype dtype;
    uint32_t n_rows; /* rows that exist, n_rows <= VEC_WIDTH */
    uint32_t n_tokens, n_terms;
    const float *x; /* the first token's column in the first tile */
    uint64_t x_tile_floats; /* from tile to tile */
    float sums[K_SEGMENTS][MAX_COLUMNS][VEC_WIDTH]; /* of the tokens */
};

/* One link of the chains of every column: multiplies its activation by one k of the rows. */
CPU_INLINE void rows_step(vec sums[MAX_COLUMNS], vec w, const float *x, const uint32_t n_columns)
{
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n_columns; i++)
        sums[i] = vec_fma(w, vec_splat(x[i * TILE_DEPTH]), sums[i]);
}

/* n_columns = n_tokens * n_terms */
CPU_INLINE void rows_kernel(struct rows_job *j, const uint32_t segment, const uint32_t n_columns)
{
    const uint32_t w_terms = tile_weight_terms(j->dtype), end = j->task->column[segment + 1];
    vec c[MAX_COLUMNS], sums[2][MAX_COLUMNS];
    uint16_t staged[2][VEC_WIDTH][TILE_DEPTH];
    bool stage_all = w_terms > 1 || j->n_rows < VEC_WIDTH;
    const float *x = j->x + j->task->tile[segment] * j->x_tile_floats;
    for (uint32_t t = 0; t < MAX_COLUMNS; t++)
        c[t] = j->task->column[segment] < end ? vec_zero() : vec_splat(CPU_NO_TERM);
    if (stage_all)
        memset(staged, 0, sizeof staged);
    for (uint32_t column = j->task->column[segment]; column < end; column += TILE_DEPTH, x += j->x_tile_floats) {
        bool stage = stage_all || end - column < TILE_DEPTH;
        for (uint32_t i = 0; stage && i < j->n_rows; i++)
            tile_stage_row(j->rows[i], j->dtype, column, end, staged[0][i], staged[1][i]);
        for (uint32_t term = 0; term < w_terms; term++) {
            vec even[MAX_COLUMNS], odd[MAX_COLUMNS];
#pragma GCC unroll 8
            for (uint32_t i = 0; i < n_columns; i++)
                even[i] = odd[i] = vec_zero();
            for (uint32_t from = 0; from < TILE_DEPTH; from += 2 * VEC_WIDTH) {
                words w[VEC_WIDTH];
                if (stage) {
#pragma GCC unroll 16
                    for (uint32_t i = 0; i < VEC_WIDTH; i++)
                        w[i] = words_load(staged[term][i] + from);
                } else {
#pragma GCC unroll 16
                    for (uint32_t i = 0; i < VEC_WIDTH; i++) {
                        const uint16_t *weights = (const uint16_t *)(const void *)j->rows[i] + column;
                        w[i] = words_load(weights + from);
                        if (from == 0)
                            _mm_prefetch((const char *)weights + PREFETCH, _MM_HINT_T0);
                    }
                }
                words_transpose(w);
#pragma GCC unroll 16
                for (uint32_t p = 0; p < VEC_WIDTH; p++) {
                    const float *factors = x + from + 2 * p;
                    /* Otherwise compilers load all of the tile's activations first and spill them. */
                    __asm__ volatile("" : "+v"(w[p]) : : "memory");
                    rows_step(even, vec_even(w[p]), factors, n_columns);
                    __asm__ volatile("" : : : "memory");
                    rows_step(odd, vec_odd(w[p]), factors + 1, n_columns);
                }
            }
#pragma GCC unroll 8
            for (uint32_t i = 0; i < n_columns; i++)
                sums[term][i] = vec_add(even[i], odd[i]);
        }
        for (uint32_t t = 0; t < j->n_tokens; t++)
            for (uint32_t i = t * j->n_terms; i < (t + 1) * j->n_terms; i++)
                for (uint32_t term = 0; term < w_terms; term++)
                    c[t] = vec_add(c[t], sums[term][i]);
    }
    for (uint32_t t = 0; t < j->n_tokens; t++)
        vec_store(j->sums[segment][t], c[t]);
}

/* Not inline, so that no compiler moves arithmetic across a change of the mode. */
#define ROWS_KERNEL(n_columns) \
    static __attribute__((noinline)) void rows_##n_columns(struct rows_job *j) \
    { \
        for (uint32_t segment = 0; segment < j->task->n_segments; segment++) \
            rows_kernel(j, segment, n_columns); \
    }
ROWS_KERNEL(1)
ROWS_KERNEL(2)
ROWS_KERNEL(3)
ROWS_KERNEL(4)
#if defined(__AVX512F__)
ROWS_KERNEL(5)
ROWS_KERNEL(6)
ROWS_KERNEL(7)
ROWS_KERNEL(8)
#endif

static void run_rows(struct rows_job *j)
{
    switch (j->n_tokens * j->n_terms) {
    case 1: rows_1(j); break;
    case 2: rows_2(j); break;
    case 3: rows_3(j); break;
#if defined(__AVX512F__)
    case 4: rows_4(j); break;
    case 5: rows_5(j); break;
    case 6: rows_6(j); break;
    case 7: rows_7(j); break;
    default: rows_8(j); break;
#else
    default: rows_4(j); break;
#endif
    }
}

/* Computes up to VEC_WIDTH rows of a part for the n tokens of a group that is stored as floats. */
static void tile_row_block(const struct cpu_gemm *task, const struct host_part *part, struct rows_job *j,
                           const uint32_t *numbers, uint64_t group)
{
    const struct k_gemm_args *a = &task->args;
    const uint32_t first = (uint32_t)group * TILE_TOKENS, n = a->n_tokens - first;
    const uint32_t step = MAX_COLUMNS / task->n_terms;
    j->x_tile_floats = (uint64_t)n * task->n_terms * TILE_DEPTH;
    for (uint32_t t = 0; t < n; t += step) {
        j->n_tokens = n - t < step ? n - t : step;
        j->x = (const float *)(const void *)tile_group(task, group) + (uint64_t)t * task->n_terms * TILE_DEPTH;
        run_rows(j);
        sum_segments(task, j->sums[0][0], MAX_COLUMNS * VEC_WIDTH, j->n_tokens * VEC_WIDTH);
        for (uint32_t u = 0; u < j->n_tokens; u++) {
            float *y = a->y_dev + (uint64_t)(first + t + u) * a->weight->n_rows + part->first_row;
            for (uint32_t i = 0; i < j->n_rows; i++)
                y[numbers[i]] = j->sums[0][u][i];
        }
    }
}

/* The rows of a block are a run apart, as in the lane form: VEC_WIDTH long streams from memory. */
static void rows_part(const struct cpu_gemm *task, const struct host_part *part, uint32_t begin, uint32_t end,
                      uint64_t group)
{
    struct rows_job j;
    j.task = task;
    j.dtype = part->view.format.kind;
    j.n_terms = task->n_terms;
    uint32_t run = (end - begin) / VEC_WIDTH, numbers[VEC_WIDTH];
    for (uint32_t i = 0; i < run; i++) {
        j.n_rows = VEC_WIDTH;
        for (uint32_t r = 0; r < VEC_WIDTH; r++) {
            numbers[r] = begin + r * run + (i + r) % run;
            j.rows[r] = host_row(part, numbers[r]);
        }
        tile_row_block(task, part, &j, numbers, group);
    }
    j.n_rows = end - begin - run * VEC_WIDTH;
    for (uint32_t r = 0; r < j.n_rows; r++) {
        numbers[r] = begin + run * VEC_WIDTH + r;
        j.rows[r] = host_row(part, numbers[r]);
    }
    if (j.n_rows > 0)
        tile_row_block(task, part, &j, numbers, group);
}

/* ---- a vector of tokens ---------------------------------------------------------------------- */

#if defined(__AVX512F__)
#define ROWS 8u /* 16 sums and 8 of c in 32 registers */
#define TOKEN_VECS 1
#else
#define ROWS 3u /* 12 sums in 16 registers: each broadcast weight serves two vectors */
#define TOKEN_VECS 2
#endif
#define CHUNK_TILES 16u /* weights that are widened at once: 16 KiB, twice that for F16 */
#define MAX_GROUPS 8u
#define X_BYTES (512u << 10) /* activations that stay in the second-level cache while the rows are processed */

struct tokens_job {
    const float *w; /* [tile][term][row][k], widened */
    const uint32_t *x; /* [tile][term][pair][token] */
    float *c; /* the sum so far, [row][token] */
    uint32_t n_tiles, w_terms, x_terms;
};

/* One link of the chains of every row: multiplies its weight by one k of the tokens. */
CPU_INLINE void tokens_step(vec sums[ROWS][TOKEN_VECS], const float *w, const vec x[TOKEN_VECS])
{
#pragma GCC unroll 8
    for (uint32_t r = 0; r < ROWS; r++) {
        vec factor = vec_splat(w[r * TILE_DEPTH]);
        if (TOKEN_VECS > 1) /* one load for both vectors */
            __asm__("" : "+v"(factor));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < TOKEN_VECS; v++)
            sums[r][v] = vec_fma(factor, x[v], sums[r][v]);
    }
}

CPU_INLINE void tokens_kernel(const struct tokens_job *j)
{
    const uint32_t *x = j->x;
    const float *w_tile = j->w;
    vec c[ROWS][TOKEN_VECS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < TOKEN_VECS; v++)
            c[r][v] = vec_load(j->c + r * TILE_TOKENS + v * VEC_WIDTH);
    for (uint32_t tile = 0; tile < j->n_tiles; tile++) {
        for (uint32_t x_term = 0; x_term < j->x_terms; x_term++) {
            const float *w = w_tile;
            for (uint32_t w_term = 0; w_term < j->w_terms; w_term++) {
                vec even[ROWS][TOKEN_VECS], odd[ROWS][TOKEN_VECS];
#pragma GCC unroll 8
                for (uint32_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
                    for (uint32_t v = 0; v < TOKEN_VECS; v++)
                        even[r][v] = odd[r][v] = vec_zero();
#pragma GCC unroll 4
                for (uint32_t p = 0; p < TILE_PAIRS; p++) {
                    vec factors[TOKEN_VECS];
#pragma GCC unroll 2
                    for (uint32_t v = 0; v < TOKEN_VECS; v++)
                        factors[v] = vec_even(words_load(x + p * TILE_TOKENS + v * VEC_WIDTH));
                    tokens_step(even, w + 2 * p, factors);
                    if (TOKEN_VECS > 1) /* loaded again: keeping the words would spill a sum */
                        __asm__ volatile("" : : : "memory");
#pragma GCC unroll 2
                    for (uint32_t v = 0; v < TOKEN_VECS; v++)
                        factors[v] = vec_odd(words_load(x + p * TILE_TOKENS + v * VEC_WIDTH));
                    tokens_step(odd, w + 2 * p + 1, factors);
                }
#pragma GCC unroll 8
                for (uint32_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
                    for (uint32_t v = 0; v < TOKEN_VECS; v++)
                        c[r][v] = vec_add(c[r][v], vec_add(even[r][v], odd[r][v]));
                w += ROWS * TILE_DEPTH;
            }
            x += TILE_PAIRS * TILE_TOKENS;
        }
        w_tile += j->w_terms * ROWS * TILE_DEPTH;
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < TOKEN_VECS; v++)
            vec_store(j->c + r * TILE_TOKENS + v * VEC_WIDTH, c[r][v]);
}

static __attribute__((noinline)) void run_tokens(const struct tokens_job *j)
{
    tokens_kernel(j);
}

/* Widens n_tiles tiles, from this column on, of n_rows <= ROWS adjacent rows to floats. Missing rows, and columns from
 * `end` on, are zeros. */
static void widen(const struct host_part *part, uint32_t row, uint32_t n_rows, uint32_t first_column, uint32_t end,
                  uint32_t n_tiles, float *out)
{
    const uint32_t n_terms = tile_weight_terms(part->view.format.kind);
    if (n_rows < ROWS)
        memset(out, 0, (size_t)n_tiles * n_terms * ROWS * TILE_DEPTH * sizeof *out);
    for (uint32_t r = 0; r < n_rows; r++) {
        const unsigned char *data = host_row(part, row + r);
        for (uint32_t i = 0; i < n_tiles; i++) {
            uint16_t staged[2][TILE_DEPTH];
            uint32_t column = first_column + i * TILE_DEPTH;
            const uint16_t *terms = (const uint16_t *)(const void *)data + column;
            if (n_terms > 1 || end - column < TILE_DEPTH) {
                tile_stage_row(data, part->view.format.kind, column, end, staged[0], staged[1]);
                terms = staged[0];
            }
            for (uint32_t term = 0; term < n_terms; term++, terms += TILE_DEPTH) {
                float *to = out + ((uint64_t)(i * n_terms + term) * ROWS + r) * TILE_DEPTH;
                for (uint32_t k = 0; k < TILE_DEPTH; k += 8) {
                    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)(terms + k)));
                    _mm256_storeu_ps(to + k, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
                }
            }
        }
    }
}

/* Computes a segment of n_rows <= ROWS adjacent rows for the groups [first, first + n_groups). */
static void tokens_segment(const struct cpu_gemm *task, const struct host_part *part, uint32_t row, uint32_t n_rows,
                           uint32_t segment, uint64_t first, uint32_t n_groups, float c[MAX_GROUPS][ROWS * TILE_TOKENS])
{
    const uint32_t end_tile = task->tile[segment + 1], end = task->column[segment + 1];
    float w[CHUNK_TILES * 2 * ROWS * TILE_DEPTH];
    struct tokens_job j = {.w = w, .w_terms = tile_weight_terms(part->view.format.kind), .x_terms = task->n_terms};
    uint32_t column = task->column[segment];
    for (uint32_t g = 0; g < n_groups; g++)
        for (uint32_t i = 0; i < ROWS * TILE_TOKENS; i++)
            c[g][i] = column < end ? 0.0f : CPU_NO_TERM;
    for (uint32_t tile = task->tile[segment]; tile < end_tile; tile += CHUNK_TILES) {
        j.n_tiles = end_tile - tile < CHUNK_TILES ? end_tile - tile : CHUNK_TILES;
        widen(part, row, n_rows, column, end, j.n_tiles, w);
        for (uint32_t g = 0; g < n_groups; g++) {
            j.x = tile_group(task, first + g) + (uint64_t)tile * task->n_terms * TILE_PAIRS * TILE_TOKENS;
            j.c = c[g];
            run_tokens(&j);
        }
        column += CHUNK_TILES * TILE_DEPTH;
    }
}

/* Computes n_rows <= ROWS adjacent rows for the groups [first, first + n_groups). */
static void tokens_block(const struct cpu_gemm *task, const struct host_part *part, uint32_t row, uint32_t n_rows,
                         uint64_t first, uint32_t n_groups)
{
    const struct k_gemm_args *a = &task->args;
    float c[K_SEGMENTS][MAX_GROUPS][ROWS * TILE_TOKENS];
    for (uint32_t segment = 0; segment < task->n_segments; segment++)
        tokens_segment(task, part, row, n_rows, segment, first, n_groups, c[segment]);
    sum_segments(task, c[0][0], sizeof c[0] / sizeof(float), n_groups * ROWS * TILE_TOKENS);
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t token = (uint32_t)(first + g) * TILE_TOKENS;
        uint32_t n = a->n_tokens - token < TILE_TOKENS ? a->n_tokens - token : TILE_TOKENS;
        for (uint32_t t = 0; t < n; t++) {
            float *y = a->y_dev + (uint64_t)(token + t) * a->weight->n_rows + part->first_row + row;
            for (uint32_t r = 0; r < n_rows; r++)
                y[r] = c[0][g][r * TILE_TOKENS + t];
        }
    }
}

static void tokens_part(const struct cpu_gemm *task, const struct host_part *part, uint32_t begin, uint32_t end,
                        uint64_t n_groups)
{
    uint64_t group_bytes = (uint64_t)tile_count(task) * task->n_terms * TILE_PAIRS * TILE_TOKENS * 4;
    uint64_t step = X_BYTES / group_bytes;
    step = step < 2 ? 2 : step > MAX_GROUPS ? MAX_GROUPS : step;
    for (uint64_t g = 0; g < n_groups; g += step) {
        uint32_t n = (uint32_t)(n_groups - g < step ? n_groups - g : step);
        for (uint32_t row = begin; row < end; row += ROWS)
            tokens_block(task, part, row, end - row < ROWS ? end - row : ROWS, g, n);
    }
}

/* ---- the pool's functions -------------------------------------------------------------------- */

void CPU_NAME(cpu_tile_split)(void *context, struct k_piece piece)
{
    tile_split(context, TILE_TOKENS, TILE_FLOAT_TOKENS, piece);
}

void CPU_NAME(cpu_gemm_tile)(void *context, struct k_piece piece)
{
    const struct cpu_gemm *task = context;
    const struct k_weight *w = task->args.weight;
    uint32_t rest = task->args.n_tokens % TILE_TOKENS, begin, end;
    bool few = rest > 0 && rest <= TILE_FLOAT_TOKENS;
    uint64_t n_groups = (task->args.n_tokens + TILE_TOKENS - 1) / TILE_TOKENS - few;
    unsigned mode = flush_begin();
    for (uint32_t p = 0; p < w->n_parts; p++) {
        if (!host_part_share(w, &w->parts[p], TILE_SHARE_ROWS, piece, &begin, &end))
            continue;
        tokens_part(task, &w->parts[p], begin, end, n_groups);
        if (few)
            rows_part(task, &w->parts[p], begin, end, n_groups);
    }
    _mm_setcsr(mode);
    for (uint32_t p = 0; p < w->n_parts; p++)
        if (host_part_share(w, &w->parts[p], TILE_SHARE_ROWS, piece, &begin, &end))
            tile_add_bias(&task->args, &w->parts[p], begin, end);
}
