/* A request that the store answers: it waits for a job, and its client may go away meanwhile. Loop's thread; `work` runs
 * on the short lane.
 */
#ifndef QUIRE_BULK_CALL_H
#define QUIRE_BULK_CALL_H

#include "server/bulk/bulk_internal.h"
#include "server/front/api/api_error.h"
#include "server/http/http.h"

struct bulk_call {
    struct bulk_job job;
    struct bulk *bulk;
    struct http_exchange *x; /* NULL: the client has gone */
    char tenant[BULK_TENANT_BYTES], account[BULK_ID_BYTES];
    char id[BULK_ID_BYTES]; /* of the path */
    char other[BULK_ID_BYTES]; /* cursor of the query: after or before */
    struct bulk_page page;
    void (*work)(struct bulk_call *c); /* sets status and err */
    void (*done)(struct bulk_call *c); /* status is QUIRE_OK; replies if x is there */
    int status;
    struct quire_error err;
    struct bulk_file file, *files;
    struct bulk_batch *batch, *batches; /* batch: one, never NULL */
    size_t n;
    bool has_more;
};

/* NULL: out of memory; the error was sent. */
struct bulk_call *bulk_call_new(struct bulk *b, struct http_exchange *x, const struct http_caller *caller);
/* Frees it after done, or after an error was sent. */
void bulk_call_run(struct bulk_call *c, void (*work)(struct bulk_call *c), void (*done)(struct bulk_call *c));
void bulk_call_free(struct bulk_call *c);
/* 200 with JSON, unless the client has gone. Frees o. */
void bulk_call_reply(const struct bulk_call *c, struct buffer *o);

/* Sends the error of a status of the store. */
void bulk_reply_failed(struct http_exchange *x, int status, const struct quire_error *err);

#endif
