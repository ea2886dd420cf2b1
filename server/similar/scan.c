#include "server/similar/scan.h"

void scan_tiles_plain(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                      const struct scan_step *step, float cut, int32_t *sums, uint16_t *masks)
{
    for (size_t t = 0; t < n_tiles; t++) {
        masks[t] = 0;
        for (size_t r = 0; r < SCAN_ROWS; r++) {
            const size_t row = t * SCAN_ROWS + r;
            for (size_t d = 0; d < SCAN_DIMS; d++)
                sums[row] += tiles[t * SCAN_TILE_BYTES + d / 4 * SCAN_ROWS * 4 + r * 4 + d % 4] * step->query[d];
            const float own = (float)(sums[row] - step->bias) * step->query_scale + step->per_scale;
            if (own * scale[row] + (rest[row] * step->per_rest + step->constant) >= cut)
                masks[t] |= (uint16_t)(1u << r);
        }
    }
}

#ifdef __x86_64__
static const struct scan_isa isas[] = {
    {"avx512vnni", scan_tiles_avx512vnni}, {"avx2", scan_tiles_avx2}, {"plain", scan_tiles_plain}};

static size_t first_isa(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni"))
        return 0;
    return __builtin_cpu_supports("avx2") ? 1 : 2;
}
#else
static const struct scan_isa isas[] = {{"plain", scan_tiles_plain}};

static size_t first_isa(void)
{
    return 0;
}
#endif

const struct scan_isa *scan_isa(void)
{
    return &isas[first_isa()];
}

size_t scan_isas(const struct scan_isa **out)
{
    const size_t first = first_isa();
    *out = isas + first;
    return sizeof isas / sizeof isas[0] - first;
}
