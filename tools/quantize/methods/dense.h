/* Matrix products and factorizations in f32 for calibrated methods. Row-major. Pure functions; any thread on its own
 * output. Sums have a fixed order. Machines with fused multiply-add compute the same bits; others differ in the last
 * place. */
#ifndef QUIRE_TOOLS_QUANTIZE_DENSE_H
#define QUIRE_TOOLS_QUANTIZE_DENSE_H

#include "base/status.h"

#include <stdint.h>

/* c[i, j] += factor · Σ_t a[t, i] · b[t, j] for i < m, j < n, t < k. Strides count floats. */
struct dense_product {
    const float *a, *b;
    float *c;
    uint64_t a_stride, b_stride, c_stride;
    uint32_t m, n, k;
    float factor;
};
void dense_add_product(const struct dense_product *p);

/* Rows of a symmetric product that a thread computes: blocks first, first + step, ... of DENSE_BLOCK rows. */
#define DENSE_BLOCK 128u
/* c += x^T x of x [k, n], only c[i, j] with j >= i - i % DENSE_BLOCK. */
void dense_add_square(const float *x, uint32_t k, uint32_t n, float *c, uint32_t first, uint32_t step);
/* Copies the upper triangle to the lower one. */
void dense_mirror(float *c, uint32_t n);

/* Replaces the symmetric positive definite h [n, n] by the upper triangular u with h^-1 = u^T u; the lower triangle
 * becomes 0. The bits do not depend on n_threads. QUIRE_INVALID: h is not positive definite. scratch: [n, n] */
int dense_inverse_factor(float *h, uint32_t n, float *scratch, uint32_t n_threads, struct quire_error *err);

#endif
