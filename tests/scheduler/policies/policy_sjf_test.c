/* `sjf`: its estimates against a reference, its bound, and its benefit. */
#include "tests/scheduler/policy_jobs.h"

#include <stdlib.h>

static struct job jobs[MAX_JOBS];

/* ---- the estimates ---- */

/* With this ageing, a rank is the arrival plus the remaining work in eighths of a token. */
#define PLAIN_AGEING_US 8000u

static const struct sched_policy *sjf(void)
{
    return sched_policy_find("sjf");
}

static void *make(uint64_t ageing_us)
{
    const struct sched_policy_options options = {.ageing_us = ageing_us, .n_tenants = 3};
    void *made;
    assert_int_equal(sjf()->create(&options, &made, NULL), QUIRE_OK);
    return made;
}

static struct sched_candidate candidate(uint32_t tenant, uint32_t n_prompt, uint32_t max_tokens)
{
    return (struct sched_candidate){
        .tenant = tenant, .n_prompt = n_prompt, .n_known = n_prompt, .max_tokens = max_tokens};
}

/* Expected further tokens of a sequence with this many, taken from the rank. */
static uint64_t expected(void *made, struct sched_candidate c, uint32_t n_generated)
{
    c.n_known = c.n_computed = c.n_prompt + n_generated;
    return sjf()->rank(made, &c) / 8;
}

static void finish(void *made, uint32_t tenant, uint32_t n_prompt, uint32_t length)
{
    struct sched_candidate c = candidate(tenant, n_prompt, 100000);
    sjf()->finished(made, &c, length);
}

#define UNSURE UINT32_MAX

/* The mean of those that ended with 2^k tokens or more, each weighing 127/128 of the next: for the largest 2^k that the
 * generated tokens reach or, if that estimate is exceeded, the next one. UNSURE if it is close to the generated length,
 * because the policy rounds to a sixteenth. */
static uint32_t reference(const uint32_t *lengths, uint32_t n, uint32_t generated)
{
    uint32_t least = 1;
    while (2 * least <= generated)
        least *= 2;
    for (;; least *= 2) {
        double weight = 1, sum = 0, weights = 0;
        for (uint32_t i = n; i-- > 0; weight *= 127.0 / 128)
            if (lengths[i] >= least) {
                sum += weight * lengths[i];
                weights += weight;
            }
        if (weights < 4)
            return 0;
        double mean = sum / weights;
        if (mean > generated * 0.93 && mean < generated * 1.07 + 1)
            return UNSURE;
        if (mean > generated)
            return (uint32_t)(mean + 0.5);
    }
}

static void test_estimates(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fake_random random = {seed};
        uint32_t lengths[600], n = 20 + fake_below(&random, 580), n_known = 0;
        void *made = make(PLAIN_AGEING_US);
        for (uint32_t i = 0; i < n; i++) {
            lengths[i] = 1 + fake_below(&random, 1u << fake_below(&random, 12));
            finish(made, 1, 300, lengths[i]);
        }
        for (uint32_t generated = 0; generated < 3000; generated += 1 + generated / 7) {
            uint32_t total = reference(lengths, n, generated);
            uint64_t left = expected(made, candidate(1, 300, 100000), generated);
            if (total == UNSURE)
                continue;
            n_known += total > 0;
            uint32_t off = total > 0 ? total / 15 + 1 : 0;
            total = total > 0 ? total : 100000;
            assert_in_range(left + generated, total - off, total + off);
        }
        assert_true(n_known > 10);
        sjf()->destroy(made);
    }
}

/* Kaplan and Meier over octaves, from the shortest on: survival × hazard × mean of each octave. Those cut off in an
 * octave count as half of one that was seen in it. If all of the longest were cut off, the rest has 1.5 × the end of
 * their octave. UNSURE as above. */
