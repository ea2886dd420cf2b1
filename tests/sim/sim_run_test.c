#include "tests/sim/sim_test.h"

#include "tools/sim/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A step of n tokens takes 999 + n microseconds. */
static const struct sched_cost by_tokens = {.n_points = 2, .points = {{1, 1000}, {1001, 2000}}};

static struct sched_config sched; /* of the last setup */

static struct sim_setup setup_of(uint32_t budget)
{
    sched = (struct sched_config){.kv = {.block_tokens = 16, .prefix_caching = true},
                                  .max_num_seqs = 8,
                                  .max_num_batched_tokens = budget,
                                  .policy = sched_policy_find("fcfs")};
    return (struct sim_setup){.cost = by_tokens, .sched = &sched};
}

static struct sim_tenant tenants[2] = {{.name = "a", .weight = 1}, {.name = "b", .weight = 2}};

/* A workload of these requests. */
static struct sim_workload workload_of(struct sim_request *requests, size_t n, uint32_t n_tenants)
{
    struct sim_workload t = {.requests = requests,
                             .n = n,
                             .tenants = tenants,
                             .n_tenants = n_tenants,
                             .n_domains = n_tenants,
                             .hash_tokens = 16};
    for (size_t i = 0; i < n; i++) {
        uint32_t total = requests[i].n_prompt + requests[i].n_output;
        requests[i].domain = requests[i].tenant;
        t.max_prompt = requests[i].n_prompt > t.max_prompt ? requests[i].n_prompt : t.max_prompt;
        t.max_total = total > t.max_total ? total : t.max_total;
    }
    return t;
}

static struct sim_result run(const struct sim_setup *setup, const struct sim_workload *workload)
{
    struct sim_result result;
    struct quire_error err;
    if (sim_run(setup, workload, &result, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return result;
}

static void check_times(const struct sim_result *r, size_t i, double ttft, double e2el)
{
    const struct sim_record *record = &r->records[i];
    assert_int_equal(record->fate, SIM_DONE);
    if (fabs(record->first_us - record->arrival_us - ttft) > 1e-3 ||
        fabs(record->last_us - record->arrival_us - e2el) > 1e-3)
        fail_msg("request %zu: first token after %.3f and not %.3f, end after %.3f and not %.3f", i,
                 record->first_us - record->arrival_us, ttft, record->last_us - record->arrival_us, e2el);
}

/* By hand: a's prompt of 100 takes 1,099 and gives a token. b arrives at 500 and is seen at 1,099: a's next token and
 * b's prompt of 50 are one step of 1,050. The last step has two tokens. */
static void a_step_takes_what_its_shape_costs(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 3},
                                     {.arrival_s = 500e-6, .n_prompt = 50, .n_output = 2}};
    const struct sim_workload t = workload_of(requests, 2, 1);
    const struct sim_setup s = setup_of(2048);
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 1099, 3150);
    check_times(&r, 1, 1649, 2650);
    assert_int_equal(r.stats.n_steps, 3);
    assert_true(fabs(r.records[1].admitted_us - r.records[1].arrival_us - 599) < 1e-3);
    /* Slots: a holds 7 blocks of 16 for 100, 101, 102 tokens; b 4 blocks for 50, 51. */
    double held = 112 * 1099 + (112 + 64) * 1050 + (112 + 64) * 1001;
    double empty = 12 * 1099 + (11 + 14) * 1050 + (10 + 13) * 1001;
    assert_true(fabs(r.watch->slots_unshared - held) < 1e-3 * held);
    assert_true(fabs(r.watch->slots - held) < 1e-6 * held);
    assert_true(fabs(r.watch->slots_empty - empty) < 1e-6 * empty);
    assert_int_equal(r.watch->itl.n, 3);
    const struct sim_bounds bounds = {.ms = {INFINITY, INFINITY, INFINITY, INFINITY}};
    struct sim_metrics m;
    assert_int_equal(sim_metrics_compute(&t, &r, &bounds, &m, NULL), QUIRE_OK);
    assert_false(m.has_bounds);
    assert_true(fabs(m.all.latency[SIM_TTFT].mean - (1.099 + 1.649) / 2) < 1e-9);
    assert_true(fabs(m.all.latency[SIM_QUEUE].mean - 0.599 / 2) < 1e-9);
    assert_true(fabs(m.all.latency[SIM_TPOT].mean - (2.051 / 2 + 1.001) / 2) < 1e-9);
    assert_true(fabs(m.all.latency[SIM_E2EL].p50 - (3.150 + 2.650) / 2) < 1e-9);
    assert_true(fabs(m.duration_s - 3150e-6) < 1e-12);
    sim_metrics_free(&m);
    sim_result_free(&r);
}

