/* Routes that name no model and belong to an engine's front end: they pass to the first engine of the file, and stored
 * responses to the first one that has them. Loop's thread. */
#ifndef QUIRE_GATEWAY_PASS_H
#define QUIRE_GATEWAY_PASS_H

#include "server/gateway/gateway_internal.h"

enum pass_access { PASS_NONE, PASS_OPEN, PASS_KEY, PASS_ADMIN };

/* Whether such a request passes, and who may send it. */
enum pass_access pass_access(const char *method, const char *path);
/* The socket of the front end of the engine with this number, of those in the file; NULL: there are not so many. */
const char *pass_socket(const struct gateway *g, const struct pool *pool, size_t number);
/* Takes over the exchange. */
void pass_begin(struct gateway *g, struct http_exchange *x);

#endif
