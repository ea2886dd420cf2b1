/* The driver's turns: the calls and their order, for both overlap depths, and the handling of errors. */
#include "scheduler/driver.h"
#include "tests/scheduler/sched_harness.h"

#include <stdio.h>

struct log {
    char text[4096]; /* p plan, e empty plan, l launch, w wait, t take, c commit, r retire; steps by their slot */
    size_t n;
    uint64_t now_us;
    char fails_at;       /* a letter; 0: nothing fails */
    uint32_t stop_at;    /* the token that ends a sequence */
    uint32_t token;
    uint32_t over;       /* a sequence without further results */
    uint32_t n_finished, n_discarded;
};

static int note(struct log *log, char letter, uint32_t number, struct quire_error *err)
{
    log->n += (size_t)snprintf(log->text + log->n, sizeof log->text - log->n, "%c%u ", letter, number);
    return letter == log->fails_at ? quire_fail(err, QUIRE_INTERNAL, "%c failed", letter) : QUIRE_OK;
}

static int planned(void *context, uint64_t now_us, const struct sched_plan *plan, struct quire_error *err)
{
    struct log *log = context;
    assert_int_equal(now_us, log->now_us);
    return note(log, plan->n_rows ? 'p' : 'e', plan->n_rows, err);
}

static int launch(void *context, const struct sched_step *step, struct quire_error *err)
{
    return note(context, 'l', step->slot, err);
}

static int wait(void *context, const struct sched_step *step, struct quire_error *err)
{
    return note(context, 'w', step->slot, err);
}

static uint32_t take(void *context, const struct sched_step *step, struct sched_result *results, uint32_t *tokens)
{
    struct log *log = context;
    uint32_t n = 0;
    note(log, 't', step->slot, NULL);
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        const struct sched_row *row = &step->plan->rows[i];
        if (!row->outputs.tokens || row->seq == log->over)
            continue;
        tokens[n] = log->token++;
        results[n] = sched_result_of(row, &tokens[n]);
        assert_int_equal(results[n].seq, row->seq);
        assert_int_equal(results[n].n_accepted, 0);
        results[n].finished = tokens[n] == log->stop_at;
        n++;
    }
    return n;
}

static void committed(void *context, const struct sched_committed *c)
{
    struct log *log = context;
    note(log, 'c', c->step->slot, NULL);
    for (uint32_t i = 0; i < c->n_results; i++) {
        log->n_finished += c->finished[i];
        log->n_discarded += c->discarded[i];
    }
}

static void retired(void *context, uint32_t seq)
{
    note(context, 'r', seq, NULL);
}

static const struct sched_driver_calls calls = {
    .planned = planned, .launch = launch, .wait = wait, .take = take, .committed = committed, .retired = retired};

struct rig {
    struct log log;
    struct sched *s;
    struct sched_driver *d;
};

static void open_rig(struct rig *rig, uint32_t depth)
{
    struct sched_config c = small_config();
    struct quire_error err;
    c.overlap_depth = depth;
    *rig = (struct rig){.log = {.over = UINT32_MAX, .token = 100}};
    rig->s = open_sched(&c);
    assert_int_equal(sched_driver_create(rig->s, &calls, &rig->log, &rig->d, &err), QUIRE_OK);
}

static void close_rig(struct rig *rig)
{
    sched_driver_destroy(rig->d);
    close_sched(rig->s);
}

static int turn(struct rig *rig)
{
    const struct sched_plan *plan;
    struct quire_error err;
    rig->log.n = 0;
    rig->log.text[0] = 0;
    rig->log.now_us += 7;
    int status = sched_driver_turn(rig->d, rig->log.now_us, &plan, &err);
    assert_int_equal(sched_check(rig->s, NULL), QUIRE_OK);
    return status;
}

