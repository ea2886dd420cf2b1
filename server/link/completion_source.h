/* Where prompts are completed: what a front end's generations ask, whatever answers. An engine client is one
 * (engine_client_source()); a cache or a router is another that stands before others.
 *
 * One that keeps answers may hand on what was said to a similar question as a spec's `prediction`, where the request
 * brings none: it is proposed token by token, resynchronised after a mismatch, and moves no bit. A client is told of
 * accepted and rejected tokens only where its own body had a prediction.
 *
 * All on the thread of the event loop. Events come from the loop or from within submit() itself (what a cache has, it
 * can say at once): the id is set before the first of them, and cancel() may be called from within any.
 * What events point to is borrowed until they return.
 */
#ifndef QUIRE_LINK_COMPLETION_SOURCE_H
#define QUIRE_LINK_COMPLETION_SOURCE_H

#include "base/status.h"
#include "server/wire/wire.h"

#include <stdint.h>

/* What the owner of one request hears. on_done with last = true, on_refused and on_lost are each the
 * last call. */
struct completion_events { /* all set */
    void (*on_accepted)(void *context, uint64_t engine_id); /* wire_put_accept() */
    void (*on_refused)(void *context, const struct wire_refuse *refuse);
    void (*on_token)(void *context, const struct wire_token *token);
    void (*on_prompt_logprob)(void *context, const struct wire_token *token);
    void (*on_done)(void *context, const struct wire_done *done);
    void (*on_lost)(void *context, const char *why);
};

struct completion_source { /* functions set; `self` is handed to each, and borrowed */
    void *self;
    /* *source_id: the source's name for the request, for cancel(). spec and events are copied; context is handed to
     * every event. On failure no event comes, nor has one come. QUIRE_IO: it is not there; QUIRE_EXHAUSTED: it takes
     * no more at the moment; QUIRE_INVALID: the request is too large; QUIRE_NO_MEMORY. */
    int (*submit)(void *self, const struct request_spec *spec, const struct completion_events *events, void *context,
                  uint64_t *source_id, struct quire_error *err);
    /* No further event comes for this request. choice >= 0: only that choice ends, its on_done still comes. An id
     * whose last event has come is ignored. */
    void (*cancel)(void *self, uint64_t source_id, int64_t choice);
};

#endif
