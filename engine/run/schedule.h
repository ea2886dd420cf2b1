/* What the options say to the scheduler. Pure; any thread. */
#ifndef QUIRE_ENGINE_SCHEDULE_H
#define QUIRE_ENGINE_SCHEDULE_H

#include "engine/engine.h"
#include "engine/options.h"

/* Fills in everything but what follows from the memory plan, the queue's bound and the secret. The
 * tenants' weights stay the caller's. QUIRE_INVALID names the option that is wrong, or that makes no
 * sense beside another one, and says what to do. */
int schedule_config(const struct engine_options *options, struct sched_config *out, struct quire_error *err);

#endif
