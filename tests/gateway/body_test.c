/* The body for a target. jansson changes the same body in another way, and both must be the same JSON. */
#include "base/hash.h"
#include "server/gateway/relay/body.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

static struct relay_body read_body(enum relay_api api, const char *text)
{
    struct relay_body b;
    struct api_error e;
    char *copy = malloc(strlen(text) + 1);
    memcpy(copy, text, strlen(text));
    assert_true(relay_body_read(&b, api, copy, strlen(text), true, &e));
    return b;
}

static char *written(const struct relay_body *b, const struct relay_target_body *how)
{
    struct buffer o = {0};
    relay_body_write(b, how, &o);
    const char *text = buffer_text(&o);
    assert_non_null(text);
    return o.data;
}

static void check_written(const char *text, const struct relay_target_body *how, const char *expected)
{
    struct relay_body b = read_body(RELAY_CHAT, text);
    char *got = written(&b, how);
    assert_string_equal(got, expected);
    free(got);
    relay_body_free(&b);
}

static void test_written(void **state)
{
    const struct relay_target_body plain = {.model = "up"}, usage = {.model = "up", .adds_usage = true},
                                   all = {.model = "u\"p", .adds_usage = true, .max_tokens = 9};
    (void)state;
    check_written("{\"model\":\"m\",\"a\":1.0e3}", &plain, "{\"model\":\"up\",\"a\":1.0e3}");
    check_written("{}", &plain, "{\"model\":\"up\"}");
    check_written(" { \"a\" : 1 } ", &plain, " {\"model\":\"up\", \"a\" : 1 } ");
    check_written("{\"model\":null}", &usage, "{\"stream_options\":{\"include_usage\":true},\"model\":\"up\"}");
    check_written("{\"stream_options\":{ }}", &usage, "{\"model\":\"up\",\"stream_options\":{\"include_usage\":true}}");
    check_written("{\"stream_options\":null,\"model\":\"m\"}", &usage,
                  "{\"stream_options\":{\"include_usage\":true},\"model\":\"up\"}");
    check_written("{\"stream_options\":{\"include_usage\":false},\"model\":\"m\"}", &usage,
                  "{\"stream_options\":{\"include_usage\":true},\"model\":\"up\"}");
    check_written("{\"stream_options\":{\"x\":1},\"model\":\"m\"}", &usage,
                  "{\"stream_options\":{\"include_usage\":true,\"x\":1},\"model\":\"up\"}");
    check_written("{\"model\":\"m\",\"max_tokens\":null}", &all,
                  "{\"stream_options\":{\"include_usage\":true},\"model\":\"u\\\"p\",\"max_tokens\":9}");
    check_written("{\"model\":\"m\",\"max_completion_tokens\":3}", &all,
                  "{\"stream_options\":{\"include_usage\":true},\"model\":\"u\\\"p\",\"max_completion_tokens\":3}");
}

static void test_read(void **state)
{
    struct relay_body b = read_body(
        RELAY_CHAT, "{\"model\":\"a\\u0062\",\"stream\":true,\"n\":3,\"max_tokens\":5,\"messages\":["
                    "{\"role\":\"user\",\"content\":\"first\"},{\"role\":\"assistant\",\"content\":\"x\"},"
                    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},{\"type\":\"image_url\"},"
                    "{\"type\":\"text\",\"text\":\"two\"}]}]}");
    (void)state;
    assert_string_equal(b.asked, "ab");
    assert_string_equal(b.prompt, "one\ntwo");
    assert_true(b.is_stream);
    assert_false(b.wants_usage);
    assert_int_equal(relay_body_answer_tokens(&b), 15);
    relay_body_free(&b);
    b = read_body(RELAY_RESPONSES, "{\"input\":\"text\",\"max_output_tokens\":4}");
    assert_string_equal(b.prompt, "text");
    assert_null(b.asked);
    assert_int_equal(b.n_max_tokens, 4);
    relay_body_free(&b);
    b = read_body(RELAY_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}");
    assert_string_equal(b.prompt, "a\nb");
    assert_int_equal(relay_body_answer_tokens(&b), 256);
    relay_body_free(&b);
}