static void assert_turn(struct rig *rig, const char *calls_made)
{
    assert_int_equal(turn(rig), QUIRE_OK);
    assert_string_equal(rig->log.text, calls_made);
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 0);
    submit(rig.s, request_of(1, 0, 20, 2)); /* a budget of 16 */
    assert_turn(&rig, "p1 l0 w0 t0 c0 ");
    assert_int_equal(rig.log.token, 100);
    submit(rig.s, request_of(2, 100, 4, 3));
    assert_turn(&rig, "p2 l0 w0 t0 c0 ");
    assert_int_equal(rig.log.token, 102);
    assert_turn(&rig, "p2 l0 w0 t0 c0 r0 ");
    assert_turn(&rig, "p1 l0 w0 t0 c0 r1 ");
    assert_int_equal(rig.log.n_finished, 2);
    assert_turn(&rig, "e0 ");
    close_rig(&rig);
}

/* If most sequences wait for the host, the driver waits for their results, so that they do not alternate. If at least
 * as many run ahead, a step is planned while one runs, and the waiting ones skip it. */
static void test_overlap_where_most_wait_for_the_host(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 1);
    submit(rig.s, request_of(1, 0, 4, 12));
    submit(rig.s, request_of(2, 100, 4, 12));
    submit(rig.s, request_of(3, 200, 4, 12));
    for (uint32_t seq = 0; seq < 3; seq++)
        assert_true(sched_gate(rig.s, seq, true));
    assert_turn(&rig, "p3 l0 w0 t0 c0 ");
    assert_turn(&rig, "p3 l1 w1 t1 c1 ");
    assert_true(sched_gate(rig.s, 0, false));
    assert_turn(&rig, "p3 l0 w0 t0 c0 ");
    assert_true(sched_gate(rig.s, 1, false));
    assert_turn(&rig, "p3 l1 ");
    assert_turn(&rig, "p2 l0 w1 t1 c1 ");
    assert_turn(&rig, "p3 l1 w0 t0 c0 ");
    assert_int_equal(sched_driver_in_flight(rig.d), 1);
    while (!sched_idle(rig.s))
        assert_int_equal(turn(&rig), QUIRE_OK);
    close_rig(&rig);
}

/* One step later; the last two commit when there is nothing to launch. A row past a stop is discarded. */
static void test_overlap(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 1);
    submit(rig.s, request_of(1, 0, 4, 20));
    rig.log.stop_at = 101;
    assert_turn(&rig, "p1 l0 ");
    assert_int_equal(sched_driver_in_flight(rig.d), 1);
    assert_turn(&rig, "p1 l1 w0 t0 c0 ");
    assert_turn(&rig, "p1 l0 w1 t1 c1 "); /* this one stops it */
    assert_int_equal(sched_driver_in_flight(rig.d), 1);
    rig.log.over = 0;
    assert_turn(&rig, "e0 w0 t0 c0 r0 ");
    assert_int_equal(rig.log.n_finished, 1);
    assert_int_equal(rig.log.n_discarded, 0);
    assert_int_equal(sched_driver_in_flight(rig.d), 0);
    close_rig(&rig);
}

static void test_a_result_too_many_is_discarded(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 1);
    submit(rig.s, request_of(1, 0, 4, 20));
    rig.log.stop_at = 100;
    turn(&rig);
    turn(&rig);
    assert_turn(&rig, "e0 w1 t1 c1 r0 ");
    assert_int_equal(rig.log.n_discarded, 1);
    close_rig(&rig);
}

static void test_parts(void **state)
{
    (void)state;
    struct rig rig;
    const struct sched_plan *plan;
    struct quire_error err;
    open_rig(&rig, 0);
    assert_int_equal(sched_driver_commit(rig.d, &err), QUIRE_INVALID);
    submit(rig.s, request_of(1, 0, 4, 1));
    assert_int_equal(sched_driver_plan(rig.d, 0, &plan, &err), QUIRE_OK);
    assert_int_equal(plan->n_rows, 1);
    assert_int_equal(sched_driver_plan(rig.d, 0, &plan, &err), QUIRE_INVALID); /* one too many */
    assert_int_equal(sched_driver_commit(rig.d, &err), QUIRE_OK);
    assert_string_equal(rig.log.text, "p1 l0 w0 t0 c0 ");
    assert_false(sched_idle(rig.s));
    sched_driver_retire(rig.d);
    assert_true(sched_idle(rig.s));
    close_rig(&rig);
}

