/* Eight rows at a time. */
#include "server/similar/scan.h"

#include <immintrin.h>
#include <string.h>

static uint32_t half(const uint8_t *codes, const float *scale, const float *rest, const struct scan_step *step,
                     float cut, int32_t *sums)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_loadu_si256((const __m256i *)sums);
    for (size_t g = 0; g < SCAN_DIMS / 4; g++) {
        int32_t four;
        memcpy(&four, step->query + g * 4, sizeof four);
        const __m256i c = _mm256_load_si256((const __m256i *)(codes + g * SCAN_ROWS * 4));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(c, _mm256_set1_epi32(four)), ones));
    }
    _mm256_storeu_si256((__m256i *)sums, sum);
    const __m256 of_sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, _mm256_set1_epi32(step->bias)));
    const __m256 own = _mm256_add_ps(_mm256_mul_ps(of_sum, _mm256_set1_ps(step->query_scale)),
                                     _mm256_set1_ps(step->per_scale));
    const __m256 others = _mm256_add_ps(_mm256_mul_ps(_mm256_load_ps(rest), _mm256_set1_ps(step->per_rest)),
                                        _mm256_set1_ps(step->constant));
    const __m256 bound = _mm256_add_ps(_mm256_mul_ps(own, _mm256_load_ps(scale)), others);
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(bound, _mm256_set1_ps(cut), _CMP_GE_OQ));
}

void scan_tiles_avx2(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                     const struct scan_step *step, float cut, int32_t *sums, uint16_t *masks)
{
    for (size_t t = 0; t < n_tiles; t++) {
        const size_t row = t * SCAN_ROWS;
        const uint8_t *codes = tiles + t * SCAN_TILE_BYTES;
        const uint32_t low = half(codes, scale + row, rest + row, step, cut, sums + row);
        masks[t] = (uint16_t)(low | half(codes + 32, scale + row + 8, rest + row + 8, step, cut, sums + row + 8) << 8);
    }
}
