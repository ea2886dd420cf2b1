#include "server/gateway/complete/answer_cache.h"

#include "base/id_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct entry {
    struct key256 key;
    struct cached_completion answer; /* its texts lie in bytes */
    uint64_t expires_ms;
    size_t n_bytes; /* of all, as counted */
    TAILQ_ENTRY(entry) link;
    char bytes[];
};

struct answer_cache {
    uint32_t max_entries;
    size_t max_bytes, n_bytes;
    uint64_t ttl_ms, n_evicted;
    struct id_map by_key; /* by the first eight bytes of a key: a second key with the same ones replaces the first */
    TAILQ_HEAD(entry_list, entry) entries; /* the least recently used is first */
};

static uint64_t id_of(const struct key256 *key)
{
    uint64_t id;
    memcpy(&id, key->bytes, sizeof id);
    return id;
}

static void drop(struct answer_cache *a, struct entry *entry)
{
    id_map_remove(&a->by_key, id_of(&entry->key));
    TAILQ_REMOVE(&a->entries, entry, link);
    a->n_bytes -= entry->n_bytes;
    free(entry);
}

int answer_cache_open(uint32_t max_entries, size_t max_bytes, uint64_t ttl_ms, struct answer_cache **out,
                      struct quire_error *err)
{
    struct answer_cache *a = calloc(1, sizeof *a);
    *out = a;
    if (!a)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    a->max_entries = max_entries ? max_entries : ANSWER_CACHE_MAX_ENTRIES;
    a->max_bytes = max_bytes ? max_bytes : ANSWER_CACHE_MAX_BYTES;
    a->ttl_ms = ttl_ms ? ttl_ms : ANSWER_CACHE_TTL_MS;
    TAILQ_INIT(&a->entries);
    return QUIRE_OK;
}

void answer_cache_close(struct answer_cache *a)
{
    if (!a)
        return;
    answer_cache_clear(a);
    id_map_free(&a->by_key);
    free(a);
}

static struct entry *entry_of(const struct answer_cache *a, const struct key256 *key)
{
    return (struct entry *)id_map_find(&a->by_key, id_of(key));
}

const struct cached_completion *answer_cache_find(struct answer_cache *a, const struct key256 *key, uint64_t now_ms)
{
    struct entry *entry = entry_of(a, key);
    if (!entry || memcmp(&entry->key, key, sizeof *key) != 0 || entry->expires_ms <= now_ms)
        return NULL;
    entry->expires_ms = now_ms + a->ttl_ms;
    TAILQ_REMOVE(&a->entries, entry, link);
    TAILQ_INSERT_TAIL(&a->entries, entry, link);
    return &entry->answer;
}

static struct entry *entry_new(const struct key256 *key, const struct cached_completion *answer)
{
    const size_t n_model = strlen(answer->model) + 1, n_bytes = sizeof(struct entry) + answer->n + n_model;
    struct entry *entry = malloc(n_bytes);
    if (!entry)
        return NULL;
    *entry = (struct entry){.key = *key, .answer = *answer, .n_bytes = n_bytes};
    entry->answer.model = entry->bytes;
    entry->answer.text = entry->bytes + n_model;
    memcpy(entry->bytes, answer->model, n_model);
    if (answer->n > 0)
        memcpy(entry->bytes + n_model, answer->text, answer->n);
    return entry;
}

void answer_cache_add(struct answer_cache *a, const struct key256 *key, const struct cached_completion *answer,
                      uint64_t now_ms)
{
    struct entry *before = entry_of(a, key), *entry, *first;
    if (answer->n > a->max_bytes / 4 || !(entry = entry_new(key, answer)))
        return;
    if (before)
        drop(a, before);
    entry->expires_ms = now_ms + a->ttl_ms;
    if (id_map_add(&a->by_key, id_of(key), (uintptr_t)entry) != QUIRE_OK) {
        free(entry);
        return;
    }
    TAILQ_INSERT_TAIL(&a->entries, entry, link);
    a->n_bytes += entry->n_bytes;
    while ((first = TAILQ_FIRST(&a->entries)) != entry && (a->n_bytes > a->max_bytes || a->by_key.n > a->max_entries)) {
        drop(a, first);
        a->n_evicted++;
    }
}

uint64_t answer_cache_clear(struct answer_cache *a)
{
    uint64_t n = 0;
    struct entry *entry;
    for (; (entry = TAILQ_FIRST(&a->entries)); n++)
        drop(a, entry);
    return n;
}

struct answer_cache_stats answer_cache_stats(const struct answer_cache *a, uint64_t now_ms)
{
    struct answer_cache_stats s = {.n_entries = a->by_key.n, .n_bytes = a->n_bytes, .n_evicted = a->n_evicted};
    const struct entry *entry;
    TAILQ_FOREACH(entry, &a->entries, link)
    {
        s.n_expired += entry->expires_ms <= now_ms;
    }
    return s;
}
