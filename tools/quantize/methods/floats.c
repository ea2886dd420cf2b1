#include "tools/quantize/methods/floats.h"

#include "kernels/math/convert.h"

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
