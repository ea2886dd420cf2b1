/* An HTTP/1.1 server on a libevent loop: connections, deadlines, replies, streams.
 *
 * Everything happens on the loop's thread. A connection has one exchange (request and reply) at a time; pipelined
 * requests wait. The server keeps reading while an exchange is in progress, so that a client that closes its
 * connection, or its half of it, is noticed at once, whatever the exchange is waiting for. A client that reads more
 * slowly than data is written is disconnected.
 *
 * It is built on bufferevents and not on evhttp, because evhttp (2.1.12) answers invalid or oversized requests
 * itself in HTML, buffers without bound the data that arrives during a reply, lets its read timeout end long
 * replies, and calls exit() in a state that it does not expect.
 */
#ifndef QUIRE_HTTP_H
#define QUIRE_HTTP_H

#include "base/status.h"
#include "server/http/address.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;
struct tls;
/* One request and its reply. Valid from on_head until on_head or on_request has replied to it, the reply has ended,
 * or on_gone was called. */
struct http_exchange;

struct http_limits {
    size_t max_head_bytes;
    size_t max_body_bytes;
    uint64_t max_streamed_bytes; /* of a body that http_stream_body() passes on; 0: max_body_bytes */
    size_t max_all_bodies_bytes; /* of all connections together */
    size_t max_pending_bytes;    /* written to a stream but not taken by the client */
    uint32_t max_connections;
    uint32_t max_connections_per_address; /* 0: half of max_connections */
    const struct http_network
        *trusted;   /* n_trusted addresses, which must outlive the server; no limit applies to them */
    size_t n_trusted;
    uint32_t head_timeout_ms;    /* from a request's first byte to the end of its headers */
    uint32_t body_timeout_ms;    /* for the body, besides what 16 KiB/s would need */
    uint32_t idle_timeout_ms;    /* between requests */
    uint32_t write_timeout_ms;   /* without the client taking a byte */
};

/* There are max_connections slots. When they are taken, the connection that has waited longest for a request, or for
 * the rest of one, is closed. If no connection waits, a new one waits for a slot once its request's head has
 * arrived. One address may use max_connections_per_address slots and half of max_all_bodies_bytes. Beyond that its
 * own connections are closed. A connection that has waited for head_timeout_ms is rejected with 503, or with 429 if
 * its address's share is exhausted. Requests that the handler declares urgent are answered without a slot. */
struct http_handler {
    /* The headers have arrived, the body has not. It may reply and so reject the body; otherwise on_request follows. */
    void (*on_head)(void *context, struct http_exchange *x);
    /* The headers have arrived, but all slots are taken: whether to answer the connection anyway. */
    bool (*is_urgent)(void *context, const struct http_exchange *x);
    /* The whole request has arrived. Replies now or later. */
    void (*on_request)(void *context, struct http_exchange *x);
    /* Fills in a JSON body for a request that is not HTTP, too large or too slow. */
    void (*on_bad)(void *context, struct http_exchange *x, int status, const char *reason);
};

/* host: name or address; NULL = every IPv4 address. port 0 = any. handler is copied. */
int http_server_open(struct event_base *base, const char *host, uint16_t port, int backlog,
                     const struct http_limits *limits, const struct http_handler *handler, void *context,
                     struct http_server **out, struct quire_error *err);
/* The same without a listener: its connections are those of http_server_adopt(), which limits per address and of the
 * process' descriptors do not apply to. */
int http_server_open_private(struct event_base *base, const struct http_limits *limits,
                             const struct http_handler *handler, void *context, struct http_server **out,
                             struct quire_error *err);
/* Serves a connected, non-blocking stream socket, such as one end of a socketpair. Its client counts as one on this
 * machine, without limits per address and without TLS. Takes fd, also on failure (QUIRE_NO_MEMORY). */
int http_server_adopt(struct http_server *s, int fd);
/* Calls on_gone for every exchange in progress. Do not call it from a callback of the server. */
void http_server_close(struct http_server *s);
/* From now on connections use TLS. tls must outlive the server. */
void http_server_use_tls(struct http_server *s, const struct tls *tls);

uint16_t http_server_port(const struct http_server *s);
/* Whether only this machine can connect. */
bool http_server_is_local(const struct http_server *s);
bool http_server_has_tls(const struct http_server *s);
/* The connections that have a slot: max_connections at most. */
uint32_t http_server_n_connections(const struct http_server *s);
/* Closes connections between requests at once, and the others after their reply. New connections are accepted and
 * receive one reply; on_idle does not wait for them. */
