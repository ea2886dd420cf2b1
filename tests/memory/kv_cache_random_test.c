/* Runs random programs on the KV cache and on a naive model of it. Both must agree after every operation.
 *
 *     kv_cache_random_test [SEED [OPERATIONS]]
 *
 * The test simulates the content of the blocks of both tiers: a step makes the recorded copies in order, then writes
 * the computed content, and every named block must hold the content that its name stands for. At the end the test
 * breaks the model or the copies on purpose, one rule at a time, and must find the difference each time. As a sample
 * (tests/sample.h) it runs half of the operations, from the sample's seed on.
 */
#include "memory/kv_table.h"
#include "tests/memory/kv_model.h"
#include "tests/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TABLES 6
#define EPISODE_OPERATIONS 400
#define N_NAMES 120 /* hashes that blocks can be named with; a chain is a run of them */
#define CHAIN 30
#define SCRIBBLE (-2) /* the content of a block that is being computed */

struct episode {
    struct model m;
    struct kv_cache *cache;
    struct model_table tables[MAX_TABLES];
    struct kv_table *real[MAX_TABLES];
    int device[KV_MAX_GROUPS][MODEL_BLOCKS], host[KV_MAX_GROUPS][MODEL_BLOCKS];
};

static uint64_t random_state;
static bool expect_difference;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) * n >> 31);
}

static struct key256 hash_of(int name)
{
    struct key256 key = {{0}};
    /* Few distinct first bytes, so that buckets collide. */
    key.bytes[0] = (uint8_t)(name % 8);
    key.bytes[31] = (uint8_t)name;
    return key;
}

static int random_chain(struct key256 *hashes)
{
    int chain = (int)below(N_NAMES / CHAIN) * CHAIN;
    for (int i = 0; i < CHAIN; i++)
        hashes[i] = hash_of(chain + i);
    return chain;
}

/* ---- the comparison ---- */

static bool differ(const char *what)
{
    if (!expect_difference)
        printf("differs: %s\n", what);
    return false;
}

static bool compare_usage(const struct episode *e, uint32_t g)
{
    const struct model_group *group = &e->m.groups[g];
    struct kv_usage usage = kv_cache_usage(e->cache, g);
    uint32_t n_cached = 0;
    for (uint32_t i = 0; i < group->n_free; i++)
        n_cached += group->labels[group->free_list[i]].name >= 0;
    if (usage.n_free != group->n_free || usage.n_cached_free != n_cached || usage.n_evicted != group->n_lost ||
        usage.n_host_used != group->n_queued || usage.n_spilled != group->n_spilled ||
        usage.n_loaded != group->n_loaded)
        return differ("usage");
    return true;
}

static bool compare_tables(const struct episode *e, uint32_t g)
{
    for (int i = 0; i < MAX_TABLES; i++) {
        const struct model_table *t = &e->tables[i];
        uint32_t n, held = 0, shared = 0;
        if (!t->used)
            continue;
        const uint32_t *blocks = kv_table_blocks(e->real[i], g, &n);
        if (n != t->n[g] || (n > 0 && memcmp(blocks, t->entries[g], n * sizeof *blocks) != 0))
            return differ("a table");
        for (uint32_t j = 0; j < n; j++)
            if (blocks[j] != KV_NO_BLOCK) {
                held++;
                shared += e->m.groups[g].refs[blocks[j]] > 1;
            }
        if (held != kv_table_held(e->real[i], g) || shared != kv_table_shared(e->real[i], g))
            return differ("blocks held or shared");
    }
    return true;
}

static bool compare_moves(const struct episode *e)
{
    uint32_t n;
    const struct kv_move *moves = kv_cache_moves(e->cache, &n);
    if (n != e->m.n_moves)
        return differ("moves");
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_move *a = &moves[i], *b = &e->m.moves[i];
        if (a->group != b->group || a->device_block != b->device_block || a->host_block != b->host_block ||
            a->to_host != b->to_host)
            return differ("a move");
    }
    return true;
}

