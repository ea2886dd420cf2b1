/* The live requests of all connections. Not thread-safe: the daemon's mutex protects it.
 *
 * An engine id is {generation of the slot, slot + 1}, so a late event of a finished request matches no request. A
 * request whose connection has closed stays, without a connection, until its last DONE. */
#ifndef QUIRE_DAEMON_REQUESTS_H
#define QUIRE_DAEMON_REQUESTS_H

#include "base/id_map.h"

#include <stdbool.h>
#include <stdint.h>

struct connection;

#define NO_REQUEST UINT32_MAX

struct live_request {
    struct connection *connection; /* NULL: the connection was closed */
    uint64_t wire_id;              /* the client's id */
    uint64_t engine_id;            /* 0: the slot is free */
    uint32_t generation;           /* number of times the slot was used */
    uint32_t next, previous;       /* links within one connection; a free slot uses only next */
    bool accepted;                 /* ACCEPT is queued */
};

struct request_list { /* the requests of one connection */
    uint32_t first;
    uint32_t n;
    struct id_map ids; /* wire id → slot + 1 */
};
void request_list_init(struct request_list *list);
void request_list_free(struct request_list *list);

struct request_table { /* initialize to zero, with first_free = NO_REQUEST */
    struct live_request *slots;
    uint32_t capacity;
    uint32_t first_free;
    uint32_t n_live;
};
void request_table_free(struct request_table *table);

/* wire_id must not be live on that connection. Returns NULL if memory runs out. */
struct live_request *request_add(struct request_table *table, struct request_list *list, struct connection *connection,
                                 uint64_t wire_id);
/* Returns NULL if the request has finished. */
struct live_request *request_by_engine_id(struct request_table *table, uint64_t engine_id);
struct live_request *request_by_wire_id(struct request_table *table, const struct request_list *list, uint64_t wire_id);
/* Removes the request from its connection's list; it stays live without a connection. */
void request_orphan(struct request_table *table, struct request_list *list, struct live_request *request);
/* Frees the slot of a finished request. list: its connection's; NULL if it has no connection. */
void request_remove(struct request_table *table, struct request_list *list, struct live_request *request);

#endif
