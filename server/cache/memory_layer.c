#include "server/cache/memory_layer.h"

#include "base/encoding/little_endian.h"
#include "base/id_map.h"

#include <stdlib.h>
#include <string.h>

struct memory_layer {
    uint32_t max_entries;
    uint64_t max_bytes;
    TAILQ_HEAD(cached_list, cached) recent; /* the last used one last: TAILQ_LAST breaks the aliasing rules of C */
    struct cached **buckets; /* n_buckets, a power of two */
    size_t n_buckets;
    uint64_t n_entries, n_bytes, n_evicted;
    struct id_map aliases; /* renderings of what is listed, by the first 8 bytes of their alias */
    struct cache_layer_stats looked;
};

uint64_t cached_size(const struct cached *k)
{
    uint64_t size = sizeof *k + k->bytes.n;
    for (const struct rendering *r = k->renderings; r; r = r->next)
        size += sizeof *r + r->n;
    return size;
}

struct cached *cached_new(struct buffer *bytes, const struct answer *answer, int64_t expires_ms)
{
    struct cached *k = calloc(1, sizeof *k);
    /* Returns the memory that growth reserved past the end, so that the counted size equals the allocated size. */
    char *fitted = k ? realloc(bytes->data, bytes->n) : NULL;
    if (!k || !fitted) {
        buffer_free(bytes);
        free(k);
        return NULL;
    }
    k->answer = *answer;
    answer_moved(&k->answer, bytes->data, fitted);
    k->bytes = (struct buffer){.data = fitted, .n = bytes->n, .capacity = bytes->n};
    *bytes = (struct buffer){0};
    k->expires_ms = expires_ms;
    k->n_readers = 1;
    return k;
}

void cached_read(struct cached *k)
{
    k->n_readers++;
}

static void free_unused(struct cached *k)
{
    if (k->n_readers > 0 || k->is_listed)
        return;
    buffer_free(&k->bytes);
    free(k);
}

void cached_leave(struct cached *k)
{
    k->n_readers--;
    free_unused(k);
}

int memory_layer_open(uint32_t max_entries, uint64_t max_bytes, struct memory_layer **out, struct quire_error *err)
{
    struct memory_layer *m = malloc(sizeof *m);
    *out = NULL;
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    *m = (struct memory_layer){.max_entries = max_entries, .max_bytes = max_bytes, .n_buckets = 16};
    while (m->n_buckets < max_entries)
        m->n_buckets *= 2;
    TAILQ_INIT(&m->recent);
    m->buckets = calloc(m->n_buckets, sizeof *m->buckets);
    if (!m->buckets) {
        free(m);
        return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    }
    *out = m;
    return QUIRE_OK;
}

void memory_layer_close(struct memory_layer *m)
{
    if (!m)
        return;
    memory_layer_clear(m);
    id_map_free(&m->aliases);
    free(m->buckets);
    free(m);
}

/* Keys are hashes. */
static struct cached **bucket(const struct memory_layer *m, const struct key256 *key)
{
    return &m->buckets[le_load_u64(key->bytes) & (m->n_buckets - 1)];
}

static struct cached *find(const struct memory_layer *m, const struct key256 *key)
{
    struct cached *k = *bucket(m, key);
    while (k && memcmp(k->answer.key.bytes, key->bytes, sizeof key->bytes) != 0)
        k = k->next;
    return k;
}

static uint64_t alias_id(const struct key256 *alias)
{
    return le_load_u64(alias->bytes);
}

static void drop_rendering(struct memory_layer *m, struct rendering **at)
{
    struct rendering *r = *at;
    *at = r->next;
    id_map_remove(&m->aliases, alias_id(&r->alias));
    m->n_bytes -= sizeof *r + r->n;
    free(r);
}

void memory_layer_remove(struct memory_layer *m, struct cached *k)
{
    struct cached **at = bucket(m, &k->answer.key);
    if (!k->is_listed)
        return;
    while (k->renderings)
        drop_rendering(m, &k->renderings);
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    TAILQ_REMOVE(&m->recent, k, link);
    m->n_entries--;
    m->n_bytes -= cached_size(k);
    k->is_listed = false;
    free_unused(k);
}

/* As answer_is_timely(), to the millisecond. */
static bool is_over(const struct cached *k, int64_t now_ms)
{
    return now_ms >= k->expires_ms || k->answer.created_s > now_ms / 1000 + ANSWER_CLOCKS_DIFFER_S;
}

struct cached *memory_layer_find(struct memory_layer *m, const struct key256 *key, int64_t now_ms)
{
    struct cached *k = find(m, key);
    if (!k || !is_over(k, now_ms))
        return k;
    memory_layer_remove(m, k);
    return NULL;
}

