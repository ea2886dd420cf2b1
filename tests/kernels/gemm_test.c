/* GEMMs with sums that random numbers do not reach: signed zeros, and results on both sides of the smallest normal
 * number, which the tile form flushes. Compared bit for bit with the specification. */
#include "kernels/args/gemm.h"
#include "kernels/open.h"
#include "kernels/planner.h"
#include "kernels/segments.h"
#include "tests/kernels/page.h"
#include "tests/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_COLS 100
#define MAX_TOKENS 67

static const char *device = "ref";
#define N_FORMS (K_FORM_TILE_BF16 + 1) /* the CPU's forms */
static struct k_backend *backends[N_FORMS];
static const float *bias; /* the row's bias, or NULL */
static uint32_t unit;     /* columns per unit of the segments; 0: one segment */

/* Computes y of one row, from weights given as f32. The token is computed alone and among others, which uses other code
 * paths. All must give the same result. */
static float backend_dot(enum k_gemm_form form, enum k_dtype dtype, const float *w, const float *x, uint32_t n,
                         float *page)
{
    struct k_backend *b = backends[form];
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
    const struct k_weight_view view = k_plain_view(stored, dtype, 1, n, (uint64_t)n * k_dtype_bytes(dtype));
    assert_int_equal(b->ops->weight_create(b, &view, 1, 1, &weight, &err), QUIRE_OK);
    struct k_plan_dims dims = {.n_tokens = MAX_TOKENS, .max_gemm_cols = n, .n_threads = 1};
    struct k_plan_bytes bytes;
    void *workspace;
    k_planner_find(device)->workspace(&dims, &bytes);
    assert_int_equal(b->ops->alloc(b, bytes.gemm, &workspace, &err), QUIRE_OK);
    static const uint32_t counts[] = {1, 12, 20, MAX_TOKENS};
    static float many[MAX_TOKENS * MAX_COLS];
    float y[MAX_TOKENS];
    for (uint32_t t = 0; t < MAX_TOKENS; t++)
        memcpy(many + t * n, x, n * sizeof *x);
    const struct op_case row = {.op = K_OP_GEMM, .form = form, .dtype = dtype, .n_cols = n, .unit = unit};
    *page = page_row(&row, stored, x);
    if (bias)
        *page += *bias;
    for (int i = 0; i < 4; i++) {
        const struct k_gemm_args args = {.weight = weight,
                                         .x_dev = many,
                                         .bias_dev = bias,
                                         .y_dev = y,
                                         .workspace_dev = workspace,
                                         .n_tokens = counts[i],
                                         .unit = unit};
        assert_int_equal(b->ops->gemm(b, &args, &err), QUIRE_OK);
        for (uint32_t t = 0; t < counts[i]; t++)
            assert_true(memcmp(&y[t], page, sizeof *page) == 0 || (isnan(y[t]) && isnan(*page)));
    }
    b->ops->free(b, workspace);
    b->ops->weight_destroy(b, weight);
    return y[0];
}

static bool is_minus_zero(float x)
{
    return x == 0.0f && signbit(x);
}

/* All products underflow to -0. The sum is -0 if no group of 16 was padded, otherwise +0; also with segments, some of
 * them empty. */
static void test_minus_zero(void **state)
{
    (void)state;
    static const enum k_dtype dtypes[] = {K_F32, K_F16, K_BF16};
    for (int i = 0; i < 6; i++) {
        unit = i < 3 ? 0 : 16;
        for (uint32_t n = 1; n <= 48; n++) {
            float w[48], x[48], page;
            for (uint32_t k = 0; k < n; k++) {
                w[k] = -0x1p-24f;
                x[k] = 0x1p-140f;
            }
            float y = backend_dot(K_FORM_LANE, dtypes[i % 3], w, x, n, &page);
            assert_true(y == 0.0f && page == 0.0f);
            assert_true(is_minus_zero(y) == (n % 16 == 0));
            assert_true(is_minus_zero(page) == (n % 16 == 0));
        }
    }
    unit = 0;
}

