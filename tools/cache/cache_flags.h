/* The command line of the response cache: --response-cache and its kin. */
#ifndef QUIRE_TOOLS_CACHE_FLAGS_H
#define QUIRE_TOOLS_CACHE_FLAGS_H

#include "server/cache/response_cache.h"
#include "server/front/observe/cache_metrics.h"
#include "tools/cli/cli.h"

#define CACHE_FLAGS_MAX 17

struct cache_flags {
    const char *where; /* memory, sqlite:PATH, redis://…; NULL: not said */
    uint64_t file_bytes;
    struct event_base *base; /* cache_flags_begin()'s */
    struct response_cache_options options;
    const char *semantic_model; /* NULL: questions are not compared */
    double threshold; /* 0: not said */
    struct similar_options similar;
    bool share_all;
    struct cache_price price; /* out below 0: not said; cache_flags() sets it so */
    bool given[CACHE_FLAGS_MAX]; /* by row */
};

/* Writes the option rows to out[0..return value). */
size_t cache_flags(struct cache_flags *f, struct cli_option out[CACHE_FLAGS_MAX]);
/* What one option alone cannot say. */
int cache_flags_check(const struct cache_flags *f, struct quire_error *err);
/* Before options are given on: the store is opened on this loop, when an engine says what its answers depend on. A path that
 * cannot be written fails here, before anything is served. */
int cache_flags_begin(struct cache_flags *f, struct event_base *base, struct quire_error *err);
/* Where a file beside the one of answers lies. False: there is none, or its path is too long. */
bool cache_flags_beside(const struct cache_flags *f, const char *suffix, char *out, size_t n);
/* The Redis where answers are kept. False: they are not. */
bool cache_flags_redis(const struct cache_flags *f, struct redis_url *out);
/* Off unless it was asked for. */
bool cache_flags_on(const struct cache_flags *f);

#endif
