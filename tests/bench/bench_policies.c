/* The scheduler's cost of a step under each policy, with 1,000 running and 10,000 waiting, and of a submission. All but
 * a handful decode: in each step some end, as many are admitted, and others are submitted in their place. CPU time of
 * sched_plan and sched_commit together; of sched_submit, with given hashes. Every hundred steps are followed by a
 * hundred runs of a pure loop, as long as the median step, which reads no memory: its p99 is the machine's part of the
 * step's. */
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
    TURN = 100, /* steps, and runs of the pure loop */
    STEP_US = 20000,
};

struct bench {
    struct sched *s;
    uint32_t random, next_id;
    uint64_t now_us;
    double *submissions;
    uint32_t n_submissions, most_submissions;
    uint64_t n_turns; /* of the pure loop */
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

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the time of n turns of a loop that neither reads nor writes memory. */
static double pure_loop(uint64_t n)
{
    double start = cpu_us();
    for (uint64_t i = 0, x = 1; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        __asm__ volatile("" : "+r"(x));
    }
    return cpu_us() - start;
}

/* Fills the caches of the scheduler, and sets the length of the pure loop to the median of these steps. */
static void warm_up(struct bench *b)
{
    double steps[LONGEST], turns[LONGEST];
    for (uint32_t i = 0; i < LONGEST; i++) {
        steps[i] = one_step(b);
        turns[i] = pure_loop(10000);
    }
    qsort(steps + LONGEST / 2, LONGEST / 2, sizeof *steps, by_value);
    qsort(turns, LONGEST, sizeof *turns, by_value);
    b->n_turns = (uint64_t)(10000 * steps[LONGEST * 3 / 4] / turns[LONGEST / 2]);
}

/* Adds the rows of a measurement. */
static void report(const struct sched_policy *policy, bool prefix_caching, double *steps, double *loops, uint32_t n)
{
    char name[96];
    const char *caching = prefix_caching ? ", caching" : "";
    snprintf(name, sizeof name, "scheduling: %s, 1000 running, 10000 waiting%s", policy->name, caching);
    bench_row(name, "us/step", steps, n);
    snprintf(name, sizeof name, "a pure loop of that length: %s%s", policy->name, caching);
    bench_row(name, "us", loops, n);
}

/* n_steps: a multiple of TURN. */
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
    double *steps = calloc(n_steps, sizeof *steps), *loops = calloc(n_steps, sizeof *loops);
    b.most_submissions = n_steps * 4;
    b.submissions = calloc(b.most_submissions, sizeof *b.submissions);
    if (!steps || !loops || !b.submissions || sched_create(&c, &b.s, NULL))
        bench_die("out of memory");
    for (uint32_t i = 0; i < WAITING + RUNNING; i++)
        submit_one(&b);
    warm_up(&b);
    b.n_submissions = 0;
    for (uint32_t at = 0; at < n_steps; at += TURN) {
        for (uint32_t i = at; i < at + TURN; i++)
            steps[i] = one_step(&b);
        for (uint32_t i = at; i < at + TURN; i++)
            loops[i] = pure_loop(b.n_turns);
    }
    report(policy, prefix_caching, steps, loops, n_steps);
    snprintf(name, sizeof name, "submission: %s, 10000 waiting%s", policy->name, prefix_caching ? ", caching" : "");
    bench_row(name, "us", b.submissions, b.n_submissions);
    sched_destroy(b.s);
    free(b.submissions);
    free(loops);
    free(steps);
}

void bench_policies(bool quick)
{
    for (uint32_t i = 0; sched_policy_at(i); i++)
        for (int caching = 0; caching <= 1; caching++)
            measure(sched_policy_at(i), caching, quick ? 100 : 3000);
}
