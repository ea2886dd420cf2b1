/* The options of the scheduler and its results: policies, batches, pins, rejections, the host tier.
 * engine_invariance_test checks that none of it changes a bit. */
#include "base/clock.h"
#include "tests/engine/fixtures/step_options.h"
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/tiny_model.h"

#include "engine/run/state.h"
#include "engine/run/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_LEN 256u
#define BLOCK 16u

static struct tiny_model model;
static uint32_t prompts[4][MAX_LEN];

static int set_up(void **state)
{
    (void)state;
    tiny_model_plain(5, &model);
    for (uint32_t i = 0; i < 4; i++)
        client_random_prompt(prompts[i], MAX_LEN, TINY_VOCAB, 20 + i);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

static struct request_spec ask(uint32_t which, uint32_t n_prompt, uint32_t max_tokens)
{
    struct request_spec r = client_request(prompts[which], n_prompt, max_tokens);
    r.ignore_eos = true;
    return r;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Stats once they satisfy the condition. */
#define WAIT_FOR(c, stats, condition) \
    do { \
        int tries_ = 0; \
        engine_stats(client_engine(c), &(stats)); \
        for (; !(condition) && tries_ < 60000; tries_++) { \
            sleep_ms(1); \
            engine_stats(client_engine(c), &(stats)); \
        } \
        assert_true(condition); \
    } while (0)

/* ---- options --------------------------------------------------------------------------------- */

static void expect_refused(const struct engine_options *o, const char *words)
{
    struct quire_error err;
    struct client *c = client_try_open(model.dir, o, &err);
    if (c)
        fail_msg("opened, though: %s", words);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

#define REFUSED(words, ...) \
    do { \
        struct engine_options o = client_options(64); \
        __VA_ARGS__; \
        expect_refused(&o, words); \
    } while (0)

static void options_that_make_no_sense(void **state)
{
    (void)state;
    REFUSED("--scheduling-policy: must be one of fcfs, ", o.steps->scheduling_policy = "first");
    REFUSED("--batching: must be", o.steps->batching = "none");
    REFUSED("--preemption-mode: must be", o.steps->preemption_mode = "none");
    REFUSED("--prefix-cache-eviction: must be", o.prefix_cache_eviction = "fifo");
    REFUSED("--step-target-ms: must be between", o.steps->step_target_ms = -1);
    REFUSED("give --step-target-ms too", o.steps->adaptive_budget = true);
    REFUSED("give --batching dynamic", o.steps->max_wait_ms = 5);
    REFUSED("--max-wait-ms: must be between", o.steps->batching = "dynamic", o.steps->max_wait_ms = 1e9);
    REFUSED("--max-num-seqs instead", o.steps->max_batch_size = 4);
    REFUSED("--class-batch-size applies to", o.steps->class_batch_size[7] = 4);
    REFUSED("--class-max-wait-ms limits", o.steps->batching = "static", o.steps->class_wait_us[7] = 4);
    REFUSED("--adaptive-batching corrects", o.steps->batching = "static", o.steps->adaptive_batches = true);
    REFUSED("give --swap-space", o.steps->preemption_mode = "swap");
    REFUSED("which is off", o.prefix_caching = false, o.prefix_cache_eviction = "reuse");
    REFUSED("which is off", o.prefix_caching = false, o.swap_space = 1 << 20);
    REFUSED("at least ", o.swap_space = 100);
    REFUSED("--max-pinned-percent", o.steps->max_pinned_percent = 101);
    REFUSED("--cost-model: points[0].n_tokens", o.steps->cost.n_points = 1);
    REFUSED("tenants: at most", o.steps->policy_options.n_tenants = SCHED_MAX_TENANTS + 1);
}

/* Every option reaches the scheduler in its unit. */
static void options_that_do(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct sched_config c;
    o.steps->scheduling_policy = "priority";
    o.steps->cost = (struct sched_cost){.n_points = 1, .points = {{.n_tokens = 1, .us = 10}}};
    o.steps->step_target_ms = 12.5;
    o.steps->adaptive_budget = true;
    o.steps->batching = "dynamic";
    o.steps->max_batch_size = 3;
    o.steps->max_wait_ms = 0.25;
    o.steps->class_batch_size[2] = 9;
    o.steps->class_wait_us[3] = 700;
    o.steps->adaptive_batches = true;
    o.steps->preemption_mode = "recompute";
    o.prefix_cache_eviction = "reuse";
    o.steps->long_prefill_token_threshold = 40;
    o.steps->max_partial_prefills = 2;
    o.steps->max_pinned_percent = 30;
    o.steps->policy_options.n_tenants = 7;
    o.steps->policy_options.ageing_us = 11;
    assert_int_equal(schedule_config(&o, &c, NULL), QUIRE_OK);
    assert_string_equal(c.policy->name, "priority");
    assert_int_equal(c.step_target_us, 12500);
    assert_true(c.adaptive_budget);
    assert_int_equal(c.batching, SCHED_DYNAMIC);
    assert_int_equal(c.max_batch_size, 3);
    assert_int_equal(c.max_wait_us, 250);
    assert_int_equal(c.class_batch_size[2], 9);
    assert_int_equal(c.class_wait_us[3], 700);
    assert_true(c.adaptive_batches);
    assert_int_equal(c.preemption, SCHED_PREEMPT_RECOMPUTE);
    assert_int_equal(c.kv.eviction, KV_EVICT_REUSE);
    assert_true(c.kv.prefix_caching);
    assert_int_equal(c.kv.n_tenants, 7);
    assert_int_equal(c.long_prefill_token_threshold, 40);
    assert_int_equal(c.max_partial_prefills, 2);
    assert_int_equal(c.max_pinned_percent, 30);
    assert_int_equal(c.policy_options.ageing_us, 11);
    assert_int_equal(c.cost->n_points, 1);
    o.steps->step_target_ms = 1e-9; /* small, but a target all the same */
    assert_int_equal(schedule_config(&o, &c, NULL), QUIRE_OK);
    assert_int_equal(c.step_target_us, 1);
    /* Pins: half of the blocks by default, and none with 0. */
    o = client_options(64);
    assert_int_equal(schedule_config(&o, &c, NULL), QUIRE_OK);
    assert_int_equal(c.max_pinned_percent, 50);
    o.steps->max_pinned_percent = 0;
    assert_int_equal(schedule_config(&o, &c, NULL), QUIRE_OK);
    assert_int_equal(c.max_pinned_percent, SCHED_NO_PINS);
}

static void requests_that_make_no_sense(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.steps->policy_options.n_tenants = 2;
    struct client *c = client_open(model.dir, &o);
    struct request_spec good = ask(0, 20, 2);
    good.tenant = 1;
    good.class_index = SCHED_MAX_CLASSES - 1;
    good.deadline_us = (uint64_t)1 << 50;
    client_ask(c, &good);
    struct request_spec bad[4] = {good, good, good, good};
    const char *const named[4] = {"tenant:", "class:", "deadline:", "pin:"};
    bad[0].tenant = 2;
    bad[1].class_index = SCHED_MAX_CLASSES;
    bad[2].deadline_us = UINT64_MAX;
    bad[3].pin_us = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        struct quire_error err;
        int status;
        assert_null(client_try(c, &bad[i], &status, NULL, &err));
        assert_int_equal(status, QUIRE_INVALID);
        assert_memory_equal(err.text, named[i], strlen(named[i]));
    }
    client_close(c);
}

/* ---- the host tier --------------------------------------------------------------------------- */

static void the_tier_is_planned_to_the_byte(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.num_kv_blocks = 40;
    struct client *c = client_open(model.dir, &o);
    struct engine_plan without = *engine_info(client_engine(c))->plan;
    assert_int_equal(without.bytes[PLAN_SWAP], 0);
    assert_int_equal(without.groups[0].n_host_blocks, 0);
    client_close(c);
    o.swap_space = 10 * without.kv_block_bytes + 5; /* a partial block is not used */
    c = client_open(model.dir, &o);
    const struct engine_plan *with = engine_info(client_engine(c))->plan;
    assert_int_equal(with->groups[0].n_host_blocks, 10);
    assert_int_equal(with->bytes[PLAN_SWAP], 10 * without.kv_block_bytes);
    assert_int_equal(engine_plan_total_bytes(with), engine_plan_total_bytes(&without) + with->bytes[PLAN_SWAP]);
    client_close(c);
}

/* A prompt that was given up by a small pool comes back from the tier, with the bits it had. */
static void a_prefix_comes_back(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.num_kv_blocks = 12;
    o.max_model_len = 12 * BLOCK;
    o.swap_space = 64 << 20;
    struct client *c = client_open(model.dir, &o);
    struct request_spec first = ask(0, 160, 4), other = ask(1, 160, 4);
    first.n_logprobs = 5;
    const struct answer *alone = client_ask(c, &first);
    client_ask(c, &other);
    const struct answer *again = client_ask(c, &first);
    assert_true(answers_equal(alone, again));
    assert_int_equal(alone->choices[0].account.n_loaded, 0);
    assert_true(again->choices[0].account.n_loaded >= 4 * BLOCK);
    assert_int_equal(again->choices[0].n_cached, 9 * BLOCK); /* as if nothing had been given up */
    struct engine_stats stats = client_idle_stats(c);
    assert_true(stats.n_swapped_out > 0);
    assert_true(stats.n_swapped_in * BLOCK >= again->choices[0].account.n_loaded);
    assert_int_equal(stats.n_host_hits, again->choices[0].account.n_loaded);
    assert_true(stats.swap_usage > 0 && stats.swap_usage <= 1);
    assert_int_equal(stats.n_blocks_leaked, 0);
    client_close(c);
}

/* Looks at every copy: pairs of one call may be done in any order, so no block is filled twice. */
static const struct k_backend_ops *whole_ops;
static uint32_t n_pairs_seen, n_calls_seen, n_filled_twice;

static int watched_copy(struct k_backend *b, const struct k_kv_copy_args *a, struct quire_error *err)
{
    for (uint32_t i = 0; i < a->n_pairs; i++)
        for (uint32_t j = 0; j < i; j++)
            n_filled_twice += a->pairs[i].to == a->pairs[j].to;
    n_pairs_seen += a->n_pairs;
    n_calls_seen++;
    return whole_ops->kv_copy(b, a, err);
}

static void moves_are_copied_in_runs(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.num_kv_blocks = 12;
    o.max_model_len = 12 * BLOCK;
    struct client *c = client_open(model.dir, &o);
    o.swap_space = 3 * engine_info(client_engine(c))->plan->kv_block_bytes;
    client_close(c);
    c = client_open(model.dir, &o);
    struct k_backend *backend = client_engine(c)->backend;
    whole_ops = backend->ops;
    struct k_backend_ops watched = *whole_ops;
    watched.kv_copy = watched_copy;
    backend->ops = &watched; /* the engine thread sleeps until the first submit */
    n_pairs_seen = n_calls_seen = n_filled_twice = 0;
    for (uint32_t i = 0; i < 4; i++) { /* a step of ten new blocks pushes more out than the tier holds */
        struct request_spec r = ask(i, 160, 2);
        client_ask(c, &r);
    }
    struct engine_stats stats = client_idle_stats(c);
    uint32_t n_layers = engine_info(client_engine(c))->desc->config->n_layers;
    assert_true(stats.n_swapped_out > 10);
    assert_int_equal(n_pairs_seen, (stats.n_swapped_out + stats.n_swapped_in) * n_layers);
    assert_true(n_calls_seen < n_pairs_seen);
    assert_int_equal(n_filled_twice, 0);
    client_close(c);
}

/* ---- policies -------------------------------------------------------------------------------- */

static void another_policy_while_it_runs(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 1;
    struct client *c = client_open(model.dir, &o);
    struct engine_stats stats;
    struct quire_error err;
    uint64_t order;
    engine_stats(client_engine(c), &stats); /* known before anything has run */
    assert_string_equal(stats.policy, "fcfs");
    assert_int_equal(engine_set_policy(client_engine(c), "first", NULL, &order, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "fcfs, priority"));

    struct request_spec running = ask(0, 20, 40), late = ask(1, 20, 2), urgent = ask(2, 20, 2);
    late.priority = 5;
    urgent.priority = -5;
    client_pause(c);
    const struct answer *a = client_submit(c, &running);
    client_wait_paused(c);
    const struct answer *b = client_submit(c, &late), *d = client_submit(c, &urgent);
    assert_int_equal(engine_set_policy(client_engine(c), "priority", NULL, &order, &err), QUIRE_OK);
    client_resume(c);
    client_wait_order(c, order);
    engine_stats(client_engine(c), &stats);
    assert_string_equal(stats.policy, "priority");
    client_wait(c, a);
    client_wait(c, b);
    client_wait(c, d);
    assert_int_equal(b->choices[0].account.n_overtaken, 1);
    assert_int_equal(d->choices[0].account.n_overtaken, 0);
    assert_int_equal(d->choices[0].account.blocker, a->id);
    assert_int_equal(b->choices[0].account.blocker, d->id);
    client_close(c);
}

static void background_gives_way(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 1;
    struct client *c = client_open(model.dir, &o);
    struct request_spec running = ask(0, 20, 10), warming = ask(1, 20, 2), live = ask(2, 20, 2);
    warming.background = true;
    warming.priority = -100;
    client_pause(c);
    const struct answer *a = client_submit(c, &running);
    client_wait_paused(c);
    const struct answer *b = client_submit(c, &warming), *d = client_submit(c, &live);
    client_resume(c);
    client_wait(c, a);
    client_wait(c, b);
    client_wait(c, d);
    assert_int_equal(b->choices[0].account.n_overtaken, 1);
    assert_true(d->choices[0].account.admitted_us < b->choices[0].account.admitted_us);
    client_close(c);
}

/* A policy that refuses class 7 when it comes, class 6 once it has waited for a plan, and class 5
 * unless its deadline is 1 s after its arrival. */
static uint64_t refuse_some(void *state, const struct sched_candidate *q, const struct sched_load *load)
{
    (void)state;
    bool is_new = load->now_us == q->arrival_us;
    if (q->class_index == 5)
        return q->deadline_us != q->arrival_us + 1000000;
    return q->class_index == 7 || (q->class_index == 6 && !is_new) ? 1500 : 0;
}
static const struct sched_policy refusing = {.name = "refusing", .about = "", .refuse = refuse_some};

static void refused_by_the_policy(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    /* The engine thread sleeps until the first submit. */
    assert_int_equal(sched_set_policy(client_engine(c)->run->sched, &refusing, &(struct sched_policy_options){0}, NULL),
                     QUIRE_OK);
    for (uint32_t class_index = 7; class_index >= 6; class_index--) {
        struct request_spec r = ask(0, 40, 5);
        r.n = 3;
        r.class_index = class_index;
        const struct answer *a = client_ask(c, &r);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(a->choices[i].finish, ENGINE_FINISH_REFUSED);
            assert_int_equal(a->choices[i].retry_after_ms, 2); /* rounded up */
            assert_int_equal(a->choices[i].n_tokens, 0);
            assert_int_equal(a->choices[i].n_cache_created, 0);
            assert_int_equal(a->choices[i].account.admitted_us, 0);
            assert_true(a->choices[i].account.arrival_us > 0);
        }
    }
    struct request_spec r = ask(0, 40, 5);
    r.class_index = 5;
    r.deadline_us = 1000000;
    assert_int_equal(client_ask(c, &r)->choices[0].finish, ENGINE_FINISH_LENGTH);
    struct engine_stats stats = client_idle_stats(c);
    assert_int_equal(stats.n_refused, 2);
    assert_int_equal(stats.n_blocks_leaked, 0);
    client_close(c);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void a_dynamic_batch_waits_asleep(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.steps->batching = "dynamic";
    o.steps->max_batch_size = 2;
    o.steps->max_wait_ms = 1000;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask(0, 20, 2);
    const uint64_t begun = quire_now_ms();
    bool waited = false;
    /* The time before the first plan does not count as waiting for a batch, and is long where the engine's thread does
     * not run at once: then another request is asked. */
    while (!waited && quire_now_ms() - begun < 120000) {
        double cpu = cpu_seconds();
        const struct answer *alone = client_ask(c, &r);
        cpu = cpu_seconds() - cpu;
        const struct engine_account *a = &alone->choices[0].account;
        assert_true(a->admitted_us - a->arrival_us >= 1000000);
        waited = a->queue_batch_us >= 900000 && cpu < 0.5; /* asleep for half of the time, under any sanitizer */
    }
    assert_true(waited);
    client_close(c);

    o.steps->max_wait_ms = 600000; /* a full batch does not wait */
    c = client_open(model.dir, &o);
    const struct answer *first = client_submit(c, &r), *second = client_submit(c, &r);
    client_wait(c, first);
    client_wait(c, second);
    assert_true(first->choices[0].account.admitted_us - first->choices[0].account.arrival_us < 600000000);
    client_close(c);
}

static void a_static_batch_waits_to_be_full(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.steps->batching = "static";
    o.steps->max_batch_size = 3;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask(0, 20, 2);
    struct engine_stats stats;
    const struct answer *a[4];
    for (int i = 0; i < 2; i++)
        a[i] = client_submit(c, &r);
    WAIT_FOR(c, stats, stats.n_waiting == 2);
    sleep_ms(100);
    engine_stats(client_engine(c), &stats);
    assert_int_equal(stats.n_waiting, 2);
    assert_false(stats.dead);
    a[2] = client_submit(c, &r);
    for (int i = 0; i < 3; i++)
        client_wait(c, a[i]);

    a[3] = client_submit(c, &r); /* no other request joins it */
    engine_no_more(client_engine(c));
    client_wait(c, a[3]);
    a[3] = client_submit(c, &r);
    engine_drain(client_engine(c));
    client_wait(c, a[3]);
    client_close(c);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void flood(struct client *c)
{
    for (uint32_t i = 1; i < 4; i++) {
        struct request_spec r = ask(i, 160, 2);
        client_ask(c, &r);
    }
}

static void a_pin_outlives_a_flood(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.num_kv_blocks = 16;
    o.max_model_len = 12 * BLOCK;
    o.steps->policy_options.n_tenants = 2;
    struct client *c = client_open(model.dir, &o);
    struct request_spec pin = ask(0, 50, 0), use = ask(0, 60, 2);
    struct engine_stats stats;
    pin.pin_us = 600000000;
    pin.tenant = use.tenant = 1;
    const struct answer *a = client_ask(c, &pin);
    assert_int_equal(a->choices[0].n_cache_created, 3 * BLOCK);
    WAIT_FOR(c, stats, stats.n_pins == 1);
    assert_int_equal(stats.n_pinned_blocks, 3);
    flood(c);
    a = client_ask(c, &use);
    assert_int_equal(a->choices[0].n_cached, 3 * BLOCK);
    assert_int_equal(a->choices[0].n_cache_created, 0);
    assert_int_equal(client_idle_stats(c).n_blocks_leaked, 0);

    engine_unpin(client_engine(c), 0); /* another tenant's */
    flood(c);
    engine_stats(client_engine(c), &stats);
    assert_int_equal(stats.n_pins, 1);
    client_wait_order(c, engine_unpin(client_engine(c), 1));
    engine_stats(client_engine(c), &stats);
    assert_int_equal(stats.n_pins, 0);
    flood(c);
    a = client_ask(c, &use);
    assert_int_equal(a->choices[0].n_cached, 0);
    assert_int_equal(a->choices[0].n_cache_created, 3 * BLOCK);
    client_close(c);
}

static void what_was_cached_and_created(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask(0, 50, 1); /* its only token comes with the prompt's end */
    r.n = 2;
    const struct answer *a = client_ask(c, &r);
    assert_int_equal(a->choices[0].n_cache_created, 3 * BLOCK);
    assert_int_equal(a->choices[1].n_cache_created, 0);
    r = ask(0, 100, 3);
    a = client_ask(c, &r);
    assert_int_equal(a->choices[0].n_cached, 3 * BLOCK);
    assert_int_equal(a->choices[0].n_cache_created, 3 * BLOCK);
    client_close(c);
    o.prefix_caching = false;
    c = client_open(model.dir, &o);
    a = client_ask(c, &r);
    assert_int_equal(a->choices[0].n_cached, 0);
    assert_int_equal(a->choices[0].n_cache_created, 0);
    client_close(c);
}

static void tenants_have_counters(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.steps->policy_options.n_tenants = 3;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask(0, 50, 4);
    r.tenant = 2;
    client_ask(c, &r);
    client_ask(c, &r);
    client_idle_stats(c);
    struct engine_tenant_stats t;
    assert_int_equal(engine_tenant_stats(client_engine(c), 2, &t), QUIRE_OK);
    assert_int_equal(t.n_prompt_tokens, 50 + 2);
    assert_int_equal(t.n_generated_tokens, 8);
    assert_int_equal(t.n_prefix_queries, 100);
    assert_int_equal(t.n_prefix_hits, 3 * BLOCK);
    assert_int_equal(t.n_running + t.n_waiting, 0);
    assert_int_equal(engine_tenant_stats(client_engine(c), 1, &t), QUIRE_OK);
    assert_int_equal(t.n_prompt_tokens, 0);
    assert_int_equal(engine_tenant_stats(client_engine(c), 3, &t), QUIRE_INVALID);
    client_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_make_no_sense),
        cmocka_unit_test(options_that_do),
        cmocka_unit_test(requests_that_make_no_sense),
        cmocka_unit_test(the_tier_is_planned_to_the_byte),
        cmocka_unit_test(a_prefix_comes_back),
        cmocka_unit_test(moves_are_copied_in_runs),
        cmocka_unit_test(another_policy_while_it_runs),
        cmocka_unit_test(background_gives_way),
        cmocka_unit_test(refused_by_the_policy),
        cmocka_unit_test(a_dynamic_batch_waits_asleep),
        cmocka_unit_test(a_static_batch_waits_to_be_full),
        cmocka_unit_test(a_pin_outlives_a_flood),
        cmocka_unit_test(what_was_cached_and_created),
        cmocka_unit_test(tenants_have_counters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
