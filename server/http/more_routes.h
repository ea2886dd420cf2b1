/* Routes that another module adds to a server's front door, such as those of batches. The server checks the page, the
 * key and the method before it passes a request on. Loop's thread.
 */
#ifndef QUIRE_HTTP_MORE_ROUTES_H
#define QUIRE_HTTP_MORE_ROUTES_H

#include "base/buffer.h"

#include <stdbool.h>

struct http_exchange;

/* Who sends a request. Borrowed for the call. */
struct http_caller {
    const char *tenant; /* the name of the key's tenant */
    const char *account; /* the id of a gateway's key; NULL: the key has none */
    bool is_admin;
};

struct more_route {
    const char *methods; /* of its path: "GET, POST" */
    bool is_open; /* needs no key; the caller of such a request is not known */
};

struct more_routes {
    /* Returns false for another path. */
    bool (*find)(void *context, const char *path, struct more_route *out);
    /* As in http_handler: it may reply, or call http_stream_body(). */
    void (*on_head)(void *context, struct http_exchange *x, const struct http_caller *caller);
    void (*on_request)(void *context, struct http_exchange *x, const struct http_caller *caller);
    /* Appends to the text of /metrics. */
    void (*put_metrics)(void *context, struct buffer *o);
    void *context;
};

/* Whether methods, such as "GET, POST", contains this one. */
bool more_route_takes(const struct more_route *route, const char *method);

#endif
