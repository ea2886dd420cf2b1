#include "base/id_map.h"

#include <stdlib.h>
#include <string.h>

struct id_map_entry {
    uint64_t id;
    uintptr_t value; /* 0: free */
};

void id_map_free(struct id_map *map)
{
    free(map->entries);
    memset(map, 0, sizeof *map);
}

/* Four consecutive ids share a cache line, because most ids are counters. */
static size_t home(const struct id_map *map, uint64_t id)
{
    uint64_t x = (id >> 2) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)((x ^ x >> 32) << 2 | (id & 3)) & (map->capacity - 1);
}

/* Returns the entry of id, or the free entry where it belongs. At least half of the table is free. */
static size_t probe(const struct id_map *map, uint64_t id)
{
    size_t at = home(map, id);
    while (map->entries[at].value != 0 && map->entries[at].id != id)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static int grow(struct id_map *map)
{
    struct id_map larger = {.capacity = map->capacity ? map->capacity * 2 : 16, .n = map->n};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (!larger.entries)
        return QUIRE_NO_MEMORY;
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].value != 0)
            larger.entries[probe(&larger, map->entries[i].id)] = map->entries[i];
    }
    free(map->entries);
    *map = larger;
    return QUIRE_OK;
}

int id_map_add(struct id_map *map, uint64_t id, uintptr_t value)
{
    if ((map->n + 1) * 2 > map->capacity && grow(map))
        return QUIRE_NO_MEMORY;
    map->entries[probe(map, id)] = (struct id_map_entry){.id = id, .value = value};
    map->n++;
    return QUIRE_OK;
}

uintptr_t id_map_find(const struct id_map *map, uint64_t id)
{
    return map->n == 0 ? 0 : map->entries[probe(map, id)].value;
}

void id_map_remove(struct id_map *map, uint64_t id)
{
    if (map->n == 0)
        return;
    size_t hole = probe(map, id);
    if (map->entries[hole].value == 0)
        return;
    /* Entries after the hole move back, except those that would land before their home. */
    size_t mask = map->capacity - 1, at = hole;
    for (;;) {
        at = (at + 1) & mask;
        if (map->entries[at].value == 0)
            break;
        size_t from_home = (at - home(map, map->entries[at].id)) & mask;
        if (from_home >= ((at - hole) & mask)) {
            map->entries[hole] = map->entries[at];
            hole = at;
        }
    }
    map->entries[hole].value = 0;
    map->n--;
}

uintptr_t id_map_next(const struct id_map *map, size_t *at)
{
    while (*at < map->capacity) {
        uintptr_t value = map->entries[(*at)++].value;
        if (value != 0)
            return value;
    }
    return 0;
}