static uint32_t censored_reference(const uint32_t *lengths, const bool *cut, uint32_t n, uint32_t generated)
{
    double ended[20] = {0}, sum[20] = {0}, censored[20] = {0}, weight = 1, above = 0;
    uint32_t first = 0, last = 0;
    for (uint32_t i = n; i-- > 0; weight *= 127.0 / 128) {
        uint32_t at = 0;
        while (lengths[i] >> (at + 1))
            at++;
        last = at > last ? at : last;
        ended[at] += cut[i] ? 0 : weight;
        sum[at] += cut[i] ? 0 : weight * lengths[i];
        censored[at] += cut[i] ? weight : 0;
    }
    while (first < 19 && (2u << first) <= generated)
        first++;
    for (;; first++) {
        double survival = 1, mean = 0, reached = 0;
        for (uint32_t i = first; i < 20; i++)
            reached += ended[i] + censored[i];
        if (first > last || reached < 4)
            return 0;
        above = reached;
        for (uint32_t i = first; i <= last; i++) {
            double seen = above - censored[i] / 2, hazard = seen > 0 ? ended[i] / seen : 0;
            mean += ended[i] > 0 ? survival * hazard * sum[i] / ended[i] : 0;
            survival *= 1 - hazard;
            above -= ended[i] + censored[i];
        }
        mean += survival * 1.5 * (2u << last);
        if (mean > generated * 0.93 && mean < generated * 1.07 + 1)
            return UNSURE;
        if (mean > generated)
            return (uint32_t)(mean + 0.5);
    }
}

/* max_tokens and cancels cut answers off. */
static void test_censored(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fake_random random = {seed};
        uint32_t lengths[600], n = 20 + fake_below(&random, 580), n_known = 0;
        bool cut[600];
        void *made = make(PLAIN_AGEING_US);
        for (uint32_t i = 0; i < n; i++) {
            struct sched_candidate c = candidate(1, 300, 100000);
            lengths[i] = 1 + fake_below(&random, 1u << fake_below(&random, 12));
            cut[i] = fake_chance(&random, 40);
            c.max_tokens = cut[i] ? lengths[i] : c.max_tokens;
            if (cut[i] && fake_chance(&random, 50))
                sjf()->cancelled(made, &c, lengths[i]);
            else
                sjf()->finished(made, &c, lengths[i]);
        }
        for (uint32_t generated = 0; generated < 3000; generated += 1 + generated / 7) {
            uint32_t total = censored_reference(lengths, cut, n, generated);
            uint64_t left = expected(made, candidate(1, 300, 100000), generated);
            if (total == UNSURE)
                continue;
            n_known += total > 0;
            uint32_t off = total > 0 ? total / 15 + 1 : 0;
            total = total > 0 ? total : 100000;
            assert_in_range(left + generated, total - off, total + off);
        }
        assert_true(n_known > 10);
        sjf()->destroy(made);
    }
}

/* Answers of 2 to 400 tokens, evenly spread, of which clients cut off half at a random place: the mean stays about 200.
 * Taken as they ended, it would be 150. Cancelled before the first token, they say nothing. */
static void test_cancels_do_not_shorten(void **state)
{
    (void)state;
    struct fake_random random = {5};
    void *made = make(PLAIN_AGEING_US);
    for (uint32_t i = 0; i < 2000; i++) {
        struct sched_candidate c = candidate(1, 300, 100000);
        uint32_t length = 2 + fake_below(&random, 399), at = 1 + fake_below(&random, 400);
        if (i % 2 == 0 && at < length)
            sjf()->cancelled(made, &c, at);
        else
            sjf()->finished(made, &c, length);
        sjf()->cancelled(made, &c, 0);
    }
    assert_in_range(expected(made, candidate(1, 300, 100000), 0), 180, 235);
    sjf()->destroy(made);
}

/* Estimates are per prompt length and tenant if enough is known; otherwise from the wider group, and finally
 * max_tokens. */
