/* docs/internals/numerics.md §9: a KV cache in 8 bits. */
#include "tests/kernels/page.h"

#include <math.h>
#include <string.h>

float page_f32_from_fp8(uint8_t u, int fraction_bits)
{
    const int bias = (1 << (6 - fraction_bits)) - 1, exponent = (u & 0x7f) >> fraction_bits;
    const int fraction = u & ((1 << fraction_bits) - 1), hidden = exponent > 0 ? 1 << fraction_bits : 0;
    float x = ldexpf((float)(hidden + fraction), (exponent > 0 ? exponent : 1) - bias - fraction_bits);
    return u >> 7 ? -x : x;
}

/* Codes with one sign are in the order of their numbers: returns the nearest code, and of two the even one. */
uint8_t page_fp8_from_f32(float x, int fraction_bits)
{
    uint8_t best = 0;
    double magnitude = fabs((double)x);
    for (unsigned u = 1; u < (fraction_bits == 3 ? 0x7fu : 0x7cu); u++) {
        double apart = fabs(page_f32_from_fp8((uint8_t)u, fraction_bits) - magnitude);
        double before = fabs(page_f32_from_fp8(best, fraction_bits) - magnitude);
        if (apart < before || (apart == before && u % 2 == 0))
            best = (uint8_t)u;
    }
    return signbit(x) ? best | 0x80 : best;
}

float page_kv_store(enum k_dtype kind, const float *x, uint32_t n, uint8_t *u)
{
    const float top = kind == K_INT ? 127.0f : kind == K_E4M3 ? 448.0f : 57344.0f;
    float most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = isnan(x[i]) || isnan(most) ? NAN : fmaxf(most, fabsf(x[i]));
    memset(u, 0, n);
    if (!isfinite(most))
        return NAN;
    if (most < 0x1p-110f)
        return 0.0f;
    float factor = top / most;
    for (uint32_t i = 0; i < n; i++) {
        float y = x[i] * factor;
        y = fminf(fmaxf(y, -top), top);
        u[i] = kind == K_INT ? (uint8_t)(int8_t)rintf(y) : page_fp8_from_f32(y, kind == K_E4M3 ? 3 : 2);
    }
    return most / top;
}

static float stored(const void *cache, const float *scales, const struct op_case *c, uint64_t element)
{
    const unsigned char *at = (const unsigned char *)cache + element * k_dtype_bytes(c->dtype);
    float x;
    uint16_t h;
    switch (c->dtype) {
    case K_F32: memcpy(&x, at, sizeof x); return x;
    case K_F16: memcpy(&h, at, sizeof h); return page_f32_from_f16(h);
    case K_INT: return (float)(int8_t)*at * scales[element / c->head_dim];
    default: return page_f32_from_fp8(*at, c->dtype == K_E4M3 ? 3 : 2) * scales[element / c->head_dim];
    }
}

float page_key(const struct op_case *c, const struct op_data *d, uint64_t element)
{
    return stored(d->k, d->k_scales, c, element);
}

float page_value(const struct op_case *c, const struct op_data *d, uint64_t element)
{
    return stored(d->v, d->v_scales, c, element);
}
