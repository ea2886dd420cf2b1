/* The limits of the background: it gets nothing that a live request needs, under any policy. */
#include "scheduler/state/pace.h"
#include "tests/scheduler/sched_harness.h"

static uint32_t submit_background(struct sched *s, uint64_t id, uint32_t n_prompt, uint32_t max_tokens)
{
    struct sched_request r = request_of(id, (uint32_t)id * 1000, n_prompt, max_tokens);
    r.background = true;
    r.priority = -100;
    return submit(s, r);
}

static uint32_t submit_live(struct sched *s, uint64_t id, uint32_t n_prompt, uint32_t max_tokens)
{
    return submit(s, request_of(id, (uint32_t)id * 1000, n_prompt, max_tokens));
}

static bool has_row(const struct sched_plan *p, uint32_t seq)
{
    for (uint32_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].seq == seq)
            return true;
    return false;
}

static void end_all(struct sched *s)
{
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

/* A prompt of several steps has them alone; next to its decode, the background continues with what it had. */
static void steps_are_live(struct sched_config *c)
{
    struct sched *s = open_sched(c);
    uint32_t a = submit_background(s, 1, 8, 30);
    step(s);
    assert_true(has_row(step(s), a));
    uint32_t live = submit_live(s, 2, 40, 4);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sched_plan *p = step(s);
        assert_int_equal(p->n_rows, 1);
        assert_true(has_row(p, live));
    }
    const struct sched_plan *p = step(s);
    assert_true(has_row(p, live) && has_row(p, a));
    assert_int_equal(sched_account(s, a).n_preemptions, 0);
    end_all(s);
}

/* The background has all slots: one is given up, and no more. */
static void places_are_live(struct sched_config *c)
{
    c->max_num_seqs = 2;
    struct sched *s = open_sched(c);
    uint32_t a = submit_background(s, 1, 4, 30), b = submit_background(s, 2, 4, 30);
    step(s);
    step(s);
    uint32_t live = submit_live(s, 3, 8, 3);
    const struct sched_plan *p = step(s);
    assert_int_equal(p->n_rows, 1);
    assert_true(has_row(p, live));
    assert_int_equal(p->n_preempted, 1);
    assert_int_equal(sched_account(s, a).n_preemptions + sched_account(s, b).n_preemptions, 1);
    p = step(s);
    assert_int_equal(p->n_rows, 2);
    assert_true(has_row(p, live));
    /* Two live requests have both slots; a third one waits, and so does the background. */
    submit_live(s, 4, 4, 30);
    submit_live(s, 5, 4, 30);
    for (uint32_t n_waiting = 2; n_waiting > 0; n_waiting -= p->n_admitted) {
        p = step(s);
        assert_false(has_row(p, a) || has_row(p, b));
    }
    end_all(s);
}

/* A prompt without blocks gets those of the background, and in a too small pool all of them. */
static void blocks_are_live(struct sched_config *c)
{
    c->kv.groups[0].n_blocks = 12;
    struct sched *s = open_sched(c);
    uint32_t a = submit_background(s, 1, 12, 8), b = submit_background(s, 2, 12, 8);
    step(s);
    step(s);
    assert_int_equal(sched_stats(s).n_running, 2);
    uint32_t live = submit_live(s, 3, 40, 2);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sched_plan *p = step(s);
        assert_int_equal(p->n_rows, 1);
        assert_true(has_row(p, live));
    }
    assert_int_equal(sched_account(s, a).n_preemptions, 1);
    assert_int_equal(sched_account(s, b).n_preemptions, 1);
    end_all(s);
}

/* No request joins a running batch, but live requests may take the slots of the background. */
static void batches_are_live(struct sched_config *c)
{
    c->max_num_seqs = 2;
    c->batching = SCHED_DYNAMIC;
    struct sched *s = open_sched(c);
    submit_background(s, 1, 4, 30);
    submit_background(s, 2, 4, 30);
    step(s);
    uint32_t live = submit_live(s, 3, 8, 3);
    const struct sched_plan *p = step(s);
    assert_int_equal(p->n_rows, 1);
    assert_true(has_row(p, live));
    sched_no_more(s);
    end_all(s);
}

/* It is admitted when no other request waits and no live prompt is being computed. */
static void admitted_last(struct sched_config *c)
{
    struct sched *s = open_sched(c);
    uint32_t a = submit_background(s, 1, 4, 2), live = submit_live(s, 2, 20, 3);
    for (uint32_t i = 0; i < 2; i++) {
        const struct sched_plan *p = step(s);
        assert_int_equal(p->n_rows, 1);
        assert_true(has_row(p, live));
    }
    const struct sched_plan *p = step(s);
    assert_true(has_row(p, live) && has_row(p, a));
    end_all(s);
}

/* A request that arrives during a step waits for its end, so the background's part of a step is small, even without
 * other requests. */
static void parts_are_small(struct sched_config *c)
{
    c->max_num_batched_tokens = 320;
    struct sched *s = open_sched(c);
    submit_background(s, 1, 70, 4);
    submit_background(s, 2, 30, 4);
    for (uint32_t left = 100; left > 0; left -= left < 20 ? left : 20)
        assert_int_equal(step(s)->n_tokens, 20);
    submit_live(s, 3, 100, 1);
    assert_int_equal(step(s)->n_tokens, 100);
    end_all(s);
}

/* Steps of 10 ms with live decodes alone, of 50 ms with the background: the live tokens come a tenth later, and nearly all
 * of them after 10 ms. */
