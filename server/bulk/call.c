#include "server/bulk/call.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_gone(void *context)
{
    ((struct bulk_call *)context)->x = NULL;
}

struct bulk_call *bulk_call_new(struct bulk *b, struct http_exchange *x, const struct http_caller *caller)
{
    struct api_error e;
    struct bulk_call *c = calloc(1, sizeof *c);
    if (c)
        c->batch = calloc(1, sizeof *c->batch);
    if (!c || !c->batch) {
        free(c);
        api_no_memory(&e);
        api_error_reply(x, &e);
        return NULL;
    }
    c->bulk = b;
    c->x = x;
    snprintf(c->tenant, sizeof c->tenant, "%s", caller->tenant);
    snprintf(c->account, sizeof c->account, "%s", caller->account ? caller->account : "");
    return c;
}

void bulk_call_free(struct bulk_call *c)
{
    for (size_t i = 0; c->batches && i < c->n; i++)
        bulk_batch_free(&c->batches[i]);
    bulk_batch_free(c->batch);
    free(c->batch);
    free(c->batches);
    free(c->files);
    free(c);
}

/* Errors of the server name its paths: they are for its log. */
static const char *without_paths(int status, const struct quire_error *err)
{
    quire_log(QUIRE_LOG_WARN, "batch", "a request fails: %s", err->text);
    return status == QUIRE_UNAVAILABLE ? "the server's disk is full or fails; try again later"
                                       : "the server cannot read or write its files; its log has the reason";
}

void bulk_reply_failed(struct http_exchange *x, int status, const struct quire_error *err)
{
    struct api_error e;
    switch (status) {
    case QUIRE_INVALID: api_fail(&e, 400, NULL, "invalid_value", "%s", err->text); break;
    case QUIRE_NOT_FOUND: api_fail(&e, 404, NULL, "not_found", "%s", err->text); break;
    case QUIRE_EXHAUSTED: api_fail(&e, 413, NULL, "storage_limit_exceeded", "%s", err->text); break;
    case QUIRE_UNAVAILABLE: api_fail(&e, 507, NULL, "insufficient_storage", "%s", without_paths(status, err)); break;
    default: api_fail(&e, 503, NULL, "storage_unavailable", "%s", without_paths(status, err)); break;
    }
    api_error_reply(x, &e);
}

static void work(struct bulk_job *job)
{
    struct bulk_call *c = (struct bulk_call *)job;
    c->work(c);
}

static void done(struct bulk_job *job)
{
    struct bulk_call *c = (struct bulk_call *)job;
    if (c->x)
        http_on_gone(c->x, NULL, NULL);
    if (c->x && c->status != QUIRE_OK)
        bulk_reply_failed(c->x, c->status, &c->err);
    else if (c->status == QUIRE_OK) /* also without a client: what was stored goes on */
        c->done(c);
    bulk_call_free(c);
}

void bulk_call_run(struct bulk_call *c, void (*work_)(struct bulk_call *c), void (*done_)(struct bulk_call *c))
{
    c->work = work_;
    c->done = done_;
    c->job = (struct bulk_job){.work = work, .done = done};
    http_on_gone(c->x, on_gone, c);
    bulk_disk_do(c->bulk->disk, BULK_SHORT, &c->job);
}

void bulk_call_reply(const struct bulk_call *c, struct buffer *o)
{
    if (c->x)
        http_reply(c->x, o->failed ? 503 : 200, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
}
