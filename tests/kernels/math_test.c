/* Compares kernels/math/ with the specification bit for bit, and with wide libm functions within the documented
 * errors. */
#include "kernels/math/activation.h"
#include "kernels/math/bits.h"
#include "kernels/math/convert.h"
#include "kernels/math/exp.h"
#include "kernels/math/lane_sum.h"
#include "kernels/math/philox.h"
#include "kernels/math/round.h"
#include "kernels/math/sincos.h"
#include "kernels/math/wide.h"
#include "tests/kernels/page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define STRIDE 4099u /* for sweeps over all floats: about a million values */

static bool same_f32(float a, float b)
{
    return k_f32_bits(a) == k_f32_bits(b) || (isnan(a) && isnan(b));
}

/* The distance in units of the last place of a number with `digits` binary digits. */
static long double ulps(long double got, long double want, int digits, int min_exponent)
{
    int exponent;
    frexpl(want, &exponent);
    if (exponent < min_exponent + 1)
        exponent = min_exponent + 1;
    return fabsl(got - want) / ldexpl(1, exponent - digits);
}

static void test_exp(void **state)
{
    (void)state;
    long double worst = 0;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += STRIDE) {
        float x = k_f32_from_bits((uint32_t)i), y = k_exp(x);
        assert_true(same_f32(y, page_exp(x)));
        if (x > K_EXP_LOW && x < K_EXP_HIGH)
            worst = fmaxl(worst, ulps(y, expl(x), 24, -126));
        if (x <= K_EXP_LOW)
            assert_true(k_f32_bits(y) == 0);
    }
    printf("exp: %.3Lf ulp\n", worst);
    assert_true(worst < 0.905);
    const float limits[] = {-0x1.5d5894p+6f, 0x1.62e426p+6f}; /* from the specification */
    for (int i = 0; i < 2; i++) {
        for (uint32_t j = 0; j < 200; j++) {
            float x = k_f32_from_bits(k_f32_bits(limits[i]) - 100 + j);
            assert_true(same_f32(k_exp(x), page_exp(x)));
        }
    }
    assert_true(k_exp(0.0f) == 1.0f && k_exp(-0.0f) == 1.0f);
    assert_true(k_f32_bits(k_exp(-INFINITY)) == 0 && k_exp(INFINITY) == INFINITY);
    assert_true(isnan(k_exp(NAN)) && isnan(k_exp(k_f32_from_bits(0xff800001u))));
    assert_true(k_f32_bits(k_exp(K_EXP_LOW)) == 0);
    assert_true(k_exp(nextafterf(K_EXP_LOW, 0)) >= 0x1p-126f);
    assert_true(k_exp(K_EXP_HIGH) == INFINITY && k_exp(nextafterf(K_EXP_HIGH, 0)) < INFINITY);
}

/* For every float in the range where the error differs from that at x = 0. The results rounded to f16 equal the
 * specification, and their error is little more than that of the rounding. */
static void test_exp_half(void **state)
{
    (void)state;
    long double worst = 0, rounded_worst = 0;
    for (uint32_t bits = k_f32_bits(-0x1p-20f); bits <= k_f32_bits(-19.0f); bits += 97) {
        float x = k_f32_from_bits(bits), y = k_exp_half(x), p = k_f32_from_f16(k_f16_from_f32(y));
        long double want = expl(x);
        assert_true(same_f32(p, page_exp_half(x)));
        if (x >= -18.0f)
            worst = fmaxl(worst, fabsl(y / want - 1));
        if (p >= 0x1p-14f)
            rounded_worst = fmaxl(rounded_worst, fabsl(p / want - 1));
        else
            assert_true(fabsl(p - want) <= 0x1p-25L + 7.53e-5L * want);
    }
    printf("exp for f16: %.3Lg, rounded %.3Lg of 2^-11\n", worst, rounded_worst * 0x1p11L);
    assert_true(worst < 7.53e-5 && rounded_worst < 0x1p-11 + 7.53e-5);
    for (uint32_t bits = 0; bits < k_f32_bits(0x1p-20f); bits += 65521)
        assert_int_equal(k_f16_from_f32(k_exp_half(-k_f32_from_bits(bits))), 0x3c00);
    for (uint32_t bits = k_f32_bits(-18.0f); bits < k_f32_bits(-INFINITY); bits += STRIDE)
        assert_int_equal(k_f16_from_f32(k_exp_half(k_f32_from_bits(bits))), 0);
    assert_int_equal(k_f16_from_f32(k_exp_half(-INFINITY)), 0);
    assert_true(page_exp_half(-INFINITY) == 0 && page_exp_half(0.0f) == 1 && isnan(page_exp_half(NAN)));
    assert_true(isnan(k_exp_half(NAN)) && isnan(k_exp_half(-NAN)));
    assert_int_equal(k_f16_from_f32(k_exp_half(k_f32_from_bits(0x7fffffffu))), 0x7c00); /* NVIDIA's NaN */
}

