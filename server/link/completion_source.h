/* Where prompts are completed: what a front end's generations ask, whatever answers. An engine client is one
 * (engine_client_source()); a cache or a router is another that stands before others.
 *
 * One that keeps answers may hand on what was said to a similar question by predict(), as if it were the `prediction` of a spec
 * that brought none: it is proposed token by token, resynchronised after a mismatch, and moves no bit. A client is told of
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

#include <stdbool.h>
#include <stdint.h>

/* What who asks says beyond what is computed; a source that keeps no answers does not look at it. Moves no bit. */
struct completion_terms {
    struct key256 cut; /* digest of all by which the asker cuts choices short itself, at the same token each time (stop
                          strings): a choice that it cancels is whole then. Zero: it never does */
    struct key256 domain; /* whose kept answers may be given, and to whom this one */
    bool no_cache, no_store; /* nothing kept is given; nothing is kept */
    bool
        is_bounded; /* max_tokens is the asker's own, or the API's default: else it is all that the model has room for */
    bool streams; /* tokens are shown as they come */
    /* What it asks, where others may ask the same in other words, as UTF-8; NULL: nothing of the kind. */
    const char *question;
    size_t n_question;
    struct key256 around; /* digest of what stands around the question in the prompt */
    uint32_t ttl_s; /* how long it is kept; 0: the server says */
    uint32_t max_age_s; /* of what is given; 0: any */
};

enum completion_from {
    COMPLETION_COMPUTED,
    COMPLETION_DRAFTED, /* computed, with the answer to a similar question as its prediction */
    COMPLETION_KEPT,
    COMPLETION_JOINED, /* another asks the same just now */
    COMPLETION_SIMILAR /* the answer to a similar question, as it is */
};

/* Where an answer was looked for before anything was computed, in this order. */
#define COMPLETION_MOST_LOOKUPS 8u
struct completion_lookup {
    const char *layer; /* static: those of an origin; "reply", "beginning", "embedding", "similar" */
    uint64_t begun_ns, ended_ns; /* of quire_now_ns() */
    bool found;
};
struct completion_lookups {
    uint32_t n;
    struct completion_lookup items[COMPLETION_MOST_LOOKUPS];
};
/* The first so many are told of. */
static inline void completion_looked(struct completion_lookups *l, struct completion_lookup one)
{
    if (l->n < COMPLETION_MOST_LOOKUPS)
        l->items[l->n++] = one;
}

struct completion_origin {
    enum completion_from from;
    /* Static: "memory", "sqlite", "redis"; "flight" of what was joined; "draft", "semantic" of what has to do with a similar question;
     * "" of what is computed. */
    const char *layer;
    float similarity; /* of the question to that */
    uint32_t age_s; /* of what was kept */
    bool unseeded; /* it was drawn without a seed */
    struct key256 key; /* under which it is kept, or would be */
    bool again; /* it was told before: a similar question was looked for meanwhile */
    const struct completion_lookups *lookups; /* since it was told; borrowed until on_origin returns */
};

/* What the owner of one request hears. on_done with last = true, on_refused and on_lost are each the
 * last call. */
struct completion_events { /* all set, on_origin, has_room and on_vector aside */
    /* Before on_accepted, and at most once again after it; of sources that keep answers. */
    void (*on_origin)(void *context, const struct completion_origin *origin);
    /* Whether more may be said now: an answer that is kept waits with its rest where a client reads slowly. */
    bool (*has_room)(void *context);
    void (*on_accepted)(void *context, uint64_t engine_id); /* wire_put_accept() */
    void (*on_refused)(void *context, const struct wire_refuse *refuse);
    void (*on_token)(void *context, const struct wire_token *token);
    void (*on_prompt_logprob)(void *context, const struct wire_token *token);
    /* Of a spec that wants one, before its on_done; others leave it out. */
    void (*on_vector)(void *context, const struct wire_vector *vector);
    void (*on_done)(void *context, const struct wire_done *done);
    void (*on_lost)(void *context, const char *why);
};

struct completion_source { /* functions set; `self` is handed to each, and borrowed */
    void *self;
    /* *source_id: the source's name for the request, for cancel(). spec and events are copied; context is handed to
     * every event. terms are borrowed until it returns; NULL: nothing kept is given, nothing is kept. On failure no event
     * comes, nor has one come. QUIRE_IO: it is not there; QUIRE_EXHAUSTED: it takes no more at the moment; QUIRE_INVALID:
     * the request is too large; QUIRE_NO_MEMORY. */
    int (*submit)(void *self, const struct request_spec *spec, const struct completion_terms *terms,
                  const struct completion_events *events, void *context, uint64_t *source_id, struct quire_error *err);
    /* What the answer of a request that runs is expected to be. False: it takes none, or not any more. NULL: it never does. Of
     * a request that has one already nothing changes. */
    bool (*predict)(void *self, uint64_t source_id, const uint32_t *tokens, uint32_t n);
    /* No further event comes for this request. Its ids are below 1 << 63, so that who stands before may have the others.
     * choice >= 0: only that choice ends, its on_done still comes. An id whose last event has come is ignored. */
    void (*cancel)(void *self, uint64_t source_id, int64_t choice);
};

#endif
