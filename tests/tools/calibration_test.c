/* tools/cache: pairs of questions in a file, and the figures computed from their similarities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/cache/calibration.h"
#include "tools/cache/pairs_file.h"

#include <string.h>

static void errors_name_the_file_and_the_line(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "p: has no pairs"},
        {"\n{\"a\": \"x\"}", "p: line 2: b: must be a text of 1 to 65536 bytes"},
        {"{\"a\": \"x\", \"b\": \"\", \"same\": true}", "p: line 1: b: must be a text of 1 to 65536 bytes"},
        {"{\"a\": \"x\", \"b\": \"y\"}", "p: line 1: same: must be true or false"},
        {"{\"a\": \"x\", \"b\": \"y\", \"same\": 1}", "p: line 1: same: must be true or false"},
        {"[]", "p: line 1: must be an object"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pairs_file file;
        struct quire_error err;
        assert_int_equal(pairs_file_parse(rows[i].text, strlen(rows[i].text), "p", &file, &err), QUIRE_INVALID);
        assert_string_equal(err.text, rows[i].says);
        pairs_file_free(&file);
    }
}

static void a_threshold_is_reached_as_a_cache_compares(void **state)
{
    static const struct calibration_pair pairs[] = {
        {.similarity = 0.92, .same = true},       {.similarity = 0.9199999, .same = true},
        {.similarity = 1.0000001, .same = false}, {.similarity = 0.95, .same = false, .guard = GUARD_NUMBERS},
        {.similarity = -0.5, .same = true},       {.similarity = 0, .same = true},
    };
    static struct calibration c;
    (void)state;
    calibrate(pairs, sizeof pairs / sizeof pairs[0], &c);
    assert_int_equal(c.n_pairs, 6);
    assert_int_equal(c.n_same, 4);
    assert_int_equal(c.points[0][920].n_answered, 3);
    assert_int_equal(c.points[0][920].n_wrong, 2);
    assert_int_equal(c.points[0][919].n_answered, 4);
    assert_int_equal(c.points[1][920].n_answered, 2);
    assert_int_equal(c.points[1][920].n_wrong, 1);
    assert_int_equal(c.points[0][0].n_answered, 5);
    assert_int_equal(c.points[0][CALIBRATION_STEPS].n_answered, 1);
    assert_true(calibration_recall(&c, &c.points[0][919]) == 0.5);
    assert_true(calibration_precision(&c.points[1][919]) == 2.0 / 3);
}

static void the_lowest_threshold_that_is_right_often_enough_is_named(void **state)
{
    static const struct calibration_pair pairs[] = {
        {.similarity = 0.5, .same = false},
        {.similarity = 0.7, .same = true},
        {.similarity = 0.8, .same = false, .guard = GUARD_UNITS},
        {.similarity = 0.9, .same = true},
    };
    static struct calibration c;
    (void)state;
    calibrate(pairs, sizeof pairs / sizeof pairs[0], &c);
    assert_int_equal(calibration_threshold(&c, false, 1), 900);
    assert_int_equal(calibration_threshold(&c, true, 1), 700);
    assert_int_equal(calibration_threshold(&c, false, 0.6), 700);
    assert_int_equal(calibration_threshold(&c, false, 0), 500);
    calibrate(pairs, 1, &c);
    assert_int_equal(calibration_threshold(&c, false, 0.5), -1);
    assert_int_equal(calibration_answers_needed(0.99), 299); /* 0.99^299 < 0.05 < 0.99^298 */
    assert_int_equal(calibration_answers_needed(0.5), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_the_file_and_the_line),
        cmocka_unit_test(a_threshold_is_reached_as_a_cache_compares),
        cmocka_unit_test(the_lowest_threshold_that_is_right_often_enough_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
