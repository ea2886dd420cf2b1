/* A waiter: one request to the response cache whose owner still receives events, from a cached response or from one
 * in computation. Private to server/cache. Loop's thread.
 *
 * An owner may cancel any request, including its own, from within an event. A waiter that is receiving an event is
 * freed when the event returns (is_gone).
 */
#ifndef QUIRE_CACHE_WAITER_H
#define QUIRE_CACHE_WAITER_H

#include "base/id_map.h"
#include "request/spec.h"
#include "server/cache/memory_layer.h"
#include "server/link/completion_source.h"

#include <event2/event.h>

struct flight;

struct waiter_list {
    TAILQ_HEAD(waiter_head, waiter) head;
    struct waiter *next; /* next in a walk; stays valid when the waiter is freed */
    uint32_t n;
};

/* A copy of a request. */
struct waiter_request {
    struct request_spec *spec;
    struct completion_terms terms; /* the question is owned, too */
};

struct waiter {
    TAILQ_ENTRY(waiter) link;
    struct waiter_list *list;
    struct event_base *base;
    struct id_map *ids; /* the map that holds it while events are to come */
    uint64_t id;
    const struct completion_events *events; /* borrowed */
    void *context;
    /* Of the request's terms. */
    uint32_t max_age_s;
    bool cuts_alike; /* it ends its choices at the same token each time */
    bool streams;
    struct completion_origin origin;
    struct completion_lookups lookups; /* not yet reported to the owner */

    struct flight *flight; /* the flight that computes it; NULL: a cached response is served */
    const struct answer_writer *written; /* the flight's answer, if it records one */
    struct cached *cached; /* cached response that it reads */
    size_t cursor; /* number of delivered events */
    bool told_origin, told_accepted, told_events;
    bool behind; /* more is pending than the newest event; delivered in slices, as the owner's buffer has space */
    bool is_busy, is_gone;
    bool tried_again;
    struct waiter_request *request; /* to compute it alone if the flight that it joined fails; NULL: it joined none */
    uint64_t clock_us; /* when the previous event was due; 0: events are not delayed */
    struct event *more;
};

void waiter_list_init(struct waiter_list *list);
void waiter_move(struct waiter *a, struct waiter_list *to);
/* Walks over the waiters that are in the list at the start, while waiters come and go. Returns NULL at the end. */
struct waiter *waiter_walk(struct waiter_list *list, bool first);

/* Records the lookup in their origins. */
void waiter_looked(struct waiter_list *list, const char *layer, uint64_t begun_ns, uint64_t ended_ns, bool found);

/* Reports changes of the origin to waiters that have received it. */
void waiter_tell_again(struct waiter_list *list);

/* The new waiter is in no list yet. Returns NULL if memory is short. */
struct waiter *waiter_new(struct event_base *base, struct id_map *ids, uint64_t id,
                          const struct completion_terms *terms, const struct completion_events *events, void *context);
/* Copies what is needed to ask again. QUIRE_NO_MEMORY. A waiter that has a copy keeps it. */
int waiter_keep_request(struct waiter *a, const struct request_spec *spec, const struct completion_terms *terms,
                        struct quire_error *err);
void waiter_request_free(struct waiter_request *r); /* NULL is allowed */
/* Frees the waiter; no event follows. */
void waiter_end(struct waiter *a);

void waiter_accepted(struct waiter *a, uint64_t engine_id);
/* Delivers the events that are available and not yet delivered. all: ignores the space in the owner's buffer. The
 * waiter may be freed afterwards. */
void waiter_tell(struct waiter *a, bool all);
/* The same for a waiter that joins a flight which the engine has accepted under this id. */
void waiter_tell_accepted(struct waiter *a, uint64_t engine_id);
/* For a flight that records nothing; the last event ends the waiter. */
void waiter_token(struct waiter *a, const struct wire_token *token, bool of_prompt);
void waiter_done(struct waiter *a, const struct wire_done *done);
void waiter_refused(struct waiter *a, const struct wire_refuse *refuse);
void waiter_lost(struct waiter *a, const char *why);

#endif
