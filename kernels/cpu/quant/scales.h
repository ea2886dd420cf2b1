/* Reads the scale and the least of each group of a quantized weight, as floats (docs/internals/numerics.md §19), with
 * AVX2 instructions. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_SCALES_H
#define QUIRE_KERNELS_CPU_QUANT_SCALES_H

#include "kernels/cpu/quant/bytes.h"
#include "kernels/cpu/quant/unpack.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"
#include "kernels/weight.h"

#include <stdint.h>
#include <immintrin.h>
#include <string.h>

/* Returns eight 6-bit numbers of Q4_K's and Q5_K's twelve bytes: the scales or the leasts. */
CPU_INLINE __m256 six_bits(uint32_t low, uint32_t high, uint32_t top)
{
    const uint64_t all = (low & 0x3f3f3f3fu) | (uint64_t)((high & 0x0f0f0f0fu) | (top >> 2 & 0x30303030u)) << 32;
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)all)));
}

/* Returns Q3_K's sixteen 6-bit scales, less 32. */
CPU_INLINE __m128i scales_3(const uint8_t *p)
{
    const uint32_t a = word_at(p), b = word_at(p + 4), c = word_at(p + 8), four = 0x0f0f0f0f, two = 0x30303030;
    const __m128i v = _mm_setr_epi32((int)((a & four) | (c << 4 & two)), (int)((b & four) | (c << 2 & two)),
                                     (int)((a >> 4 & four) | (c & two)), (int)((b >> 4 & four) | (c >> 2 & two)));
    return _mm_sub_epi8(v, _mm_set1_epi8(32));
}

CPU_INLINE void put_16(float *out, float d, __m128i bytes)
{
    const __m256 by = _mm256_set1_ps(d);
    _mm256_storeu_ps(out, _mm256_mul_ps(by, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(by, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))));
}

/* Returns IQ4_XS's eight 6-bit scales, less 32. */
CPU_INLINE __m256 scales_iq4(const uint8_t *p)
{
    uint16_t high;
    memcpy(&high, p, sizeof high);
    const __m256i two = _mm256_srlv_epi32(_mm256_set1_epi32(high), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i four = _mm256_srlv_epi32(_mm256_set1_epi32((int)word_at(p + 2)),
                                           _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i all = _mm256_or_si256(_mm256_and_si256(four, _mm256_set1_epi32(15)),
                                        _mm256_slli_epi32(_mm256_and_si256(two, _mm256_set1_epi32(3)), 4));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(all, _mm256_set1_epi32(32)));
}

/* k_half_from_e8m0() of eight bytes. */
CPU_INLINE __m256 halves_from_e8m0(__m128i bytes)
{
    const __m256i e = _mm256_cvtepu8_epi32(bytes), nan = _mm256_set1_epi32(0x7fc00000);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i r = _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(r, nan, _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255))));
}

CPU_INLINE void scales_of_256(const uint8_t *p, const enum k_packing packing, float *scale, float *least)
{
    if (packing == K_PACKING_Q6_K) {
        put_16(scale, half_at(p + 208), load_16(p + 192));
    } else if (packing == K_PACKING_Q3_K) {
        put_16(scale, half_at(p + 108), scales_3(p + 96));
    } else if (packing == K_PACKING_Q2_K) {
        const __m128i v = load_16(p), four = _mm_set1_epi8(15);
        put_16(scale, half_at(p + 80), _mm_and_si128(v, four));
        put_16(least, -half_at(p + 82), _mm_and_si128(_mm_srli_epi16(v, 4), four));
    } else if (packing == K_PACKING_IQ4_XS) {
        _mm256_storeu_ps(scale, _mm256_mul_ps(_mm256_set1_ps(half_at(p)), scales_iq4(p + 2)));
    } else {
        const uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12);
        _mm256_storeu_ps(scale, _mm256_mul_ps(_mm256_set1_ps(half_at(p)), six_bits(a, c, a)));
        _mm256_storeu_ps(least, _mm256_mul_ps(_mm256_set1_ps(-half_at(p + 2)), six_bits(b, c >> 4, b)));
    }
}

CPU_INLINE float plane_scale(const struct k_weight_view *w, uint64_t index)
{
    const uint8_t *p = (const uint8_t *)w->scales;
    uint16_t h;
    if (w->format.scale == K_F32)
        return k_f32_from_bits(word_at(p + index * 4));
    if (w->format.scale == K_E8M0)
        return k_half_from_e8m0(p[index]);
    memcpy(&h, p + index * 2, sizeof h);
    return w->format.scale == K_F16 ? _cvtsh_ss(h) : k_f32_from_bf16(h);
}

/* Loads the f16 numbers of n <= 8 blocks, `stride` bytes apart; the others are 0. Uses one store: the transposition
 * that follows could not load from eight stores before they are in the cache. */
CPU_INLINE void halves_of_blocks(const uint8_t *p, const uint32_t stride, uint32_t n, float *out)
{
    __m128i v = _mm_setzero_si128();
#define HALF(i) \
    do { \
        uint16_t h = 0; \
        if ((i) < n) \
            memcpy(&h, p + (i) * stride, sizeof h); \
        v = _mm_insert_epi16(v, (short)h, (i)); \
    } while (0)
    HALF(0);
    HALF(1);
    HALF(2);
    HALF(3);
    HALF(4);
    HALF(5);
    HALF(6);
    HALF(7);
#undef HALF
    _mm256_storeu_ps(out, _mm256_cvtph_ps(v));
}

/* The same for the scales of MXFP4's blocks. */
CPU_INLINE void e8m0_of_blocks(const uint8_t *p, const uint32_t stride, uint32_t n, float *out)
{
    uint64_t bytes = 0;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; i++)
        bytes |= i < n ? (uint64_t)p[i * stride] << 8 * i : 0;
    _mm256_storeu_ps(out, halves_from_e8m0(_mm_cvtsi64_si128((long long)bytes)));
}

/* Unpacks scale and least of each group that overlaps the n columns starting at k; least only if the format has one. */
CPU_INLINE void unpack_scales(const struct k_weight_view *w, const enum k_packing packing, uint32_t row, uint32_t k,
                              uint32_t n, float *scale, float *least)
{
    const uint8_t *data = (const uint8_t *)w->data + (uint64_t)row * w->row_stride_bytes;
    if (packing == K_PACKING_PLANES) {
        const uint32_t group = w->format.group, first = group ? k / group : 0, last = group ? (k + n - 1) / group : 0;
        const uint64_t at = k_scale_row(w, row) * plane_groups(w);
        if (w->format.scale == K_E8M0 && n == CHUNK) {
            e8m0_of_blocks((const uint8_t *)w->scales + at + first, 1, 8, scale);
            return;
        }
        for (uint32_t g = first; g <= last; g++)
            scale[g - first] = plane_scale(w, at + g);
    } else if (packing >= K_PACKING_Q2_K) {
        scales_of_256(data + (uint64_t)(k / 256) * block_bytes(packing), packing, scale, least);
    } else if (packing == K_PACKING_MXFP4) {
        e8m0_of_blocks(data + (uint64_t)(k / 32) * block_bytes(packing), block_bytes(packing), n / 32, scale);
    } else {
        const uint8_t *p = data + (uint64_t)(k / 32) * block_bytes(packing);
        halves_of_blocks(p, block_bytes(packing), n / 32, scale);
        if (packing == K_PACKING_Q4_1 || packing == K_PACKING_Q5_1)
            halves_of_blocks(p + 2, block_bytes(packing), n / 32, least);
    }
}

#endif
