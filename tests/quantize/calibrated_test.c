/* Calibrated methods: the factor against its definition, GPTQ against the textbook in double, and the error of the
 * output against rounding. */
#include "kernels/math/convert.h"
#include "tests/quantize/draw.h"
#include "tools/quantize/methods/awq.h"
#include "tools/quantize/methods/dense.h"
#include "tools/quantize/methods/fold.h"
#include "tools/quantize/methods/gptq.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 70u /* more than one tile of GPTQ's rows */
#define COLS 208u /* blocks of 64 and 128, and a rest */
#define TOKENS 600u

struct problem {
    float w[ROWS * COLS], x[TOKENS * COLS], h[COLS * COLS];
};

/* Activations whose columns depend on each other, some much larger than others. */
static struct problem *make_problem(void)
{
    struct problem *p = calloc(1, sizeof *p);
    draw(p->w, ROWS * COLS, 21);
    draw(p->x, TOKENS * COLS, 22);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t k = 0; k < COLS; k++) {
            float *x = &p->x[t * COLS + k];
            *x = *x * (k % 13 == 0 ? 20.0f : 1.0f) + (k > 0 ? 0.7f * x[-1] : 0);
        }
    dense_add_square(p->x, TOKENS, COLS, p->h, 0, 2);
    dense_add_square(p->x, TOKENS, COLS, p->h, 1, 2);
    dense_mirror(p->h, COLS);
    return p;
}

static void squares_are_sums_of_products(void **state)
{
    struct problem *p = make_problem();
    (void)state;
    for (uint32_t i = 0; i < COLS; i++)
        for (uint32_t j = 0; j < COLS; j++) {
            double sum = 0, size = 0;
            for (uint32_t t = 0; t < TOKENS; t++) {
                sum += (double)p->x[t * COLS + i] * p->x[t * COLS + j];
                size += fabs((double)p->x[t * COLS + i] * p->x[t * COLS + j]);
            }
            assert_true(fabs(p->h[i * COLS + j] - sum) <= size * TOKENS * 0x1p-24);
        }
    free(p);
}

/* u^T u h = 1 for the damped h. */
static void the_factor_inverts(void **state)
{
    struct problem *p = make_problem();
    float *u = malloc(sizeof p->h), *scratch = malloc(sizeof p->h);
    (void)state;
    for (uint32_t i = 0; i < COLS; i++)
        p->h[i * COLS + i] *= 1.01f;
    memcpy(u, p->h, sizeof p->h);
    assert_int_equal(dense_inverse_factor(u, COLS, scratch, 3, NULL), 0);
    for (uint32_t i = 0; i < COLS; i++) {
        double product[COLS] = {0}; /* row i of u^T u */
        for (uint32_t k = 0; k <= i; k++)
            for (uint32_t j = 0; j < COLS; j++)
                product[j] += (double)u[k * COLS + i] * u[k * COLS + j];
        for (uint32_t j = 0; j < COLS; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < COLS; k++)
                sum += product[k] * p->h[k * COLS + j];
            assert_true(fabs(sum - (i == j)) < 2e-3);
            assert_true(j >= i || u[i * COLS + j] == 0);
        }
    }
    free(u);
    free(scratch);
    free(p);
}

static void a_singular_matrix_is_an_error(void **state)
{
    float h[4] = {1, 1, 1, 1}, scratch[4], nan[1] = {NAN};
    struct quire_error err;
    (void)state;
    assert_int_equal(dense_inverse_factor(h, 2, scratch, 1, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "--damp"));
    assert_int_equal(dense_inverse_factor(nan, 1, scratch, 2, &err), QUIRE_INVALID);
}

/* Σ over tokens and rows of ((values − w) x)². */
static double output_error(const struct problem *p, const float *values)
{
    double all = 0;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (uint32_t k = 0; k < COLS; k++)
                sum += ((double)values[r * COLS + k] - p->w[r * COLS + k]) * p->x[t * COLS + k];
            all += sum * sum;
        }
    return all;
}

