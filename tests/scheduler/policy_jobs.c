#include "tests/scheduler/policy_jobs.h"

struct job_run job_run_of(const char *policy)
{
    struct job_run run = {.config = small_config(), .step_us = 1000, .token_us = 100};
    run.config.kv.prefix_caching = false;
    run.config.kv.block_tokens = 16;
    run.config.kv.groups[0].n_blocks = 4096;
    run.config.max_num_seqs = run.config.max_logit_rows = 8;
    run.config.max_num_batched_tokens = 64;
    run.config.max_model_len = 4096;
    run.config.max_queued_requests = MAX_JOBS;
    run.config.policy = sched_policy_find(policy);
    run.config.policy_options.n_tenants = 4;
    return run;
}

/* Jobs that will be cancelled and have not ended. */
static uint32_t doomed[MAX_JOBS], n_doomed;

static void cancel_jobs(struct sched *s, struct job *jobs, uint64_t now_us)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_doomed; i++) {
        struct job *job = &jobs[doomed[i]];
        if (job->end_us > 0)
            continue;
        if (job->cancel_us > now_us) {
            doomed[n++] = doomed[i];
            continue;
        }
        job->cancelled = true;
        sched_cancel(s, job->request.id);
    }
    n_doomed = n;
}

bool job_waits(const struct job *jobs, uint32_t i, uint32_t admitted)
{
    const struct job *j = &jobs[i];
    return j->request.id > 0 && !j->refused && !j->cancelled && (j->place == 0 || j->place > jobs[admitted].place);
}

/* The job of a sequence, by name. */
static struct job *owners[MAX_JOBS + 64];

static void submit_job(struct sched *s, struct job *job, uint64_t id)
{
    static const uint32_t prompt[4096];
    uint32_t seq;
    uint64_t retry_us;
    struct quire_error err = {.text = ""};
    job->request.id = id;
    job->request.prompt = prompt;
    job->request.n = 1;
    int status = sched_submit(s, &job->request, &seq, &retry_us, &err);
    if (status == QUIRE_EXHAUSTED && retry_us > 0) {
        job->refused = true;
        return;
    }
    if (status)
        fail_msg("%s", err.text);
    owners[seq] = job;
}

static void note_plan(struct job_run *run, const struct sched_plan *plan, struct job *jobs, uint32_t n, uint64_t now_us,
                      uint32_t *n_admitted)
{
    for (uint32_t i = 0; i < plan->n_refused; i++)
        owners[plan->refused[i].seq]->refused = true;
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        struct job *job = owners[plan->admitted[i]];
        if (job->place > 0)
            continue; /* after a preemption */
        job->place = ++*n_admitted;
        job->admitted_us = now_us;
        if (run->admits)
            run->admits(jobs, n, (uint32_t)(job - jobs));
    }
    run->n_preempted += plan->n_preempted;
}

static void commit_plan(struct sched *s, const struct sched_plan *plan, uint64_t now_us)
{
    struct sched_result results[64];
    static const uint32_t token = 7;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        struct job *job = owners[row->seq];
        if (!row->outputs.tokens)
            continue;
        uint32_t n_generated = row->first + row->count - job->request.n_prompt + 1;
        bool finished = n_generated >= job->length;
        if (job->first_us == 0)
            job->first_us = now_us;
        if (finished)
            job->end_us = now_us;
        results[n++] = (struct sched_result){.seq = row->seq, .tokens = &token, .finished = finished};
    }
    assert_int_equal(sched_commit(s, results, n, NULL, NULL, NULL), QUIRE_OK);
}

void run_jobs(struct job_run *run, struct job *jobs, uint32_t n)
{
    struct sched *s = open_sched(&run->config);
    uint64_t now_us = 1;
    uint32_t next = 0, n_admitted = 0, name;
    n_doomed = 0;
    assert_true(n <= MAX_JOBS && run->config.max_num_seqs <= 64);
    while (next < n || !sched_idle(s)) {
        const struct sched_plan *plan;
        for (; next < n && jobs[next].request.arrival_us <= now_us; next++) {
            submit_job(s, &jobs[next], next + 1);
            if (jobs[next].cancel_us > 0)
                doomed[n_doomed++] = next;
        }
        cancel_jobs(s, jobs, now_us);
        assert_int_equal(sched_plan(s, now_us, &plan, NULL), QUIRE_OK);
        note_plan(run, plan, jobs, n, now_us, &n_admitted);
        if (plan->n_rows > 0) {
            now_us += run->step_us + run->token_us * plan->n_tokens;
            run->n_tokens += plan->n_tokens;
            commit_plan(s, plan, now_us);
        } else if (next < n && jobs[next].request.arrival_us > now_us) {
            now_us = jobs[next].request.arrival_us;
        }
        while (sched_next_retired(s, &name))
            ;
    }
    for (uint32_t i = 0; i < n; i++)
        assert_true(jobs[i].refused ? jobs[i].place == 0 : jobs[i].cancelled || jobs[i].end_us > 0);
    close_sched(s);
}
