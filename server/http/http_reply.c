#include "server/http/http_internal.h"

#include <event2/buffer.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* ---- the request ---------------------------------------------------------------------------- */

const char *http_method(const struct http_exchange *x)
{
    return x->connection->parser.method;
}

const char *http_path(const struct http_exchange *x)
{
    return x->connection->parser.path;
}

const char *http_header(const struct http_exchange *x, const char *name)
{
    return http_parser_header(&x->connection->parser, name);
}

char *http_take_body(struct http_exchange *x, size_t *n_bytes)
{
    return http_connection_take_body(x->connection, n_bytes);
}

void http_body_freed(struct http_exchange *x)
{
    http_connection_count_body(x->connection, 0);
}

const char *http_request_id(const struct http_exchange *x)
{
    return x->request_id;
}

bool http_header_differs(const struct http_exchange *x, const char *name)
{
    return http_parser_header_differs(&x->connection->parser, name);
}

bool http_from_loopback(const struct http_exchange *x)
{
    struct sockaddr_storage from = {0};
    socklen_t n = sizeof from;
    if (getpeername(bufferevent_getfd(x->connection->bev), (struct sockaddr *)&from, &n) != 0)
        return false;
    const struct http_address address = http_address_of((struct sockaddr *)&from);
    return http_address_is_loopback(&address);
}

/* ---- the reply ------------------------------------------------------------------------------ */

static const char *status_phrase(int status)
{
    switch (status) {
    case 200: return "OK";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    }
    return "Status";
}

static void write_head(struct http_exchange *x, int status, const char *content_type)
{
    struct http_connection *c = x->connection;
    struct evbuffer *out = http_connection_out(c);
    char date[64];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    evbuffer_add_printf(out, "HTTP/1.%c %d %s\r\nDate: %s\r\nx-request-id: %s\r\n", c->parser.http_1_0 ? '0' : '1',
                        status, status_phrase(status), date, x->request_id);
    if (content_type)
        evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type);
    if (c->close_after)
        evbuffer_add_printf(out, "Connection: close\r\n");
    else if (c->parser.http_1_0)
        evbuffer_add_printf(out, "Connection: keep-alive\r\n");
    if (x->extra)
        evbuffer_add_buffer(out, x->extra);
}

/* Whether the connection is over after this reply, which is known when its headers are written. */
static void decide_close(struct http_connection *c)
{
    if (!c->parser.keep_alive || c->server->draining || !c->placed || c->server->n_held > 0 || c->unread)
        c->close_after = true;
}

static void end_exchange(struct http_connection *c)
{
    c->x.live = false;
    c->x.on_gone = NULL;
    c->served = true;
    if (c->x.extra)
        evbuffer_drain(c->x.extra, evbuffer_get_length(c->x.extra));
    if (c->close_after) {
        http_connection_enter(c, FLUSHING);
    } else {
        http_connection_reset_parser(c);
        http_connection_enter(c, READING);
    }
    if (!c->inside)
        http_connection_later(c);
}

/* Status, headers and length. Whether a body follows. */
static bool begin_whole(struct http_exchange *x, int status, const char *content_type, size_t n_bytes)
{
    struct http_connection *c = x->connection;
    struct evbuffer *out = http_connection_out(c);
    decide_close(c);
    write_head(x, status, content_type);
    /* A length in a 304 would be taken for that of the page the client has. */
    if (status == 304)
        evbuffer_add(out, "\r\n", 2);
    else
        evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", content_type ? n_bytes : 0);
    return content_type && n_bytes > 0 && !x->is_head;
}

void http_reply(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n_bytes)
{
    if (begin_whole(x, status, content_type, n_bytes))
        evbuffer_add(http_connection_out(x->connection), body, n_bytes);
    end_exchange(x->connection);
}

struct large_body {
    void (*gone)(void *context);
    void *context;
};

static void on_large_gone(const void *body, size_t n_bytes, void *extra)
{
    const struct large_body large = *(struct large_body *)extra;
    (void)body;
    (void)n_bytes;
    free(extra);
    large.gone(large.context);
}

void http_reply_large(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n_bytes,
                      void (*gone)(void *context), void *context)
{
    struct evbuffer *out = http_connection_out(x->connection);
    struct large_body *large = malloc(sizeof *large);
    if (large)
        *large = (struct large_body){gone, context};
    if (!large || !begin_whole(x, status, content_type, n_bytes) ||
        evbuffer_add_reference(out, body, n_bytes, on_large_gone, large) != 0) {
        free(large);
        http_cut_off(x);
        gone(context);
    }
    end_exchange(x->connection);
}

void http_stream_begin(struct http_exchange *x, int status, const char *content_type)
{
    struct http_connection *c = x->connection;
    struct evbuffer *out = http_connection_out(c);
    x->streaming = true;
    x->chunked = !c->parser.http_1_0;
    if (!x->chunked)
        c->close_after = true;
    decide_close(c);
    write_head(x, status, content_type);
    evbuffer_add_printf(out, "%s\r\n", x->chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

void http_stream_write(struct http_exchange *x, const void *bytes, size_t n_bytes)
{
    struct http_connection *c = x->connection;
    if (c->doomed || n_bytes == 0)
        return;
    struct evbuffer *out = http_connection_out(c);
    /* An event as large as the limit is nobody's slowness: it does not count against its client. */
    if (evbuffer_get_length(out) > c->server->limits.max_pending_bytes + x->n_largest) {
        http_cut_off(x);
        return;
    }
    if (n_bytes > x->n_largest)
        x->n_largest = n_bytes;
    if (!x->chunked) {
        evbuffer_add(out, bytes, n_bytes);
        return;
    }
    char size[24];
    int n = snprintf(size, sizeof size, "%zx\r\n", n_bytes);
    struct evbuffer_iovec parts[3] = {
        {.iov_base = size, .iov_len = (size_t)n},
        {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes},
        {.iov_base = "\r\n", .iov_len = 2},
    };
    evbuffer_add_iovec(out, parts, 3);
}

void http_cut_off(struct http_exchange *x)
{
    x->connection->doomed = true;
    http_connection_later(x->connection);
}

void http_stream_end(struct http_exchange *x)
{
    struct http_connection *c = x->connection;
    if (x->chunked)
        evbuffer_add(http_connection_out(c), "0\r\n\r\n", 5);
    end_exchange(c);
}

void http_on_gone(struct http_exchange *x, void (*on_gone)(void *context), void *context)
{
    x->on_gone = on_gone;
    x->context = context;
}

void http_add_header(struct http_exchange *x, const char *name, const char *value)
{
    if (!x->extra)
        x->extra = evbuffer_new();
    if (x->extra)
        evbuffer_add_printf(x->extra, "%s: %s\r\n", name, value);
}
