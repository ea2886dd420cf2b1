/* Unpacks quantized weights to bytes (docs/internals/numerics.md §19): q of 256 columns of a row at a time, and the
 * scale and the least of each of their groups. Fast readers for the formats of kernels/quant.h, with AVX2 instructions;
 * the files that include this header are built for several sets. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_UNPACK_H
#define QUIRE_KERNELS_CPU_QUANT_UNPACK_H

#include "kernels/cpu/simd/lanes.h"
#include "kernels/format.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"
#include "kernels/weight.h"

#define CHUNK 256u /* columns that are unpacked at a time, aligned to this number */
#define CHUNK_GROUPS 17u /* maximum number of groups in a chunk; each has at least 16 columns */

CPU_INLINE __m256i load_32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i_u *)(const void *)p);
}
CPU_INLINE __m128i load_16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i_u *)(const void *)p);
}
CPU_INLINE void store_32(int8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i_u *)(void *)p, v);
}
CPU_INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}
CPU_INLINE uint32_t word_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Returns bits [from, from + n) of each byte, shifted to the bottom. */
CPU_INLINE __m256i bits_of(__m256i v, const int from, const int n)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, from), _mm256_set1_epi8((char)((1 << n) - 1)));
}

/* Splits 16 bytes into 4-bit numbers: first the low halves, then the high ones. */
CPU_INLINE __m256i halves_of(__m128i v)
{
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

/* Returns 16 in the bytes whose bit is set. */
CPU_INLINE __m256i fifth_of(uint32_t bits)
{
    const __m256i from = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), from);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit), _mm256_set1_epi8(16));
}

/* The same as in kernels/format.c, as compile-time constants. */
CPU_INLINE uint32_t block_bytes(const enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0: return 34;
    case K_PACKING_Q4_0: return 18;
    case K_PACKING_Q4_1: return 20;
    case K_PACKING_Q5_0: return 22;
    case K_PACKING_Q5_1: return 24;
    case K_PACKING_Q2_K: return 84;
    case K_PACKING_Q3_K: return 110;
    case K_PACKING_Q4_K: return 144;
    case K_PACKING_Q5_K: return 176;
    default: return 210;
    }
}

/* ---- blocks of 32: one of them ---- */

CPU_INLINE __m256i block_of_32(const uint8_t *p, const enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q8_0: return load_32(p + 2);
    case K_PACKING_Q4_0: return _mm256_sub_epi8(halves_of(load_16(p + 2)), _mm256_set1_epi8(8));
    case K_PACKING_Q4_1: return halves_of(load_16(p + 4));
    case K_PACKING_Q5_0:
        return _mm256_sub_epi8(_mm256_or_si256(halves_of(load_16(p + 6)), fifth_of(word_at(p + 2))),
                               _mm256_set1_epi8(16));
    default: return _mm256_or_si256(halves_of(load_16(p + 8)), fifth_of(word_at(p + 4))); /* Q5_1 */
    }
}

/* ---- blocks of 256: a run of 32 ---- */

/* The fifth bits are adjacent: bit r of each byte belongs to run r. */
CPU_INLINE __m256i run_of_256(const uint8_t *p, const enum k_packing packing, const uint32_t r)
{
    const uint32_t half = r / 4, in = r % 4;
    switch (packing) {
    case K_PACKING_Q4_K: return bits_of(load_32(p + 16 + r / 2 * 32), (int)(r % 2 * 4), 4);
    case K_PACKING_Q5_K:
        return _mm256_or_si256(bits_of(load_32(p + 48 + r / 2 * 32), (int)(r % 2 * 4), 4),
                               _mm256_slli_epi16(bits_of(load_32(p + 16), (int)r, 1), 4));
    case K_PACKING_Q6_K:
        return _mm256_sub_epi8(
            _mm256_or_si256(bits_of(load_32(p + half * 64 + in % 2 * 32), (int)(in / 2 * 4), 4),
                            _mm256_slli_epi16(bits_of(load_32(p + 128 + half * 32), (int)(2 * in), 2), 4)),
            _mm256_set1_epi8(32));
    case K_PACKING_Q3_K:
        return _mm256_sub_epi8(_mm256_or_si256(bits_of(load_32(p + 32 + half * 32), (int)(2 * in), 2),
                                               _mm256_slli_epi16(bits_of(load_32(p), (int)r, 1), 2)),
                               _mm256_set1_epi8(4));
    default: return bits_of(load_32(p + 16 + half * 32), (int)(2 * in), 2); /* Q2_K */
    }
}

/* ---- planes ---- */

CPU_INLINE uint32_t plane_groups(const struct k_weight_view *w)
{
    return w->format.group ? (w->n_cols + w->format.group - 1) / w->format.group : 1;
}

