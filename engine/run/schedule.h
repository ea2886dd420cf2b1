/* Turns the engine's options into the scheduler's configuration. Pure; any thread. */
#ifndef QUIRE_ENGINE_SCHEDULE_H
#define QUIRE_ENGINE_SCHEDULE_H

#include "engine/options.h"
#include "scheduler/types/config.h"

/* Fills in everything except the values from the memory plan, the queue's bound and the secret. The tenants' weights
 * and the cost model stay owned by the caller. Returns QUIRE_INVALID with the option that is wrong or contradicts
 * another one, and the fix. */
int schedule_config(const struct engine_options *options, struct sched_config *out, struct quire_error *err);

#endif