/* GELU's approximation: within 10 u of x of the exact one, and far left and right 0 and x. */
static void test_gelu_tanh(void **state)
{
    (void)state;
    long double worst = 0;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += STRIDE) {
        const float x = k_f32_from_bits((uint32_t)i);
        const long double y = x, want = 0.5L * y * (1 + tanhl(sqrtl(2 / acosl(-1)) * (y + 0.044715L * y * y * y)));
        if (fabsf(x) >= 0x1p-120f && fabsf(x) < 1e12f)
            worst = fmaxl(worst, fabsl(k_gelu_tanh(x) - want) / fabsl(y));
    }
    printf("gelu by tanh: %.2Lf u of x\n", worst * 0x1p+24L);
    assert_true(worst < 10 * 0x1p-24L);
    assert_true(k_gelu_tanh(100.0f) == 100.0f && k_gelu_tanh(-100.0f) == 0 && isnan(k_gelu_tanh(NAN)));
}

static void test_silu_and_rsqrt(void **state)
{
    (void)state;
    long double silu = 0, rsqrt = 0;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += STRIDE) {
        float x = k_f32_from_bits((uint32_t)i);
        if (fabsf(x) < 87.0f)
            silu = fmaxl(silu, ulps(k_silu(x), x / (1 + expl(-(long double)x)), 24, -126));
        if (x >= 0x1p-126f && x < INFINITY)
            rsqrt = fmaxl(rsqrt, ulps(k_rsqrt(x), 1 / sqrtl(x), 24, -126));
    }
    printf("silu: %.3Lf ulp, rsqrt: %.3Lf ulp\n", silu, rsqrt);
    assert_true(silu < 2.5 && rsqrt < 1.5);
    assert_true(same_f32(k_silu(-100.0f), -0.0f) && k_silu(100.0f) == 100.0f && isnan(k_silu(NAN)));
}

static void test_tanh(void **state)
{
    (void)state;
    long double worst = 0;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += STRIDE) {
        float x = k_f32_from_bits((uint32_t)i), y = k_tanh(x);
        assert_true(same_f32(y, page_tanh(x)));
        if (!isnan(x))
            worst = fmaxl(worst, ulps(y, tanhl(x), 24, -126));
        assert_true(isnan(x) || fabsf(y) <= 1.0f);
    }
    /* The inputs with the largest errors: every n, from the smallest remainder to the largest. */
    for (uint32_t bits = k_f32_bits(0x1p-6f); bits < k_f32_bits(11.0f); bits += 37) {
        float x = k_f32_from_bits(bits), y = k_tanh(x);
        assert_true(same_f32(y, page_tanh(x)) && same_f32(k_tanh(-x), -y));
        worst = fmaxl(worst, ulps(y, tanhl(x), 24, -126));
    }
    printf("tanh: %.3Lf ulp\n", worst);
    assert_true(worst < 2.7);
    assert_true(same_f32(k_tanh(0.0f), 0.0f) && same_f32(k_tanh(-0.0f), -0.0f));
    assert_true(k_tanh(INFINITY) == 1 && k_tanh(-INFINITY) == -1 && k_tanh(9.02f) == 1 && isnan(k_tanh(NAN)));
    assert_true(same_f32(k_tanh(0x1p-149f), 0x1p-149f));
    for (float cap = 0.5f; cap < 1e3f; cap *= 1.7f)
        for (float score = -1e4f; score < 1e4f; score += 77.7f)
            assert_true(same_f32(k_softcap(score, cap, 1.0f / cap), page_softcap(score, cap)));
}

