/* One request computes a prefix, and others that share it wait, under every policy. */
#include "tests/scheduler/sched_harness.h"

#include "scheduler/policies/policies.h"

#define SHARED 32u
#define TAIL 5u

static struct sched_config config_of(const struct sched_policy *policy)
{
    struct sched_config c = small_config();
    c.policy = policy;
    c.max_num_seqs = 8;
    c.max_queued_requests = 400;
    c.max_logit_rows = 8;
    c.max_num_batched_tokens = 64;
    return c;
}

static struct sched *open_policy(const struct sched_policy *policy, uint32_t budget, uint32_t depth)
{
    struct sched_config c = config_of(policy);
    c.max_num_batched_tokens = budget;
    c.long_prefill_token_threshold = budget / 2; /* no prompt has a step to itself */
    c.overlap_depth = depth;
    return open_sched(&c);
}

/* Runs until nothing is left; returns the computed tokens. */
static uint32_t run(struct sched *s, uint32_t depth)
{
    const struct sched_plan *before = NULL, *p;
    uint32_t n_tokens = 0;
    while (!sched_idle(s)) {
        p = plan(s);
        n_tokens += p->n_tokens;
        if (depth == 0) {
            commit(s, p, 7);
        } else {
            if (before)
                commit(s, before, 7);
            before = p->n_rows > 0 ? p : NULL;
        }
        collect(s);
    }
    return n_tokens;
}

#define EVERY(policy) \
    const struct sched_policy *policy = sched_policy_at(0); \
    for (uint32_t at_ = 0; (policy = sched_policy_at(at_)); at_++)

static void submit_sharing(struct sched *s, uint32_t n)
{
    for (uint32_t id = 1; id <= n; id++)
        submit(s, request_sharing(id, 1, SHARED, SHARED + TAIL));
}

static void test_one_computes(void **state)
{
    (void)state;
    const uint32_t budgets[] = {64, 9, 4};
    EVERY(policy)
    for (uint32_t depth = 0; depth <= 1; depth++)
        for (uint32_t b = 0; b < 3; b++) {
            struct sched *s = open_policy(policy, budgets[b], depth);
            submit_sharing(s, 6);
            assert_int_equal(run(s, depth), SHARED + 6 * TAIL);
            close_sched(s);
        }
}

/* More than one plan sets aside, and more than run at once. */
static void test_one_computes_for_many(void **state)
{
    (void)state;
    EVERY(policy)
    {
        struct sched *s = open_policy(policy, 64, 0);
        submit_sharing(s, 350);
        assert_int_equal(run(s, 0), SHARED + 350 * TAIL);
        close_sched(s);
    }
}

/* Those that wait do not block the requests behind them; if they are too many to be set aside, not those of other
 * flows. */
static void test_others_pass(void **state)
{
    (void)state;
    const char *const names[] = {"fcfs", "fair"};
    for (uint32_t i = 0; i < 2; i++) {
        struct sched_config c = config_of(sched_policy_find(names[i]));
        c.policy_options.n_tenants = 2;
        c.kv.n_tenants = 2;
        c.max_num_batched_tokens = 16;
        c.long_prefill_token_threshold = 8;
        struct sched *s = open_sched(&c);
        struct sched_request other = request_of(999, 40000, 60, 1);
        other.tenant = 1; /* its counter is the higher one from now on */
        submit(s, other);
        run(s, 0);
        submit_sharing(s, i == 0 ? 200 : 350);
        other = request_of(1000, 50000, 6, 1);
        other.tenant = 1;
        uint32_t seq = submit(s, other);
        const struct sched_plan *p = step(s);
        assert_int_equal(p->n_admitted, 2);
        assert_int_equal(p->admitted[1], seq);
        run(s, 0);
        close_sched(s);
    }
}

/* Another request continues where the cancelled one stopped. */
static void test_cancelled_while_computing(void **state)
{
    (void)state;
    EVERY(policy)
    {
        struct sched *s = open_policy(policy, 16, 0);
        submit_sharing(s, 4);
        assert_int_equal(step(s)->n_rows, 1);
        assert_int_equal(step(s)->n_rows, 1);
        sched_cancel(s, 1);
        assert_int_equal(16 + run(s, 0), SHARED + 3 * TAIL);
        close_sched(s);
    }
}

/* Each that takes over is cancelled in its turn, before a block of it is complete or after one. Every block is computed
 * once, and what a cancelled one had begun is lost. */
static void test_cancelled_again_and_again(void **state)
{
    (void)state;
    EVERY(policy)
    {
        for (uint32_t chunk = 2; chunk <= 6; chunk += 2) {
            struct sched *s = open_policy(policy, 2 * chunk, 0);
            uint32_t n_tokens = 0;
            submit_sharing(s, 22);
            for (uint32_t i = 0; i < 20; i++) {
                const struct sched_plan *p = step(s);
                n_tokens += p->n_tokens;
                assert_true(p->n_rows == 1 || n_tokens > SHARED);
                sched_cancel(s, i + 1);
            }
            collect(s);
            n_tokens += run(s, 0);
            assert_in_range(n_tokens, SHARED + 2 * TAIL, SHARED + 2 * TAIL + 20 * 2 * chunk);
            close_sched(s);
        }
    }
}

