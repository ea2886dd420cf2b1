/* One rule of the scheduler per test, at overlap depth 0. */
#include "tests/scheduler/sched_harness.h"

static void test_bad_config(void **state)
{
    (void)state;
    struct quire_error err;
    struct sched *s;
    struct sched_config c = small_config();
    c.max_num_seqs = 0;
    assert_int_equal(sched_create(&c, &s, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "max_num_seqs"));
    c = small_config();
    c.max_logit_rows = 3;
    assert_int_equal(sched_create(&c, &s, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "max_logit_rows"));
    c = small_config();
    c.overlap_depth = 2;
    assert_int_equal(sched_create(&c, &s, &err), QUIRE_INVALID);
    c = small_config();
    c.max_num_batched_tokens = UINT32_MAX;
    assert_int_equal(sched_create(&c, &s, &err), QUIRE_INVALID);
    c = small_config();
    c.policy = NULL;
    assert_int_equal(sched_create(&c, &s, &err), QUIRE_INVALID);
    c = small_config();
    c.kv.n_groups = 0;
    assert_int_equal(sched_create(&c, &s, &err), QUIRE_INVALID);
    assert_null(s);
}

static void test_prompt_is_computed_in_chunks(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 40, 3));
    assert_row(step(s), 0, a, 0, 16, false);
    assert_row(step(s), 0, a, 16, 16, false);
    const struct sched_plan *p = step(s);
    assert_row(p, 0, a, 32, 8, true);
    assert_int_equal(p->rows[0].first_logit, 39);
    assert_int_equal(p->n_logits, 1);
    assert_row(step(s), 0, a, 40, 1, true);
    p = plan(s);
    assert_row(p, 0, a, 41, 1, true);
    assert_int_equal(commit(s, p, 7), 1); /* three tokens: over */
    assert_int_equal(collect(s), 1);
    assert_int_equal(plan(s)->n_rows, 0);
    close_sched(s);
}

static void test_decode_goes_with_prefill(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 20));
    step(s);
    uint32_t b = submit(s, request_of(2, 100, 40, 1));
    const struct sched_plan *p = step(s);
    assert_row(p, 0, a, 4, 1, true);
    assert_row(p, 1, b, 0, 15, false);
    assert_int_equal(p->n_tokens, 16);
    assert_int_equal(p->n_admitted, 1);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    sched_cancel(s, 99); /* unknown: nothing happens */
    close_sched(s);
}

static void test_hit_leaves_a_position_to_compute(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 12, 1));
    step(s);
    uint32_t b = submit(s, request_of(2, 0, 12, 1));
    assert_row(step(s), 0, b, 8, 4, true);
    b = submit(s, request_of(3, 0, 15, 1));
    const struct sched_plan *p = plan(s);
    assert_row(p, 0, b, 12, 3, true);
    assert_int_equal(sched_cached_tokens(s, b), 12);
    commit(s, p, 7);
    struct sched_request fresh = request_of(4, 0, 12, 1);
    fresh.no_prefix_hits = true;
    collect(s);
    b = submit(s, fresh);
    assert_row(step(s), 0, b, 0, 12, true);
    assert_int_equal(sched_stats(s).n_prefix_queries, 12 + 12 + 15);
    assert_int_equal(sched_stats(s).n_prefix_hits, 8 + 12);
    close_sched(s);
}

/* The second prompt is the first one's prompt and its output. */
static void test_generated_blocks_are_found(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t token = 6; /* prompt 0 … 5, output 6, 7, … */
    submit(s, request_of(1, 0, 6, 8));
    for (int i = 0; i < 8; i++)
        commit(s, plan(s), token++);
    collect(s);
    uint32_t b = submit(s, request_of(2, 0, 15, 1));
    assert_row(step(s), 0, b, 12, 3, true);
    close_sched(s);
}

