/* The counts of one layer of the cache, and how long its lookups took, as a histogram. One thread. */
#ifndef QUIRE_CACHE_LATENCY_H
#define QUIRE_CACHE_LATENCY_H

#include <stdint.h>

#define CACHE_LATENCY_BUCKETS 12
extern const double cache_latency_bounds_s[CACHE_LATENCY_BUCKETS];
struct cache_latency {
    uint64_t counts[CACHE_LATENCY_BUCKETS + 1]; /* not cumulative; the last is +Inf */
    double sum_s;
};
void cache_observe(struct cache_latency *l, double seconds);

/* Counters of one cache layer: lookups and their latency. */
struct cache_layer_stats {
    uint64_t n_lookups, n_hits, n_misses;
    struct cache_latency latency;
};

struct cache_layer {
    const char *name; /* "memory", "redis"; static. NULL: there is no such layer now */
    struct cache_layer_stats stats;
    uint64_t n_entries, n_expired, n_bytes, n_evicted; /* n_expired is part of n_entries */
};

#endif
