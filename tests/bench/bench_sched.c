/* What a step costs the scheduler alone, and what a block costs the prefix cache at no hits.
 *
 * Scheduling: everyone decodes: one row each, a token each, a full block named every 16 tokens.
 * CPU time of sched_plan and sched_commit together.
 */
#include "memory/kv_cache.h"
#include "memory/prefix.h"
#include "scheduler/scheduler.h"
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
            hashes[b] = kv_chain_next(&root.secret, b ? &hashes[b - 1] : &first,
                                      prompt + BLOCK * b, BLOCK);
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
        if (plan->rows[i].samples)
            results[n++] =
                (struct sched_result){.seq = plan->rows[i].seq, .n_tokens = 1, .tokens = &token};
    token++;
    start = now_us();
    if (sched_commit(s, results, n, NULL, NULL, NULL))
        bench_die("scheduler: a step was not taken");
    return us + now_us() - start;
}

static void schedule(uint32_t n_running, bool prefix_caching, uint32_t n_steps)
{
    char name[64];
    struct sched_config c = {.kv = {.block_tokens = BLOCK,
                                    .n_groups = 1,
                                    .prefix_caching = prefix_caching},
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
    snprintf(name, sizeof name, "scheduling: %u running, prefix caching %s", n_running,
             prefix_caching ? "on" : "off");
    bench_row(name, "us/step", samples, n_steps);
    free(results);
    free(samples);
    sched_destroy(s);
}

/* New prompts, one after the other, through a cache that is full of old ones: each block is hashed,
 * looked up, taken from an old owner, named and given back. */
static void name_blocks(uint32_t n_prompts)
{
    enum { N_BLOCKS = 512, N_TOKENS = N_BLOCKS * BLOCK };
    static uint32_t tokens[N_TOKENS];
    static struct key256 hashes[N_BLOCKS];
    struct kv_config config = {.block_tokens = BLOCK, .n_groups = 1, .prefix_caching = true};
    struct kv_cache *cache;
    struct kv_table *table;
    config.groups[0].n_blocks = 16384;
    if (kv_cache_create(&config, &cache, NULL) || kv_table_create(cache, &table, NULL))
        bench_die("kv cache: out of memory");
    struct kv_chain_root root = {.block_tokens = BLOCK};
    struct key256 first = kv_chain_first(&root);
    double *samples = calloc(n_prompts, sizeof *samples);
    if (!samples)
        bench_die("out of memory");
    uint32_t warm = config.groups[0].n_blocks / N_BLOCKS + 1;
    for (uint32_t i = 0; i < warm + n_prompts; i++) {
        tokens[0] = i;
        double start = now_us();
        for (uint32_t b = 0; b < N_BLOCKS; b++)
            hashes[b] = kv_chain_next(&root.secret, b ? &hashes[b - 1] : &first,
                                      tokens + (size_t)BLOCK * b, BLOCK);
        if (kv_table_match(table, hashes, N_BLOCKS, N_TOKENS) != 0 ||
            kv_table_reserve(table, 0, N_TOKENS))
            bench_die("kv cache: a new prompt was found, or no block");
        for (uint32_t b = 0; b < N_BLOCKS; b++)
            kv_table_publish(table, b, &hashes[b]);
        kv_table_clear(table);
        if (i >= warm)
            samples[i - warm] = (now_us() - start) / N_BLOCKS;
    }
    bench_row("prefix cache: a new block of 16 tokens, no hits", "us/block", samples, n_prompts);
    free(samples);
    kv_table_destroy(table);
    kv_cache_destroy(cache);
}

void bench_sched(bool quick)
{
    uint32_t n_steps = quick ? 100 : 2000;
    for (int caching = 0; caching <= 1; caching++) {
        schedule(256, caching, n_steps);
        schedule(1000, caching, n_steps);
    }
    name_blocks(quick ? 20 : 500);
}
