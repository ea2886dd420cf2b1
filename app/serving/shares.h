/* The shares and limits of tenants, from the front end's table of keys to the scheduler's options. Main thread, before the engine
 * opens. */
#ifndef QUIRE_APP_SERVING_SHARES_H
#define QUIRE_APP_SERVING_SHARES_H

#include "scheduler/policy.h"
#include "server/front/tenant/tenants.h"

/* By index; those that the file does not name have weight 1. Organisations are numbered from 1 in the file's order. */
void tenant_shares(const struct tenants *tenants, struct sched_tenant out[TENANTS_MAX]);

#endif
