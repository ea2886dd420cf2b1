#include "tests/memory/kv_model.h"

#include <string.h>

void model_open(struct model *m, const struct kv_config *config, enum wrong_rule wrong)
{
    *m = (struct model){.config = *config, .wrong = wrong};
    for (uint32_t g = 0; g < config->n_groups; g++) {
        struct model_group *group = &m->groups[g];
        uint32_t n_host = config->groups[g].n_host_blocks;
        group->n_free = config->groups[g].n_blocks;
        group->n_spare = n_host;
        m->capacity += n_host ? 2 * group->n_free : 0;
        for (uint32_t b = 0; b < MODEL_BLOCKS; b++) {
            group->free_list[b] = b;
            group->labels[b].name = group->host[b].name = -1;
            group->spare[b] = b < n_host ? n_host - 1 - b : 0;
        }
    }
    if (wrong == WRONG_SPACE)
        m->capacity /= 2;
}

static void remove_at(uint32_t *list, uint32_t *n, uint32_t at)
{
    memmove(list + at, list + at + 1, (*n - at - 1) * sizeof *list);
    --*n;
}

/* Returns whether a position >= `position` can read a position of block i. */
static bool is_needed(const struct model *m, uint32_t g, uint32_t position, uint32_t i)
{
    uint32_t bt = m->config.block_tokens, window = m->config.groups[g].window, sinks = m->config.groups[g].sinks;
    if (window == 0)
        return true;
    if (m->wrong == WRONG_WINDOW && window > 1)
        window--;
    if (m->wrong == WRONG_SINKS && sinks > 0)
        sinks--;
    for (uint32_t p = i * bt; p < (i + 1) * bt; p++)
        if (p < sinks || p + window > position)
            return true;
    return false;
}

/* ---- where names are ---- */

static uint32_t find(const struct model *m, uint32_t g, int name)
{
    for (uint32_t b = 0; b < m->config.groups[g].n_blocks; b++)
        if (m->groups[g].labels[b].name == name)
            return b;
    return KV_NO_BLOCK;
}

/* Returns a position in the queue. */
static uint32_t find_host(const struct model_group *group, int name)
{
    for (uint32_t i = 0; i < group->n_queued; i++)
        if (group->host[group->queue[i]].name == name)
            return i;
    return KV_NO_BLOCK;
}

static void lose(struct model *m, struct model_group *group, struct model_label label)
{
    uint32_t n_most = m->config.groups[group - m->groups].n_blocks;
    group->n_lost++;
    m->n_evicted[label.owner]++;
    if (m->config.eviction != KV_EVICT_REUSE)
        return;
    if (group->n_history == n_most)
        memmove(group->history, group->history + 1, --group->n_history * sizeof label);
    group->history[group->n_history++] = label;
}

static void record(struct model *m, struct model_group *group, uint32_t block, uint32_t host_block, bool to_host)
{
    m->moves[m->n_moves++] = (struct kv_move){(uint32_t)(group - m->groups), block, host_block, to_host};
}

static void give_up(struct model *m, struct model_group *group, uint32_t block)
{
    struct model_label label = group->labels[block];
    if (m->n_moves >= m->capacity || group->n_queued + group->n_spare == 0) {
        lose(m, group, label);
        return;
    }
    if (group->n_spare == 0) {
        uint32_t at = m->wrong == WRONG_HOST_ORDER ? group->n_queued - 1 : 0;
        uint32_t out = group->queue[at];
        lose(m, group, group->host[out]);
        remove_at(group->queue, &group->n_queued, at);
        group->spare[group->n_spare++] = out;
    }
    uint32_t host_block = group->spare[--group->n_spare];
    group->host[host_block] = label;
    group->queue[group->n_queued++] = host_block;
    record(m, group, block, host_block, true);
    group->n_spilled++;
}

/* Returns the uses of a name that is below the pool, and removes it there. */
static uint32_t take_back(const struct model *m, struct model_group *group, int name)
{
    uint32_t at = find_host(group, name);
    if (at != KV_NO_BLOCK && m->wrong != WRONG_TAKE_BACK) {
        uint32_t host_block = group->queue[at];
        remove_at(group->queue, &group->n_queued, at);
        group->spare[group->n_spare++] = host_block;
        return group->host[host_block].uses;
    }
    for (uint32_t i = 0; i < group->n_history; i++)
        if (group->history[i].name == name) {
            uint32_t uses = group->history[i].uses;
            group->n_history--;
            memmove(group->history + i, group->history + i + 1, (group->n_history - i) * sizeof group->history[0]);
            return m->wrong == WRONG_HISTORY ? 0 : uses;
        }
    return 0;
}

