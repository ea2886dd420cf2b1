#include "tools/quantize/methods/dense.h"

#include <math.h>
#include <string.h>

typedef float lanes __attribute__((vector_size(64), aligned(4)));
#define LANES 16u
#define ROWS 4u /* of a tile of c; with COLUMNS, 8 sums stay in registers */
#define COLUMNS (2 * LANES)
#define DEPTH 256u /* terms of a sum before it is added to c: packed pieces of a and b stay in the cache */

/* The best instructions that the machine has. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* c += factor · a^T b for a tile of ROWS rows and COLUMNS columns. a: [depth, ROWS], b: [depth, COLUMNS], packed. */
CLONES static void tile(const float *a, const lanes *b, uint32_t depth, float factor, float *c, uint64_t c_stride)
{
    lanes sums[ROWS][2] = {{{0}}};
    for (uint32_t t = 0; t < depth; t++, a += ROWS, b += 2) {
        const lanes b0 = b[0], b1 = b[1];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < ROWS; r++) {
            sums[r][0] += a[r] * b0;
            sums[r][1] += a[r] * b1;
        }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < ROWS; r++) {
        lanes *row = (lanes *)(void *)(c + r * c_stride);
        row[0] += factor * sums[r][0];
        row[1] += factor * sums[r][1];
    }
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

/* Factors the diagonal block of m rows at `at` of a = r^T r, and the rows to its right. */
static int factor_panel(float *a, uint32_t n, uint32_t at, uint32_t m, struct quire_error *err)
{
    for (uint32_t i = at; i < at + m; i++) {
        float *row = a + (uint64_t)i * n;
        for (uint32_t k = at; k < i; k++) {
            const float *above = a + (uint64_t)k * n, factor = above[i];
            for (uint32_t j = i; j < n; j++)
                row[j] -= factor * above[j];
        }
        if (!(row[i] > 0) || !isfinite(row[i]))
            return quire_fail(err, QUIRE_INVALID,
                              "the Hessian of the calibration's activations is singular at column "
                              "%u: raise --damp, or calibrate with more text",
                              i);
        const float inverse = 1 / sqrtf(row[i]);
        for (uint32_t j = i; j < n; j++)
            row[j] *= inverse;
    }
    return QUIRE_OK;
}

/* a = r^T r; r replaces the upper triangle. */
static int cholesky(float *a, uint32_t n, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t at = 0; status == QUIRE_OK && at < n; at += DENSE_BLOCK) {
        const uint32_t m = n - at < DENSE_BLOCK ? n - at : DENSE_BLOCK;
        status = factor_panel(a, n, at, m, err);
        for (uint32_t i = at + m; status == QUIRE_OK && i < n; i += DENSE_BLOCK) {
            const float *right = a + (uint64_t)at * n + i;
            const struct dense_product p = {
                right, right, a + (uint64_t)i * n + i, n, n, n, n - i < DENSE_BLOCK ? n - i : DENSE_BLOCK, n - i,
                m,     -1};
            dense_add_product(&p);
        }
    }
    return status;
}

/* The inverse of the lower triangular l = r^T, whose upper r is given: row block by row block, out = l^-1. */
static void invert(const float *r, uint32_t n, float *out)
{
    memset(out, 0, (uint64_t)n * n * sizeof *out);
    for (uint32_t at = 0; at < n; at += DENSE_BLOCK) {
        const uint32_t m = n - at < DENSE_BLOCK ? n - at : DENSE_BLOCK;
        /* Rows at to at + m: minus l[.., 0 to at] times the rows above. */
        const struct dense_product p = {r + at, out, out + (uint64_t)at * n, n, n, n, m, at, at, -1};
        dense_add_product(&p);
        for (uint32_t i = at; i < at + m; i++) {
            float *row = out + (uint64_t)i * n;
            row[i] = 1;
            for (uint32_t k = at; k < i; k++) {
                const float *above = out + (uint64_t)k * n, factor = r[(uint64_t)k * n + i];
                for (uint32_t j = 0; j <= k; j++)
                    row[j] -= factor * above[j];
            }
            const float inverse = 1 / r[(uint64_t)i * n + i];
            for (uint32_t j = 0; j <= i; j++)
                row[j] *= inverse;
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
int dense_inverse_factor(float *h, uint32_t n, float *scratch, struct quire_error *err)
{
    reverse(h, n);
    int status = cholesky(h, n, err);
    if (status != QUIRE_OK)
        return status;
    invert(h, n, scratch);
    reverse(scratch, n);
    memcpy(h, scratch, (uint64_t)n * n * sizeof *h);
    return QUIRE_OK;
}
