/* The response cache's part of a generating request: its terms for the cache, and what the cache reports about it. It
 * belongs to its generation. Private to generation*.c and reply.c. Loop's thread.
 */
#ifndef QUIRE_FRONT_GENERATION_CACHE_H
#define QUIRE_FRONT_GENERATION_CACHE_H

#include "server/front/body/generation_job.h"
#include "server/front/output/reply.h"

struct generation;

/* Reports from the response cache about a request. */
struct cache_report {
    uint32_t n_told, n_cached; /* prompts whose origin is known; those of them with a cached response */
    uint32_t n_drafted, n_similar; /* n_told's with a draft from a similar question, and n_cached's with its answer */
    float similarity; /* of the first prompt */
    uint32_t age_s; /* of the oldest answer */
    bool unseeded;
    const char *layer; /* for the first prompt; NULL: unknown */
    bool has_key;
    struct key256 key; /* for the first prompt's answer */
};

struct generation_cache {
    struct params_cache header; /* of Cache-Control */
    bool has_alias; /* a cached reply to the same words may be found by it */
    struct key256 alias;
    struct question *question; /* of the only prompt; owned, or NULL */
    struct completion_terms terms; /* except is_bounded, which is set for each prompt */
    struct cache_report report;
    struct buffer shown; /* the output of a stream with an alias: the reply's record */
};

/* Reads Cache-Control. */
void generation_cache_header(const struct http_exchange *x, struct params_cache *cache);
/* Sets c->terms from the job, and takes its question. params: the request's. */
void generation_cache_begin(struct generation_cache *c, const struct served_model *m, const struct params *params,
                            struct generation_job *j);
/* lookups: of the first prompt. */
void generation_cache_origin(struct generation_cache *cache, struct completion_lookups *lookups,
                             const struct completion_origin *origin);
/* Writes x-quire-cache and related headers, before the reply begins. */
void generation_cache_say(const struct served_model *m, struct http_exchange *x, const struct cache_report *c);
void generation_cache_free(struct generation_cache *c); /* NULL is allowed */

/* ---- generation_alias.c: cached replies to bodies in the same words ---- */

/* Ends a request that front_begin() began, with its cached reply or an error. Returns false if the reply is not
 * cached; has_alias: it may be cached later, under *alias. timing: the first lookup is recorded there; the caller sets
 * arrived_us. */
bool generation_alias_serve(struct served_model *m, struct http_exchange *x, struct tenant *tenant,
                            const struct api_dialect *dialect, struct timing *timing, struct key256 *alias,
                            bool *has_alias);
/* Records events of the stream as they are written. */
void generation_alias_show(struct reply *r, const void *events, size_t n);
/* Caches the whole reply; NULL: it was a stream, and all of it was recorded. */
void generation_alias_keep(const struct generation *g, const struct buffer *body);

#endif
