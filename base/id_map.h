/* A hash map from ids to values; a value is a pointer or an index. It uses open addressing with linear probing. The map
 * owns its table but not the objects that values point to. Pure; one thread at a time. */
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

/* Adds an id that is not in the map. value must not be 0. QUIRE_NO_MEMORY leaves the map unchanged. */
int id_map_add(struct id_map *map, uint64_t id, uintptr_t value);
/* Returns 0 if the id is not in the map. */
uintptr_t id_map_find(const struct id_map *map, uint64_t id);
/* Removes an id. Does nothing if the id is not in the map. */
void id_map_remove(struct id_map *map, uint64_t id);

/* Returns each value once, in no particular order, and then 0. Set *at to 0 before the first call. Do not change the
 * map between calls. */
uintptr_t id_map_next(const struct id_map *map, size_t *at);

#endif
