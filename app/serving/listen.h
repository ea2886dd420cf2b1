/* The addresses of an engine: --listen. Pure; any thread. */
#ifndef QUIRE_APP_SERVING_LISTEN_H
#define QUIRE_APP_SERVING_LISTEN_H

#include "base/status.h"

#include <stddef.h>

/* Rejects a tcp: address without a key file, with what to do. */
int serving_check_listen(const char *const *addresses, size_t n, const char *key_file, struct quire_error *err);

#endif
