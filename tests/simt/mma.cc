/* mma.sync.m16n8k16 with f16 factors and f32 sums, as a Hopper GPU computes it. fragments/tensor_core.h describes the
 * arithmetic; this file computes it for eight columns at a time. Otherwise it would take half of the emulator's time:
 * 2,048 products per instruction. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "tests/simt/state.h"

namespace simt
{

constexpr int bits = 25; /* multiples of 2^(E - 25) */
constexpr int smallest_product = -28; /* its exponent: two factors of at most 2^-14 */
constexpr int none = -64; /* a zero's: any sum with it is below smallest_product, and two of them fit eight bits */

struct Operands {
    alignas(32) uint16_t a16[16][16], b16[16][8];
    alignas(32) float a[16][16], b[16][8], c[16][8];
    alignas(32) int8_t a_exponent[16][16]; /* by k, then by row */
    alignas(32) int8_t b_exponent[16][32]; /* by k, the eight columns four times */
    bool has_special; /* a factor or a sum is infinite or NaN */
};

static void gather(const Meeting &m, Operands *o)
{
    for (int lane = 0; lane < 32; lane++) {
        auto *x = (MmaArgument *)m.argument[lane];
        int g = lane / 4, t = 2 * (lane % 4);
        memcpy(&o->a16[g][t], &x->a[0], 4);
        memcpy(&o->a16[g + 8][t], &x->a[1], 4);
        memcpy(&o->a16[g][t + 8], &x->a[2], 4);
        memcpy(&o->a16[g + 8][t + 8], &x->a[3], 4);
        for (int i = 0; i < 4; i++) {
            int k = t + (i & 1) + (i & 2) * 4; /* t, t + 1, t + 8, t + 9 */
            o->b16[k][g] = (uint16_t)(x->b[i / 2] >> 16 * (i & 1));
        }
        memcpy(&o->c[g][t], &x->c[0], 8);
        memcpy(&o->c[g + 8][t], &x->c[2], 8);
    }
}

/* Returns the exponents of 16 halves as bytes in their order. *special collects those with an exponent of 31. */
static __m128i exponents(const uint16_t *halves, __m256i *special)
{
    __m256i h = _mm256_and_si256(_mm256_load_si256((const __m256i *)halves), _mm256_set1_epi16(0x7fff));
    __m256i field = _mm256_srli_epi16(h, 10);
    __m256i e = _mm256_sub_epi16(_mm256_max_epi16(field, _mm256_set1_epi16(1)), _mm256_set1_epi16(15));
    e = _mm256_blendv_epi8(e, _mm256_set1_epi16(none), _mm256_cmpeq_epi16(h, _mm256_setzero_si256()));
    *special = _mm256_or_si256(*special, _mm256_cmpeq_epi16(field, _mm256_set1_epi16(31)));
    return _mm_packs_epi16(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
}

/* Transposes 16 x 16 bytes: four times, the upper and the lower half of the vectors are interleaved. */
static void transpose(__m128i rows[16])
{
    for (int step = 0; step < 4; step++) {
        __m128i next[16];
        for (int i = 0; i < 8; i++) {
            next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
            next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
        }
        memcpy(rows, next, sizeof next);
    }
}

static void prepare(Operands *o)
{
    __m256i special = _mm256_setzero_si256();
    __m128i rows[16];
    for (int i = 0; i < 16; i++) {
        rows[i] = exponents(o->a16[i], &special);
        for (int k = 0; k < 16; k += 8)
            _mm256_store_ps(&o->a[i][k], _mm256_cvtph_ps(_mm_load_si128((const __m128i *)&o->a16[i][k])));
    }
    transpose(rows);
    memcpy(o->a_exponent, rows, sizeof rows);
    for (int k = 0; k < 16; k += 2) {
        __m128i two = exponents(o->b16[k], &special);
        _mm256_store_si256((__m256i *)o->b_exponent[k], _mm256_broadcastq_epi64(two));
        _mm256_store_si256((__m256i *)o->b_exponent[k + 1], _mm256_broadcastq_epi64(_mm_srli_si128(two, 8)));
        _mm256_store_ps(o->b[k], _mm256_cvtph_ps(_mm_load_si128((const __m128i *)o->b16[k])));
        _mm256_store_ps(o->b[k + 1], _mm256_cvtph_ps(_mm_load_si128((const __m128i *)o->b16[k + 1])));
    }
    for (int i = 0; i < 16; i++) {
        __m256i field = _mm256_and_si256(_mm256_load_si256((const __m256i *)o->c[i]), _mm256_set1_epi32(0x7f800000));
        special = _mm256_or_si256(special, _mm256_cmpeq_epi32(field, _mm256_set1_epi32(0x7f800000)));
    }
    o->has_special = !_mm256_testz_si256(special, special);
}

/* Returns the largest exponent of a product for each of four rows and eight columns. */
static __m256i largest_exponents(const Operands *o, int row)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                            3, 3, 3, 3, 3, 3, 3);
    __m256i top = _mm256_set1_epi8(-128);
    for (int k = 0; k < 16; k++) {
        int four;
        memcpy(&four, &o->a_exponent[k][row], 4);
        __m256i of_a = _mm256_shuffle_epi8(_mm256_set1_epi32(four), spread);
        __m256i of_b = _mm256_load_si256((const __m256i *)o->b_exponent[k]);
        top = _mm256_max_epi8(top, _mm256_add_epi8(of_a, of_b));
    }
    return top;
}

