/* Every layout is read back by the engine's own reader of checkpoints. */
#include "base/encoding/json.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/quantization/quantization.h"
#include "engine/model/quantization/quantized.h"
#include "kernels/quant.h"
#include "tests/quantize/draw.h"
#include "tools/quantize/methods/floats.h"
#include "tools/quantize/writer/config.h"
#include "tools/quantize/writer/layouts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 48u
#define COLS 256u
#define NAME "model.layers.0.mlp.up_proj"

struct stored {
    uint8_t codes[ROWS * COLS], zeros[ROWS * COLS];
    float scales[ROWS * COLS], w[ROWS * COLS];
    struct quantizer_codes out;
    struct tensor_list list;
    struct buffer file;
    struct checkpoint *checkpoint;
    struct quantization how;
};

static void write_file(struct stored *s, const struct quantizer_matrix_shape *m)
{
    assert_null(quantizer_layout_refuses(m));
    quantizer_layout_add(m, NAME, &s->list);
    assert_int_equal(tensor_list_header(&s->list, &s->file, NULL), QUIRE_OK);
    for (uint32_t i = 0; i < s->list.n; i++) {
        uint8_t *bytes = malloc(s->list.items[i].n_bytes);
        quantizer_layout_write(m, &s->out, &s->list.items[i], bytes);
        buffer_append(&s->file, bytes, s->list.items[i].n_bytes);
        free(bytes);
    }
    struct quire_error err;
    if (checkpoint_open_memory(s->file.data, s->file.n, &s->checkpoint, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
}

static void read_config(struct stored *s, const struct quantizer_config *config)
{
    static const char text[] = "{\"hidden_size\": 4}";
    struct buffer made = {0};
    struct quire_error err;
    json_t *json;
    assert_int_equal(quantizer_config_text(config, text, sizeof text - 1, &made, NULL), QUIRE_OK);
    assert_int_equal(quire_json_parse(made.data, made.n, 16, "config.json", &json, NULL), QUIRE_OK);
    assert_int_equal(json_integer_value(json_object_get(json, "hidden_size")), 4);
    if (quantization_read(json, &s->how, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    json_decref(json);
    buffer_free(&made);
}

/* Compares each weight that the engine reads with the one that was written. columns: NULL, or the column of each of the
 * engine's. */
static void compare(struct stored *s, enum quantizer_layout layout, enum k_dtype fp8)
{
    struct quantized_arena arena = {.base = malloc(1 << 20)};
    struct quantized_matrix m = {.checkpoint = s->checkpoint,
                                 .how = &s->how,
                                 .name = NAME,
                                 .n_rows = ROWS,
                                 .n_cols = COLS,
                                 .all_rows = ROWS,
                                 .n_threads = 1,
                                 .is_read = true};
    struct k_weight_view view;
    struct quire_error err;
    assert_true(quantized_has(&m));
    if (quantized_view(&m, &arena, &view, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t k = 0; k < COLS; k++) {
            const uint32_t column = view.permutation ? view.permutation[k] : k;
            const uint32_t group = s->out.groups ? s->out.groups[column] : column * s->out.n_groups / COLS;
            const uint64_t plane = (uint64_t)r * s->out.n_groups + group;
            const uint8_t code = s->codes[r * COLS + column];
            float scale, least, q;
            k_quant_scale(&view, r, k, &scale, &least);
            k_quant_read(&view, r, k, k + 1, &q);
            if (layout == LAYOUT_FP8) {
                const float w = s->w[r * COLS + k];
                const float step = fabsf(w) / (fp8 == K_E4M3 ? 16 : 8) + s->scales[0] * 0x1p-9f;
                assert_true(scale == s->scales[0] && fabsf(q * scale - w) <= step);
                continue;
            }
            assert_true(scale == s->scales[plane]);
            assert_true(q == (float)(code - s->zeros[plane]));
        }
    free(arena.base);
}

/* What a continued run reads is what was written. */
static void check_reverse(const struct stored *s, const struct quantizer_matrix_shape *m)
{
    struct stored *back = calloc(1, sizeof *back);
    uint32_t groups[COLS];
    back->out = (struct quantizer_codes){ROWS, COLS, s->out.n_groups, back->codes, back->scales, back->zeros, groups};
    for (uint32_t i = 0; i < s->list.n; i++)
        quantizer_layout_read(m, &s->list.items[i],
                              (const uint8_t *)s->file.data + s->file.n - s->list.n_bytes + s->list.items[i].begin,
                              &back->out);
    const uint32_t n_planes = ROWS * s->out.n_groups;
    assert_memory_equal(back->codes, s->codes, ROWS * COLS);
    assert_memory_equal(back->zeros, s->zeros, n_planes);
    assert_memory_equal(back->scales, s->scales, n_planes * sizeof *s->scales);
    for (uint32_t k = 0; k < COLS; k++)
        assert_int_equal(groups[k], s->out.groups ? s->out.groups[k] : k * s->out.n_groups / COLS);
    free(back);
}

static void check_layout(enum quantizer_layout layout, struct quantizer_integers how, enum k_dtype fp8, bool shuffled)
{
    struct stored *s = calloc(1, sizeof *s);
    uint32_t groups[COLS];
    json_t *ignored = json_array();
    const struct quantizer_matrix_shape m = {layout, fp8, &how, ROWS, COLS};
    const struct quantizer_config config = {.layout = layout,
                                            .how = &how,
                                            .fp8 = fp8,
                                            .desc_act = shuffled,
                                            .int8_inputs = layout == LAYOUT_INTS,
                                            .ignored = ignored};
    s->out = (struct quantizer_codes){ROWS, COLS, quantizer_n_groups(&how, COLS), s->codes, s->scales, s->zeros, NULL};
    draw(s->w, ROWS * COLS, 9);
    quantizer_round(&how, s->w, 0, ROWS, &s->out);
    if (layout == LAYOUT_FP8) {
        s->scales[0] = quantizer_fp8_scale(fp8, 1.0f);
        quantizer_fp8_round(fp8, s->scales[0], s->w, ROWS * COLS, s->codes);
    }
    if (shuffled) { /* other groups for the same codes: the values are what counts */
        for (uint32_t k = 0; k < COLS; k++)
            groups[k] = k * 7 % COLS * s->out.n_groups / COLS;
        s->out.groups = groups;
    }
    write_file(s, &m);
    read_config(s, &config);
    compare(s, layout, fp8);
    if (layout == LAYOUT_GPTQ)
        check_reverse(s, &m);
    checkpoint_close(s->checkpoint);
    tensor_list_free(&s->list);
    buffer_free(&s->file);
    json_decref(ignored);
    free(s);
}

static void the_engine_reads_each_layout(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 12; c++) {
        const uint32_t bits = c & 1 ? 8 : 4, group = c & 2 ? 32 : 0;
        const bool symmetric = c & 4;
        const enum k_dtype scale = c < 4 ? K_F32 : c < 8 ? K_F16 : K_BF16;
        check_layout(LAYOUT_PACKED, (struct quantizer_integers){bits, group, symmetric, scale}, K_E4M3, false);
        check_layout(LAYOUT_GPTQ, (struct quantizer_integers){bits, group, symmetric, K_F16}, K_E4M3, false);
        check_layout(LAYOUT_INTS, (struct quantizer_integers){8, 0, true, scale}, K_E4M3, false);
    }
    check_layout(LAYOUT_GPTQ, (struct quantizer_integers){4, 32, false, K_F16}, K_E4M3, true);
    check_layout(LAYOUT_AWQ, (struct quantizer_integers){4, 64, false, K_F16}, K_E4M3, false);
    check_layout(LAYOUT_FP8, (struct quantizer_integers){8, 0, true, K_F32}, K_E4M3, false);
    check_layout(LAYOUT_FP8, (struct quantizer_integers){8, 0, true, K_F32}, K_E5M2, false);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    const struct quantizer_integers how = {4, 128, true, K_F16};
    struct quantizer_matrix_shape m = {LAYOUT_PACKED, K_E4M3, &how, 48, 192};
    (void)state;
    assert_non_null(strstr(quantizer_layout_refuses(&m), "--group-size"));
    m.layout = LAYOUT_AWQ;
    m.n_cols = 256;
    m.n_rows = 44;
    assert_non_null(quantizer_layout_refuses(&m));
    m.layout = LAYOUT_GPTQ;
    assert_non_null(quantizer_layout_refuses(&m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_reads_each_layout),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
