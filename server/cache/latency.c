#include "server/cache/latency.h"

#include <stddef.h>

const double cache_latency_bounds_s[CACHE_LATENCY_BUCKETS] = {1e-6,   2.5e-6, 5e-6,   1e-5, 2.5e-5, 1e-4,
                                                              2.5e-4, 1e-3,   2.5e-3, 1e-2, 2.5e-2, 1e-1};

void cache_observe(struct cache_latency *l, double seconds)
{
    size_t i = 0;
    while (i < CACHE_LATENCY_BUCKETS && seconds > cache_latency_bounds_s[i])
        i++;
    l->counts[i]++;
    l->sum_s += seconds;
}
