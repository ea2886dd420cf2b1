/* sched_set_policy() during a run, from every policy to every other: running sequences continue, waiting ones are
 * served in the new order, none is lost, and every invariant holds after each call. */
#include "tests/scheduler/fake_model.h"
#include "tests/scheduler/sched_harness.h"

#include "memory/prefix.h"

#define N_REQUESTS 40
#define N_NAMES 128

static struct sched_policy_options options_of(struct fake_random *random)
{
    struct sched_policy_options options = {
        .n_tenants = 4, .ageing_us = fake_below(random, 3) * 1000000, .class_ttft_us = {[1] = 1u << 30}};
    if (fake_chance(random, 50))
        options.class_weights[2] = 3;
    return options;
}

/* Prompts of three families, so that lpm has shared prefixes, and groups of choices. */
static void submit_some(struct sched *s, struct fake_random *random, uint64_t id, uint32_t *lives)
{
    struct sched_request r = request_of(id, 100 * fake_below(random, 3), 1 + fake_below(random, 40),
                                        fake_below(random, 30));
    uint32_t seqs[3];
    struct quire_error err = {.text = ""};
    r.n = 1 + fake_below(random, 3);
    r.tenant = fake_below(random, 4);
    r.class_index = fake_below(random, 3);
    r.priority = (int32_t)fake_below(random, 5) - 2;
    r.background = fake_chance(random, 15);
    r.arrival_us = id * 100;
    r.deadline_us = fake_chance(random, 40) ? (1u << 30) + fake_below(random, 1u << 20) : 0;
    r.expected_tokens = fake_chance(random, 30) ? r.max_tokens : 0;
    if (sched_submit(s, &r, seqs, NULL, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < r.n; i++)
        lives[seqs[i]]++;
}

static void must_hold(const struct sched *s)
{
    struct quire_error err = {.text = ""};
    if (sched_check(s, &err))
        fail_msg("%s", err.text);
}

static void plan_and_commit(struct sched *s, uint64_t now_us, uint32_t depth, uint32_t *lives)
{
    static const struct sched_plan *launched[2];
    static uint32_t n_launched;
    struct sched_result results[16];
    static const uint32_t token = 7;
    const struct sched_plan *p;
    uint32_t n = 0, name;
    assert_int_equal(sched_plan(s, now_us, &p, NULL), QUIRE_OK);
    assert_int_equal(p->n_refused, 0);
    must_hold(s);
    if (p->n_rows > 0)
        launched[n_launched++] = p;
    if (n_launched > depth || (p->n_rows == 0 && n_launched > 0)) {
        p = launched[0];
        for (uint32_t i = 0; i < p->n_rows; i++)
            if (p->rows[i].outputs.tokens)
                results[n++] = (struct sched_result){.seq = p->rows[i].seq, .tokens = &token};
        assert_int_equal(sched_commit(s, results, n, NULL, NULL, NULL), QUIRE_OK);
        launched[0] = launched[--n_launched];
        must_hold(s);
    }
    while (sched_next_retired(s, &name))
        lives[name]--;
}

static void switch_between(const struct sched_policy *from, const struct sched_policy *to, uint64_t seed)
{
    struct fake_random random = {seed};
    struct sched_config c = small_config();
    uint32_t lives[N_NAMES] = {0}, n_submitted = 0, n_switched = 0;
    uint64_t now_us = 1;
    c.kv.groups[0].n_blocks = 20;
    c.max_model_len = 72;
    c.max_queued_requests = 100;
    c.overlap_depth = fake_below(&random, 2);
    c.policy = from;
    c.policy_options = options_of(&random);
    struct sched *s = open_sched(&c);
    while (n_submitted < N_REQUESTS || !sched_idle(s)) {
        if (n_submitted < N_REQUESTS && sched_stats(s).n_waiting < 30)
            submit_some(s, &random, ++n_submitted, lives);
        if (fake_chance(&random, 10)) {
            struct sched_policy_options options = options_of(&random);
            uint32_t n_running = sched_stats(s).n_running, n_waiting = sched_stats(s).n_waiting;
            const struct sched_policy *next = n_switched++ % 2 ? from : to;
            assert_int_equal(sched_set_policy(s, next, &options, NULL), QUIRE_OK);
            assert_ptr_equal(sched_policy_of(s), next);
            must_hold(s);
            assert_int_equal(sched_stats(s).n_running, n_running);
            assert_int_equal(sched_stats(s).n_waiting, n_waiting);
        }
        if (fake_chance(&random, 3))
            sched_cancel(s, 1 + fake_below(&random, N_REQUESTS));
        plan_and_commit(s, now_us++, c.overlap_depth, lives);
    }
    for (uint32_t i = 0; i < N_NAMES; i++)
        assert_int_equal(lives[i], 0);
    assert_true(n_switched > 1);
    close_sched(s);
}

static void test_all_pairs(void **state)
{
    (void)state;
    for (uint32_t i = 0; sched_policy_at(i); i++)
        for (uint32_t j = 0; sched_policy_at(j); j++)
            for (uint64_t seed = 1; seed <= 5; seed++)
                switch_between(sched_policy_at(i), sched_policy_at(j), seed);
}

/* The new order applies to those that already wait. */
static void test_new_order(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.max_num_seqs = 1;
    struct sched *s = open_sched(&c);
    uint32_t first = submit(s, request_of(1, 0, 4, 2)), seqs[3];
    for (uint32_t i = 0; i < 3; i++) {
        struct sched_request r = request_of(2 + i, 100 * i, 4, 1);
        r.priority = 3 - (int32_t)i;
        seqs[i] = submit(s, r);
    }
    assert_row(step(s), 0, first, 0, 4, true);
    const struct sched_policy_options options = {0};
    assert_int_equal(sched_set_policy(s, sched_policy_find("priority"), &options, NULL), QUIRE_OK);
    assert_row(step(s), 0, first, 4, 1, true);
    for (uint32_t i = 3; i-- > 0;)
        assert_row(step(s), 0, seqs[i], 0, 4, true);
    close_sched(s);
}

/* The next policy does not use the cache lookups of the previous one. */
static void test_look_ups_do_not_stay(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.max_num_seqs = 1;
    c.policy = sched_policy_find("lpm");
    c.cost = &(struct sched_cost){.n_points = 2, .points = {{1, 1000}, {2, 2000}}};
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 40, 1)); /* 40 ms */
    while (sched_stats(s).n_waiting + sched_stats(s).n_running > 0)
        step(s);
    submit(s, request_of(2, 500, 4, 2));
    step(s);
    struct sched_request r = request_of(3, 0, 40, 1);
    r.deadline_us = 20000;
    submit(s, r);
    const struct sched_policy_options options = {0};
    assert_int_equal(sched_set_policy(s, sched_policy_find("edf"), &options, NULL), QUIRE_OK);
    assert_int_equal(step(s)->n_refused, 1);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pairs),
        cmocka_unit_test(test_new_order),
        cmocka_unit_test(test_look_ups_do_not_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
