/* The scheduler's cost of a step under each policy, with 1,000 running and 10,000 waiting, and of a submission. All but
 * a handful decode: in each step some end, as many are admitted, and others are submitted in their place. CPU time of
 * sched_plan and sched_commit together; of sched_submit, with given hashes. */
#include "memory/prefix.h"
#include "scheduler/scheduler.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "scheduler/types/request.h"
#include "tests/bench/host_bench.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    RUNNING = 1000,
    WAITING = 10000,
    BLOCK = 16,
    PROMPT = 128,
    SHARED = 64, /* common first tokens of a family's prompts */
    FAMILIES = 64,
    TENANTS = 64,
    LONGEST = 640, /* generated */
    STEP_US = 20000,
};

struct bench {
    struct sched *s;
    uint32_t random, next_id;
    uint64_t now_us;
    double *submissions;
    uint32_t n_submissions, most_submissions;
};

static double cpu_us(void)
{
    return bench_seconds(CLOCK_THREAD_CPUTIME_ID) * 1e6;
}

static uint32_t below(struct bench *b, uint32_t n)
{
    b->random = b->random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)b->random * n >> 32);
}

static void submit_one(struct bench *b)
{
    uint32_t prompt[PROMPT], seq, family = below(b, FAMILIES), id = b->next_id++;
    struct key256 hashes[PROMPT / BLOCK];
    struct kv_chain_root root = {.block_tokens = BLOCK};
    struct key256 first = kv_chain_first(&root);
    for (uint32_t t = 0; t < PROMPT; t++)
        prompt[t] = t < SHARED ? family * SHARED + t : id * PROMPT + t;
    for (uint32_t i = 0; i < PROMPT / BLOCK; i++)
        hashes[i] = kv_chain_next(&root.secret, i ? &hashes[i - 1] : &first, prompt + BLOCK * i, BLOCK);
    struct sched_request r = {.id = id,
                              .prompt = prompt,
                              .n_prompt = PROMPT - below(b, BLOCK),
                              .max_tokens = 1 + below(b, LONGEST),
                              .n = 1,
                              .priority = (int32_t)below(b, 8) - 4,
                              .arrival_us = b->now_us,
                              .deadline_us = b->now_us + 1000000000u + below(b, 1000000000u),
                              .tenant = below(b, TENANTS),
                              .class_index = below(b, SCHED_MAX_CLASSES),
                              .chain_first = first,
                              .hashes = hashes};
    double start = cpu_us();
    if (sched_submit(b->s, &r, &seq, NULL, NULL))
        bench_die("scheduler: a request was refused");
    if (b->n_submissions < b->most_submissions)
        b->submissions[b->n_submissions++] = cpu_us() - start;
}

/* Returns the scheduler's time. */
static double one_step(struct bench *b)
{
    static struct sched_result results[RUNNING];
    static uint32_t token;
    const struct sched_plan *plan;
    uint32_t name;
    b->now_us += STEP_US;
    double start = cpu_us();
    if (sched_plan(b->s, b->now_us, &plan, NULL))
        bench_die("scheduler: no plan");
    double us = cpu_us() - start;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        if (plan->rows[i].outputs.tokens)
            results[n++] = (struct sched_result){.seq = plan->rows[i].seq, .tokens = &token};
    token++;
    start = cpu_us();
    if (sched_commit(b->s, results, n, NULL, NULL, NULL))
        bench_die("scheduler: a step was not taken");
    us += cpu_us() - start;
    while (sched_next_retired(b->s, &name))
        submit_one(b);
    return us;
}

/* Eight billion parameters on one large GPU: app/flags/cost_file.h. */
static const struct sched_cost cost = {
    .n_points = 3, .points = {{1, 6368}, {159, 6368}, {8192, 327680}}, .context_us = 0.0489, .pair_us = 0.00131};

/* A policy that measures time has a cost model. */
static void measure(const struct sched_policy *policy, bool prefix_caching, uint32_t n_steps)
{
    char name[80];
    struct bench b = {.random = 1};
    struct sched_config c = {.kv = {.block_tokens = BLOCK, .n_groups = 1, .prefix_caching = prefix_caching},
                             .max_num_seqs = RUNNING,
                             .max_num_batched_tokens = 8192,
                             .max_model_len = 2048,
                             .max_queued_requests = WAITING + RUNNING,
                             .max_logit_rows = RUNNING,
                             .policy = policy,
                             .cost = policy->use_cost ? &cost : NULL,
                             .policy_options = {.n_tenants = TENANTS, .class_weights = {1, 2, 3, 4, 5, 6, 7, 8}}};
    c.kv.groups[0].n_blocks = (RUNNING + 1) * ((PROMPT + LONGEST) / BLOCK + 2);
    double *steps = calloc(n_steps, sizeof *steps);
    b.most_submissions = n_steps * 4;
    b.submissions = calloc(b.most_submissions, sizeof *b.submissions);
    if (!steps || !b.submissions || sched_create(&c, &b.s, NULL))
        bench_die("out of memory");
    for (uint32_t i = 0; i < WAITING + RUNNING; i++)
        submit_one(&b);
    for (uint32_t i = 0; i < LONGEST; i++)
        one_step(&b);
    b.n_submissions = 0;
    for (uint32_t i = 0; i < n_steps; i++)
        steps[i] = one_step(&b);
    snprintf(name, sizeof name, "scheduling: %s, 1000 running, 10000 waiting%s", policy->name,
             prefix_caching ? ", caching" : "");
    bench_row(name, "us/step", steps, n_steps);
    snprintf(name, sizeof name, "submission: %s, 10000 waiting%s", policy->name, prefix_caching ? ", caching" : "");
    bench_row(name, "us", b.submissions, b.n_submissions);
    sched_destroy(b.s);
    free(b.submissions);
    free(steps);
}

void bench_policies(bool quick)
{
    for (uint32_t i = 0; sched_policy_at(i); i++)
        for (int caching = 0; caching <= 1; caching++)
            measure(sched_policy_at(i), caching, quick ? 100 : 3000);
}
