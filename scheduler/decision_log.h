/* One SHA-256 over all decisions of a scheduler, to compare two runs by one number, for example a live run and its
 * simulation.
 *
 * The input is every plan of sched_plan(), including empty ones, in order, as little-endian integers:
 *
 *   u64 now_us, the time of the call   u64 step   u32 token_budget
 *   u32 n_rows       then for each: u32 seq, first, count, first_logit, gives, adapter
 *   u32 n_preempted  then for each: u32 seq
 *   u32 n_admitted   then for each: u32 seq
 *   u32 n_refused    then for each: u32 seq, u64 retry_us
 *   u32 n_moves      then for each: u32 group, device_block, host_block, to_host (0 or 1)
 *
 * gives: 1 = tokens, 2 = the vector, and 256 times the drafts.
 *
 * Pure; one thread at a time. 0.07 us per row, 3 ns per byte.
 */
#ifndef QUIRE_SCHEDULER_DECISION_LOG_H
#define QUIRE_SCHEDULER_DECISION_LOG_H

#include "base/hash.h"
#include "scheduler/scheduler.h"
#include "scheduler/types/plan.h"

struct decision_log {
    struct quire_sha256_state state;
};

void decision_log_begin(struct decision_log *log);
void decision_log_add(struct decision_log *log, uint64_t now_us, const struct sched_plan *plan);
/* The hash of the plans so far; more may follow. */
struct key256 decision_log_now(const struct decision_log *log);

#endif
