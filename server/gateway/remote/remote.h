/* HTTP(S) calls to upstream servers and to the front ends of engines on the loop: libcurl's multi interface with reused connections. No redirect is
 * followed, no proxy of the environment is used, only http and https are spoken, and names are resolved by libcurl's
 * threaded resolver. Loop's thread. Events come from the loop, never from within a call below.
 */
#ifndef QUIRE_GATEWAY_REMOTE_H
#define QUIRE_GATEWAY_REMOTE_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct remote;
struct remote_call;

enum remote_end {
    REMOTE_WHOLE, /* the reply ended as its framing says */
    REMOTE_UNREACHED, /* no connection: nothing was sent */
    REMOTE_TIMEOUT, /* no first byte, or silence in the reply, for too long */
    REMOTE_CUT, /* the connection ended within the request or the reply */
    REMOTE_INVALID, /* not HTTP, or a reply larger than the limit */
};

struct remote_request {
    const char *method, *url;
    const char *const *headers; /* [n_headers]: "Name: value"; copied */
    size_t n_headers;
    const char *body; /* borrowed until the call has ended or was cancelled */
    size_t n_body;
    uint32_t connect_ms, first_byte_ms, silence_ms; /* timeouts; 0: none */
    uint64_t max_reply_bytes;
    /* The name of an abstract Unix socket, without its leading NUL byte, to connect to instead of the URL's host; fewer
     * than 100 bytes. NULL: TCP. */
    const char *socket;
};

struct remote_events {
    /* The reply's head has arrived. remote_header() reads it from here to the end, on_end included. */
    void (*on_head)(void *context, int status);
    void (*on_body)(void *context, const char *bytes, size_t n);
    /* The last call; the call is freed afterwards. why: for logs. */
    void (*on_end)(void *context, enum remote_end end, const char *why);
};

int remote_open(struct event_base *base, struct remote **out, struct quire_error *err);
/* Ends every call without an event. NULL is allowed. */
void remote_close(struct remote *r);

int remote_begin(struct remote *r, const struct remote_request *request, const struct remote_events *events,
                 void *context, struct remote_call **out, struct quire_error *err);
/* No event comes any more. May be called from within on_head and on_body. */
void remote_cancel(struct remote_call *call);
/* Stops reading the reply while a client reads slowly; the upstream sees a full window. Silence is not counted then. */
void remote_pause(struct remote_call *call, bool pause);
/* The reply is complete for its reader: a server that does not end it within this time is cut off (REMOTE_TIMEOUT). */
void remote_end_within(struct remote_call *call, uint32_t ms);
/* A header of the reply; NULL: absent. */
const char *remote_header(const struct remote_call *call, const char *name);
/* Calls on_header for each header of the reply. */
void remote_headers(const struct remote_call *call,
                    void (*on_header)(void *context, const char *name, const char *value), void *context);

#endif
