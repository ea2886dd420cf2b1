#include "server/link/engine_requests.h"

#include "base/id_map.h"
#include "base/status.h"

#include <stdlib.h>

#define NO_SLOT UINT32_MAX

struct client_requests {
    struct client_request *slots;
    uint32_t n_slots, first_free;
    struct id_map ids; /* wire id → slot + 1 */
    uint64_t next_wire_id;
};

struct client_requests *client_requests_new(void)
{
    struct client_requests *rs = calloc(1, sizeof *rs);
    if (!rs)
        return NULL;
    rs->first_free = NO_SLOT;
    rs->next_wire_id = 1;
    return rs;
}

void client_requests_free(struct client_requests *rs)
{
    if (!rs)
        return;
    id_map_free(&rs->ids);
    free(rs->slots);
    free(rs);
}

uint32_t client_requests_n(const struct client_requests *rs)
{
    return (uint32_t)rs->ids.n;
}

static int grow(struct client_requests *rs)
{
    uint32_t n = rs->n_slots ? rs->n_slots * 2 : 64;
    struct client_request *slots = n > UINT32_MAX / 4 ? NULL : realloc(rs->slots, n * sizeof *slots);
    if (!slots)
        return QUIRE_NO_MEMORY;
    for (uint32_t i = n; i-- > rs->n_slots;) {
        slots[i] = (struct client_request){.next_free = rs->first_free};
        rs->first_free = i;
    }
    rs->slots = slots;
    rs->n_slots = n;
    return QUIRE_OK;
}

struct client_request *client_request_add(struct client_requests *rs)
{
    if (rs->first_free == NO_SLOT && grow(rs))
        return NULL;
    uint32_t slot = rs->first_free;
    if (id_map_add(&rs->ids, rs->next_wire_id, (uintptr_t)slot + 1))
        return NULL;
    struct client_request *r = &rs->slots[slot];
    rs->first_free = r->next_free;
    r->wire_id = rs->next_wire_id++;
    return r;
}

struct client_request *client_request_find(struct client_requests *rs, uint64_t wire_id)
{
    uintptr_t place = id_map_find(&rs->ids, wire_id);
    return place ? &rs->slots[place - 1] : NULL;
}

void client_request_remove(struct client_requests *rs, struct client_request *r)
{
    id_map_remove(&rs->ids, r->wire_id);
    r->wire_id = 0;
    r->next_free = rs->first_free;
    rs->first_free = (uint32_t)(r - rs->slots);
}

bool client_request_take(struct client_requests *rs, struct client_request *out)
{
    for (uint32_t i = 0; i < rs->n_slots; i++) {
        if (rs->slots[i].wire_id != 0) {
            *out = rs->slots[i];
            client_request_remove(rs, &rs->slots[i]);
            return true;
        }
    }
    return false;
}
