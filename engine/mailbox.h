/* Where the world and the engine thread meet: requests and cancels go in, counters come out.
 *
 * One mutex guards everything here; nobody holds it while computing. Admission is decided here,
 * at once, from counters: what the scheduler had waiting at the last step boundary plus what was
 * accepted since. Requests belong to the mailbox from mailbox_submit() until mailbox_drain()
 * hands them to the engine thread.
 */
#ifndef QUIRE_ENGINE_MAILBOX_H
#define QUIRE_ENGINE_MAILBOX_H

#include "engine/engine.h"
#include "engine/request.h"

#include <stdbool.h>
#include <stdint.h>

struct mailbox;

/* Bounds: waiting choices, and prompt tokens of waiting requests (0 = none). A request that finds
 * nothing waiting is always taken. */
int mailbox_create(uint32_t max_choices, uint64_t max_tokens, struct mailbox **out,
                   struct quire_error *err);
void mailbox_destroy(struct mailbox *m); /* frees requests that were never drained; NULL is fine */

/* ---- any thread ---- */

/* Takes the request over, or says why not: QUIRE_EXHAUSTED with *retry_after_ms, QUIRE_INVALID
 * for an id in use, QUIRE_INTERNAL from a dead engine. */
int mailbox_submit(struct mailbox *m, struct request *r, uint32_t *retry_after_ms,
                   struct quire_error *err);
#define MAILBOX_ALL_CHOICES UINT32_MAX
void mailbox_cancel(struct mailbox *m, uint64_t id, uint32_t choice);
void mailbox_refuse_new(struct mailbox *m);
void mailbox_close(struct mailbox *m);
void mailbox_stats(struct mailbox *m, struct engine_stats *out);
uint64_t mailbox_next_number(struct mailbox *m); /* 0, 1, 2, … */

/* ---- the engine thread ---- */

struct mailbox_mail {
    struct request *submitted; /* linked by next, oldest first */
    struct request *cancels;   /* linked by next_to_end; their choices' cancel_now is set */
    bool closing;
};
/* Takes what is there. With `wait`, sleeps until something is. */
void mailbox_drain(struct mailbox *m, bool wait, struct mailbox_mail *out);

/* What the engine did since the last call, for stats and for the time to come back. */
struct mailbox_report {
    struct engine_stats stats;  /* draining and dead are the mailbox's own */
    uint64_t busy_us;           /* spent on steps */
    uint64_t n_tokens;          /* computed */
    uint32_t n_finished;        /* choices that ended */
};
void mailbox_publish(struct mailbox *m, const struct mailbox_report *report);

/* Forgets a request whose last event is about to leave: its id may be used again. */
void mailbox_forget(struct mailbox *m, struct request *r);

/* From here on every submit fails with QUIRE_INTERNAL and this reason. */
void mailbox_die(struct mailbox *m, const char *reason);

/* Any live request, or NULL. Only where no new one can come: after mailbox_die or with
 * `closing`. */
struct request *mailbox_any_live(struct mailbox *m);

#endif
