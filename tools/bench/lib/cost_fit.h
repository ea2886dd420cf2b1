/* Fits a cost model to measured steps, and reports its error.
 *
 * It minimizes the sum of squared relative errors, over prices that are not negative and a T that never decreases
 * (Lawson and Hanson's non-negative least squares): a step of a millisecond counts as much as one of a second. The
 * points of T are the powers of two among the steps' tokens.
 *
 * No global state; any thread.
 */
#ifndef QUIRE_TOOLS_COST_FIT_H
#define QUIRE_TOOLS_COST_FIT_H

#include "scheduler/cost.h"

#include <stddef.h>

enum cost_kind {
    COST_DECODE,  /* rows of one token only */
    COST_PREFILL, /* longer rows only */
    COST_MIXED,
    COST_VERIFY,  /* rows of one token, some with drafts */
    COST_N_KINDS
};
const char *cost_kind_name(enum cost_kind kind);

struct cost_sample {
    enum cost_kind kind;
    struct sched_shape shape;
    double us; /* > 0 */
};

/* block_copy_us stays 0: samples have no copies. QUIRE_INVALID without samples; QUIRE_NO_MEMORY. */
int cost_fit(const struct cost_sample *samples, size_t n, struct sched_cost *out, struct quire_error *err);

struct cost_error {
    size_t n;
    double mean_absolute; /* mean of |predicted - measured| / measured */
    double bias;          /* predicted sum divided by measured sum, minus 1 */
};
/* For the samples of each kind, and for all of them in errors[COST_N_KINDS]. */
void cost_fit_errors(const struct sched_cost *cost, const struct cost_sample *samples, size_t n,
                     struct cost_error errors[COST_N_KINDS + 1]);

#endif
