/* What a simulation says: statistics of requests, as JSON and as a table. The JSON's members are listed in
 * docs/simulator.md. No global state; any thread on its own values. */
#ifndef QUIRE_TOOLS_SIM_METRICS_H
#define QUIRE_TOOLS_SIM_METRICS_H

#include "tools/bench/lib/metrics.h"
#include "tools/sim/sim.h"

#include <jansson.h>

struct sim_stat {
    double mean, p50, p95, p99; /* milliseconds; 0 when nothing was measured */
};

/* Statistics of some requests: those that were answered, by the definitions of tools/bench/lib/metrics.h. */
struct sim_group {
    const char *name;        /* borrowed from the workload */
    size_t n, n_done, n_refused, n_good;
    struct sim_stat ttft, tpot, itl, e2el, queue;
    uint64_t n_input, n_output, n_cached; /* tokens of the answered */
    uint64_t n_preemptions;
    double service;          /* of a tenant: priced tokens by its weight */
};

/* What a good request stays within, besides its own deadline of the first token. */
struct sim_bounds {
    double ms[BENCH_N_METRICS];             /* INFINITY = no bound */
    double class_ttft_ms[SCHED_MAX_CLASSES]; /* of requests without a deadline; 0 = none */
};

struct sim_metrics {
    const struct sim_workload *workload;   /* both borrowed */
    const struct sim_result *result;
    const struct sim_metrics *without;     /* the same day without speculation, borrowed; NULL: there is none */
    struct sim_group all, *tenants, classes[SCHED_MAX_CLASSES];
    bool has_bounds;         /* some request has one: good means something */
    double duration_s;       /* simulated, from the first arrival to the last event */
    double hit_rate_blocks, hit_rate_tokens, kv_waste, kv_waste_unshared;
};
/* QUIRE_NO_MEMORY. Freed by sim_metrics_free(), also after a failure. */
int sim_metrics_compute(const struct sim_workload *workload, const struct sim_result *result,
                        const struct sim_bounds *bounds, struct sim_metrics *out, struct quire_error *err);
void sim_metrics_free(struct sim_metrics *m);

double sim_goodput(const struct sim_metrics *m, const struct sim_group *g); /* requests a second */

/* NULL without memory. */
json_t *sim_metrics_json(const struct sim_metrics *m, const char *policy);
/* On standard output. */
void sim_metrics_print(const struct sim_metrics *m, const char *policy);

#endif