/* A decode takes a block of the computing request: it, or another, continues from the named blocks. */
static void test_preempted_while_computing(void **state)
{
    (void)state;
    struct sched_config c = config_of(sched_policy_find("lpm"));
    c.kv.groups[0].n_blocks = 14;
    c.max_num_batched_tokens = 3;
    struct sched *s = open_sched(&c);
    struct sched_request first = request_sharing(9, 2, 0, 6);
    first.max_tokens = 26;
    submit(s, first);
    while (sched_stats(s).n_running == 0 || step(s)->n_tokens > 1)
        step(s);
    for (uint32_t id = 1; id <= 3; id++) {
        struct sched_request r = request_sharing(id, 1, SHARED, SHARED + TAIL);
        r.arrival_us = 1000000;
        submit(s, r);
    }
    uint32_t n_computed = 0;
    while (!sched_idle(s)) {
        const struct sched_plan *p = step(s);
        for (uint32_t i = 0; i < p->n_rows; i++)
            n_computed += p->rows[i].count > 1 || !p->rows[i].outputs.tokens ? p->rows[i].count : 0;
    }
    assert_true(sched_stats(s).n_preemptions > 0);
    /* Only the blocks that the decode took are recomputed. */
    assert_true(n_computed <= SHARED + 3 * TAIL + 8 * sched_stats(s).n_preemptions);
    close_sched(s);
}

/* Two that share a part and then differ: the part once, the rest at the same time. */
static void test_diverging(void **state)
{
    (void)state;
    EVERY(policy)
    {
        struct sched *s = open_policy(policy, 16, 0);
        submit(s, request_sharing(1, 1, 16, 40));
        submit(s, request_sharing(2, 1, 16, 40));
        assert_int_equal(step(s)->n_rows, 1);
        assert_int_equal(step(s)->n_rows, 1);
        assert_int_equal(16 + run(s, 0), 16 + 24 + 24);
        close_sched(s);
    }
}

static void test_choices_do_not_wait_for_themselves(void **state)
{
    (void)state;
    for (uint32_t depth = 0; depth <= 1; depth++) {
        struct sched_config c = config_of(sched_policy_find("lpm"));
        c.overlap_depth = depth;
        struct sched *s = open_sched(&c);
        struct sched_request r = request_sharing(1, 1, SHARED, SHARED + TAIL);
        r.n = 3;
        submit(s, r);
        submit(s, request_sharing(2, 1, SHARED, SHARED + TAIL));
        const struct sched_plan *p = plan(s);
        assert_int_equal(p->n_admitted, 1);
        if (depth == 0)
            commit(s, p, 7);
        /* The other choices share the launched blocks; another request needs named blocks. */
        const struct sched_plan *next = plan(s);
        assert_int_equal(next->n_admitted, depth == 0 ? 3 : 2);
        for (uint32_t i = 0; i < next->n_rows; i++) /* the request's own fifth block is shared, too */
            assert_int_equal(next->rows[i].first, i < 2 ? SHARED + 4 : SHARED);
        if (depth == 1)
            commit(s, p, 7);
        commit(s, next, 7);
        collect(s);
        run(s, depth);
        close_sched(s);
    }
}

/* It computes logits of each prompt position, which limits its chunks: nobody waits for it. */
static void test_none_waits_for_logprobs(void **state)
{
    (void)state;
    struct sched *s = open_policy(sched_policy_find("fcfs"), 64, 0);
    struct sched_request scored = request_sharing(1, 1, SHARED, SHARED + TAIL);
    scored.prompt_logprobs = true;
    submit(s, scored);
    submit(s, request_sharing(2, 1, SHARED, SHARED + TAIL));
    assert_int_equal(step(s)->n_admitted, 2);
    run(s, 0);
    close_sched(s);
}

/* ---- when it is cheaper ---- */

/* Steps of 1 ms and us_per_token; a prefix of SHARED tokens. */
static uint32_t admitted_at_once(double us_per_token, uint32_t n_decoding)
{
    struct sched_cost cost = {.n_points = 2, .points = {{1, 1000}, {101, 1000 + 100 * us_per_token}}};
    struct sched_config c = config_of(sched_policy_find("fcfs"));
    c.cost = &cost;
    c.max_num_batched_tokens = 128;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < n_decoding; i++)
        submit(s, request_of(100 + i, 1000 * (i + 1), 3, 40));
    step(s);
    submit_sharing(s, 2);
    uint32_t n = step(s)->n_admitted;
    run(s, 0);
    close_sched(s);
    return n;
}

