/* quire cache stats|clear|inspect|export|import: the cached responses of a running server. Main thread. */
#ifndef QUIRE_TOOLS_CACHE_ANSWERS_H
#define QUIRE_TOOLS_CACHE_ANSWERS_H

#include "app/warm/client.h"

#include <stdbool.h>

/* Each prints its result. file: "-" is standard output or input. */
int answers_stats(struct cache_client *client, bool json, struct quire_error *err);
int answers_clear(struct cache_client *client, struct quire_error *err);
int answers_inspect(struct cache_client *client, struct quire_error *err);
int answers_export(struct cache_client *client, const char *file, struct quire_error *err);
int answers_import(struct cache_client *client, const char *file, struct quire_error *err);

#endif
