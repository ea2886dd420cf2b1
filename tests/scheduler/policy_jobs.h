/* Jobs on a virtual clock, for the tests of single policies: each arrives at its time, is rejected, cancelled or runs to
 * its length, and its course is recorded.
 *
 * A step takes step_us, plus token_us for each token. Prompts share nothing.
 */
#ifndef QUIRE_TESTS_SCHEDULER_POLICY_JOBS_H
#define QUIRE_TESTS_SCHEDULER_POLICY_JOBS_H

#include "tests/scheduler/fake_model.h"
#include "tests/scheduler/sched_harness.h"

#define MAX_JOBS 2000

struct job {
    struct sched_request request; /* id, prompt and hashes are filled in */
    uint32_t length; /* tokens until its stop; at most max_tokens */
    uint64_t cancel_us; /* cancelled at this time, if it has not ended; 0: never */
    bool refused, cancelled;
    uint64_t admitted_us, first_us, end_us; /* 0 = never */
    uint32_t place; /* its number in the order of admission, from 1; 0: never admitted */
};

struct job_run {
    struct sched_config config;
    uint64_t step_us, token_us;
    /* Called for each job as it is admitted. May be NULL. */
    void (*admits)(const struct job *jobs, uint32_t n, uint32_t admitted);
    uint64_t n_preempted, n_tokens;
};

/* No prefix cache, enough memory for everything, 8 sequences, 64 tokens per step. */
struct job_run job_run_of(const char *policy);

/* Jobs in the order of their arrival. Fails the test if one is lost. */
void run_jobs(struct job_run *run, struct job *jobs, uint32_t n);

/* Returns whether jobs[i] had arrived and not been admitted or rejected before jobs[admitted]. For `admits`. */
bool job_waits(const struct job *jobs, uint32_t i, uint32_t admitted);

#endif
