/* A second implementation of docs/internals/numerics.md, one element at a time and as literal as possible: lane arrays,
 * no blocks, no threads, no cache layout. It shares no code with kernels/ and uses libm only for functions that IEEE
 * defines exactly (fma, sqrt, rint, ldexp). A backend that promises ref's bits must equal it. */
#ifndef QUIRE_TESTS_PAGE_H
#define QUIRE_TESTS_PAGE_H

#include "kernels/args/gemm.h"
#include "kernels/cases/op_data.h"

float page_f32_from_f16(uint16_t h);
float page_f32_from_bf16(uint16_t b);
uint16_t page_f16_from_f32(float x);
uint16_t page_bf16_from_f32(float x);
float page_exp(float x);
float page_exp_half(float x); /* for x <= 0 or NaN, rounded to f16: p of attention in the mma form */
float page_tanh(float x);
float page_softcap(float score, float cap); /* returns the score if cap is 0 */
void page_sincos(double x, float *s, float *c);
double page_log(double x);
void page_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Computes where the segments of n_cols columns begin, and where the last ends. unit 0: the first has all. */
void page_segments(uint32_t n_cols, uint32_t unit, uint32_t begin[9]);
/* Returns the sum of the segments. */
float page_sum_segments(const float s[8], const uint32_t begin[9]);
/* Computes a row of a GEMM of any form except mma, from the weights as stored, without bias. */
float page_row(const struct op_case *c, const unsigned char *row, const float *x);

/* Computes the n outputs of a token's gate and up. */
void page_gate(struct k_gate how, const float *gate_up, uint32_t n, float *out);

/* Samples from one row of logits. */
void page_sample(const struct k_sample_row *row, const float *logits, uint32_t n_vocab, struct k_sample_result *out);

/* ---- page_kv.c: a KV cache in 8 bits ---- */

/* Exact conversions, with the given number of fraction bits: 3 for e4m3, 2 for e5m2. Numbers to store are finite and at
 * most the largest number. */
float page_f32_from_fp8(uint8_t u, int fraction_bits);
uint8_t page_fp8_from_f32(float x, int fraction_bits);
/* Stores a head's n numbers as bytes. Returns the scale. */
float page_kv_store(enum k_dtype kind, const float *x, uint32_t n, uint8_t *u);
/* Returns what attention reads from the cache, for any dtype: element of [positions, KV, D]. */
float page_key(const struct op_case *c, const struct op_data *d, uint64_t element);
float page_value(const struct op_case *c, const struct op_data *d, uint64_t element);

/* ---- page_quant.c: quantized weights ---- */

#define PAGE_MAX_COLS 5120

/* A row: s · q + m. */
struct page_weights {
    float q[PAGE_MAX_COLS], s[PAGE_MAX_COLS], m[PAGE_MAX_COLS];
    bool has_least;
    uint32_t group, piece; /* columns that share s and m; columns that share a scale of activations in the int8 form */
    float x_scale;
};
void page_weights_read(const struct k_weight_view *v, uint32_t row, struct page_weights *out);

/* Copies x in the order of the columns. */
void page_gather(const struct k_weight_view *v, const float *x, float *out);

void page_gemm_quant(const struct op_case *c, const struct op_data *d, float *y);
float page_embed_quant(const struct op_case *c, const struct op_data *d, uint32_t id, uint32_t column);

/* ---- all ---- */

/* Computes every output of a case, allocated in out. */
void page_run(const struct op_case *c, const struct op_data *d, struct op_output *out);

#endif
