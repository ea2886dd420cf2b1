/* The live requests of all connections. Not thread-safe: the daemon's mutex covers it.
 *
 * An engine id is {generation of the slot, slot + 1}, so that a late event of a request that is
 * over finds nothing. A request whose connection is gone stays, without a connection, until its
 * last DONE.
 */
#ifndef QUIRE_DAEMON_REQUESTS_H
#define QUIRE_DAEMON_REQUESTS_H

#include "base/id_map.h"

#include <stdbool.h>
#include <stdint.h>

struct connection;

#define NO_REQUEST UINT32_MAX

struct live_request {
    struct connection *connection; /* NULL: it was closed */
    uint64_t wire_id;              /* the client's */
    uint64_t engine_id;            /* 0: the slot is free */
    uint32_t generation;           /* how often the slot was used */
    uint32_t next, previous;       /* of the same connection; of free slots: next alone */
    bool accepted;                 /* ACCEPT is queued */
};

struct request_list { /* of one connection */
    uint32_t first;
    uint32_t n;
    struct id_map ids; /* wire id → slot + 1 */
};
void request_list_init(struct request_list *list);
void request_list_free(struct request_list *list);

struct request_table { /* zero it to begin, with first_free = NO_REQUEST */
    struct live_request *slots;
    uint32_t capacity;
    uint32_t first_free;
    uint32_t n_live;
};
void request_table_free(struct request_table *table);

/* wire_id is not live on that connection. NULL: no memory. */
struct live_request *request_add(struct request_table *table, struct request_list *list, struct connection *connection,
                                 uint64_t wire_id);
/* NULL when it is over. */
struct live_request *request_by_engine_id(struct request_table *table, uint64_t engine_id);
struct live_request *request_by_wire_id(struct request_table *table, const struct request_list *list, uint64_t wire_id);
/* Takes it out of its connection's list; it lives on without one. */
void request_orphan(struct request_table *table, struct request_list *list, struct live_request *request);
/* It is over. list: of its connection, NULL when it has none. */
void request_remove(struct request_table *table, struct request_list *list, struct live_request *request);

#endif