static void test_tokens_and_blocks_are_shown(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t n, a = submit(s, request_of(1, 50, 5, 9));
    assert_null(sched_blocks(s, a, 0, &n));
    const struct sched_plan *p = plan(s);
    const uint32_t *tokens = sched_tokens(s, a, &n);
    assert_int_equal(n, 5);
    assert_int_equal(tokens[4], 54);
    sched_blocks(s, a, 0, &n);
    assert_int_equal(n, 2);
    commit(s, p, 33);
    tokens = sched_tokens(s, a, &n);
    assert_int_equal(n, 6);
    assert_int_equal(tokens[5], 33);
    sched_cancel(s, 1);
    close_sched(s);
}

/* 6 blocks; two sequences of 8 grow until the later one is preempted, and it returns. */
static void test_preempts_the_last(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 6;
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 7, 10)), b = submit(s, request_of(2, 100, 7, 10));
    uint32_t n_preempted = 0, n_steps = 0;
    while (!sched_idle(s)) {
        const struct sched_plan *p = step(s);
        for (uint32_t i = 0; i < p->n_preempted; i++)
            assert_int_equal(p->preempted[i], b);
        n_preempted += p->n_preempted;
        assert_true(p->n_rows > 0 && n_steps++ < 100);
        assert_int_equal(p->rows[0].seq, sched_stats(s).n_steps <= 10 ? a : b);
    }
    assert_true(n_preempted >= 1);
    assert_int_equal(sched_stats(s).n_preemptions, n_preempted);
    close_sched(s);
}

/* The sequence that needs a block ranks last: it leaves, although others arrived later. */
static void test_never_preempts_a_better_one(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 6;
    c.policy = sched_policy_find("priority");
    struct sched *s = open_sched(&c);
    struct sched_request low = request_of(1, 0, 8, 10);
    low.priority = 5;
    uint32_t a = submit(s, low);
    step(s);
    uint32_t b = submit(s, request_of(2, 100, 6, 10));
    const struct sched_plan *p = step(s);
    assert_row(p, 0, a, 8, 1, true); /* was running; nothing is short yet */
    assert_row(p, 1, b, 0, 6, true);
    while (p->n_preempted == 0)
        p = step(s);
    assert_int_equal(p->n_preempted, 1);
    assert_int_equal(p->preempted[0], a);
    assert_int_equal(p->rows[0].seq, b);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static void test_preempted_keeps_its_place(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 7;
    c.max_num_seqs = 2;
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 8, 16));
    uint32_t b = submit(s, request_of(2, 100, 8, 16)), later = submit(s, request_of(3, 200, 4, 1));
    const struct sched_plan *p = step(s);
    while (p->n_preempted == 0)
        p = step(s);
    assert_int_equal(p->preempted[0], b);
    while (p->n_admitted == 0)
        p = step(s);
    assert_int_equal(p->admitted[0], b); /* not the one that arrived later and would fit earlier */
    assert_true(p->n_admitted == 1 || p->admitted[1] == later);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static void test_a_request_that_can_never_fit(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct quire_error err;
    uint32_t seqs[16];
    c.kv.groups[0].n_blocks = 5;
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 10, 12); /* positions 0 … 20: six blocks */
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "KV blocks"));
    r.max_tokens = 11;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_OK);
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID); /* id in use */
    r.id = 2;
    r.max_tokens = 191;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    r.max_tokens = UINT32_MAX;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    r.max_tokens = 1;
    r.n = 9;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    r.n = 0;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    r.n = 1;
    r.hashes = NULL;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    r.n_prompt = 0;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, &err), QUIRE_INVALID);
    while (!sched_idle(s))
        assert_int_equal(step(s)->n_rows, 1);
    close_sched(s);
}

