/* Bodies that go to the disk as they arrive: a file of POST /v1/files, or the requests of POST /v1/messages/batches. A few
 * MiB at most are in memory; a slow disk slows the client down. Loop's thread.
 */
#ifndef QUIRE_BULK_UPLOAD_H
#define QUIRE_BULK_UPLOAD_H

#include "server/bulk/bulk_internal.h"

struct http_exchange;

/* From on_head: takes the exchange over, or replies with an error. */
void upload_begin(struct bulk *b, struct http_exchange *x, const struct http_caller *caller, bool is_messages);
/* The whole body has arrived. */
void upload_end(struct bulk *b, struct http_exchange *x);

#endif