/* A step that is planned while another one runs cannot include requests that arrive meanwhile: b's prompt is in the
 * third step, which begins at 2,099. */
static void with_overlap_the_next_step_is_planned_ahead(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 3},
                                     {.arrival_s = 500e-6, .n_prompt = 50, .n_output = 2}};
    const struct sim_workload t = workload_of(requests, 2, 1);
    struct sim_setup s = setup_of(2048);
    sched.overlap_depth = 1;
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 1099, 3149);
    check_times(&r, 1, 2649, 3649);
    sim_result_free(&r);
}

/* By hand: a prompt of 300 is a step of 256 without logits and one of 44. The first passes in four micro-batches of 64,
 * 531.5 in each stage and 42 from one to the other: the stages run in step until the last one, which leaves the first
 * stage at 2,294 and the second at 2,825.5. So the second step, 521.5 in each and 32 between, begins at 2,294, waits
 * for the second stage, and has its logits after 521.5 + 7 + 13 more. A token then passes one stage after the other. */
static void stages_overlap_where_nothing_is_drawn(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 300, .n_output = 2}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    struct sim_setup s = setup_of(256);
    s.cost.logit_us = 7;
    s.stages = (struct sim_stages){
        .n = 2, .micro_batch_tokens = 64, .share = {0.5, 0.5}, .call_us = 10, .token_us = 0.5, .logit_us = 3};
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 2825.5 + 32 + 521.5 + 7 + 13, 3399 + 500 + 10.5 + 500 + 7 + 13);
    sim_result_free(&r);
    sched.max_num_batched_tokens = 127; /* a micro-batch per step, the third of 46 tokens */
    s.stages.share[0] = 0.25;
    s.stages.share[1] = 0.75;
    r = run(&s, &t);
    const double second = 0.75 * 1126, between = 10 + 63.5;
    check_times(&r, 0, 0.25 * 1126 + 2 * (between + second) + 33 + 0.75 * 1045 + 7 + 13,
                0.25 * 1126 + 2 * (between + second) + 33 + 0.75 * 1045 + 20 + 1000 + 10.5 + 20);
    sim_result_free(&r);
}

/* An idle engine begins a step when a request arrives. */
static void an_idle_engine_waits_for_arrivals(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 1, .n_output = 1},
                                     {.arrival_s = 2, .n_prompt = 1, .n_output = 1}};
    const struct sim_workload t = workload_of(requests, 2, 1);
    const struct sim_setup s = setup_of(2048);
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 1000, 1000);
    check_times(&r, 1, 1000, 1000);
    assert_true(fabs(r.ended_us - r.began_us - 2001000) < 1e-3);
    sim_result_free(&r);
}

/* A dynamic batch begins when it is full or when its first request has waited long enough; nothing else happens then.
 */
static void the_clock_goes_to_what_a_batch_waits_for(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 1, .n_output = 1},
                                     {.arrival_s = 9, .n_prompt = 1, .n_output = 1}};
    const struct sim_workload t = workload_of(requests, 2, 1);
    struct sim_setup s = setup_of(2048);
    sched.batching = SCHED_DYNAMIC;
    sched.max_batch_size = 2;
    sched.max_wait_us = 50000;
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 51000, 51000);
    sim_result_free(&r);
    sched.batching = SCHED_STATIC;
    r = run(&s, &t);
    check_times(&r, 0, 9001001, 9001001);
    check_times(&r, 1, 1001, 1001);
    sim_result_free(&r);
}

