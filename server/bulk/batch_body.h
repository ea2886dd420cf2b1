/* Reads the body of POST /v1/batches. Pure, but for the time of creation. */
#ifndef QUIRE_BULK_BATCH_BODY_H
#define QUIRE_BULK_BATCH_BODY_H

#include "server/bulk/store/records.h"
#include "server/front/api/api_error.h"

/* Fills in a new batch without its id and tenant. False: e has a 400. The caller frees it with bulk_batch_free(). */
bool batch_body_read(const char *body, size_t n, struct bulk_batch *out, struct api_error *e);

#endif
