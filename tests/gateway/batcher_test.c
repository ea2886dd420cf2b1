/* Requests that become one: collecting them with a given clock, their body, and their parts of the reply. */
#include "server/gateway/batcher/collect.h"
#include "server/gateway/batcher/joined.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

/* ---- collecting ----------------------------------------------------------------------------- */

static const struct batch_terms terms = {3, 100};

static void a_batch_is_full_or_due(void **state)
{
    struct collector c;
    const struct key256 a = {{1}}, b = {{2}};
    int m[8];
    (void)state;
    collector_init(&c);
    assert_int_equal(collector_next_ms(&c), 0);
    struct batch *first = collector_add(&c, &a, terms, &m[0], 1000);
    struct batch *other = collector_add(&c, &b, terms, &m[1], 1010);
    assert_ptr_not_equal(first, other);
    assert_ptr_equal(collector_add(&c, &a, terms, &m[2], 1050), first);
    assert_int_equal(collector_next_ms(&c), 1100);
    assert_null(collector_due(&c, 1099));
    assert_ptr_equal(collector_add(&c, &a, terms, &m[3], 1060), first); /* full */
    assert_false(first->is_open);
    assert_int_equal(first->n, 3);
    assert_true(first->members[0] == &m[0] && first->members[1] == &m[2] && first->members[2] == &m[3]);
    assert_int_equal(collector_next_ms(&c), 1110);
    struct batch *second = collector_add(&c, &a, terms, &m[4], 1070);
    assert_ptr_not_equal(second, first);
    assert_ptr_equal(collector_due(&c, 1110), other);
    assert_null(collector_due(&c, 1110));
    assert_ptr_equal(collector_due(&c, 5000), second);
    assert_int_equal(collector_next_ms(&c), 0);
    free(first);
    free(other);
    free(second);
    collector_free(&c);
}

static void members_leave(void **state)
{
    struct collector c;
    const struct key256 a = {{1}};
    int m[8];
    (void)state;
    collector_init(&c);
    struct batch *b = collector_add(&c, &a, terms, &m[0], 0);
    collector_add(&c, &a, terms, &m[1], 0);
    assert_int_equal(collector_leave(&c, b, &m[0]), 1);
    assert_int_equal(b->n, 1);
    assert_ptr_equal(b->members[0], &m[1]);
    assert_int_equal(collector_leave(&c, b, &m[1]), 0); /* freed */
    assert_int_equal(collector_next_ms(&c), 0);
    b = collector_add(&c, &a, terms, &m[0], 0);
    collector_add(&c, &a, terms, &m[1], 0);
    collector_add(&c, &a, terms, &m[2], 0);
    assert_int_equal(collector_leave(&c, b, &m[1]), 2); /* its place stays */
    assert_true(b->n == 3 && !b->members[1] && b->members[2] == &m[2]);
    assert_int_equal(collector_leave(&c, b, &m[1]), 2);
    free(b);
    collector_add(&c, &a, terms, &m[0], 0);
    collector_free(&c);
}

/* No member is lost or comes twice, whatever happens. */
static void random_members_are_each_in_one_batch(void **state)
{
    struct collector c;
    struct batch *in[500] = {0};
    char m[500];
    uint64_t now = 0;
    (void)state;
    collector_init(&c);
    srand(7);
    for (int i = 0; i < 500; i++) {
        const struct key256 key = {{(uint8_t)(rand() % 4)}};
        struct batch *done = NULL;
        now += (uint64_t)(rand() % 20);
        in[i] = collector_add(&c, &key, (struct batch_terms){1 + (uint32_t)key.bytes[0], 50}, &m[i], now);
        if (in[i]->is_open && rand() % 5 == 0) {
            collector_leave(&c, in[i], &m[i]);
            in[i] = NULL;
        } else if (!in[i]->is_open) {
            done = in[i];
        }
        for (; done || (done = collector_due(&c, now)); done = NULL) {
            assert_true(done->n <= done->max_size && done->n > 0);
            for (uint32_t k = 0; k < done->n; k++) {
                const ptrdiff_t at = (char *)done->members[k] - m;
                assert_ptr_equal(in[at], done);
                in[at] = NULL;
            }
            free(done);
        }
    }
    for (struct batch *b; (b = collector_due(&c, now + 50)); free(b))
        for (uint32_t k = 0; k < b->n; k++)
            in[(char *)b->members[k] - m] = NULL;
    for (int i = 0; i < 500; i++)
        assert_null(in[i]);
    collector_free(&c);
}