/* Requests beyond the queue's limit are rejected, without an effect on the others. */
static void a_full_queue_refuses(void **state)
{
    (void)state;
    struct sim_request requests[6];
    for (size_t i = 0; i < 6; i++)
        requests[i] = (struct sim_request){.n_prompt = 10, .n_output = 2};
    const struct sim_workload t = workload_of(requests, 6, 1);
    struct sim_setup s = setup_of(2048);
    struct sim_metrics m;
    const struct sim_bounds bounds = {.ms = {1.05, INFINITY, INFINITY, INFINITY}};
    sched.max_queued_requests = 4;
    struct sim_result r = run(&s, &t);
    assert_int_equal(sim_metrics_compute(&t, &r, &bounds, &m, NULL), QUIRE_OK);
    assert_int_equal(m.all.n_done, 4);
    assert_int_equal(m.all.n_refused, 2);
    assert_int_equal(m.all.n_good, 4); /* 40 tokens: 1.039 ms */
    assert_true(fabs(m.all.latency[SIM_TTFT].mean - 1.039) < 1e-9);
    assert_true(fabs(m.all.latency[SIM_TPOT].p99 - 1.003) < 1e-9);
    assert_true(fabs(sim_goodput(&m, &m.all) - 4 / 2.042e-3) < 1e-6);
    sim_metrics_free(&m);
    sim_result_free(&r);
}

/* Preempted requests finish, and the second run is identical. */
static void what_is_preempted_ends_and_runs_repeat(void **state)
{
    (void)state;
    struct sim_request requests[40];
    for (size_t i = 0; i < 40; i++)
        requests[i] = (struct sim_request){
            .arrival_s = 1e-3 * (double)i, .n_prompt = 20 + (uint32_t)i, .n_output = 60, .tenant = i % 2};
    const struct sim_workload t = workload_of(requests, 40, 2);
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct sim_setup s = setup_of(64);
        sched.kv.groups[0].n_blocks = 24;
        sched.overlap_depth = depth;
        struct sim_result a = run(&s, &t), b = run(&s, &t);
        uint64_t n_preemptions = 0;
        for (size_t i = 0; i < 40; i++) {
            assert_int_equal(a.records[i].fate, SIM_DONE);
            assert_int_equal(a.records[i].n_generated, 60);
            assert_true(a.records[i].last_us == b.records[i].last_us);
            n_preemptions += a.records[i].n_preemptions;
        }
        assert_true(n_preemptions > 0);
        assert_int_equal(n_preemptions, a.stats.n_preemptions);
        assert_memory_equal(&a.decisions, &b.decisions, sizeof a.decisions);
        /* Every prompt token is computed once for its tenant, and every answer token costs two; b has weight 2. */
        double service[2] = {0};
        for (size_t i = 0; i < 40; i++)
            service[i % 2] += (double)(requests[i].n_prompt - a.records[i].n_cached) + 2 * 60;
        assert_true(a.watch->tokens.service[0] == service[0]);
        assert_true(a.watch->tokens.service[1] == service[1] / 2);
        sim_result_free(&a);
        sim_result_free(&b);
    }
}

/* A stop before max_tokens ends a request, also if a row past it was already launched. */
static void answers_stop_before_max_tokens(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 3}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct sim_setup s = setup_of(2048);
        s.max_tokens = 50;
        sched.overlap_depth = depth;
        struct sim_result r = run(&s, &t);
        check_times(&r, 0, 1099, 3099);
        assert_int_equal(r.records[0].n_generated, 3);
        sim_result_free(&r);
    }
}

/* The second prompt finds the first one's full blocks, except for the last token's. */
static void equal_prefixes_are_hit(void **state)
{
    (void)state;
    static const uint64_t hashes[] = {1, 2, 3, 4};
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 60, .n_output = 1, .hashes = hashes, .n_hashes = 4},
                                     {.arrival_s = 1, .n_prompt = 64, .n_output = 1, .hashes = hashes, .n_hashes = 4},
                                     {.arrival_s = 2, .n_prompt = 64, .n_output = 1, .hashes = hashes, .n_hashes = 4}};
    struct sim_workload t = workload_of(requests, 3, 2);
    struct sim_setup s = setup_of(2048);
    struct sim_result r = run(&s, &t);
    assert_int_equal(r.n_cached_tokens, 48 + 48);
    assert_int_equal(r.n_prompt_tokens, 188);
    assert_int_equal(r.n_cached_blocks, 6);
    assert_int_equal(r.n_prompt_blocks, 3 + 4 + 4);
    sim_result_free(&r);
    requests[1].tenant = requests[1].domain = 1; /* caches are not shared */
    r = run(&s, &t);
    assert_int_equal(r.n_cached_tokens, 48);
    sim_result_free(&r);
    requests[1].tenant = requests[1].domain = 0;
    s.one_by_one = true;
    for (size_t i = 0; i < 3; i++)
        requests[i].n_prompt = 65;
    t = workload_of(requests, 3, 2);
    r = run(&s, &t);
    assert_int_equal(r.n_cached_blocks, 8);
    assert_int_equal(r.n_prompt_blocks, 12);
    sim_result_free(&r);
}