static void test_queue_is_bounded(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.max_queued_tokens = 50;
    struct sched *s = open_sched(&c);
    uint32_t seqs[8];
    struct sched_request r = request_of(1, 0, 60, 1);
    submit(s, r); /* longer than the limit, but alone */
    assert_int_equal(sched_stats(s).n_waiting_tokens, 60);
    r = request_of(2, 0, 4, 1);
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_EXHAUSTED);
    step(s); /* admitted: it does not wait any more */
    assert_int_equal(sched_stats(s).n_waiting_tokens, 0);
    for (uint32_t i = 0; i < 8; i++)
        submit(s, request_of(10 + i, 0, 4, 1));
    r.id = 30;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_EXHAUSTED);
    sched_cancel(s, 17);
    submit(s, r);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static void test_max_num_seqs(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 6; i++)
        submit(s, request_of(i, 100 * i, 2, 3));
    assert_int_equal(step(s)->n_rows, 4);
    assert_int_equal(step(s)->n_rows, 4);
    assert_int_equal(step(s)->n_rows, 4);
    assert_int_equal(step(s)->n_rows, 2);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static void test_choices_share_the_prompt(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.prefix_caching = false;
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 22, 4);
    uint32_t seqs[3], n;
    r.n = 3;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_OK);
    assert_int_equal(sched_stats(s).n_waiting, 3);
    assert_row(step(s), 0, seqs[0], 0, 16, false);
    const struct sched_plan *p = step(s);
    assert_int_equal(p->n_rows, 1);
    assert_row(p, 0, seqs[0], 16, 6, true);
    p = step(s);
    assert_int_equal(p->n_rows, 3);
    assert_row(p, 0, seqs[0], 22, 1, true);
    assert_row(p, 1, seqs[1], 20, 2, true);
    assert_row(p, 2, seqs[2], 20, 2, true);
    const uint32_t *a = sched_blocks(s, seqs[0], 0, &n), *b = sched_blocks(s, seqs[1], 0, &n);
    assert_memory_equal(a, b, 5 * sizeof *a);
    assert_int_not_equal(a[5], b[5]);
    assert_int_equal(n_free(s), 64 - 5 - 3);
    sched_cancel_seq(s, seqs[0]);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

/* A prompt of whole blocks: the last position is recomputed for its logits. */
static void test_choices_keep_a_position_to_compute(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 12, 3);
    uint32_t seqs[2];
    r.n = 2;
    r.no_prefix_hits = true;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_OK);
    step(s);
    const struct sched_plan *p = step(s);
    assert_int_equal(p->n_rows, 2);
    assert_row(p, 1, seqs[1], 8, 4, true);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

/* The choice that computes the prompt is cancelled half way: the next one takes over. */
static void test_lead_is_passed_on(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 22, 2);
    uint32_t seqs[3];
    r.n = 3;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_OK);
    step(s);
    sched_cancel_seq(s, seqs[1]);
    sched_cancel_seq(s, seqs[0]);
    const struct sched_plan *p = step(s);
    assert_int_equal(p->n_rows, 1);
    assert_row(p, 0, seqs[2], 16, 6, true); /* the four computed blocks are found */
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

static void test_cancel_gives_all_back(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(1, 0, 22, 9);
    uint32_t seqs[4];
    r.n = 4;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_OK);
    uint32_t b = submit(s, request_of(2, 50, 4, 4));
    sched_cancel(s, 2); /* waiting */
    uint32_t name;
    assert_true(sched_next_retired(s, &name));
    assert_int_equal(name, b);
    step(s);
    step(s);
    step(s);
    sched_cancel(s, 1); /* running */
    assert_int_equal(n_free(s), 64);
    assert_int_equal(collect(s), 4);
    assert_int_equal(submit(s, request_of(1, 50, 4, 4)), seqs[0]); /* id and names are free again */
    plan(s);
    sched_cancel(s, 1); /* planned: its blocks stay until the step is over */
    assert_true(n_free(s) < 64);
    assert_false(sched_next_retired(s, &name));
    assert_int_equal(sched_commit(s, NULL, 0, NULL, NULL, NULL), QUIRE_OK);
    assert_int_equal(collect(s), 1);
    close_sched(s);
}

