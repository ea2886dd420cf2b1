/* Random programs on the KV cache beside a naive model of it; both must agree after every
 * operation.
 *
 *     kv_cache_random_test [SEED [OPERATIONS]]
 *
 * The model has no lists and no hash table: arrays, scanned and shifted. It predicts every block
 * id. At the end the model is made wrong on purpose, in one rule at a time; each time the
 * difference must be found.
 */
#include "memory/kv_cache.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 64
#define MAX_TABLES 6
#define MAX_ENTRIES 48
#define EPISODE_OPERATIONS 400
#define N_NAMES 120 /* hashes that blocks can be named with; a chain is a run of them */
#define CHAIN 30

enum wrong_rule {
    WRONG_NOTHING = 0,
    WRONG_FREE_ORDER,  /* a sequence's head is given back before its tail */
    WRONG_WINDOW,      /* a window is one position too short */
    WRONG_HIT,         /* a hit does not take a reference */
    WRONG_NAME,        /* a name moves to the block that was named last */
    WRONG_BLANK,       /* blank blocks queue up behind cached ones */
    WRONG_SHARE,       /* sharing takes references behind the window too */
    N_WRONG
};

struct model_group {
    uint32_t refs[MAX_BLOCKS];
    int name[MAX_BLOCKS];                  /* -1 = none */
    uint32_t free_list[MAX_BLOCKS], n_free; /* front first */
    uint64_t n_evicted;
};

struct model_table {
    bool used;
    uint32_t entries[KV_MAX_GROUPS][MAX_ENTRIES], n[KV_MAX_GROUPS];
    struct kv_table *real;
};

struct model {
    struct kv_config config;
    enum wrong_rule wrong;
    struct model_group groups[KV_MAX_GROUPS];
    struct model_table tables[MAX_TABLES];
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
    /* Few first bytes, so that buckets collide. */
    key.bytes[0] = (uint8_t)(name % 8);
    key.bytes[31] = (uint8_t)name;
    return key;
}

/* --- the model --- */

static uint32_t first_needed(const struct model *m, uint32_t g, uint32_t position)
{
    uint32_t window = m->config.groups[g].window;
    if (window == 0)
        return 0;
    if (m->wrong == WRONG_WINDOW && window > 1)
        window--;
    uint32_t block = 0;
    /* Block `block` is needed when its last position is one that `position` reads. */
    while ((block + 1) * m->config.block_tokens - 1 + window <= position)
        block++;
    return block;
}

static void insert_free(struct model_group *group, uint32_t at, uint32_t block)
{
    memmove(group->free_list + at + 1, group->free_list + at,
            (group->n_free - at) * sizeof group->free_list[0]);
    group->free_list[at] = block;
    group->n_free++;
}

static void model_unref(const struct model *m, struct model_group *group, uint32_t block)
{
    if (--group->refs[block] > 0)
        return;
    bool back = group->name[block] >= 0 || m->wrong == WRONG_BLANK;
    insert_free(group, back ? group->n_free : 0, block);
}

static void model_ref(struct model_group *group, uint32_t block)
{
    for (uint32_t i = 0; group->refs[block] == 0 && i < group->n_free; i++)
        if (group->free_list[i] == block) {
            memmove(group->free_list + i, group->free_list + i + 1,
                    (group->n_free - i - 1) * sizeof group->free_list[0]);
            group->n_free--;
            break;
        }
    group->refs[block]++;
}

static uint32_t model_take(struct model_group *group)
{
    uint32_t block = group->free_list[0];
    model_ref(group, block);
    group->n_evicted += group->name[block] >= 0;
    group->name[block] = -1;
    return block;
}

static uint32_t model_find(const struct model *m, uint32_t g, int name)
{
    for (uint32_t b = 0; b < m->config.groups[g].n_blocks; b++)
        if (m->groups[g].name[b] == name)
            return b;
    return KV_NO_BLOCK;
}

static void model_clear(struct model *m, struct model_table *t)
{
    for (uint32_t g = 0; g < m->config.n_groups; g++) {
        for (uint32_t i = 0; i < t->n[g]; i++) {
            uint32_t at = m->wrong == WRONG_FREE_ORDER ? i : t->n[g] - 1 - i;
            if (t->entries[g][at] != KV_NO_BLOCK)
                model_unref(m, &m->groups[g], t->entries[g][at]);
        }
        t->n[g] = 0;
    }
}