/* ---- blocks ---- */

static void use(struct model_group *group, uint32_t block)
{
    if (group->labels[block].uses < 4)
        group->labels[block].uses++;
}

static void unref(const struct model *m, struct model_group *group, uint32_t block)
{
    if (--group->refs[block] > 0)
        return;
    const struct model_label *label = &group->labels[block];
    uint32_t n_blocks = m->config.groups[group - m->groups].n_blocks;
    uint32_t at = label->name >= 0 || m->wrong == WRONG_BLANK ? group->n_free : 0;
    memmove(group->free_list + at + 1, group->free_list + at, (group->n_free - at) * sizeof group->free_list[0]);
    group->free_list[at] = block;
    group->n_free++;
    if (label->name >= 0)
        group->due[block] = group->clock + (label->uses - 1) * n_blocks / (m->wrong == WRONG_DUE ? 4u : 2u);
}

static void ref(struct model_group *group, uint32_t block)
{
    for (uint32_t i = 0; group->refs[block] == 0 && i < group->n_free; i++)
        if (group->free_list[i] == block) {
            remove_at(group->free_list, &group->n_free, i);
            break;
        }
    group->refs[block]++;
}

static uint32_t take(struct model *m, struct model_group *group)
{
    uint32_t block = group->free_list[0];
    for (uint32_t i = 1;
         m->config.eviction == KV_EVICT_REUSE && i < group->n_free && group->labels[group->free_list[0]].name >= 0;
         i++) {
        uint32_t other = group->free_list[i];
        int fewer = (int)group->labels[block].uses - (int)group->labels[other].uses;
        bool tie = group->due[other] == group->due[block] && (m->wrong == WRONG_TIE ? fewer < 0 : fewer > 0);
        if (group->due[other] < group->due[block] || tie)
            block = other;
    }
    ref(group, block);
    if (group->labels[block].name >= 0)
        give_up(m, group, block);
    group->labels[block].name = -1;
    group->clock++;
    return block;
}

static void trim(struct model *m, struct model_table *t, uint32_t g, uint32_t n_computed)
{
    for (uint32_t i = 0; i < t->n[g]; i++) {
        if (is_needed(m, g, n_computed, i))
            continue;
        if (t->entries[g][i] != KV_NO_BLOCK)
            unref(m, &m->groups[g], t->entries[g][i]);
        t->entries[g][i] = KV_NO_BLOCK;
    }
}

/* ---- tables ---- */

void model_clear(struct model *m, struct model_table *t)
{
    for (uint32_t g = 0; g < m->config.n_groups; g++) {
        for (uint32_t i = 0; i < t->n[g]; i++) {
            uint32_t at = m->wrong == WRONG_FREE_ORDER ? i : t->n[g] - 1 - i;
            if (t->entries[g][at] != KV_NO_BLOCK)
                unref(m, &m->groups[g], t->entries[g][at]);
        }
        t->n[g] = 0;
    }
    t->n_hit = 0;
}

/* Returns the longest n <= limit for which every group has the blocks it needs. */
static uint32_t longest(const struct model *m, int chain, uint32_t limit, bool host_too)
{
    for (uint32_t n = limit;; n--) {
        bool all = true;
        for (uint32_t g = 0; g < m->config.n_groups; g++)
            for (uint32_t i = 0; i < n; i++)
                all &= !is_needed(m, g, n * m->config.block_tokens, i) || find(m, g, chain + (int)i) != KV_NO_BLOCK ||
                       (host_too && find_host(&m->groups[g], chain + (int)i) != KV_NO_BLOCK);
        if (all)
            return n;
    }
}

static uint32_t limit_of(const struct model *m, uint32_t n_hashes, uint32_t max_tokens)
{
    uint32_t n = max_tokens / m->config.block_tokens;
    return n < n_hashes ? n : n_hashes;
}

