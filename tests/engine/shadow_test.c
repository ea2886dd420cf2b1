/* A shadow must say what would have happened: the same arrivals are run for real under each policy, on a
 * virtual clock, and the shadow of one run must measure what the other run measured. */
#include "engine/record/shadow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_REQUESTS 60
#define MAX_PROMPT 400

struct world {
    struct sched *sched;
    const struct engine_watch *watch; /* NULL: no watch */
    struct sched_config config;
    uint64_t now_us;
    uint32_t n_submitted, cancel_every;
    uint64_t cancelled[N_REQUESTS];
    uint32_t n_cancelled;
    struct shadow_times measured; /* ttft_us and queue_us of choice 0 of each request */
    uint32_t n_measured;
    uint64_t seq_id[512];
    bool seen[N_REQUESTS];
};

static const struct sched_cost cost = {
    .n_points = 2, .points = {{1, 1000}, {256, 5000}}, .row_us = 3, .context_us = 0.05};

static uint64_t arrival_us(uint32_t i)
{
    return 1000000 + (uint64_t)i * 2500 + (i * 7919u) % 1700;
}

static struct sched_request request(uint32_t i, uint32_t *prompt)
{
    struct sched_request r = {.id = i,
                              .prompt = prompt,
                              .n_prompt = 1 + (i * 131u) % MAX_PROMPT,
                              .max_tokens = 1 + (i * 37u) % 60,
                              .n = 1,
                              .priority = (int32_t)(i * 37u % 60 / 10), /* the short go first */
                              .arrival_us = arrival_us(i)};
    for (uint32_t t = 0; t < r.n_prompt; t++)
        prompt[t] = i;
    return r;
}

static void open_world(struct world *w, const char *policy, const struct engine_watch *watch)
{
    memset(w, 0, sizeof *w);
    w->config = (struct sched_config){.kv = {.block_tokens = 16, .n_groups = 1, .groups = {{.n_blocks = 200}}},
                                      .max_num_seqs = 8,
                                      .max_num_batched_tokens = 256,
                                      .max_model_len = 1024,
                                      .max_queued_requests = N_REQUESTS,
                                      .max_logit_rows = 8,
                                      .policy = sched_policy_find(policy),
                                      .cost = &cost};
    w->watch = watch;
    assert_int_equal(sched_create(&w->config, &w->sched, NULL), QUIRE_OK);
    if (watch)
        watch->opened(watch->context, NULL, &w->config);
}

static void submit_due(struct world *w)
{
    uint32_t prompt[MAX_PROMPT], seq;
    while (w->n_submitted < N_REQUESTS && arrival_us(w->n_submitted) <= w->now_us) {
        struct sched_request r = request(w->n_submitted++, prompt);
        assert_int_equal(sched_submit(w->sched, &r, &seq, NULL, NULL), QUIRE_OK);
        w->seq_id[seq] = r.id;
        const struct engine_watch_submit s = {.request = r.id, .sched = &r, .status = QUIRE_OK, .seqs = &seq};
        if (w->watch)
            w->watch->submitted(w->watch->context, &s);
        if (w->cancel_every && r.id % w->cancel_every == 3) {
            sched_cancel(w->sched, r.id - 2);
            if (w->watch)
                w->watch->cancelled(w->watch->context, r.arrival_us, r.id - 2);
        }
    }
}

static void measure(struct world *w, uint32_t seq)
{
    uint64_t id = w->seq_id[seq], arrived = arrival_us((uint32_t)id);
    if (w->seen[id])
        return;
    w->seen[id] = true;
    w->measured.ttft_us += (double)(w->now_us - arrived);
    w->measured.queue_us += (double)(sched_account(w->sched, seq).admitted_us - arrived);
    w->n_measured++;
}