static void impossible_pools_are_refused(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 3}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    struct sim_setup s = setup_of(2048);
    struct sim_result r;
    struct quire_error err;
    sched.kv.groups[0].n_blocks = 6;
    assert_int_equal(sim_run(&s, &t, &r, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "--num-kv-blocks"));
    sim_result_free(&r);
    sched.kv.groups[0].n_blocks = 7;
    r = run(&s, &t);
    sim_result_free(&r);
}

/* Separate statistics for each tenant and class, over their own requests only. */
static void groups_are_apart(void **state)
{
    (void)state;
    struct sim_request requests[] = {
        {.arrival_s = 0, .n_prompt = 10, .n_output = 1},
        {.arrival_s = 1, .n_prompt = 20, .n_output = 3, .tenant = 1, .class_index = 7, .deadline_ms = 1.018},
        {.arrival_s = 2, .n_prompt = 30, .n_output = 2, .class_index = 7},
    };
    const struct sim_workload t = workload_of(requests, 3, 2);
    const struct sim_setup s = setup_of(2048);
    const struct sim_bounds bounds = {.ms = {INFINITY, INFINITY, INFINITY, INFINITY}, .class_ttft_ms = {[7] = 1.029}};
    struct sim_result r = run(&s, &t);
    struct sim_metrics m;
    assert_int_equal(sim_metrics_compute(&t, &r, &bounds, &m, NULL), QUIRE_OK);
    assert_true(m.has_bounds);
    assert_int_equal(m.tenants[0].n, 2);
    assert_true(fabs(m.tenants[0].latency[SIM_TTFT].mean - (1.009 + 1.029) / 2) < 1e-9);
    assert_true(fabs(m.tenants[1].latency[SIM_TTFT].mean - 1.019) < 1e-9);
    assert_true(fabs(m.classes[7].latency[SIM_TTFT].p50 - (1.019 + 1.029) / 2) < 1e-9);
    assert_int_equal(m.classes[0].n, 1);
    assert_int_equal(m.classes[3].n, 0);
    assert_int_equal(m.tenants[1].n_good, 0); /* its own deadline, not its class's target */
    assert_int_equal(m.tenants[0].n_good, 2);
    assert_true(fabs(m.tenants[1].latency[SIM_ITL].p50 - 1.0) < 0.002);
    assert_true(m.tenants[1].latency[SIM_ITL].mean == 1.0);
    json_t *json = sim_metrics_json(&m, "fcfs");
    static const char *const keys[] = {"prefix_hit_rate_blocks",
                                       "prefix_hit_rate_tokens",
                                       "ttft_ms",
                                       "tpot_ms",
                                       "itl_ms",
                                       "e2el_ms",
                                       "queue_ms",
                                       "goodput",
                                       "preemptions",
                                       "fairness_gap_tokens",
                                       "fairness_gap_ms",
                                       "per_tenant",
                                       "per_class",
                                       "decision_log_sha256",
                                       "kv_waste",
                                       "refused",
                                       "steps",
                                       "duration"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_object_get(json, keys[i]))
            fail_msg("no %s", keys[i]);
    assert_non_null(
        json_object_get(json_object_get(json_object_get(json_object_get(json, "per_tenant"), "b"), "queue_ms"), "p95"));
    json_decref(json);
    sim_metrics_free(&m);
    sim_result_free(&r);
}

/* ---- drafts ---- */

static struct sim_setup guessing(uint32_t most, double chance)
{
    struct sim_setup s = setup_of(2048);
    s.max_drafts = most;
    s.acceptance = (struct sim_acceptance){.n = 1, .chance = {chance}};
    return s;
}

/* By hand: the prompt takes 1,099 and gives the first of 9 tokens. Three drafts make a row of 4 and a step of 1,003. If
 * all are accepted, two such steps give 8 tokens; if none is, each gives one, and no draft exceeds the last token. */
