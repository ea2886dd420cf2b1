/* Every allocation of the response cache fails once, from its opening to its end, while identical requests share a
 * computation and a later one is served from memory. Every client gets the whole response or an error, and the
 * cache serves the next request. */
#include "tests/cache/flight_fixture.h"
#include "tests/fault.h"

#include "base/hash.h"

static void assert_served(const struct ear *e, int status)
{
    if (status) {
        assert_int_equal(e->n_accepted + e->n_done + e->n_lost + e->n_refused, 0);
        return;
    }
    assert_int_equal(e->n_done + e->n_refused, 1);
    if (e->finish == WIRE_FINISH_LENGTH)
        assert_string_equal(e->said, "5678");
    else
        assert_memory_equal(e->said, "5678", strlen(e->said));
}

static uint64_t n_answered;

/* Answers the requests that the cache has passed on since the last call. */
static void answer(void)
{
    for (; n_answered < n_asked; n_answered++) {
        const uint64_t i = n_answered;
        if (asked[i].cancelled)
            continue;
        asked[i].events.on_accepted(asked[i].context, 3);
        for (uint32_t token = 5; token <= 8; token++)
            say(i, token);
        end(i, WIRE_FINISH_LENGTH, 4);
    }
    turn();
}

/* Returns whether an allocation failed. */
static bool run(long n)
{
    static const struct completion_terms terms = {.is_bounded = true};
    const struct response_cache_options options = {.max_entries = 4};
    struct ear ears[4] = {{.n_done = 0}};
    int status[4];
    struct quire_error err = {.text = ""};
    base = event_base_new();
    n_asked = n_answered = 0;
    is_away = false;
    fault_at(n);
    int opened = response_cache_open(base, &options, &cache, &err);
    if (opened) {
        assert_true(fault_end());
        assert_int_equal(opened, QUIRE_NO_MEMORY);
        assert_null(cache);
        event_base_free(base);
        return true;
    }
    response_cache_set_below(cache, below, &identity, 100);
    for (uint32_t i = 0; i < 2; i++) /* share one computation, unless its flight or a waiter finds no memory */
        status[i] = ask_with(&ears[i], &terms);
    answer();
    for (uint32_t i = 2; i < 4; i++) {
        status[i] = ask_with(&ears[i], &terms);
        answer();
    }
    bool failed = fault_end();
    for (uint32_t i = 0; i < 4; i++)
        assert_served(&ears[i], status[i]);
    if (!failed) {
        assert_int_equal(n_asked, 1);
        assert_true(ears[3].from == COMPLETION_CACHED);
    }
    struct ear after = {.n_done = 0}; /* the cache still works */
    assert_int_equal(ask_with(&after, &terms), QUIRE_OK);
    answer();
    assert_served(&after, QUIRE_OK);
    assert_int_equal(after.finish, WIRE_FINISH_LENGTH);
    close_cache();
    return failed;
}

static void test_shortage(void **state)
{
    long n = 0;
    (void)state;
    while (run(n))
        n++;
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shortage)};
    if (quire_hash_init())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