static uint32_t model_match(struct model *m, struct model_table *t, int chain, uint32_t n_hashes,
                            uint32_t max_tokens)
{
    uint32_t bt = m->config.block_tokens;
    uint32_t n = max_tokens / bt < n_hashes ? max_tokens / bt : n_hashes;
    if (!m->config.prefix_caching)
        return 0;
    /* Every length from the longest: is all there that it needs? */
    for (;; n--) {
        bool all = true;
        for (uint32_t g = 0; g < m->config.n_groups; g++)
            for (uint32_t i = first_needed(m, g, n * bt); i < n; i++)
                all &= model_find(m, g, chain + (int)i) != KV_NO_BLOCK;
        if (all)
            break;
    }
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (t->n[g] = 0; t->n[g] < n; t->n[g]++) {
            uint32_t i = t->n[g];
            t->entries[g][i] = KV_NO_BLOCK;
            if (i < first_needed(m, g, n * bt))
                continue;
            t->entries[g][i] = model_find(m, g, chain + (int)i);
            if (m->wrong != WRONG_HIT)
                model_ref(&m->groups[g], t->entries[g][i]);
        }
    return n * bt;
}

static int model_reserve(struct model *m, struct model_table *t, uint32_t n_computed,
                         uint32_t n_tokens)
{
    uint32_t bt = m->config.block_tokens, n = (n_tokens + bt - 1) / bt;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (uint32_t i = 0; i < first_needed(m, g, n_computed) && i < t->n[g]; i++) {
            if (t->entries[g][i] != KV_NO_BLOCK)
                model_unref(m, &m->groups[g], t->entries[g][i]);
            t->entries[g][i] = KV_NO_BLOCK;
        }
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        if (n > t->n[g] && n - t->n[g] > m->groups[g].n_free)
            return QUIRE_EXHAUSTED;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        while (t->n[g] < n)
            t->entries[g][t->n[g]++] = model_take(&m->groups[g]);
    return QUIRE_OK;
}

static void model_publish(struct model *m, struct model_table *t, uint32_t index, int name)
{
    for (uint32_t g = 0; g < m->config.n_groups && m->config.prefix_caching; g++) {
        struct model_group *group = &m->groups[g];
        uint32_t block = index < t->n[g] ? t->entries[g][index] : KV_NO_BLOCK;
        uint32_t other = model_find(m, g, name);
        if (block == KV_NO_BLOCK || group->name[block] >= 0)
            continue;
        if (other != KV_NO_BLOCK && m->wrong != WRONG_NAME)
            continue;
        if (other != KV_NO_BLOCK)
            group->name[other] = -1;
        group->name[block] = name;
    }
}

static int model_share(struct model *m, const struct model_table *from, uint32_t n_blocks,
                       struct model_table *to)
{
    uint32_t position = n_blocks * m->config.block_tokens;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (uint32_t i = first_needed(m, g, position); i < n_blocks; i++)
            if (i >= from->n[g] || from->entries[g][i] == KV_NO_BLOCK)
                return QUIRE_NOT_FOUND;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (to->n[g] = 0; to->n[g] < n_blocks; to->n[g]++) {
            uint32_t i = to->n[g];
            bool needed = i >= first_needed(m, g, position) || m->wrong == WRONG_SHARE;
            to->entries[g][i] = needed ? from->entries[g][i] : KV_NO_BLOCK;
            if (to->entries[g][i] != KV_NO_BLOCK)
                model_ref(&m->groups[g], to->entries[g][i]);
        }
    return QUIRE_OK;
}

static void model_drop_cached(struct model *m)
{
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (uint32_t i = 0; i < m->groups[g].n_free; i++) {
            m->groups[g].n_evicted += m->groups[g].name[m->groups[g].free_list[i]] >= 0;
            m->groups[g].name[m->groups[g].free_list[i]] = -1;
        }
}

/* --- the comparison --- */

static bool differ(const char *what)
{
    if (!expect_difference)
        printf("differs: %s\n", what);
    return false;
}

static bool compare(const struct model *m, const struct kv_cache *cache)
{
    struct quire_error err = {{0}};
    if (kv_cache_check(cache, &err))
        return differ(err.text);
    for (uint32_t g = 0; g < m->config.n_groups; g++) {
        const struct model_group *group = &m->groups[g];
        struct kv_usage usage = kv_cache_usage(cache, g);
        uint32_t n_cached = 0;
        for (uint32_t i = 0; i < group->n_free; i++)
            n_cached += group->name[group->free_list[i]] >= 0;
        if (usage.n_free != group->n_free || usage.n_cached_free != n_cached ||
            usage.n_evicted != group->n_evicted)
            return differ("usage");
        for (int i = 0; i < MAX_TABLES; i++) {
            const struct model_table *t = &m->tables[i];
            uint32_t n, held = 0;
            if (!t->used)
                continue;
            const uint32_t *blocks = kv_table_blocks(t->real, g, &n);
            if (n != t->n[g] || (n > 0 && memcmp(blocks, t->entries[g], n * sizeof *blocks) != 0))
                return differ("a table");
            for (uint32_t j = 0; j < n; j++)
                held += blocks[j] != KV_NO_BLOCK;
            if (held != kv_table_held(t->real, g))
                return differ("blocks held");
        }
    }
    return true;
}

