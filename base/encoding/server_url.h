/* A server's address as people type it. Owns nothing. Any thread. */
#ifndef QUIRE_BASE_ENCODING_SERVER_URL_H
#define QUIRE_BASE_ENCODING_SERVER_URL_H

#include "base/status.h"

#include <stddef.h>

/* Writes http[s]://HOST[:PORT][/PREFIX], before which a path such as "/v1/models" is put: typed without "/v1" and "/" at
 * its end. Without a scheme it is plain HTTP. QUIRE_INVALID: another scheme, no host, a space, a query or a fragment, or
 * more than size - 1 bytes. The message begins with what was typed. */
int quire_server_url(const char *typed, char *out, size_t size, struct quire_error *err);

#endif