struct quantized {
    uint8_t codes[ROWS * COLS], zeros[ROWS * COLS];
    float scales[ROWS * COLS], values[ROWS * COLS];
    uint32_t groups[COLS];
    struct quantizer_codes out;
};

static struct quantized *new_quantized(const struct quantizer_integers *how)
{
    struct quantized *q = calloc(1, sizeof *q);
    q->out = (struct quantizer_codes){ROWS,     COLS,     quantizer_n_groups(how, COLS), q->codes, q->scales,
                                      q->zeros, q->groups};
    for (uint32_t k = 0; k < COLS; k++)
        q->groups[k] = how->group ? k / how->group : 0;
    return q;
}

static const float *values_of(struct quantized *q)
{
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t k = 0; k < COLS; k++) {
            const uint32_t plane = r * q->out.n_groups + q->groups[k];
            const struct quantizer_grid grid = {q->scales[plane], q->zeros[plane]};
            q->values[r * COLS + k] = quantizer_value(grid, q->codes[r * COLS + k]);
        }
    return q->values;
}

static struct quantized *round_all(const struct problem *p, const struct quantizer_integers *how)
{
    struct quantized *q = new_quantized(how);
    quantizer_round(how, p->w, 0, ROWS, &q->out);
    values_of(q);
    return q;
}

static struct quantized *compensate(const struct problem *p, const struct quantizer_integers *how, bool desc_act,
                                    uint32_t cut, bool clips)
{
    struct quantized *q = new_quantized(how);
    float *h = malloc(sizeof p->h), *inverse = malloc(sizeof p->h),
          *scratch = malloc(quantizer_gptq_scratch(COLS) * sizeof *scratch);
    uint32_t order[COLS];
    struct quantizer_gptq g = {*how, COLS, inverse, order, q->groups, clips};
    memcpy(h, p->h, sizeof p->h);
    assert_int_equal(quantizer_gptq_prepare(&g, h, desc_act, 0.01, 1, NULL), 0);
    quantizer_gptq_rows(&g, p->w, 0, cut, scratch, &q->out);
    quantizer_gptq_rows(&g, p->w, cut, ROWS, scratch, &q->out);
    values_of(q);
    free(h);
    free(inverse);
    free(scratch);
    return q;
}

static struct quantized *gptq_all(const struct problem *p, const struct quantizer_integers *how, bool desc_act,
                                  uint32_t cut)
{
    return compensate(p, how, desc_act, cut, false);
}

/* The method as its paper has it first (OBQ with a fixed order), in double: after each column its row and column leave
 * the inverse by Gaussian elimination. */
static void textbook(const struct problem *p, const struct quantizer_integers *how, struct quantized *q)
{
    static double inverse[COLS][2 * COLS], w[ROWS][COLS];
    double mean = 0;
    for (uint32_t i = 0; i < COLS; i++)
        mean += p->h[i * COLS + i] / COLS;
    for (uint32_t i = 0; i < COLS; i++)
        for (uint32_t j = 0; j < COLS; j++) {
            inverse[i][j] = p->h[i * COLS + j] + (i == j ? 0.01 * mean : 0);
            inverse[i][COLS + j] = i == j;
        }
    for (uint32_t i = 0; i < COLS; i++) { /* Gauss-Jordan */
        const double pivot = inverse[i][i];
        for (uint32_t j = 0; j < 2 * COLS; j++)
            inverse[i][j] /= pivot;
        for (uint32_t k = 0; k < COLS; k++) {
            const double factor = k == i ? 0 : inverse[k][i];
            for (uint32_t j = 0; j < 2 * COLS && factor != 0; j++)
                inverse[k][j] -= factor * inverse[i][j];
        }
    }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t k = 0; k < COLS; k++)
            w[r][k] = p->w[r * COLS + k];
    for (uint32_t i = 0; i < COLS; i++) {
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint32_t plane = r * q->out.n_groups + i / how->group;
            if (i % how->group == 0) {
                float now[COLS];
                const uint32_t n = COLS - i < how->group ? COLS - i : how->group;
                for (uint32_t k = 0; k < n; k++)
                    now[k] = (float)w[r][i + k];
                const struct quantizer_grid grid = quantizer_grid_of_row(how, now, n);
                q->scales[plane] = grid.scale;
                q->zeros[plane] = (uint8_t)grid.zero;
            }
            const struct quantizer_grid grid = {q->scales[plane], q->zeros[plane]};
            q->codes[r * COLS + i] = quantizer_code(how, grid, (float)w[r][i]);
            const double error = (w[r][i] - (double)quantizer_value(grid, q->codes[r * COLS + i])) /
                                 inverse[i][COLS + i];
            for (uint32_t k = i; k < COLS; k++)
                w[r][k] -= error * inverse[i][COLS + k];
        }
        for (uint32_t k = i + 1; k < COLS; k++) {
            const double factor = inverse[k][COLS + i] / inverse[i][COLS + i];
            for (uint32_t j = i; j < COLS; j++)
                inverse[k][COLS + j] -= factor * inverse[i][COLS + j];
        }
    }
    values_of(q);
}

