/* `priority`: levels, ageing and its bound, and shares of classes. */
#include "tests/scheduler/policy_jobs.h"

#include <stdlib.h>

#define AGEING_US 50000

static struct job jobs[MAX_JOBS];

static uint64_t rank_of(uint64_t ageing_us, int32_t priority, uint64_t arrival_us)
{
    const struct sched_policy *policy = sched_policy_find("priority");
    const struct sched_policy_options options = {.ageing_us = ageing_us};
    const struct sched_candidate c = {.priority = priority, .arrival_us = arrival_us};
    void *made;
    assert_int_equal(policy->create(&options, &made, NULL), QUIRE_OK);
    uint64_t rank = policy->rank(made, &c);
    policy->destroy(made);
    return rank;
}

/* The order is arrival + priority × ageing over all of int32; clamped values never reverse the order. */
static void test_ranks(void **state)
{
    (void)state;
    static const int32_t priorities[] = {INT32_MIN, INT32_MIN + 1, -2000000, -1, 0, 1, 7, 2000000, INT32_MAX};
    static const uint64_t ageings[] = {1, 1000, 30000000, 3600000000u, UINT64_MAX / 2, UINT64_MAX};
    for (uint32_t a = 0; a < sizeof ageings / sizeof ageings[0]; a++)
        for (uint32_t i = 1; i < sizeof priorities / sizeof priorities[0]; i++) {
            uint64_t low = rank_of(ageings[a], priorities[i - 1], 5000000);
            uint64_t high = rank_of(ageings[a], priorities[i], 5000000);
            assert_true(low <= high);
            if (ageings[a] <= 3600000000u)
                assert_true(high - low == ageings[a] * (uint64_t)((int64_t)priorities[i] - priorities[i - 1]));
        }
    assert_true(rank_of(0, 1, 0) == rank_of(0, 0, 30000000));
    assert_true(rank_of(0, 1, 0) < rank_of(0, 0, 30000001));
    assert_true(rank_of(0, 3, UINT64_MAX) >= rank_of(0, 3, UINT64_MAX - 1));
}

static int64_t level_us(const struct job *job)
{
    return (int64_t)job->request.arrival_us + (int64_t)job->request.priority * AGEING_US;
}

/* No waiting request should have been admitted first, and an earlier one is overtaken only within the difference of
 * levels. */
static void check_admission(const struct job *all, uint32_t n, uint32_t admitted)
{
    const struct job *job = &all[admitted];
    for (uint32_t i = 0; i < n; i++) {
        const struct job *other = &all[i];
        if (!job_waits(all, i, admitted))
            continue;
        assert_true(level_us(job) <= level_us(other));
        if (i < admitted) {
            int64_t levels = (int64_t)other->request.priority - job->request.priority;
            assert_true((int64_t)(job->request.arrival_us - other->request.arrival_us) < levels * AGEING_US);
        }
    }
}

/* Bursts of lower levels, more than can ever be served, compete with one request at a high level. */
static void test_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fake_random random = {seed};
        struct job_run run = job_run_of("priority");
        uint64_t at = 1;
        uint32_t n = 300, n_overtaken = 0;
        run.config.policy_options.ageing_us = AGEING_US;
        run.config.max_num_seqs = 1 + fake_below(&random, 4);
        run.admits = check_admission;
        memset(jobs, 0, sizeof jobs);
        for (uint32_t i = 0; i < n; i++) {
            at += fake_chance(&random, 30) ? fake_below(&random, 20000) : 0;
            jobs[i] = (struct job){.length = 1 + fake_below(&random, 5)};
            jobs[i].request = (struct sched_request){
                .n_prompt = 1 + fake_below(&random, 100),
                .max_tokens = jobs[i].length,
                .priority = fake_chance(&random, 10) ? 4 : (int32_t)fake_below(&random, 4) - 2,
                .arrival_us = at};
        }
        run_jobs(&run, jobs, n);
        for (uint32_t i = 1; i < n; i++)
            n_overtaken += jobs[i].place < jobs[i - 1].place;
        assert_true(n_overtaken > 20);
    }
}

