/* A literal implementation of docs/internals/numerics.md §17: the forms that consist of 16-deep products of f16
 * factors. */
#ifndef QUIRE_TESTS_PAGE_MMA_H
#define QUIRE_TESTS_PAGE_MMA_H

#include "kernels/cases/op_data.h"

/* Returns e of a row of BF16 weights. */
int page_mma_exponent(const unsigned char *row, uint32_t n);

/* Returns c + Σ a b as the instruction computes it. */
float page_mma(float c, const float a[16], const float b[16]);

/* Computes one row of a GEMM, from the weights as stored, without bias. */
float page_dot_mma(const unsigned char *row, enum k_dtype dtype, const float *x, uint32_t n, uint32_t unit);

/* Computes y [T, N] of a case of the form. */
void page_gemm_mma(const struct op_case *c, const struct op_data *d, float *y);

/* Computes out [T, Q * D] of a case of the form. */
void page_attention_mma(const struct op_case *c, const struct op_data *d, float *out);

#endif
