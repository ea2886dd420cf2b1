/* A scheduler with small numbers, and its loop, for tests of single rules. */
#ifndef QUIRE_TESTS_SCHEDULER_SCHED_HARNESS_H
#define QUIRE_TESTS_SCHEDULER_SCHED_HARNESS_H

#include "scheduler/scheduler.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "scheduler/types/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* One full group, blocks of 4, 64 of them, budget 16, 4 sequences, 8 waiting, fcfs, depth 0. */
struct sched_config small_config(void);
struct sched *open_sched(const struct sched_config *config);
/* Checks that nothing is left, then destroys it. */
void close_sched(struct sched *s);

/* A prompt of n tokens base, base + 1, … with its hashes (blocks of 4, the zero secret). */
struct sched_request request_of(uint64_t id, uint32_t base, uint32_t n, uint32_t max_tokens);
/* The first n_shared tokens are common to the family; the rest belongs to the request alone. One token is generated. */
struct sched_request request_sharing(uint64_t id, uint32_t family, uint32_t n_shared, uint32_t n);
uint32_t submit(struct sched *s, struct sched_request request);

const struct sched_plan *plan(struct sched *s);
/* Gives every sampling row of the oldest step the token `token`; returns the number of ended sequences. */
uint32_t commit(struct sched *s, const struct sched_plan *plan, uint32_t token);
/* plan, commit, collect. Returns the plan. */
const struct sched_plan *step(struct sched *s);
/* Collects retired sequences; returns their number. */
uint32_t collect(struct sched *s);

void assert_row(const struct sched_plan *plan, uint32_t index, uint32_t seq, uint32_t first, uint32_t count,
                bool samples);
uint32_t n_free(const struct sched *s);

#endif