/* The second request waits if computing the prefix again makes the step longer, for all that run, by more than the step
 * takes. */
static void test_waits_when_cheaper(void **state)
{
    (void)state;
    /* About 1,000 + 37 × 25 = 1,925 us for the step of one, and 32 × 25 = 800 for the prefix. */
    assert_int_equal(admitted_at_once(25, 0), 2);
    assert_int_equal(admitted_at_once(25, 1), 2);
    assert_int_equal(admitted_at_once(25, 2), 1);
    /* Weights take the time, not tokens. */
    assert_int_equal(admitted_at_once(0, 5), 2);
    assert_int_equal(admitted_at_once(100, 0), 2);
    assert_int_equal(admitted_at_once(100, 1), 1);
}

/* ---- the leader's rank ---- */

/* A request of low priority computes a prefix that one of high priority waits for; requests between them would take
 * every step. */
static void test_waiting_lends_the_rank(void **state)
{
    (void)state;
    struct sched_config c = config_of(sched_policy_find("priority"));
    c.max_num_batched_tokens = 8;
    c.kv.groups[0].n_blocks = 200;
    struct sched *s = open_sched(&c);
    struct sched_request low = request_sharing(1, 1, SHARED, SHARED + TAIL);
    low.priority = 9;
    uint32_t leader = submit(s, low);
    step(s);
    for (uint32_t id = 10; id < 14; id++) {
        struct sched_request between = request_sharing(id, id, 60, 60);
        between.priority = 5;
        submit(s, between);
    }
    uint32_t high = submit(s, request_sharing(2, 1, SHARED, SHARED + TAIL));
    uint32_t n_steps = 0, n_computed = 8;
    bool admitted = false;
    while (!admitted) {
        const struct sched_plan *p = step(s);
        for (uint32_t i = 0; i < p->n_rows; i++)
            n_computed += p->rows[i].seq == leader ? p->rows[i].count : 0;
        for (uint32_t i = 0; i < p->n_admitted; i++)
            admitted |= p->admitted[i] == high;
        assert_in_range(n_steps++, 0, 4);
    }
    assert_in_range(n_computed, SHARED, SHARED + TAIL);
    run(s, 0);
    close_sched(s);
}

/* ---- flows ---- */

/* A class with a small share computes a prefix that a request of a class with a large one has, too, and further requests of
 * the large class would take every step. */
static void test_none_waits_for_a_class_behind(void **state)
{
    (void)state;
    struct sched_config c = config_of(sched_policy_find("priority"));
    c.policy_options.class_weights[0] = 1000;
    c.policy_options.class_weights[1] = 1;
    c.max_num_batched_tokens = 8;
    c.max_model_len = 200;
    c.kv.groups[0].n_blocks = 400;
    struct sched *s = open_sched(&c);
    struct sched_request low = request_sharing(1, 1, SHARED, SHARED + TAIL);
    low.class_index = 1;
    submit(s, low);
    step(s);
    uint32_t high = submit(s, request_sharing(2, 1, SHARED, SHARED + TAIL)), n_steps = 0;
    for (uint32_t id = 10; id < 18; id++)
        submit(s, request_sharing(id, id, 150, 150));
    bool admitted = false;
    while (!admitted) {
        const struct sched_plan *p = step(s);
        for (uint32_t i = 0; i < p->n_admitted; i++)
            admitted |= p->admitted[i] == high;
        assert_in_range(n_steps++, 0, 4);
    }
    run(s, 0);
    close_sched(s);
}

static uint32_t n_begun;

static void count_begin(void *made, uint32_t flow)
{
    n_begun++;
    sched_policy_fair.flow_begins(made, flow);
}

/* Setting the only waiting request of a flow aside is no end of its waiting: the flow keeps its place. */
static void test_a_flow_keeps_waiting(void **state)
{
    (void)state;
    struct sched_policy policy = sched_policy_fair;
    policy.flow_begins = count_begin;
    struct sched *s = open_policy(&policy, 4, 0);
    n_begun = 0;
    submit_sharing(s, 2);
    step(s);
    n_begun = 0;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(step(s)->n_admitted, 0);
    assert_int_equal(n_begun, 0);
    run(s, 0);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_computes),
        cmocka_unit_test(test_one_computes_for_many),
        cmocka_unit_test(test_others_pass),
        cmocka_unit_test(test_choices_do_not_wait_for_themselves),
        cmocka_unit_test(test_cancelled_while_computing),
        cmocka_unit_test(test_cancelled_again_and_again),
        cmocka_unit_test(test_preempted_while_computing),
        cmocka_unit_test(test_diverging),
        cmocka_unit_test(test_none_waits_for_logprobs),
        cmocka_unit_test(test_waits_when_cheaper),
        cmocka_unit_test(test_waiting_lends_the_rank),
        cmocka_unit_test(test_none_waits_for_a_class_behind),
        cmocka_unit_test(test_a_flow_keeps_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