/* Loads 32 columns starting at k of a row with n columns, padded with 0. Does not read past the row. */
CPU_INLINE __m256i plane_run(const uint8_t *row, uint32_t k, uint32_t n, const uint32_t bits)
{
    uint8_t last[32];
    const uint8_t *from = row + (uint64_t)k * bits / 8;
    if (n < 32) {
        memset(last, 0, sizeof last);
        from = memcpy(last, from, (n * bits + 7) / 8);
    }
    if (bits == 8)
        return load_32(from);
    const __m128i v = load_16(from), low = _mm_and_si128(v, _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
    return _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
}

/* Returns the zero points of 32 columns. Groups are multiples of 16 columns. */
CPU_INLINE __m256i plane_zeros(const struct k_weight_view *w, uint32_t row, uint32_t k)
{
    const uint32_t group = w->format.group;
    if (!w->zero_points)
        return _mm256_set1_epi8(w->format.bits == 4 ? 8 : 0);
    const int8_t *zeros = w->zero_points + (uint64_t)row * plane_groups(w);
    const uint32_t other = k + 16 < w->n_cols ? k + 16 : k;
    return _mm256_set_m128i(_mm_set1_epi8(zeros[group ? other / group : 0]),
                            _mm_set1_epi8(zeros[group ? k / group : 0]));
}

/* ---- a chunk ---- */

/* Unpacks q of up to 256 columns starting at k, padded with zeros to a multiple of 32. */
CPU_INLINE void unpack_chunk(const struct k_weight_view *w, const enum k_packing packing, uint32_t row, uint32_t k,
                             uint32_t n, int8_t out[CHUNK])
{
    const uint8_t *data = (const uint8_t *)w->data + (uint64_t)row * w->row_stride_bytes;
    if (packing == K_PACKING_PLANES) {
        const uint32_t bits = w->format.bits;
        for (uint32_t i = 0; i < n; i += 32) {
            const uint32_t left = n - i;
            __m256i q = bits == 4 ? plane_run(data, k + i, left, 4) : plane_run(data, k + i, left, 8);
            if (bits == 4 || w->zero_points)
                q = _mm256_sub_epi8(q, plane_zeros(w, row, k + i));
            store_32(out + i, q);
            if (left < 32)
                memset(out + i + left, 0, 32 - left);
        }
    } else if (packing >= K_PACKING_Q2_K) {
#pragma GCC unroll 8
        for (uint32_t r = 0; r < 8; r++)
            store_32(out + r * 32, run_of_256(data + (uint64_t)(k / 256) * block_bytes(packing), packing, r));
    } else {
        const uint8_t *p = data + (uint64_t)(k / 32) * block_bytes(packing);
        for (uint32_t i = 0; i < n; i += 32, p += block_bytes(packing))
            store_32(out + i, block_of_32(p, packing));
    }
}

/* Prefetches the same columns of another row of the same view. */
CPU_INLINE void prefetch_chunk(const struct k_weight_view *w, const enum k_packing packing, uint32_t row, uint32_t k,
                               uint32_t n)
{
    const char *data = (const char *)w->data + (uint64_t)row * w->row_stride_bytes;
    uint64_t from = (uint64_t)k * w->format.bits / 8, bytes = (uint64_t)n * w->format.bits / 8;
    if (packing >= K_PACKING_Q2_K) {
        from = (uint64_t)(k / 256) * block_bytes(packing);
        bytes = block_bytes(packing);
    } else if (packing != K_PACKING_PLANES) {
        from = (uint64_t)(k / 32) * block_bytes(packing);
        bytes = (uint64_t)(n / 32) * block_bytes(packing);
    }
    for (uint64_t at = 0; at < bytes; at += 64)
        _mm_prefetch(data + from + at, _MM_HINT_T0);
}

/* ---- scales ---- */

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

/* Unpacks scale and least of each group that overlaps the n columns starting at k; least only if the format has one. */
CPU_INLINE void unpack_scales(const struct k_weight_view *w, const enum k_packing packing, uint32_t row, uint32_t k,
                              uint32_t n, float *scale, float *least)
{
    const uint8_t *data = (const uint8_t *)w->data + (uint64_t)row * w->row_stride_bytes;
    if (packing == K_PACKING_PLANES) {
        const uint32_t group = w->format.group, first = group ? k / group : 0, last = group ? (k + n - 1) / group : 0;
        const uint64_t at = (uint64_t)(w->scale_rows > 1 ? row / w->scale_rows : row) * plane_groups(w);
        for (uint32_t g = first; g <= last; g++)
            scale[g - first] = plane_scale(w, at + g);
    } else if (packing >= K_PACKING_Q2_K) {
        scales_of_256(data + (uint64_t)(k / 256) * block_bytes(packing), packing, scale, least);
    } else {
        const uint8_t *p = data + (uint64_t)(k / 32) * block_bytes(packing);
        halves_of_blocks(p, block_bytes(packing), n / 32, scale);
        if (packing == K_PACKING_Q4_1 || packing == K_PACKING_Q5_1)
            halves_of_blocks(p + 2, block_bytes(packing), n / 32, least);
    }
}

#endif