/* ---- bodies --------------------------------------------------------------------------------- */

static struct joined_body body_of(enum joined_kind kind, const char *text)
{
    struct joined_body b;
    assert_true(joined_read(kind, text, strlen(text), &b));
    return b;
}

static void bodies_are_joined(void **state)
{
    const struct joined_body bodies[] = {
        body_of(JOINED_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":5}"),
        body_of(JOINED_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"b\\\"]\",\"max_tokens\":5}"),
    };
    struct buffer o = {0};
    (void)state;
    joined_write(bodies, 2, &o);
    assert_string_equal(buffer_text(&o), "{\"model\":\"m\",\"prompt\":[\"a\",\"b\\\"]\"],\"max_tokens\":5}");
    buffer_free(&o);
}

static bool same_key(const char *a, const char *b, const char *where)
{
    const struct joined_body first = body_of(JOINED_EMBEDDINGS, a), second = body_of(JOINED_EMBEDDINGS, b);
    const struct key256 x = joined_key(&first, "here"), y = joined_key(&second, where);
    return memcmp(&x, &y, sizeof x) == 0;
}

static void only_the_prompt_may_differ(void **state)
{
    static const char *const no[] = {"{\"prompt\":[\"a\"]}",
                                     "{\"prompt\":3}",
                                     "{\"model\":\"m\"}",
                                     "{\"prompt\":\"a\",\"stream\":true}",
                                     "{\"prompt\":\"a\",\"n\":2}",
                                     "{\"prompt\":\"a\",\"best_of\":3}",
                                     "x"};
    struct joined_body b;
    (void)state;
    assert_true(same_key("{\"input\":\"a\",\"model\":\"m\"}", "{\"input\":\"bb\",\"model\":\"m\"}", "here"));
    assert_false(same_key("{\"input\":\"a\",\"model\":\"m\"}", "{\"input\":\"a\",\"model\":\"n\"}", "here"));
    assert_false(same_key("{\"input\":\"a\",\"model\":\"m\"}", "{\"input\":\"a\",\"model\":\"m\"}", "there"));
    assert_false(
        same_key("{\"input\":\"a\",\"model\":\"m\"}", "{\"input\":\"a\",\"model\":\"m\",\"dimensions\":2}", "here"));
    assert_false(same_key("{\"a\":\"\",\"input\":\"x\"}", "{\"input\":\"x\",\"a\":\"\"}", "here"));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(joined_read(JOINED_COMPLETIONS, no[i], strlen(no[i]), &b));
    assert_true(joined_read(JOINED_COMPLETIONS, "{\"prompt\":\"\",\"n\":1,\"stream\":false,\"best_of\":null}", 49, &b));
}

/* ---- replies -------------------------------------------------------------------------------- */

static void replies_are_divided(void **state)
{
    static const char reply[] =
        "{\"id\":\"c\",\"choices\":[{\"index\":1,\"text\":\"second\",\"finish_reason\":\"stop\"},{\"text\":\"\",\"index\":0}],"
        "\"model\":\"m\",\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,\"total_tokens\":12,"
        "\"prompt_tokens_details\":{\"cached_tokens\":3}}}";
    const struct joined_body bodies[] = {body_of(JOINED_COMPLETIONS, "{\"prompt\":\"a\"}"),
                                         body_of(JOINED_COMPLETIONS, "{\"prompt\":\"abcdefg\"}")};
    struct buffer out[2] = {0};
    (void)state;
    assert_true(joined_split(JOINED_COMPLETIONS, reply, strlen(reply), bodies, 2, out));
    assert_string_equal(
        buffer_text(&out[0]),
        "{\"id\":\"c\",\"choices\":[{\"text\":\"\",\"index\":0}],\"model\":\"m\",\"usage\":{\"prompt_tokens\":1,"
        "\"completion_tokens\":1,\"total_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":0}}}");
    assert_string_equal(
        buffer_text(&out[1]),
        "{\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"second\",\"finish_reason\":\"stop\"}],\"model\":\"m\",\"usage\":"
        "{\"prompt_tokens\":6,\"completion_tokens\":4,\"total_tokens\":10,\"prompt_tokens_details\":{\"cached_tokens\":3}}}");
    buffer_free(&out[0]);
    buffer_free(&out[1]);
}

