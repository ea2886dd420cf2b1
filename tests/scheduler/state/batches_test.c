/* Limits of dynamic batches: by class, and corrected by load. */
#include "scheduler/state/batches.h"
#include "tests/scheduler/sched_harness.h"

#include <math.h>

static const struct sched_config limits = {.max_num_seqs = 64,
                                           .max_batch_size = 16,
                                           .max_wait_us = 50000,
                                           .class_batch_size = {4, 0, 100},
                                           .class_wait_us = {5000, 0, 900000}};

static void test_classes(void **state)
{
    (void)state;
    struct sched_batches b;
    batches_init(&b);
    assert_int_equal(batches_fill(&limits, 0), 4);
    assert_int_equal(batches_fill(&limits, 1), 16);
    assert_int_equal(batches_fill(&limits, 2), 64); /* at most max_num_seqs */
    assert_int_equal(batches_wait_us(&b, &limits, 0), 5000);
    assert_int_equal(batches_wait_us(&b, &limits, 1), 50000);
    assert_int_equal(batches_wait_us(&b, &limits, 2), 900000);
    for (uint32_t c = 0; c < 3; c++)
        assert_int_equal(batches_limit(&b, &limits, c), batches_fill(&limits, c));
}

/* n batches of 10 ms, each after a pause, with this many waiting for 16 places. */
static void run_batches(struct sched_batches *b, const struct sched_config *c, uint32_t n, uint32_t n_waiting,
                        uint64_t pause_us)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t now_us = b->began_us + 10000 + pause_us;
        double wait = b->wait, size = b->size;
        batches_end(b, now_us - pause_us);
        batches_end(b, now_us); /* it is over once */
        batches_begin(b, c, now_us, n_waiting, 16);
        assert_true(fabs(log(b->wait / wait)) < 0.2 && fabs(log(b->size / size)) < 0.2); /* gradually */
        assert_true(b->wait >= 1.0 / 16 && b->wait <= 1 && b->size >= 1 && b->size <= 4);
    }
}

static void test_long_queues_shorten_waits(void **state)
{
    (void)state;
    struct sched_config c = limits;
    struct sched_batches b;
    c.adaptive_batches = true;
    batches_init(&b);
    b.began_us = 1;
    run_batches(&b, &c, 50, 22, 0); /* 1.4 times the places */
    assert_true(b.wait == 1);
    run_batches(&b, &c, 50, 26, 0); /* 1.6 */
    assert_int_equal(batches_wait_us(&b, &c, 1), 50000 / 16);
    run_batches(&b, &c, 50, 18, 0); /* 1.1: stays */
    assert_int_equal(batches_wait_us(&b, &c, 1), 50000 / 16);
    run_batches(&b, &c, 50, 14, 0);
    assert_true(b.wait == 1);
}

static void test_idle_time_enlarges_batches(void **state)
{
    (void)state;
    struct sched_config c = limits;
    struct sched_batches b;
    c.adaptive_batches = true;
    batches_init(&b);
    b.began_us = 1;
    run_batches(&b, &c, 50, 16, 9000); /* 47 % idle */
    assert_int_equal(batches_limit(&b, &c, 0), 4);
    run_batches(&b, &c, 50, 16, 12000); /* 55 % */
    assert_int_equal(batches_limit(&b, &c, 0), 16);
    assert_int_equal(batches_limit(&b, &c, 1), 64); /* max_num_seqs */
    assert_int_equal(batches_fill(&c, 0), 4); /* a batch starts no later */
    run_batches(&b, &c, 50, 16, 4000); /* 29 %: stays */
    assert_int_equal(batches_limit(&b, &c, 0), 16);
    run_batches(&b, &c, 50, 16, 2000);
    assert_int_equal(batches_limit(&b, &c, 0), 4);
    c.adaptive_batches = false;
    run_batches(&b, &c, 50, 160, 90000);
    assert_true(b.size == 1 && b.wait == 1);
}