uint32_t model_match(struct model *m, struct model_table *t, int chain, uint32_t n_hashes, uint32_t max_tokens)
{
    uint32_t bt = m->config.block_tokens;
    if (!m->config.prefix_caching)
        return 0;
    uint32_t n = longest(m, chain, limit_of(m, n_hashes, max_tokens), false);
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (t->n[g] = 0; t->n[g] < n; t->n[g]++) {
            uint32_t i = t->n[g];
            t->entries[g][i] = KV_NO_BLOCK;
            if (!is_needed(m, g, n * bt, i))
                continue;
            t->entries[g][i] = find(m, g, chain + (int)i);
            if (m->wrong != WRONG_HIT)
                ref(&m->groups[g], t->entries[g][i]);
            if (m->wrong == WRONG_USES)
                use(&m->groups[g], t->entries[g][i]);
        }
    t->n_hit = n;
    return n * bt;
}

uint32_t model_loadable(const struct model *m, const struct model_table *t, int chain, uint32_t n_hashes,
                        uint32_t max_tokens)
{
    uint32_t limit = limit_of(m, n_hashes, max_tokens);
    bool has_tier = false;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        has_tier |= m->config.groups[g].n_host_blocks > 0;
    if (!has_tier || limit <= t->n[0])
        return 0;
    return (longest(m, chain, limit, true) - t->n[0]) * m->config.block_tokens;
}

static int check_load(const struct model *m, const struct model_table *t, int chain, uint32_t n)
{
    uint32_t n_loads = 0;
    for (uint32_t g = 0; g < m->config.n_groups; g++) {
        const struct model_group *group = &m->groups[g];
        uint32_t n_taken = 0, n_left = 0;
        for (uint32_t i = 0; i < n; i++) {
            bool held = i < t->n[g] && t->entries[g][i] != KV_NO_BLOCK;
            if (!is_needed(m, g, n * m->config.block_tokens, i)) {
                n_left += held && group->refs[t->entries[g][i]] == 1;
                continue;
            }
            if (held)
                continue;
            uint32_t block = find(m, g, chain + (int)i);
            if (block == KV_NO_BLOCK && find_host(group, chain + (int)i) == KV_NO_BLOCK)
                return QUIRE_NOT_FOUND;
            n_taken += block == KV_NO_BLOCK || group->refs[block] == 0;
            n_loads += block == KV_NO_BLOCK;
        }
        if (n_taken > group->n_free + n_left)
            return QUIRE_EXHAUSTED;
    }
    return 2 * n_loads > m->capacity - m->n_moves ? QUIRE_EXHAUSTED : QUIRE_OK;
}

static void load_one(struct model *m, struct model_table *t, uint32_t g, uint32_t i, uint32_t host_block)
{
    struct model_group *group = &m->groups[g];
    struct model_label label = group->host[host_block];
    uint32_t block = take(m, group);
    group->labels[block] = label;
    if (m->wrong == WRONG_OWNER)
        group->labels[block].owner = t->owner;
    record(m, group, block, host_block, false);
    group->spare[group->n_spare++] = host_block;
    group->n_loaded++;
    t->entries[g][i] = block;
}

int model_load(struct model *m, struct model_table *t, int chain, uint32_t n_tokens)
{
    uint32_t from = t->n[0], n = from + n_tokens / m->config.block_tokens;
    uint32_t host_blocks[KV_MAX_GROUPS][MODEL_ENTRIES];
    int status = check_load(m, t, chain, n);
    if (status)
        return status;
    for (uint32_t g = 0; g < m->config.n_groups; g++) {
        struct model_group *group = &m->groups[g];
        trim(m, t, g, n * m->config.block_tokens);
        for (uint32_t i = from; i < n; i++) {
            uint32_t block = find(m, g, chain + (int)i);
            host_blocks[g][i] = KV_NO_BLOCK;
            t->entries[g][t->n[g]++] = KV_NO_BLOCK;
            if (!is_needed(m, g, n * m->config.block_tokens, i))
                continue;
            t->entries[g][i] = block;
            if (block != KV_NO_BLOCK) {
                ref(group, block);
                continue;
            }
            uint32_t at = find_host(group, chain + (int)i);
            host_blocks[g][i] = group->queue[at];
            if (m->wrong != WRONG_HELD)
                remove_at(group->queue, &group->n_queued, at);
        }
    }
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (uint32_t i = from; i < n; i++)
            if (host_blocks[g][i] != KV_NO_BLOCK)
                load_one(m, t, g, i, host_blocks[g][i]);
    t->n_hit = n;
    return QUIRE_OK;
}

