#include "server/gateway/pass.h"

#include "server/front/api/api_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REPLY_BYTES ((uint64_t)64 << 20)
#define MAX_LINES 8

struct pass {
    struct gateway *g;
    struct http_exchange *x;
    struct pool *pool; /* held */
    struct remote_call *call; /* NULL: not running */
    size_t at; /* the number of the engine, of those in the file */
    struct buffer reply;
    char *sent; /* the client's body */
    size_t n_sent;
    int status;
};

static const struct {
    const char *method, *path; /* a path that ends in '/' stands for longer ones */
    enum pass_access access;
} passes[] = {
    {"GET", "/", PASS_OPEN},
    {"GET", "/ui", PASS_OPEN},
    {"GET", "/openapi.json", PASS_OPEN},
    {"GET", "/v1/responses/", PASS_KEY},
    {"DELETE", "/v1/responses/", PASS_KEY},
    {"DELETE", "/v1/cache/pins", PASS_KEY},
    {"POST", "/v1/admin/scheduling-policy", PASS_ADMIN},
    {"POST", "/cache/entries", PASS_ADMIN},
    {"POST", "/cache/import", PASS_ADMIN},
};

/* Whether the engine's front end reads the path as this process does. Another one could leave the route: "/../", or "?",
 * which was encoded in the client's request. */
static bool is_plain(const char *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./";
    return path[strspn(path, plain)] == '\0' && !strstr(path, "/.");
}

enum pass_access pass_access(const char *method, const char *path)
{
    const char *asked = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < sizeof passes / sizeof *passes && is_plain(path); i++) {
        const size_t n = strlen(passes[i].path);
        const bool longer = n > 1 && passes[i].path[n - 1] == '/';
        if (strcmp(passes[i].method, asked) == 0 &&
            (longer ? strncmp(path, passes[i].path, n) == 0 && path[n] : strcmp(path, passes[i].path) == 0))
            return passes[i].access;
    }
    return PASS_NONE;
}

static void free_pass(struct pass *p)
{
    pool_release(p->pool);
    buffer_free(&p->reply);
    free(p->sent);
    free(p);
}

static void on_gone(void *context)
{
    struct pass *p = context;
    if (p->call)
        remote_cancel(p->call);
    free_pass(p);
}

static void fail(struct pass *p, int status, const char *code, const char *why)
{
    struct api_error e;
    api_fail(&e, status, NULL, code, "%s", why);
    http_on_gone(p->x, NULL, NULL);
    api_error_reply(p->x, &e);
    free_pass(p);
}

/* ---- the reply ------------------------------------------------------------------------------ */

static void copy_header(void *context, const char *name, const char *value)
{
    static const char *const own[] = {"date",       "content-length",    "content-type", "connection",
                                      "keep-alive", "transfer-encoding", "x-request-id"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcasecmp(own[i], name) == 0)
            return;
    http_add_header(context, name, value);
}

static void on_head(void *context, int status)
{
    ((struct pass *)context)->status = status;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    buffer_append(&((struct pass *)context)->reply, bytes, n);
}

static bool begin_call(struct pass *p);

static void on_end(void *context, enum remote_end end, const char *why)
{
    struct pass *p = context;
    struct remote_call *call = p->call;
    p->call = NULL;
    if (end != REMOTE_WHOLE || p->reply.failed) {
        fail(p, 502, "engine_unavailable", p->reply.failed ? "out of memory" : why);
        return;
    }
    if (p->status == 404 && strncmp(http_path(p->x), "/v1/responses/", 14) == 0) {
        p->at++;
        buffer_clear(&p->reply);
        if (begin_call(p))
            return;
        fail(p, 404, "not_found", "no engine of this gateway has this response");
        return;
    }
    remote_headers(call, copy_header, p->x);
    const char *type = remote_header(call, "Content-Type");
    http_on_gone(p->x, NULL, NULL);
    http_reply(p->x, p->status, type, p->reply.data, p->reply.n);
    free_pass(p);
}

/* ---- the call ------------------------------------------------------------------------------- */

const char *pass_socket(const struct gateway *g, const struct pool *pool, size_t number)
{
    const struct gateway_private *engines = &g->options.engines;
    for (size_t i = 0; i < pool->config->n_models && engines->socket; i++)
        for (size_t k = 0; k < pool->config->models[i].n_targets; k++) {
            const struct gateway_model *m = &pool->config->models[i];
            if (m->targets[k].kind != GATEWAY_TARGET_URL && number-- == 0)
                return engines->socket(engines->context, m, &m->targets[k]);
        }
    return NULL;
}

static bool begin_call(struct pass *p)
{
    static const char *const names[] = {"Authorization", "x-api-key", "if-none-match"};
    static const struct remote_events events = {on_head, on_body, on_end};
    char url[2048], *lines[MAX_LINES];
    const char *socket = pass_socket(p->g, p->pool, p->at), *method = http_method(p->x);
    size_t n = 0;
    if (!socket)
        return false;
    snprintf(url, sizeof url, "http://localhost%s", http_path(p->x));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = http_header(p->x, names[i]);
        if (value && asprintf(&lines[n], "%s: %s", names[i], value) >= 0)
            n++;
    }
    if (asprintf(&lines[n], "x-request-id: %s", http_request_id(p->x)) >= 0)
        n++;
    const struct remote_request q = {.method = strcmp(method, "HEAD") == 0 ? "GET" : method,
                                     .url = url,
                                     .headers = (const char *const *)lines,
                                     .n_headers = n,
                                     .body = p->sent,
                                     .n_body = p->n_sent,
                                     .max_reply_bytes = MAX_REPLY_BYTES,
                                     .socket = socket};
    const bool begun = remote_begin(p->g->remote, &q, &events, p, &p->call, NULL) == QUIRE_OK;
    while (n > 0)
        free(lines[--n]);
    return begun;
}

void pass_begin(struct gateway *g, struct http_exchange *x)
{
    struct pass *p = calloc(1, sizeof *p);
    struct api_error e;
    if (!p) {
        api_no_memory(&e);
        api_error_reply(x, &e);
        return;
    }
    p->g = g;
    p->x = x;
    p->pool = pool_hold(g->pool);
    p->sent = http_take_body(x, &p->n_sent);
    http_on_gone(x, on_gone, p);
    if (!begin_call(p))
        fail(p, 404, "unknown_url", "this route is an engine's, and no target of this gateway is an engine");
}
