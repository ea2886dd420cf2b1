/* Longest cached prefix first: order and ageing. */
#include "tests/scheduler/fake_model.h"
#include "tests/scheduler/sched_harness.h"

#define SHARED 32u
#define TAIL 5u

static struct sched_config lpm_config(void)
{
    struct sched_config c = small_config();
    c.policy = sched_policy_find("lpm");
    c.max_num_seqs = 8;
    c.max_queued_requests = 200;
    c.max_logit_rows = 8;
    c.max_num_batched_tokens = 64;
    return c;
}

/* Runs until nothing is left; returns the computed tokens. */
static uint32_t run(struct sched *s)
{
    uint32_t n_tokens = 0;
    while (!sched_idle(s))
        n_tokens += step(s)->n_tokens;
    return n_tokens;
}

/* One runs at a time, and the pool has space for one prefix: requests that share it follow, whatever arrived in
 * between. */
static void test_those_who_share_follow_each_other(void **state)
{
    (void)state;
    const char *const policies[] = {"fcfs", "lpm"};
    for (uint32_t i = 0; i < 2; i++) {
        struct sched_config c = lpm_config();
        c.policy = sched_policy_find(policies[i]);
        c.kv.groups[0].n_blocks = 12;
        c.max_num_seqs = 1;
        struct sched *s = open_sched(&c);
        for (uint32_t id = 1; id <= 12; id++)
            submit(s, request_sharing(id, 1 + id % 3, SHARED, SHARED + TAIL));
        assert_int_equal(run(s), (i == 0 ? 12 : 3) * SHARED + 12 * TAIL);
        close_sched(s);
    }
}

/* A second for 1,000 tokens. */
static void test_default_ageing(void **state)
{
    (void)state;
    const struct sched_policy *lpm = sched_policy_find("lpm");
    const struct sched_candidate c = {.arrival_us = 5000000, .n_prompt = 3500, .n_cached = 1000};
    void *made;
    assert_int_equal(lpm->create(&(struct sched_policy_options){0}, &made, NULL), QUIRE_OK);
    assert_int_equal(lpm->rank(made, &c), 7500000);
    lpm->destroy(made);
}

static uint32_t admitted_after(struct sched *s, uint32_t n_steps)
{
    const struct sched_plan *p = step(s);
    while (p->n_admitted == 0 && n_steps-- > 0)
        p = step(s);
    assert_int_equal(p->n_admitted, 1);
    return p->admitted[0];
}

static void test_cached_goes_first_until_the_other_has_aged(void **state)
{
    (void)state;
    for (uint64_t later = 20; later <= 60; later += 40) {
        struct sched_config c = lpm_config();
        c.max_num_seqs = 1;
        c.policy_options.ageing_us = 1000; /* a microsecond per token */
        struct sched *s = open_sched(&c);
        submit(s, request_sharing(1, 1, SHARED, SHARED + TAIL));
        step(s);
        uint32_t x = submit(s, request_sharing(2, 2, 40, 40));
        struct sched_request r = request_sharing(3, 1, SHARED, SHARED + TAIL);
        r.arrival_us = later;
        uint32_t y = submit(s, r);
        assert_int_equal(admitted_after(s, 5), later + TAIL < 40 ? y : x);
        run(s);
        close_sched(s);
    }
}

/* Prefixes cached or evicted during the wait count. */
static void test_ranked_anew(void **state)
{
    (void)state;
    struct sched_config c = lpm_config();
    c.max_num_seqs = 1;
    struct sched *s = open_sched(&c);
    submit(s, request_sharing(1, 1, SHARED, SHARED + TAIL));
    uint32_t w = submit(s, request_sharing(2, 2, 20, 20));
    uint32_t z = submit(s, request_sharing(3, 1, SHARED, SHARED + TAIL));
    /* w is the shortest, so it is first; then the rest by cached tokens. */
    assert_int_equal(admitted_after(s, 5), w);
    step(s);
    uint32_t y = submit(s, request_sharing(4, 3, 30, 30));
    assert_int_equal(admitted_after(s, 5), z);
    assert_int_equal(admitted_after(s, 5), y);
    run(s);
    close_sched(s);
}

/* Cached requests never stop arriving. A request that shares nothing is overtaken only by those within the price of its
 * prompt. */
static void test_starvation(void **state)
{
    (void)state;
    struct sched_config c = lpm_config();
    c.max_num_seqs = 1;
    c.policy_options.ageing_us = 10000; /* ten per token */
    struct sched *s = open_sched(&c);
    submit(s, request_sharing(1, 1, SHARED, SHARED + TAIL));
    run(s);
    uint32_t x = submit(s, request_sharing(2, 2, 40, 40));
    uint64_t arrivals[1000], last = 0;
    for (uint32_t id = 3;; id++) {
        struct sched_request r = request_sharing(id, 1, SHARED, SHARED + TAIL);
        r.arrival_us = 10 * (id - 2);
        arrivals[submit(s, r)] = r.arrival_us;
        const struct sched_plan *p = step(s);
        if (p->n_admitted > 0 && p->admitted[0] == x)
            break;
        for (uint32_t i = 0; i < p->n_admitted; i++)
            last = arrivals[p->admitted[i]];
        assert_true(id < 100);
    }
    assert_true(last > 200 && last <= 400);
    run(s);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_those_who_share_follow_each_other),
        cmocka_unit_test(test_default_ageing),
        cmocka_unit_test(test_cached_goes_first_until_the_other_has_aged),
        cmocka_unit_test(test_ranked_anew),
        cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
