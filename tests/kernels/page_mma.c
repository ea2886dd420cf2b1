#include "tests/kernels/page_mma.h"

#include "tests/kernels/page.h"
#include "tests/simt/fragments/tensor_core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float weight(const unsigned char *row, enum k_dtype dtype, uint32_t k)
{
    uint16_t h;
    memcpy(&h, row + 2 * (size_t)k, 2);
    return dtype == K_F16 ? page_f32_from_f16(h) : page_f32_from_bf16(h);
}

int page_mma_exponent(const unsigned char *row, uint32_t n)
{
    float largest = 0;
    for (uint32_t k = 0; k < n; k++) {
        float w = fabsf(weight(row, K_BF16, k));
        if (isfinite(w) && w > largest)
            largest = w;
    }
    int e = 0;
    while (largest > 0 && e > -120 && ldexp(largest, -e) < 0x1p14)
        e--;
    while (ldexp(largest, -e) >= 0x1p15)
        e++;
    return e;
}

static float f16(double x)
{
    return page_f32_from_f16(page_f16_from_f32((float)x));
}

static int make_weight_factors(const unsigned char *row, enum k_dtype dtype, uint32_t n, float *w)
{
    int e = dtype == K_BF16 ? page_mma_exponent(row, n) : 0;
    for (uint32_t k = 0; k < n; k++)
        w[k] = f16(ldexp(weight(row, dtype, k), -e));
    return e;
}

static void make_factors(const float *x, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = f16(ldexp(x[i], -4));
}

float page_mma(float c, const float a[16], const float b[16])
{
    return tensor_core_sum((struct tensor_core)TENSOR_CORE_HOPPER, c, a, b);
}

static float dot_segment(const float *w, const float *x, uint32_t n)
{
    float y = 0;
    for (uint32_t chunk = 0; chunk < n; chunk += 512) {
        float c = 0;
        for (uint32_t tile = chunk; tile < n && tile < chunk + 512; tile += 16) {
            float a[16], b[16];
            for (uint32_t k = 0; k < 16; k++) {
                a[k] = tile + k < n ? w[tile + k] : 0.0f;
                b[k] = tile + k < n ? x[tile + k] : 0.0f;
            }
            c = page_mma(c, a, b);
        }
        y = chunk == 0 ? c : y + c;
    }
    return y;
}

static float dot(const float *w, int e, const float *x, uint32_t n, uint32_t unit)
{
    uint32_t begin[9];
    float s[8];
    page_segments(n, unit, begin);
    for (int i = 0; i < 8; i++)
        s[i] = dot_segment(w + begin[i], x + begin[i], begin[i + 1] - begin[i]);
    return ldexpf(page_sum_segments(s, begin), e + 4);
}

static float *must_have(uint64_t n)
{
    float *p = malloc(n * sizeof *p);
    if (!p)
        abort();
    return p;
}

float page_dot_mma(const unsigned char *row, enum k_dtype dtype, const float *x, uint32_t n, uint32_t unit)
{
    float *w = must_have(2 * (uint64_t)n);
    int e = make_weight_factors(row, dtype, n, w);
    make_factors(x, n, w + n);
    float y = dot(w, e, w + n, n, unit);
    free(w);
    return y;
}

void page_gemm_mma(const struct op_case *c, const struct op_data *d, float *y)
{
    uint64_t n = c->n_cols;
    float *x = must_have(n * c->n_tokens), *w = must_have(n);
    make_factors(d->x, n * c->n_tokens, x);
    for (uint64_t r = 0; r < c->n_rows; r++) {
        int e = make_weight_factors(d->weights + r * n * 2, c->dtype, c->n_cols, w);
        for (uint64_t t = 0; t < c->n_tokens; t++) {
            float sum = dot(w, e, x + t * n, c->n_cols, c->unit);
            y[t * c->n_rows + r] = d->vector ? sum + d->vector[r] : sum;
        }
    }
    free(x);
    free(w);
}
