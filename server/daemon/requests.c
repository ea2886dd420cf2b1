#include "server/daemon/requests.h"

#include <stdlib.h>
#include <string.h>

void request_list_init(struct request_list *list)
{
    memset(list, 0, sizeof *list);
    list->first = NO_REQUEST;
}

void request_list_free(struct request_list *list)
{
    id_map_free(&list->ids);
}

void request_table_free(struct request_table *table)
{
    free(table->slots);
    memset(table, 0, sizeof *table);
}

static uint32_t slot_of(uint64_t engine_id)
{
    return (uint32_t)engine_id - 1;
}

static int grow(struct request_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    if (capacity > UINT32_MAX / 4)
        return QUIRE_NO_MEMORY;
    struct live_request *slots = realloc(table->slots, capacity * sizeof *slots);
    if (!slots)
        return QUIRE_NO_MEMORY;
    table->slots = slots;
    for (uint32_t i = capacity; i-- > table->capacity;) {
        slots[i] = (struct live_request){.next = table->first_free};
        table->first_free = i;
    }
    table->capacity = capacity;
    return QUIRE_OK;
}

struct live_request *request_add(struct request_table *table, struct request_list *list, struct connection *connection,
                                 uint64_t wire_id)
{
    if (table->first_free == NO_REQUEST && grow(table))
        return NULL;
    uint32_t slot = table->first_free;
    if (id_map_add(&list->ids, wire_id, (uintptr_t)slot + 1))
        return NULL;
    struct live_request *request = &table->slots[slot];
    uint64_t generation = (uint64_t)request->generation + 1;
    table->first_free = request->next;
    *request = (struct live_request){
        .connection = connection,
        .wire_id = wire_id,
        .engine_id = generation << 32 | (slot + 1),
        .generation = (uint32_t)generation,
        .next = list->first,
        .previous = NO_REQUEST,
    };
    if (list->first != NO_REQUEST)
        table->slots[list->first].previous = slot;
    list->first = slot;
    list->n++;
    table->n_live++;
    return request;
}

struct live_request *request_by_engine_id(struct request_table *table, uint64_t engine_id)
{
    uint32_t slot = slot_of(engine_id);
    if (slot >= table->capacity || table->slots[slot].engine_id != engine_id)
        return NULL;
    return &table->slots[slot];
}

struct live_request *request_by_wire_id(struct request_table *table, const struct request_list *list, uint64_t wire_id)
{
    uintptr_t place = id_map_find(&list->ids, wire_id);
    return place ? &table->slots[place - 1] : NULL;
}

void request_orphan(struct request_table *table, struct request_list *list, struct live_request *request)
{
    if (request->previous != NO_REQUEST)
        table->slots[request->previous].next = request->next;
    else
        list->first = request->next;
    if (request->next != NO_REQUEST)
        table->slots[request->next].previous = request->previous;
    id_map_remove(&list->ids, request->wire_id);
    list->n--;
    request->connection = NULL;
}

void request_remove(struct request_table *table, struct request_list *list, struct live_request *request)
{
    if (list)
        request_orphan(table, list, request);
    uint32_t slot = slot_of(request->engine_id);
    *request = (struct live_request){.generation = request->generation, .next = table->first_free};
    table->first_free = slot;
    table->n_live--;
}