static void test_prompt_logprobs(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 12, 1));
    step(s); /* the prompt is cached now, and must not be hit */
    struct sched_request r = request_of(2, 0, 20, 2);
    r.prompt_logprobs = true;
    uint32_t a = submit(s, r), b = submit(s, request_of(3, 100, 4, 1));
    const struct sched_plan *p = step(s);
    assert_row(p, 0, a, 0, 8, false); /* max_logit_rows */
    assert_int_equal(p->rows[0].first_logit, 0);
    assert_int_equal(p->n_logits, 8);
    assert_row(p, 1, b, 0, 3, false); /* no logit row is left for its last position */
    p = step(s);
    assert_row(p, 0, b, 3, 1, true);  /* one token: before all chunks */
    assert_row(p, 1, a, 8, 7, false); /* the logit row that the other took is not its own */
    assert_int_equal(p->rows[1].first_logit, 8);
    p = step(s);
    assert_row(p, 0, a, 15, 5, true);
    assert_int_equal(p->rows[0].first_logit, 15);
    p = step(s);
    assert_row(p, 0, a, 20, 1, true);
    assert_int_equal(p->rows[0].first_logit, 20);
    close_sched(s);
}

/* The outputs of a row. */
static void test_outputs(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_request scored = request_of(1, 0, 6, 2);
    scored.prompt_logprobs = true;
    uint32_t a = submit(s, scored);
    struct sched_request pooled = request_of(2, 100, 20, 0);
    pooled.vector = true;
    uint32_t b = submit(s, pooled);
    const struct sched_plan *p = plan(s);
    assert_row(p, 0, a, 0, 6, true);
    assert_true(p->rows[0].outputs.scores && !p->rows[0].outputs.vector);
    assert_row(p, 1, b, 0, 10, false);
    assert_false(p->rows[1].outputs.scores || p->rows[1].outputs.vector);
    commit(s, p, 7);
    p = plan(s);
    assert_row(p, 0, a, 6, 1, true);
    assert_false(p->rows[0].outputs.scores || p->rows[0].outputs.vector);
    assert_row(p, 1, b, 10, 10, false);
    assert_true(p->rows[1].outputs.vector);
    assert_int_equal(p->n_logits, 1); /* a vector needs none */
    commit(s, p, 7);
    close_sched(s);
}

static void test_max_tokens_zero(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    struct sched_request r = request_of(2, 0, 6, 0);
    uint32_t a = submit(s, request_of(1, 0, 20, 0));
    assert_row(step(s), 0, a, 0, 16, false);
    const struct sched_plan *p = plan(s);
    assert_row(p, 0, a, 16, 4, false);
    assert_int_equal(p->n_logits, 0);
    assert_int_equal(sched_commit(s, NULL, 0, NULL, NULL, NULL), QUIRE_OK);
    assert_int_equal(collect(s), 1);
    r.prompt_logprobs = true;
    submit(s, r);
    assert_int_equal(step(s)->n_logits, 6);
    close_sched(s);
}

static void test_stop(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 6)), token = 11;
    struct sched_result r = {.seq = a, .tokens = &token, .finished = true};
    bool finished = false;
    plan(s);
    assert_int_equal(sched_commit(s, &r, 1, &finished, NULL, NULL), QUIRE_OK);
    assert_true(finished);
    close_sched(s);
}

/* An invalid call changes nothing. */
static void test_wrong_results(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 6)), token = 1;
    const struct sched_plan *p;
    struct sched_result r[2] = {{.seq = a, .tokens = &token}, {.seq = a, .tokens = &token}};
    assert_int_equal(sched_commit(s, r, 1, NULL, NULL, NULL), QUIRE_INVALID);
    plan(s);
    assert_int_equal(sched_plan(s, 0, &p, NULL), QUIRE_INVALID);
    assert_int_equal(sched_commit(s, NULL, 0, NULL, NULL, NULL), QUIRE_INVALID);
    assert_int_equal(sched_commit(s, r, 2, NULL, NULL, NULL), QUIRE_INVALID);
    r[0].tokens = NULL;
    assert_int_equal(sched_commit(s, r, 1, NULL, NULL, NULL), QUIRE_INVALID);
    r[0] = (struct sched_result){.seq = a + 1, .tokens = &token};
    assert_int_equal(sched_commit(s, r, 1, NULL, NULL, NULL), QUIRE_INVALID);
    assert_int_equal(sched_commit(s, r + 1, 1, NULL, NULL, NULL), QUIRE_OK);
    sched_cancel(s, 1);
    close_sched(s);
}

