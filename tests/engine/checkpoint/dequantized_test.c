/* Every quantized golden's matrices, tensor by tensor: through the view they are worth what the script that made them meant
 * (tests/goldens/make_quantized.py), those of GGUF files what the gguf package says (make_gguf.py), to the bit: a SHA-256 over
 * all of a matrix in f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "engine/model/describe.h"
#include "engine/model/quantization/quantized.h"
#include "kernels/quant.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDENS QUIRE_SOURCE_DIR "/tests/goldens/quantized"
#define GGUF_GOLDENS QUIRE_SOURCE_DIR "/tests/goldens/gguf"

/* Columns where they were before they were ordered by group. */
static void dequantize(const struct k_weight_view *v, float *out)
{
    for (uint32_t n = 0; n < v->n_rows; n++)
        for (uint32_t k = 0; k < v->n_cols; k++) {
            float q, scale, least;
            k_quant_read(v, n, k, k + 1, &q);
            k_quant_scale(v, n, k, &scale, &least);
            const uint32_t column = v->permutation ? v->permutation[k] : k;
            out[(size_t)n * v->n_cols + column] = scale * q;
        }
}

/* NAME, or of a matrix in a tensor of several NAME:index:count:first:step. */
static void take_place(char *name, struct quantized_place *place)
{
    char *at = strchr(name, ':');
    if (!at)
        return;
    assert_int_equal(sscanf(at, ":%u:%u:%u:%u", &place->index, &place->count, &place->first, &place->step), 4);
    *at = '\0';
}

static void check_matrix(const char *model, const struct checkpoint *st, const struct quantization *how,
                         const char *name, uint32_t n_rows, uint32_t n_cols, const char *want)
{
    struct quantized_matrix m = {.checkpoint = st,
                                 .how = how,
                                 .n_rows = n_rows,
                                 .n_cols = n_cols,
                                 .all_rows = n_rows,
                                 .n_threads = 2,
                                 .is_read = true};
    struct quantized_arena counted = {0}, made = {0};
    struct k_weight_view v;
    struct quire_error err;
    char got[65];
    snprintf(m.name, sizeof m.name, "%s", name);
    take_place(m.name, &m.place);
    assert_true(quantized_has(&m));
    assert_int_equal(quantized_view(&m, &counted, &v, &err), QUIRE_OK);
    made.base = malloc(counted.used + 1);
    float *out = malloc(sizeof *out * n_rows * n_cols);
    if (quantized_view(&m, &made, &v, &err) != QUIRE_OK)
        fail_msg("%s: %s", model, err.text);
    dequantize(&v, out);
    const struct key256 digest = quire_sha256(out, sizeof *out * n_rows * n_cols);
    quire_key256_hex(&digest, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s is not worth what was meant", model, name);
    free(out);
    free(made.base);
}

static void check_model(const char *model)
{
    char path[512], name[128], want[65];
    struct model_config *config;
    struct sampling_defaults sampling;
    struct checkpoint *st;
    struct quire_error err;
    uint32_t n_rows, n_cols, n = 0;
    snprintf(path, sizeof path, GOLDENS "/%s", model);
    if (model_describe(path, &config, &sampling, &err) != QUIRE_OK || checkpoint_open(path, &st, &err) != QUIRE_OK)
        fail_msg("%s: %s", model, err.text);
    snprintf(path, sizeof path, GOLDENS "/%s/dequantized.txt", model);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; fscanf(f, "%127s %u %u %64s", name, &n_rows, &n_cols, want) == 4; n++)
        check_matrix(model, st, config->quantization, name, n_rows, n_cols, want);
    assert_int_equal(n, strcmp(model, "mxfp4") == 0 ? 2 * 5 * 3 : 7); /* layers, experts, matrices */
    fclose(f);
    checkpoint_close(st);
    model_config_free(config);
}

static void every_matrix(void **state)
{
    (void)state;
    DIR *dir = opendir(GOLDENS);
    uint32_t n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.') {
            check_model(e->d_name);
            n++;
        }
    closedir(dir);
    assert_int_equal(n, 26);
}

/* Two roundings, as in the package: one of scale · q and one of adding the minimum, if it has one. */
static float element(const struct checkpoint_tensor *t, uint32_t row, uint32_t column)
{
    const uint32_t n_cols = (uint32_t)t->shape[1];
    const struct k_weight_view v = {.data = t->data,
                                    .format = t->format,
                                    .n_rows = (uint32_t)t->shape[0],
                                    .n_cols = n_cols,
                                    .row_stride_bytes = k_format_bytes(t->format, n_cols)};
    float q, scale, least;
    k_quant_read(&v, row, column, column + 1, &q);
    k_quant_scale(&v, row, column, &scale, &least);
    const volatile float product = scale * q;
    return k_format_has_least(t->format) ? product + least : product; /* −0 stays −0 */
}

static void check_tensor(const struct checkpoint *st, const char *name, const char *want)
{
    char tensor[160], got[65];
    struct checkpoint_tensor t;
    struct quire_error err;
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    if (checkpoint_find(st, tensor, &t, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    if (k_format_is_plain(t.format)) /* there is nothing to read them by here; engine_golden_test does */
        return;
    const uint32_t n_rows = (uint32_t)t.shape[0], n_cols = (uint32_t)t.shape[1];
    float *out = malloc(sizeof *out * n_rows * n_cols);
    assert_non_null(out);
    for (uint32_t i = 0; i < n_rows * n_cols; i++)
        out[i] = element(&t, i / n_cols, i % n_cols);
    const struct key256 digest = quire_sha256(out, sizeof *out * n_rows * n_cols);
    quire_key256_hex(&digest, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s (%s) is not worth what the package says", t.file, name, k_format_name(t.format));
    free(out);
}

static void every_block(void **state)
{
    (void)state;
    static const char *const models[] = {"qwen2", "llama", "qwen3", "olmo2", "codes"};
    char path[512], name[128], want[65];
    struct checkpoint *st;
    struct quire_error err;
    uint32_t n = 0, n_rows, n_cols;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(path, sizeof path, GGUF_GOLDENS "/%s/model.gguf", models[i]);
        if (checkpoint_open(path, &st, &err) != QUIRE_OK)
            fail_msg("%s", err.text);
        snprintf(path, sizeof path, GGUF_GOLDENS "/%s/dequantized.txt", models[i]);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        for (; fscanf(f, "%127s %u %u %64s", name, &n_rows, &n_cols, want) == 4; n++)
            check_tensor(st, name, want);
        fclose(f);
        checkpoint_close(st);
    }
    assert_int_equal(n, 43);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_matrix), cmocka_unit_test(every_block)};
    return cmocka_run_group_tests_name("engine_dequantized", tests, NULL, NULL);
}
