/* Answers "what if the policy were P?" while the server runs: --shadow-policy P. A second scheduler has the same
 * options but another policy. It receives the same requests at the same times, and its own clock advances by the
 * cost model.
 *
 * It computes no tokens. It takes a request's output from the live request: its tokens as they come, and its length
 * when it ends. A shadow sequence that is ahead of the live one continues with placeholders for the tokens that do
 * not exist yet. A later prompt that would find those tokens in the cache does not find them in the shadow. Recent
 * live steps correct the times of the model.
 *
 * This is a watch: its functions run on the engine's thread and cost about as much as scheduling does (25 us a step
 * at 256 running sequences). The engine allocates no memory in a step; the shadow allocates at submissions and when
 * an answer ends. */
#ifndef QUIRE_ENGINE_SHADOW_H
#define QUIRE_ENGINE_SHADOW_H

#include "engine/record/shadow_stats.h"
#include "engine/watch.h"

/* policy must outlive the shadow. Without --cost-model the shadow
 * is inactive until the engine has fitted a model to its own steps. QUIRE_NO_MEMORY. */
int shadow_create(const struct sched_policy *policy, struct shadow **out, struct quire_error *err);
/* Valid until shadow_destroy(), which must follow engine_close(). shadow_destroy() accepts NULL. */
const struct engine_watch *shadow_watch(struct shadow *shadow);
void shadow_destroy(struct shadow *shadow);

#endif
