#include "tools/quantize/methods/floats.h"

#include "kernels/math/convert.h"

#include <math.h>

static float top_of(enum k_dtype kind)
{
    return kind == K_E4M3 ? 448.0f : 57344.0f;
}

float quantizer_fp8_scale(enum k_dtype kind, float most)
{
    const float scale = most / top_of(kind);
    return scale > 0 ? scale : 1;
}

void quantizer_fp8_round(enum k_dtype kind, float scale, const float *w, uint64_t n, uint8_t *codes)
{
    const float top = top_of(kind);
    for (uint64_t i = 0; i < n; i++) {
        const float v = w[i] / scale, bounded = v > top ? top : v < -top ? -top : v;
        codes[i] = kind == K_E4M3 ? k_e4m3_from_f32(bounded) : k_e5m2_from_f32(bounded);
    }
}

static float power_of_two(int32_t exponent)
{
    return ldexpf(1, exponent < -127 ? -127 : exponent > 127 ? 127 : exponent);
}

float quantizer_mxfp4_scale(float most)
{
    int exponent;
    const float part = frexpf(most, &exponent); /* 0.5 to 1 */
    return most > 0 ? power_of_two(exponent - 3 + (part >= 0.875f)) : power_of_two(-127);
}

uint8_t quantizer_mxfp4_byte(float most)
{
    const float byte = most > 0 ? floorf(log2f(most)) - 2 + 127 : 0;
    return byte < 0 ? 0 : (uint8_t)byte;
}

void quantizer_mxfp4_round(float scale, const float *w, uint32_t n, uint8_t *codes)
{
    /* Between codes k and k + 1; the tie belongs to the even one. */
    static const float middles[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    for (uint32_t i = 0; i < n; i++) {
        const float v = fabsf(w[i]) / scale;
        uint8_t code = 0;
        while (code < 7 && (code % 2 ? v >= middles[code] : v > middles[code]))
            code++;
        codes[i] = (uint8_t)(code | (signbit(w[i]) ? 8 : 0));
    }
}