/* ---- random --------------------------------------------------------------------------------- */

static json_t *random_value(unsigned *seed, int depth)
{
    static const char *const texts[] = {"", "a\"b", "\\", "ü€😀", "{", "model", "\n"};
    switch (rand_r(seed) % (depth > 2 ? 5 : 7)) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_integer(rand_r(seed) % 100 - 50);
    case 3: return json_real(rand_r(seed) / 7.0);
    case 4: return json_string(texts[rand_r(seed) % 7]);
    case 5: {
        json_t *list = json_array();
        for (int i = rand_r(seed) % 4; i > 0; i--)
            json_array_append_new(list, random_value(seed, depth + 1));
        return list;
    }
    default: {
        static const char *const keys[] = {"model", "x", "include_usage", "stream_options", "max_tokens", "ключ"};
        json_t *map = json_object();
        for (int i = rand_r(seed) % 4; i > 0; i--)
            json_object_set_new(map, keys[rand_r(seed) % 6], random_value(seed, depth + 1));
        return map;
    }
    }
}

static json_t *random_body(unsigned *seed)
{
    static const char *const keys[] = {
        "messages", "temperature", "stream_options", "max_tokens", "max_completion_tokens", "stream", "tools", "n",
        "x"};
    json_t *body = json_object();
    if (rand_r(seed) % 4)
        json_object_set_new(body, "model", rand_r(seed) % 4 ? json_string("m") : json_null());
    for (int i = rand_r(seed) % 6; i > 0; i--)
        json_object_set_new(body, keys[rand_r(seed) % 9], random_value(seed, 0));
    if (json_object_get(body, "stream")) /* another kind is rejected */
        json_object_set_new(body, "stream", rand_r(seed) % 2 ? json_true() : json_null());
    return body;
}

static bool is_count(const json_t *v)
{
    const double n = json_number_value(v);
    return n >= 1 && n == (double)(long long)n;
}

/* What relay_body_write() is said to do, on a tree. */
static void change(json_t *body, const struct relay_target_body *how)
{
    json_object_set_new(body, "model", json_string(how->model));
    json_t *options = json_object_get(body, "stream_options");
    if (how->adds_usage && json_is_object(options))
        json_object_set_new(options, "include_usage", json_true());
    else if (how->adds_usage)
        json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    const json_t *newer = json_object_get(body, "max_completion_tokens"), *older = json_object_get(body, "max_tokens");
    const bool has_newer = newer && !json_is_null(newer), has_older = older && !json_is_null(older);
    const bool replaces_newer = has_newer && !is_count(newer), replaces_older = has_older && !is_count(older);
    if (how->max_tokens == 0)
        return;
    /* A value that is no positive whole number would be the target's to understand. Both names count. */
    if (replaces_newer || (!has_newer && !has_older && newer && !older))
        json_object_set_new(body, "max_completion_tokens", json_integer(how->max_tokens));
    if (replaces_older || (!has_newer && !has_older && (older || !newer)))
        json_object_set_new(body, "max_tokens", json_integer(how->max_tokens));
}

static void test_random(void **state)
{
    unsigned seed = 7;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        json_t *body = random_body(&seed);
        char *text = json_dumps(body, rand_r(&seed) % 2 ? JSON_INDENT(2) : JSON_COMPACT);
        const struct relay_target_body how = {
            .model = "up", .adds_usage = rand_r(&seed) % 2, .max_tokens = rand_r(&seed) % 2 ? 77 : 0};
        struct relay_body b = read_body(RELAY_CHAT, text);
        char *got = written(&b, &how);
        json_t *changed = json_loads(got, JSON_REJECT_DUPLICATES, NULL);
        change(body, &how);
        if (!changed || !json_equal(changed, body))
            fail_msg("%s became %s", text, got);
        json_decref(changed);
        json_decref(body);
        free(text);
        free(got);
        relay_body_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_random),
    };
    json_object_seed(1);
    return quire_hash_init() != 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
