/* `edf`: its order and bound, its rejections, and their benefit. */
#include "tests/scheduler/policy_jobs.h"

#include <stdlib.h>

#define SECOND 1000000u
#define AGEING_US 300000u

static struct job jobs[MAX_JOBS];

static const struct sched_policy *edf(void)
{
    return sched_policy_find("edf");
}

static void *make(void)
{
    const struct sched_policy_options options = {.class_ttft_us = {[2] = 2 * SECOND}};
    void *made;
    assert_int_equal(edf()->create(&options, &made, NULL), QUIRE_OK);
    return made;
}

/* A prompt of 1,000 tokens at 5 s, whose first token is due by 6 s. */
static struct sched_candidate candidate(void)
{
    return (struct sched_candidate){
        .arrival_us = 5 * SECOND, .deadline_us = 6 * SECOND, .n_prompt = 1000, .n_known = 1000, .max_tokens = 100};
}

static void test_ranks(void **state)
{
    (void)state;
    void *made = make();
    struct sched_candidate c = candidate();
    assert_int_equal(edf()->rank(made, &c), 6 * SECOND);
    c.deadline_us = 4 * SECOND; /* not before its arrival, so that no request overtakes from the past */
    assert_int_equal(edf()->rank(made, &c), 5 * SECOND);
    c.deadline_us = 0;
    assert_int_equal(edf()->rank(made, &c), 15 * SECOND);
    c.class_index = 2;
    assert_int_equal(edf()->rank(made, &c), 7 * SECOND);
    c.n_known++; /* it has generated */
    assert_int_equal(edf()->rank(made, &c), 0);
    edf()->destroy(made);
}

static uint64_t refused(void *made, const struct sched_candidate *c, uint64_t now_us, double us_per_token,
                        double prefill_us, uint64_t n_before)
{
    const struct sched_load load = {
        .now_us = now_us, .us_per_token = us_per_token, .prefill_us = prefill_us, .n_tokens_before = n_before};
    return edf()->refuse(made, c, &load);
}

static void test_refusals(void **state)
{
    (void)state;
    void *made = make();
    struct sched_candidate c = candidate();
    uint64_t now = c.arrival_us;
    /* Nothing is known: only requests that are already late are rejected. */
    assert_int_equal(refused(made, &c, now, 0, 0, 1u << 30), 0);
    assert_int_equal(refused(made, &c, 6 * SECOND, 0, 0, 0), 0);
    assert_int_equal(refused(made, &c, 6 * SECOND + 1, 0, 0, 0), SECOND);
    /* 100 us per token recently, half of it in doubt: 20,000 tokens in all are 1 s. */
    assert_int_equal(refused(made, &c, now, 100, 0, 19000), 0);
    assert_int_equal(refused(made, &c, now, 100, 0, 19100), SECOND);
    assert_int_equal(refused(made, &c, now, 100, 0, 119000), 5 * SECOND);
    /* By the cost model, 200 ms for its own thousand tokens. The speed of those before it is no worse. */
    assert_int_equal(refused(made, &c, now, 10000, 200000, 4000), 0);
    assert_int_equal(refused(made, &c, now, 10000, 200000, 4100), SECOND);
    assert_int_equal(refused(made, &c, now + 800000, 0, 200000, 0), 0);
    assert_int_equal(refused(made, &c, now + 800001, 0, 200000, 0), SECOND);
    assert_true(refused(made, &c, now, 1e12, 0, UINT64_MAX) > 0); /* still a number */
    /* Not background requests, nor those without a deadline; a class's target counts as a deadline. */
    c.background = true;
    assert_int_equal(refused(made, &c, 9 * SECOND, 0, 0, 0), 0);
    c.background = false;
    c.deadline_us = 0;
    assert_int_equal(refused(made, &c, 90 * SECOND, 0, 0, 0), 0);
    c.class_index = 2;
    assert_int_equal(refused(made, &c, 7 * SECOND, 0, 0, 0), 0);
    assert_int_equal(refused(made, &c, 7 * SECOND + 1, 0, 0, 0), SECOND);
    edf()->destroy(made);
}

/* Three of four prompt tokens are found in the cache: waiting prompts take a quarter of the time. */
static void test_cached_share(void **state)
{
    (void)state;
    void *made = make();
    struct sched_candidate c = candidate();
    const struct sched_service hit = {.n_cached = 750}, computed = {.n_prompt = 250}, decode = {.n_generated = 1};
    for (uint32_t i = 0; i < 10000; i++) {
        edf()->served(made, &c, &hit);
        edf()->served(made, &c, &computed);
        edf()->served(made, &c, &decode);
    }
    assert_int_equal(refused(made, &c, c.arrival_us, 100, 0, 78900), 0);
    assert_int_equal(refused(made, &c, c.arrival_us, 100, 0, 79500), SECOND);
    edf()->destroy(made);
}

