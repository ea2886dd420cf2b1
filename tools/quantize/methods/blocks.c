#include "tools/quantize/methods/blocks.h"

#include "base/encoding/little_endian.h"
#include "kernels/math/codes.h"
#include "kernels/math/convert.h"
#include "tools/quantize/methods/floats.h"
#include "tools/quantize/methods/k_blocks.h"

#include <math.h>

#define BLOCK 32u

/* Integer part of x >= 0, at most top. */
static uint32_t truncated(float x, uint32_t top)
{
    const int32_t n = (int32_t)x;
    return n < 0 ? 0 : (uint32_t)n > top ? top : (uint32_t)n;
}

static void put_q8_0(const float *w, uint8_t *out)
{
    float most = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    const float d = most / 127, factor = d != 0 ? 1 / d : 0;
    le_store_u16(out, k_f16_from_f32(d));
    for (uint32_t i = 0; i < BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)roundf(w[i] * factor);
}

/* Stores 32 codes of 4 bits, or of 5: the fifth bits lie before the others. */
static void put_codes(const uint32_t codes[BLOCK], bool has_fifth, uint8_t *out)
{
    uint32_t fifth = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        fifth |= (codes[i] >> 4 & 1) << i;
    if (has_fifth)
        le_store_u32(out, fifth);
    out += has_fifth ? 4 : 0;
    for (uint32_t i = 0; i < BLOCK / 2; i++)
        out[i] = (uint8_t)((codes[i] & 15) | (codes[i + BLOCK / 2] & 15) << 4);
}

/* Q4_0 and Q5_0: the first weight of the largest magnitude has the code 0, which is the number −2^(bits−1). */
static void put_signed(const float *w, uint32_t bits, uint8_t *out)
{
    const uint32_t top = (1u << bits) - 1, half = 1u << (bits - 1);
    float most = 0, at_most = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        if (fabsf(w[i]) > most) {
            most = fabsf(w[i]);
            at_most = w[i];
        }
    const float d = at_most / -(float)half, factor = d != 0 ? 1 / d : 0;
    uint32_t codes[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++)
        codes[i] = truncated(w[i] * factor + ((float)half + 0.5f), top);
    le_store_u16(out, k_f16_from_f32(d));
    put_codes(codes, bits == 5, out + 2);
}

/* Q4_1 and Q5_1: from the least weight to the largest. */
static void put_ranged(const float *w, uint32_t bits, uint8_t *out)
{
    const uint32_t top = (1u << bits) - 1;
    float least = w[0], most = w[0];
    for (uint32_t i = 1; i < BLOCK; i++) {
        least = w[i] < least ? w[i] : least;
        most = w[i] > most ? w[i] : most;
    }
    const float d = (most - least) / (float)top, factor = d != 0 ? 1 / d : 0;
    uint32_t codes[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++)
        codes[i] = truncated((w[i] - least) * factor + 0.5f, top);
    le_store_u16(out, k_f16_from_f32(d));
    le_store_u16(out + 2, k_f16_from_f32(least));
    put_codes(codes, bits == 5, out + 4);
}

/* The first of the nearest numbers: ties go to the smaller magnitude. */
static void put_mxfp4(const float *w, uint8_t *out)
{
    const struct k_codes numbers = k_codes_e2m1(); /* twice e2m1's */
    float most = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    out[0] = quantizer_mxfp4_byte(most);
    const float half = ldexpf(1, (int)out[0] - 128);
    uint32_t codes[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
        float least = INFINITY;
        for (uint32_t k = 0; k < 16; k++) {
            const float error = fabsf((float)k_code_number(numbers, k) * half - w[i]);
            codes[i] = error < least ? k : codes[i];
            least = error < least ? error : least;
        }
    }
    put_codes(codes, false, out + 1);
}

bool quantizer_has_blocks(enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0:
    case K_PACKING_Q4_0:
    case K_PACKING_Q4_1:
    case K_PACKING_Q5_0:
    case K_PACKING_Q5_1:
    case K_PACKING_MXFP4:
    case K_PACKING_Q4_K:
    case K_PACKING_Q5_K:
    case K_PACKING_Q6_K: return true;
    default: return false;
    }
}

void quantizer_blocks(enum k_packing packing, const float *w, const float *weights, uint32_t n, uint8_t *out)
{
    const bool is_wide = packing == K_PACKING_Q4_K || packing == K_PACKING_Q5_K || packing == K_PACKING_Q6_K;
    const uint32_t columns = is_wide ? K_BLOCK_COLUMNS : BLOCK;
    const uint64_t bytes = k_format_bytes(k_format_of_blocks(packing), columns);
    for (uint32_t k = 0; k < n; k += columns, out += bytes)
        switch (packing) {
        case K_PACKING_Q8_0: put_q8_0(w + k, out); break;
        case K_PACKING_Q4_0: put_signed(w + k, 4, out); break;
        case K_PACKING_Q5_0: put_signed(w + k, 5, out); break;
        case K_PACKING_Q4_1: put_ranged(w + k, 4, out); break;
        case K_PACKING_Q5_1: put_ranged(w + k, 5, out); break;
        case K_PACKING_MXFP4: put_mxfp4(w + k, out); break;
        case K_PACKING_Q4_K: k_block_ranged(w + k, weights ? weights + k : NULL, 4, out); break;
        case K_PACKING_Q5_K: k_block_ranged(w + k, weights ? weights + k : NULL, 5, out); break;
        case K_PACKING_Q6_K: k_block_signed(w + k, weights ? weights + k : NULL, out); break;
        default: break;
        }
}