/* Reading the usage gives the pending names to their blocks, so it is read after some operations only. */
static bool compare(const struct episode *e)
{
    struct quire_error err = {.text = ""};
    bool usage = below(4) == 0;
    if (kv_cache_check(e->cache, &err))
        return differ(err.text);
    for (uint32_t g = 0; g < e->m.config.n_groups; g++)
        if ((usage && !compare_usage(e, g)) || !compare_tables(e, g))
            return false;
    for (uint32_t i = 0; i < e->m.config.n_tenants; i++)
        if (kv_cache_evicted(e->cache, i) != e->m.n_evicted[i])
            return differ("evictions of a tenant");
    return compare_moves(e);
}

/* ---- steps ---- */

static void copy(struct episode *e, const struct kv_move *move)
{
    int *device = &e->device[move->group][move->device_block];
    int *host = &e->host[move->group][move->host_block];
    if (move->to_host)
        *host = *device;
    else
        *device = *host;
}

static bool contents_are_named(const struct episode *e)
{
    for (uint32_t g = 0; g < e->m.config.n_groups; g++) {
        const struct model_group *group = &e->m.groups[g];
        for (uint32_t b = 0; b < e->m.config.groups[g].n_blocks; b++)
            if (group->labels[b].name >= 0 && group->labels[b].name != e->device[g][b])
                return differ("what a block holds");
        for (uint32_t i = 0; i < group->n_queued; i++)
            if (group->host[group->queue[i]].name != e->host[g][group->queue[i]])
                return differ("what a host block holds");
    }
    return true;
}

static bool step(struct episode *e)
{
    uint32_t n;
    const struct kv_move *moves = kv_cache_moves(e->cache, &n);
    for (uint32_t i = 0; i < n; i++)
        copy(e, &moves[e->m.wrong == WRONG_ORDER ? n - 1 - i : i]);
    kv_cache_clear_moves(e->cache);
    e->m.n_moves = 0;
    for (uint32_t g = 0; g < e->m.config.n_groups; g++)
        for (uint32_t b = 0; b < e->m.config.groups[g].n_blocks; b++)
            if (e->m.groups[g].refs[b] > 0 && e->m.groups[g].labels[b].name < 0)
                e->device[g][b] = SCRIBBLE;
    return contents_are_named(e);
}

/* ---- operations ---- */

/* A step computes blocks, and blocks [index, end) get names by their position in the chain. */
static bool publish(struct episode *e, int at, int chain, uint32_t index, uint32_t end)
{
    struct model_table *t = &e->tables[at];
    if (!step(e))
        return false;
    t->owner = below(e->m.config.n_tenants);
    kv_table_set_owner(e->real[at], t->owner);
    for (; index < end && index < CHAIN; index++) {
        struct key256 hash = hash_of(chain + (int)index);
        kv_table_publish(e->real[at], index, &hash);
        model_publish(&e->m, t, index, chain + (int)index);
        for (uint32_t g = 0; g < e->m.config.n_groups; g++) {
            uint32_t block = index < t->n[g] ? t->entries[g][index] : KV_NO_BLOCK;
            if (block != KV_NO_BLOCK && e->device[g][block] == SCRIBBLE && e->m.groups[g].labels[block].name >= 0)
                e->device[g][block] = e->m.groups[g].labels[block].name;
        }
    }
    return true;
}

static bool publish_some(struct episode *e, int at)
{
    uint32_t index = below(e->tables[at].n[0] + 1);
    return publish(e, at, (int)below(N_NAMES / CHAIN) * CHAIN, index, index + 1 + below(4));
}

static bool load(struct episode *e, int at, int chain, const struct key256 *hashes, uint32_t n_hashes,
                 uint32_t max_tokens)
{
    struct model_table *t = &e->tables[at];
    uint32_t bt = e->m.config.block_tokens;
    uint32_t n = kv_table_loadable(e->real[at], hashes, n_hashes, max_tokens);
    if (n != model_loadable(&e->m, t, chain, n_hashes, max_tokens))
        return differ("what is loadable");
    if (below(4) == 0)
        n = below(n / bt + 1) * bt; /* fewer positions, which a windowed group may not hold */
    if (n == 0 || below(8) == 0)
        return true;
    return kv_table_load(e->real[at], hashes, n) == model_load(&e->m, t, chain, n) || differ("load's status");
}