static void test_fallbacks(void **state)
{
    (void)state;
    void *made = make(PLAIN_AGEING_US);
    assert_int_equal(expected(made, candidate(0, 50, 700), 0), 700);
    for (uint32_t i = 0; i < 50; i++) {
        finish(made, 0, 40, 10);
        finish(made, 0, 5000, 1000);
        finish(made, 1, 40, 300);
    }
    finish(made, 1, 5000, 3); /* one sample is not enough */
    assert_int_equal(expected(made, candidate(0, 63, 700), 0), 10);
    assert_int_equal(expected(made, candidate(0, 4096, 7000), 0), 1000);
    assert_int_equal(expected(made, candidate(0, 4096, 700), 0), 700); /* at most max_tokens */
    assert_int_equal(expected(made, candidate(1, 40, 700), 0), 300);
    /* Nothing for this prompt length: the tenant's, 50 of 10 and 50 of 1000 alternately. */
    assert_in_range(expected(made, candidate(0, 700, 7000), 0), 475, 540);
    /* Nothing for this tenant: all tenants'. */
    assert_in_range(expected(made, candidate(2, 40, 7000), 0), 380, 490);
    /* It has exceeded its group's estimate, 10, then the tenant's, and then all tenants'. */
    assert_int_equal(expected(made, candidate(0, 63, 7000), 20), 980);
    assert_int_equal(expected(made, candidate(0, 63, 7000), 1500), 5500);
    /* The caller's estimate, until it is exceeded. */
    struct sched_candidate c = candidate(0, 63, 7000);
    c.expected_tokens = 15;
    assert_int_equal(expected(made, c, 0), 15);
    assert_int_equal(expected(made, c, 9), 6);
    assert_in_range(expected(made, c, 15), 455, 525); /* of those of the tenant that reached 8 */
    /* Most of those that reach 8 end there; one with 12 belongs to the others. */
    for (uint32_t i = 0; i < 100; i++)
        finish(made, 2, 40, i % 10 ? 8 : 20);
    assert_int_equal(expected(made, candidate(2, 40, 700), 12), 8);
    c.expected_tokens = 8000;
    assert_int_equal(expected(made, c, 0), 7000);
    sjf()->destroy(made);
}

/* Known tokens count an eighth, unless they are computed or cached; a thousand tokens are ageing_us. */
static void test_work(void **state)
{
    (void)state;
    void *made = make(1000000);
    struct sched_candidate c = candidate(0, 800, 100);
    c.arrival_us = 77;
    assert_int_equal(sjf()->rank(made, &c), 77 + 200 * 1000);
    c.n_cached = 400;
    assert_int_equal(sjf()->rank(made, &c), 77 + 150 * 1000);
    c.n_computed = 800;
    assert_int_equal(sjf()->rank(made, &c), 77 + 100 * 1000);
    c = candidate(0, 1u << 28, 1u << 28);
    sjf()->destroy(made);
    made = make(UINT64_MAX);
    c.arrival_us = UINT64_MAX - 5;
    assert_true(sjf()->rank(made, &c) == UINT64_MAX);
    sjf()->destroy(made);
}

static void test_figure(void **state)
{
    (void)state;
    const char *name = NULL;
    void *made = make(0);
    assert_true(sjf()->figure(made, &name) == 0);
    assert_string_equal(name, "estimate_error_percent");
    for (uint32_t i = 0; i < 2000; i++)
        finish(made, 0, 100, 50);
    assert_true(sjf()->figure(made, &name) < 0.1); /* the first ones have faded */
    for (uint32_t i = 0; i < 2000; i++)
        finish(made, 0, 100, i % 2 ? 50 : 150);
    /* About 100 is expected: half off by 1 from 50, by a third from 150. */
    assert_true(sjf()->figure(made, &name) > 63 && sjf()->figure(made, &name) < 70);
    sjf()->destroy(made);
}

/* ---- the bound ---- */

#define AGEING_US 400000u

/* The price of a job, from its estimate and its prompt. */
static uint64_t price_us(const struct job *job)
{
    uint64_t eighths = 8 * (uint64_t)job->request.expected_tokens + job->request.n_prompt;
    return eighths * AGEING_US / 8000;
}