static void test_a_new_cost_model(void **state)
{
    (void)state;
    const struct sched_cost none = {0}, cost = {.n_points = 1, .points = {{1, 100}}},
                            wrong = {.n_points = 1, .points = {{1, -1}}};
    struct quire_error err;
    struct rig rig;
    open_rig(&rig, 1);
    submit(rig.s, request_of(1, 0, 4, 20));
    turn(&rig);
    assert_int_equal(sched_driver_in_flight(rig.d), 1);
    assert_int_equal(sched_set_cost(rig.s, &cost, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "step 1 must be committed first"));
    assert_int_equal(sched_stats(rig.s).n_cost_changes, 0);
    assert_int_equal(sched_driver_set_cost(rig.d, &cost, &err), QUIRE_OK);
    assert_string_equal(rig.log.text, "p1 l0 w0 t0 c0 ");
    assert_int_equal(sched_driver_in_flight(rig.d), 0);
    assert_int_equal(sched_set_cost(rig.s, &none, &err), QUIRE_INVALID);
    assert_int_equal(sched_set_cost(rig.s, &wrong, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "points[0].us"));
    assert_int_equal(sched_stats(rig.s).n_cost_changes, 1);
    while (!sched_idle(rig.s))
        turn(&rig);
    close_rig(&rig);
}

/* A target of time has no effect until there is a model, and then it cuts the next chunk. */
static void test_a_target_before_its_model(void **state)
{
    (void)state;
    const struct sched_cost cost = {.n_points = 2, .points = {{1, 10}, {1001, 10010}}};
    const struct sched_plan *plan;
    struct sched_config c = small_config();
    struct log log = {.over = UINT32_MAX};
    struct sched_driver *d;
    c.max_num_batched_tokens = 60;
    c.max_model_len = 160;
    c.step_target_us = 350;
    struct sched *s = open_sched(&c);
    assert_int_equal(sched_driver_create(s, &calls, &log, &d, NULL), QUIRE_OK);
    submit(s, request_of(1, 0, 150, 1));
    assert_int_equal(sched_driver_turn(d, 0, &plan, NULL), QUIRE_OK);
    assert_int_equal(plan->n_tokens, 60);
    assert_int_equal(sched_driver_set_cost(d, &cost, NULL), QUIRE_OK);
    assert_int_equal(sched_driver_turn(d, 0, &plan, NULL), QUIRE_OK);
    assert_int_equal(plan->n_tokens, 35);
    while (!sched_idle(s))
        sched_driver_turn(d, 0, &plan, NULL);
    sched_driver_destroy(d);
    close_sched(s);
}

/* Any error ends the turn there. A living sequence without a result is such an error. */
static void test_failures(void **state)
{
    (void)state;
    static const char *const made[] = {"p1 ", "p1 l0 ", "p1 l0 w0 "};
    struct rig rig;
    for (uint32_t i = 0; i < 4; i++) {
        open_rig(&rig, 0);
        submit(rig.s, request_of(1, 0, 4, 3));
        rig.log.fails_at = "plw"[i % 3];
        if (i == 3) {
            rig.log.fails_at = 0;
            rig.log.over = 0;
        }
        assert_int_equal(turn(&rig), i == 3 ? QUIRE_INVALID : QUIRE_INTERNAL);
        assert_string_equal(rig.log.text, i == 3 ? "p1 l0 w0 t0 " : made[i]);
        sched_driver_destroy(rig.d);
        sched_destroy(rig.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_overlap_where_most_wait_for_the_host),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_a_result_too_many_is_discarded),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_a_new_cost_model),
        cmocka_unit_test(test_a_target_before_its_model),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