/* Returns E: the largest exponent of the products and of c, unless c is zero. */
static __m256i alignment(__m256i products, __m256 c)
{
    __m256i size = _mm256_and_si256(_mm256_castps_si256(c), _mm256_set1_epi32(0x7fffffff));
    __m256i e = _mm256_max_epi32(_mm256_srli_epi32(size, 23), _mm256_set1_epi32(1));
    e = _mm256_sub_epi32(e, _mm256_set1_epi32(127));
    e = _mm256_blendv_epi8(e, products, _mm256_cmpeq_epi32(size, _mm256_setzero_si256()));
    return _mm256_max_epi32(products, e);
}

/* Returns (sum + c) x 2^(E - 25), truncated to f32. Sixteen products are below 2^31; with c they may exceed it, but fit
 * a double. No sum with a product is a denormal. */
static __m128 cut(__m128i sum, __m128i c, __m128i e)
{
    __m256d exact = _mm256_add_pd(_mm256_cvtepi32_pd(sum), _mm256_cvtepi32_pd(c));
    exact = _mm256_and_pd(exact, _mm256_castsi256_pd(_mm256_set1_epi64x(~0x1fffffffll)));
    __m256i power = _mm256_cvtepi32_epi64(_mm_add_epi32(e, _mm_set1_epi32(1023 - bits)));
    return _mm256_cvtpd_ps(_mm256_mul_pd(exact, _mm256_castsi256_pd(_mm256_slli_epi64(power, 52))));
}

/* Returns a row of d, from the sums of its products and of c in multiples of 2^(E - 25). Without products it is c. */
static __m256 finish(__m256i sum, __m256i c_part, __m256i e, __m256i products, __m256 c)
{
    __m128 low = cut(_mm256_castsi256_si128(sum), _mm256_castsi256_si128(c_part), _mm256_castsi256_si128(e));
    __m128 high = cut(_mm256_extracti128_si256(sum, 1), _mm256_extracti128_si256(c_part, 1),
                      _mm256_extracti128_si256(e, 1));
    __m256 d = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
    __m256i has_none = _mm256_cmpgt_epi32(_mm256_set1_epi32(smallest_product), products);
    return _mm256_blendv_ps(d, _mm256_add_ps(c, _mm256_setzero_ps()), _mm256_castsi256_ps(has_none));
}

