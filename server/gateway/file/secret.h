/* API keys of upstream servers, from the environment or a private file. Any thread. */
#ifndef QUIRE_GATEWAY_SECRET_H
#define QUIRE_GATEWAY_SECRET_H

#include "server/gateway/file/arena.h"

#define SECRET_MAX_BYTES 4096

/* A key: printable ASCII without spaces. *out is in the arena; NULL if it cannot be used. The result says why, without the
 * key; NULL: it is read. */
const char *secret_from_environment(const char *name, struct arena *arena, const char **out);
/* The file's text without white space at its end. Refused if other users can read it. Also checks it if out is NULL. */
const char *secret_from_file(const char *path, struct arena *arena, const char **out);

#endif