static void a_draft_costs_its_place_in_the_step(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 9}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    for (uint32_t depth = 0; depth < 2; depth++) { /* gated by the host: nothing is planned ahead */
        struct sim_setup right = guessing(3, 1), wrong = guessing(3, 0);
        sched.overlap_depth = depth;
        struct sim_result r = run(&right, &t);
        check_times(&r, 0, 1099, 1099 + 2 * 1003);
        assert_int_equal(r.records[0].n_generated, 9);
        assert_int_equal(r.drafts.n_rows, 2);
        assert_int_equal(r.drafts.n_accepted, 6);
        assert_int_equal(r.drafts.accepted[2], 2);
        assert_int_equal(r.drafts.n_tokens, 9);
        assert_int_equal(r.drafts.n_sampled, 3);
        assert_true(r.watch->tokens.service[0] == 100 + 2 * 9);
        assert_int_equal(r.watch->itl.n, 8); /* the three that arrive with another one have no gap before them */
        assert_true(sim_histogram_quantile(&r.watch->itl, 50) == 0);
        sim_result_free(&r);
        r = run(&wrong, &t);
        check_times(&r, 0, 1099, 1099 + 5 * 1003 + 1002 + 1001 + 1000);
        assert_int_equal(r.drafts.n_drafts, 5 * 3 + 2 + 1);
        assert_int_equal(r.drafts.n_accepted, 0);
        assert_int_equal(r.drafts.tried[0], 7);
        assert_int_equal(r.drafts.tried[1], 0);
        sim_result_free(&r);
    }
}

/* The draft model's passes run between the steps: 100 for one token, 1 more for each further one. The first computes
 * the prompt and its token, 101, and gives a draft; two more give one each. Then two tokens are new: its last draft,
 * which it did not compute itself, and the one after it. */
static void a_draft_model_takes_its_time(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 9}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    struct sim_setup s = guessing(3, 1);
    s.draft_cost = (struct sched_cost){.n_points = 2, .points = {{1, 100}, {101, 200}}};
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 1099, 1099 + 200 + 2 * 100 + 1003 + 101 + 2 * 100 + 1003);
    sim_result_free(&r);
}

/* A stop among accepted drafts: nothing after it is output. */
static void an_answer_stops_among_its_drafts(void **state)
{
    (void)state;
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 4}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    struct sim_setup s = guessing(8, 1);
    s.max_tokens = 50;
    struct sim_result r = run(&s, &t);
    check_times(&r, 0, 1099, 1099 + 1008);
    assert_int_equal(r.records[0].n_generated, 4);
    assert_int_equal(r.drafts.n_accepted, 2);
    sim_result_free(&r);
}

/* Recorded drafts are proposed again at the same number of tokens, without an acceptance rate. */
static void recorded_guesses_are_made_again(void **state)
{
    (void)state;
    static const struct sim_guess guesses[] = {{0, 0, true}, {3, 2, true},  {2, 1, true},
                                               {1, 0, true}, {0, 0, false}, {4, 4, true}};
    struct sim_request requests[] = {{.arrival_s = 0, .n_prompt = 100, .n_output = 6, .guesses = guesses}};
    const struct sim_workload t = workload_of(requests, 1, 1);
    struct sim_setup s = guessing(SCHED_MAX_DRAFT, 1);
    for (uint32_t depth = 0; depth < 2; depth++) {
        sched.overlap_depth = depth;
        struct sim_result r = run(&s, &t);
        check_times(&r, 0, 1099,
                    1099 + 1003 + 1000 + 1000); /* 1, then 4 by a step with drafts, 5, and 6: none past it */
        assert_int_equal(r.drafts.n_drafts, 3);
        assert_int_equal(r.drafts.n_accepted, 2);
        sim_result_free(&r);
    }
}

/* Sources of wrong drafts are given up, with an occasional try of one draft. Accepted drafts are as long as allowed. If
 * a step's time grows with its tokens, there are none. */
