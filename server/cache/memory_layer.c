#include "server/cache/memory_layer.h"

#include "base/little_endian.h"

#include <stdlib.h>
#include <string.h>

uint64_t kept_size(const struct kept *k)
{
    return sizeof *k + k->bytes.n;
}

struct kept *kept_new(struct buffer *bytes, const struct answer *answer, int64_t expires_s)
{
    struct kept *k = calloc(1, sizeof *k);
    /* What it grew past its end is given back: what is counted is what there is. */
    char *fitted = k ? realloc(bytes->data, bytes->n) : NULL;
    if (!k || !fitted) {
        buffer_free(bytes);
        free(k);
        return NULL;
    }
    k->answer = *answer;
    k->answer.events.bytes = (const uint8_t *)fitted + (size_t)(answer->events.bytes - (const uint8_t *)bytes->data);
    k->bytes = (struct buffer){.data = fitted, .n = bytes->n, .capacity = bytes->n};
    *bytes = (struct buffer){0};
    k->expires_s = expires_s;
    k->n_readers = 1;
    return k;
}

void kept_read(struct kept *k)
{
    k->n_readers++;
}

static void free_unused(struct kept *k)
{
    if (k->n_readers > 0 || k->is_listed)
        return;
    buffer_free(&k->bytes);
    free(k);
}

void kept_leave(struct kept *k)
{
    k->n_readers--;
    free_unused(k);
}

int memory_layer_open(struct memory_layer *m, uint32_t max_entries, uint64_t max_bytes, struct quire_error *err)
{
    *m = (struct memory_layer){.max_entries = max_entries, .max_bytes = max_bytes, .n_buckets = 16};
    while (m->n_buckets < max_entries)
        m->n_buckets *= 2;
    TAILQ_INIT(&m->recent);
    m->buckets = calloc(m->n_buckets, sizeof *m->buckets);
    return m->buckets ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
}

void memory_layer_close(struct memory_layer *m)
{
    if (m->buckets)
        memory_layer_clear(m);
    free(m->buckets);
    m->buckets = NULL;
}

/* Keys are hashes. */
static struct kept **bucket(const struct memory_layer *m, const struct key256 *key)
{
    return &m->buckets[le_load_u64(key->bytes) & (m->n_buckets - 1)];
}

static struct kept *find(const struct memory_layer *m, const struct key256 *key)
{
    struct kept *k = *bucket(m, key);
    while (k && memcmp(k->answer.key.bytes, key->bytes, sizeof key->bytes) != 0)
        k = k->next;
    return k;
}

void memory_layer_remove(struct memory_layer *m, struct kept *k)
{
    struct kept **at = bucket(m, &k->answer.key);
    if (!k->is_listed)
        return;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    TAILQ_REMOVE(&m->recent, k, link);
    m->n_entries--;
    m->n_bytes -= kept_size(k);
    k->is_listed = false;
    free_unused(k);
}

struct kept *memory_layer_find(struct memory_layer *m, const struct key256 *key, int64_t now_s)
{
    struct kept *k = find(m, key);
    if (!k || now_s < k->expires_s)
        return k;
    m->n_expired++;
    memory_layer_remove(m, k);
    return NULL;
}

void memory_layer_use(struct memory_layer *m, struct kept *k)
{
    k->n_hits++;
    if (!k->is_listed)
        return;
    TAILQ_REMOVE(&m->recent, k, link);
    TAILQ_INSERT_HEAD(&m->recent, k, link);
}

void memory_layer_add(struct memory_layer *m, struct kept *k)
{
    struct kept *old = find(m, &k->answer.key);
    const uint64_t size = kept_size(k);
    if (old)
        memory_layer_remove(m, old);
    if (size > m->max_bytes || m->max_entries == 0)
        return;
    while (m->n_entries >= m->max_entries || m->n_bytes > m->max_bytes - size) {
        m->n_evicted++;
        memory_layer_remove(m, TAILQ_LAST(&m->recent, kept_list));
    }
    struct kept **at = bucket(m, &k->answer.key);
    k->next = *at;
    *at = k;
    TAILQ_INSERT_HEAD(&m->recent, k, link);
    k->is_listed = true;
    m->n_entries++;
    m->n_bytes += size;
}

uint64_t memory_layer_clear(struct memory_layer *m)
{
    const uint64_t n = m->n_entries;
    struct kept *k;
    while ((k = TAILQ_FIRST(&m->recent)))
        memory_layer_remove(m, k);
    return n;
}

uint64_t memory_layer_n_expired(const struct memory_layer *m, int64_t now_s)
{
    const struct kept *k;
    uint64_t n = 0;
    TAILQ_FOREACH(k, &m->recent, link)
    n += now_s >= k->expires_s;
    return n;
}
