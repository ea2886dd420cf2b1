/* Drives a scheduler with a recording: repeats every call of the live engine in the same order and with the same
 * times, and compares the plans. `quire sim --trace-format recording` runs this, and it makes a past decision of a
 * policy visible in a debugger. It needs no engine, no weights and no clock. One thread at a time. */
#ifndef QUIRE_ENGINE_RECORDING_DRIVE_H
#define QUIRE_ENGINE_RECORDING_DRIVE_H

#include "engine/record/recording.h"
#include "scheduler/draft_counts.h"
#include "scheduler/scheduler.h"

/* The course of a request; times are those of the recording, in microseconds. */
struct recording_request {
    uint64_t request;          /* its public id */
    uint64_t offset;           /* file offset of its submit record, for recording_read_at() */
    uint32_t tenant, class_index;
    uint32_t n_prompt, n, max_tokens;
    bool background;
    bool refused;              /* at submission or later; no part of it ran */
    bool cancelled;            /* a choice was cancelled */
    uint64_t arrival_us;
    uint64_t admitted_us;      /* time of the plan that first admitted a choice; 0: no choice was admitted */
    uint64_t first_us, last_us; /* times of its first and last token; 0: no token */
    uint32_t n_preemptions;
    uint32_t n_cached;         /* of choice 0 */
    uint32_t *n_outputs;       /* [n] tokens of each choice */
};

/* Microseconds; negative if undefined. TPOT is the time from the first to the last token, divided by the number of
 * tokens after the first in the longest choice. */
double recording_ttft_us(const struct recording_request *r);
double recording_tpot_us(const struct recording_request *r);
double recording_e2el_us(const struct recording_request *r);
double recording_queue_us(const struct recording_request *r);

struct recording_run {
    uint64_t n_plans, n_steps;
    struct key256 decisions;          /* decisions of the driven scheduler */
    struct key256 recorded_decisions; /* decisions of the live one at the end of the recording */
    bool agrees;
    uint64_t wrong_offset;            /* offset of the first record that differed; 0: no difference */
    uint64_t n_preemptions, n_left_out /* bytes */;
    bool closed;                      /* the engine was closed, not killed */
    struct sched_stats stats;         /* the driven scheduler's, at the end */
    struct draft_counts drafts;
    size_t n_requests;
    struct recording_request *requests; /* in the order of submission; recording_run_free() */
};

/* Called after every plan record with the driven scheduler, for example to draw curves. May be NULL. */
typedef void (*recording_observer)(void *context, uint64_t now_us, const struct sched_plan *plan,
                                   const struct sched *s);

/* Reads r from its beginning to its end. A different decision is not an error: the run ends there with agrees false,
 * because the rest of the recording no longer applies. Errors: a corrupt recording, or QUIRE_NO_MEMORY. */
int recording_drive(struct recording *r, recording_observer observer, void *context, struct recording_run *out,
                    struct quire_error *err);
void recording_run_free(struct recording_run *run);

#endif