static void check_admission(const struct job *all, uint32_t n, uint32_t admitted)
{
    const struct job *job = &all[admitted];
    for (uint32_t i = 0; i < n; i++) {
        const struct job *other = &all[i];
        if (!job_waits(all, i, admitted))
            continue;
        assert_true(job->request.arrival_us + price_us(job) <= other->request.arrival_us + price_us(other));
        if (i < admitted)
            assert_true(job->request.arrival_us - other->request.arrival_us <= price_us(other));
    }
}

/* Long jobs among short ones that arrive faster than they are served, without end. */
static void test_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fake_random random = {seed};
        struct job_run run = job_run_of("sjf");
        uint64_t at = 1;
        uint32_t n = 300, n_overtaken = 0;
        run.config.policy_options.ageing_us = AGEING_US;
        run.config.max_num_seqs = 1 + fake_below(&random, 4);
        run.admits = check_admission;
        memset(jobs, 0, sizeof jobs);
        for (uint32_t i = 0; i < n; i++) {
            at += fake_below(&random, 3000);
            jobs[i].length = fake_chance(&random, 5) ? 200 : 1 + fake_below(&random, 8);
            jobs[i].request = (struct sched_request){.n_prompt = 1 + fake_below(&random, 100),
                                                     .max_tokens = 300,
                                                     .expected_tokens = jobs[i].length,
                                                     .arrival_us = at};
        }
        run_jobs(&run, jobs, n);
        for (uint32_t i = 1; i < n; i++)
            n_overtaken += jobs[i].place < jobs[i - 1].place;
        assert_true(n_overtaken > 20);
    }
}

/* Estimates change during the run: still, no job is overtaken by one of its tenant that arrived later than the price of
 * its max_tokens and prompt. */
static void check_learnt_bound(const struct job *all, uint32_t n, uint32_t admitted)
{
    (void)n;
    for (uint32_t i = 0; i < admitted; i++) {
        const struct job *other = &all[i];
        uint64_t most = (8 * (uint64_t)other->request.max_tokens + other->request.n_prompt) * AGEING_US / 8000;
        if (job_waits(all, i, admitted) && other->request.tenant == all[admitted].request.tenant)
            assert_true(all[admitted].request.arrival_us - other->request.arrival_us <= most);
    }
}

static void make_traffic(struct fake_random *random, uint32_t n, uint32_t gap_us, bool foretold)
{
    uint64_t at = 1;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < n; i++) {
        /* Heavy tailed: each doubling of the length is half as likely, up to 1,024. */
        uint32_t doublings = 0, tenant = fake_below(random, 4);
        while (doublings < 8 && fake_chance(random, 50))
            doublings++;
        at += fake_below(random, 2 * gap_us);
        jobs[i].length = (2u << doublings) + fake_below(random, 2u << doublings);
        jobs[i].request = (struct sched_request){.n_prompt = 16u << (jobs[i].length > 64 ? 2 : 0),
                                                 .max_tokens = 1100,
                                                 .tenant = tenant,
                                                 .expected_tokens = foretold ? jobs[i].length : 0,
                                                 .arrival_us = at};
    }
}

static void test_learnt_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct fake_random random = {seed};
        struct job_run run = job_run_of("sjf");
        run.config.policy_options.ageing_us = AGEING_US;
        run.admits = check_learnt_bound;
        make_traffic(&random, 400, 1500, false);
        run_jobs(&run, jobs, 400);
    }
}

/* ---- ends ---- */

static struct {
    uint32_t finished, cancelled; /* tokens of the last one, plus one */
} heard;

static void hear_finished(void *made, const struct sched_candidate *c, uint32_t n_generated)
{
    (void)made;
    (void)c;
    heard.finished = n_generated + 1;
}

static void hear_cancelled(void *made, const struct sched_candidate *c, uint32_t n_generated)
{
    (void)made;
    (void)c;
    heard.cancelled = n_generated + 1;
}

