/* Every allocation in creation and submission fails once: the call must report it, leave the scheduler unchanged and
 * leak nothing. */
#include "scheduler/driver.h"
#include "tests/fault.h"
#include "tests/scheduler/sched_harness.h"

#include <stdbool.h>
#include <stdlib.h>

static struct sched_policy_options some_options(void)
{
    return (struct sched_policy_options){.n_tenants = 3, .class_weights = {1, 2}};
}

static void create_under(const struct sched_policy *policy)
{
    struct sched_config c = small_config();
    struct sched *s = NULL;
    long n_failed = 0;
    int status = QUIRE_NO_MEMORY;
    c.kv.n_groups = 2;
    c.kv.groups[1].n_blocks = 32;
    c.kv.groups[1].window = 10;
    c.overlap_depth = 1;
    c.policy = policy;
    c.policy_options = some_options();
    while (status) {
        struct quire_error err = {.text = ""};
        fault_at(n_failed);
        status = sched_create(&c, &s, &err);
        fault_end();
        if (status == QUIRE_OK)
            break;
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_null(s);
        assert_non_null(strstr(err.text, "memory"));
        n_failed++;
    }
    assert_true(n_failed > 20);
    close_sched(s);
}

static void test_create(void **state)
{
    (void)state;
    for (uint32_t i = 0; sched_policy_at(i); i++)
        create_under(sched_policy_at(i));
}

/* The old policy stays until the new one is complete. */
static void set_policy(struct sched *s, const struct sched_policy *policy)
{
    const struct sched_policy *old = sched_policy_of(s);
    const struct sched_policy_options options = some_options();
    int status = QUIRE_NO_MEMORY;
    for (long n_failed = 0; status; n_failed++) {
        struct quire_error err = {.text = ""};
        fault_at(n_failed);
        status = sched_set_policy(s, policy, &options, &err);
        fault_end();
        assert_true(status == QUIRE_OK || status == QUIRE_NO_MEMORY);
        assert_ptr_equal(sched_policy_of(s), status ? old : policy);
        assert_true(status == QUIRE_OK || strstr(err.text, "memory"));
        assert_true(status || n_failed >= 6);
        assert_int_equal(sched_check(s, NULL), QUIRE_OK);
    }
}

static void test_set_policy(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.policy_options = some_options();
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 8; i++) {
        struct sched_request r = request_of(i, 20 * i, 9, 12);
        r.tenant = r.class_index = i % 3;
        submit(s, r);
    }
    for (uint32_t i = 0; sched_policy_at(i); i++) {
        set_policy(s, sched_policy_at(i));
        step(s);
    }
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static void test_submit(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 10, 10);
    uint32_t seqs[4];
    long n_failed = 0;
    r.n = 4;
    for (;; n_failed++) {
        struct quire_error err = {.text = ""};
        fault_at(n_failed);
        int status = sched_submit(s, &r, seqs, NULL, &err);
        fault_end();
        if (status == QUIRE_OK)
            break;
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_true(sched_idle(s));
        assert_int_equal(sched_check(s, NULL), QUIRE_OK);
    }
    assert_int_equal(n_failed, 5); /* the request and each of its choices */
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static uint32_t take(void *context, const struct sched_step *step, struct sched_result *results, uint32_t *tokens)
{
    uint32_t n = 0;
    (void)context;
    for (uint32_t i = 0; i < step->plan->n_rows; i++)
        if (step->plan->rows[i].outputs.tokens) {
            tokens[n] = 5;
            results[n] = sched_result_of(&step->plan->rows[i], &tokens[n]);
            n++;
        }
    return n;
}

static const struct sched_driver_calls calls = {.take = take};

static void test_driver(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_driver *d;
    long n_failed = 0;
    for (;; n_failed++) {
        struct quire_error err = {.text = ""};
        fault_at(n_failed);
        int status = sched_driver_create(s, &calls, NULL, &d, &err);
        fault_end();
        if (status == QUIRE_OK)
            break;
        assert_int_equal(status, QUIRE_NO_MEMORY);
        assert_null(d);
    }
    assert_int_equal(n_failed, 5);
    sched_driver_destroy(d);
    close_sched(s);
}

/* After a request is accepted, no step can fail for lack of memory. */
static void run_under(const struct sched_policy *policy)
{
    for (uint32_t depth = 0; depth <= 1; depth++) {
        struct sched_config c = small_config();
        c.policy = policy;
        c.policy_options = some_options();
        c.kv.groups[0].n_blocks = 12;
        c.overlap_depth = depth;
        struct sched *s = open_sched(&c);
        for (uint32_t i = 0; i < 4; i++)
            submit(s, request_of(i, 20 * i, 9, 12));
        struct sched_driver *d;
        assert_int_equal(sched_driver_create(s, &calls, NULL, &d, NULL), QUIRE_OK);
        while (!sched_idle(s)) {
            const struct sched_plan *p;
            long before = fault_n_allocations();
            int status = sched_driver_turn(d, 0, &p, NULL);
            long after = fault_n_allocations();
            assert_int_equal(status, QUIRE_OK);
            assert_int_equal(after, before);
        }
        sched_driver_destroy(d);
        assert_true(sched_stats(s).n_preemptions > 0);
        close_sched(s);
    }
}

static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; sched_policy_at(i); i++)
        run_under(sched_policy_at(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_set_policy),
        cmocka_unit_test(test_submit),
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