static void open_model(struct model *m, enum wrong_rule wrong)
{
    memset(m, 0, sizeof *m);
    m->wrong = wrong;
    m->config.block_tokens = 1 + below(5);
    m->config.n_groups = 1 + below(3);
    m->config.prefix_caching = below(10) > 0;
    for (uint32_t g = 0; g < m->config.n_groups; g++) {
        m->config.groups[g].n_blocks = 4 + below(MAX_BLOCKS - 4);
        m->config.groups[g].window = g > 0 || below(4) == 0 ? 1 + below(20) : 0;
        m->groups[g].n_free = m->config.groups[g].n_blocks;
        for (uint32_t b = 0; b < MAX_BLOCKS; b++) {
            m->groups[g].free_list[b] = b;
            m->groups[g].name[b] = -1;
        }
    }
}

static bool is_empty(const struct model *m, const struct model_table *t)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        n += t->n[g];
    return n == 0;
}

static bool operate_empty(struct model *m, struct model_table *t)
{
    if (below(3) == 0) {
        const struct model_table *from = &m->tables[below(MAX_TABLES)];
        uint32_t n = below(8);
        if (!from->used || from == t)
            return true;
        return kv_table_share(from->real, n, t->real) == model_share(m, from, n, t) ||
               differ("share's status");
    }
    int chain = (int)below(N_NAMES / CHAIN) * CHAIN;
    struct key256 hashes[CHAIN];
    for (int i = 0; i < CHAIN; i++)
        hashes[i] = hash_of(chain + i);
    uint32_t n_hashes = below(CHAIN + 1), max_tokens = below(CHAIN * m->config.block_tokens);
    return kv_table_match(t->real, hashes, n_hashes, max_tokens) ==
               model_match(m, t, chain, n_hashes, max_tokens) ||
           differ("match's length");
}

static bool operate(struct model *m, struct kv_cache *cache)
{
    struct model_table *t = &m->tables[below(MAX_TABLES)];
    uint32_t bt = m->config.block_tokens, dice = below(100);
    if (dice == 0) {
        kv_cache_drop_cached(cache);
        model_drop_cached(m);
    } else if (!t->used) {
        t->used = kv_table_create(cache, &t->real, NULL) == QUIRE_OK;
    } else if (is_empty(m, t) && dice >= 40 && dice < 97) {
        return operate_empty(m, t);
    } else if (dice < 50) {
        uint32_t n_tokens = t->n[0] * bt + below(4 * bt);
        if (n_tokens > MAX_ENTRIES * bt)
            n_tokens = MAX_ENTRIES * bt;
        uint32_t n_computed = below(t->n[0] * bt + 1);
        if (kv_table_reserve(t->real, n_computed, n_tokens) !=
            model_reserve(m, t, n_computed, n_tokens))
            return differ("reserve's status");
    } else if (dice < 85) {
        /* A block is named by its place in a chain, as the scheduler does it. */
        int chain = (int)below(N_NAMES / CHAIN) * CHAIN;
        uint32_t index = below(t->n[0] + 1);
        if (index >= CHAIN)
            return true;
        struct key256 hash = hash_of(chain + (int)index);
        kv_table_publish(t->real, index, &hash);
        model_publish(m, t, index, chain + (int)index);
    } else if (dice < 95) {
        kv_table_clear(t->real);
        model_clear(m, t);
    } else {
        kv_table_destroy(t->real);
        model_clear(m, t);
        t->used = false;
    }
    return true;
}

static bool run_episode(uint64_t seed, enum wrong_rule wrong)
{
    struct model *m = malloc(sizeof *m);
    struct kv_cache *cache;
    random_state = seed * 0x9e3779b97f4a7c15u;
    open_model(m, wrong);
    bool ok = kv_cache_create(&m->config, &cache, NULL) == QUIRE_OK;
    for (int i = 0; ok && i < EPISODE_OPERATIONS; i++)
        ok = operate(m, cache) && compare(m, cache);
    for (int i = 0; i < MAX_TABLES; i++)
        if (m->tables[i].used)
            kv_table_destroy(m->tables[i].real);
    ok = ok && kv_cache_check(cache, NULL) == QUIRE_OK;
    kv_cache_destroy(cache);
    free(m);
    return ok;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t n_operations = argc > 2 ? strtoull(argv[2], NULL, 10) : 400000;
    for (uint64_t done = 0; done < n_operations; done += EPISODE_OPERATIONS, seed++)
        if (!run_episode(seed, WRONG_NOTHING)) {
            printf("seed %llu\n", (unsigned long long)seed);
            return 1;
        }
    printf("%llu operations agree\n", (unsigned long long)n_operations);
    expect_difference = true;
    for (int wrong = WRONG_NOTHING + 1; wrong < N_WRONG; wrong++) {
        int n_found = 0;
        for (uint64_t i = 1; i <= 20; i++)
            n_found += !run_episode(i, (enum wrong_rule)wrong);
        printf("wrong rule %d: found in %d of 20 episodes\n", wrong, n_found);
        if (n_found == 0)
            return 1;
    }
    return 0;
}
