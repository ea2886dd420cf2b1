/* base/: the error convention, hashes, JSON getters, log lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/encoding/json.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void errors_are_cut_and_never_overrun(void **state)
{
    (void)state;
    struct {
        struct quire_error err;
        char canary[8];
    } box;
    memcpy(box.canary, "canary!", 8);
    char longer[2 * QUIRE_ERROR_BYTES];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;

    assert_int_equal(quire_fail(&box.err, QUIRE_IO, "%s", longer), QUIRE_IO);
    assert_int_equal(strlen(box.err.text), QUIRE_ERROR_BYTES - 1);
    quire_error_prefix(&box.err, "%s", longer);
    assert_int_equal(strlen(box.err.text), QUIRE_ERROR_BYTES - 1);
    quire_fail(&box.err, QUIRE_INVALID, "field: wrong");
    quire_error_prefix(&box.err, "file %d", 7);
    assert_string_equal(box.err.text, "file 7: field: wrong");
    assert_null(box.err.parameter);
    assert_int_equal(quire_fail_for(&box.err, QUIRE_INVALID, "top_k", "is %d", -1), QUIRE_INVALID);
    quire_error_prefix(&box.err, "SUBMIT");
    assert_string_equal(box.err.text, "SUBMIT: top_k: is -1");
    assert_string_equal(box.err.parameter, "top_k");
    quire_fail_for(&box.err, QUIRE_INVALID, longer, "%s", longer);
    assert_int_equal(strlen(box.err.text), QUIRE_ERROR_BYTES - 1);
    quire_fail(&box.err, QUIRE_IO, "another");
    assert_null(box.err.parameter);
    assert_string_equal(box.canary, "canary!");
    assert_int_equal(quire_fail(NULL, QUIRE_INVALID, "nobody listens"), QUIRE_INVALID);
    assert_int_equal(quire_fail_for(NULL, QUIRE_INVALID, "n", "nobody listens"), QUIRE_INVALID);
}

static void hashes_are_the_published_ones(void **state)
{
    (void)state;
    char hex[65];
    struct key256 k = quire_sha256("abc", 3);
    quire_key256_hex(&k, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct quire_sha256_state pieces;
    quire_sha256_begin(&pieces);
    quire_sha256_add(&pieces, "a", 1);
    struct key256 sofar = quire_sha256_now(&pieces);
    assert_memory_equal(sofar.bytes, quire_sha256("a", 1).bytes, 32);
    quire_sha256_add(&pieces, "bc", 2);
    assert_memory_equal(quire_sha256_now(&pieces).bytes, k.bytes, 32);
    /* BLAKE2b-256 of "abc", from Python's hashlib.blake2b(b"abc", digest_size=32). */
    k = quire_keyed_hash(NULL, "abc", 3);
    quire_key256_hex(&k, hex);
    assert_string_equal(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    /* The same with person=b"quire kv block  ". */
    struct key256 labelled = quire_labelled_hash("quire kv block  ", "abc", 3);
    quire_key256_hex(&labelled, hex);
    assert_string_equal(hex, "9a0584a42fecb5886a92d46c7b1e075641edfaf537679ea96dd6ed3c06de5f26");
    struct key256 a = quire_keyed_hash(&k, "abc", 3);
    k.bytes[31] ^= 1;
    struct key256 b = quire_keyed_hash(&k, "abc", 3);
    assert_false(quire_secret_equal(&a, &b, sizeof a));
}

static void json_refuses_what_is_not_clean(void **state)
{
    (void)state;
    struct quire_error err;
    json_t *value;
    static const char *const bad[] = {
        "",    "{",       "{\"a\":1,\"a\":2}",      "[1] x", "\"\xff\"", "{\"a\":\"\\u0000\"}",
        "NaN", "[1e999]", "{\"a\": 1 \x1b[31m\xff",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(quire_json_parse(bad[i], strlen(bad[i]), 8, "body", &value, &err), QUIRE_INVALID);
        assert_null(value);
        assert_int_equal(strncmp(err.text, "body: ", 6), 0);
        for (const char *c = err.text; *c; c++)
            assert_in_range(*c, 0x20, 0x7e);
    }
    assert_int_equal(quire_json_parse("[[[]]]", 6, 3, "body", &value, &err), QUIRE_OK);
    json_decref(value);
    assert_int_equal(quire_json_parse("[[[]]]", 6, 2, "body", &value, &err), QUIRE_INVALID);

    size_t n = 200000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    assert_int_equal(quire_json_parse(deep, n, 64, "body", &value, &err), QUIRE_INVALID);
    free(deep);
}

