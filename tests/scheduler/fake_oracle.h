/* What the fake engine expects of the scheduler: private to fake_engine.c and fake_oracle.c. */
#ifndef QUIRE_TESTS_SCHEDULER_FAKE_ORACLE_H
#define QUIRE_TESTS_SCHEDULER_FAKE_ORACLE_H

#include "tests/scheduler/fake_engine.h"

bool fake_fail(struct fake_engine *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns whether the oracle reimplements the policy's order. */
bool fake_has_order(const struct fake_engine *e);
/* Returns whether a is before b. */
bool fake_ranks_before(const struct fake_engine *e, const struct fake_seq *a, const struct fake_seq *b);
/* The same, if a has the rank of one that may wait for its prompt. */
bool fake_may_be_before(const struct fake_engine *e, const struct fake_seq *a, const struct fake_seq *b);
/* Notes who may wait for whose prompt in this plan, before its admissions are checked. */
void fake_see_prefixes(struct fake_engine *e, const struct sched_plan *plan);
/* The sequence is in plan->admitted; its row begins at `first`. */
bool fake_see_admitted(struct fake_engine *e, uint32_t name, uint32_t first);
void fake_see_preempted(struct fake_engine *e, uint32_t name);
void fake_see_row(struct fake_engine *e, const struct sched_row *row);
/* Accounts of the live sequences, and of the tenants. */
bool fake_check_accounts(struct fake_engine *e);
/* The expected status of the last sched_submit for the request's pin. */
int fake_pin_status(struct fake_engine *e, const struct fake_request *r, bool taken);
/* Choice 0 of a request with a pin ended by itself. */
void fake_pin_fill(struct fake_engine *e, const struct fake_seq *d);
/* After a plan (before its admissions are checked) and after a commit. */
void fake_pins_after_plan(struct fake_engine *e);
void fake_pins_after_commit(struct fake_engine *e, uint32_t n_before);

#endif
