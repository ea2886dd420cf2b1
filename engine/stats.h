/* An engine's counters and gauges. Counters only grow; the other values are those of the last step boundary. Any
 * thread. */
#ifndef QUIRE_ENGINE_STATS_H
#define QUIRE_ENGINE_STATS_H

#include "base/stats/members.h"
#include "base/stats/rows.h"
#include "base/stats/tenant_rows.h"
#include "base/status.h"

#include <stdint.h>

struct engine;

/* 1, 8, 16, 32, … 16,384 tokens: the bounds of vLLM's vllm:iteration_tokens_total. */
#define ENGINE_N_STEP_BUCKETS 13u
extern const uint32_t engine_step_bounds[ENGINE_N_STEP_BUCKETS];

/* Most drafts of one row. */
#define ENGINE_MAX_DRAFT 64u

#define ENGINE_MAX_RANKS 8u
#define ENGINE_MAX_EXPERTS 512u /* that are told; a larger list does not fit into a STATS frame */

/* base/stats/rows.h has the first members: all rows but those of DAEMON. */
struct engine_stats {
    STATS_ROWS(STATS_ENGINE_MEMBER)
    uint64_t step_buckets[ENGINE_N_STEP_BUCKETS]; /* steps with at most engine_step_bounds[i] tokens */
    uint64_t accepted_at[ENGINE_MAX_DRAFT]; /* rows whose draft at this position was accepted */
    double draft_seconds; /* engine thread's time in the draft model's passes */
    uint32_t n_ranks; /* ranks that share the model; 0: one */
    uint64_t rank_waited_us[ENGINE_MAX_RANKS]
                           [ENGINE_MAX_RANKS]; /* wait times of each rank for each other within steps; about a second
                                                * old */
    uint32_t n_experts; /* 0: the model has none, or a device computes, which does not count */
    uint64_t expert_tokens[ENGINE_MAX_EXPERTS]; /* tokens that an expert computed, over this rank's layers; at most
                                                 * 100 ms old */
    const char *policy; /* static */
    const char *policy_figure_name; /* static; NULL: the policy reports no figure of its own */
    double policy_figure;
};
/* Any thread: a snapshot of the last step boundary. */
void engine_stats(const struct engine *e, struct engine_stats *out);

struct engine_tenant_stats {
    STATS_TENANT_ROWS(STATS_TENANT_MEMBER)
};
/* Any thread: a tenant's counters at most 100 ms old, and exact once the engine is idle. Returns QUIRE_INVALID if
 * the tenant does not exist. */
int engine_tenant_stats(const struct engine *e, uint32_t tenant, struct engine_tenant_stats *out);

#endif
