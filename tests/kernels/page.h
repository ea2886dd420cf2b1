/* docs/numerics.md once more, one element at a time and as naively as it reads: lane arrays, no
 * blocks, no threads, no cache layout. It shares no code with kernels/ and uses libm only for what
 * IEEE defines exactly (fma, sqrt, rint, ldexp). A backend that promises ref's bits equals it. */
#ifndef QUIRE_TESTS_PAGE_H
#define QUIRE_TESTS_PAGE_H

#include "kernels/cases/op_data.h"

float page_f32_from_f16(uint16_t h);
float page_f32_from_bf16(uint16_t b);
uint16_t page_f16_from_f32(float x);
uint16_t page_bf16_from_f32(float x);
float page_exp(float x);
float page_exp_half(float x); /* of x <= 0 or NaN, rounded to f16: p of attention in the mma form */
float page_tanh(float x);
float page_softcap(float score, float cap); /* the score itself where cap is 0 */
void page_sincos(float x, float *s, float *c);
double page_log(double x);
void page_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Where the segments of so many columns begin, and where the last ends; unit 0: the first has all. */
void page_segments(uint32_t n_cols, uint32_t unit, uint32_t begin[9]);
/* What their sums add up to. */
float page_sum_segments(const float s[8], const uint32_t begin[9]);
/* A row of a GEMM of any form but mma, from the weights as stored, without bias. */
float page_row(const struct op_case *c, const unsigned char *row, const float *x);

/* The n outputs of a token's gate and up. */
void page_silu_mul(const float *gate_up, uint32_t n, float *out);

/* One row of logits. */
void page_sample(const struct k_sample_row *row, const float *logits, uint32_t n_vocab, struct k_sample_result *out);

/* Every output of a case, allocated in out. */
void page_run(const struct op_case *c, const struct op_data *d, struct op_output *out);

#endif
