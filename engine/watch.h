/* Observers of the scheduler: recordings, traces, shadow policies.
 *
 * A watch is a table of functions that the engine calls on its thread, each directly after the scheduler call that
 * it reports. The calls therefore arrive in the scheduler's order, and a second scheduler that receives the same
 * calls makes the same decisions. Any function may be NULL. None may block for long, call engine_ functions, or keep
 * a pointer past its return. Without watches each call costs one branch.
 *
 * Times are microseconds of CLOCK_MONOTONIC.
 */
#ifndef QUIRE_ENGINE_WATCH_H
#define QUIRE_ENGINE_WATCH_H

#include "engine/event.h"
#include "engine/info.h"
#include "request/spec.h"
#include "scheduler/scheduler.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "scheduler/types/request.h"
#include "speculation/length.h"

struct engine_watch_submit {
    uint64_t request;                       /* the id given to engine_submit() */
    const struct sched_request *sched;      /* as given; its id is the engine's own */
    const struct request_spec *spec;        /* as given, with a seed, and the ids that stop it listed
                                               (ignore_eos is set); its prompt may be NULL */
    int status;                             /* what sched_submit() said */
    uint64_t retry_us;
    const uint32_t *seqs;                   /* [n] when that was QUIRE_OK */
};

struct engine_watch_commit {
    uint64_t launched_us;               /* the step was given to the backend */
    uint64_t done_us;                   /* its results were there */
    const struct sched_plan *plan;
    const struct sched_result *results; /* [n_results]; finished also by max_tokens */
    uint32_t n_results;
    const struct sched *sched;          /* after the commit, for look-ups */
};

struct engine_watch {
    void *context; /* handed to every function */

    /* Once, by engine_open() on its caller's thread: what the scheduler was made with. */
    void (*opened)(void *context, const struct engine_info *info, const struct sched_config *config);

    void (*submitted)(void *context, const struct engine_watch_submit *submit);
    /* A whole request, or one choice; `id` is sched_request.id. The scheduler may not know it. */
    void (*cancelled)(void *context, uint64_t now_us, uint64_t id);
    void (*cancelled_choice)(void *context, uint64_t now_us, uint32_t seq);
    void (*no_more)(void *context, uint64_t now_us);
    /* How many of the drafts at hand the next step is to verify was decided, and from what; those are proposed next. */
    void (*lengths_chosen)(void *context, const struct length_reason *reason);
    /* sched_propose() took so many drafts. */
    void (*proposed)(void *context, uint32_t seq, const uint32_t *tokens, uint32_t n);
    /* sched_gate() said that this is news. */
    void (*gated)(void *context, uint32_t seq, bool gated);
    /* now_us is the time fed to sched_plan(). */
    void (*planned)(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched);
    void (*committed)(void *context, const struct engine_watch_commit *commit);
    void (*retired)(void *context, uint32_t seq);
    void (*policy_changed)(void *context, uint64_t now_us, const struct sched_policy *policy,
                           const struct sched_policy_options *options);
    /* The engine fitted another cost model. No step is in flight. */
    void (*cost_changed)(void *context, uint64_t now_us, const struct sched_cost *cost);
    void (*unpinned)(void *context, uint64_t now_us, uint32_t tenant);
    /* A hit report, as sched_served() got it. */
    void (*served)(void *context, uint64_t now_us, const uint32_t *served, uint32_t n_served);

    /* Called once when the backend has failed, before every request ends with an error. No request is served
     * afterwards. */
    void (*died)(void *context, const char *reason);

    /* Called with the events before the sink receives them. */
    void (*events)(void *context, const struct engine_event *events, size_t n_events);
};

#endif
