/* What /metrics says of kept answers. Loop's thread. */
#ifndef QUIRE_FRONT_CACHE_METRICS_H
#define QUIRE_FRONT_CACHE_METRICS_H

#include "server/cache/response_cache.h"
#include "server/front/output/json_out.h"

/* What a thousand tokens cost, in whatever money: of a prompt, of a prompt that the prefix cache had, generated. */
struct cache_price {
    double in, cached, out;
};
/* What the tokens that were not computed would have cost. */
double cache_money_saved(const struct response_cache_stats *s, const struct cache_price *price);
/* Of all layers: requests that were given an answer or joined to one, and those that could have been. */
struct cache_ratio {
    uint64_t n_hits, n_misses;
    double rate; /* of hits; 0: nothing was asked */
};
struct cache_ratio cache_ratio(const struct response_cache_stats *s);

/* labels: of every sample, without the braces. */
void cache_metrics_text(struct buffer *o, const char *labels, const struct response_cache_stats *s,
                        const struct cache_price *price);

#endif
