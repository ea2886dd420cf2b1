/* The clients of a simulation and their requests: the values of --tenants, --input-len and --output-len.
 *
 *   lengths   512        always this many tokens
 *             100..900   uniform
 *             512~0.8    lognormal: median 512, standard deviation of the logarithm 0.8
 *   tenants   NAME:KEY=VALUE:...,NAME:...   keys: weight (1..1000), group (a name: tenants of one group share its
 *             weight), group-weight (1..1000), max-seats, max-kv-blocks, rate (requests per second; for a trace from a
 *             file, its share of the requests), input and output (lengths), prefix (common first tokens of all its
 *             prompts), turns (its arrivals are sessions with this many requests: tools/sim/sessions.h), class (0..7),
 *             priority, deadline (milliseconds to the first token)
 *
 * No global state; any thread.
 */
#ifndef QUIRE_TOOLS_SIM_TENANTS_H
#define QUIRE_TOOLS_SIM_TENANTS_H

#include "base/status.h"
#include "scheduler/policy.h"
#include "tools/bench/lib/workload.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_lengths {
    uint32_t low, high; /* low = high: fixed. Lognormal: low is the median */
    double sigma;       /* > 0: lognormal */
};
/* `what` begins the error: "--input-len". */
int sim_lengths_parse(const char *text, const char *what, struct sim_lengths *out, struct quire_error *err);
uint32_t sim_lengths_draw(const struct sim_lengths *lengths, uint64_t *state);

struct sim_tenant {
    char name[BENCH_WORKLOAD_MAX_NAME + 1];
    uint32_t weight;
    char group[BENCH_WORKLOAD_MAX_NAME + 1]; /* "" = none */
    uint32_t group_weight;
    uint32_t max_seats, max_kv_blocks; /* 0 = no limit */
    double rate; /* < 0: not said */
    struct sim_lengths input, output;
    struct sim_lengths turns; /* low 0: no sessions */
    uint32_t prefix, class_index;
    int32_t priority;
    double deadline_ms; /* 0 = none */
};

/* usual: values that a tenant does not set. The caller frees *out, [*n], at least one. */
int sim_tenants_parse(const char *text, const struct sim_tenant *usual, struct sim_tenant **out, uint32_t *n,
                      struct quire_error *err);

/* For the scheduler: a group's number is that of its first tenant, from 1. */
struct sched_tenant sim_tenant_share(const struct sim_tenant *tenants, uint32_t index);

#endif
