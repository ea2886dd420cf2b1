/* What a shadow policy (shadow.h) has found: for those who only tell it on. */
#ifndef QUIRE_ENGINE_SHADOW_STATS_H
#define QUIRE_ENGINE_SHADOW_STATS_H

#include <stdint.h>

#define SHADOW_N_BUCKETS 16
/* Upper bounds of the TTFT buckets in microseconds; what is above the last counts in n only. */
extern const uint64_t shadow_bounds_us[SHADOW_N_BUCKETS];

/* Of one of the two schedulers, over the requests that both have given a first token. */
struct shadow_times {
    double ttft_us, queue_us;            /* sums */
    uint64_t buckets[SHADOW_N_BUCKETS];  /* of TTFT: requests at most the bound */
};
struct shadow_stats {
    const char *policy; /* static; NULL: there is no shadow */
    uint64_t n;         /* requests compared */
    uint64_t n_refused; /* requests that the shadow gave up, of those that the live one took */
    struct shadow_times live, shadow;
};

struct shadow;

/* Any thread. */
void shadow_stats(struct shadow *shadow, struct shadow_stats *out);

#endif
