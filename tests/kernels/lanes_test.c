/* Compares kernels/ref/lanes.h with kernels/math/, element by element. Built like kernels/ref. */
#include "kernels/math/convert.h"
#include "kernels/math/lane_sum.h"
#include "kernels/ref/lanes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool same_f32(float a, float b)
{
    return k_f32_bits(a) == k_f32_bits(b) || (isnan(a) && isnan(b));
}

static void test_widening(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i += 16) {
        uint16_t h[17]; /* one more, to read from an odd address */
        float f16[16], bf16[16];
        for (uint32_t j = 0; j < 16; j++)
            h[1 + j] = (uint16_t)(i + j);
        ref_store_f32(f16, ref_load_f16(h + 1));
        ref_store_f32(bf16, ref_load_bf16(h + 1));
        for (uint32_t j = 0; j < 16; j++) {
            assert_true(same_f32(f16[j], k_f32_from_f16(h[1 + j])));
            assert_true(same_f32(bf16[j], k_f32_from_bf16(h[1 + j])));
        }
    }
}

/* Values of very different magnitudes: a different order of additions gives a different sum, and a product that is
 * rounded before the addition gives a different fma. */
static float scattered(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return ldexpf((float)(int32_t)*state, (int)(*state >> 8 & 31) - 46);
}

static void test_fma_and_fold(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int round = 0; round < 1000; round++) {
        float a[16], b[16], c[16], out[16];
        for (int j = 0; j < 16; j++) {
            a[j] = scattered(&random);
            b[j] = scattered(&random);
            c[j] = scattered(&random);
        }
        struct ref_lanes s = ref_fma(ref_load_f32(a), ref_load_f32(b), ref_load_f32(c));
        ref_store_f32(out, s);
        for (int j = 0; j < 16; j++)
            assert_true(same_f32(out[j], fmaf(a[j], b[j], c[j])));
        assert_true(same_f32(ref_fold(s), k_lane_fold(out)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_fma_and_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
