/* The options of the response cache: --response-cache and related ones. Main thread. */
#ifndef QUIRE_APP_SERVE_CACHE_FLAGS_H
#define QUIRE_APP_SERVE_CACHE_FLAGS_H

#include "app/command/cli.h"
#include "server/cache/response_cache.h"
#include "server/front/observe/cache_metrics.h"

#define CACHE_FLAGS_MAX 17

struct cache_flags {
    const char *where; /* memory, sqlite:PATH, redis://…; NULL: not set */
    uint64_t file_bytes;
    struct event_base *base; /* set by cache_flags_begin() */
    struct response_cache_options options;
    const char *semantic_model; /* NULL: questions are not compared */
    double threshold; /* 0: not said */
    struct similar_options similar;
    bool share_all;
    struct cache_price price; /* out below 0: not set; cache_flags() sets it so */
    bool given[CACHE_FLAGS_MAX]; /* by row */
};

/* Writes the option rows to out[0..return value). */
size_t cache_flags(struct cache_flags *f, struct cli_option out[CACHE_FLAGS_MAX]);
/* Checks of several options together. */
int cache_flags_check(const struct cache_flags *f, struct quire_error *err);
/* Call it before options are passed on. The store is opened on this loop when an engine reports the identity of its
 * answers. A path that cannot be written fails here, before the server starts. */
int cache_flags_begin(struct cache_flags *f, struct event_base *base, struct quire_error *err);
/* Path of a file next to the store's file. Returns false if the store is not a file, or the path is too long. */
bool cache_flags_companion(const struct cache_flags *f, const char *suffix, char *out, size_t n);
/* The Redis that stores responses. Returns false if none does. */
bool cache_flags_redis(const struct cache_flags *f, struct redis_url *out);
/* Returns whether the cache is on; the default is off. */
bool cache_flags_on(const struct cache_flags *f);

#endif
