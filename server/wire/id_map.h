/* Request ids to small integers: open addressing, linear probing. One thread at a time. */
#ifndef QUIRE_SERVER_WIRE_ID_MAP_H
#define QUIRE_SERVER_WIRE_ID_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_map { /* zero it to begin */
    struct id_map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t n;
};
void id_map_free(struct id_map *map);
/* id must not be 0 and not be there. QUIRE_NO_MEMORY. */
int id_map_add(struct id_map *map, uint64_t id, uint32_t value);
bool id_map_find(const struct id_map *map, uint64_t id, uint32_t *value);
void id_map_remove(struct id_map *map, uint64_t id);

#endif
