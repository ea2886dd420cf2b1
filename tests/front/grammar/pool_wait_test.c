/* Tests which compilations wait, and for how long. */
#include "server/front/grammar/grammar_pool.h"

#include "base/clock.h"
#include "server/front/observe/metrics.h"
#include "text/quire_grammar.h"

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct event_base *base;
static int n_done, code;
static uint64_t waited_ms;
static uint64_t begun_us;
static struct grammar_wait *waits[GRAMMAR_MAX_JOBS + 1];
static int n_waits;

static void done(void *owner, const struct grammar_result *result)
{
    (void)owner;
    n_done++;
    code = result->ok ? 200 : result->error.status;
    waited_ms = (quire_now_us() - begun_us) / 1000;
    event_base_loopbreak(base);
}

/* A pool without threads is one whose threads are all busy. */
static void a_compilation_that_does_not_begin_is_rejected(void **state)
{
    struct grammar_pool *pool;
    struct quire_error err;
    struct api_error e = {0};
    struct grammar_request *r = NULL;
    struct grammar_counts *counts = calloc(1, sizeof *counts);
    const struct quire_grammar_source how = {.form = QUIRE_FORM_REGEX};
    (void)state;
    base = event_base_new();
    assert_int_equal(grammar_pool_open(base, 0, &pool, &err), QUIRE_OK);
    assert_true(grammar_request_set(&r, &how, strdup("a"), 1, "regex", &e));
    begun_us = quire_now_us();
    assert_non_null(grammar_pool_wait(pool, NULL, r, 0, counts, done, NULL, &e));
    const struct timeval most = {.tv_sec = GRAMMAR_MAX_WAIT_MS / 1000 + 120};
    event_base_loopexit(base, &most);
    event_base_dispatch(base);
    assert_int_equal(n_done, 1);
    assert_int_equal(code, 503);
    assert_true(waited_ms >= GRAMMAR_MAX_WAIT_MS);
    assert_int_equal(counts->rejected[GRAMMAR_BUSY], 1);
    grammar_pool_close(pool);
    grammar_request_free(r);
    free(counts);
    event_base_free(base);
}

/* Returns 0, or the error's status. The compilation stays. */
static int begin(struct grammar_pool *pool, struct grammar_counts *counts, uint32_t tenant, int i)
{
    struct api_error e = {0};
    struct grammar_request *r = NULL;
    char text[16];
    const int n = snprintf(text, sizeof text, "%u,%d", tenant, i);
    const struct quire_grammar_source how = {.form = QUIRE_FORM_REGEX};
    assert_true(grammar_request_set(&r, &how, strdup(text), (size_t)n, "regex", &e));
    struct grammar_wait *wait = grammar_pool_wait(pool, NULL, r, tenant, counts, done, NULL, &e);
    grammar_request_free(r);
    waits[n_waits] = wait;
    n_waits += wait != NULL;
    return wait ? 0 : e.status;
}

static void a_tenant_alone_has_most_of_the_pool(void **state)
{
    struct grammar_pool *pool;
    struct quire_error err;
    struct grammar_counts *counts = calloc(1, sizeof *counts);
    (void)state;
    base = event_base_new();
    assert_int_equal(grammar_pool_open(base, 0, &pool, &err), QUIRE_OK);
    for (int i = 0; i < GRAMMAR_MAX_JOBS / 4 * 3; i++)
        assert_int_equal(begin(pool, counts, 0, i), 0);
    assert_int_equal(begin(pool, counts, 0, GRAMMAR_MAX_JOBS), 429);
    for (int i = 0; i < GRAMMAR_MAX_JOBS / 4; i++)
        assert_int_equal(begin(pool, counts, 1, i), 0);
    assert_int_equal(begin(pool, counts, 1, GRAMMAR_MAX_JOBS), 429);
    assert_int_equal(begin(pool, counts, 2, 0), 503);
    while (n_waits > 0)
        grammar_pool_leave(waits[--n_waits]);
    grammar_pool_close(pool);
    free(counts);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_compilation_that_does_not_begin_is_rejected),
                                       cmocka_unit_test(a_tenant_alone_has_most_of_the_pool)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
