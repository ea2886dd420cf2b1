/* The cost of a step for the scheduler alone, with decodes only: one row and one token each, a full block named every
 * 16 tokens. CPU time of sched_plan and sched_commit together. */
#include "memory/prefix.h"
#include "scheduler/scheduler.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "scheduler/types/request.h"
#include "tests/bench/host_bench.h"

#include <stdio.h>
#include <stdlib.h>

#define PROMPT 128
#define BLOCK 16

static double now_us(void)
{
    return bench_seconds(CLOCK_THREAD_CPUTIME_ID) * 1e6;
}

static void submit_all(struct sched *s, uint32_t n, uint32_t n_steps)
{
    uint32_t prompt[PROMPT], seq;
    struct key256 hashes[PROMPT / BLOCK];
    struct kv_chain_root root = {.block_tokens = BLOCK};
    struct key256 first = kv_chain_first(&root);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t t = 0; t < PROMPT; t++)
            prompt[t] = i * PROMPT + t;
        for (uint32_t b = 0; b < PROMPT / BLOCK; b++)
            hashes[b] = kv_chain_next(&root.secret, b ? &hashes[b - 1] : &first, prompt + BLOCK * b, BLOCK);
        struct sched_request r = {.id = i,
                                  .prompt = prompt,
                                  .n_prompt = PROMPT - i % BLOCK,
                                  .max_tokens = n_steps + 64,
                                  .n = 1,
                                  .chain_first = first,
                                  .hashes = hashes};
        if (sched_submit(s, &r, &seq, NULL, NULL))
            bench_die("scheduler: a request was refused");
    }
}

/* Returns the scheduler's time. */
static double one_step(struct sched *s, struct sched_result *results)
{
    static uint32_t token;
    const struct sched_plan *plan;
    double start = now_us();
    if (sched_plan(s, 0, &plan, NULL))
        bench_die("scheduler: no plan");
    double us = now_us() - start;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        if (plan->rows[i].outputs.tokens)
            results[n++] = (struct sched_result){.seq = plan->rows[i].seq, .tokens = &token};
    token++;
    start = now_us();
    if (sched_commit(s, results, n, NULL, NULL, NULL))
        bench_die("scheduler: a step was not taken");
    return us + now_us() - start;
}

static void schedule(uint32_t n_running, bool prefix_caching, uint32_t n_steps)
{
    char name[64];
    struct sched_config c = {.kv = {.block_tokens = BLOCK, .n_groups = 1, .prefix_caching = prefix_caching},
                             .max_num_seqs = n_running,
                             .max_num_batched_tokens = 8192,
                             .max_model_len = 32768,
                             .max_queued_requests = n_running,
                             .max_logit_rows = n_running,
                             .policy = sched_policy_find("priority")};
    struct sched *s;
    c.kv.groups[0].n_blocks = (n_running + 1) * (PROMPT + n_steps + 80) / BLOCK;
    if (sched_create(&c, &s, NULL))
        bench_die("scheduler: out of memory");
    submit_all(s, n_running, n_steps);
    struct sched_result *results = calloc(n_running, sizeof *results);
    double *samples = calloc(n_steps, sizeof *samples);
    if (!results || !samples)
        bench_die("out of memory");
    for (uint32_t i = 0; i < 48; i++) /* the prompts */
        one_step(s, results);
    for (uint32_t i = 0; i < n_steps; i++)
        samples[i] = one_step(s, results);
    snprintf(name, sizeof name, "scheduling: %u running, prefix caching %s", n_running, prefix_caching ? "on" : "off");
    bench_row(name, "us/step", samples, n_steps);
    free(results);
    free(samples);
    sched_destroy(s);
}

void bench_sched(bool quick)
{
    uint32_t n_steps = quick ? 100 : 2000;
    for (int caching = 0; caching <= 1; caching++) {
        schedule(256, caching, n_steps);
        schedule(1000, caching, n_steps);
    }
}
