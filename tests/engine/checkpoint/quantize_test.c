/* Plain matrices quantized when they are loaded: each number is the nearest that its format has, as numerics.md §19 says,
 * whatever the threads; what cannot be quantized is refused by its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/model/quantization/quantize.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 300u /* two blocks of 128 rows and a part of one */
#define K 160u /* 5 blocks of 32; a group of 128 and a part of one */
#define ARENA_BYTES (1u << 18)

static const struct k_format q8_0 = {K_INT, 8, 32, K_F16, K_PACKING_Q8_0}, q4_0 = {K_INT, 4, 32, K_F16, K_PACKING_Q4_0},
                             e4m3 = {K_E4M3, 8, 128, K_F32, K_PACKING_PLANES};

static float drawn(void)
{
    static uint64_t state = 11;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) * 0x1p-31f;
}

/* Rows of several magnitudes, one of zeros, one of numbers too small for a scale in f16. */
static void fill(float w[N][K])
{
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t k = 0; k < K; k++)
            w[n][k] = n == 7 ? 0 : drawn() * (n == 9 ? 1e-9f : n % 50 == 0 ? 90.0f : 0.05f);
    w[11][3] = -1; /* the largest of its block, twice */
    w[11][8] = 1;
}

static int quantize(const void *data, enum k_dtype dtype, struct k_format to, uint32_t n_threads, uint8_t *arena,
                    struct k_weight_view *v, struct quire_error *err)
{
    const struct checkpoint_tensor t = {
        .data = data, .format = k_format_of(dtype), .file = "a.safetensors", .name = "m.weight", .dtype = "F32"};
    const struct quantize q = {.tensor = &t, .to = to, .n_rows = N, .n_cols = K, .n_threads = n_threads};
    struct quantized_arena counted = {0}, made = {.base = arena};
    struct k_weight_view only_counted;
    assert_int_equal(quantize_view(&q, &counted, &only_counted, err), QUIRE_OK);
    assert_true(counted.used <= ARENA_BYTES);
    const int status = quantize_view(&q, &made, v, err);
    assert_int_equal(made.used, counted.used);
    return status;
}

static float nearest_e4m3(float x)
{
    float best = 0;
    for (uint32_t e = 0; e < 256; e++) {
        const float f = k_f32_from_e4m3((uint8_t)e);
        if (fabsf(f - x) < fabsf(best - x)) /* no NaN is */
            best = f;
    }
    return best;
}

static float most_of(float w[N][K], uint32_t first, uint32_t last, uint32_t k, uint32_t end, float *signed_most)
{
    *signed_most = 0;
    for (uint32_t n = first; n < last; n++)
        for (uint32_t i = k; i < end; i++)
            if (fabsf(w[n][i]) > fabsf(*signed_most))
                *signed_most = w[n][i];
    return fabsf(*signed_most);
}

static void check_e4m3(const struct k_weight_view *v, float w[N][K], uint32_t n, uint32_t k, float most)
{
    float q, s, least;
    k_quant_read(v, n, k, k + 1, &q);
    k_quant_scale(v, n, k, &s, &least);
    assert_true(s == most / 448 && most > 0);
    if (n % 9 == 0) /* the search takes long */
        assert_true(fabsf(q - w[n][k] / s) <= fabsf(nearest_e4m3(w[n][k] / s) - w[n][k] / s) * 1.0001f);
}

static void check_block(const struct k_weight_view *v, float w[N][K], uint32_t n, uint32_t k)
{
    float q[32], s, least, extreme;
    const float most = most_of(w, n, n + 1, k, k + 32, &extreme);
    const bool is_q8 = v->format.bits == 8;
    k_quant_read(v, n, k, k + 32, q);
    k_quant_scale(v, n, k, &s, &least);
    assert_true(s == k_f32_from_f16(k_f16_from_f32(is_q8 ? most / 127 : extreme / -8)));
    for (uint32_t i = 0; i < 32; i++) {
        const float x = s != 0 ? w[n][k + i] / s : 0, low = is_q8 ? -127 : -8, high = is_q8 ? 127 : 7;
        const float bounded = x < low ? low : x > high ? high : x;
        assert_true(fabsf(q[i] - bounded) <= 0.5001f);
    }
}

