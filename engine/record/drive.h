/* A recording drives a scheduler: every call that the live engine made is made again, in its order
 * and with its times, and the plans must come out the same. This is what `quire sim --trace-format
 * recording` runs, and how a policy's decision of last night is looked at in a debugger. No engine,
 * no weights, no clock.
 */
#ifndef QUIRE_ENGINE_RECORDING_DRIVE_H
#define QUIRE_ENGINE_RECORDING_DRIVE_H

#include "engine/record/recording.h"
#include "scheduler/draft_counts.h"

/* A request as it went; times are those of the recording. */
struct recording_request {
    uint64_t request;          /* its public id */
    uint64_t offset;           /* of its submit record, for recording_read_at() */
    uint32_t tenant, class_index;
    uint32_t n_prompt, n, max_tokens;
    bool background;
    bool refused;              /* at submission or later; nothing of it ran */
    bool cancelled;            /* a choice was */
    uint64_t arrival_us;
    uint64_t admitted_us;      /* time of the plan that first admitted a choice; 0 = none did */
    uint64_t first_us, last_us; /* its first and its last token were there; 0 = none */
    uint32_t n_preemptions;
    uint32_t n_cached;         /* of choice 0 */
    uint32_t *n_outputs;       /* [n] tokens of each choice */
};

/* Microseconds; negative where there is none. TPOT: the time from the first token to the last by the
 * tokens after the first of the choice that has most. */
double recording_ttft_us(const struct recording_request *r);
double recording_tpot_us(const struct recording_request *r);
double recording_e2el_us(const struct recording_request *r);
double recording_queue_us(const struct recording_request *r);

struct recording_run {
    uint64_t n_plans, n_steps;
    struct key256 decisions;          /* of the scheduler that was driven */
    struct key256 recorded_decisions; /* of the live one, at the recording's end */
    bool agrees;
    uint64_t wrong_offset;            /* of the first record that went differently; 0 = none */
    uint64_t n_preemptions, n_left_out /* bytes */;
    bool closed;                      /* the engine was closed, not killed */
    struct sched_stats stats;         /* of the driven scheduler, at the end */
    struct draft_counts drafts;
    size_t n_requests;
    struct recording_request *requests; /* in the order of submission; recording_run_free() */
};

/* Called after every plan record with the driven scheduler, for whoever draws curves; may be NULL. */
typedef void (*recording_observer)(void *context, uint64_t now_us, const struct sched_plan *plan,
                                   const struct sched *s);

/* Reads r from its beginning to its end. A decision that differs is no error: the rest of the
 * recording cannot be followed then, so the run ends there with agrees false. */
int recording_drive(struct recording *r, recording_observer observer, void *context, struct recording_run *out,
                    struct quire_error *err);
void recording_run_free(struct recording_run *run);

#endif
