/* Admission of requests by counters: what waits, how much may, and the time to come back after a rejection, at the
 * measured rates. Owns no thread and no lock: the mailbox calls everything under its mutex. */
#ifndef QUIRE_ENGINE_RUN_ADMISSION_H
#define QUIRE_ENGINE_RUN_ADMISSION_H

#include "base/status.h"

#include <stdint.h>

struct admission;

/* Choices and prompt tokens of requests. */
struct admission_load {
    uint64_t choices, tokens;
};

/* Bounds of what waits; tokens 0: no bound. A request is always accepted if nothing waits. NULL: out of memory. */
struct admission *admission_new(uint32_t max_choices, uint64_t max_tokens);
void admission_free(struct admission *a); /* NULL is fine */

/* QUIRE_EXHAUSTED with *retry_after_ms if a request of this size is more than may wait. */
int admission_check(const struct admission *a, struct admission_load request, uint32_t *retry_after_ms,
                    struct quire_error *err);
void admission_accept(struct admission *a, struct admission_load request);
/* The engine thread has taken what was accepted; its next report counts it. */
void admission_drained(struct admission *a);
/* What the scheduler has waiting at the last step boundary, and the work since the report before. */
struct admission_report {
    struct admission_load waiting;
    uint64_t busy_us, n_tokens;
    uint32_t n_finished;
};
void admission_report(struct admission *a, const struct admission_report *report);

/* What was accepted since the last report. */
struct admission_load admission_unreported(const struct admission *a);
uint64_t admission_next_number(struct admission *a); /* 0, 1, 2, … */

#endif