static json_t *python(const char *text)
{
    struct quire_error err;
    json_t *value;
    if (quire_json_parse_python(text, strlen(text), "file", &value, &err) != QUIRE_OK)
        fail_msg("%s: %s", text, err.text);
    return value;
}

/* Each left side as Python 3.13's json.loads() reads it; what jansson cannot hold is an empty array. */
static void json_is_read_as_python_reads_it(void **state)
{
    (void)state;
    static const struct {
        const char *text, *same;
    } rows[] = {
        {"{\"a\":1,\"a\":2}", "{\"a\":2}"},
        {"[NaN,Infinity,-Infinity,1e400,-1e400,0]", "[[],[],[],[],[],0]"},
        {"{\"a\":{\"b\":[0.5, Infinity]}}", "{\"a\":{\"b\":[0.5, []]}}"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775808", "9223372036854775808.0"},
        {"[1000000000000000019884624838656]", "[1.00000000000000001988e30]"},
        {"[-123456789012345678901234567890]", "[-123456789012345678901234567890.0]"},
        {"1e-400", "0.0"},
        {"[2048.0,-3.00,0.5,-0.0,1.0e3,12345678901234567890.0]", "[2048,-3,0.5,0,1000.0,12345678901234567890.0]"},
        {"\"NaN Infinity 1e400 \\\" NaN 99999999999999999999\"",
         "\"NaN Infinity 1e400 \\\" NaN 99999999999999999999\""},
        {"\"a\\u0000\\ud800\\udc00\\ud800x\\udc00\\ud83d\\ude00\"",
         "\"a\\ufffd\\ud800\\udc00\\ufffdx\\ufffd\\ud83d\\ude00\""},
        {"{\"\\u0000\":\"\\\\u0000\"}", "{\"\\ufffd\":\"\\\\u0000\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *got = python(rows[i].text), *same = json_loads(rows[i].same, JSON_DECODE_ANY, NULL);
        assert_non_null(same);
        if (!json_equal(got, same))
            fail_msg("%s", rows[i].text);
        json_decref(got);
        json_decref(same);
    }

    static const char *const bad[] = {
        "",
        "{",
        "[nan]",
        "[Nan]",
        "[+Infinity]",
        "[- Infinity]",
        "[NaNs]",
        "[01]",
        "[01e400]",
        "[1.e400]",
        "[1e400x]",
        "[1.]",
        "[.5]",
        "[1e]",
        "[--1]",
        "\"\n\"",
        "\"\\u12\"",
        "\"\\u00g0\"",
        "[1] x",
        "\"\xff\"",
        "\"a",
        "{\"a\":1,}",
        "\"a\\",
        "\"\\ud800",
        "[1,]",
        "\xef\xbb\xbf{\"a\":1}",
        "[Infinit]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct quire_error err;
        json_t *value;
        assert_int_equal(quire_json_parse_python(bad[i], strlen(bad[i]), "file", &value, &err), QUIRE_INVALID);
        assert_null(value);
        assert_int_equal(strncmp(err.text, "file: ", 6), 0);
    }
}

static void json_of_python_is_bounded(void **state)
{
    (void)state;
    struct quire_error err;
    json_t *value;
    char *deep = malloc(2 * 200000);
    for (size_t n = 70; n <= 200000; n = n == 70 ? 1000 : n == 1000 ? 1001 : n == 1001 ? 200000 : n + 1) {
        memset(deep, '[', n);
        memset(deep + n, ']', n);
        assert_int_equal(quire_json_parse_python(deep, 2 * n, "file", &value, &err),
                         n <= 1000 ? QUIRE_OK : QUIRE_INVALID);
        json_decref(value);
    }
    free(deep);
}

static void json_integers_however_they_are_written(void **state)
{
    (void)state;
    static const struct {
        const char *value, *says; /* NULL: 2048 */
    } rows[] = {{"2048", NULL},
                {"2048.0", NULL},
                {"2048.000", NULL},
                {"2.048e3", "file: k: must be an integer"},
                {"2048.5", "file: k: must be an integer"},
                {"\"2048\"", "file: k: must be an integer"},
                {"NaN", "file: k: must be an integer"},
                {"Infinity", "file: k: must be an integer"},
                {"1e30", "file: k: must be between 0 and 4096, got 1"},
                {"123456789012345678901234567890", "file: k: must be between 0 and 4096, got 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[80];
        struct quire_error err = {.text = ""};
        uint32_t got = 7;
        snprintf(text, sizeof text, "{\"k\": %s}", rows[i].value);
        json_t *object = python(text);
        const int status = quire_json_u32(object, "file", "k", 0, 4096, &got, &err);
        assert_int_equal(status, rows[i].says ? QUIRE_INVALID : QUIRE_OK);
        assert_int_equal(got, rows[i].says ? 7 : 2048);
        if (rows[i].says)
            assert_non_null(strstr(err.text, rows[i].says));
        json_decref(object);
    }
}

static void json_getters_check_type_and_range(void **state)
{
    (void)state;
    struct quire_error err;
    json_t *o;
    const char *text = "{\"i\":5,\"f\":0.5,\"s\":\"x\",\"b\":true,\"n\":null,\"neg\":-1}";
    assert_int_equal(quire_json_parse(text, strlen(text), 8, "body", &o, &err), QUIRE_OK);

    uint32_t u = 9;
    double f = 9;
    bool b = false;
    const char *s = "default";
    assert_int_equal(quire_json_u32(o, "body", "i", 0, 10, &u, &err), QUIRE_OK);
    assert_int_equal(u, 5);
    assert_int_equal(quire_json_u32(o, "body", "n", 0, 10, &u, &err), QUIRE_OK);
    assert_int_equal(u, 5);
    assert_int_equal(quire_json_u32(o, "body", "i", 6, 10, &u, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "body: i: must be between 6 and 10, got 5");
    assert_int_equal(quire_json_u32(o, "body", "neg", 0, 10, &u, &err), QUIRE_INVALID);
    assert_int_equal(quire_json_u32(o, "body", "f", 0, 10, &u, &err), QUIRE_INVALID);
    assert_int_equal(quire_json_u32(o, "body", "b", 0, 10, &u, &err), QUIRE_INVALID);
    assert_int_equal(quire_json_f64(o, "body", "i", 0, 10, &f, &err), QUIRE_OK);
    assert_true(f == 5);
    assert_int_equal(quire_json_f64(o, "body", "s", 0, 10, &f, &err), QUIRE_INVALID);
    assert_int_equal(quire_json_bool(o, "body", "b", &b, &err), QUIRE_OK);
    assert_true(b);
    assert_int_equal(quire_json_bool(o, "body", "i", &b, &err), QUIRE_INVALID);
    assert_int_equal(quire_json_string(o, "body", "absent", &s, &err), QUIRE_OK);
    assert_string_equal(s, "default");
    assert_int_equal(quire_json_string(o, "body", "i", &s, &err), QUIRE_INVALID);
    json_decref(o);
}

static void json_files_are_bounded(void **state)
{
    (void)state;
    struct quire_error err;
    json_t *value;
    char path[] = "/tmp/quire-base-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"a\": [1, 2]}", 13), 13);
    close(fd);
    assert_int_equal(quire_json_read_file(path, 13, &value, &err), QUIRE_OK);
    json_decref(value);
    assert_int_equal(quire_json_read_file(path, 12, &value, &err), QUIRE_INVALID);
    unlink(path);
    assert_int_equal(quire_json_read_file(path, 12, &value, &err), QUIRE_NOT_FOUND);
    assert_non_null(strstr(err.text, "quire-base-"));
    assert_null(strstr(err.text, "/tmp"));
}

/* Returns the text that log() writes to standard error. The caller frees it. */
static char *caught(enum quire_log_format format, void (*log)(void))
{
    int saved = dup(STDERR_FILENO);
    FILE *file = tmpfile();
    assert_true(saved >= 0 && file && dup2(fileno(file), STDERR_FILENO) >= 0);
    quire_log_set_format(format);
    log();
    quire_log_set_format(QUIRE_LOG_AS_TEXT);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    long n = ftell(file);
    char *text = calloc(1, (size_t)n + 1);
    rewind(file);
    assert_true(text && fread(text, 1, (size_t)n, file) == (size_t)n);
    fclose(file);
    return text;
}

static const char nasty[] = "a\n\"\\\x1b[2J\x7f\xff\xc3\xa9\xed\xa0\x80 b=c";

static void log_nasty(void)
{
    const struct quire_log_field fields[] = {
        {.key = "id", .text = "x-1.2:3"}, {.key = "nasty", .text = nasty}, {.key = "n", .number = 12.5}};
    quire_log_fields(QUIRE_LOG_WARN, "room", fields, 3, "m %s", nasty);
}

/* The output is one line for any text, and contains nothing that a terminal or a parser would interpret. */
static void a_log_line_as_text_cannot_be_forged(void **state)
{
    (void)state;
    char *text = caught(QUIRE_LOG_AS_TEXT, log_nasty);
    assert_non_null(
        strstr(text, "Z warn  room: m a?\"\\?[2J?\xff\xc3\xa9\xed\xa0\x80 b=c id=x-1.2:3 nasty=\"a\\u000a"));
    assert_non_null(strstr(text, " n=12.5\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
}

static json_t *only_object(char *text)
{
    char *end = strchr(text, '\n');
    assert_ptr_equal(end, text + strlen(text) - 1);
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    free(text);
    return object;
}

static void a_log_line_as_json_is_json(void **state)
{
    static const char shown[] = "a\n\"\\\x1b[2J\x7f\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd b=c";
    (void)state;
    json_t *line = only_object(caught(QUIRE_LOG_AS_JSON, log_nasty));
    assert_string_equal(json_string_value(json_object_get(line, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(line, "module")), "room");
    assert_string_equal(json_string_value(json_object_get(line, "room")), "room");
    assert_string_equal(json_string_value(json_object_get(line, "id")), "x-1.2:3");
    assert_string_equal(json_string_value(json_object_get(line, "nasty")), shown);
    assert_memory_equal(json_string_value(json_object_get(line, "msg")), "m a", 3);
    assert_string_equal(json_string_value(json_object_get(line, "msg")) + 2, shown);
    assert_true(json_real_value(json_object_get(line, "n")) == 12.5);
    assert_int_equal(json_object_size(line), 8);
    json_decref(line);
}

static char long_text[4000];

static void log_long(void)
{
    struct quire_log_field fields[30];
    for (int i = 0; i < 30; i++)
        fields[i] = (struct quire_log_field){.key = "key", .text = long_text};
    quire_log_fields(QUIRE_LOG_INFO, "room", fields, 30, "%s", long_text);
}

static void a_long_log_line_is_cut_where_it_stays_whole(void **state)
{
    (void)state;
    for (int c = 0; c < 3; c++) {
        memset(long_text, "x\x01\xff"[c], sizeof long_text - 1);
        char *text = caught(QUIRE_LOG_AS_TEXT, log_long);
        assert_in_range(strlen(text), 2000, 4096);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
        free(text);
        text = caught(QUIRE_LOG_AS_JSON, log_long);
        assert_in_range(strlen(text), 3500, 4096);
        json_t *line = json_loads(text, 0, NULL);
        assert_true(line && json_object_get(line, "msg") && json_object_get(line, "key"));
        json_decref(line);
        free(text);
    }
}

int main(void)
{
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_cut_and_never_overrun),
        cmocka_unit_test(hashes_are_the_published_ones),
        cmocka_unit_test(json_refuses_what_is_not_clean),
        cmocka_unit_test(json_is_read_as_python_reads_it),
        cmocka_unit_test(json_of_python_is_bounded),
        cmocka_unit_test(json_integers_however_they_are_written),
        cmocka_unit_test(json_getters_check_type_and_range),
        cmocka_unit_test(json_files_are_bounded),
        cmocka_unit_test(a_log_line_as_text_cannot_be_forged),
        cmocka_unit_test(a_log_line_as_json_is_json),
        cmocka_unit_test(a_long_log_line_is_cut_where_it_stays_whole),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