static void test_pace(void **state)
{
    struct pace p;
    uint64_t now_us = 1;
    uint32_t n_shared = 0;
    (void)state;
    pace_init(&p, 0);
    for (uint64_t step = 1; step <= 1000; step++) {
        pace_begin(&p, now_us, step - 1);
        const bool shares = pace_allows(&p);
        pace_end(&p, step, (struct pace_step){now_us, 20, true, shares});
        now_us += shares ? 50000 : 10000;
        n_shared += shares;
    }
    assert_in_range(n_shared, 10, 30);
    assert_true((double)now_us < 1000 * 10000 * 1.12);
    /* Without live work nothing is held, and a machine that stood still holds it for 2 s of live steps at most. */
    pace_end(&p, 1001, (struct pace_step){now_us, 20, true, true});
    pace_begin(&p, now_us + 100000000, 1001);
    assert_false(pace_allows(&p));
    assert_true(p.pause_us <= PACE_MAX_US);
}

/* Steps of the background alone, of 2 ms and 0.2 ms a token, the token number given by the pace. Returns the longest of
 * the last 100 of 300. */
static uint64_t longest_step_us(struct pace *p, uint64_t *now_us, uint32_t *n_tokens)
{
    uint64_t longest_us = 0;
    for (uint64_t i = 1; i <= 300; i++) {
        pace_begin(p, *now_us, i - 1);
        *n_tokens = pace_tokens(p, *now_us, 128);
        pace_end(p, i, (struct pace_step){*now_us, *n_tokens, false, true});
        const uint64_t took_us = 2000 + 200 * (uint64_t)*n_tokens;
        *now_us += i == 150 ? 10000000 : took_us; /* once the machine stands still */
        longest_us = i > 200 && took_us > longest_us ? took_us : longest_us;
    }
    return longest_us;
}

/* While live work is near, a step ends within the limit; later it has its whole part. */
static void test_pace_of_steps(void **state)
{
    struct pace p;
    uint64_t now_us = 1;
    uint32_t n_tokens;
    (void)state;
    pace_init(&p, 0);
    assert_in_range(longest_step_us(&p, &now_us, &n_tokens), 2000 + 200 * 128, 2000 + 200 * 128);
    pace_init(&p, 0);
    pace_note_live(&p, now_us);
    assert_in_range(longest_step_us(&p, &now_us, &n_tokens), PACE_STEP_US - 400, PACE_STEP_US + 600);
    assert_int_equal(pace_tokens(&p, p.live_until_us + PACE_NEAR_US + 1, 128), 128);
    /* A part of the target; and a step of live decodes is no shorter. */
    pace_init(&p, 40000);
    pace_note_live(&p, now_us);
    assert_in_range(longest_step_us(&p, &now_us, &n_tokens), 9000, 11500);
    pace_init(&p, 0);
    p.live_us = 8000;
    pace_note_live(&p, now_us);
    assert_in_range(longest_step_us(&p, &now_us, &n_tokens), 9000, 11500);
    /* One token takes too long, and is all that there is. */
    pace_init(&p, 1000);
    pace_note_live(&p, now_us);
    longest_step_us(&p, &now_us, &n_tokens);
    assert_int_equal(n_tokens, 1);
}

/* The tokens of the next step, whose time is 1 ms a token. */
static uint32_t timed_step(struct sched *s, uint64_t *now_us)
{
    const struct sched_plan *p;
    struct quire_error err;
    assert_int_equal(sched_plan(s, *now_us, &p, &err), QUIRE_OK);
    const uint32_t n = p->n_tokens;
    commit(s, p, 7);
    collect(s);
    *now_us += 1000 * n;
    return n;
}

/* Prompts and decodes of the background have few tokens a step after a live request, and their whole part later. */
static void steps_are_short(struct sched_config *c)
{
    uint64_t now_us = 1000;
    c->max_num_batched_tokens = 320;
    struct sched *s = open_sched(c);
    submit_live(s, 1, 4, 1);
    assert_int_equal(timed_step(s, &now_us), 4);
    submit_background(s, 2, 180, 4);
    submit_background(s, 3, 4, 20);
    submit_background(s, 4, 4, 20);
    for (uint32_t i = 0; i < 10; i++)
        timed_step(s, &now_us);
    for (uint32_t i = 0; i < 10; i++)
        assert_in_range(timed_step(s, &now_us), 1, 5);
    now_us += PACE_NEAR_US;
    assert_in_range(timed_step(s, &now_us), 15, 20);
    end_all(s);
}

/* Also under policies that never preempt otherwise. */
static void under_every_policy(void (*check)(struct sched_config *c))
{
    const struct sched_policy *policy;
    for (uint32_t i = 0; (policy = sched_policy_at(i)); i++) {
        struct sched_config c = small_config();
        c.policy = policy;
        check(&c);
        c = small_config();
        c.policy = policy;
        c.preemption = SCHED_PREEMPT_NEVER;
        check(&c);
    }
}

static void test_steps(void **state)
{
    (void)state;
    under_every_policy(steps_are_live);
}

static void test_places(void **state)
{
    (void)state;
    under_every_policy(places_are_live);
}

static void test_blocks(void **state)
{
    (void)state;
    under_every_policy(blocks_are_live);
}

static void test_batches(void **state)
{
    (void)state;
    under_every_policy(batches_are_live);
}

static void test_parts(void **state)
{
    (void)state;
    under_every_policy(parts_are_small);
}

static void test_short_steps(void **state)
{
    (void)state;
    under_every_policy(steps_are_short);
}

static void test_admission(void **state)
{
    (void)state;
    under_every_policy(admitted_last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pace),   cmocka_unit_test(test_steps),         cmocka_unit_test(test_places),
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_batches),       cmocka_unit_test(test_admission),
        cmocka_unit_test(test_parts),  cmocka_unit_test(test_pace_of_steps), cmocka_unit_test(test_short_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
