/* Every allocation of a copy, of a reading and of a writing fails once: the call reports it and leaks nothing. */
#include "request/codec.h"
#include "request/spec.h"
#include "tests/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t ids[] = {3, 1, 2, 999}, words[] = {1, 7, 2, 8, 9};
static const struct request_bias biases[] = {{5, -1}, {6, 0.5f}};

/* Every list is set. Borrows its arrays. */
static struct request_spec full(void)
{
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = s.prediction = s.stop_token_ids = s.allowed_token_ids = ids;
    s.n_prompt = s.n_prediction = s.n_stop_token_ids = s.n_allowed_token_ids = 4;
    s.max_tokens = 9;
    s.biases = biases;
    s.n_biases = 2;
    s.bad_words = words;
    s.n_bad_words = 5;
    s.given = ids;
    s.n_given = 3;
    s.grammar = (const uint8_t *)"start: \"a\"";
    s.n_grammar = 10;
    return s;
}

static void test_copy(void **state)
{
    (void)state;
    const struct request_spec from = full();
    long n = 0;
    for (;; n++) {
        struct request_spec to;
        struct quire_error err = {.text = ""};
        fault_at(n);
        int status = request_spec_copy(&to, &from, &err);
        if (!fault_end()) {
            assert_int_equal(status, QUIRE_OK);
            assert_memory_equal(to.prompt, ids, sizeof ids);
            request_spec_free(&to);
            break;
        }
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_non_null(strstr(err.text, "memory"));
    }
    assert_int_equal(n, 8); /* lists */
}

static void test_codec(void **state)
{
    (void)state;
    const struct request_spec from = full();
    struct buffer b = {0};
    long n = 0;
    for (;; n++) {
        fault_at(n);
        int status = request_spec_put(&b, &from, REQUEST_FOR_FRAME, NULL);
        if (!fault_end()) {
            assert_int_equal(status, QUIRE_OK);
            break;
        }
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_true(b.failed);
        buffer_free(&b);
        b = (struct buffer){0};
    }
    assert_true(n > 0);
    for (n = 0;; n++) {
        struct request_spec to;
        struct quire_error err = {.text = ""};
        fault_at(n);
        int status = request_spec_get("SUBMIT", (const uint8_t *)b.data, b.n, &to, &err);
        if (!fault_end()) {
            assert_int_equal(status, QUIRE_OK);
            assert_memory_equal(to.bad_words, words, sizeof words);
            request_spec_free(&to);
            break;
        }
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_non_null(strstr(err.text, "memory"));
    }
    assert_int_equal(n, 7); /* lists; `given` is never written */
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy), cmocka_unit_test(test_codec)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