static void lengths_follow_from_what_drafts_are_worth(void **state)
{
    (void)state;
    static const struct sched_cost dear = {.n_points = 2, .points = {{1, 1000}, {1001, 1001000}}};
    struct sim_request requests[8];
    for (size_t i = 0; i < 8; i++)
        requests[i] = (struct sim_request){.n_prompt = 20, .n_output = 400};
    const struct sim_workload t = workload_of(requests, 8, 1);
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct sim_setup s = guessing(8, 0);
        s.adaptive = true;
        sched.overlap_depth = depth;
        struct sim_result liars = run(&s, &t), again = run(&s, &t);
        assert_memory_equal(&liars.decisions, &again.decisions, sizeof liars.decisions);
        assert_in_range(liars.drafts.n_rows, 1, 8 * 60);
        s.acceptance.chance[0] = 1;
        struct sim_result right = run(&s, &t);
        assert_true(right.drafts.n_tokens > 6 * right.drafts.n_sampled);
        s.acceptance.chance[0] = 0.4;
        s.cost = dear;
        sched.cost = &dear;
        struct sim_result full = run(&s, &t);
        s.adaptive = false;
        struct sim_result fixed = run(&s, &t);
        assert_true(full.drafts.n_drafts < fixed.drafts.n_drafts / 20);
        assert_true(full.ended_us - full.began_us < 0.5 * (fixed.ended_us - fixed.began_us));
        sim_result_free(&liars);
        sim_result_free(&again);
        sim_result_free(&right);
        sim_result_free(&full);
        sim_result_free(&fixed);
    }
}

/* Acceptance is drawn by position, independent of the effect of policy, budget and preemptions on the steps. */
static void draws_do_not_follow_the_schedule(void **state)
{
    (void)state;
    const struct sim_acceptance a = {.n = 3, .chance = {0.8, 0.75, 2.0 / 3}};
    uint32_t n[4] = {0}, differ = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t right = sim_acceptance_draw(&a, 7, i, 5, 3);
        n[right]++;
        differ += right != sim_acceptance_draw(&a, 8, i, 5, 3);
        assert_int_equal(sim_acceptance_draw(&a, 7, i, 5, 2), right < 2 ? right : 2);
    }
    assert_true(differ > 3000);
    assert_true(abs((int)n[0] - 2000) < 150 && abs((int)n[1] - 2000) < 150 && abs((int)n[2] - 2000) < 150);
    struct sim_request requests[40];
    for (size_t i = 0; i < 40; i++)
        requests[i] = (struct sim_request){
            .arrival_s = 1e-3 * (double)i, .n_prompt = 20 + (uint32_t)i, .n_output = 60, .tenant = i % 2};
    const struct sim_workload t = workload_of(requests, 40, 2);
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct sim_setup s = guessing(4, 0.6);
        sched.kv.groups[0].n_blocks = 24;
        sched.max_num_batched_tokens = 64;
        sched.overlap_depth = depth;
        struct sim_result first = run(&s, &t), second = run(&s, &t);
        assert_true(first.stats.n_preemptions > 0 && first.drafts.n_accepted > 500);
        assert_memory_equal(&first.decisions, &second.decisions, sizeof first.decisions);
        double service[2] = {0};
        for (size_t i = 0; i < 40; i++) {
            assert_int_equal(first.records[i].n_generated, 60);
            service[i % 2] += (double)(requests[i].n_prompt - first.records[i].n_cached) + 2 * 60;
        }
        assert_true(first.watch->tokens.service[0] == service[0]);
        assert_true(first.watch->tokens.service[1] == service[1] / 2);
        sim_result_free(&first);
        sim_result_free(&second);
    }
}

static void rates_are_read_as_vllm_prints_them(void **state)
{
    (void)state;
    struct sim_acceptance a;
    struct quire_error err;
    assert_int_equal(sim_acceptance_parse("0.8,0.6,.3", &a, &err), QUIRE_OK);
    assert_int_equal(a.n, 3);
    assert_true(fabs(a.chance[0] - 0.8) < 1e-12 && fabs(a.chance[1] - 0.75) < 1e-12 && fabs(a.chance[2] - 0.5) < 1e-12);
    assert_int_equal(sim_acceptance_parse("0,0", &a, &err), QUIRE_OK);
    assert_int_equal(sim_acceptance_parse("1", &a, &err), QUIRE_OK);
    static const char *const wrong[] = {"", ",", "0.5,", "1.1", "-0.1", "nan", "0.5 ", "0.4,0.5", "0.5;0.4", "."};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (sim_acceptance_parse(wrong[i], &a, &err) != QUIRE_INVALID)
            fail_msg("'%s' was taken", wrong[i]);
    char many[2 * SCHED_MAX_DRAFT + 2];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 ? ',' : '1';
    many[2 * SCHED_MAX_DRAFT + 1] = '\0';
    assert_int_equal(sim_acceptance_parse(many, &a, &err), QUIRE_INVALID);
    many[2 * SCHED_MAX_DRAFT - 1] = '\0';
    assert_int_equal(sim_acceptance_parse(many, &a, &err), QUIRE_OK);
    struct draft_counts counts = {0};
    draft_counts_add(&counts, 3, 3);
    draft_counts_add(&counts, 3, 1);
    draft_counts_add(&counts, 1, 0);
    draft_counts_add(&counts, 0, 0);
    a = sim_acceptance_of(&counts);
    assert_int_equal(a.n, 3);
    assert_true(a.chance[0] == 2.0 / 3 && a.chance[1] == 0.5 && a.chance[2] == 1);
    assert_int_equal(counts.n_tokens, 4 + 2 + 1 + 1);
}