/* With a cost model, the machine idles also where a step takes as long as one of a single token. */
static void test_steps_that_idle(void **state)
{
    (void)state;
    const struct sched_cost cost = {.n_points = 2, .points = {{1, 1000}, {1001, 11000}}};
    for (uint32_t busy = 0; busy <= 1; busy++) {
        struct sched_config c = limits;
        struct sched_batches b;
        c.adaptive_batches = true;
        c.cost = &cost;
        batches_init(&b);
        b.began_us = 1;
        for (uint32_t i = 1; i <= 50; i++) {
            batches_step(&b, &c, i, busy ? 9000 : 5000);
            batches_step(&b, &c, i, busy ? 9000 : 5000); /* counts once */
            run_batches(&b, &c, 1, 16, 0);
        }
        assert_int_equal(batches_limit(&b, &c, 0), busy ? 4 : 16);
    }
}

/* ---- in the scheduler ---- */

static struct sched_config dynamic_config(void)
{
    struct sched_config c = small_config();
    c.policy = sched_policy_find("priority");
    c.max_num_seqs = c.max_logit_rows = 8;
    c.max_queued_requests = 50;
    c.max_num_batched_tokens = 64;
    c.batching = SCHED_DYNAMIC;
    c.class_batch_size[0] = 2;
    c.class_batch_size[1] = 6;
    c.class_wait_us[0] = 1000;
    c.class_wait_us[1] = 9000;
    return c;
}

static void submit_of(struct sched *s, uint64_t id, uint32_t class_index, uint64_t arrival_us)
{
    struct sched_request r = request_of(id, 100 * (uint32_t)id, 3, 2);
    r.class_index = class_index;
    r.priority = (int32_t)class_index;
    r.arrival_us = arrival_us;
    submit(s, r);
}

/* Plans at a time, and ends the batch that it starts. Returns its requests. */
static uint32_t batch_at(struct sched *s, uint64_t now_us)
{
    const struct sched_plan *p;
    assert_int_equal(sched_plan(s, now_us, &p, NULL), QUIRE_OK);
    uint32_t n = p->n_admitted;
    while (p->n_rows > 0) {
        commit(s, p, 7);
        collect(s);
        if (sched_stats(s).n_running == 0)
            break;
        assert_int_equal(sched_plan(s, now_us, &p, NULL), QUIRE_OK);
        assert_int_equal(p->n_admitted, 0);
    }
    return n;
}

/* Urgent requests come in small batches, soon; others in large ones, later. */
static void test_batches_of_classes(void **state)
{
    (void)state;
    struct sched_config c = dynamic_config();
    struct sched *s = open_sched(&c);
    for (uint64_t id = 1; id <= 5; id++)
        submit_of(s, id, 1, 10);
    assert_int_equal(batch_at(s, 100), 0); /* five of six */
    assert_int_equal(batch_at(s, 9010), 5); /* have waited long enough */
    for (uint64_t id = 11; id <= 17; id++)
        submit_of(s, id, 1, 9020);
    assert_int_equal(batch_at(s, 9030), 6); /* full, one is left */
    submit_of(s, 20, 0, 9040);
    assert_int_equal(batch_at(s, 9050), 2); /* an urgent one and the one that was left are full */
    submit_of(s, 21, 0, 20000);
    assert_int_equal(batch_at(s, 20500), 0);
    assert_int_equal(batch_at(s, 21000), 1); /* has waited long enough */
    for (uint64_t id = 31; id <= 40; id++)
        submit_of(s, id, id == 31 ? 0 : 1, 30000);
    assert_int_equal(batch_at(s, 30001), 2); /* an urgent one keeps its batch small */
    assert_int_equal(batch_at(s, 30002), 6);
    assert_int_equal(batch_at(s, 39000), 2);
    assert_int_equal(sched_stats(s).n_waiting, 0);
    close_sched(s);
}

/* Whoever is first: an urgent request behind others limits the batch, too. */
static void test_every_class_limits(void **state)
{
    (void)state;
    struct sched_config c = dynamic_config();
    c.policy = sched_policy_find("fcfs");
    struct sched *s = open_sched(&c);
    for (uint64_t id = 1; id <= 8; id++)
        submit_of(s, id, id == 2 ? 0 : 1, 10);
    assert_int_equal(batch_at(s, 20), 2);
    assert_int_equal(batch_at(s, 30), 6);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_long_queues_shorten_waits),
        cmocka_unit_test(test_idle_time_enlarges_batches),
        cmocka_unit_test(test_steps_that_idle),
        cmocka_unit_test(test_batches_of_classes),
        cmocka_unit_test(test_every_class_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
