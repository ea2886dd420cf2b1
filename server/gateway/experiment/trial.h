/* The statistics of one run of an experiment: what `quire ab report` needs, in bounded memory and without rounding.
 *
 * For each arm and metric: the number of requests, the sum and the sum of squares of a whole number, and number and sum again for
 * each of 256 buckets of units (assign.h). Requests of one user are not independent, but they are all in one bucket: the
 * spread between buckets is the noise of the experiment. 33 KiB for an arm. Sums stop at their largest value.
 *
 * Pure. A trial is reference-counted. One thread at a time.
 */
#ifndef QUIRE_GATEWAY_TRIAL_H
#define QUIRE_GATEWAY_TRIAL_H

#include "server/gateway/experiment/assign.h"
#include "server/gateway/experiment/variables.h"

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 trial_u128;

struct trial_cell {
    uint64_t n, sum;
};

struct trial_sums {
    struct trial_cell all;
    trial_u128 squares;
    struct trial_cell buckets[ASSIGN_BUCKETS];
};

struct trial_arm {
    char *name; /* owned */
    uint64_t n_requests; /* that count: neither a client's error nor of an API without an answer */
    struct trial_sums metrics[GATEWAY_N_METRICS];
};

struct trial {
    char run[VARIABLES_RUN_BYTES];
    int64_t since_s; /* the first request, in seconds since 1970; 0: not yet */
    uint32_t n_arms;
    struct trial_arm *arms; /* owned */
    unsigned n_holders;
    uint64_t n_saved; /* its owner's: requests that are written */
};

/* A request that has ended. */
struct trial_request {
    uint32_t bucket;
    bool has[GATEWAY_N_METRICS]; /* what could be measured */
    uint64_t values[GATEWAY_N_METRICS];
};

/* One holder. NULL: no memory. */
struct trial *trial_new(const struct gateway_config *config, uint32_t model);
/* For n arms without a configuration; their names are NULL. */
struct trial *trial_of_arms(uint32_t n_arms);
struct trial *trial_hold(struct trial *t);
void trial_release(struct trial *t); /* NULL is allowed */
uint64_t trial_requests(const struct trial *t);
void trial_add(struct trial *t, uint32_t arm, const struct trial_request *r, int64_t now_s);

/* Fills a request from what is known at its end. status: of HTTP; 0: the client has gone. */
struct trial_outcome {
    int status;
    uint64_t total_us, ttft_us; /* ttft_us 0: not a stream, or no token */
    uint64_t output, cached_input; /* tokens */
    uint64_t cost; /* picodollars */
    bool from_cache;
};
/* Returns false for a client's error, which does not measure an arm. */
bool trial_read(const struct trial_outcome *o, uint32_t bucket, struct trial_request *out);

/* Decimal digits. */
#define TRIAL_SQUARES_BYTES 40
void trial_squares_text(trial_u128 n, char out[TRIAL_SQUARES_BYTES]);

#endif