static uint64_t count(const json_t *reply, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(reply, "usage"), key));
}

/* Shares of tokens add up, for any lengths. */
static void shares_add_up(void **state)
{
    (void)state;
    srand(3);
    for (int round = 0; round < 300; round++) {
        char texts[8][128], reply[2048] = "{\"data\":[";
        struct joined_body bodies[8];
        struct buffer out[8] = {0};
        const size_t n = 1 + (size_t)(rand() % 8);
        const uint64_t input = (uint64_t)(rand() % 1000);
        const uint64_t cached = input ? (uint64_t)rand() % (input + 1) : 0;
        uint64_t sum = 0, cached_sum = 0;
        for (size_t i = 0; i < n; i++) {
            snprintf(texts[i], sizeof texts[i], "{\"input\":\"%0*d\"}", 1 + rand() % 90, 0);
            bodies[i] = body_of(JOINED_EMBEDDINGS, texts[i]);
            snprintf(reply + strlen(reply), 64, "%s{\"index\":%zu,\"embedding\":[%zu]}", i ? "," : "", n - 1 - i,
                     n - 1 - i);
        }
        snprintf(reply + strlen(reply), 200,
                 "],\"usage\":{\"prompt_tokens\":%llu,\"prompt_tokens_details\":{\"cached_tokens\":%llu}}}",
                 (unsigned long long)input, (unsigned long long)cached);
        assert_true(joined_split(JOINED_EMBEDDINGS, reply, strlen(reply), bodies, n, out));
        for (size_t i = 0; i < n; i++) {
            json_t *one = json_loadb(out[i].data, out[i].n, 0, NULL);
            const json_t *details = json_object_get(json_object_get(one, "usage"), "prompt_tokens_details");
            const uint64_t c = (uint64_t)json_integer_value(json_object_get(details, "cached_tokens"));
            const json_t *item = json_array_get(json_object_get(one, "data"), 0);
            assert_int_equal(json_integer_value(json_array_get(json_object_get(item, "embedding"), 0)), i);
            assert_int_equal(json_integer_value(json_object_get(item, "index")), 0);
            assert_true(c <= count(one, "prompt_tokens"));
            sum += count(one, "prompt_tokens");
            cached_sum += c;
            json_decref(one);
            buffer_free(&out[i]);
        }
        assert_int_equal(sum, input);
        assert_int_equal(cached_sum, cached);
    }
}

static void a_reply_must_answer_each(void **state)
{
    static const char *const wrong[] = {"",
                                        "x",
                                        "[]",
                                        "{\"choices\":null}",
                                        "{\"choices\":[{\"index\":0}]}",
                                        "{\"choices\":[{\"index\":0},{\"index\":0}]}",
                                        "{\"choices\":[{\"index\":0},{\"index\":2}]}",
                                        "{\"choices\":[{\"index\":0},{\"index\":-1}]}",
                                        "{\"choices\":[{\"index\":0},{}]}",
                                        "{\"choices\":[{\"index\":0},{\"index\":1},{\"index\":1}]}",
                                        "{\"choices\":[0,1]}"};
    const struct joined_body bodies[] = {body_of(JOINED_COMPLETIONS, "{\"prompt\":\"a\"}"),
                                         body_of(JOINED_COMPLETIONS, "{\"prompt\":\"b\"}")};
    struct buffer out[2] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(joined_split(JOINED_COMPLETIONS, wrong[i], strlen(wrong[i]), bodies, 2, out));
    assert_int_equal(out[0].n + out[1].n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_full_or_due),
        cmocka_unit_test(members_leave),
        cmocka_unit_test(random_members_are_each_in_one_batch),
        cmocka_unit_test(bodies_are_joined),
        cmocka_unit_test(only_the_prompt_may_differ),
        cmocka_unit_test(replies_are_divided),
        cmocka_unit_test(shares_add_up),
        cmocka_unit_test(a_reply_must_answer_each),
    };
    return quire_hash_init() ? 1 : RUN_ISOLATED(tests, NULL, NULL);
}