static bool operate_empty(struct episode *e, int at)
{
    struct model_table *t = &e->tables[at];
    struct key256 hashes[CHAIN];
    if (below(5) == 0) {
        int from = (int)below(MAX_TABLES);
        uint32_t n = below(8);
        if (!e->tables[from].used || from == at)
            return true;
        return kv_table_share(e->real[from], n, e->real[at]) == model_share(&e->m, &e->tables[from], n, t) ||
               differ("share's status");
    }
    int chain = random_chain(hashes);
    uint32_t n_hashes = below(CHAIN + 1), max_tokens = below(CHAIN * e->m.config.block_tokens);
    if (kv_table_match(e->real[at], hashes, n_hashes, max_tokens) != model_match(&e->m, t, chain, n_hashes, max_tokens))
        return differ("match's length");
    return load(e, at, chain, hashes, n_hashes, max_tokens);
}

static bool reserve(struct episode *e, int at)
{
    struct model_table *t = &e->tables[at];
    uint32_t bt = e->m.config.block_tokens;
    uint32_t n_tokens = t->n[0] * bt + below(4 * bt);
    if (n_tokens > MODEL_ENTRIES * bt)
        n_tokens = MODEL_ENTRIES * bt;
    uint32_t n_computed = below(t->n[0] * bt + 1);
    return kv_table_reserve(e->real[at], n_computed, n_tokens) == model_reserve(&e->m, t, n_computed, n_tokens) ||
           differ("reserve's status");
}

/* Reserves every free block of the group that has the fewest. */
static bool reserve_all(struct episode *e, int at)
{
    uint32_t n = MODEL_ENTRIES, bt = e->m.config.block_tokens;
    for (uint32_t g = 0; g < e->m.config.n_groups; g++)
        n = e->m.groups[g].n_free < n ? e->m.groups[g].n_free : n;
    return kv_table_reserve(e->real[at], 0, n * bt) == model_reserve(&e->m, &e->tables[at], 0, n * bt) ||
           differ("reserve's status");
}

static bool is_empty(const struct model *m, const struct model_table *t)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        n += t->n[g];
    return n == 0;
}

/* Serves a prompt: takes its cached blocks from the device or the host, then computes and names the rest. */
static bool serve(struct episode *e, int at)
{
    struct model_table *t = &e->tables[at];
    struct key256 hashes[CHAIN];
    uint32_t bt = e->m.config.block_tokens, n = 1 + below(CHAIN);
    int chain = random_chain(hashes);
    if (kv_table_match(e->real[at], hashes, n, n * bt) != model_match(&e->m, t, chain, n, n * bt))
        return differ("match's length");
    if (!load(e, at, chain, hashes, n, n * bt))
        return false;
    uint32_t n_hit = t->n[0];
    int status = kv_table_reserve(e->real[at], n_hit * bt, n * bt);
    if (status != model_reserve(&e->m, t, n_hit * bt, n * bt))
        return differ("reserve's status");
    return status || publish(e, at, chain, n_hit, n);
}

/* Repeats failing admissions between two steps, so that the blocks they load and evict fill the space for moves. */
static bool admit_in_vain(struct episode *e, int at)
{
    struct model_table *t = &e->tables[at];
    struct key256 hashes[CHAIN];
    for (int i = 0; i < 30; i++) {
        int chain = random_chain(hashes);
        if (kv_table_match(e->real[at], hashes, CHAIN, UINT32_MAX) != model_match(&e->m, t, chain, CHAIN, UINT32_MAX))
            return differ("match's length");
        if (!load(e, at, chain, hashes, CHAIN, UINT32_MAX))
            return false;
        kv_table_clear(e->real[at]);
        model_clear(&e->m, t);
        if (!reserve_all(e, at) || !compare(e))
            return false;
        kv_table_clear(e->real[at]);
        model_clear(&e->m, t);
    }
    return true;
}

