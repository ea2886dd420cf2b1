/* The most seats and KV blocks that a tenant may hold at once. Requests beyond them wait, and others pass them, so each
 * tenant with a limit has a heap of the queue for itself.
 *
 * A sequence counts with the blocks of its whole length, max_tokens included, in the KV group where that is most. A
 * running sequence therefore never meets its tenant's limit, and nothing is preempted for it. The background does not
 * count: it gives way to live requests.
 *
 * Private to this folder; one thread at a time. Nothing is allocated after caps_create().
 */
#ifndef QUIRE_SCHEDULER_STATE_CAPS_H
#define QUIRE_SCHEDULER_STATE_CAPS_H

#include "base/status.h"
#include "memory/kv_cache.h"
#include "scheduler/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct sequence;
struct sched;

struct sched_caps {
    uint32_t n; /* tenants */
    struct sched_cap {
        uint32_t max_seats, max_blocks; /* 0: no limit */
        uint32_t n_seats; /* of its running sequences */
        uint64_t n_blocks;
    } tenants[];
};

/* *out is NULL if no tenant has a limit. QUIRE_NO_MEMORY. The caller frees *out with free(). */
int caps_create(const struct sched_policy_options *options, struct sched_caps **out, struct quire_error *err);

/* Blocks that count for a sequence of this many positions. reach: sched_reach(). */
uint32_t caps_blocks(const struct kv_config *kv, uint32_t n_positions, uint32_t reach);
/* Returns whether a waiting sequence may run now. */
bool caps_allow(const struct sched *s, const struct sequence *q);
/* A sequence starts or stops running. */
void caps_starts(struct sched *s, const struct sequence *q);
void caps_stops(struct sched *s, const struct sequence *q);

#endif
