/* Earlier requests: which are equal, their expected cost, and their order. */
#include "tools/cache/requests_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct asked_requests read_all(const char *text)
{
    struct asked_requests all;
    struct quire_error err = {.text = ""};
    if (requests_parse(text, strlen(text), "f", &all, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return all;
}

/* Requests are equal if they differ only in the order of keys, the reply's format or the user. Any other difference
 * counts. */
static void equal_ones_are_one(void **state)
{
    (void)state;
    struct asked_requests all = read_all(
        "{\"prompt\":\"x\",\"max_tokens\":4}\n"
        "\n"
        "{\"max_tokens\":4,\"stream\":true,\"stream_options\":{},\"user\":\"u\",\"prompt\":\"x\",\"background\":true}\n"
        "{\"body\":{\"prompt\":\"x\",\"max_tokens\":4},\"count\":5}\n"
        "{\"prompt\":\"x\",\"max_tokens\":4,\"seed\":1}\n"
        "{\"prompt\":\"x\",\"max_tokens\":4,\"cache_salt\":\"s\"}\n");
    assert_int_equal(all.n, 5);
    requests_settle(&all);
    assert_int_equal(all.n, 3);
    assert_int_equal(all.items[0].count, 7);
    assert_int_equal(all.items[0].order, 1);
    assert_string_equal(all.items[0].path, "/v1/completions");
    assert_null(json_object_get(all.items[0].body, "stream"));
    assert_true(all.items[1].order == 5 && all.items[1].count == 1 && all.items[2].order == 6);
    requests_free(&all);
}

static void what_they_take(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint64_t n_prompt, n_generated;
    } cases[] = {
        {"{\"prompt\":\"12345\",\"max_tokens\":7}", 2, 7},
        {"{\"prompt\":[9,9,9],\"max_tokens\":0}", 3, 0},
        {"{\"prompt\":[[9,9],[9]],\"max_tokens\":5,\"n\":3}", 3, 30},
        {"{\"prompt\":[\"1234\",\"12345678\"]}", 3, 512},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"12345678\"}],\"max_tokens\":3,\"max_completion_tokens\":4}",
         3, 4},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"1234\"}]}]}", 3, 256},
        {"{\"prompt\":\"x\",\"max_tokens\":-4,\"n\":\"?\"}", 1, 256}, /* the server reports the fault */
        {"{\"prompt\":\"x\",\"max_tokens\":99999999999999,\"n\":99999999999999}", 1, 1000000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asked_requests all = read_all(cases[i].body);
        assert_int_equal(all.items[0].n_prompt, cases[i].n_prompt);
        assert_int_equal(all.items[0].n_generated, cases[i].n_generated);
        requests_free(&all);
    }
}

static void the_most_valuable_first(void **state)
{
    (void)state;
    struct asked_requests all = read_all("{\"prompt\":[1],\"max_tokens\":9}\n"                        /* 10 */
                                         "{\"body\":{\"prompt\":[2],\"max_tokens\":1},\"count\":7}\n" /* 14 */
                                         "{\"prompt\":[3],\"max_tokens\":29}\n"                       /* 30 */
                                         "{\"prompt\":[4],\"max_tokens\":9}\n");                      /* 10 */
    static const size_t order[] = {3, 2, 1, 4};
    requests_settle(&all);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(all.items[i].order, order[i]);
    requests_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ones_are_one),
        cmocka_unit_test(what_they_take),
        cmocka_unit_test(the_most_valuable_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