void http_server_drain(struct http_server *s);
/* Called once, from the loop, when the server drains and the last earlier connection has ended (also if there was no
 * connection). */
void http_server_on_idle(struct http_server *s, void (*on_idle)(void *context), void *context);

/* ---- the request ---- */

const char *http_method(const struct http_exchange *x);
/* Percent-encoded bytes are decoded, but for %2F and %25; without query. */
const char *http_path(const struct http_exchange *x);
/* What follows the path's "?", with its escapes; "" without one. query.h reads its fields. */
const char *http_query(const struct http_exchange *x);
/* The first header of this name; NULL if absent. */
const char *http_header(const struct http_exchange *x, const char *name);
/* The next header of this name after `after`, a result of this function or of http_header(); NULL at the end. */
const char *http_header_next(const struct http_exchange *x, const char *name, const char *after);
/* Whether two headers of this name have different values. */
bool http_header_differs(const struct http_exchange *x, const char *name);
/* The client's address; "" of an adopted connection. For a trusted proxy it is the last address of x-forwarded-for. */
void http_client(const struct http_exchange *x, char out[HTTP_ADDRESS_BYTES]);
/* Whether the client is on this machine: 127.0.0.0/8 or ::1. */
bool http_from_loopback(const struct http_exchange *x);
/* The body in the parser's buffer, valid until it is taken or the reply begins. NULL when it is empty. */
const char *http_body(const struct http_exchange *x, size_t *n_bytes);
/* Passes ownership of the body to the caller, once: malloc'd, not NUL-terminated; NULL when it is empty. It counts
 * as held by the server (max_all_bodies_bytes) until http_body_freed(), or the end of the exchange. */
char *http_take_body(struct http_exchange *x, size_t *n_bytes);
void http_body_freed(struct http_exchange *x);
/* From on_head only: the body is not kept, on_part gets it in pieces as it arrives, and on_request follows. on_part may
 * reply, which rejects the rest. No call follows on_gone, which such an exchange also gets if its body is invalid. */
void http_stream_body(struct http_exchange *x, void (*on_part)(void *context, const char *bytes, size_t n_bytes),
                      void *context);
/* What http_stream_body() got as context; NULL: the body is kept. */
void *http_body_context(const struct http_exchange *x);
/* Stops reading such a body, or continues. */
void http_pause_body(struct http_exchange *x, bool pause);
/* Whether the connection is one that http_server_adopt() took, so that its client is a part of this process. */
bool http_is_adopted(const struct http_exchange *x);
/* A number that the handler notes for the rest of the exchange; 0 at first. */
void http_set_note(struct http_exchange *x, int note);
int http_note(const struct http_exchange *x);
/* The client's x-request-id if it is valid, otherwise a generated one; sent with every reply. */
const char *http_request_id(const struct http_exchange *x);

/* ---- the reply ---- */

/* on_gone is called at most once, from the loop and never from inside a call below, if the client disconnects or is
 * disconnected before the reply has ended. x is invalid afterwards. */
void http_on_gone(struct http_exchange *x, void (*on_gone)(void *context), void *context);

/* Adds a header to the reply. name and value are copied. */
void http_add_header(struct http_exchange *x, const char *name, const char *value);

/* A whole reply; ends the exchange. content_type NULL: no body. */
void http_reply(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n_bytes);
/* The same with a large body, which is not copied: gone(context) is called once, from the loop or from within this
 * call, when the body has been sent or its connection has ended. */
void http_reply_large(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n_bytes,
                      void (*gone)(void *context), void *context);

/* A reply in pieces: headers at once, one write per event. Writes to a client that is too far behind are dropped,
 * and on_gone follows. */
void http_stream_begin(struct http_exchange *x, int status, const char *content_type);
void http_stream_write(struct http_exchange *x, const void *bytes, size_t n_bytes);
void http_stream_end(struct http_exchange *x);
/* Whether less than a quarter of the limit is pending. For callers that could write all of a long reply at once. */
bool http_stream_has_space(const struct http_exchange *x);

/* Closes the connection in the middle of a reply; on_gone follows. */
void http_cut_off(struct http_exchange *x);

#endif