static void gptq_is_the_textbooks(void **state)
{
    struct problem *p = make_problem();
    (void)state;
    for (uint32_t c = 0; c < 2; c++) {
        const struct quantizer_integers how = {4, 32, c, K_F16};
        struct quantized *ours = gptq_all(p, &how, false, 64), *theirs = new_quantized(&how);
        uint32_t n_different = 0;
        textbook(p, &how, theirs);
        for (uint32_t i = 0; i < ROWS * COLS; i++)
            n_different += fabsf(ours->values[i] - theirs->values[i]) > 1e-3f * ours->scales[0];
        /* A weight near the middle of two codes falls to either, and moves those behind it in its row. */
        assert_true(n_different < ROWS * COLS / 20);
        assert_true(fabs(output_error(p, ours->values) / output_error(p, theirs->values) - 1) < 0.02);
        free(ours);
        free(theirs);
    }
    free(p);
}

static void gptq_beats_rounding(void **state)
{
    struct problem *p = make_problem();
    (void)state;
    for (uint32_t c = 0; c < 8; c++) {
        const struct quantizer_integers how = {c & 4 ? 8 : 4, c & 4 ? 0 : 32, c & 1, K_F16};
        struct quantized *rounded = round_all(p, &how), *ours = gptq_all(p, &how, c & 2, 64);
        assert_true(output_error(p, ours->values) < 0.6 * output_error(p, rounded->values));
        free(rounded);
        free(ours);
    }
    free(p);
}

/* The largest of a group's weights, which are few, do not decide its step. */
static void a_searched_range_beats_the_whole_one(void **state)
{
    struct problem *p = make_problem();
    (void)state;
    for (uint32_t c = 0; c < 4; c++) {
        const struct quantizer_integers how = {4, c & 2 ? 0 : 128, c & 1, K_F16};
        struct quantized *whole = compensate(p, &how, false, 64, false),
                         *searched = compensate(p, &how, false, 64, true);
        const double part = output_error(p, searched->values) / output_error(p, whole->values);
        assert_true(part < (how.symmetric ? 0.8 : 1)); /* 0.70 and 0.76; 0.96 */
        free(whole);
        free(searched);
    }
    free(p);
}

/* A row's codes do not depend on the rows before it, on threads or on tiles. */
static void rows_do_not_depend_on_each_other(void **state)
{
    struct problem *p = make_problem();
    const struct quantizer_integers how = {4, 32, false, K_F16};
    struct quantized *a = gptq_all(p, &how, true, 64), *b = gptq_all(p, &how, true, 7);
    (void)state;
    assert_memory_equal(a->codes, b->codes, sizeof a->codes);
    assert_memory_equal(a->scales, b->scales, sizeof a->scales);
    free(a);
    free(b);
    free(p);
}

