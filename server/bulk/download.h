/* Sends a file of the store as a reply, piece by piece. Loop's thread. */
#ifndef QUIRE_BULK_DOWNLOAD_H
#define QUIRE_BULK_DOWNLOAD_H

#include "server/bulk/bulk_internal.h"

struct http_exchange;

/* Takes the exchange over. id: of a file that was found. */
void download_begin(struct bulk *b, struct http_exchange *x, const char *id, const char *content_type);

#endif
