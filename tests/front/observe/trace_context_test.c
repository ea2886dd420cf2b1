/* traceparent and tracestate: the examples and the rules of W3C Trace Context. */
#include "server/front/observe/trace_context.h"
#include "tests/front/front_unit_test.h"

#include <stdio.h>
#include <string.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void parents_that_are_taken(void **state)
{
    static const struct {
        const char *text;
        bool sampled;
    } good[] = {
        {"00-" TRACE "-" SPAN "-01", true},
        {"00-" TRACE "-" SPAN "-00", false},
        {"00-" TRACE "-" SPAN "-0b", true}, /* flags that are not defined yet */
        {"00-" TRACE "-" SPAN "-fe", false},
        {"01-" TRACE "-" SPAN "-01", true}, /* later versions may append fields */
        {"cc-" TRACE "-" SPAN "-01-what-the-future-will-be-like", true},
    };
    struct trace_context got;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(trace_context_read(good[i].text, NULL, &got));
        assert_string_equal(got.trace_id, TRACE);
        assert_string_equal(got.parent_id, SPAN);
        assert_int_equal(got.sampled, good[i].sampled);
        assert_string_equal(got.state, "");
    }
}

static void parents_that_are_ignored(void **state)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-",
        "00-" TRACE,
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-",
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-011",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-01-more",
        "01-" TRACE "-" SPAN "-01more",
        "ff-" TRACE "-" SPAN "-01",
        "0-" TRACE "-" SPAN "-01",
        "000-" TRACE "-" SPAN "-01",
        "00-" TRACE "-" SPAN "-0A",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-" SPAN "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-01",
        "00-" TRACE "0-" SPAN "-01",
        "00-" TRACE "-" SPAN "0-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-" SPAN "-0x",
        " 00-" TRACE "-" SPAN "-01",
        "00_" TRACE "_" SPAN "_01",
    };
    struct trace_context got;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&got, 1, sizeof got);
        if (trace_context_read(bad[i], "a=1", &got))
            fail_msg("taken: %s", bad[i]);
        assert_true(!got.trace_id[0] && !got.parent_id[0] && !got.state[0] && !got.sampled);
    }
    assert_false(trace_context_read(NULL, "a=1", &got));
}

static void a_state_is_kept_or_left_out_whole(void **state)
{
    static const char *const good[] = {"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
                                       "a=1 ,\tb=2",
                                       "a=1,,b=2,",
                                       "tenant@vendor=x y~!",
                                       "a=",
                                       "a=1;b",
                                       "0-_*/=1"};
    static const char *const bad[] = {"a", "A=1", "a=1=2", "a=1,b", "a b=1", "=1", "a=\x01", "a=\xc3\xa9"};
    struct trace_context got;
    char longest[514];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(trace_context_read("00-" TRACE "-" SPAN "-01", good[i], &got));
        assert_string_equal(got.state, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(trace_context_read("00-" TRACE "-" SPAN "-01", bad[i], &got));
        assert_string_equal(got.state, "");
    }
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "a=", 2);
    longest[513] = '\0';
    assert_true(trace_context_read("00-" TRACE "-" SPAN "-01", longest, &got));
    assert_string_equal(got.state, "");
    longest[512] = '\0';
    assert_true(trace_context_read("00-" TRACE "-" SPAN "-01", longest, &got));
    assert_string_equal(got.state, longest);
}

int run_trace_context_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents_that_are_taken),
        cmocka_unit_test(parents_that_are_ignored),
        cmocka_unit_test(a_state_is_kept_or_left_out_whole),
    };
    return cmocka_run_group_tests_name("trace_context", tests, NULL, NULL);
}
