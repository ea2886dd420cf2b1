/* An 8-bit cache: rows of a head's bytes, without NaN or infinity, and the rows' scales. */
#include "kernels/cases/op_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD (4u << 20) /* number of random bytes; the rest repeats them, only in timed cases */

static uint8_t finite_byte(uint8_t u, enum k_dtype kind)
{
    switch (kind) {
    case K_INT: return u == 0x80 ? 0x81 : u; /* -128 never occurs in a cache */
    case K_E4M3: return (u & 0x7f) == 0x7f ? u & 0xbf : u;
    default: return (u & 0x7c) == 0x7c ? u & 0xbf : u;
    }
}

void *op_kv_bytes(uint64_t n, enum k_dtype kind, uint64_t *state)
{
    uint8_t *p = malloc(n ? n : 1);
    if (!p)
        return NULL;
    const uint64_t drawn = n < PERIOD ? n : PERIOD;
    for (uint64_t i = 0; i < drawn; i += 8) {
        uint64_t bits = op_random(state);
        for (uint64_t j = i; j < i + 8 && j < drawn; j++, bits >>= 8)
            p[j] = finite_byte((uint8_t)bits, kind);
    }
    for (uint64_t at = drawn; at < n; at += drawn)
        memcpy(p + at, p, n - at < drawn ? n - at : drawn);
    return p;
}

/* The largest number of a row is at most 1. Every eleventh row has scale 0, and every thirteenth a denormal scale. */
float *op_kv_scales(uint64_t n, enum k_dtype kind, uint64_t *state)
{
    const float top = kind == K_INT ? 127.0f : kind == K_E4M3 ? 448.0f : 57344.0f;
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (uint64_t i = 0; p && i < n; i++) {
        p[i] = fabsf(op_random_value(state, VALUES_PLAIN)) / top;
        if (i % 11 == 5)
            p[i] = 0.0f;
        else if (i % 13 == 7)
            p[i] = ldexpf(p[i], -110);
    }
    return p;
}