/* Sums of segments near 2^-126 that cancel to denormals. They are kept, although sums of tiles are flushed. */
static void test_segments_cancel(void **state)
{
    (void)state;
    static const float sums[] = {0.0f, 0x1p-126f, -0x1p-126f, 0x1.8p-126f, -0x1.8p-126f, 0x1p-125f, -0x1.4p-125f};
    uint64_t random = 5;
    uint32_t n_denormal = 0;
    unit = 16;
    for (int round = 0; round < 200; round++) {
        float w[MAX_COLS] = {0}, x[MAX_COLS] = {0}, page;
        for (uint32_t k = (uint32_t)(op_random(&random) % 16); k < MAX_COLS; k += 16) {
            w[k] = 1.0f;
            x[k] = sums[op_random(&random) % 7];
        }
        for (int form = 0; form < N_FORMS; form++) {
            backend_dot((enum k_gemm_form)form, K_BF16, w, x, MAX_COLS - (uint32_t)round % 50, &page);
            n_denormal += page != 0.0f && fabsf(page) < 0x1p-126f;
        }
    }
    assert_in_range(n_denormal, 30, UINT32_MAX);
    unit = 0;
}

#define SHARED_ROWS 5
#define SHARED_TOKENS 9
#define SHARED_MAX_COLS 4864
#define SHARED_OUT (SHARED_TOKENS * SHARED_ROWS)

/* Computes the result of columns [begin, end) of a matrix with n_cols, by an owner that has only these columns. */
static void gemm_of_columns(enum k_gemm_form form, const uint16_t *w, const float *x, uint32_t n_cols, uint32_t begin,
                            uint32_t end, uint32_t units_of, float y[SHARED_OUT])
{
    static float mine[SHARED_TOKENS * SHARED_MAX_COLS];
    struct k_backend *b = backends[form];
    struct quire_error err;
    struct k_weight *weight;
    const struct k_weight_view view = k_plain_view(w + begin, K_BF16, SHARED_ROWS, end - begin, (uint64_t)n_cols * 2);
    struct k_plan_dims dims = {.n_tokens = SHARED_TOKENS, .max_gemm_cols = end - begin, .n_threads = 1};
    struct k_plan_bytes bytes;
    void *workspace;
    for (uint32_t t = 0; t < SHARED_TOKENS; t++)
        memcpy(mine + t * (end - begin), x + t * n_cols + begin, (end - begin) * sizeof *x);
    k_planner_find(device)->workspace(&dims, &bytes);
    assert_int_equal(b->ops->weight_create(b, &view, 1, 1, &weight, &err), QUIRE_OK);
    assert_int_equal(b->ops->alloc(b, bytes.gemm, &workspace, &err), QUIRE_OK);
    const struct k_gemm_args args = {.weight = weight,
                                     .x_dev = mine,
                                     .y_dev = y,
                                     .workspace_dev = workspace,
                                     .n_tokens = SHARED_TOKENS,
                                     .unit = units_of,
                                     .n_whole = end - begin < n_cols ? n_cols : 0,
                                     .first_col = begin};
    assert_int_equal(b->ops->gemm(b, &args, &err), QUIRE_OK);
    b->ops->free(b, workspace);
    b->ops->weight_destroy(b, weight);
}

/* 1, 2, 4 and 8 owners of whole subtrees, each with only its own columns, whose results are added along the tree, give
 * the bits of the whole. */
