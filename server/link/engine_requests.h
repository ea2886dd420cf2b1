/* The live requests of one engine client, by wire id. Loop's thread. */
#ifndef QUIRE_LINK_ENGINE_REQUESTS_H
#define QUIRE_LINK_ENGINE_REQUESTS_H

#include "server/link/completion_source.h"

struct client_request {
    uint64_t wire_id; /* as in our frames; 0: the slot is free */
    const struct completion_events *events; /* borrowed */
    void *context;
    uint32_t next_free;
};

struct client_requests;
/* NULL: out of memory. */
struct client_requests *client_requests_new(void);
void client_requests_free(struct client_requests *rs); /* NULL is allowed */
uint32_t client_requests_n(const struct client_requests *rs);

/* Returns a request with a fresh id; NULL: out of memory. Pointers are valid until the next add. */
struct client_request *client_request_add(struct client_requests *rs);
struct client_request *client_request_find(struct client_requests *rs, uint64_t wire_id);
void client_request_remove(struct client_requests *rs, struct client_request *r);
/* Removes any one request and copies it to *out. Returns false if the set is empty. */
bool client_request_take(struct client_requests *rs, struct client_request *out);

#endif
