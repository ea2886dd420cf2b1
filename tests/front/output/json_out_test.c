#include "base/encoding/utf8.h"
#include "server/front/output/json_out.h"
#include "tests/front/front_unit_test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_string(const char *bytes, size_t n, const char *expected)
{
    struct buffer o = {0};
    json_out_string(&o, bytes, n);
    assert_int_equal(o.n, strlen(expected));
    assert_memory_equal(o.data, expected, o.n);
    buffer_free(&o);
}
#define CHECK_STRING(literal, expected) check_string(literal, sizeof literal - 1, expected)

static void strings_are_escaped(void **state)
{
    (void)state;
    CHECK_STRING("", "\"\"");
    CHECK_STRING("plain text", "\"plain text\"");
    CHECK_STRING("\"\\/", "\"\\\"\\\\/\"");
    CHECK_STRING("a\nb\rc\td", "\"a\\nb\\rc\\td\"");
    CHECK_STRING("\0\x01\x1f\x7f", "\"\\u0000\\u0001\\u001f\\u007f\"");
#define E_HAN_SMILE "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x99\x82"
    CHECK_STRING(E_HAN_SMILE, "\"" E_HAN_SMILE "\"");
}

#define FFFD "\xef\xbf\xbd"
static void bytes_that_are_not_utf8_become_replacements(void **state)
{
    (void)state;
    CHECK_STRING("\xff", "\"" FFFD "\"");
    CHECK_STRING("a\xe6\xbc", "\"a" FFFD FFFD "\"");           /* truncated */
    CHECK_STRING("\xc0\xaf", "\"" FFFD FFFD "\"");             /* overlong */
    CHECK_STRING("\xed\xa0\x80", "\"" FFFD FFFD FFFD "\"");    /* a surrogate */
    CHECK_STRING("\xf4\x90\x80\x80", "\"" FFFD FFFD FFFD FFFD "\""); /* above U+10FFFF */
    CHECK_STRING("\xc3z", "\"" FFFD "z\"");
}

/* For any bytes, the result is valid JSON, and a parser returns the same text. */
static void any_bytes_make_valid_json(void **state)
{
    (void)state;
    srand(1);
    for (int round = 0; round < 2000; round++) {
        char bytes[64];
        size_t n = (size_t)(rand() % 64);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(rand() % 4 ? rand() % 256 : "\"\\\n\xe6\xbc\xa2 a"[rand() % 8]);
        struct buffer o = {0};
        json_out_string(&o, bytes, n);
        json_t *value = json_loadb(o.data, o.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        const char *text = json_string_value(value);
        size_t n_text = json_string_length(value), at = 0;
        for (size_t i = 0; i < n;) {
            size_t length = utf8_character((const uint8_t *)bytes + i, n - i);
            assert_memory_equal(text + at, length ? bytes + i : FFFD, length ? length : 3);
            at += length ? length : 3;
            i += length ? length : 1;
        }
        assert_int_equal(at, n_text);
        json_decref(value);
        buffer_free(&o);
    }
}

static double written(float value)
{
    struct buffer o = {0};
    json_out_logprob(&o, value);
    json_t *number = json_loadb(o.data, o.n, JSON_DECODE_ANY, NULL);
    assert_non_null(number);
    assert_true(json_is_real(number)); /* never an integer: the types in clients would differ */
    double got = json_real_value(number);
    json_decref(number);
    buffer_free(&o);
    return got;
}

static void logprobs_give_back_their_bits(void **state)
{
    (void)state;
    srand(2);
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = ((uint32_t)rand() << 16) ^ (uint32_t)rand();
        float value;
        memcpy(&value, &bits, sizeof value);
        if (!(value > -9999.0f) || !(value <= 0))
            continue;
        float back = (float)written(value);
        assert_memory_equal(&back, &value, sizeof value);
    }
    assert_true(written(-0.0f) == 0);
    assert_true(written(-1) == -1);
    assert_true(written(-INFINITY) == -9999);
    assert_true(written(-12345) == -9999);
    assert_true(written(NAN) == -9999);
    assert_true(written(INFINITY) == 0);
}

static void numbers_and_bytes(void **state)
{
    struct buffer o = {0};
    (void)state;
    json_out_u64(&o, 0);
    json_out_raw(&o, " ");
    json_out_u64(&o, UINT64_MAX);
    json_out_raw(&o, " ");
    json_out_i64(&o, INT64_MIN);
    json_out_raw(&o, " ");
    json_out_byte_array(&o, (const uint8_t *)"\x00\xff", 2);
    json_out_byte_array(&o, NULL, 0);
    const char expected[] = "0 18446744073709551615 -9223372036854775808 [0,255][]";
    assert_int_equal(o.n, strlen(expected));
    assert_memory_equal(o.data, expected, o.n);
    buffer_free(&o);
}

int run_json_out_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),       cmocka_unit_test(bytes_that_are_not_utf8_become_replacements),
        cmocka_unit_test(any_bytes_make_valid_json), cmocka_unit_test(logprobs_give_back_their_bits),
        cmocka_unit_test(numbers_and_bytes),
    };
    return cmocka_run_group_tests_name("json_out", tests, NULL, NULL);
}
