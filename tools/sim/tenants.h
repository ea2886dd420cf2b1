/* The clients of a simulation and their requests: the values of --tenants, --input-len and --output-len.
 *
 *   lengths   512        always this many tokens
 *             100..900   uniform
 *             512~0.8    lognormal: median 512, standard deviation of the logarithm 0.8
 *   tenants   NAME:KEY=VALUE:...,NAME:...   keys: weight (1..1000), rate (requests per second; for a trace from a file, its
 *             share of the requests), input and output (lengths), prefix (common first tokens of all its prompts), turns
 *             (its arrivals are sessions with this many requests: tools/sim/sessions.h), class (0..7), priority, deadline
 *             (milliseconds to the first token)
 *
 * No global state; any thread.
 */
#ifndef QUIRE_TOOLS_SIM_TENANTS_H
#define QUIRE_TOOLS_SIM_TENANTS_H

#include "base/status.h"
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

#endif