static bool operate(struct episode *e)
{
    int at = (int)below(MAX_TABLES);
    struct model_table *t = &e->tables[at];
    uint32_t dice = below(200);
    if (dice == 0) {
        kv_cache_drop_cached(e->cache);
        model_drop_cached(&e->m);
    } else if (!t->used) {
        t->used = kv_table_create(e->cache, &e->real[at], NULL) == QUIRE_OK;
        t->owner = 0;
    } else if (is_empty(&e->m, t) && dice < 194) {
        if (dice < 4)
            return admit_in_vain(e, at);
        if (dice < 100)
            return serve(e, at);
        return dice < 120 ? reserve(e, at) : operate_empty(e, at);
    } else if (dice < 100) {
        return reserve(e, at);
    } else if (dice < 150) {
        return publish_some(e, at);
    } else if (dice < 190) {
        kv_table_clear(e->real[at]);
        model_clear(&e->m, t);
    } else {
        kv_table_destroy(e->real[at]);
        model_clear(&e->m, t);
        t->used = false;
    }
    return true;
}

static struct kv_config random_config(void)
{
    struct kv_config c = {.block_tokens = 1 + below(5),
                          .n_groups = 1 + below(3),
                          .prefix_caching = below(10) > 0,
                          .eviction = below(2) ? KV_EVICT_REUSE : KV_EVICT_LRU,
                          .n_tenants = 1 + below(MODEL_TENANTS)};
    uint32_t most = below(2) ? MODEL_BLOCKS : 16;
    for (uint32_t g = 0; g < c.n_groups; g++) {
        c.groups[g].n_blocks = 4 + below(most - 4);
        c.groups[g].window = g > 0 || below(4) == 0 ? 1 + below(20) : 0;
        c.groups[g].sinks = c.groups[g].window && below(2) ? below(12) : 0;
        if (c.prefix_caching && below(4) > 0)
            c.groups[g].n_host_blocks = 1 + below(MODEL_BLOCKS / 2);
    }
    return c;
}

static bool run_episode(uint64_t seed, enum wrong_rule wrong)
{
    struct episode *e = calloc(1, sizeof *e);
    random_state = seed * 0x9e3779b97f4a7c15u;
    struct kv_config config = random_config();
    model_open(&e->m, &config, wrong);
    bool ok = kv_cache_create(&config, &e->cache, NULL) == QUIRE_OK;
    for (int i = 0; ok && i < EPISODE_OPERATIONS; i++)
        ok = operate(e) && compare(e);
    for (int i = 0; i < MAX_TABLES; i++)
        if (e->tables[i].used)
            kv_table_destroy(e->real[i]);
    ok = ok && kv_cache_check(e->cache, NULL) == QUIRE_OK;
    kv_cache_destroy(e->cache);
    free(e);
    return ok;
}

int main(int argc, char **argv)
{
    const struct sample sample = sample_of(SAMPLE_IS_SANITIZED ? 16 : 2);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 + sample.seed;
    uint64_t n_operations = argc > 2 ? strtoull(argv[2], NULL, 10) : 400000 / sample.one_in;
    for (uint64_t done = 0; done < n_operations; done += EPISODE_OPERATIONS, seed++)
        if (!run_episode(seed, WRONG_NOTHING)) {
            printf("seed %llu\n", (unsigned long long)seed);
            return 1;
        }
    printf("%llu operations agree\n", (unsigned long long)n_operations);
    expect_difference = true;
    for (int wrong = WRONG_NOTHING + 1; wrong < N_WRONG; wrong++) {
        int n_found = 0;
        for (uint64_t i = 1; i <= 40; i++)
            n_found += !run_episode(i, (enum wrong_rule)wrong);
        printf("wrong rule %d: found in %d of 40 episodes\n", wrong, n_found);
        if (n_found == 0)
            return 1;
    }
    return 0;
}
