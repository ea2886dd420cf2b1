/* Events that differ in their text only. What is recognized must be a token event by events_read(), whatever the bytes. */
#include "base/hash.h"
#include "server/gateway/relay/repeat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#define EVENT(text) "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":" text "},\"finish_reason\":null}]}"

static struct events_facts learn(struct repeat *r, const char *event)
{
    struct events_facts facts;
    events_read(event, strlen(event), &facts, NULL);
    repeat_learn(r, event, strlen(event), &facts);
    return facts;
}

static bool is(struct repeat *r, const char *event)
{
    return repeat_is(r, event, strlen(event));
}

static void test_recognized(void **state)
{
    struct repeat r = {0};
    (void)state;
    assert_false(is(&r, EVENT("\"b\"")));
    learn(&r, EVENT("\"a\""));
    assert_true(is(&r, EVENT("\"b\"")));
    assert_true(is(&r, EVENT("\" größer \\n\\\"\\\\ 😀\"")));
    assert_false(is(&r, EVENT("\"\"")));
    assert_false(is(&r, EVENT("\"b")));
    assert_false(is(&r, EVENT("\"b\\\"")));
    assert_false(is(&r, EVENT("\"\\x\"")));
    assert_false(is(&r, EVENT("\"\\ud800\"")));
    assert_false(is(&r, EVENT("\"\xff\"")));
    assert_false(is(&r, EVENT("\"b\",\"role\":\"x\"")));
    assert_false(is(&r, EVENT("null")));
    assert_false(is(&r, "{\"error\":{\"message\":\"x\"}}"));
    repeat_free(&r);
}

static void test_not_learnt(void **state)
{
    static const char *const events[] = {
        "{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}},{\"delta\":{\"content\":\"b\"}}]}",
        "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
        "{\"error\":{\"message\":\"a\"}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct repeat r = {0};
        learn(&r, events[i]);
        assert_int_equal(r.event.n, 0);
        repeat_free(&r);
    }
}

static void test_random(void **state)
{
    static const char base[] = EVENT("\"some text\"");
    static const char bytes[] = "\"\\{}[]:,aun0\n\xc3\xbc\xff ";
    struct repeat r = {0};
    unsigned seed = 3;
    size_t n_recognized = 0;
    (void)state;
    learn(&r, base);
    for (int i = 0; i < 300000; i++) {
        char event[sizeof base + 8];
        size_t n = sizeof base - 1;
        struct events_facts facts;
        memcpy(event, base, n);
        for (int k = rand_r(&seed) % 3; k >= 0; k--) {
            const size_t at = rand_r(&seed) % 4 ? 50 + (size_t)rand_r(&seed) % 14 : (size_t)rand_r(&seed) % n;
            const char byte = bytes[(size_t)rand_r(&seed) % (sizeof bytes - 1)];
            if (rand_r(&seed) % 2 && n < sizeof event) {
                memmove(event + at + 1, event + at, n - at);
                n++;
            }
            event[at] = byte;
        }
        if (!repeat_is(&r, event, n))
            continue;
        n_recognized++;
        events_read(event, n, &facts, NULL);
        if (!facts.is_json || !facts.has_token || facts.has_finish || facts.has_usage || facts.is_error)
            fail_msg("%.*s", (int)n, event);
    }
    assert_true(n_recognized > 1000);
    repeat_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recognized),
        cmocka_unit_test(test_not_learnt),
        cmocka_unit_test(test_random),
    };
    return quire_hash_init() != 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