void memory_layer_use(struct memory_layer *m, struct cached *k)
{
    k->n_hits++;
    if (!k->is_listed)
        return;
    TAILQ_REMOVE(&m->recent, k, link);
    TAILQ_INSERT_TAIL(&m->recent, k, link);
}

static void evict_oldest(struct memory_layer *m)
{
    m->n_evicted++;
    memory_layer_remove(m, TAILQ_FIRST(&m->recent));
}

void memory_layer_attach(struct memory_layer *m, struct cached *k, const struct key256 *alias, const void *bytes,
                         size_t n)
{
    struct rendering **last = &k->renderings;
    const uint64_t size = sizeof **last + n;
    uint32_t n_there = 0;
    for (const struct rendering *r = k->renderings; r; r = r->next)
        n_there++;
    if (!k->is_listed || cached_size(k) + size > m->max_bytes || id_map_find(&m->aliases, alias_id(alias)))
        return;
    struct rendering *r = malloc(size);
    if (!r || id_map_add(&m->aliases, alias_id(alias), (uintptr_t)r)) {
        free(r);
        return;
    }
    while (n_there >= CACHED_MAX_RENDERINGS && (*last)->next)
        last = &(*last)->next;
    if (n_there >= CACHED_MAX_RENDERINGS)
        drop_rendering(m, last);
    *r = (struct rendering){.next = k->renderings, .cached = k, .alias = *alias, .n = n};
    memcpy(r->bytes, bytes, n);
    k->renderings = r;
    m->n_bytes += size;
    memory_layer_use(m, k); /* the others go first */
    k->n_hits--;
    while (m->n_bytes > m->max_bytes)
        evict_oldest(m);
}

void memory_layer_detach(struct memory_layer *m, const struct key256 *alias)
{
    const struct rendering *r = (const struct rendering *)id_map_find(&m->aliases, alias_id(alias));
    if (!r || memcmp(r->alias.bytes, alias->bytes, sizeof alias->bytes) != 0)
        return;
    struct rendering **at = &r->cached->renderings;
    while (*at != r)
        at = &(*at)->next;
    drop_rendering(m, at);
}

const struct rendering *memory_layer_rendering(struct memory_layer *m, const struct key256 *alias, int64_t now_ms)
{
    const struct rendering *r = (const struct rendering *)id_map_find(&m->aliases, alias_id(alias));
    if (!r || memcmp(r->alias.bytes, alias->bytes, sizeof alias->bytes) != 0)
        return NULL;
    return memory_layer_find(m, &r->cached->answer.key, now_ms) ? r : NULL;
}

void memory_layer_add(struct memory_layer *m, struct cached *k)
{
    struct cached *old = find(m, &k->answer.key);
    const uint64_t size = cached_size(k);
    if (old)
        memory_layer_remove(m, old);
    if (size > m->max_bytes || m->max_entries == 0)
        return;
    while (m->n_entries >= m->max_entries || m->n_bytes > m->max_bytes - size)
        evict_oldest(m);
    struct cached **at = bucket(m, &k->answer.key);
    k->next = *at;
    *at = k;
    TAILQ_INSERT_TAIL(&m->recent, k, link);
    k->is_listed = true;
    m->n_entries++;
    m->n_bytes += size;
}

uint64_t memory_layer_clear(struct memory_layer *m)
{
    const uint64_t n = m->n_entries;
    struct cached *k;
    while ((k = TAILQ_FIRST(&m->recent)))
        memory_layer_remove(m, k);
    return n;
}

size_t memory_layer_list(const struct memory_layer *m, size_t from, size_t max_bytes,
                         void (*each)(void *context, const struct cached *k), void *context)
{
    size_t n_bytes = 0;
    for (size_t i = from; i < m->n_buckets; i++) {
        if (n_bytes >= max_bytes)
            return i;
        for (const struct cached *k = m->buckets[i]; k; k = k->next) {
            each(context, k);
            n_bytes += k->bytes.n;
        }
    }
    return 0;
}

void memory_layer_looked(struct memory_layer *m, bool found, double seconds)
{
    m->looked.n_lookups++;
    *(found ? &m->looked.n_hits : &m->looked.n_misses) += 1;
    cache_observe(&m->looked.latency, seconds);
}

struct cache_layer memory_layer_counts(const struct memory_layer *m, int64_t now_ms)
{
    const struct cached *k;
    uint64_t n_expired = 0;
    TAILQ_FOREACH(k, &m->recent, link)
    n_expired += is_over(k, now_ms);
    return (struct cache_layer){.name = "memory",
                                .stats = m->looked,
                                .n_entries = m->n_entries,
                                .n_expired = n_expired,
                                .n_bytes = m->n_bytes,
                                .n_evicted = m->n_evicted};
}