static bool takes(void *made, const struct sched_candidate *waiting, const struct sched_candidate *running,
                  uint64_t now_us)
{
    const struct sched_load load = {.now_us = now_us, .prefill_us = 200000};
    return edf()->takes_seat(made, waiting, running, &load);
}

/* A first token takes 200 ms and is due a second after the arrival. */
static void test_seats(void **state)
{
    (void)state;
    void *made = make();
    const uint64_t arrival = 5 * SECOND;
    struct sched_candidate c = candidate(), running = candidate();
    running.n_known++; /* it generates */
    assert_false(takes(made, &c, &running, arrival + 499999)); /* there is time */
    assert_true(takes(made, &c, &running, arrival + 500000));  /* half of it has passed */
    assert_true(takes(made, &c, &running, arrival + 800000));
    assert_false(takes(made, &c, &running, arrival + 800001)); /* too late: it is rejected when its turn comes */
    c.arrival_us += 600000; /* twice what it needs is left at once */
    assert_true(takes(made, &c, &running, arrival + 600000));
    c = candidate();
    /* A running prompt must have time for both. */
    running = candidate();
    running.deadline_us = arrival + 500000 + 2 * 400000;
    assert_false(takes(made, &c, &running, arrival + 500000));
    running.deadline_us++;
    assert_true(takes(made, &c, &running, arrival + 500000));
    running.deadline_us = 0;
    assert_true(takes(made, &c, &running, arrival + 500000));
    /* Only for a deadline, and not for a request that generated before. */
    c.n_known++;
    assert_false(takes(made, &c, &running, arrival + 500000));
    c.n_known--;
    c.deadline_us = 0;
    assert_false(takes(made, &c, &running, arrival + 500000));
    c.class_index = 2; /* 2 s */
    assert_true(takes(made, &c, &running, arrival + SECOND));
    /* What lost its seat waits as if it came then without a deadline. */
    running = candidate();
    running.n_known++;
    running.lost_seat_us = 9 * SECOND;
    assert_int_equal(edf()->rank(made, &running), 19 * SECOND);
    edf()->destroy(made);
}

/* ---- the bound ---- */

static uint64_t deadline_of(const struct job *job)
{
    return job->request.deadline_us ? job->request.deadline_us : job->request.arrival_us + AGEING_US;
}

static void check_admission(const struct job *all, uint32_t n, uint32_t admitted)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!job_waits(all, i, admitted))
            continue;
        assert_true(deadline_of(&all[admitted]) <= deadline_of(&all[i]));
        if (i < admitted)
            assert_true(all[admitted].request.arrival_us <= deadline_of(&all[i]));
    }
}

static void make_traffic(struct fake_random *random, uint32_t n, uint32_t gap_us)
{
    uint64_t at = 1;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t dice = fake_below(random, 100);
        at += fake_below(random, 2 * gap_us);
        jobs[i].length = 1 + fake_below(random, 8);
        jobs[i].request = (struct sched_request){
            .n_prompt = 10 + fake_below(random, 100), .max_tokens = 8, .arrival_us = at};
        /* Half want an answer at once, some later, some have no deadline. */
        if (dice < 90)
            jobs[i].request.deadline_us = at + (dice < 50 ? 100000 : 2000000);
    }
}

/* Requests without a deadline among those with one, which arrive faster than they are served. */
static void test_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fake_random random = {seed};
        struct job_run run = job_run_of("edf");
        uint32_t n = 300, n_overtaken = 0;
        run.config.policy_options.ageing_us = AGEING_US;
        run.config.max_num_seqs = 1 + fake_below(&random, 4);
        run.admits = check_admission;
        make_traffic(&random, n, 3000);
        run_jobs(&run, jobs, n);
        for (uint32_t i = 0; i < n; i++)
            assert_true(jobs[i].request.deadline_us > 0 || !jobs[i].refused);
        for (uint32_t i = 1; i < n; i++)
            n_overtaken += jobs[i].place > 0 && jobs[i].place < jobs[i - 1].place;
        assert_true(n_overtaken > 20);
    }
}

/* ---- benefit ---- */

/* How many of the requests with a deadline get their first token in time. */
static uint32_t n_in_time(const struct sched_policy *policy, uint64_t seed, uint32_t *n_refused)
{
    struct fake_random random = {seed};
    struct job_run run = job_run_of("edf");
    uint32_t n = 0;
    run.config.policy = policy;
    make_traffic(&random, MAX_JOBS, 5500);
    run_jobs(&run, jobs, MAX_JOBS);
    *n_refused = 0;
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        n += jobs[i].first_us > 0 && jobs[i].first_us <= jobs[i].request.deadline_us;
        *n_refused += jobs[i].refused;
    }
    return n;
}

