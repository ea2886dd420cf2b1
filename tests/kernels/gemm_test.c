/* GEMMs whose sums lie where random numbers do not: zeros with a sign, and results on both sides
 * of the smallest normal number, which the tile form flushes. Against the page, bit for bit. */
#include "tests/kernels/page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_COLS 100

/* y of one row and one token, from weights given as f32. */
static float backend_dot(enum k_gemm_form form, enum k_dtype dtype, const float *w, const float *x,
                         uint32_t n, float *page)
{
    struct k_backend *b;
    const char *why;
    struct quire_error err;
    struct k_weight *weight;
    unsigned char stored[MAX_COLS * sizeof(float)];
    for (uint32_t k = 0; k < n; k++) {
        uint16_t half = dtype == K_F16 ? page_f16_from_f32(w[k]) : page_bf16_from_f32(w[k]);
        if (dtype == K_F32)
            memcpy(stored + 4 * k, &w[k], 4);
        else
            memcpy(stored + 2 * k, &half, 2);
    }
    const struct k_weight_view view = {stored, dtype, 1, n, (uint64_t)n * k_dtype_bytes(dtype)};
    assert_int_equal(k_backend_open(&(struct k_backend_options){.device = "ref", .n_threads = 1, .form = form}, &b, &why, &err),
                     QUIRE_OK);
    assert_int_equal(b->ops->weight_create(b, &view, 1, &weight, &err), QUIRE_OK);
    float y = NAN;
    const struct k_gemm_args args = {weight, x, NULL, &y, NULL, 1};
    assert_int_equal(b->ops->gemm(b, &args, &err), QUIRE_OK);
    b->ops->weight_destroy(b, weight);
    b->ops->close(b);
    *page = form == K_FORM_TILE ? page_dot_tile(stored, x, n) : page_dot(stored, dtype, x, n);
    return y;
}

static bool is_minus_zero(float x)
{
    return x == 0.0f && signbit(x);
}

/* All products underflow to -0: the sum is -0 where no group of 16 was filled, else +0. */
static void test_minus_zero(void **state)
{
    (void)state;
    static const enum k_dtype dtypes[] = {K_F32, K_F16, K_BF16};
    for (int i = 0; i < 3; i++) {
        for (uint32_t n = 1; n <= 48; n++) {
            float w[48], x[48], page;
            for (uint32_t k = 0; k < n; k++) {
                w[k] = -0x1p-24f;
                x[k] = 0x1p-140f;
            }
            float y = backend_dot(K_FORM_LANE, dtypes[i], w, x, n, &page);
            assert_true(y == 0.0f && page == 0.0f);
            assert_true(is_minus_zero(y) == (n % 16 == 0));
            assert_true(is_minus_zero(page) == (n % 16 == 0));
        }
    }
}

/* Sums of a few numbers next to 2^-126, of which many cancel to a denormal. */
static void test_flush(void **state)
{
    (void)state;
    static const float weights[] = {0.0f,      0x1p-126f,    0x1.02p-126f,
                                    0x1p-127f, 0x1.02p-125f, 0x1p-133f};
    static const float activations[] = {0.0f, 1.0f,      0x1.02p0f, 0x1.01p0f,
                                        0.5f, 0x1p-126f, 0x1p-149f};
    uint64_t random = 3;
    uint32_t n_zero = 0;
    for (int round = 0; round < 4000; round++) {
        float w[MAX_COLS] = {0}, x[MAX_COLS] = {0}, page;
        for (int i = 0; i < 4; i++) { /* in any of four tiles */
            uint32_t k = (uint32_t)(op_random(&random) % MAX_COLS);
            w[k] = weights[op_random(&random) % 6] * (op_random(&random) % 2 ? 1.0f : -1.0f);
            x[k] = activations[op_random(&random) % 7];
        }
        float y = backend_dot(K_FORM_TILE, K_BF16, w, x, MAX_COLS, &page);
        assert_memory_equal(&y, &page, sizeof y);
        assert_true(fpclassify(y) != FP_SUBNORMAL);
        n_zero += y == 0.0f;
    }
    assert_true(n_zero > 400 && n_zero < 3600);
}

/* The high terms leave ∓(1 + 2^-6) 2^-126, to which the low one of 1 + 2^-8 adds ±2^-126. */
static void test_flush_keeps_the_sign(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        float w[5] = {sign * 0x1p-118f, 0, sign * -0x1p-118f, 0, sign * -0x1.04p-126f}, page;
        const float x[5] = {0x1.01p0f, 0, 1, 0, 1};
        float y = backend_dot(K_FORM_TILE, K_BF16, w, x, 5, &page);
        assert_true(y == 0.0f && (signbit(y) != 0) == (sign > 0));
        assert_memory_equal(&y, &page, sizeof y);
    }
}

/* An activation that bf16 cannot hold: its low term is inf - inf. */
static void test_split_overflow(void **state)
{
    (void)state;
    float w[16] = {1}, x[16] = {3.4e38f}, page;
    assert_true(isnan(backend_dot(K_FORM_TILE, K_BF16, w, x, 16, &page)) && isnan(page));
    assert_true(backend_dot(K_FORM_LANE, K_BF16, w, x, 16, &page) == 3.4e38f);
    x[0] = 3.3e38f;
    assert_true(fabsf(backend_dot(K_FORM_TILE, K_BF16, w, x, 16, &page) / 3.3e38f - 1) < 0x1p-16f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minus_zero),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_flush_keeps_the_sign),
        cmocka_unit_test(test_split_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
