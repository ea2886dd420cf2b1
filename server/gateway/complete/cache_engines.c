#include "server/gateway/complete/cache_engines.h"

#include "base/buffer.h"
#include "server/gateway/remote/remote.h"
#include "server/http/http.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_REPLY_BYTES (1u << 20)
#define TIMEOUT_MS 10000

struct one {
    struct cache_engines_call *all;
    struct remote_call *call; /* NULL: it has ended, or never began */
    struct buffer reply;
    int status;
};

struct cache_engines_call {
    void (*on_end)(void *context, const struct cache_engines_reply *replies, size_t n);
    void *context;
    size_t n, n_left;
    struct one each[];
};

static void free_call(struct cache_engines_call *c)
{
    for (size_t i = 0; i < c->n; i++)
        buffer_free(&c->each[i].reply);
    free(c);
}

static void finish(struct cache_engines_call *c)
{
    struct cache_engines_reply *replies = calloc(c->n, sizeof *replies);
    for (size_t i = 0; replies && i < c->n; i++)
        replies[i] = (struct cache_engines_reply){c->each[i].status, c->each[i].reply.data, c->each[i].reply.n};
    c->on_end(c->context, replies, replies ? c->n : 0);
    free(replies);
    free_call(c);
}

static void on_head(void *context, int status)
{
    ((struct one *)context)->status = status;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    buffer_append(&((struct one *)context)->reply, bytes, n);
}

static void on_end(void *context, enum remote_end how, const char *why)
{
    struct one *one = context;
    (void)why;
    one->call = NULL;
    if (how != REMOTE_WHOLE || one->reply.failed)
        one->status = 0;
    if (--one->all->n_left == 0)
        finish(one->all);
}

static bool begin(struct one *one, const struct complete_options *o, const struct remote_request *q)
{
    static const struct remote_events events = {on_head, on_body, on_end};
    return remote_begin(o->remote, q, &events, one, &one->call, NULL) == QUIRE_OK;
}

void cache_engines_ask(const struct complete_options *o, struct http_exchange *x, const char *method, const char *path,
                       void (*on_end_of_all)(void *context, const struct cache_engines_reply *replies, size_t n),
                       void *context, struct cache_engines_call **out)
{
    static const char *const names[] = {"Authorization", "x-api-key"};
    char lines[2][1100], url[64];
    const char *headers[2];
    size_t n = 0, n_headers = 0;
    while (o->engine && o->engine(o->context, n))
        n++;
    struct cache_engines_call *c = n > 0 ? calloc(1, sizeof *c + n * sizeof *c->each) : NULL;
    *out = NULL;
    if (!c) {
        on_end_of_all(context, NULL, 0);
        return;
    }
    *c = (struct cache_engines_call){.on_end = on_end_of_all, .context = context, .n = n};
    for (size_t i = 0; i < 2; i++) {
        const char *value = http_header(x, names[i]);
        if (value && snprintf(lines[i], sizeof lines[i], "%s: %s", names[i], value) < (int)sizeof lines[i])
            headers[n_headers++] = lines[i];
    }
    snprintf(url, sizeof url, "http://localhost%s", path);
    for (size_t i = 0; i < n; i++) {
        const struct remote_request q = {.method = method,
                                         .url = url,
                                         .headers = headers,
                                         .n_headers = n_headers,
                                         .connect_ms = TIMEOUT_MS,
                                         .first_byte_ms = TIMEOUT_MS,
                                         .silence_ms = TIMEOUT_MS,
                                         .max_reply_bytes = MAX_REPLY_BYTES,
                                         .socket = o->engine(o->context, i)};
        c->each[i].all = c;
        c->n_left += begin(&c->each[i], o, &q);
    }
    if (c->n_left > 0)
        *out = c;
    else
        finish(c);
}

void cache_engines_cancel(struct cache_engines_call *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->each[i].call)
            remote_cancel(c->each[i].call);
    free_call(c);
}