/* Two sessions of three turns, whose clients wait. By hand, blocks of 16: a turn of 32 + 4 tokens, then one of 48 with 32
 * cached, then one of 64 with 48 cached: 4 tokens of the answer before, 12 of its own. */
static void a_turn_comes_after_the_answer(void **state)
{
    (void)state;
    struct sim_request requests[6];
    for (uint32_t i = 0; i < 6; i++)
        requests[i] = (struct sim_request){.arrival_s = i < 3 ? 0 : 1,
                                           .n_prompt = 32 + 16 * (i % 3),
                                           .n_output = 4,
                                           .previous = i % 3 ? i : 0,
                                           .next = i % 3 < 2 ? i + 2 : 0,
                                           .gap_s = i == 1 ? 5 : 0.001};
    const struct sim_workload t = workload_of(requests, 6, 1);
    const struct sim_setup s = setup_of(2048);
    struct sim_result r = run(&s, &t);
    for (size_t i = 0; i < 6; i++) {
        double prefill = i % 3 == 0 ? 1031 : 1015;
        check_times(&r, i, prefill, prefill + 3000);
        assert_int_equal(r.records[i].n_cached, i % 3 == 0 ? 0 : 16 + 16 * (i % 3));
        if (i % 3 > 0)
            assert_true(fabs(r.records[i].arrival_us - r.records[i - 1].last_us - 1e6 * requests[i].gap_s) < 1e-6);
    }
    sim_result_free(&r);
}

/* The client of a rejected turn gives up; a batch that is not full starts when no client will send more. */
static void sessions_end_with_a_rejection(void **state)
{
    (void)state;
    struct sim_request requests[12];
    for (uint32_t i = 0; i < 12; i++)
        requests[i] = (struct sim_request){.n_prompt = 32 + 16 * (i % 3),
                                           .n_output = 4,
                                           .previous = i % 3 ? i : 0,
                                           .next = i % 3 < 2 ? i + 2 : 0,
                                           .gap_s = 0.001 * (i / 3 + 1)};
    const struct sim_workload t = workload_of(requests, 12, 1);
    struct sim_setup s = setup_of(2048);
    sched.max_queued_requests = 3;
    sched.batching = SCHED_STATIC;
    struct sim_result r = run(&s, &t);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(r.records[i].fate, i < 9 ? SIM_DONE : SIM_REFUSED);
    sim_result_free(&r);
}

int run_sim_run_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_takes_what_its_shape_costs),
        cmocka_unit_test(stages_overlap_where_nothing_is_drawn),
        cmocka_unit_test(with_overlap_the_next_step_is_planned_ahead),
        cmocka_unit_test(an_idle_engine_waits_for_arrivals),
        cmocka_unit_test(the_clock_goes_to_what_a_batch_waits_for),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(what_is_preempted_ends_and_runs_repeat),
        cmocka_unit_test(answers_stop_before_max_tokens),
        cmocka_unit_test(equal_prefixes_are_hit),
        cmocka_unit_test(a_turn_comes_after_the_answer),
        cmocka_unit_test(sessions_end_with_a_rejection),
        cmocka_unit_test(impossible_pools_are_refused),
        cmocka_unit_test(groups_are_apart),
        cmocka_unit_test(a_draft_costs_its_place_in_the_step),
        cmocka_unit_test(a_draft_model_takes_its_time),
        cmocka_unit_test(an_answer_stops_among_its_drafts),
        cmocka_unit_test(recorded_guesses_are_made_again),
        cmocka_unit_test(lengths_follow_from_what_drafts_are_worth),
        cmocka_unit_test(draws_do_not_follow_the_schedule),
        cmocka_unit_test(rates_are_read_as_vllm_prints_them),
    };
    return cmocka_run_group_tests_name("sim run", tests, NULL, NULL);
}