/* About a third more load than can be served, with deadlines of 0.1 and 2 s: at least 1.3 times as many in time as with
 * fcfs. Without rejections all would be late in the end. */
static void test_goodput(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct sched_policy lenient = *edf();
        uint32_t n_refused, none;
        lenient.refuse = NULL;
        uint32_t fcfs = n_in_time(sched_policy_find("fcfs"), seed, &none);
        uint32_t all = n_in_time(&lenient, seed, &none);
        uint32_t good = n_in_time(edf(), seed, &n_refused);
        print_message("seed %u: in time of %u: fcfs %u, edf %u, refusing %u of them %u\n", (unsigned)seed, MAX_JOBS,
                      fcfs, all, n_refused, good);
        assert_true(good * 10 >= fcfs * 13);
        assert_true(good > all + MAX_JOBS / 20);
    }
}

/* If all deadlines can be met, they are met, and no request is rejected. */
static void test_light_load(void **state)
{
    (void)state;
    struct fake_random random = {3};
    struct job_run run = job_run_of("edf");
    make_traffic(&random, MAX_JOBS, 25000);
    run_jobs(&run, jobs, MAX_JOBS);
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        assert_false(jobs[i].refused);
        assert_true(jobs[i].request.deadline_us == 0 || jobs[i].first_us <= jobs[i].request.deadline_us);
    }
}

/* A token of a lone decode takes 1.1 ms, of a prompt 0.12 ms. The speed of decodes is not that of prompts: two prompts
 * of 64 tokens with 60 ms left must not be rejected. */
static void test_pace(void **state)
{
    (void)state;
    struct job_run run = job_run_of("edf");
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < 3; i++) {
        jobs[i].length = i == 0 ? 300 : 1;
        jobs[i].request = (struct sched_request){.n_prompt = 64,
                                                 .max_tokens = jobs[i].length,
                                                 .arrival_us = i == 0 ? 1 : 200000,
                                                 .deadline_us = i == 0 ? 0 : 260000};
    }
    run_jobs(&run, jobs, 3);
    for (uint32_t i = 1; i < 3; i++) {
        assert_false(jobs[i].refused);
        assert_true(jobs[i].first_us < 230000);
    }
}

/* A request that was accepted but is too late at its turn ends there, with all its choices. */
static void test_refused_in_the_queue(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    const struct sched_plan *p;
    uint32_t seqs[2];
    c.policy = edf();
    c.max_num_seqs = 1;
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 4, 6));
    step(s); /* it has the only slot */
    struct sched_request r = request_of(2, 50, 4, 3);
    r.deadline_us = 1000;
    r.n = 2;
    assert_int_equal(sched_submit(s, &r, seqs, NULL, NULL), QUIRE_OK);
    assert_int_equal(sched_plan(s, 400, &p, NULL), QUIRE_OK);
    assert_int_equal(p->n_refused, 0);
    commit(s, p, 7);
    assert_int_equal(sched_plan(s, 1001, &p, NULL), QUIRE_OK);
    assert_int_equal(p->n_rows, 1);
    assert_int_equal(p->n_refused, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(p->refused[i].seq == seqs[0] || p->refused[i].seq == seqs[1]);
        assert_int_equal(p->refused[i].retry_us, SECOND);
    }
    commit(s, p, 7);
    assert_int_equal(sched_stats(s).n_refused, 1);
    assert_int_equal(collect(s), 2);
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

/* Blocks run out: prompts with early deadlines do not preempt a generating sequence, although its own deadline is far.
 */
static void test_decodes_stay(void **state)
{
    (void)state;
    struct job_run run = job_run_of("edf");
    run.config.kv.groups[0].n_blocks = 14;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < 12; i++) {
        jobs[i].length = i == 0 ? 100 : 20;
        jobs[i].request = (struct sched_request){.n_prompt = i == 0 ? 16 : 60,
                                                 .max_tokens = jobs[i].length,
                                                 .arrival_us = 1 + i * 5000,
                                                 .deadline_us = i == 0 ? 1000 * SECOND : 100 * SECOND + i};
    }
    run_jobs(&run, jobs, 12);
    /* A step of one decode takes 1.1 ms, of a prompt at most 7.4 more: a preempted sequence would have waited for all
     * of them. */
    assert_true(run.n_preempted > 0);
    assert_true(jobs[0].end_us - jobs[0].first_us < 99 * 8600);
    for (uint32_t i = 8; i < 12; i++)
        assert_true(jobs[0].end_us < jobs[i].end_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cached_share),
        cmocka_unit_test(test_seats),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_goodput),
        cmocka_unit_test(test_light_load),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_refused_in_the_queue),
        cmocka_unit_test(test_decodes_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
