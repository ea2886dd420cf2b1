/* model_inv_freq against f64 and against transformers: tests/goldens/inv_freq.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/encoding/json.h"
#include "engine/model/describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t ulps_apart(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return llabs((int64_t)x - y);
}

/* How far transformers' table, made in f32 throughout, may lie from an exact one, relative to the
 * frequency: the exponent e = 2i/D is rounded before pow (e ln θ half-ulps), then there are fewer
 * than 8 roundings; and where a ramp blends f and f / factor, the ramp's own error (fewer than 4
 * half-ulps) counts up to factor times. */
static double transformers_error(const struct model_rope *rope, uint32_t i)
{
    double theta = rope->theta, half_ulps = 8.0;
    if (rope->kind == MODEL_ROPE_DYNAMIC)
        theta *= pow(rope->factor * rope->longest / rope->original_max, rope->dim / (rope->dim - 2.0));
    half_ulps += 2.0 * i / rope->dim * log(theta);
    if (rope->kind == MODEL_ROPE_LLAMA3 || rope->kind == MODEL_ROPE_YARN)
        half_ulps += 4.0 * rope->factor;
    return half_ulps * 0x1p-24;
}

static void check_case(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    char *text = json_dumps(json_object_get(c, "config"), 0);
    assert_non_null(text);
    struct model_config *config;
    struct sampling_defaults sampling;
    struct quire_error err;
    if (model_describe_json(text, strlen(text), NULL, 0, &config, &sampling, &err) != QUIRE_OK)
        fail_msg("%s: %s", name, err.text);
    free(text);
    struct model_rope *rope = config->ropes;
    const json_t *length = json_object_get(c, "length"); /* that an engine is opened for */
    if (length)
        model_rope_choose(rope, (uint32_t)json_integer_value(length));

    float made[128];
    const json_t *exact = json_object_get(c, "exact");
    const json_t *theirs = json_object_get(c, "transformers");
    assert_int_equal(json_array_size(exact), rope->dim / 2);
    model_inv_freq(rope, made);
    for (uint32_t i = 0; i < rope->dim / 2; i++) {
        float want = (float)json_number_value(json_array_get(exact, i));
        double reference = json_number_value(json_array_get(theirs, i));
        if (ulps_apart(made[i], want) > 1)
            fail_msg("%s: frequency %u: %.9g, exactly %.9g", name, i, made[i], want);
        if (fabs(made[i] - reference) > transformers_error(rope, i) * reference)
            fail_msg("%s: frequency %u: %.9g, transformers %.9g", name, i, made[i], reference);
    }
    double attention = json_number_value(json_object_get(c, "attention_factor"));
    if (fabs(rope->attention_factor - attention) > 1e-12)
        fail_msg("%s: attention factor %.17g, not %.17g", name, rope->attention_factor, attention);
    model_config_free(config);
}

static void tables_equal_exact_and_transformers_ones(void **state)
{
    (void)state;
    json_t *cases;
    struct quire_error err;
    size_t i;
    json_t *c;
    if (quire_json_read_file(QUIRE_SOURCE_DIR "/tests/goldens/inv_freq.json", 1 << 20, &cases, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_true(json_array_size(cases) > 10);
    json_array_foreach(cases, i, c) check_case(c);
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_equal_exact_and_transformers_ones),
    };
    return cmocka_run_group_tests_name("engine_rope", tests, NULL, NULL);
}
