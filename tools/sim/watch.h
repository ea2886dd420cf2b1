/* Measurements in every step of a simulation, in memory that does not grow with its length: gaps between tokens, empty
 * KV slots, curves, and the difference between the service of tenants.
 *
 * No global state; any thread on its own watch.
 */
#ifndef QUIRE_TOOLS_SIM_WATCH_H
#define QUIRE_TOOLS_SIM_WATCH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- a histogram of milliseconds ---- */

/* 256 bins for each power of two from 2^-14 to 2^22 ms: the error of a quantile is at most 0.2 %. The mean is exact. */
#define SIM_HISTOGRAM_BINS (36 * 256 + 1)
struct sim_histogram {
    uint32_t *bins; /* [SIM_HISTOGRAM_BINS] */
    uint64_t n;
    double sum;
};
void sim_histogram_add(struct sim_histogram *h, double ms);
/* p: 0..100. Returns 0 for an empty histogram. */
double sim_histogram_quantile(const struct sim_histogram *h, double p);

/* ---- curves ---- */

#define SIM_MAX_POINTS 1024u /* beyond it, every other point is dropped and the distance doubles */
#define SIM_MAX_CURVES 8u /* the first tenants, whose service is stored as a curve */
struct sim_point {
    double at_us;
    uint32_t n_running, n_waiting, n_used_blocks, n_cached_blocks;
    double service[SIM_MAX_CURVES]; /* weighted tokens so far */
};

/* ---- shares ---- */

/* The service of each tenant, divided by its weight. A pair of tenants is compared over the intervals in which both have
 * waiting requests. The largest difference in service is the spread of the difference of their services. */
struct sim_shares {
    double *service, *before; /* [n_tenants]; before: at the last step's end */
    double *low, *high; /* [n_tenants^2] of service[i] - service[j] since both are backlogged */
    bool *together; /* [n_tenants^2] */
    double gap;
};

/* ---- all of it ---- */

struct sim_watch {
    uint32_t n_tenants, n_classes;
    struct sim_histogram itl, *tenant_itl, *class_itl;

    struct sim_point *points;
    uint32_t n_points;
    double interval_us, next_us;

    /* Slots of blocks that a running sequence holds, and those without a token, weighted by time. `slots` counts a
     * shared block once, `slots_unshared` once per sequence. */
    double slots, slots_unshared, slots_empty;

    /* Fairness, in priced tokens and in milliseconds of the cost model. */
    bool *backlogged, *was_backlogged; /* [n_tenants] */
    struct sim_shares tokens, time;
};

/* QUIRE_NO_MEMORY. The caller frees *out. */
int sim_watch_create(uint32_t n_tenants, uint32_t n_classes, struct sim_watch **out, struct quire_error *err);
void sim_watch_free(struct sim_watch *w); /* NULL is allowed */

void sim_watch_token_gap(struct sim_watch *w, uint32_t tenant, uint32_t class_index, double ms);
/* Call after a step was planned: the services include it, and `backlogged` marks tenants with waiting requests. Cost: the
 * square of their number. */
void sim_watch_fairness(struct sim_watch *w);
/* *out is where a point of the curves must be written if one is due at this time, otherwise NULL. */
struct sim_point *sim_watch_point(struct sim_watch *w, double now_us);

#endif
