/* The interface between other threads and the engine thread: requests, predictions, cancels and orders enter,
 * counters leave.
 *
 * One mutex guards everything here. No thread holds it while computing. Admission is decided here, at once, from
 * counters: the scheduler's waiting requests at the last step boundary plus those accepted since. Requests belong to
 * the mailbox from mailbox_submit() until mailbox_drain() hands them to the engine thread.
 */
#ifndef QUIRE_ENGINE_MAILBOX_H
#define QUIRE_ENGINE_MAILBOX_H

#include "engine/stats.h"
#include "scheduler/types/account.h"
#include "engine/run/request.h"
#include "scheduler/scheduler.h"

#include <stdbool.h>
#include <stdint.h>

struct mailbox;

/* Bounds: waiting choices, and prompt tokens of waiting requests (0: no bound). A request is always accepted if
 * nothing waits. */
int mailbox_create(uint32_t max_choices, uint64_t max_tokens, uint32_t n_tenants, struct mailbox **out,
                   struct quire_error *err);
void mailbox_destroy(struct mailbox *m); /* frees requests that were never drained; NULL is fine */

/* ---- any thread ---- */

/* Takes the request over, or says why not: QUIRE_EXHAUSTED with *retry_after_ms, QUIRE_INVALID
 * for an id in use, QUIRE_INTERNAL from a dead engine. */
int mailbox_submit(struct mailbox *m, struct request *r, uint32_t *retry_after_ms, struct quire_error *err);
#define MAILBOX_ALL_CHOICES UINT32_MAX
void mailbox_cancel(struct mailbox *m, uint64_t id, uint32_t choice);
/* Takes the tokens over, of malloc(): for a live request that has no prediction. */
void mailbox_predict(struct mailbox *m, uint64_t id, uint32_t *tokens, uint32_t n);
/* As engine_report_hits(). */
void mailbox_report_hits(struct mailbox *m, const uint32_t *served, uint32_t n_served);
void mailbox_refuse_new(struct mailbox *m);
void mailbox_no_more(struct mailbox *m);
/* If two policies are set before a drain, the later one counts. The options' weights are not read. This and
 * mailbox_unpin() return the order's number: 1, 2, 3, … */
uint64_t mailbox_set_policy(struct mailbox *m, const struct sched_policy *policy,
                            const struct sched_policy_options *options);
#define MAILBOX_ALL_TENANTS UINT32_MAX
uint64_t mailbox_unpin(struct mailbox *m, uint32_t tenant); /* one there is, or all */
/* Makes a drain that sleeps return. */
void mailbox_wake(struct mailbox *m);
void mailbox_close(struct mailbox *m);
void mailbox_stats(struct mailbox *m, struct engine_stats *out);
/* Copies the last published counters of an existing tenant. */
void mailbox_tenant_stats(struct mailbox *m, uint32_t tenant, struct sched_tenant_stats *out);
uint64_t mailbox_next_number(struct mailbox *m); /* 0, 1, 2, … */

/* ---- the engine thread ---- */

struct mailbox_orders {
    uint64_t number; /* number of the last order with a number; 0: no such order */
    bool no_more;
    const struct sched_policy *policy; /* NULL: stays */
    struct sched_policy_options options;
    bool unpin; /* some tenant, or all */
    bool unpin_all;
    uint64_t unpin_tenants[SCHED_MAX_TENANTS / 64]; /* a bit each */
};
struct mailbox_mail {
    struct request *submitted; /* linked by next, oldest first */
    struct request *predicted; /* linked by next_predicted; their late_prediction is the engine thread's */
    struct request *cancels; /* linked by next_to_end; their choices' cancel_now is set */
    const uint32_t *served; /* [3 * n_served], valid until the next mailbox_drain() */
    uint32_t n_served;
    struct mailbox_orders orders;
    bool closing;
};
/* Takes what is there. Where nothing is, sleeps until something comes, or until this time of
 * CLOCK_MONOTONIC in microseconds. */
#define MAILBOX_FOREVER UINT64_MAX
void mailbox_drain(struct mailbox *m, uint64_t until_us, struct mailbox_mail *out);

/* The engine's progress since the last call, for statistics and for the delay before a retry. */
struct mailbox_report {
    struct engine_stats stats; /* draining and dead are the mailbox's own */
    uint64_t busy_us; /* spent on steps */
    uint64_t n_tokens; /* computed */
    uint32_t n_finished; /* choices that ended */
};
void mailbox_publish(struct mailbox *m, const struct mailbox_report *report);
void mailbox_publish_tenants(struct mailbox *m, const struct sched_tenant_stats *tenants);

/* Forgets a request whose last event is about to leave: its id may be used again. */
void mailbox_forget(struct mailbox *m, struct request *r);

/* From here on every submit fails with QUIRE_INTERNAL and this reason. */
void mailbox_die(struct mailbox *m, const char *reason);

/* Any live request, or NULL. Only where no new one can come: after mailbox_die or with
 * `closing`. */
struct request *mailbox_any_live(struct mailbox *m);

#endif
