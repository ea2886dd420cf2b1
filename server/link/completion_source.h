/* A source of completions: the interface through which a front end's generations submit requests. An engine client is
 * one (engine_client_source()). A cache or a router is another, in front of other sources.
 *
 * A source that caches answers may pass the answer to a similar question on through predict(), as if it were the
 * `prediction` of a spec without one. The engine proposes it token by token and resynchronises after a mismatch. It
 * changes no bit of the answer. A client sees accepted and rejected tokens only if its own body had a prediction.
 *
 * Everything runs on the thread of the event loop. Events come from the loop or from within submit() itself, because a
 * cache may have the answer at once. The id is set before the first event, and cancel() may be called from within any
 * event. Data that events point to is borrowed until they return.
 */
#ifndef QUIRE_LINK_COMPLETION_SOURCE_H
#define QUIRE_LINK_COMPLETION_SOURCE_H

#include "base/status.h"
#include "request/spec.h"
#include "server/wire/records.h"

#include <stdbool.h>
#include <stdint.h>

/* The client's terms in addition to the computation. A source without cached answers ignores them. They change no bit
 * of an answer. */
struct completion_terms {
    /* digest of everything by which the client cuts choices short itself, at the same token each time (stop strings):
     * a choice that it cancels is then complete. Zero: it never cancels so */
    struct key256 cut;
    struct key256 domain; /* cached answers of this domain may be served, and this one is cached in it */
    bool no_cache, no_store; /* serve no cached answer; cache no answer */
    /* max_tokens comes from the client or the API's default. Otherwise it is all that the model's context allows. */
    bool is_bounded;
    bool streams; /* the client sees tokens as they arrive */
    /* The client's question in UTF-8, if others may ask the same in other words; NULL: not such a request. */
    const char *question;
    size_t n_question;
    struct key256 around; /* digest of the rest of the prompt around the question */
    uint32_t ttl_s; /* how long the answer is cached; 0: the server's default */
    uint32_t max_age_s; /* maximum age of a cached answer; 0: any */
};

enum completion_from {
    COMPLETION_COMPUTED,
    COMPLETION_DRAFTED, /* computed, with the answer to a similar question as its prediction */
    COMPLETION_CACHED,
    COMPLETION_JOINED, /* an identical request is in flight */
    COMPLETION_SIMILAR /* the answer to a similar question, unchanged */
};

/* The lookups before anything was computed, in this order. */
#define COMPLETION_MOST_LOOKUPS 8u
struct completion_lookup {
    const char *layer; /* static: the layers of an origin; "reply", "beginning", "embedding", "similar" */
    uint64_t begun_ns, ended_ns; /* of quire_now_ns() */
    bool found;
};
struct completion_lookups {
    uint32_t n;
    struct completion_lookup items[COMPLETION_MOST_LOOKUPS];
};
/* Lookups past COMPLETION_MOST_LOOKUPS are not recorded. */
static inline void completion_looked(struct completion_lookups *l, struct completion_lookup one)
{
    if (l->n < COMPLETION_MOST_LOOKUPS)
        l->items[l->n++] = one;
}

struct completion_origin {
    enum completion_from from;
    /* Static: "memory", "sqlite", "redis"; "flight" for a joined request; "draft" or "semantic" for a similar
     * question; "" for a computed answer. */
    const char *layer;
    float similarity; /* between the two questions */
    uint32_t age_s; /* of the cached answer */
    bool unseeded; /* it was sampled without a seed */
    struct key256 key; /* under which it is or would be cached */
    bool again; /* this is the second call: a similar question was searched in the meantime */
    const struct completion_lookups *lookups; /* lookups since the previous call; borrowed until on_origin returns */
};

/* The events of one request. on_done with last = true, on_refused and on_lost are each the last call. */
struct completion_events { /* all set, except on_origin, has_space and on_vector */
    /* Comes before on_accepted, and at most once more after it. Only from sources that cache answers. */
    void (*on_origin)(void *context, const struct completion_origin *origin);
    /* Returns whether more tokens may be sent now. A cached answer waits with its rest while a client reads slowly. */
    bool (*has_space)(void *context);
    void (*on_accepted)(void *context, uint64_t engine_id); /* wire_put_accept() */
    void (*on_refused)(void *context, const struct wire_refuse *refuse);
    void (*on_token)(void *context, const struct wire_token *token);
    void (*on_prompt_logprob)(void *context, const struct wire_token *token);
    /* For a spec that requests a vector, before its on_done. Other owners leave it NULL. */
    void (*on_vector)(void *context, const struct wire_vector *vector);
    void (*on_done)(void *context, const struct wire_done *done);
    void (*on_lost)(void *context, const char *why);
};

struct completion_source { /* functions set; `self` is passed to each, and borrowed */
    void *self;
    /* *source_id: the source's name for the request, for cancel(). spec is copied; events are borrowed until the
     * last of them, and context is passed to each. terms are borrowed until it returns; NULL: no cached answer is served, and the answer is not
     * cached. On failure no event has come and none will. QUIRE_IO: the source is unavailable; QUIRE_EXHAUSTED: it
     * accepts no more at the moment; QUIRE_INVALID: the request is too large; QUIRE_NO_MEMORY. */
    int (*submit)(void *self, const struct request_spec *spec, const struct completion_terms *terms,
                  const struct completion_events *events, void *context, uint64_t *source_id, struct quire_error *err);
    /* Passes the expected answer of a running request. Returns false if the request takes no prediction, or no longer
     * takes one. NULL: the source never does. A request that already has a prediction keeps it. */
    bool (*predict)(void *self, uint64_t source_id, const uint32_t *tokens, uint32_t n);
    /* Reports how often cached answers were served so far: triples of the low and high half of their keep_name, and the
     * count. A name of zero removes all of them. n_served: at most WIRE_MAX_SERVED. Returns false if the report cannot be
     * sent now. NULL: the source does not rank them. */
    bool (*report_hits)(void *self, const uint32_t *served, uint32_t n_served);
    /* No further event comes for this request. Ids are below 1 << 63, so that a source in front of this one can use
     * the others. choice >= 0: only that choice ends, its on_done still comes. An id whose last event has come is
     * ignored. */
    void (*cancel)(void *self, uint64_t source_id, int64_t choice);
};

#endif