/* Computes d of four rows. A product is exact in f32, and so is its multiple by 2^(25 - E), unless that is far below
 * 1. */
static void four_rows(const Operands *o, int row, float d[4][8])
{
    __m256i top = largest_exponents(o, row), products[4], e[4], sum[4];
    __m256 scale[4];
    for (int j = 0; j < 4; j++) {
        __m128i half = j < 2 ? _mm256_castsi256_si128(top) : _mm256_extracti128_si256(top, 1);
        products[j] = _mm256_cvtepi8_epi32(j % 2 ? _mm_srli_si128(half, 8) : half);
        e[j] = alignment(products[j], _mm256_load_ps(o->c[row + j]));
        scale[j] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(127 + bits), e[j]), 23));
        sum[j] = _mm256_setzero_si256();
    }
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 4; j++) {
            __m256 product = _mm256_mul_ps(_mm256_broadcast_ss(&o->a[row + j][k]), _mm256_load_ps(o->b[k]));
            sum[j] = _mm256_add_epi32(sum[j], _mm256_cvttps_epi32(_mm256_mul_ps(product, scale[j])));
        }
    for (int j = 0; j < 4; j++) {
        __m256 c = _mm256_load_ps(o->c[row + j]);
        __m256i c_part = _mm256_cvttps_epi32(_mm256_mul_ps(c, scale[j]));
        _mm256_store_ps(d[j], finish(sum[j], c_part, e[j], products[j], c));
    }
}

/* Infinities and NaN follow IEEE 754, except for NaN's bits. A double holds every finite sum. */
static void add_specials(const Operands *o, float d[16][8])
{
    const uint32_t nan_bits = 0x7fffffff;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double sum = o->c[i][j];
            for (int k = 0; k < 16; k++)
                sum += (double)o->a[i][k] * o->b[k][j];
            if (isnan(sum))
                memcpy(&d[i][j], &nan_bits, 4);
            else if (isinf(sum))
                d[i][j] = (float)sum;
        }
}

void mma_f16(const Meeting &m)
{
    Operands o;
    alignas(32) float d[16][8];
    gather(m, &o);
    prepare(&o);
    for (int row = 0; row < 16; row += 4)
        four_rows(&o, row, d + row);
    if (o.has_special)
        add_specials(&o, d);
    for (int lane = 0; lane < 32; lane++) {
        auto *x = (MmaArgument *)m.argument[lane];
        memcpy(&x->c[0], &d[lane / 4][2 * (lane % 4)], 8);
        memcpy(&x->c[2], &d[lane / 4 + 8][2 * (lane % 4)], 8);
    }
}

/* Whole numbers: d = c + A B modulo 2^32, in any order. */
void mma_s8(const Meeting &m)
{
    int8_t a[16][32], b[8][32]; /* rows, columns */
    for (int lane = 0; lane < 32; lane++) {
        auto *x = (MmaS8Argument *)m.argument[lane];
        int g = lane / 4, t = 4 * (lane % 4);
        for (int i = 0; i < 4; i++)
            memcpy(&a[g + i % 2 * 8][t + i / 2 * 16], &x->a[i], 4);
        for (int i = 0; i < 2; i++)
            memcpy(&b[g][t + i * 16], &x->b[i], 4);
    }
    for (int lane = 0; lane < 32; lane++) {
        auto *x = (MmaS8Argument *)m.argument[lane];
        for (int i = 0; i < 4; i++) {
            const int8_t *row = a[lane / 4 + i / 2 * 8], *col = b[2 * (lane % 4) + i % 2];
            int32_t sum = 0; /* at most 2^19 */
            for (int k = 0; k < 32; k++)
                sum += row[k] * col[k];
            x->c[i] = (int32_t)((uint32_t)x->c[i] + (uint32_t)sum);
        }
    }
}

} // namespace simt
