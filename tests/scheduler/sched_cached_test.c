/* Pins of cached answers: their blocks, their ranks, and the order of dropping. */
#include "memory/prefix.h"
#include "tests/scheduler/sched_harness.h"

#define HOUR UINT64_C(3600000000)

/* 40 blocks of 4 tokens, a quarter of them for pins. */
static struct sched_config cached_config(void)
{
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 40;
    c.max_pinned_percent = 25;
    return c;
}

/* Returns how much of its prompt was found. */
static uint32_t run(struct sched *s, struct sched_request r)
{
    uint32_t n_cached = UINT32_MAX;
    submit(s, r);
    while (sched_stats(s).n_waiting + sched_stats(s).n_running > 0) {
        const struct sched_plan *p = step(s);
        n_cached = n_cached == UINT32_MAX && p->n_rows > 0 ? p->rows[0].first : n_cached;
    }
    return n_cached;
}

/* An answer of four tokens to eight, 11 of them computed: two full blocks. Each step gives the token 7. */
static uint32_t ask(struct sched *s, uint32_t base)
{
    struct sched_request r = request_of(base, base, 8, 4);
    r.keep_us = HOUR;
    r.keep_name = base;
    return run(s, r);
}

static void churn(struct sched *s)
{
    for (uint32_t i = 0; i < 4; i++)
        run(s, request_of(90 + i, 10000 + 100 * i, 60, 2));
}

/* The part found by a new request. */
static uint32_t found(struct sched *s, uint32_t base)
{
    return run(s, request_of(80, base, 12, 1));
}

static void give(struct sched *s, uint32_t name, uint32_t n)
{
    sched_served(s, (const uint32_t[]){name, 0, n}, 1);
}

static void end(struct sched *s)
{
    sched_unpin(s, UINT32_MAX);
    assert_int_equal(sched_stats(s).n_kept + sched_stats(s).n_kept_blocks, 0);
    close_sched(s);
}

static void test_a_kept_answer_outlives_others(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    for (uint32_t percent = 0; percent <= 25; percent += 25) {
        c.max_pinned_percent = percent;
        struct sched *s = open_sched(&c);
        ask(s, 1000);
        assert_int_equal(sched_stats(s).n_kept, percent > 0);
        assert_int_equal(sched_stats(s).n_kept_blocks, percent > 0 ? 2 : 0);
        assert_int_equal(sched_stats(s).n_pins, 0);
        churn(s);
        assert_int_equal(found(s, 1000), percent > 0 ? 8 : 0);
        end(s);
    }
}

/* Ten blocks: five answers. The most served one stays; among equals, the youngest. */
static void test_worth(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    struct sched *s = open_sched(&c);
    for (uint32_t i = 1; i <= 5; i++)
        ask(s, 1000 * i);
    assert_int_equal(sched_stats(s).n_kept_blocks, 10);
    give(s, 1000, 2);
    give(s, 3000, 1);
    give(s, 6000, 9); /* nobody's */
    found(s, 4000); /* a hit of its blocks counts as one */
    ask(s, 6000);
    ask(s, 7000);
    assert_int_equal(sched_stats(s).n_kept_blocks, 10);
    churn(s);
    const uint32_t left[] = {8, 0, 8, 8, 0, 8, 8};
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(found(s, 1000 * (i + 1)), left[i]);
    for (uint32_t i = 1; i <= 7; i++)
        give(s, 1000 * i, 9);
    ask(s, 8000); /* ranks below all others */
    churn(s);
    assert_int_equal(found(s, 8000), 0);
    assert_int_equal(sched_stats(s).n_kept, 5);
    give(s, 0, 0); /* forgotten */
    assert_int_equal(sched_stats(s).n_kept + sched_stats(s).n_kept_blocks, 0);
    end(s);
}

