/* What a step costs the scheduler alone: sched_bench [STEPS]
 *
 * Everyone decodes: one row each, a token each, a full block named every 16 tokens. Prints the
 * median and the 99th percentile of the CPU time of one step, sched_plan and sched_commit apart.
 * Not part of the test suite.
 */
#include "memory/prefix.h"
#include "scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PROMPT 128

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void submit_all(struct sched *s, uint32_t n, uint32_t n_steps)
{
    uint32_t prompt[PROMPT], seq;
    struct key256 hashes[PROMPT / 16];
    struct kv_chain_root root = {.block_tokens = 16};
    struct key256 first = kv_chain_first(&root);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t t = 0; t < PROMPT; t++)
            prompt[t] = i * PROMPT + t;
        for (uint32_t b = 0; b < PROMPT / 16; b++)
            hashes[b] =
                kv_chain_next(&root.secret, b ? &hashes[b - 1] : &first, prompt + 16 * b, 16);
        struct sched_request r = {.id = i,
                                  .prompt = prompt,
                                  .n_prompt = PROMPT - i % 16,
                                  .max_tokens = n_steps + 64,
                                  .n = 1,
                                  .chain_first = first,
                                  .hashes = hashes};
        if (sched_submit(s, &r, &seq, NULL))
            abort();
    }
}

static void one_step(struct sched *s, struct sched_result *results, double *plan_us,
                     double *commit_us)
{
    static uint32_t token;
    const struct sched_plan *plan;
    double start = now_us();
    if (sched_plan(s, 0, &plan, NULL))
        abort();
    *plan_us = now_us() - start;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        if (plan->rows[i].samples)
            results[n++] =
                (struct sched_result){.seq = plan->rows[i].seq, .n_tokens = 1, .tokens = &token};
    token++;
    start = now_us();
    if (sched_commit(s, results, n, NULL, NULL, NULL))
        abort();
    *commit_us = now_us() - start;
}

static void bench(uint32_t n_running, uint32_t n_waiting, bool prefix_caching, uint32_t n_steps)
{
    struct sched_config c = {.kv = {.block_tokens = 16,
                                    .n_groups = 1,
                                    .prefix_caching = prefix_caching},
                             .max_num_seqs = n_running,
                             .max_num_batched_tokens = 8192,
                             .max_model_len = 32768,
                             .max_queued_requests = n_running + n_waiting,
                             .max_logit_rows = n_running,
                             .policy = sched_policy_find("priority")};
    struct sched *s;
    c.kv.groups[0].n_blocks = (n_running + 1) * (PROMPT + n_steps + 80) / 16;
    if (sched_create(&c, &s, NULL))
        abort();
    submit_all(s, n_running + n_waiting, n_steps);
    struct sched_result *results = calloc(n_running, sizeof *results);
    double *plan = calloc(n_steps, sizeof *plan), *commit = calloc(n_steps, sizeof *commit);
    for (uint32_t i = 0; i < 48; i++) /* the prompts */
        one_step(s, results, &plan[0], &commit[0]);
    for (uint32_t i = 0; i < n_steps; i++)
        one_step(s, results, &plan[i], &commit[i]);
    qsort(plan, n_steps, sizeof *plan, by_value);
    qsort(commit, n_steps, sizeof *commit, by_value);
    printf("%5u running, %4u waiting, prefix caching %-3s: plan %6.1f us (p99 %6.1f), "
           "commit %6.1f us (p99 %6.1f)\n",
           n_running, n_waiting, prefix_caching ? "on" : "off", plan[n_steps / 2],
           plan[n_steps * 99 / 100], commit[n_steps / 2], commit[n_steps * 99 / 100]);
    free(results);
    free(plan);
    free(commit);
    sched_destroy(s);
}

int main(int argc, char **argv)
{
    uint32_t n_steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000;
    if (quire_hash_init() || n_steps == 0)
        return 1;
    for (int caching = 1; caching >= 0; caching--) {
        bench(256, 0, caching, n_steps);
        bench(1000, 0, caching, n_steps);
        bench(1000, 1000, caching, n_steps);
    }
    return 0;
}
