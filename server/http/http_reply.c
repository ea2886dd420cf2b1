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
    return x->connection->parser->method;
}

const char *http_path(const struct http_exchange *x)
{
    return x->connection->parser->path;
}

const char *http_query(const struct http_exchange *x)
{
    const char *query = x->connection->parser->query;
    return query ? query : "";
}

const char *http_header(const struct http_exchange *x, const char *name)
{
    return http_parser_header(x->connection->parser, name);
}

const char *http_body(const struct http_exchange *x, size_t *n_bytes)
{
    *n_bytes = x->connection->parser->n_body;
    return x->connection->parser->body;
}

char *http_take_body(struct http_exchange *x, size_t *n_bytes)
{
    return http_connection_take_body(x->connection, n_bytes);
}

void http_body_freed(struct http_exchange *x)
{
    http_slots_count_body(x->connection, 0);
}

void http_stream_body(struct http_exchange *x, void (*on_part)(void *context, const char *bytes, size_t n_bytes),
                      void *context)
{
    x->on_part = on_part;
    x->part_context = context;
}

void *http_body_context(const struct http_exchange *x)
{
    return x->part_context;
}

void http_pause_body(struct http_exchange *x, bool pause)
{
    struct bufferevent *bev = x->connection->bev;
    if (x->paused == pause)
        return;
    x->paused = pause;
    if (pause) {
        bufferevent_disable(bev, EV_READ);
        return;
    }
    bufferevent_enable(bev, EV_READ);
    /* What has arrived already, at the next turn of the loop. */
    bufferevent_trigger(bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

bool http_is_adopted(const struct http_exchange *x)
{
    return x->connection->client == HTTP_ADOPTED;
}

void http_set_note(struct http_exchange *x, int note)
{
    x->note = note;
}

int http_note(const struct http_exchange *x)
{
    return x->note;
}

const char *http_request_id(const struct http_exchange *x)
{
    return x->request_id;
}

const char *http_header_next(const struct http_exchange *x, const char *name, const char *after)
{
    return http_parser_header_next(x->connection->parser, name, after);
}

bool http_header_differs(const struct http_exchange *x, const char *name)
{
    return http_parser_header_differs(x->connection->parser, name);
}

void http_client(const struct http_exchange *x, char out[HTTP_ADDRESS_BYTES])
{
    const struct http_connection *c = x->connection;
    struct http_address address;
    const char *chain = c->from_proxy ? http_header(x, "x-forwarded-for") : NULL;
    for (const char *next = chain; next; next = http_header_next(x, "x-forwarded-for", next))
        chain = next;
    /* The proxy adds its client at the end. What comes before is the client's own text. */
    const char *comma = chain ? strrchr(chain, ',') : NULL;
    const char *last = comma ? comma + 1 : chain;
    memcpy(out, c->address, HTTP_ADDRESS_BYTES);
    if (!last)
        return;
    last += strspn(last, " \t");
    char text[HTTP_ADDRESS_BYTES];
    const size_t n = strcspn(last, " \t");
    if (n == 0 || n >= sizeof text)
        return;
    memcpy(text, last, n);
    text[n] = 0;
    if (http_address_parse(text, &address))
        http_address_text(&address, out);
}

bool http_from_loopback(const struct http_exchange *x)
{
    return x->connection->client != HTTP_ELSEWHERE;
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
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 507: return "Insufficient Storage";
    }
    return "Status";
}

/* A second's replies have the same. */
static const char *date_of_now(void)
{
    static _Thread_local struct {
        time_t time;
        char text[32];
    } date;
    time_t now = time(NULL);
    struct tm utc;
    if (now != date.time) {
        gmtime_r(&now, &utc);
        strftime(date.text, sizeof date.text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
        date.time = now;
    }
    return date.text;
}

static void write_head(struct http_exchange *x, int status, const char *content_type)
{
    struct http_connection *c = x->connection;
    struct evbuffer *out = http_connection_out(c);
    const char *stays = c->parser->http_1_0 ? "Connection: keep-alive\r\n" : "";
    evbuffer_add_printf(out, "HTTP/1.%c %d %s\r\nDate: %s\r\nx-request-id: %s\r\n%s%s%s%s",
                        c->parser->http_1_0 ? '0' : '1', status, status_phrase(status), date_of_now(), x->request_id,
                        content_type ? "Content-Type: " : "", content_type ? content_type : "",
                        content_type ? "\r\n" : "", c->close_after ? "Connection: close\r\n" : stays);
    if (x->extra)
        evbuffer_add_buffer(out, x->extra);
}

/* Whether the connection is over after this reply, which is known when its headers are written. */
static void decide_close(struct http_connection *c)
{
    if (!c->parser->keep_alive || c->server->draining || !c->placed || c->server->n_held > 0 || c->unread)
        c->close_after = true;
}

static void end_exchange(struct http_connection *c)
{
    http_pause_body(c->x, false);
    c->x->live = false;
    c->x->on_gone = NULL;
    c->served = true;
    if (c->x->extra)
        evbuffer_drain(c->x->extra, evbuffer_get_length(c->x->extra));
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
    x->chunked = !c->parser->http_1_0;
    if (!x->chunked)
        c->close_after = true;
    decide_close(c);
    write_head(x, status, content_type);
    evbuffer_add_printf(out, "%s\r\n", x->chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

/* Every token of every stream has one: a tenth of what printf takes. Returns its length. */
static size_t chunk_size_line(size_t n_bytes, char line[20])
{
    size_t n = 1;
    while (n < 16 && n_bytes >> 4 * n)
        n++;
    for (size_t i = 0; i < n; i++)
        line[i] = "0123456789abcdef"[n_bytes >> 4 * (n - 1 - i) & 15];
    line[n] = '\r';
    line[n + 1] = '\n';
    return n + 2;
}

void http_stream_write(struct http_exchange *x, const void *bytes, size_t n_bytes)
{
    struct http_connection *c = x->connection;
    if (c->doomed || n_bytes == 0)
        return;
    struct evbuffer *out = http_connection_out(c);
    /* A single event as large as the limit does not mean that the client is slow, so it does not count. */
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
    char size[20];
    size_t n = chunk_size_line(n_bytes, size);
    struct evbuffer_iovec parts[3] = {
        {.iov_base = size, .iov_len = n},
        {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes},
        {.iov_base = "\r\n", .iov_len = 2},
    };
    evbuffer_add_iovec(out, parts, 3);
}

bool http_stream_has_space(const struct http_exchange *x)
{
    const struct http_connection *c = x->connection;
    return evbuffer_get_length(bufferevent_get_output(c->bev)) <= c->server->limits.max_pending_bytes / 4;
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