/* An answer that extends another one includes it; common prefixes count once. */
static void test_prefixes_count_once(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 1000, 16, 5); /* 20 computed */
    r.keep_us = HOUR;
    ask(s, 1000);
    give(s, 1000, 3);
    run(s, r);
    assert_int_equal(sched_stats(s).n_kept, 1);
    assert_int_equal(sched_stats(s).n_kept_blocks, 5);
    uint32_t branch[16];
    r = request_of(2, 1000, 16, 5);
    memcpy(branch, r.prompt, sizeof branch);
    for (uint32_t i = 1; i <= 4; i++) { /* two blocks of its own each; the third of ten finds no block */
        struct kv_chain_root root = {.block_tokens = 4};
        struct key256 hashes[4], first = kv_chain_first(&root);
        branch[12] = i;
        for (uint32_t b = 0; b < 4; b++)
            hashes[b] = kv_chain_next(&root.secret, b ? &hashes[b - 1] : &first, branch + 4 * (size_t)b, 4);
        struct sched_request of = request_of(2, 1000, 16, 5);
        of.prompt = branch;
        of.hashes = hashes;
        of.keep_us = HOUR;
        run(s, of);
        assert_int_equal(sched_stats(s).n_kept, i < 3 ? i + 1 : 3);
        assert_int_equal(sched_stats(s).n_kept_blocks, i < 3 ? 5 + 2 * i : 9);
    }
    assert_int_equal(run(s, request_of(3, 1000, 16, 1)), 12); /* it extended the answer that was served three times */
    end(s);
}

/* They use what other pins leave, and are dropped for the only one that could run. */
static void test_who_goes_before(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    struct sched *s = open_sched(&c);
    for (uint32_t i = 1; i <= 5; i++)
        ask(s, 1000 * i);
    give(s, 1000, 9);
    struct sched_request pinned = request_of(1, 30000, 32, 0);
    pinned.pin_us = HOUR;
    run(s, pinned);
    assert_int_equal(sched_stats(s).n_pinned_blocks, 8);
    assert_int_equal(sched_stats(s).n_kept_blocks, 2);
    churn(s);
    assert_int_equal(found(s, 1000), 8);
    run(s, request_of(2, 40000, 124, 2)); /* 32 blocks, all except the pin's */
    assert_int_equal(sched_stats(s).n_pins, 1);
    assert_int_equal(sched_stats(s).n_kept, 0);
    end(s);
}

/* An answer's time ends, hit or not; a tenant removes its own. */
static void test_their_end(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    c.policy_options.n_tenants = 2;
    struct sched *s = open_sched(&c);
    const struct sched_plan *p;
    for (uint32_t i = 0; i < 2; i++) {
        struct sched_request r = request_of(i, 1000 * i, 8, 4);
        r.keep_us = 500;
        r.tenant = i;
        run(s, r);
    }
    assert_int_equal(sched_unpin(s, 1), 1);
    assert_int_equal(sched_stats(s).n_kept, 1);
    assert_int_equal(found(s, 0), 8);
    assert_int_equal(sched_plan(s, 500, &p, NULL), QUIRE_OK);
    assert_int_equal(sched_stats(s).n_kept, 0);
    end(s);
}

/* 40 blocks, of which five answers hold ten. Two requests of 20 blocks fit beside each other only with theirs. */
static void test_they_yield_before_a_preemption(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    struct sched *s = open_sched(&c);
    for (uint32_t i = 1; i <= 5; i++)
        ask(s, 1000 * i);
    submit(s, request_of(20, 20000, 8, 72));
    submit(s, request_of(21, 30000, 8, 72));
    while (sched_stats(s).n_waiting + sched_stats(s).n_running > 0)
        step(s);
    assert_int_equal(sched_stats(s).n_preemptions, 0);
    assert_int_equal(sched_stats(s).n_kept, 0);
    end(s);
}

/* A request that waits for the blocks of another leaves the answers theirs. */
static void test_they_do_not_yield_to_waiting_requests(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    struct sched *s = open_sched(&c);
    for (uint32_t i = 1; i <= 5; i++)
        ask(s, 1000 * i);
    submit(s, request_of(20, 20000, 80, 20)); /* 25 blocks at its end */
    while (sched_stats(s).n_waiting > 0)
        step(s);
    submit(s, request_of(21, 30000, 80, 1)); /* 20 blocks: not enough without the first one's */
    for (uint32_t i = 0; i < 12; i++)
        step(s);
    assert_int_equal(sched_stats(s).n_waiting, 1);
    assert_int_equal(sched_stats(s).n_kept, 5);
    while (sched_stats(s).n_waiting + sched_stats(s).n_running > 0)
        step(s);
    assert_int_equal(sched_stats(s).n_kept, 5);
    assert_int_equal(sched_stats(s).n_preemptions, 0);
    end(s);
}

