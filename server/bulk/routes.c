#include "server/bulk/routes.h"

#include "server/bulk/call.h"
#include "server/bulk/upload/upload.h"
#include "server/front/api/ui_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ui_page batches_page; /* of ui/batches.html */

#define FILE_ID "file-"
#define BATCH_ID "batch_"

struct route {
    const char *method, *path; /* "{id}": of the kind that `prefix` begins */
    const char *prefix;
    void (*start)(struct bulk *b, struct http_exchange *x, struct bulk_call *c); /* NULL: an upload */
};

/* Routes of one path are neighbours. */
static const struct route routes[] = {
    {"POST", "/v1/files", NULL, NULL},
    {"GET", "/v1/files", NULL, files_list},
    {"GET", "/v1/files/{id}", BULK_FILE_ID, files_get},
    {"DELETE", "/v1/files/{id}", BULK_FILE_ID, files_remove},
    {"GET", "/v1/files/{id}/content", BULK_FILE_ID, files_content},
    {"POST", "/v1/batches", NULL, batches_create},
    {"GET", "/v1/batches", NULL, batches_list},
    {"GET", "/v1/batches/{id}", BULK_BATCH_ID, batches_get},
    {"POST", "/v1/batches/{id}/cancel", BULK_BATCH_ID, batches_cancel},
    {"POST", "/v1/messages/batches", NULL, NULL},
    {"GET", "/v1/messages/batches", NULL, messages_list},
    {"GET", "/v1/messages/batches/{id}", BULK_MESSAGES_ID, batches_get},
    {"DELETE", "/v1/messages/batches/{id}", BULK_MESSAGES_ID, messages_remove},
    {"POST", "/v1/messages/batches/{id}/cancel", BULK_MESSAGES_ID, batches_cancel},
    {"GET", "/v1/messages/batches/{id}/results", BULK_MESSAGES_ID, messages_results},
};
#define N_ROUTES (sizeof routes / sizeof *routes)
static const char page_path[] = "/ui/batches";

/* Whether a route has this path. *id: within path; NULL: a path without id. */
static bool is_path(const struct route *r, const char *path, const char **id, size_t *n_id)
{
    const char *mark = strstr(r->path, "{id}");
    size_t n = strlen(path);
    *id = NULL;
    if (n > 1 && path[n - 1] == '/') /* a redirect would lose a POST's body */
        n--;
    if (!mark)
        return n == strlen(r->path) && memcmp(path, r->path, n) == 0;
    const size_t n_before = (size_t)(mark - r->path), n_behind = strlen(mark + 4);
    if (n <= n_before + n_behind || memcmp(path, r->path, n_before) != 0 ||
        memcmp(path + n - n_behind, mark + 4, n_behind) != 0)
        return false;
    *id = path + n_before;
    *n_id = n - n_before - n_behind;
    return !memchr(*id, '/', *n_id);
}

static const struct route *find(const char *path, const char *method, char id[BULK_ID_BYTES])
{
    const char *at, *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    size_t n;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!is_path(&routes[i], path, &at, &n) || strcmp(routes[i].method, as) != 0)
            continue;
        id[0] = '\0';
        if (at && n < BULK_ID_BYTES)
            snprintf(id, BULK_ID_BYTES, "%.*s", (int)n, at);
        return &routes[i];
    }
    return NULL;
}

bool routes_find(void *context, const char *path, struct more_route *out)
{
    static const struct {
        const char *first, *methods; /* the first route of a path; the methods of all its routes */
    } all[] = {{"/v1/files", "POST, GET, HEAD"},
               {"/v1/files/{id}", "GET, HEAD, DELETE"},
               {"/v1/batches", "POST, GET, HEAD"},
               {"/v1/messages/batches", "POST, GET, HEAD"},
               {"/v1/messages/batches/{id}", "GET, HEAD, DELETE"}};
    const char *id;
    size_t n;
    (void)context;
    *out = (struct more_route){.methods = NULL};
    const size_t n_page = strlen(page_path);
    if (strncmp(path, page_path, n_page) == 0 && (!path[n_page] || strcmp(path + n_page, "/") == 0)) {
        *out = (struct more_route){.methods = "GET, HEAD", .is_open = true};
        return true;
    }
    for (size_t i = 0; i < N_ROUTES && !out->methods; i++) {
        if (!is_path(&routes[i], path, &id, &n))
            continue;
        out->methods = strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method;
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (strcmp(routes[i].path, all[k].first) == 0)
                out->methods = all[k].methods;
    }
    return out->methods != NULL;
}

/* Whether the server has batches now. Otherwise an error was sent. */
static bool is_ready(const struct bulk *b, struct http_exchange *x)
{
    struct api_error e;
    if (!b->store) {
        api_fail(&e, 404, NULL, "batches_disabled",
                 "this server keeps no files and batches: start it with --batch-dir DIR");
    } else if (b->stopping || !b->socket) {
        api_fail(&e, 503, NULL, "server_draining", "the server is %s", b->stopping ? "shutting down" : "starting");
        e.retry_ms = 1000;
    } else {
        return true;
    }
    api_error_reply(x, &e);
    return false;
}

void routes_on_head(void *context, struct http_exchange *x, const struct http_caller *caller)
{
    struct bulk *b = context;
    char id[BULK_ID_BYTES];
    const struct route *r = find(http_path(x), http_method(x), id);
    if (!r || r->start || !is_ready(b, x))
        return;
    upload_begin(b, x, caller, strcmp(r->path, "/v1/messages/batches") == 0);
}

void routes_on_request(void *context, struct http_exchange *x, const struct http_caller *caller)
{
    struct bulk *b = context;
    struct quire_error err;
    char id[BULK_ID_BYTES];
    const struct route *r = find(http_path(x), http_method(x), id);
    if (!r) {
        ui_page_reply(x, &batches_page);
        return;
    }
    if (!r->start) {
        upload_end(b, x);
        return;
    }
    if (!is_ready(b, x))
        return;
    if (r->prefix && !bulk_is_id(id, r->prefix)) {
        quire_fail(&err, QUIRE_NOT_FOUND, "no %s has this id", strcmp(r->prefix, BULK_FILE_ID) == 0 ? "file" : "batch");
        bulk_reply_failed(x, QUIRE_NOT_FOUND, &err);
        return;
    }
    struct bulk_call *c = bulk_call_new(b, x, caller);
    if (!c)
        return;
    memcpy(c->id, id, sizeof c->id);
    c->page.dialect = strncmp(r->path, "/v1/messages", 12) == 0 ? BULK_ANTHROPIC : BULK_OPENAI;
    r->start(b, x, c);
}