static void test_owners(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_cols, unit;
    } shapes[] = {{896, 64}, {4864, 256}, {300, 16}, {80, 80}, {250, 64}};
    static uint16_t w[SHARED_ROWS * SHARED_MAX_COLS];
    static float x[SHARED_TOKENS * SHARED_MAX_COLS];
    uint64_t random = 9;
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        w[i] = page_bf16_from_f32(op_random_value(&random, VALUES_PLAIN));
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = op_random_value(&random, VALUES_PLAIN);
    for (int form = 0; form < N_FORMS; form++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const uint32_t n_cols = shapes[s].n_cols, of = shapes[s].unit;
            float whole[SHARED_OUT], owned[8][SHARED_OUT];
            gemm_of_columns((enum k_gemm_form)form, w, x, n_cols, 0, n_cols, of, whole);
            for (uint32_t n = 1; n <= 8; n *= 2) {
                for (uint32_t o = 0; o < n; o++) {
                    const uint32_t begin = k_segment_begin(n_cols, of, o * (8 / n));
                    const uint32_t end = k_segment_begin(n_cols, of, (o + 1) * (8 / n));
                    for (uint32_t k = 0; k < SHARED_OUT; k++)
                        owned[o][k] = -0.0f; /* an owner without columns adds no term */
                    if (begin < end)
                        gemm_of_columns((enum k_gemm_form)form, w, x, n_cols, begin, end, of, owned[o]);
                }
                for (uint32_t apart = 1; apart < n; apart *= 2)
                    for (uint32_t o = 0; o < n; o += 2 * apart)
                        for (uint32_t k = 0; k < SHARED_OUT; k++)
                            owned[o][k] += owned[o + apart][k];
                assert_memory_equal(owned[0], whole, sizeof whole);
            }
        }
    }
}

/* Sums of a few numbers near 2^-126, many of which cancel to a denormal; and of denormals with partners so large that
 * their product is a normal number, unless they count as zeros. */