static void test_policies(void **state)
{
    (void)state;
    assert_null(sched_policy_find("lottery"));
    assert_null(sched_policy_find("fcfs")->rank); /* submission order alone */
    for (uint32_t i = 0; sched_policy_at(i); i++) {
        assert_non_null(strstr(sched_policy_names(), sched_policy_at(i)->name));
        assert_ptr_equal(sched_policy_find(sched_policy_at(i)->name), sched_policy_at(i));
        assert_non_null(sched_policy_at(i)->about);
    }
}

/* Many waiting with random priorities, some cancelled: they are admitted in order. */
static void test_queue_order(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.max_queued_requests = 600;
    c.max_num_seqs = 1;
    c.policy = sched_policy_find("priority");
    struct sched *s = open_sched(&c);
    int32_t last = INT32_MIN, priorities[2000];
    uint32_t random = 12345, n = 0;
    for (uint32_t i = 0; i < 600; i++) {
        struct sched_request r = request_of(i, 0, 1, 1);
        random = random * 1664525 + 1013904223;
        r.priority = (int32_t)(random >> 20) - 2048;
        priorities[submit(s, r)] = r.priority;
    }
    for (uint32_t i = 0; i < 600; i += 3)
        sched_cancel(s, i);
    for (collect(s); !sched_idle(s); n++) {
        const struct sched_plan *p = step(s);
        assert_int_equal(p->n_admitted, 1);
        assert_true(priorities[p->admitted[0]] >= last);
        last = priorities[p->admitted[0]];
    }
    assert_int_equal(n, 400);
    close_sched(s);
}

static double pace_seen;

static uint64_t look(void *state, const struct sched_candidate *c, const struct sched_load *load)
{
    (void)state;
    (void)c;
    pace_seen = load->us_per_token;
    return 0;
}

/* Idle time does not count as the time of a step. */
static void test_idle_time_is_no_step(void **state)
{
    static const struct sched_policy looks = {.name = "looks", .about = "", .refuse = look};
    const uint64_t plans[] = {1000, 2600, 10000000, 10001600};
    struct sched_config c = small_config();
    (void)state;
    c.policy = &looks;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 4; i++) { /* each prompt is two steps of at most 16 tokens */
        const struct sched_plan *p;
        if (i % 2 == 0) {
            struct sched_request r = request_of(i + 1, 100 * i, 20, 1);
            r.arrival_us = plans[i];
            submit(s, r);
        }
        assert_int_equal(sched_plan(s, plans[i], &p, NULL), QUIRE_OK);
        commit(s, p, 7);
        collect(s);
    }
    assert_true(pace_seen == 100);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_prompt_is_computed_in_chunks),
        cmocka_unit_test(test_decode_goes_with_prefill),
        cmocka_unit_test(test_hit_leaves_a_position_to_compute),
        cmocka_unit_test(test_generated_blocks_are_found),
        cmocka_unit_test(test_tokens_and_blocks_are_shown),
        cmocka_unit_test(test_preempts_the_last),
        cmocka_unit_test(test_never_preempts_a_better_one),
        cmocka_unit_test(test_preempted_keeps_its_place),
        cmocka_unit_test(test_a_request_that_can_never_fit),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_max_num_seqs),
        cmocka_unit_test(test_choices_share_the_prompt),
        cmocka_unit_test(test_choices_keep_a_position_to_compute),
        cmocka_unit_test(test_lead_is_passed_on),
        cmocka_unit_test(test_cancel_gives_all_back),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_max_tokens_zero),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_wrong_results),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_idle_time_is_no_step),
        cmocka_unit_test(test_queue_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
