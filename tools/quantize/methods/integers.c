#include "tools/quantize/methods/integers.h"

#include "kernels/math/convert.h"

#include <math.h>

uint32_t quantizer_n_groups(const struct quantizer_integers *how, uint32_t n_cols)
{
    return how->group ? (n_cols + how->group - 1) / how->group : 1;
}

float quantizer_stored(float x, enum k_dtype dtype)
{
    float stored = x, least = 0x1p-149f;
    if (dtype == K_F16) {
        stored = k_f32_from_f16(k_f16_from_f32(x));
        least = 0x1p-24f;
    } else if (dtype == K_BF16) {
        stored = k_f32_from_bf16(k_bf16_from_f32(x));
        least = 0x1p-133f;
    }
    return x > 0 && stored == 0 ? least : stored;
}

struct quantizer_grid quantizer_grid_of(const struct quantizer_integers *how, float least, float most)
{
    const int32_t top = (1 << how->bits) - 1, middle = 1 << (how->bits - 1);
    struct quantizer_grid grid = {1, how->symmetric ? middle : 0};
    if (least == 0 && most == 0)
        return grid;
    if (how->symmetric) {
        grid.scale = quantizer_stored(fmaxf(-least, most) / (float)(middle - 1), how->scale);
        return grid;
    }
    grid.scale = quantizer_stored((most - least) / (float)top, how->scale);
    grid.zero = (int32_t)rintf(fminf(-least / grid.scale, (float)top));
    return grid;
}

struct quantizer_grid quantizer_grid_of_row(const struct quantizer_integers *how, const float *w, uint32_t n)
{
    float least = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        least = w[i] < least ? w[i] : least;
        most = w[i] > most ? w[i] : most;
    }
    return quantizer_grid_of(how, least, most);
}

uint8_t quantizer_code(const struct quantizer_integers *how, struct quantizer_grid grid, float w)
{
    const float top = (float)((1 << how->bits) - 1), code = rintf(w / grid.scale) + (float)grid.zero;
    return (uint8_t)(code < 0 ? 0 : code > top ? top : code);
}

void quantizer_round(const struct quantizer_integers *how, const float *w, uint32_t first, uint32_t last,
                     struct quantizer_codes *out)
{
    const uint32_t size = how->group ? how->group : out->n_cols;
    for (uint32_t r = first; r < last; r++)
        for (uint32_t g = 0; g < out->n_groups; g++) {
            const uint32_t begin = g * size, n = out->n_cols - begin < size ? out->n_cols - begin : size;
            const uint64_t at = (uint64_t)r * out->n_cols + begin, plane = (uint64_t)r * out->n_groups + g;
            const struct quantizer_grid grid = quantizer_grid_of_row(how, w + at, n);
            out->scales[plane] = grid.scale;
            out->zeros[plane] = (uint8_t)grid.zero;
            for (uint32_t i = 0; i < n; i++)
                out->codes[at + i] = quantizer_code(how, grid, w[at + i]);
        }
}
