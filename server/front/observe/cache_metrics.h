/* The part of /metrics for the response cache. Loop's thread. */
#ifndef QUIRE_FRONT_CACHE_METRICS_H
#define QUIRE_FRONT_CACHE_METRICS_H

#include "server/cache/response_cache.h"
#include "server/front/output/json_out.h"

/* Price of a thousand tokens, in any currency: of a prompt, of the part of a prompt found in the prefix cache, and of
 * generated tokens. */
struct cache_price {
    double in, cached, out;
};
/* The price of the tokens that cached responses replaced. */
double cache_money_saved(const struct response_cache_stats *s, const struct cache_price *price);
/* For all layers: requests that got a cached response or joined one in flight, and other requests that could have. */
struct cache_ratio {
    uint64_t n_hits, n_misses;
    double rate; /* share of hits; 0: no lookups */
};
struct cache_ratio cache_ratio(const struct response_cache_stats *s);

struct cache_figures {
    const struct response_cache_stats *cache;
    const struct similar_stats *similar; /* NULL: questions are not compared */
    const struct store_stats *store; /* NULL: there is no store */
    const struct cache_price *price; /* NULL: not configured */
};
/* labels: on every sample, without the braces. */
void cache_metrics_text(struct buffer *o, const char *labels, const struct cache_figures *figures);

#endif