static void run_step(struct world *w, const struct sched_plan *plan)
{
    struct sched_result results[8];
    uint32_t n = 0, token = 7;
    struct sched_shape shape = {0};
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        sched_shape_add(&shape, row->first, row->count, row->first + row->count - row->first_logit);
        if (row->outputs.tokens)
            results[n++] = (struct sched_result){.seq = row->seq, .tokens = &token};
    }
    struct engine_watch_commit c = {.launched_us = w->now_us, .plan = plan, .results = results, .sched = w->sched};
    w->now_us += (uint64_t)sched_cost_us(&cost, &shape) + 1;
    for (uint32_t i = 0; i < n; i++)
        measure(w, results[i].seq);
    bool finished[8];
    assert_int_equal(sched_commit(w->sched, results, n, finished, NULL, NULL), QUIRE_OK);
    for (uint32_t i = 0; i < n; i++)
        results[i].finished = finished[i];
    c.done_us = w->now_us;
    c.n_results = n;
    if (w->watch)
        w->watch->committed(w->watch->context, &c);
}

/* All requests, to their ends. */
static void run_world(struct world *w)
{
    const struct sched_plan *plan;
    uint32_t seq;
    w->now_us = arrival_us(0);
    while (w->n_submitted < N_REQUESTS || !sched_idle(w->sched)) {
        submit_due(w);
        assert_int_equal(sched_plan(w->sched, w->now_us, &plan, NULL), QUIRE_OK);
        if (w->watch)
            w->watch->planned(w->watch->context, w->now_us, plan, w->sched);
        if (plan->n_rows > 0)
            run_step(w, plan);
        else if (w->n_submitted < N_REQUESTS)
            w->now_us = arrival_us(w->n_submitted);
        while (sched_next_retired(w->sched, &seq))
            if (w->watch)
                w->watch->retired(w->watch->context, seq);
    }
    /* The shadow may need longer. */
    if (w->watch)
        for (uint32_t i = 0; i < 1000; i++)
            w->watch->planned(w->watch->context, w->now_us + 100000000, plan, w->sched);
    sched_destroy(w->sched);
}

static void near(double a, double b, double tolerance)
{
    if (a < b - tolerance || a > b + tolerance)
        fail_msg("%.1f is not %.1f", a, b);
}

/* Under its own policy the shadow sees what happened; under another what that one would have done. Steps
 * take exactly what the model says, but for the microsecond that rounds them up: the smoothed ratio is
 * off by less than 1/1000 in steps of at least 1,000 us. */
static void compare_policies(const char *live, const char *other)
{
    struct world real, seen;
    struct shadow *shadow;
    struct shadow_stats stats;
    open_world(&real, other, NULL);
    run_world(&real);
    assert_int_equal(shadow_create(sched_policy_find(other), &shadow, NULL), QUIRE_OK);
    open_world(&seen, live, shadow_watch(shadow));
    run_world(&seen);
    shadow_stats(shadow, &stats);
    assert_string_equal(stats.policy, other);
    assert_int_equal(stats.n, N_REQUESTS);
    assert_int_equal(stats.n_refused, 0);
    assert_true(stats.live.ttft_us == seen.measured.ttft_us);
    assert_true(stats.live.queue_us == seen.measured.queue_us);
    near(stats.shadow.ttft_us, real.measured.ttft_us, real.measured.ttft_us * 0.002);
    near(stats.shadow.queue_us, real.measured.queue_us, real.measured.queue_us * 0.002);
    if (strcmp(live, other) != 0) { /* or it would prove nothing */
        double apart = real.measured.queue_us - seen.measured.queue_us;
        assert_true(apart * apart > 0.01 * real.measured.queue_us * real.measured.queue_us);
    }
    assert_true(stats.live.buckets[SHADOW_N_BUCKETS - 1] == N_REQUESTS);
    shadow_destroy(shadow);
}

