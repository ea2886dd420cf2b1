/* Longest cached prefix first: order, ageing, and a single computation of a shared prefix. */
#include "tests/scheduler/fake_model.h"
#include "tests/scheduler/sched_harness.h"

#include "memory/prefix.h"

#define SHARED 32u
#define TAIL 5u

/* The first n_shared tokens are common to the family; the rest belongs to the request alone. */
static struct sched_request request_sharing(uint64_t id, uint32_t family, uint32_t n_shared, uint32_t n)
{
    static uint32_t tokens[200];
    static struct key256 hashes[50];
    struct kv_chain_root root = {.block_tokens = 4};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < n_shared ? family * 1000 + i : 100000 + (uint32_t)id * 1000 + i;
    struct key256 first = kv_chain_first(&root);
    for (uint32_t i = 0; i < n / 4; i++)
        hashes[i] = kv_chain_next(&root.secret, i ? &hashes[i - 1] : &first, tokens + 4 * (size_t)i, 4);
    return (struct sched_request){
        .id = id, .prompt = tokens, .n_prompt = n, .max_tokens = 1, .n = 1, .chain_first = first, .hashes = hashes};
}

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

static struct sched *open_lpm(uint32_t budget, uint32_t depth)
{
    struct sched_config c = lpm_config();
    c.max_num_batched_tokens = budget;
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

static void test_one_computes(void **state)
{
    (void)state;
    const uint32_t budgets[] = {64, 9, 4};
    for (uint32_t depth = 0; depth <= 1; depth++)
        for (uint32_t b = 0; b < 3; b++) {
            struct sched *s = open_lpm(budgets[b], depth);
            for (uint32_t id = 1; id <= 6; id++)
                submit(s, request_sharing(id, 1, SHARED, SHARED + TAIL));
            assert_int_equal(run(s, depth), SHARED + 6 * TAIL);
            close_sched(s);
        }
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
        assert_int_equal(run(s, 0), (i == 0 ? 12 : 3) * SHARED + 12 * TAIL);
        close_sched(s);
    }
}

/* More than one plan sets aside, and more than run at once. */
static void test_one_computes_for_many(void **state)
{
    (void)state;
    struct sched *s = open_lpm(64, 0);
    for (uint32_t id = 1; id <= 150; id++)
        submit(s, request_sharing(id, 1, SHARED, SHARED + TAIL));
    assert_int_equal(run(s, 0), SHARED + 150 * TAIL);
    close_sched(s);
}

static void test_choices_do_not_wait_for_themselves(void **state)
{
    (void)state;
    for (uint32_t depth = 0; depth <= 1; depth++) {
        struct sched *s = open_lpm(64, depth);
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

/* Another request continues where the cancelled one stopped. */
static void test_cancelled_while_computing(void **state)
{
    (void)state;
    struct sched *s = open_lpm(8, 0);
    for (uint32_t id = 1; id <= 4; id++)
        submit(s, request_sharing(id, 1, SHARED, SHARED + TAIL));
    assert_int_equal(step(s)->n_rows, 1);
    assert_int_equal(step(s)->n_rows, 1);
    sched_cancel(s, 1);
    assert_int_equal(16 + run(s, 0), SHARED + 3 * TAIL);
    close_sched(s);
}

/* A decode takes a block of the computing request: it, or another, continues from the named blocks. */
static void test_preempted_while_computing(void **state)
{
    (void)state;
    struct sched_config c = lpm_config();
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
    struct sched *s = open_lpm(8, 0);
    submit(s, request_sharing(1, 1, 16, 40));
    submit(s, request_sharing(2, 1, 16, 40));
    assert_int_equal(step(s)->n_rows, 1);
    assert_int_equal(step(s)->n_rows, 1);
    assert_int_equal(16 + run(s, 0), 16 + 24 + 24);
    close_sched(s);
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
        run(s, 0);
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
    run(s, 0);
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
    run(s, 0);
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
    run(s, 0);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_computes),
        cmocka_unit_test(test_those_who_share_follow_each_other),
        cmocka_unit_test(test_one_computes_for_many),
        cmocka_unit_test(test_choices_do_not_wait_for_themselves),
        cmocka_unit_test(test_cancelled_while_computing),
        cmocka_unit_test(test_preempted_while_computing),
        cmocka_unit_test(test_diverging),
        cmocka_unit_test(test_cached_goes_first_until_the_other_has_aged),
        cmocka_unit_test(test_ranked_anew),
        cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
