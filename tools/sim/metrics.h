/* The results of a simulation: statistics of requests, as JSON and as a table. docs/guides/simulator.md lists the
 * members of the JSON. No global state; any thread on its own values. */
#ifndef QUIRE_TOOLS_SIM_METRICS_H
#define QUIRE_TOOLS_SIM_METRICS_H

#include "tools/bench/lib/metrics.h"
#include "tools/sim/sim.h"

#include <jansson.h>

struct sim_stat {
    double mean, p50, p95, p99; /* milliseconds; 0 if nothing was measured */
};

enum sim_latency { SIM_TTFT, SIM_TPOT, SIM_E2EL, SIM_QUEUE, SIM_ITL, SIM_N_LATENCIES };

/* Statistics of a group of requests: the answered ones, by the definitions of tools/bench/lib/metrics.h. */
struct sim_group {
    const char *name;        /* borrowed from the workload */
    size_t n, n_done, n_refused, n_good;
    struct sim_stat latency[SIM_N_LATENCIES];
    uint64_t n_input, n_output, n_cached; /* tokens of answered requests */
    uint64_t n_preemptions;
    double service;          /* of a tenant: priced tokens, divided by its weight */
};

/* Limits of a good request, in addition to its own deadline for the first token. */
struct sim_bounds {
    double ms[BENCH_N_METRICS];             /* INFINITY: no limit */
    double class_ttft_ms[SCHED_MAX_CLASSES]; /* of requests without a deadline; 0: no target */
};

struct sim_metrics {
    const struct sim_workload *workload;   /* both borrowed */
    const struct sim_result *result;
    const struct sim_metrics *without;     /* the same day without speculation, borrowed; NULL: not simulated */
    const char *machine;     /* whose times they are, borrowed; NULL: of a recording, or there are none */
    struct sim_group all, *tenants, classes[SCHED_MAX_CLASSES];
    bool has_bounds;         /* some request has a limit, so `good` is meaningful */
    double duration_s;       /* simulated time, from the first arrival to the last event */
    double hit_rate_blocks, hit_rate_tokens, kv_waste, kv_waste_unshared;
};
/* QUIRE_NO_MEMORY. Call sim_metrics_free(), also after an error. */
int sim_metrics_compute(const struct sim_workload *workload, const struct sim_result *result,
                        const struct sim_bounds *bounds, struct sim_metrics *out, struct quire_error *err);
void sim_metrics_free(struct sim_metrics *m);

/* "34.99", or from 10 s on "110.00 s". Returns out. */
char *sim_time_text(double ms, int decimals, char out[24]);

double sim_goodput(const struct sim_metrics *m, const struct sim_group *g); /* requests per second */

/* NULL: out of memory. */
json_t *sim_metrics_json(const struct sim_metrics *m, const char *policy);
/* On standard output. */
void sim_metrics_print(const struct sim_metrics *m, const char *policy);

#endif
