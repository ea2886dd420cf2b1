/* What a step will take, predicted from its shape: the cost model that `quire bench steps` fits on a
 * real backend (tools/bench/lib/cost_file.h reads and writes it), that sizes a step for --step-target-ms, weighs
 * swapping against computing again, and is the clock of `quire sim`.
 *
 *   us(step) = T(n_tokens) + row_us n_rows + logit_us n_logits
 *            + context_us (positions that rows read, each row its own) + pair_us ((token, position) pairs)
 *
 * T is linear between its points: weights are streamed once however few tokens there are, so small
 * steps cost nearly the same and large ones grow with their tokens. Attention likewise: a row's keys
 * and values are streamed once for all its tokens, and each of these computes with what it may see.
 *
 * Pure arithmetic in double, + - * / and comparisons only: the same on every machine. Any thread.
 */
#ifndef QUIRE_SCHEDULER_COST_H
#define QUIRE_SCHEDULER_COST_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_COST_MAX_POINTS 24

struct sched_cost {
    uint32_t n_points; /* 0: there is no model */
    struct {
        uint32_t n_tokens; /* rising, the first is 1 */
        double us;         /* never falls */
    } points[SCHED_COST_MAX_POINTS]; /* past the last, its slope goes on */
    double row_us, logit_us;
    double context_us, pair_us;
    double block_copy_us; /* one KV block of every group, to or from the host tier; 0 = copies are
                             taken to cost nothing */
};

/* QUIRE_INVALID names the member that is negative, not finite or out of order. */
int sched_cost_check(const struct sched_cost *cost, struct quire_error *err);

struct sched_shape {
    uint32_t n_rows, n_tokens, n_logits;
    uint64_t n_context, n_pairs;
    uint32_t n_block_copies;
};

/* Adds a row of positions [first, first + count), of which n_logits give logits. */
void sched_shape_add(struct sched_shape *shape, uint32_t first, uint32_t count, uint32_t n_logits);

/* Makes the last row that was added longer, by n positions from `end`, each with its logits. */
void sched_shape_extend(struct sched_shape *shape, uint32_t end, uint32_t n);

/* No answer is above this, 31 years, so that each converts to an integer. */
#define SCHED_COST_MAX_US 1e15

double sched_cost_us(const struct sched_cost *cost, const struct sched_shape *shape);

/* The most tokens, at most `most`, that one more row without logits from position `first` may have so
 * that the step stays within target_us; 0 when not even one does. O(log most). */
uint32_t sched_cost_room(const struct sched_cost *cost, const struct sched_shape *shape, uint32_t first, uint32_t most,
                         double target_us);

/* Microseconds to compute positions [first, first + count) alone, in steps of `chunk` tokens, >= 1,
 * and a last one of what is left. No logits. */
double sched_cost_prefill_us(const struct sched_cost *cost, uint32_t first, uint32_t count, uint32_t chunk);

#endif
