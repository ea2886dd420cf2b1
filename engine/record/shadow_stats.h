/* The results of a shadow policy (shadow.h), for modules that only report them. */
#ifndef QUIRE_ENGINE_SHADOW_STATS_H
#define QUIRE_ENGINE_SHADOW_STATS_H

#include <stdint.h>

#define SHADOW_N_BUCKETS 16
/* Upper bounds of the TTFT buckets in microseconds; a value above the last one counts only in n. */
extern const uint64_t shadow_bounds_us[SHADOW_N_BUCKETS];

/* Times of one of the two schedulers, over the requests for which both have produced a first token. */
struct shadow_times {
    double ttft_us, queue_us;            /* sums */
    uint64_t buckets[SHADOW_N_BUCKETS];  /* number of requests whose TTFT is at most the bound */
};
struct shadow_stats {
    const char *policy; /* static; NULL: no shadow */
    uint64_t n;         /* requests compared */
    uint64_t n_refused; /* requests that the shadow refused and the live scheduler accepted */
    struct shadow_times live, shadow;
};

struct shadow;

/* Any thread. */
void shadow_stats(struct shadow *shadow, struct shadow_stats *out);

#endif
