/* A tile at a time: each shuffle looks 32 rows up in one table. */
#include "server/similar/sketch.h"

#include <immintrin.h>

static uint32_t eight(__m256i sums, const float *scale, const float *rest, const struct sketch_query *query, float cut)
{
    const __m256 own = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(query->step)),
                                     _mm256_set1_ps(query->base));
    const __m256 others = _mm256_add_ps(_mm256_mul_ps(_mm256_load_ps(rest), _mm256_set1_ps(query->length)),
                                        _mm256_set1_ps(query->constant));
    const __m256 bound = _mm256_add_ps(_mm256_mul_ps(own, _mm256_load_ps(scale)), others);
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(bound, _mm256_set1_ps(cut), _CMP_GE_OQ));
}

/* 16 sums of 16 bits, rows from `scale` on. */
static uint32_t sixteen(__m256i sums, const float *scale, const float *rest, const struct sketch_query *query,
                        float cut)
{
    const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(sums));
    const __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(sums, 1));
    return eight(low, scale, rest, query, cut) | eight(high, scale + 8, rest + 8, query, cut) << 8;
}

static __m256i looked_up(const uint8_t *table, __m256i nibbles)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)table)), nibbles);
}

void sketch_tiles_avx2(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                       const struct sketch_query *query, float cut, uint32_t *masks)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const size_t n_bytes = query->n_stages * SKETCH_STAGE_BYTES;
    for (size_t t = 0; t < n_tiles; t++) {
        const uint8_t *at = tiles + t * SKETCH_ROWS * n_bytes;
        __m256i both = _mm256_setzero_si256(), odd = both; /* both: even bytes, and 256 times odd ones */
        for (size_t i = 0; i < n_bytes; i++) {
            const __m256i bits = _mm256_load_si256((const __m256i *)(at + i * SKETCH_ROWS));
            const __m256i low = _mm256_and_si256(bits, nibble);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bits, 4), nibble);
            const __m256i two = _mm256_add_epi8(looked_up(query->tables + i * 32, low),
                                                looked_up(query->tables + i * 32 + 16, high));
            both = _mm256_add_epi16(both, two);
            odd = _mm256_add_epi16(odd, _mm256_srli_epi16(two, 8));
        }
        const __m256i even = _mm256_sub_epi16(both, _mm256_slli_epi16(odd, 8));
        const size_t row = t * SKETCH_ROWS;
        masks[t] = sixteen(even, scale + row, rest + row, query, cut) |
                   sixteen(odd, scale + row + SKETCH_ROWS / 2, rest + row + SKETCH_ROWS / 2, query, cut) << 16;
    }
}