/* A cancelled request's length is unknown; a choice that the caller ended is complete. */
static void test_ends(void **state)
{
    (void)state;
    const struct sched_policy spy = {.name = "spy", .finished = hear_finished, .cancelled = hear_cancelled};
    struct sched_config c = small_config();
    c.policy = &spy;
    struct sched *s = open_sched(&c);
    memset(&heard, 0, sizeof heard);
    for (uint64_t id = 1; id <= 3; id++) {
        uint32_t seq = submit(s, request_of(id, 100 * (uint32_t)id, 4, id == 1 ? 3 : 50));
        for (uint32_t i = 0; i < 3; i++)
            step(s);
        assert_int_equal(heard.finished, id == 1 ? 4 : 0);
        if (id == 2)
            sched_cancel(s, id);
        if (id == 3)
            sched_cancel_seq(s, seq);
        collect(s);
        assert_int_equal(heard.cancelled, id == 2 ? 4 : 0);
        assert_int_equal(heard.finished, id == 2 ? 0 : 4);
        memset(&heard, 0, sizeof heard);
    }
    close_sched(s);
}

/* ---- benefit ---- */

static double mean_latency_us(const char *policy, uint64_t seed, bool foretold)
{
    struct fake_random random = {seed};
    struct job_run run = job_run_of(policy);
    double sum = 0;
    make_traffic(&random, MAX_JOBS, 3200, foretold);
    run_jobs(&run, jobs, MAX_JOBS);
    for (uint32_t i = 0; i < MAX_JOBS; i++)
        sum += (double)(jobs[i].end_us - jobs[i].request.arrival_us);
    return sum / MAX_JOBS;
}

/* At saturation, with the default ageing: at most half of fcfs's mean latency with true lengths, and better than fcfs
 * with learned ones. */
static void test_latency(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        double fcfs = mean_latency_us("fcfs", seed, false);
        double known = mean_latency_us("sjf", seed, true);
        double learnt = mean_latency_us("sjf", seed, false);
        print_message("seed %u: fcfs %.0f ms, sjf %.0f ms (%.1f x), without true lengths %.0f ms "
                      "(%.1f x)\n",
                      (unsigned)seed, fcfs / 1e3, known / 1e3, fcfs / known, learnt / 1e3, fcfs / learnt);
        assert_true(fcfs >= 2 * known);
        assert_true(fcfs > 1.1 * learnt);
    }
}

/* If blocks run out, the sequence with most remaining work is preempted, as estimated then, not at arrival. */
static void test_preemption(void **state)
{
    (void)state;
    struct job_run run = job_run_of("sjf");
    run.config.kv.groups[0].n_blocks = 10;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < 2; i++) {
        jobs[i].length = i == 0 ? 120 : 60;
        jobs[i].request = (struct sched_request){
            .n_prompt = 16, .max_tokens = jobs[i].length, .expected_tokens = jobs[i].length, .arrival_us = i * 110000};
    }
    run_jobs(&run, jobs, 2);
    assert_int_equal(run.n_preempted, 1);
    assert_true(jobs[1].first_us < jobs[0].end_us && jobs[0].end_us < jobs[1].end_us);
}

static void test_preemptions(void **state)
{
    (void)state;
    struct job_run run = job_run_of("sjf");
    run.config.kv.groups[0].n_blocks = 20;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < 8; i++) {
        jobs[i].length = i == 0 ? 250 : 60;
        jobs[i].request = (struct sched_request){
            .n_prompt = 16, .max_tokens = 280, .expected_tokens = jobs[i].length, .arrival_us = 1};
    }
    run_jobs(&run, jobs, 8);
    assert_true(run.n_preempted > 0);
    for (uint32_t i = 1; i < 8; i++)
        assert_true(jobs[i].end_us < jobs[0].end_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_censored),
        cmocka_unit_test(test_cancels_do_not_shorten),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_figure),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_learnt_bound),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_preemptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
