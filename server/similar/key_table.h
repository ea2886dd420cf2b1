/* Things that begin with their key256, found by it: open addressing, linear probing, and a size for good, so that no call
 * moves more than a few. Keys are digests: their first bytes spread by themselves. Pure; one thread at a time. */
#ifndef QUIRE_SIMILAR_KEY_TABLE_H
#define QUIRE_SIMILAR_KEY_TABLE_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>

struct key_table {
    struct key256 **places;
    size_t capacity; /* a power of two, above the most things that are ever in it */
};
/* False: there is no memory. */
bool key_table_create(struct key_table *t, size_t max_things);
void key_table_destroy(struct key_table *t);
void key_table_clear(struct key_table *t);
/* NULL: not there. */
void *key_table_find(const struct key_table *t, const struct key256 *key);
/* thing, which begins with its key, must not be there, and max_things not be reached. The table borrows it. */
void key_table_add(struct key_table *t, void *thing);
/* thing must be there. */
void key_table_remove(struct key_table *t, const void *thing);
#endif