/* Three classes that always have waiting requests, with weights 1, 2 and 5, one of them unnamed; one computes long
 * prompts, one generates, one does both. The counters of waiting classes differ by at most what running sequences may
 * add between two admissions: 8 sequences of at most 120 tokens. */
static void test_class_shares(void **state)
{
    (void)state;
    static const uint32_t weights[] = {1, 2, 5};
    uint64_t served[3] = {0};
    struct job_run run = job_run_of("priority");
    struct fake_random random = {5};
    run.config.policy_options.class_weights[1] = 2;
    run.config.policy_options.class_weights[2] = 5;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < 1500; i++) {
        jobs[i].length = 1 + fake_below(&random, i % 3 == 0 ? 4 : 60);
        jobs[i].request = (struct sched_request){.n_prompt = 1 + fake_below(&random, i % 3 == 1 ? 4 : 60),
                                                 .max_tokens = jobs[i].length,
                                                 .priority = (int32_t)fake_below(&random, 3),
                                                 .class_index = i % 3};
    }
    run_jobs(&run, jobs, 1500);
    /* While all three wait: the first to run out has 500 jobs. */
    uint32_t last[3] = {0}, until = UINT32_MAX;
    for (uint32_t i = 0; i < 1500; i++)
        if (jobs[i].place > last[i % 3])
            last[i % 3] = jobs[i].place;
    for (uint32_t c = 0; c < 3; c++)
        until = last[c] < until ? last[c] : until;
    for (uint32_t i = 0; i < 1500; i++)
        if (jobs[i].place <= until)
            served[i % 3] += jobs[i].request.n_prompt + jobs[i].length;
    for (uint32_t c = 0; c < 3; c++)
        for (uint32_t d = 0; d < 3; d++)
            assert_true(llabs((int64_t)(served[c] / weights[c]) - (int64_t)(served[d] / weights[d])) <= 8 * 120);
    assert_true(served[2] > 10000);
    /* Within a class, priority decides: all arrived at once. */
    for (uint32_t i = 0; i + 3 < 1500; i++)
        for (uint32_t j = i % 3; j < i; j += 3)
            if (jobs[j].request.priority < jobs[i].request.priority)
                assert_true(jobs[j].place < jobs[i].place);
}

/* A class that arrives late starts about where the others are and does not get the service it did not ask for. With
 * jobs of 22 tokens in turns, 1,200 tokens more or less are 55 jobs. */
static void test_class_comes_late(void **state)
{
    (void)state;
    struct job_run run = job_run_of("priority");
    run.config.policy_options.class_weights[0] = run.config.policy_options.class_weights[1] = 1;
    run.config.max_num_seqs = 1;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < 800; i++) {
        uint32_t late = i >= 600;
        jobs[i].length = 2;
        jobs[i].request = (struct sched_request){
            .n_prompt = 20, .max_tokens = 2, .class_index = late, .arrival_us = late ? 1000000 : 0};
    }
    run_jobs(&run, jobs, 800);
    assert_in_range(jobs[600].place, 200, 260);
    assert_in_range(jobs[799].place - jobs[600].place, 2 * 199 - 55, 2 * 199 + 55);
}

/* Beyond the counters' resolution, a class would not be charged at all. */
static void test_weights_are_bounded(void **state)
{
    (void)state;
    const struct sched_policy *p = sched_policy_find("priority");
    struct sched_policy_options options = {.class_weights = {[1] = 1001}};
    struct quire_error err = {.text = ""};
    void *made;
    assert_int_equal(p->create(&options, &made, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "class 1"));
    options.class_weights[1] = 1000;
    assert_int_equal(p->create(&options, &made, &err), QUIRE_OK);
    p->destroy(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_class_shares),
        cmocka_unit_test(test_class_comes_late),
        cmocka_unit_test(test_weights_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
