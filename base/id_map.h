/* From ids to values, a pointer or an index each: open addressing, linear probing. The map owns its
 * table and nothing that values point to. Pure; one thread at a time. */
#ifndef QUIRE_BASE_ID_MAP_H
#define QUIRE_BASE_ID_MAP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct id_map { /* zero it to begin */
    struct id_map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t n;
};
void id_map_free(struct id_map *map);

/* id must not be there, value not be 0. QUIRE_NO_MEMORY leaves the map as it was. */
int id_map_add(struct id_map *map, uint64_t id, uintptr_t value);
/* 0: not there. */
uintptr_t id_map_find(const struct id_map *map, uint64_t id);
/* An id that is not there is ignored. */
void id_map_remove(struct id_map *map, uint64_t id);

/* Each value once, in no order, while nothing is added or removed; then 0. *at begins as 0. */
uintptr_t id_map_next(const struct id_map *map, size_t *at);

#endif