int model_reserve(struct model *m, struct model_table *t, uint32_t n_computed, uint32_t n_tokens)
{
    uint32_t bt = m->config.block_tokens, n = (n_tokens + bt - 1) / bt;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        trim(m, t, g, n_computed);
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        if (n > t->n[g] && n - t->n[g] > m->groups[g].n_free)
            return QUIRE_EXHAUSTED;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        while (t->n[g] < n)
            t->entries[g][t->n[g]++] = take(m, &m->groups[g]);
    for (uint32_t g = 0; g < m->config.n_groups && m->wrong != WRONG_USES; g++)
        for (uint32_t i = 0; i < t->n_hit; i++)
            if (t->entries[g][i] != KV_NO_BLOCK)
                use(&m->groups[g], t->entries[g][i]);
    t->n_hit = 0;
    return QUIRE_OK;
}

void model_publish(struct model *m, struct model_table *t, uint32_t index, int name)
{
    for (uint32_t g = 0; g < m->config.n_groups && m->config.prefix_caching; g++) {
        struct model_group *group = &m->groups[g];
        uint32_t block = index < t->n[g] ? t->entries[g][index] : KV_NO_BLOCK;
        uint32_t other = find(m, g, name);
        if (block == KV_NO_BLOCK || group->labels[block].name >= 0)
            continue;
        if (other != KV_NO_BLOCK && m->wrong != WRONG_NAME)
            continue;
        if (other != KV_NO_BLOCK)
            group->labels[other].name = -1;
        group->labels[block] = (struct model_label){name, t->owner, take_back(m, group, name)};
        use(group, block);
    }
}

int model_share(struct model *m, const struct model_table *from, uint32_t n_blocks, struct model_table *to)
{
    uint32_t position = n_blocks * m->config.block_tokens;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        if (from->n[g] < n_blocks)
            return QUIRE_NOT_FOUND;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (uint32_t i = 0; i < n_blocks; i++)
            if (is_needed(m, g, position, i) && from->entries[g][i] == KV_NO_BLOCK)
                return QUIRE_NOT_FOUND;
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        for (to->n[g] = 0; to->n[g] < n_blocks; to->n[g]++) {
            uint32_t i = to->n[g];
            bool needed = is_needed(m, g, position, i) || m->wrong == WRONG_SHARE;
            to->entries[g][i] = needed ? from->entries[g][i] : KV_NO_BLOCK;
            if (to->entries[g][i] != KV_NO_BLOCK)
                ref(&m->groups[g], to->entries[g][i]);
        }
    return QUIRE_OK;
}

/* Cached blocks become blank and follow the blank ones, those with the fewest uses first if uses count. */
static void drop_group(struct model *m, struct model_group *group)
{
    bool reuse = m->config.eviction == KV_EVICT_REUSE;
    uint32_t n_blank = 0, n = 0, cached[MODEL_BLOCKS];
    while (n_blank < group->n_free && group->labels[group->free_list[n_blank]].name < 0)
        n_blank++;
    for (uint32_t uses = 1; uses <= (reuse ? 4 : 1); uses++)
        for (uint32_t i = n_blank; i < group->n_free; i++)
            if (!reuse || group->labels[group->free_list[i]].uses == uses)
                cached[n++] = group->free_list[i];
    for (uint32_t i = 0; i < n; i++) {
        lose(m, group, group->labels[cached[i]]);
        group->labels[cached[i]].name = -1;
        group->free_list[n_blank + i] = cached[i];
    }
    while (group->n_queued > 0 && m->wrong != WRONG_DROP) {
        uint32_t host_block = group->queue[0];
        lose(m, group, group->host[host_block]);
        remove_at(group->queue, &group->n_queued, 0);
        group->spare[group->n_spare++] = host_block;
    }
    group->n_history = 0;
}

void model_drop_cached(struct model *m)
{
    for (uint32_t g = 0; g < m->config.n_groups; g++)
        drop_group(m, &m->groups[g]);
}