static void awq_beats_rounding(void **state)
{
    struct problem *p = make_problem();
    const struct quantizer_integers how = {4, 32, false, K_F16};
    const struct quantizer_awq_part parts[] = {{p->w, ROWS / 3, p->h}, {p->w + ROWS / 3 * COLS, ROWS - ROWS / 3, p->h}};
    const struct quantizer_awq_part whole = {p->w, ROWS, p->h};
    const struct quantizer_awq a = {&how, COLS, 1, &whole}, in_parts = {&how, COLS, 2, parts};
    struct quantized *rounded = round_all(p, &how), *compensated = gptq_all(p, &how, false, 64),
                     *ours = compensate(p, &how, false, 64, true);
    float scales[COLS], again[COLS], *scratch = malloc(quantizer_awq_scratch(ROWS, COLS) * sizeof *scratch),
                                     *scaled = malloc(sizeof p->w);
    double magnitudes[COLS] = {0};
    (void)state;
    for (uint32_t i = 0; i < TOKENS * COLS; i++)
        magnitudes[i % COLS] += fabsf(p->x[i]);
    const double clipped = output_error(p, ours->values), plain = output_error(p, rounded->values);
    assert_true(clipped < 0.6 * plain && clipped < 1.1 * output_error(p, compensated->values));
    quantizer_awq_scales(&a, magnitudes, scratch, scales);
    quantizer_awq_scales(&in_parts, magnitudes, scratch, again);
    assert_memory_equal(again, scales, sizeof scales);
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        scaled[i] = p->w[i] * scales[i % COLS];
    quantizer_round(&how, scaled, 0, ROWS, &ours->out);
    values_of(ours);
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        ours->values[i] /= scales[i % COLS];
    assert_true(output_error(p, ours->values) < 0.9 * plain);
    free(rounded);
    free(compensated);
    free(ours);
    free(scratch);
    free(scaled);
    free(p);
}

static void smooth_scales_share_the_range(void **state)
{
    const float x[4] = {100, 1, 4, 0}, w[4] = {1, 1, 0, 2};
    float scales[4];
    (void)state;
    quantizer_smooth_scales(x, w, 4, scales);
    assert_true(scales[0] == 10 && scales[1] == 1 && scales[2] == 1 && scales[3] == 1);
}

/* The old factor is the scale times the new one to one rounding, whatever the dtype; the scale is close to the one that was
 * asked for, unless the dtype has no such factor. */
static void folding_a_norm_loses_nothing(void **state)
{
    static const enum k_dtype dtypes[] = {K_F32, K_F16, K_BF16};
    static const float epsilons[] = {0x1p-23f, 0x1p-10f, 0x1p-7f};
    float stored[COLS], before[COLS], scales[COLS], asked[COLS];
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        const struct quantizer_norm norm = {dtypes[i / 2], i % 2 ? 1.0f : 0.0f, COLS};
        draw(stored, COLS, 31 + i);
        for (uint32_t k = 0; k < COLS; k++) {
            stored[k] = k % 16 == 0 ? -norm.offset : k_f32_from_bf16(k_bf16_from_f32(stored[k] * (k % 7 ? 1 : 20)));
            before[k] = stored[k] + norm.offset;
            scales[k] = asked[k] = exp2f((float)(k % 17) - 5);
        }
        quantizer_fold_norm(&norm, stored, scales);
        for (uint32_t k = 0; k < COLS; k++) {
            const float after = stored[k] + norm.offset;
            const float step = epsilons[i / 2] * (fabsf(after) + norm.offset) + 0x1p-24f; /* of halves near 0 */
            assert_true(scales[k] > 0 && fabsf(scales[k] * after - before[k]) <= 0x1p-23f * fabsf(before[k]));
            assert_true(before[k] != 0 || (scales[k] == 1 && after == 0));
            assert_true(before[k] == 0 || after != 0);
            assert_true(before[k] == 0 || fabsf(before[k] / asked[k] - after) <= step * 1.001f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_are_sums_of_products),
        cmocka_unit_test(the_factor_inverts),
        cmocka_unit_test(a_singular_matrix_is_an_error),
        cmocka_unit_test(gptq_is_the_textbooks),
        cmocka_unit_test(gptq_beats_rounding),
        cmocka_unit_test(a_searched_range_beats_the_whole_one),
        cmocka_unit_test(rows_do_not_depend_on_each_other),
        cmocka_unit_test(awq_beats_rounding),
        cmocka_unit_test(folding_a_norm_loses_nothing),
        cmocka_unit_test(smooth_scales_share_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
