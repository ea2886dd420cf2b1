/* A tile at a time; the query's 16 groups stay in registers. */
#include "server/similar/scan.h"

#include <immintrin.h>
#include <string.h>

void scan_tiles_avx512vnni(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                           const struct scan_step *step, float cut, int32_t *sums, uint16_t *masks)
{
    __m512i query[SCAN_DIMS / 4];
    for (size_t g = 0; g < SCAN_DIMS / 4; g++) {
        int32_t four;
        memcpy(&four, step->query + g * 4, sizeof four);
        query[g] = _mm512_set1_epi32(four);
    }
    const __m512i bias = _mm512_set1_epi32(step->bias);
    const __m512 query_scale = _mm512_set1_ps(step->query_scale), per_scale = _mm512_set1_ps(step->per_scale);
    const __m512 per_rest = _mm512_set1_ps(step->per_rest), constant = _mm512_set1_ps(step->constant);
    const __m512 cuts = _mm512_set1_ps(cut);
    for (size_t t = 0; t < n_tiles; t++) {
        const uint8_t *codes = tiles + t * SCAN_TILE_BYTES;
        __m512i even = _mm512_loadu_si512(sums + t * SCAN_ROWS), odd = _mm512_setzero_si512();
        for (size_t g = 0; g < SCAN_DIMS / 4; g += 2) {
            even = _mm512_dpbusd_epi32(even, _mm512_load_si512(codes + g * 64), query[g]);
            odd = _mm512_dpbusd_epi32(odd, _mm512_load_si512(codes + g * 64 + 64), query[g + 1]);
        }
        const __m512i sum = _mm512_add_epi32(even, odd);
        _mm512_storeu_si512(sums + t * SCAN_ROWS, sum);
        const __m512 of_sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, bias));
        const __m512 own = _mm512_add_ps(_mm512_mul_ps(of_sum, query_scale), per_scale);
        const __m512 others = _mm512_add_ps(_mm512_mul_ps(_mm512_load_ps(rest + t * SCAN_ROWS), per_rest), constant);
        const __m512 bound = _mm512_add_ps(_mm512_mul_ps(own, _mm512_load_ps(scale + t * SCAN_ROWS)), others);
        masks[t] = _mm512_cmp_ps_mask(bound, cuts, _CMP_GE_OQ);
    }
}
