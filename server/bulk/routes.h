/* The routes of files and batches: which path is which, and what the loop does for it. Loop's thread. */
#ifndef QUIRE_BULK_ROUTES_H
#define QUIRE_BULK_ROUTES_H

#include "server/bulk/bulk_internal.h"

struct http_exchange;

/* For struct more_routes; context: the bulk. */
bool routes_find(void *context, const char *path, struct more_route *out);
void routes_on_head(void *context, struct http_exchange *x, const struct http_caller *caller);
void routes_on_request(void *context, struct http_exchange *x, const struct http_caller *caller);

/* ---- file_routes.c ---- */
struct bulk_call;
void files_list(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void files_get(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void files_remove(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void files_content(struct bulk *b, struct http_exchange *x, struct bulk_call *c);

/* ---- batch_routes.c ---- */
void batches_create(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void batches_list(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void batches_get(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void batches_cancel(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void messages_list(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void messages_remove(struct bulk *b, struct http_exchange *x, struct bulk_call *c);
void messages_results(struct bulk *b, struct http_exchange *x, struct bulk_call *c);

#endif
