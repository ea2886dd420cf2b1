/* The predicted time of a step, from its shape. `quire bench steps` fits this cost model on a real backend
 * (app/flags/cost_file.h reads and writes it). It sizes a step for --step-target-ms, weighs swapping against
 * recomputation, and is the clock of `quire sim`.
 *
 *   us(step) = T(n_tokens) + row_us n_rows + logit_us n_logits
 *            + context_us (positions that rows read, each row its own) + pair_us ((token, position) pairs)
 *
 * T is linear between its points: weights are streamed once for any number of tokens, so small steps cost nearly the
 * same and large ones grow with their tokens. Attention is similar: a row's keys and values are streamed once for all
 * its tokens, and each token computes with the positions it may see.
 *
 * Pure arithmetic in double, only + - * / and comparisons: the same on every machine. Any thread.
 */
#ifndef QUIRE_SCHEDULER_COST_H
#define QUIRE_SCHEDULER_COST_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_COST_MAX_POINTS 24

struct sched_cost {
    uint32_t n_points; /* 0: no cost model */
    struct {
        uint32_t n_tokens; /* ascending; the first is 1 */
        double us;         /* never falls */
    } points[SCHED_COST_MAX_POINTS]; /* after the last point, its slope continues */
    double row_us, logit_us;
    double context_us, pair_us;
    double block_copy_us; /* one KV block of every group, to or from the host tier; 0: copies cost nothing */
};

/* QUIRE_INVALID names the member that is negative, not finite or out of order. */
int sched_cost_check(const struct sched_cost *cost, struct quire_error *err);

struct sched_shape {
    uint32_t n_rows, n_tokens, n_logits;
    uint64_t n_context, n_pairs;
    uint32_t n_block_copies;
};

/* Adds a row of positions [first, first + count), n_logits of which give logits. */
void sched_shape_add(struct sched_shape *shape, uint32_t first, uint32_t count, uint32_t n_logits);

/* Extends the last added row by n positions from `end`, each with its logits. */
void sched_shape_extend(struct sched_shape *shape, uint32_t end, uint32_t n);

/* Upper bound of all results, 31 years, so that each converts to an integer. */
#define SCHED_COST_MAX_US 1e15

double sched_cost_us(const struct sched_cost *cost, const struct sched_shape *shape);

/* A step's time as the sum of its rows': the own part of a row, and for each of its tokens an equal part of the time
 * that all tokens share: the weights that they read, and copies of blocks. */
double sched_cost_own_us(const struct sched_cost *cost, uint32_t first, uint32_t count, uint32_t n_logits);
double sched_cost_token_us(const struct sched_cost *cost, const struct sched_shape *shape);
/* The least that a token's part can be in a step of at most this many tokens. */
double sched_cost_least_token_us(const struct sched_cost *cost, uint32_t max_tokens);

/* The time by which fairness is measured: eight steps of one token, at least a millisecond. A shorter one would let two
 * tenants take turns where a common step costs both hardly more than a step alone. */
double sched_cost_quantum_us(const struct sched_cost *cost);

/* Maximum of tokens, at most `most`, of one more row without logits from position `first`, such that the step stays
 * within target_us; 0 if even one exceeds it. O(log most). */
uint32_t sched_cost_fit(const struct sched_cost *cost, const struct sched_shape *shape, uint32_t first, uint32_t most,
                        double target_us);

/* Microseconds to compute positions [first, first + count) alone, in steps of `chunk` tokens, >= 1, and a last one with
 * the rest. No logits. */
double sched_cost_prefill_us(const struct sched_cost *cost, uint32_t first, uint32_t count, uint32_t chunk);

#endif