static void check(const struct k_weight_view *v, float w[N][K])
{
    const bool has_planes = v->format.packing == K_PACKING_PLANES;
    const uint32_t rows = has_planes ? 128 : 1, columns = has_planes ? 128 : 32;
    for (uint32_t first = 0; first < N; first += rows)
        for (uint32_t k = 0; k < K; k += columns) {
            const uint32_t last = first + rows < N ? first + rows : N, end = k + columns < K ? k + columns : K;
            float extreme;
            const float most = most_of(w, first, last, k, end, &extreme);
            if (!has_planes)
                check_block(v, w, first, k);
            for (uint32_t n = first; has_planes && n < last; n++)
                for (uint32_t i = k; i < end; i++)
                    check_e4m3(v, w, n, i, most);
        }
}

static void nearest_numbers(void **state)
{
    (void)state;
    static float w[N][K], widened[N][K];
    static uint16_t half[N][K];
    fill(w);
    const struct k_format formats[] = {q8_0, q4_0, e4m3};
    for (uint32_t f = 0; f < 3; f++)
        for (enum k_dtype dtype = K_F32; dtype <= K_BF16; dtype++) {
            uint8_t *one = calloc(1, ARENA_BYTES), *three = calloc(1, ARENA_BYTES);
            struct k_weight_view v, other;
            struct quire_error err;
            for (uint32_t i = 0; i < N * K; i++) {
                half[i / K][i % K] = dtype == K_F16 ? k_f16_from_f32(w[i / K][i % K])
                                                    : k_bf16_from_f32(w[i / K][i % K]);
                const uint16_t h = half[i / K][i % K];
                widened[i / K][i % K] = dtype == K_F32   ? w[i / K][i % K]
                                        : dtype == K_F16 ? k_f32_from_f16(h)
                                                         : k_f32_from_bf16(h);
            }
            const void *data = dtype == K_F32 ? (const void *)w : half;
            assert_int_equal(quantize(data, dtype, formats[f], 1, one, &v, &err), QUIRE_OK);
            check(&v, widened);
            assert_int_equal(quantize(data, dtype, formats[f], 3, three, &other, &err), QUIRE_OK);
            assert_memory_equal(one, three, ARENA_BYTES);
            free(one);
            free(three);
        }
}

static void refused_by_place(void **state)
{
    (void)state;
    static float w[N][K];
    uint8_t *arena = calloc(1, ARENA_BYTES);
    const struct {
        float value;
        struct k_format to;
    } cases[] = {{NAN, q8_0},       {INFINITY, q8_0}, {9e6f, q8_0}, {NAN, q4_0},
                 {-INFINITY, q4_0}, {6e5f, q4_0},     {NAN, e4m3},  {INFINITY, e4m3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct k_weight_view v;
        struct quire_error err;
        fill(w);
        w[201][130] = cases[i].value;
        w[299][0] = NAN; /* only the first is reported, whichever thread comes first */
        assert_int_equal(quantize(w, K_F32, cases[i].to, 3, arena, &v, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "a.safetensors: tensor 'm.weight': row 201, column 130: "));
    }
    free(arena);
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *has, *is; /* NULL: refused */
    } cases[] = {
        {"gptq", "gptq", "gptq"},     {"gptq_marlin", "gptq", "gptq"},
        {"awq_marlin", "awq", "awq"}, {"gguf", "gguf", "gguf"},
        {"fp8", "fp8", "fp8"},        {"none", "none", "none"},
        {"int8", "none", "int8"},     {"int4-block", "none", "int4-block"},
        {"fp8", "none", "fp8"},       {"awq", "gptq", NULL},
        {"int8", "gptq", NULL},       {"gptq", "none", NULL},
        {"fp8", "awq", NULL},         {"none", "awq", NULL},
        {"", "none", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quantization q = {.method = cases[i].has};
        struct quire_error err;
        const int status = quantization_choose(cases[i].name, cases[i].has, &q, &err);
        assert_int_equal(status, cases[i].is ? QUIRE_OK : QUIRE_INVALID);
        if (!cases[i].is) {
            assert_non_null(strstr(err.text, strcmp(cases[i].has, "none") == 0 ? "not quantized" : cases[i].has));
            assert_non_null(strstr(err.text, cases[i].name));
            continue;
        }
        assert_string_equal(quantization_name(&q), cases[i].is);
        assert_int_equal(q.made != NULL, strcmp(cases[i].has, "none") == 0 && strcmp(cases[i].is, "none") != 0);
        assert_true(!q.made || quantization_made_of(q.made->code) == q.made);
    }
    assert_null(quantization_made_of(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_numbers),
        cmocka_unit_test(refused_by_place),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("engine_quantize", tests, NULL, NULL);
}
