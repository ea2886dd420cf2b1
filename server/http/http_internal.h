/* State shared by http.c (connections), http_slots.c (connection slots) and http_reply.c (output). */
#ifndef QUIRE_HTTP_INTERNAL_H
#define QUIRE_HTTP_INTERNAL_H

#include "server/http/http.h"
#include "server/http/http_parser.h"

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <sys/queue.h>

enum phase {
    READING,   /* between requests, or inside a request's head or body */
    HELD,      /* the head has arrived, but the connection has no slot yet */
    WORKING,   /* the handler has the request */
    FLUSHING,  /* the last reply is being written */
    LINGERING, /* the reply was written; input is read and discarded */
};

enum http_client {
    HTTP_ELSEWHERE,
    HTTP_LOOPBACK, /* on this machine */
    HTTP_ADOPTED,  /* in this process */
};

struct http_exchange {
    struct http_connection *connection;
    char request_id[65];
    struct evbuffer *extra; /* header lines for the reply */
    bool live;              /* between on_head and the end of the reply */
    bool streaming, chunked, is_head;
    size_t n_largest; /* bytes of the largest event so far */
    void (*on_gone)(void *context);
    void *context;
    void (*on_part)(void *context, const char *bytes, size_t n_bytes); /* NULL: the body is kept */
    void *part_context;
    bool paused;
    int note; /* the handler's */
};

TAILQ_HEAD(connection_list, http_connection);

struct http_peer; /* private to http_slots.c, as http_slots */
struct http_slots;

struct http_connection {
    struct http_server *server;
    struct http_peer *peer; /* NULL: adopted, or a trusted proxy, which represents many clients */
    struct bufferevent *bev;
    struct event *timer;
    struct http_parser *parser; /* owned */
    struct http_exchange *x;    /* owned: the request that is read or answered, and its reply */
    enum phase phase;
    bool placed;      /* has one of the max_connections slots */
    bool listed;      /* in `waiting` */
    bool close_after; /* the reply in progress is the connection's last */
    bool unread;      /* part of the request was not read */
    bool eof;         /* the client sends nothing more */
    bool doomed;      /* cut off at the next turn of the loop */
    bool stalled;     /* pipelined requests wait for replies to be taken */
    bool inside;      /* a handler is running for this connection */
    bool deadline;    /* the timer is a deadline, not a turn of the loop */
    bool served;      /* has had a reply */
    bool unwritten;   /* in the server's list */
    bool is_tls;      /* written by the bufferevent alone */
    bool late;        /* its first request would come after the server began to drain */
    enum http_client client;
    bool from_proxy; /* a trusted one */
    char address[HTTP_ADDRESS_BYTES]; /* "" of an adopted connection */
    uint64_t opened_ms;
    size_t n_lingered, n_body;
    TAILQ_ENTRY(http_connection) link, unwritten_link, slot_link, peer_link;
};

struct http_server {
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *resume; /* resumes accepting after a pause; looks for slots */
    struct event *idle;
    struct event *flush; /* writes the connections that this turn of the loop has added to `unwritten` */
    const struct tls *tls; /* NULL: plain HTTP */
    struct http_limits limits;
    struct http_handler handler;
    void *context;
    uint16_t port;
    uint32_t n_connections, n_late, n_held;
    struct http_slots *slots; /* owned */
    bool draining;
    void (*on_idle)(void *context);
    void *idle_context;
    struct connection_list connections, unwritten;
    uint8_t random[1024]; /* for request ids; the first n_random are unused */
    size_t n_random;
    bool is_local; /* bound to a loopback address */
};

/* The output buffer, to append to. It is written when the current callback of the loop returns. */
struct evbuffer *http_connection_out(struct http_connection *c);

/* Continues at the next turn of the loop, never inside a caller that may hold the exchange. */
void http_connection_later(struct http_connection *c);
char *http_connection_take_body(struct http_connection *c, size_t *n_bytes);
/* Frees the parser's memory of a request. */
void http_connection_reset_parser(struct http_connection *c);
/* Makes every change of phase. */
void http_connection_enter(struct http_connection *c, enum phase phase);

/* ---- http_slots.c ---- */
#define HTTP_SLOTS_UNPLACED 96 /* connections besides those that have a place */
/* NULL: out of memory. */
struct http_slots *http_slots_new(void);
void http_slots_free(struct http_slots *slots); /* no connection is left; NULL is allowed */
uint32_t http_slots_n_placed(const struct http_server *s);
/* The first connection without a slot; TAILQ_NEXT(c, slot_link) is the next, in order of arrival. */
struct http_connection *http_slots_first_unplaced(const struct http_server *s);
/* Counts the bytes of this connection's body that the parser or the handler holds. */
void http_slots_count_body(struct http_connection *c, size_t n_bytes);
/* A new connection, without a place. from NULL: it was adopted. False: no memory. */
bool http_slots_enter(struct http_connection *c, const struct sockaddr *from);
/* Releases the slot of a connection that is freed; call it after http_connection_reset_parser(). */
void http_slots_leave(struct http_connection *c);
/* Its phase was changed. */
void http_slots_note(struct http_connection *c);
enum http_place {
    HTTP_PLACED,
    HTTP_NO_SHARE, /* its address has as many as one may have */
    HTTP_NO_PLACE, /* all are taken */
};
/* Gives c a slot if it has none. *goes: the connection to free before another attempt; NULL if all connections are
 * busy. */
enum http_place http_slots_place(struct http_connection *c, struct http_connection **goes);
/* The connection to close because too many have no slot; NULL if the number is within the limit. */
struct http_connection *http_slots_too_many(struct http_server *s);
/* So many have no place that accepting must wait for a turn of the loop. */
bool http_slots_is_crowded(const struct http_server *s);
/* Whether the growing body of c may stay. *goes: the connection whose larger body is to be rejected before another
 * attempt; NULL if no such connection exists. */
bool http_slots_for_body(struct http_connection *c, struct http_connection **goes);

#endif