/* A server without --cost-model: the shadow begins with the first model, and another one takes its place. */
static void test_fitted_model(void **state)
{
    (void)state;
    struct world w;
    struct shadow *shadow;
    struct shadow_stats stats;
    struct sched_cost first = cost;
    first.points[1].us = 90000; /* would be late by far */
    assert_int_equal(shadow_create(sched_policy_find("fcfs"), &shadow, NULL), QUIRE_OK);
    const struct engine_watch *watch = shadow_watch(shadow);
    open_world(&w, "fcfs", NULL);
    struct sched_config bare = w.config;
    struct sched_tenant tenant = {.weight = 3};
    bare.cost = NULL;
    bare.policy_options = (struct sched_policy_options){.n_tenants = 1, .tenants = &tenant};
    watch->opened(watch->context, NULL, &bare);
    tenant.weight = 0; /* the caller's */
    watch->cost_changed(watch->context, 1000, &first);
    watch->cost_changed(watch->context, 2000, &cost);
    w.watch = watch;
    run_world(&w);
    shadow_stats(shadow, &stats);
    assert_int_equal(stats.n, N_REQUESTS);
    near(stats.shadow.ttft_us, w.measured.ttft_us, w.measured.ttft_us * 0.002);
    shadow_destroy(shadow);
}

static void test_same_policy(void **state)
{
    (void)state;
    compare_policies("fcfs", "fcfs");
}

static void test_other_policy(void **state)
{
    (void)state;
    compare_policies("fcfs", "priority");
    compare_policies("priority", "fcfs");
}

/* The copies of cancelled requests are removed on both sides, and the rest is compared. */
static void test_cancels(void **state)
{
    (void)state;
    struct world w;
    struct shadow *shadow;
    struct shadow_stats stats;
    assert_int_equal(shadow_create(sched_policy_find("priority"), &shadow, NULL), QUIRE_OK);
    open_world(&w, "fcfs", shadow_watch(shadow));
    w.cancel_every = 10;
    run_world(&w);
    shadow_stats(shadow, &stats);
    assert_true(stats.n >= N_REQUESTS - N_REQUESTS / 10 && stats.n < N_REQUESTS);
    shadow_destroy(shadow);
}

/* A shadow that is behind may come to a request before it came: that is no wait. */
static void test_behind(void **state)
{
    (void)state;
    struct world w;
    struct shadow *shadow;
    struct shadow_stats stats;
    const struct sched_plan *plan;
    assert_int_equal(shadow_create(sched_policy_find("fcfs"), &shadow, NULL), QUIRE_OK);
    open_world(&w, "fcfs", shadow_watch(shadow));
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t prompt[MAX_PROMPT], seq;
        struct sched_request r = request(i, prompt);
        r.max_tokens = 600;
        r.arrival_us = 1000000 + i * 60000000;
        assert_int_equal(sched_submit(w.sched, &r, &seq, NULL, NULL), QUIRE_OK);
        const struct engine_watch_submit s = {.request = r.id, .sched = &r, .status = QUIRE_OK, .seqs = &seq};
        w.watch->submitted(w.watch->context, &s);
        w.now_us = r.arrival_us + 1;
        assert_int_equal(sched_plan(w.sched, w.now_us, &plan, NULL), QUIRE_OK);
        w.watch->planned(w.watch->context, w.now_us, plan, w.sched);
        w.seq_id[seq] = i;
        run_step(&w, plan);
        for (uint32_t j = 0; j < 3; j++) /* a live step of 20 s is 20,000 of the shadow's */
            w.watch->planned(w.watch->context, r.arrival_us + 20000000, plan, w.sched);
    }
    shadow_stats(shadow, &stats);
    assert_int_equal(stats.n, 2);
    assert_true(stats.shadow.queue_us < 1000000);
    sched_destroy(w.sched);
    shadow_destroy(shadow);
}

/* Without a cost model there is no clock: the policy sleeps and has no effect. */
static void test_asleep(void **state)
{
    (void)state;
    struct world w;
    struct shadow *shadow;
    struct shadow_stats stats;
    assert_int_equal(shadow_create(sched_policy_find("fcfs"), &shadow, NULL), QUIRE_OK);
    open_world(&w, "fcfs", NULL);
    w.config.cost = NULL;
    w.watch = shadow_watch(shadow);
    w.watch->opened(w.watch->context, NULL, &w.config);
    run_world(&w);
    shadow_stats(shadow, &stats);
    assert_int_equal(stats.n, 0);
    shadow_destroy(shadow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_policy), cmocka_unit_test(test_fitted_model), cmocka_unit_test(test_other_policy),
        cmocka_unit_test(test_cancels),     cmocka_unit_test(test_behind),       cmocka_unit_test(test_asleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
