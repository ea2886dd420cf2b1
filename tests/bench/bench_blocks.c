/* The cost of a block: taken and returned, found by its name, and as part of a prompt that finds nothing, all in a
 * cache full of old prompts.
 *
 * CPU time. The prompts of 8,192 tokens, 512 blocks, are visited in an order that no cache of the machine can predict.
 */
#include "memory/kv_cache.h"
#include "memory/kv_table.h"
#include "memory/prefix.h"
#include "tests/bench/host_bench.h"

#include <stdio.h>
#include <stdlib.h>

#define BLOCK 16
#define N_BLOCKS 512 /* of a prompt */
#define N_TOKENS (N_BLOCKS * BLOCK)
#define N_PROMPTS 64 /* in the pool: 524,288 tokens */

static double now_us(void)
{
    return bench_seconds(CLOCK_THREAD_CPUTIME_ID) * 1e6;
}

struct full_cache {
    struct kv_cache *cache;
    struct kv_table *table;
    struct key256 *hashes; /* [N_PROMPTS][N_BLOCKS] of the cached prompts */
    uint32_t n_prompts;    /* so far: the next one is new */
};

static void hash_prompt(uint32_t prompt, struct key256 *hashes)
{
    static uint32_t tokens[N_TOKENS];
    struct kv_chain_root root = {.block_tokens = BLOCK};
    struct key256 first = kv_chain_first(&root);
    tokens[0] = prompt;
    for (uint32_t b = 0; b < N_BLOCKS; b++)
        hashes[b] = kv_chain_next(&root.secret, b ? &hashes[b - 1] : &first, tokens + (size_t)BLOCK * b, BLOCK);
}

/* The next prompt replaces the least recently used one. */
static void new_prompt(struct full_cache *f)
{
    struct key256 *hashes = f->hashes + (size_t)(f->n_prompts % N_PROMPTS) * N_BLOCKS;
    hash_prompt(f->n_prompts++, hashes);
    if (kv_table_match(f->table, hashes, N_BLOCKS, N_TOKENS) != 0 || kv_table_reserve(f->table, 0, N_TOKENS))
        bench_die("kv cache: a new prompt was found, or no block");
    for (uint32_t b = 0; b < N_BLOCKS; b++)
        kv_table_publish(f->table, b, &hashes[b]);
    kv_table_clear(f->table);
    kv_cache_clear_moves(f->cache);
}

static void open_full(struct full_cache *f, enum kv_eviction eviction, uint32_t n_host_blocks)
{
    struct kv_config config = {.block_tokens = BLOCK, .n_groups = 1, .prefix_caching = true, .eviction = eviction};
    config.groups[0].n_blocks = N_PROMPTS * N_BLOCKS;
    config.groups[0].n_host_blocks = n_host_blocks;
    *f = (struct full_cache){.hashes = calloc((size_t)N_PROMPTS * N_BLOCKS, sizeof *f->hashes)};
    if (!f->hashes || kv_cache_create(&config, &f->cache, NULL) || kv_table_create(f->cache, &f->table, NULL))
        bench_die("kv cache: out of memory");
    for (uint32_t i = 0; i < 3 * N_PROMPTS; i++) /* the tiers below fill up as well */
        new_prompt(f);
}

static void close_full(struct full_cache *f)
{
    kv_table_destroy(f->table);
    kv_cache_destroy(f->cache);
    free(f->hashes);
}

static void bench_new_prompts(enum kv_eviction eviction, uint32_t n_host_blocks, const char *name, double *samples,
                              uint32_t n)
{
    struct full_cache f;
    open_full(&f, eviction, n_host_blocks);
    for (uint32_t i = 0; i < n; i++) {
        double start = now_us();
        new_prompt(&f);
        samples[i] = (now_us() - start) / N_BLOCKS;
    }
    bench_row(name, "us/block", samples, n);
    close_full(&f);
}

/* Each block of a random cached prompt is found and referenced; returning them is not timed. */
static void bench_lookup(double *samples, uint32_t n)
{
    struct full_cache f;
    open_full(&f, KV_EVICT_LRU, 0);
    for (uint32_t i = 0, at = 0; i < n; i++) {
        at = (at * 29 + 17) % N_PROMPTS;
        double start = now_us();
        uint32_t n_hit = kv_table_match(f.table, f.hashes + (size_t)at * N_BLOCKS, N_BLOCKS, N_TOKENS);
        samples[i] = now_us() - start;
        if (n_hit != N_TOKENS)
            bench_die("kv cache: a cached prompt was not found");
        kv_table_clear(f.table);
    }
    bench_row("prefix cache: look up and take 8,192 cached tokens", "us", samples, n);
    close_full(&f);
}

/* Named blocks of old prompts are taken, and returned without a name. */
static void bench_take(double *taken, double *given, uint32_t n)
{
    struct full_cache f;
    open_full(&f, KV_EVICT_LRU, 0);
    for (uint32_t i = 0; i < n; i++) {
        double start = now_us();
        if (kv_table_reserve(f.table, 0, N_TOKENS))
            bench_die("kv cache: no block");
        double middle = now_us();
        kv_table_clear(f.table);
        taken[i] = (middle - start) / N_BLOCKS * 1e3;
        given[i] = (now_us() - middle) / N_BLOCKS * 1e3;
        new_prompt(&f); /* names them */
    }
    bench_row("prefix cache: take a block from an old prompt", "ns/block", taken, n);
    bench_row("prefix cache: give a block back", "ns/block", given, n);
    close_full(&f);
}

void bench_blocks(bool quick)
{
    uint32_t n = quick ? 20 : 1000;
    double *samples = calloc(n, sizeof *samples), *others = calloc(n, sizeof *others);
    if (!samples || !others)
        bench_die("out of memory");
    bench_take(samples, others, n);
    bench_lookup(samples, n);
    bench_new_prompts(KV_EVICT_LRU, 0, "prefix cache: a new block of 16 tokens, no hits", samples, n);
    bench_new_prompts(KV_EVICT_REUSE, 0, "prefix cache: the same, eviction by reuse", samples, n);
    bench_new_prompts(KV_EVICT_LRU, N_PROMPTS * N_BLOCKS, "prefix cache: the same, with a host tier", samples, n);
    free(samples);
    free(others);
}
