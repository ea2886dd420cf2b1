/* The order of turns: tenants alternate, requests of a tenant alternate, and the number at once is bounded by the
 * engine's slots. */
#include "server/front/batch/turns.h"
#include "tests/front/front_unit_test.h"

#include <string.h>

struct waiter {
    struct turn turn; /* first */
    struct turns *turns;
    char name;
    struct turn_place places[64];
    uint32_t n_submitted, n_refused; /* n_refused: of those to come */
};

static char order[256];

static void on_next(struct turn *turn)
{
    struct waiter *a = (struct waiter *)turn;
    struct turn_place *place = &a->places[a->n_submitted++];
    strncat(order, &a->name, 1);
    turn->n_waiting--;
    turns_wait(a->turns, turn);
    turns_take(a->turns, turn, place, turn->n_tokens);
    if (a->n_refused == 0)
        return;
    a->n_refused--;
    a->n_submitted--;
    turns_refused(a->turns, place);
    turn->n_waiting++;
    turns_wait(a->turns, turn);
}

static void wait_for(struct waiter *a, struct turns *t, char name, uint32_t tenant, uint32_t n)
{
    *a = (struct waiter){.turns = t,
                         .name = name,
                         .turn = {.tenant = tenant, .n_choices = 1, .n_waiting = n, .n_tokens = 10, .next = on_next}};
    turns_wait(t, &a->turn);
}

static const char *run(struct event_base *base)
{
    order[0] = '\0';
    event_base_loop(base, EVLOOP_NONBLOCK);
    return order;
}

static void over(struct waiter *a, uint32_t i)
{
    turns_leave(a->turns, &a->places[i]);
}

static void tenants_in_turn(void **state)
{
    struct event_base *base = event_base_new();
    struct turns *t;
    struct waiter a, b, c;
    (void)state;
    assert_int_equal(turns_open(base, &t, NULL), 0);
    turns_set_engine(t, 8, 0, 1000); /* slots for 7 */
    wait_for(&a, t, 'a', 1, 20);
    wait_for(&b, t, 'b', 1, 20);
    wait_for(&c, t, 'c', 2, 20);
    assert_int_equal(turns_n_waiting(t, 1), 40);
    assert_string_equal(run(base), "acbcacb");
    assert_string_equal(run(base), "");
    over(&a, 0);
    over(&a, 1);
    over(&a, 1); /* a second call has no effect */
    assert_string_equal(run(base), "ca");
    assert_int_equal(turns_n_all(t), 51);
    /* A request that has gone stops waiting and frees its slots. */
    a.turn.n_waiting = b.turn.n_waiting = 0;
    turns_wait(t, &a.turn);
    turns_wait(t, &b.turn);
    assert_int_equal(turns_n_waiting(t, 1), 0);
    over(&b, 0);
    assert_string_equal(run(base), "c");
    c.turn.n_waiting = 0;
    turns_wait(t, &c.turn);
    turns_close(t);
    event_base_free(base);
}

/* Several requests are read before the engine has accepted any of them: each must count the others. */
static void expected_ones_count(void **state)
{
    struct event_base *base = event_base_new();
    struct turns *t;
    struct turn a = {.tenant = 1, .n_choices = 2}, b = {.tenant = 1, .n_choices = 1};
    (void)state;
    assert_int_equal(turns_open(base, &t, NULL), 0);
    turns_expect(t, &a, 499);
    assert_int_equal(turns_n_waiting(t, 1), 998);
    turns_expect(t, &b, 10);
    assert_int_equal(turns_n_all(t), 1008);
    assert_string_equal(run(base), ""); /* all are still expected, not waiting */
    a.n_waiting = 499; /* it was accepted */
    turns_wait(t, &a);
    assert_int_equal(turns_n_waiting(t, 1), 1008);
    b.n_waiting = 0; /* it was rejected */
    turns_wait(t, &b);
    assert_int_equal(turns_n_waiting(t, 1), 998);
    a.n_waiting = 0;
    turns_wait(t, &a);
    assert_int_equal(turns_n_all(t), 0);
    turns_close(t);
    event_base_free(base);
}

static void tokens_ahead(void **state)
{
    struct event_base *base = event_base_new();
    struct turns *t;
    struct waiter a, small;
    (void)state;
    assert_int_equal(turns_open(base, &t, NULL), 0);
    turns_set_engine(t, 64, 0, 12); /* two prompts of 10 tokens ahead */
    wait_for(&a, t, 'a', 1, 20);
    assert_string_equal(run(base), "aa");
    turns_began(t, &a.places[0]);
    assert_string_equal(run(base), "a");
    small = (struct waiter){
        .turns = t,
        .name = 's',
        .turn = {.n_choices = 4, .is_small = true, .n_waiting = 3, .n_tokens = 99, .next = on_next}};
    turns_wait(t, &small.turn);
    assert_string_equal(run(base), "sss");
    a.turn.n_waiting = 0;
    turns_wait(t, &a.turn);
    turns_close(t);
    event_base_free(base);
}

static void a_full_engine(void **state)
{
    struct event_base *base = event_base_new();
    struct turns *t;
    struct waiter a;
    (void)state;
    assert_int_equal(turns_open(base, &t, NULL), 0);
    turns_set_engine(t, 64, 0, 1000);
    /* The engine accepts three and rejects the fourth. No further request is submitted before one finishes, or for
     * 100 ms. */
    wait_for(&a, t, 'a', 1, 3);
    assert_string_equal(run(base), "aaa");
    a.n_refused = 1;
    a.turn.n_waiting = 50;
    turns_wait(t, &a.turn);
    assert_string_equal(run(base), "a");
    assert_string_equal(run(base), "");
    /* Then half as many are in the engine, and one more for each that finishes. */
    over(&a, 0);
    assert_string_equal(run(base), "");
    over(&a, 1);
    assert_string_equal(run(base), "aa");
    over(&a, 2);
    assert_string_equal(run(base), "aa");
    a.n_refused = 1;
    over(&a, 3);
    assert_string_equal(run(base), "a");
    over(&a, 4);
    assert_string_equal(run(base), "");
    a.turn.n_waiting = 0;
    turns_wait(t, &a.turn);
    turns_close(t);
    event_base_free(base);
}

static void a_share_of_the_queue(void **state)
{
    struct event_base *base = event_base_new();
    struct turns *t;
    struct waiter a;
    (void)state;
    assert_int_equal(turns_open(base, &t, NULL), 0);
    turns_set_engine(t, 64, 16, 1000);
    wait_for(&a, t, 'a', 1, 20);
    assert_string_equal(run(base), "aaaa");
    turns_began(t, &a.places[0]);
    turns_began(t, &a.places[0]); /* a second call has no effect */
    assert_string_equal(run(base), "a");
    a.turn.n_waiting = 0;
    turns_wait(t, &a.turn);
    turns_close(t);
    event_base_free(base);
}

int run_turns_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_in_turn), cmocka_unit_test(expected_ones_count),  cmocka_unit_test(tokens_ahead),
        cmocka_unit_test(a_full_engine),   cmocka_unit_test(a_share_of_the_queue),
    };
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
