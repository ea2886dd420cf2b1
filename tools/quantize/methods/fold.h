/* Folds scales into a norm: its factors are divided by them, as the columns that read the norm's output are multiplied. The
 * norm keeps its dtype, and its rounding costs nothing, because the scales become what the stored norm says: the old factor
 * divided by the new one, which is exact but for one rounding to f32. Pure function; any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_FOLD_H
#define QUIRE_TOOLS_QUANTIZE_FOLD_H

#include "kernels/format.h"

#include <stdint.h>

struct quantizer_norm {
    enum k_dtype dtype;
    float offset; /* a factor is the stored number plus this: 0, or Gemma's 1 */
    uint32_t n;
};

/* stored [n] becomes the numbers of the divided norm, and scales [n] the quotients of the factors. A scale becomes 1 if the
 * factor is 0 or the dtype cannot hold the new one. With an offset a new factor has at least the dtype's epsilon, the step
 * at 1: closer to 0 the stored number would be -1, and the column would be lost. */
void quantizer_fold_norm(const struct quantizer_norm *norm, float *stored, float *scales);

#endif
