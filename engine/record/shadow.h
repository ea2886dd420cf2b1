/* "What if the policy were P?", answered while the server runs: a second scheduler with the same
 * options but another policy is given the same requests at the same times, and a clock of its own that
 * the cost model moves on. --shadow-policy P.
 *
 * It computes no tokens. What a request generates is learned from its live twin: its tokens as they come,
 * its length when it ends. A sequence that is ahead of its twin decodes on with placeholders in place
 * of the tokens that are not there yet, so a later prompt that would have found those in the cache does
 * not find them in the shadow. The model's times are corrected by what live steps took of late.
 *
 * A watch: its functions run on the engine's thread and cost about what scheduling costs once more
 * (25 us a step at 256 running). The engine takes no memory in a step; the shadow takes some at
 * submissions and when an answer ends.
 */
#ifndef QUIRE_ENGINE_SHADOW_H
#define QUIRE_ENGINE_SHADOW_H

#include "engine/watch.h"

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

/* policy outlives it. The engine that it watches must have a cost model (opened() logs when there is
 * none, and the shadow sleeps). QUIRE_NO_MEMORY. */
int shadow_create(const struct sched_policy *policy, struct shadow **out, struct quire_error *err);
/* Valid until shadow_destroy(), which comes after engine_close(). NULL is fine. */
const struct engine_watch *shadow_watch(struct shadow *shadow);
void shadow_destroy(struct shadow *shadow);

/* Any thread. */
void shadow_stats(struct shadow *shadow, struct shadow_stats *out);

#endif
