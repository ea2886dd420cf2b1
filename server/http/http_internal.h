/* What http.c (connections) and http_reply.c (what is written to them) share. */
#ifndef QUIRE_HTTP_INTERNAL_H
#define QUIRE_HTTP_INTERNAL_H

#include "server/http/http.h"
#include "server/http/http_parser.h"

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <sys/queue.h>

enum phase {
    READING,   /* between requests, or in one's head or body */
    WORKING,   /* the request is with the handler */
    FLUSHING,  /* the last reply is being written */
    LINGERING, /* it was written; input is read and forgotten */
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
};

struct http_connection {
    struct http_server *server;
    struct bufferevent *bev;
    struct event *timer;
    struct http_parser parser;
    struct http_exchange x;
    enum phase phase;
    bool close_after; /* the reply in progress is the connection's last */
    bool unread;      /* part of the request was not read */
    bool eof;         /* the client sends nothing more */
    bool doomed;      /* cut off at the next turn of the loop */
    bool stalled;     /* pipelined requests wait for replies to be taken */
    bool inside;      /* a handler is running for this connection */
    bool deadline;    /* the timer is a deadline, not a turn of the loop */
    bool served;      /* it has had a reply */
    bool unwritten;   /* in the server's list */
    bool is_tls;      /* written by the bufferevent alone */
    bool late;        /* accepted by a server that drains */
    uint64_t opened_ms;
    size_t n_lingered, n_body;
    TAILQ_ENTRY(http_connection) link, unwritten_link;
};

struct http_server {
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *resume; /* accepting, after the process had no descriptors left */
    struct event *idle;
    struct event *flush; /* writes what the turn of the loop has added to `unwritten` */
    const struct tls *tls; /* NULL: plain HTTP */
    struct http_limits limits;
    struct http_handler handler;
    void *context;
    uint16_t port;
    uint32_t n_connections, n_late;
    size_t n_body_bytes;
    bool draining, full;
    void (*on_idle)(void *context);
    void *idle_context;
    TAILQ_HEAD(connection_list, http_connection) connections, unwritten;
};

/* What goes out, to be added to: it is written when the loop's callback in progress returns. */
struct evbuffer *http_connection_out(struct http_connection *c);

/* Goes on at the next turn of the loop: never inside a caller that may hold the exchange. */
void http_connection_later(struct http_connection *c);
char *http_connection_take_body(struct http_connection *c, size_t *n_bytes);
/* What is held of this connection's body, by the parser or by whoever took it. */
void http_connection_count_body(struct http_connection *c, size_t n_bytes);
/* Frees what the parser holds of a request. */
void http_connection_reset_parser(struct http_connection *c);

#endif
