/* Overlap depth 1: a step is planned before the results of the previous one are known. */
#include "tests/scheduler/sched_harness.h"

static struct sched_config overlap_config(void)
{
    struct sched_config c = small_config();
    c.overlap_depth = 1;
    return c;
}

static void test_unknown_tokens_are_planned(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    struct sched *s = open_sched(&c);
    uint32_t n, a = submit(s, request_of(1, 0, 4, 3));
    const struct sched_plan *one = plan(s);
    assert_row(one, 0, a, 0, 4, true);
    sched_tokens(s, a, &n);
    assert_int_equal(n, 4);
    const struct sched_plan *two = plan(s);
    assert_row(two, 0, a, 4, 1, true);
    assert_int_equal(sched_tokens(s, a, &n)[4], SCHED_PENDING);
    assert_int_equal(n, 5);
    const struct sched_plan *three;
    assert_int_equal(sched_plan(s, 0, &three, NULL), QUIRE_INVALID); /* two are in flight */
    commit(s, one, 31);
    assert_int_equal(sched_tokens(s, a, &n)[4], 31);
    three = plan(s);
    assert_row(three, 0, a, 5, 1, true);
    assert_row(one, 0, a, 0, 4, true); /* a plan is valid for two more */
    assert_int_equal(commit(s, two, 32), 0);
    assert_int_equal(plan(s)->n_rows, 0); /* all three tokens are known or being sampled */
    assert_int_equal(commit(s, three, 33), 1);
    const uint32_t *tokens = sched_tokens(s, a, &n);
    assert_int_equal(n, 7);
    assert_int_equal(tokens[5], 32);
    assert_int_equal(tokens[6], 33);
    close_sched(s);
}

static void test_a_row_past_a_stop_is_thrown_away(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    struct sched *s = open_sched(&c);
    uint32_t name, token = 5, a = submit(s, request_of(1, 0, 4, 20));
    bool finished, discarded;
    struct sched_result r = {.seq = a, .tokens = &token, .finished = true};
    plan(s);
    plan(s);
    assert_int_equal(sched_commit(s, &r, 1, &finished, &discarded, NULL), QUIRE_OK);
    assert_true(finished && !discarded);
    assert_false(sched_next_retired(s, &name)); /* the second step still writes its blocks */
    assert_true(n_free(s) < 64);
    assert_int_equal(sched_stats(s).n_running, 0);
    assert_int_equal(plan(s)->n_rows, 0);
    assert_int_equal(sched_commit(s, &r, 1, &finished, &discarded, NULL), QUIRE_OK);
    assert_true(!finished && discarded);
    assert_int_equal(n_free(s), 64);
    close_sched(s);
}

static void test_cancel_waits_for_both_steps(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 20)), b = submit(s, request_of(2, 50, 4, 20));
    uint32_t token = 5;
    plan(s);
    plan(s);
    sched_cancel(s, 1);
    struct sched_result r[2] = {{.seq = b, .tokens = &token}};
    bool discarded[2];
    assert_int_equal(sched_commit(s, r, 1, NULL, discarded, NULL), QUIRE_OK);
    assert_int_equal(collect(s), 0);
    const struct sched_plan *p = plan(s);
    assert_int_equal(p->n_rows, 1);
    assert_row(p, 0, b, 5, 1, true);
    r[1] = r[0];
    r[0].seq = a; /* the result of the dead sequence may come as well */
    assert_int_equal(sched_commit(s, r, 2, NULL, discarded, NULL), QUIRE_OK);
    assert_true(discarded[0] && !discarded[1]);
    assert_int_equal(collect(s), 1);
    sched_cancel(s, 2);
    assert_int_equal(sched_commit(s, NULL, 0, NULL, NULL, NULL), QUIRE_OK);
    close_sched(s);
}

/* The victim's launched step still samples for it; its blocks are freed with that step, not before. */
static void test_preempted_in_flight(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    c.kv.groups[0].n_blocks = 6;
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 7, 12));
    uint32_t n, b = submit(s, request_of(2, 100, 7, 12));
    const struct sched_plan *last = plan(s), *next = plan(s);
    while (next->n_preempted == 0) {
        commit(s, last, 9);
        last = next;
        next = plan(s);
    }
    assert_int_equal(next->n_preempted, 1); /* blocks are about to be freed: no second victim */
    assert_int_equal(next->preempted[0], b);
    uint32_t known;
    sched_tokens(s, b, &known);
    assert_non_null(sched_blocks(s, b, 0, &n));
    commit(s, last, 9);
    assert_null(sched_blocks(s, b, 0, &n));
    sched_tokens(s, b, &n);
    assert_int_equal(n, known + 1);
    if (next->n_rows > 0)
        commit(s, next, 9);
    uint32_t n_steps = 0;
    while (!sched_idle(s)) {
        assert_true(n_steps++ < 100);
        step(s);
    }
    assert_true(sched_stats(s).n_preemptions >= 1);
    close_sched(s);
}

static void test_choices_follow_one_step_later(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    c.kv.prefix_caching = false;
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 9, 4);
    uint32_t seqs[2];
    r.n = 2;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_OK);
    const struct sched_plan *one = plan(s);
    assert_int_equal(one->n_rows, 1);
    const struct sched_plan *two = plan(s); /* launched after it: the prompt's blocks can be read */
    assert_row(two, 0, seqs[0], 9, 1, true);
    assert_row(two, 1, seqs[1], 8, 1, true);
    commit(s, one, 9);
    commit(s, two, 9);
    sched_cancel(s, 1);
    close_sched(s);
}