static void test_flush(void **state)
{
    (void)state;
    static const float weights[] = {0.0f, 0x1p-126f, 0x1.02p-126f, 0x1p-127f, 0x1.02p-125f, 0x1p-133f, 0x1p40f};
    static const float activations[] = {0.0f,      1.0f,      0x1.02p0f, 0x1.01p0f, 0.5f,
                                        0x1p-126f, 0x1p-149f, 0x1p-130f, 0x1p30f};
    uint64_t random = 3;
    uint32_t n_zero = 0;
    struct sample sample = sample_of(SAMPLE_IS_SANITIZED ? 8 : 1);
    for (int round = 0; round < 4000; round++) {
        float w[MAX_COLS] = {0}, x[MAX_COLS] = {0}, page;
        for (int i = 0; i < 4; i++) { /* in any of four tiles */
            uint32_t k = (uint32_t)(op_random(&random) % MAX_COLS);
            w[k] = weights[op_random(&random) % 7] * (op_random(&random) % 2 ? 1.0f : -1.0f);
            x[k] = activations[op_random(&random) % 9];
        }
        if (!sample_takes(&sample))
            continue;
        enum k_gemm_form form = round % 2 ? K_FORM_TILE : K_FORM_TILE_BF16;
        float y = backend_dot(form, K_BF16, w, x, MAX_COLS, &page);
        assert_true(fpclassify(y) != FP_SUBNORMAL);
        n_zero += y == 0.0f;
    }
    sample_report(&sample, "rounds of sums next to the smallest number");
    assert_true(10 * n_zero > sample.n_taken && 10 * n_zero < 9 * sample.n_taken);
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

/* An activation that bf16 cannot represent: its low term is inf - inf. */
static void test_split_overflow(void **state)
{
    (void)state;
    float w[16] = {1}, x[16] = {3.4e38f}, page;
    assert_true(isnan(backend_dot(K_FORM_TILE, K_BF16, w, x, 16, &page)) && isnan(page));
    assert_true(backend_dot(K_FORM_LANE, K_BF16, w, x, 16, &page) == 3.4e38f);
    x[0] = 3.3e38f;
    assert_true(fabsf(backend_dot(K_FORM_TILE, K_BF16, w, x, 16, &page) / 3.3e38f - 1) < 0x1p-16f);
    x[0] = 3.4e38f;
    assert_true(isinf(backend_dot(K_FORM_TILE_BF16, K_BF16, w, x, 16, &page)));
    float infinite[16] = {INFINITY};
    assert_true(isnan(backend_dot(K_FORM_TILE, K_F16, infinite, w, 16, &page)));
    assert_true(isinf(backend_dot(K_FORM_TILE_BF16, K_BF16, infinite, w, 16, &page)));
}

/* Values that f32 rounds up to 2^-126: they are tiny below 2^-126 - 2^-151, and the tie is not. The product of the
 * first chain link is w x; the second adds to it. */
static void test_just_below_the_smallest_normal(void **state)
{
    (void)state;
    /* 2^-126 - 2^-151 (1 + 2^-i): a tie, and both sides of it */
    for (int i = 0; i < 8; i++) {
        float w[3] = {0x1p-63f, 0, -0x1p-75f}, page;
        const float x[3] = {0x1p-63f, 0,
                            i == 0  ? 0x1p-76f
                            : i % 2 ? 0x1p-76f - ldexpf(1, -76 - i)
                                    : 0x1p-76f + ldexpf(1, -76 - i)};
        for (int form = K_FORM_TILE; form <= K_FORM_TILE_BF16; form++) {
            float y = backend_dot((enum k_gemm_form)form, K_BF16, w, x, 3, &page);
            assert_true(y == 0.0f || y == 0x1p-126f);
        }
        float y = backend_dot(K_FORM_TILE_BF16, K_BF16, w, x, 3, &page);
        assert_true((y != 0) == (i % 2 || i == 0));
    }
    float w[3] = {0x1p-63f, 0, -0x1p-75f}, page; /* 2^-126 - 2^-150 */
    const float x[3] = {0x1p-63f, 0, 0x1p-75f};
    assert_true(backend_dot(K_FORM_TILE, K_BF16, w, x, 3, &page) == 0.0f && page == 0.0f);
}

/* The flush ends before the bias. */
static void test_bias_keeps_denormals(void **state)
{
    (void)state;
    static const float w[1] = {0x1p-126f}, x[1] = {1}, biases[] = {0x1p-130f, -0x1p-130f};
    for (int form = 0; form < N_FORMS; form++) {
        for (int i = 0; i < 2; i++) {
            float page;
            bias = &biases[i];
            float y = backend_dot((enum k_gemm_form)form, K_BF16, w, x, 1, &page);
            bias = NULL;
            assert_true(y == 0x1p-126f + biases[i] && y != 0x1p-126f);
        }
    }
}

/* Every finite F16 is the sum of its two bf16 terms. */
static void test_f16_weights_are_exact(void **state)
{
    (void)state;
    const float one[1] = {1};
    for (uint32_t h = 0; h < 65536; h += SAMPLE_IS_SANITIZED ? 61 : 7) {
        float w[1] = {page_f32_from_f16((uint16_t)h)}, page;
        if (!isfinite(w[0]))
            continue;
        float y = backend_dot(K_FORM_TILE, K_F16, w, one, 1, &page);
        assert_true(y == w[0]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        device = argv[1];
    for (int form = 0; form < N_FORMS; form++) {
        const char *why;
        struct quire_error err;
        struct k_backend_options options = {.device = device, .n_threads = 1, .form = (enum k_gemm_form)form};
        int status = k_backend_open(&options, &backends[form], &why, &err);
        if (status == QUIRE_OK)
            continue;
        bool is_lacking = status == QUIRE_UNSUPPORTED && strcmp(device, "cpu") == 0; /* the machine lacks the set */
        printf("%s backend %s: %s\n", is_lacking ? "skipped:" : "cannot open", device, err.text);
        return is_lacking ? 77 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minus_zero),
        cmocka_unit_test(test_segments_cancel),
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_flush_keeps_the_sign),
        cmocka_unit_test(test_split_overflow),
        cmocka_unit_test(test_just_below_the_smallest_normal),
        cmocka_unit_test(test_bias_keeps_denormals),
        cmocka_unit_test(test_f16_weights_are_exact),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int form = 0; form < N_FORMS; form++)
        backends[form]->ops->close(backends[form]);
    return n_failed;
}
