#include "tools/quantize/methods/dense.h"

#include <math.h>
#include <string.h>

typedef float lanes __attribute__((vector_size(64), aligned(4)));
#define LANES 16u
#define ROWS 4u /* of c at once; with 2 vectors of columns, 8 sums stay in registers */
#define DEPTH 256u /* terms of a sum before it is added to c: a's and b's rows of them stay in the cache */

/* The best instructions that the machine has; the results are the same. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* A tile of ROWS rows and 2 LANES columns. */
CLONES static void tile(const struct dense_product *p, uint32_t i, uint32_t j, uint32_t first, uint32_t end)
{
    lanes sums[ROWS][2] = {{{0}}};
    for (uint32_t t = first; t < end; t++) {
        const float *a = p->a + t * p->a_stride + i;
        const lanes *b = (const lanes *)(const void *)(p->b + t * p->b_stride + j);
        const lanes b0 = b[0], b1 = b[1];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < ROWS; r++) {
            sums[r][0] += a[r] * b0;
            sums[r][1] += a[r] * b1;
        }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < ROWS; r++) {
        lanes *c = (lanes *)(void *)(p->c + (i + r) * p->c_stride + j);
        c[0] += p->factor * sums[r][0];
        c[1] += p->factor * sums[r][1];
    }
}

static void edge(const struct dense_product *p, uint32_t i, uint32_t j, uint32_t first, uint32_t end)
{
    float sum = 0;
    for (uint32_t t = first; t < end; t++)
        sum += p->a[t * p->a_stride + i] * p->b[t * p->b_stride + j];
    p->c[i * p->c_stride + j] += p->factor * sum;
}

void dense_add_product(const struct dense_product *p)
{
    const uint32_t rows = p->m - p->m % ROWS, columns = p->n - p->n % (2 * LANES);
    for (uint32_t t = 0; t < p->k; t += DEPTH) {
        const uint32_t end = p->k - t < DEPTH ? p->k : t + DEPTH;
        for (uint32_t j = 0; j < columns; j += 2 * LANES)
            for (uint32_t i = 0; i < rows; i += ROWS)
                tile(p, i, j, t, end);
        for (uint32_t i = 0; i < p->m; i++)
            for (uint32_t j = i < rows ? columns : 0; j < p->n; j++)
                edge(p, i, j, t, end);
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