static void test_sincos(void **state)
{
    (void)state;
    long double worst = 0;
    for (uint32_t bits = 0; bits <= 0x4c800000u; bits += STRIDE) { /* up to 2^26 */
        for (uint32_t sign = 0; sign <= 1; sign++) {
            float x = k_f32_from_bits(bits | sign << 31), s, c, page_s, page_c;
            k_sincos(x, &s, &c);
            page_sincos(x, &page_s, &page_c);
            assert_true(same_f32(s, page_s) && same_f32(c, page_c));
            worst = fmaxl(worst, ulps(s, sinl(x), 24, -126));
            worst = fmaxl(worst, ulps(c, cosl(x), 24, -126));
        }
    }
    printf("sin, cos: %.5Lf ulp\n", worst);
    assert_true(worst < 0.50001);
    float s, c;
    k_sincos(0.0f, &s, &c);
    assert_true(k_f32_bits(s) == 0 && c == 1.0f);
    k_sincos(INFINITY, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

static void test_log64_and_exp64(void **state)
{
    (void)state;
    uint64_t random = 5;
    long double log_worst = 0, exp_worst = 0;
    for (int i = 0; i < 1000000; i++) {
        double unit = (double)(op_random(&random) >> 11) * 0x1p-53;
        double x = i % 3 == 0   ? 1.0 + unit * 0x1p22
                   : i % 3 == 1 ? 0.5 + unit * 2
                                : k_f64_from_bits(op_random(&random) >> 1);
        if (!(x > 0) || isinf(x))
            continue;
        assert_true(k_f64_bits(k_log64(x)) == k_f64_bits(page_log(x)));
        log_worst = fmaxl(log_worst, ulps(k_log64(x), logl(x), 53, -1022));
        double y = (unit * 1417 - 708) / (i % 2 ? 1 : 1000);
        exp_worst = fmaxl(exp_worst, ulps(k_exp64(y), expl(y), 53, -1022));
    }
    printf("log64: %.3Lf ulp, exp64: %.3Lf ulp\n", log_worst, exp_worst);
    assert_true(log_worst < 2 && exp_worst < 0.9);
    assert_true(k_log64(1.0) == 0 && k_log64(0.0) == -INFINITY && k_log64(INFINITY) == INFINITY);
    assert_true(isnan(k_log64(-1.0)) && isnan(k_log64(NAN)));
    assert_true(k_exp64(0.0) == 1 && k_exp64(-1000.0) == 0 && k_exp64(1000.0) == INFINITY);
    assert_true(k_exp64(-INFINITY) == 0 && isnan(k_exp64(NAN)));
    assert_true(fabs(k_log64(0x1p-1070) / (-1070 * 0x1.62e42fefa39efp-1) - 1) < 0x1p-51);
}

static void test_widening(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        assert_true(same_f32(k_f32_from_f16((uint16_t)h), page_f32_from_f16((uint16_t)h)));
        assert_true(same_f32(k_f32_from_bf16((uint16_t)h), page_f32_from_bf16((uint16_t)h)));
    }
}

static void check_narrowing(float x)
{
    uint16_t f16 = k_f16_from_f32(x), bf16 = k_bf16_from_f32(x);
    if (isnan(x)) {
        assert_true((f16 & 0x7e00) == 0x7e00 && (bf16 & 0x7fc0) == 0x7fc0);
        return;
    }
    assert_int_equal(f16, page_f16_from_f32(x));
    assert_int_equal(bf16, page_bf16_from_f32(x));
}

/* A sweep, and every tie with its neighbours. A tie is halfway between two adjacent values. */
static void test_narrowing(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += STRIDE)
        check_narrowing(k_f32_from_bits((uint32_t)i));
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t bf16_tie = h << 16 | 0x8000u;
        float f16 = k_f32_from_f16((uint16_t)h), next = k_f32_from_f16((uint16_t)(h + 1));
        uint32_t f16_tie = k_f32_bits(f16 / 2 + next / 2);
        for (uint32_t near = 0; near < 3; near++) {
            check_narrowing(k_f32_from_bits(bf16_tie - 1 + near));
            check_narrowing(k_f32_from_bits(f16_tie - 1 + near));
        }
        if (!isnan(f16))
            assert_int_equal(k_f16_from_f32(f16), h);
    }
    const float edges[] = {65519.996f, 65520.0f, 65536.0f,  3.4e38f,  INFINITY,  -INFINITY,       0.0f,        -0.0f,
                           0x1p-24f,   0x1p-25f, 0x1p-149f, 65504.0f, -65520.0f, 0x1.000002p-25f, 0x1.ffcp-15f};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        check_narrowing(edges[i]);
}

static float fp8_of(uint32_t u, int fraction_bits)
{
    return fraction_bits == 3 ? k_f32_from_e4m3((uint8_t)u) : k_f32_from_e5m2((uint8_t)u);
}

static void check_fp8(float x, int fraction_bits)
{
    uint8_t u = fraction_bits == 3 ? k_e4m3_from_f32(x) : k_e5m2_from_f32(x);
    assert_int_equal(u, page_fp8_from_f32(x, fraction_bits));
}

