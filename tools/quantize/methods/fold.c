#include "tools/quantize/methods/fold.h"

#include "kernels/math/convert.h"

#include <math.h>

static float rounded(float x, enum k_dtype dtype)
{
    if (dtype == K_F32)
        return x;
    return dtype == K_F16 ? k_f32_from_f16(k_f16_from_f32(x)) : k_f32_from_bf16(k_bf16_from_f32(x));
}

void quantizer_fold_norm(const struct quantizer_norm *norm, float *stored, float *scales)
{
    const float epsilon = norm->dtype == K_F32 ? 0x1p-23f : norm->dtype == K_F16 ? 0x1p-10f : 0x1p-7f;
    for (uint32_t k = 0; k < norm->n; k++) {
        const float factor = stored[k] + norm->offset;
        float wanted = factor / scales[k];
        if (norm->offset != 0 && fabsf(wanted) < epsilon)
            wanted = copysignf(epsilon, factor);
        const float number = rounded(wanted - norm->offset, norm->dtype), scale = factor / (number + norm->offset);
        const bool fits = factor != 0 && isfinite(number) && isfinite(scale) && scale > 0;
        scales[k] = fits ? scale : 1;
        stored[k] = fits ? number : stored[k];
    }
}
