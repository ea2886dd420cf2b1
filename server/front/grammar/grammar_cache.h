/* Results of compiled grammars, the least recently used one leaves first. One thread. */
#ifndef QUIRE_FRONT_GRAMMAR_CACHE_H
#define QUIRE_FRONT_GRAMMAR_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#define GRAMMAR_CACHE_ENTRIES 512
#define GRAMMAR_CACHE_BYTES ((size_t)16 << 20)

struct grammar_entry {
    TAILQ_ENTRY(grammar_entry) link;
    struct key256 key;
    int status;   /* QUIRE_OK: text is the normal text; otherwise it is the reason of the rejection */
    size_t n;
    char text[];
};
TAILQ_HEAD(grammar_entries, grammar_entry);

struct grammar_cache {
    struct grammar_entries entries; /* the last used one last */
    size_t n_entries, n_bytes;
};

void grammar_cache_init(struct grammar_cache *c);
void grammar_cache_free(struct grammar_cache *c);
/* NULL: not cached. Valid until the next call of grammar_cache_add(). */
const struct grammar_entry *grammar_cache_find(struct grammar_cache *c, const struct key256 *key);
/* Without memory it adds nothing. */
void grammar_cache_add(struct grammar_cache *c, const struct key256 *key, int status, const char *text, size_t n);

#endif
