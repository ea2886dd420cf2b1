#include "tools/quantize/methods/dense.h"

#include "engine/model/quantization/row_threads.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef float lanes __attribute__((vector_size(64), aligned(4)));
#define LANES 16u
#define ROWS 8u /* in a tile of c */
#define COLUMNS (2 * LANES)
#define DEPTH 256u /* terms of a sum before it is added to c: packed pieces of a and b stay in the cache */
#define PANEL 64u /* rows of a factorization that are computed one by one */
#define INVERSE_COLUMNS 128u /* a thread's unit of an inverse */

/* The best instructions that the machine has. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define HAS_32_REGISTERS __builtin_cpu_supports("avx512f")
#else
#define CLONES
#define HAS_32_REGISTERS false
#endif

/* Rows [first, first + n) of a tile. */
static inline __attribute__((always_inline)) void tile_rows(const float *a, const lanes *b, uint32_t depth,
                                                            float factor, float *c, uint64_t c_stride, uint32_t first,
                                                            const uint32_t n)
{
    lanes sums[ROWS][2] = {{{0}}};
    for (uint32_t t = 0; t < depth; t++, a += ROWS, b += 2) {
        const lanes b0 = b[0], b1 = b[1];
#pragma GCC unroll 8
        for (uint32_t r = 0; r < n; r++) {
            sums[r][0] += a[first + r] * b0;
            sums[r][1] += a[first + r] * b1;
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < n; r++) {
        lanes *row = (lanes *)(void *)(c + (first + r) * c_stride);
        row[0] += factor * sums[r][0];
        row[1] += factor * sums[r][1];
    }
}

/* c += factor · a^T b for a tile of ROWS rows and COLUMNS columns. a: [depth, ROWS], b: [depth, COLUMNS], packed. As
 * many sums as have registers are computed at once: 16 of 64 bytes, or 8 of 32 bytes. */
CLONES static void tile(const float *a, const lanes *b, uint32_t depth, float factor, float *c, uint64_t c_stride)
{
    if (HAS_32_REGISTERS)
        tile_rows(a, b, depth, factor, c, c_stride, 0, ROWS);
    else
        for (uint32_t r = 0; r < ROWS; r += 2)
            tile_rows(a, b, depth, factor, c, c_stride, r, 2);
}

/* Columns [first, first + width) of rows [t, t + depth) of x, each piece of `width` behind the one before. */
static void pack(const float *x, uint64_t stride, uint32_t t, uint32_t depth, uint32_t first, uint32_t width,
                 float *out)
{
    for (uint32_t i = 0; i < depth; i++)
        memcpy(out + (uint64_t)i * width, x + (t + i) * stride + first, width * sizeof *out);
}

static void edge(const struct dense_product *p, uint32_t i, uint32_t j, uint32_t first, uint32_t end)
{
    float sum = 0;
    for (uint32_t t = first; t < end; t++)
        sum += p->a[t * p->a_stride + i] * p->b[t * p->b_stride + j];
    p->c[i * p->c_stride + j] += p->factor * sum;
}

/* Whole tiles of rows [begin, end) and of columns before n_columns. */
static void add_tiles(const struct dense_product *p, uint32_t begin, uint32_t end, uint32_t n_columns, uint32_t t,
                      uint32_t depth)
{
    float a[DENSE_BLOCK / ROWS][DEPTH * ROWS], b[DEPTH * COLUMNS];
    for (uint32_t i = begin; i < end; i += ROWS)
        pack(p->a, p->a_stride, t, depth, i, ROWS, a[(i - begin) / ROWS]);
    for (uint32_t j = 0; j < n_columns; j += COLUMNS) {
        pack(p->b, p->b_stride, t, depth, j, COLUMNS, b);
        for (uint32_t i = begin; i < end; i += ROWS)
            tile(a[(i - begin) / ROWS], (const lanes *)(const void *)b, depth, p->factor, p->c + i * p->c_stride + j,
                 p->c_stride);
    }
}

void dense_add_product(const struct dense_product *p)
{
    const uint32_t rows = p->m - p->m % ROWS, columns = p->n - p->n % COLUMNS;
    for (uint32_t t = 0; t < p->k; t += DEPTH) {
        const uint32_t depth = p->k - t < DEPTH ? p->k - t : DEPTH;
        for (uint32_t i = 0; i < rows; i += DENSE_BLOCK)
            add_tiles(p, i, rows - i < DENSE_BLOCK ? rows : i + DENSE_BLOCK, columns, t, depth);
        for (uint32_t i = 0; i < p->m; i++)
            for (uint32_t j = i < rows ? columns : 0; j < p->n; j++)
                edge(p, i, j, t, t + depth);
    }
}

void dense_add_square(const float *x, uint32_t k, uint32_t n, float *c, uint32_t first, uint32_t step)
{
    for (uint32_t block = first; block * DENSE_BLOCK < n; block += step) {
        const uint32_t i = block * DENSE_BLOCK, m = n - i < DENSE_BLOCK ? n - i : DENSE_BLOCK;
        const struct dense_product p = {x + i, x + i, c + (uint64_t)i * n + i, n, n, n, m, n - i, k, 1};
        dense_add_product(&p);
    }
}

void dense_mirror(float *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            c[(uint64_t)i * n + j] = c[(uint64_t)j * n + i];
}

/* ---- Cholesky ----------------------------------------------------------------------------------------------------- */

/* A factorization, shared by threads. */
struct factorization {
    float *a; /* [n, n]: the matrix, then r */
    float *inverse; /* [n, n] */
    uint32_t n, n_threads;
    uint32_t at, m; /* the panel has rows [at, at + m) */
};

/* Subtracts the panel's rows above from row i, times their elements of column i, in columns [first, end). */
CLONES static void eliminate(const struct factorization *f, uint32_t i, uint32_t first, uint32_t end)
{
    float *row = f->a + (uint64_t)i * f->n;
    for (uint32_t k = f->at; k < i; k++) {
        const float *above = f->a + (uint64_t)k * f->n, factor = above[i];
        for (uint32_t j = first; j < end; j++)
            row[j] -= factor * above[j];
    }
}

/* Factors the panel's diagonal block. */
static int factor_diagonal(const struct factorization *f, struct quire_error *err)
{
    for (uint32_t i = f->at; i < f->at + f->m; i++) {
        float *row = f->a + (uint64_t)i * f->n;
        eliminate(f, i, i, f->at + f->m);
        if (!(row[i] > 0) || !isfinite(row[i]))
            return quire_fail(err, QUIRE_INVALID,
                              "the Hessian of the calibration's activations is singular at column "
                              "%u: raise --damp, or calibrate with more text",
                              i);
        const float inverse = 1 / sqrtf(row[i]);
        for (uint32_t j = i; j < f->at + f->m; j++)
            row[j] *= inverse;
    }
    return QUIRE_OK;
}

/* Factors columns [first, end) to the right of the panel's diagonal block. */
static void factor_right(void *context, uint32_t share, uint32_t first, uint32_t end)
{
    const struct factorization *f = context;
    (void)share;
    for (uint32_t i = f->at; i < f->at + f->m; i++) {
        float *row = f->a + (uint64_t)i * f->n;
        const uint32_t right = f->at + f->m;
        eliminate(f, i, right + first, right + end);
        const float inverse = 1 / row[i];
        for (uint32_t j = right + first; j < right + end; j++)
            row[j] *= inverse;
    }
}

/* Updates the rows below the panel: each thread has every n-th block, since the first blocks are the longest. */
static void update_below(void *context, uint32_t share, uint32_t first, uint32_t end)
{
    const struct factorization *f = context;
    const uint64_t n = f->n;
    (void)share;
    for (uint32_t thread = first; thread < end; thread++)
        for (uint64_t i = f->at + f->m + thread * PANEL; i < n; i += f->n_threads * PANEL) {
            const float *right = f->a + f->at * n + i;
            const uint32_t m = (uint32_t)(n - i < PANEL ? n - i : PANEL);
            const struct dense_product p = {right, right, f->a + i * n + i, n, n, n, m, (uint32_t)(n - i), f->m, -1};
            dense_add_product(&p);
        }
}

/* a = r^T r; r replaces the upper triangle. */
static int cholesky(struct factorization *f, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (f->at = 0; status == QUIRE_OK && f->at < f->n; f->at += PANEL) {
        f->m = f->n - f->at < PANEL ? f->n - f->at : PANEL;
        status = factor_diagonal(f, err);
        if (status != QUIRE_OK || f->at + f->m == f->n)
            continue;
        row_threads_run(f->n - f->at - f->m, LANES, UINT64_MAX / 2, f->n_threads, factor_right, f);
        row_threads_run(f->n_threads, 1, UINT64_MAX / 2, f->n_threads, update_below, f);
    }
    return status;
}

/* Rows [at, at + m) of columns [first, first + width), whose products with the rows above are subtracted. */
CLONES static void solve_rows(const struct factorization *f, uint32_t at, uint32_t m, uint32_t first, uint32_t width)
{
    for (uint32_t i = at; i < at + m; i++) {
        float *row = f->inverse + (uint64_t)i * f->n + first;
        if (i >= first && i - first < width)
            row[i - first] = 1;
        for (uint32_t k = at; k < i; k++) {
            const float *above = f->inverse + (uint64_t)k * f->n + first, factor = f->a[(uint64_t)k * f->n + i];
            for (uint32_t j = 0; j < width; j++)
                row[j] -= factor * above[j];
        }
        const float inverse = 1 / f->a[(uint64_t)i * f->n + i];
        for (uint32_t j = 0; j < width; j++)
            row[j] *= inverse;
    }
}

/* The inverse of the lower triangular r^T: columns do not depend on each other, and have zeros above the diagonal. */
static void invert_columns(void *context, uint32_t share, uint32_t first_thread, uint32_t end_thread)
{
    const struct factorization *f = context;
    const uint64_t n = f->n;
    (void)share;
    for (uint32_t thread = first_thread; thread < end_thread; thread++)
        for (uint32_t first = thread * INVERSE_COLUMNS; first < n; first += f->n_threads * INVERSE_COLUMNS) {
            const uint32_t width = (uint32_t)(n - first < INVERSE_COLUMNS ? n - first : INVERSE_COLUMNS);
            for (uint32_t at = first; at < n; at += PANEL) {
                const uint32_t m = (uint32_t)(n - at < PANEL ? n - at : PANEL);
                const struct dense_product p = {f->a + first * n + at,
                                                f->inverse + first * n + first,
                                                f->inverse + at * n + first,
                                                n,
                                                n,
                                                n,
                                                m,
                                                width,
                                                at - first,
                                                -1};
                dense_add_product(&p);
                solve_rows(f, at, m, first, width);
            }
        }
}

/* Element (i, j) and element (n − 1 − i, n − 1 − j) change places. */
static void reverse(float *a, uint32_t n)
{
    for (uint64_t i = 0, last = (uint64_t)n * n - 1; i < last - i; i++) {
        const float x = a[i];
        a[i] = a[last - i];
        a[last - i] = x;
    }
}

/* With J reversing the order, J h J = r^T r gives h^-1 = u^T u for u = J r^-T J, which is upper triangular. */
int dense_inverse_factor(float *h, uint32_t n, float *scratch, uint32_t n_threads, struct quire_error *err)
{
    struct factorization f = {.a = h, .inverse = scratch, .n = n};
    f.n_threads = n_threads < ROW_THREADS_MAX ? n_threads : ROW_THREADS_MAX;
    reverse(h, n);
    int status = cholesky(&f, err);
    if (status != QUIRE_OK)
        return status;
    memset(scratch, 0, (uint64_t)n * n * sizeof *scratch);
    row_threads_run(f.n_threads, 1, UINT64_MAX / 2, f.n_threads, invert_columns, &f);
    reverse(scratch, n);
    memcpy(h, scratch, (uint64_t)n * n * sizeof *h);
    return QUIRE_OK;
}