/* Every finite code; every tie between two codes, with its neighbours; a sweep of all numbers up to the largest. */
static void test_fp8(void **state)
{
    (void)state;
    for (int fraction_bits = 2; fraction_bits <= 3; fraction_bits++) {
        const uint32_t top = fraction_bits == 3 ? 0x7e : 0x7b;
        for (uint32_t u = 0; u <= top; u++) {
            const float x = fp8_of(u, fraction_bits), tie = (x + fp8_of(u + (u < top), fraction_bits)) / 2;
            assert_true(same_f32(x, page_f32_from_fp8((uint8_t)u, fraction_bits)));
            assert_true(same_f32(-x, fp8_of(u | 0x80, fraction_bits)));
            for (uint32_t i = 0; i < 6; i++) {
                float near = i < 2 ? x : nextafterf(tie, i % 3 == 0 ? 0.0f : i % 3 == 1 ? tie : INFINITY);
                near = near > fp8_of(top, fraction_bits) ? x : near;
                check_fp8(near, fraction_bits);
                check_fp8(-near, fraction_bits);
            }
            assert_int_equal(fraction_bits == 3 ? k_e4m3_from_f32(x) : k_e5m2_from_f32(x), u);
        }
        for (uint64_t i = 0; i <= k_f32_bits(fp8_of(top, fraction_bits)); i += 25 * STRIDE)
            check_fp8(k_f32_from_bits((uint32_t)i), fraction_bits);
    }
    assert_true(isnan(k_f32_from_e4m3(0x7f)) && isnan(k_f32_from_e4m3(0xff)));
    assert_true(k_f32_from_e4m3(0x7e) == 448 && k_f32_from_e5m2(0x7b) == 57344 && k_f32_from_e5m2(0x7c) == INFINITY);
}

static void test_e8m0(void **state)
{
    (void)state;
    for (int e = 0; e < 255; e++) {
        const float half = k_half_from_e8m0((uint8_t)e);
        assert_true(half == ldexpf(1, e - 128) && (k_f32_bits(half) & 0xffff) == 0);
    }
    assert_true(isnan(k_half_from_e8m0(255)));
}

/* A head in 8 bits, with largest numbers at every limit. */
static void test_kv_bytes(void **state)
{
    (void)state;
    static const enum k_dtype kinds[] = {K_INT, K_E4M3, K_E5M2};
    static const float tops[] = {K_KV_TOP_INT8, K_KV_TOP_E4M3, K_KV_TOP_E5M2};
    static const float sizes[] = {0.0f,  0x1p-149f,        0x1p-127f, 0x1.fffffep-111f, 0x1p-110f, 0x1.8p-109f, 1.0f,
                                  3e38f, 0x1.fffffep+127f, 1.7f,      INFINITY,         NAN};
    static const float shares[] = {1.0f,      -1.0f,     0.0f,       -0.0f,       0.5f,
                                   -0x1p-20f, 0.999999f, 2.5f / 127, -3.5f / 127, 17.0f / 448};
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            float x[16] = {0}, scale;
            uint8_t want[16];
            for (uint32_t i = 0; i < 10; i++)
                x[i] = i == 0 || isfinite(sizes[s]) ? sizes[s] * shares[i] : shares[i];
            scale = page_kv_store(kinds[k], x, 16, want);
            assert_true(same_f32(k_kv_scale(fabsf(sizes[s]), tops[k]), scale));
            const float factor = k_kv_factor(fabsf(sizes[s]), tops[k]);
            for (uint32_t i = 0; i < 16; i++) {
                float y = k_kv_bounded(x[i], factor, tops[k]);
                uint8_t u = kinds[k] == K_INT    ? (uint8_t)k_round_int8(x[i], factor)
                            : kinds[k] == K_E4M3 ? k_e4m3_from_f32(y)
                                                 : k_e5m2_from_f32(y);
                assert_int_equal(u, want[i]);
            }
        }
    }
}

/* 16 values for which any other order of additions gives another sum. */
static void test_fold(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (int round = 0; round < 1000; round++) {
        float lanes[16], s[16];
        for (int j = 0; j < 16; j++)
            s[j] = lanes[j] = op_random_value(&random, VALUES_WIDE);
        for (int half = 8; half >= 1; half /= 2)
            for (int j = 0; j < half; j++)
                s[j] += s[j + half];
        assert_true(same_f32(k_lane_fold(lanes), s[0]));
    }
}

/* Known answers of the Random123 distribution (philox4x32-10). */
static void test_philox(void **state)
{
    (void)state;
    static const uint32_t answers[3][10] = {
        /* counter, key, output */
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4], page[4];
        k_philox(answers[i], answers[i] + 4, out);
        page_philox(answers[i], answers[i] + 4, page);
        assert_memory_equal(out, answers[i] + 6, sizeof out);
        assert_memory_equal(page, answers[i] + 6, sizeof page);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_exp_half),
        cmocka_unit_test(test_silu_and_rsqrt),
        cmocka_unit_test(test_gelu_tanh),
        cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_sincos),
        cmocka_unit_test(test_log64_and_exp64),
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_narrowing),
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_kv_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
