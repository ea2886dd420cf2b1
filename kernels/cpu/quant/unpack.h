/* Unpacks quantized weights to bytes (docs/internals/numerics.md §19): q of 256 columns of a row at a time. Fast
 * readers for the formats of kernels/quant.h, with AVX2 instructions; the files that include this header are built for
 * several sets. Pure; any thread. */
#ifndef QUIRE_KERNELS_CPU_QUANT_UNPACK_H
#define QUIRE_KERNELS_CPU_QUANT_UNPACK_H

#include "kernels/cpu/quant/bytes.h"
#include "kernels/weight.h"

#include <stdbool.h>
#include <stdint.h>
#include <immintrin.h>
#include <string.h>

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
    case K_PACKING_MXFP4: return numbers_of(k_codes_e2m1(), halves_of(load_16(p + 1)));
    case K_PACKING_IQ4_NL: return numbers_of(k_codes_iq4(), halves_of(load_16(p + 2)));
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
    case K_PACKING_IQ4_XS: return numbers_of(k_codes_iq4(), halves_of(load_16(p + 8 + r * 16)));
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
            if (w->format.kind == K_E2M1)
                q = numbers_of(k_codes_e2m1(), q);
            else if (bits == 4 || w->zero_points)
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

#endif
