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

#include "engine/record/shadow_stats.h"
#include "engine/watch.h"

/* policy outlives it. The engine that it watches must have a cost model (opened() logs when there is
 * none, and the shadow sleeps). QUIRE_NO_MEMORY. */
int shadow_create(const struct sched_policy *policy, struct shadow **out, struct quire_error *err);
/* Valid until shadow_destroy(), which comes after engine_close(). NULL is fine. */
const struct engine_watch *shadow_watch(struct shadow *shadow);
void shadow_destroy(struct shadow *shadow);

#endif