/* A block gets its name when all its tokens are known and computed, not when it is planned. */
static void test_names_wait_for_the_tokens(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 3, 8)), token = 3;
    const struct sched_plan *one = plan(s), *two = plan(s);
    assert_row(two, 0, a, 3, 1, true); /* fills block 0 with a pending token */
    commit(s, one, token++);           /* the token is known, its position is not computed */
    uint32_t b = submit(s, request_of(2, 0, 6, 1));
    const struct sched_plan *three = plan(s);
    assert_row(three, 0, a, 4, 1, true);
    assert_row(three, 1, b, 0, 6, true); /* so there is nothing to hit */
    commit(s, two, token++);
    submit(s, request_of(3, 0, 6, 1));
    const struct sched_plan *four = plan(s);
    assert_row(four, 1, 2, 4, 2, true); /* now there is */
    commit(s, three, token++);
    sched_cancel(s, 1);
    sched_cancel(s, 3);
    commit(s, four, token);
    close_sched(s);
}

/* Every other step: its next row waits for the token of the last one. */
static void test_host_gated(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    struct sched *s = open_sched(&c);
    struct sched_request gated = request_of(1, 0, 4, 3), other = request_of(2, 50, 4, 5);
    gated.host_gated = true;
    uint32_t a = submit(s, gated), b = submit(s, other);
    const struct sched_plan *one = plan(s), *two = plan(s);
    assert_int_equal(one->n_rows, 2);
    assert_int_equal(two->n_rows, 1);
    assert_row(two, 0, b, 4, 1, true);
    commit(s, one, 9);
    const struct sched_plan *three = plan(s);
    assert_row(three, 0, a, 4, 1, true);
    assert_row(three, 1, b, 5, 1, true);
    commit(s, two, 9);
    assert_int_equal(plan(s)->n_rows, 1);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    commit(s, three, 9);
    assert_int_equal(sched_commit(s, NULL, 0, NULL, NULL, NULL), QUIRE_OK);
    close_sched(s);
}

static const struct sched_plan *plan_at(struct sched *s, uint64_t now_us)
{
    const struct sched_plan *plan;
    struct quire_error err;
    if (sched_plan(s, now_us, &plan, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return plan;
}

/* Steps of 100 us, as predicted, consecutive or alone: an empty plan while a step is in flight does not end that step.
 */
static void test_step_times(void **state)
{
    (void)state;
    for (uint32_t gated = 0; gated < 2; gated++) {
        struct sched_config c = overlap_config();
        c.cost = &(struct sched_cost){.n_points = 1, .points = {{1, 100}}};
        c.step_target_us = 1000;
        c.adaptive_budget = true;
        struct sched *s = open_sched(&c);
        struct sched_request r = request_of(1, 0, 4, 8);
        r.host_gated = gated;
        uint64_t now_us = 1000;
        submit(s, r);
        const struct sched_plan *flying = plan_at(s, now_us);
        for (uint32_t i = 0; i < 6; i++) {
            const struct sched_plan *next = plan_at(s, now_us + 1);
            assert_int_equal(next->n_rows, !gated);
            now_us += 100;
            commit(s, flying, 9);
            flying = gated ? plan_at(s, now_us) : next;
        }
        plan_at(s, now_us);
        double ratio = sched_stats(s).budget_ratio;
        assert_true(ratio > 0.98 && ratio < 1.02);
        sched_cancel(s, 1);
        while (sched_commit(s, NULL, 0, NULL, NULL, NULL) == QUIRE_OK)
            continue;
        close_sched(s);
    }
}

/* A window of 6 in blocks of 4: blocks behind it are released while a lone sequence runs far past the pool. */
static void test_windows(void **state)
{
    (void)state;
    struct sched_config c = overlap_config();
    c.kv.groups[0].window = 6;
    c.max_num_batched_tokens = 4;
    struct quire_error err;
    uint32_t seqs[1];
    c.kv.groups[0].n_blocks = kv_blocks_needed(&c.kv, 0, 150, 8);
    assert_true(c.kv.groups[0].n_blocks < 8);
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 60, 90));
    const struct sched_plan *last = plan(s);
    for (int i = 0; i < 102; i++) {
        const struct sched_plan *next = plan(s);
        assert_int_equal(next->n_rows, 1);
        assert_int_equal(next->n_preempted, 0);
        commit(s, last, 9);
        last = next;
    }
    while (!sched_idle(s)) {
        commit(s, last, 9);
        last = plan(s);
        collect(s);
    }
    sched_destroy(s);
    c.kv.groups[0].n_blocks--;
    s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 60, 90);
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_tokens_are_planned),
        cmocka_unit_test(test_a_row_past_a_stop_is_thrown_away),
        cmocka_unit_test(test_cancel_waits_for_both_steps),
        cmocka_unit_test(test_preempted_in_flight),
        cmocka_unit_test(test_choices_follow_one_step_later),
        cmocka_unit_test(test_names_wait_for_the_tokens),
        cmocka_unit_test(test_host_gated),
        cmocka_unit_test(test_step_times),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
