#include "server/similar/key_table.h"

#include "base/encoding/little_endian.h"

#include <stdlib.h>
#include <string.h>

bool key_table_create(struct key_table *t, size_t max_things)
{
    t->capacity = 16;
    while (t->capacity < max_things + max_things / 2)
        t->capacity *= 2;
    t->places = calloc(t->capacity, sizeof(*t->places));
    return t->places;
}

void key_table_destroy(struct key_table *t)
{
    free(t->places);
    *t = (struct key_table){0};
}

void key_table_clear(struct key_table *t)
{
    memset(t->places, 0, t->capacity * sizeof(*t->places));
}

static size_t home_of(const struct key_table *t, const struct key256 *key)
{
    return (size_t)le_load_u64(key->bytes) & (t->capacity - 1);
}

/* Where the key is, or the free place where it would be. */
static size_t place_of(const struct key_table *t, const struct key256 *key)
{
    size_t at = home_of(t, key);
    while (t->places[at] && memcmp(t->places[at], key, sizeof *key) != 0)
        at = (at + 1) & (t->capacity - 1);
    return at;
}

void *key_table_find(const struct key_table *t, const struct key256 *key)
{
    return t->places[place_of(t, key)];
}

void key_table_add(struct key_table *t, void *thing)
{
    t->places[place_of(t, thing)] = thing;
}

/* Entries after the hole that could not be found across it move into it, so that no tombstones accumulate. */
void key_table_remove(struct key_table *t, const void *thing)
{
    const size_t mask = t->capacity - 1;
    size_t hole = place_of(t, thing);
    t->places[hole] = NULL;
    for (size_t at = (hole + 1) & mask; t->places[at]; at = (at + 1) & mask) {
        const size_t home = home_of(t, t->places[at]);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        t->places[hole] = t->places[at];
        t->places[at] = NULL;
        hole = at;
    }
}
