/* The targets of a configuration while it is in use: their states, and each model's counters. Loop's thread.
 *
 * A pool belongs to one configuration and is reference-counted: a relay holds the pool with which it began. Targets and
 * counters outlive a reload: the next pool takes over those of the same model, kind, place and name, and the statistics of an
 * experiment whose run is the same (variables.h). So a request of the
 * old configuration counts at the same target as those of the new one.
 */
#ifndef QUIRE_GATEWAY_POOL_H
#define QUIRE_GATEWAY_POOL_H

#include "base/status.h"
#include "server/gateway/file/models_file.h"
#include "server/gateway/target/target.h"

#include <stdbool.h>
#include <stdint.h>

struct remote_call;
struct trial;

struct pool_target {
    struct target_state state;
    struct remote_call *probe; /* NULL: none runs */
    uint64_t cost, saved; /* picodollars of its answers; what its caches saved */
    uint64_t n_input, n_cached_input; /* tokens of answered prompts */
    char *key;  /* model, kind, place and name: what makes it the same target */
    unsigned n_holders;
};

enum pool_result { POOL_OK, POOL_CLIENT_ERROR, POOL_OVERLOADED, POOL_ERROR, POOL_CANCELLED, POOL_N_RESULTS };
extern const char *const pool_result_names[POOL_N_RESULTS];

#define POOL_N_BUCKETS 12
extern const double pool_buckets[POOL_N_BUCKETS]; /* seconds, ascending */

struct pool_counts {
    char *model;
    unsigned n_holders;
    uint64_t n_requests[POOL_N_RESULTS];
    uint64_t n_retries, n_fallbacks;
    uint64_t n_input, n_cached_input, n_output; /* tokens */
    uint64_t cost, saved;                       /* picodollars */
    uint64_t buckets[POOL_N_BUCKETS + 1];       /* by the time of a whole answer; the last: longer than all */
    double seconds;
};

struct pool_model {
    const struct gateway_model *model;
    struct pool_target **targets;       /* [model->n_targets] */
    const struct target_state **states; /* the same, for target_choose() */
    uint32_t turn;
    struct pool_counts *counts;
    struct trial *trial; /* the experiment that chose the model, held; else NULL */
};

struct pool {
    const struct gateway_config *config; /* held */
    struct pool_model *models;           /* [config->n_models] */
    unsigned n_holders;
};

/* Takes a hold of config. before: the pool whose targets continue, or NULL. *out has one holder. QUIRE_NO_MEMORY. */
int pool_open(const struct gateway_config *config, const struct pool *before, struct pool **out,
              struct quire_error *err);
struct pool *pool_hold(struct pool *p);
void pool_release(struct pool *p); /* NULL is allowed */
struct pool_target *pool_target_hold(struct pool_target *t);
void pool_target_release(struct pool_target *t);

/* Milliseconds of a model's whole answer: the fastest of its targets, else what the file expects; 0: not known. For struct
 * route_latencies; context: the pool. */
uint32_t pool_latency_ms(void *context, uint32_t model);
/* Counts a request that has ended. seconds: of POOL_OK. */
void pool_count(struct pool_counts *c, enum pool_result result, double seconds);

#endif
