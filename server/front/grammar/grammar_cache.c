#include "server/front/grammar/grammar_cache.h"

#include <stdlib.h>
#include <string.h>

void grammar_cache_init(struct grammar_cache *c)
{
    *c = (struct grammar_cache){0};
    TAILQ_INIT(&c->entries);
}

static void drop(struct grammar_cache *c, struct grammar_entry *entry)
{
    TAILQ_REMOVE(&c->entries, entry, link);
    c->n_entries--;
    c->n_bytes -= entry->n;
    free(entry);
}

void grammar_cache_free(struct grammar_cache *c)
{
    while (c->n_entries > 0)
        drop(c, TAILQ_FIRST(&c->entries));
}

const struct grammar_entry *grammar_cache_find(struct grammar_cache *c, const struct key256 *key)
{
    struct grammar_entry *entry;
    TAILQ_FOREACH(entry, &c->entries, link)
    {
        if (memcmp(&entry->key, key, sizeof *key) != 0)
            continue;
        TAILQ_REMOVE(&c->entries, entry, link);
        TAILQ_INSERT_TAIL(&c->entries, entry, link);
        return entry;
    }
    return NULL;
}

void grammar_cache_add(struct grammar_cache *c, const struct key256 *key, int status, const char *text, size_t n)
{
    struct grammar_entry *entry = n <= GRAMMAR_CACHE_BYTES ? malloc(sizeof *entry + n) : NULL;
    if (!entry)
        return;
    entry->key = *key;
    entry->status = status;
    entry->n = n;
    memcpy(entry->text, text, n);
    TAILQ_INSERT_TAIL(&c->entries, entry, link);
    c->n_entries++;
    c->n_bytes += n;
    while (c->n_entries > GRAMMAR_CACHE_ENTRIES || c->n_bytes > GRAMMAR_CACHE_BYTES)
        drop(c, TAILQ_FIRST(&c->entries));
}