static void ask_as(struct sched *s, uint32_t tenant, uint32_t base)
{
    struct sched_request r = request_of(base, base, 8, 4);
    r.keep_us = HOUR;
    r.keep_name = base;
    r.tenant = tenant;
    run(s, r);
}

/* A tenant with many sessions of much worth leaves another its part, and has all of it while the other has none. */
static void test_tenants_have_parts(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    c.policy_options.n_tenants = 2;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 1; i <= 5; i++) {
        ask_as(s, 0, 1000 * i);
        give(s, 1000 * i, i);
    }
    assert_int_equal(sched_stats(s).n_kept, 5);
    for (uint32_t i = 11; i <= 16; i++)
        ask_as(s, 1, 1000 * i);
    assert_int_equal(sched_stats(s).n_kept, 5);
    churn(s);
    /* Three of five: the second tenant's third answer takes no more from the first, which then holds as much. */
    assert_int_equal(sched_unpin(s, 0), 3);
    assert_int_equal(sched_unpin(s, 1), 2);
    end(s);
}

/* Neither answers nor prompts are pinned. */
static void test_no_pins(void **state)
{
    (void)state;
    struct sched_config c = cached_config();
    c.max_pinned_percent = SCHED_NO_PINS;
    struct sched *s = open_sched(&c);
    ask(s, 1000);
    assert_int_equal(sched_stats(s).n_kept, 0);
    struct sched_request pinned = request_of(1, 30000, 32, 0);
    struct quire_error err = {0};
    uint32_t seq;
    uint64_t retry_us;
    pinned.pin_us = HOUR;
    assert_int_equal(sched_submit(s, &pinned, &seq, &retry_us, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "pin: --max-pinned-percent 0 allows no pins");
    end(s);
}

/* Two requests of 20 blocks each, one of each tenant, beside the first one's sessions. Returns the steps until both ran, and
 * until both ended in *n_all. */
static uint32_t steps_of_two(bool keeps, uint32_t *n_all)
{
    struct sched_config c = cached_config();
    uint32_t n_waiting = 0;
    c.policy_options.n_tenants = 2;
    c.max_pinned_percent = keeps ? 50 : SCHED_NO_PINS;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 1; i <= 10; i++)
        ask_as(s, 0, 1000 * i);
    assert_int_equal(sched_stats(s).n_kept_blocks, keeps ? 20 : 0);
    submit(s, request_of(20, 20000, 8, 72));
    step(s);
    struct sched_request other = request_of(21, 30000, 76, 4);
    other.tenant = 1;
    submit(s, other);
    for (*n_all = 0; sched_stats(s).n_waiting + sched_stats(s).n_running > 0; ++*n_all) {
        step(s);
        n_waiting += sched_stats(s).n_waiting;
    }
    assert_int_equal(sched_stats(s).n_preemptions, 0);
    end(s);
    return n_waiting;
}

/* A tenant's sessions that hold their whole share cost another tenant not one step. */
static void test_no_tenant_waits_for_sessions(void **state)
{
    (void)state;
    uint32_t n_all, n_all_without;
    assert_int_equal(steps_of_two(true, &n_all), steps_of_two(false, &n_all_without));
    assert_int_equal(n_all, n_all_without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kept_answer_outlives_others),
        cmocka_unit_test(test_worth),
        cmocka_unit_test(test_prefixes_count_once),
        cmocka_unit_test(test_who_goes_before),
        cmocka_unit_test(test_their_end),
        cmocka_unit_test(test_they_yield_before_a_preemption),
        cmocka_unit_test(test_they_do_not_yield_to_waiting_requests),
        cmocka_unit_test(test_tenants_have_parts),
        cmocka_unit_test(test_no_pins),
        cmocka_unit_test(test_no_tenant_waits_for_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
