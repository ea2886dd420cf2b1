/* A waiter: one request to the response cache whose owner still receives events, from a cached response or from one
 * in computation. Private to server/cache. Loop's thread.
 *
 * An owner may cancel any request, including its own, from within an event. A waiter that is receiving an event is
 * freed when the event returns (is_gone).
 */
#ifndef QUIRE_CACHE_ASKER_H
#define QUIRE_CACHE_ASKER_H

#include "base/id_map.h"
#include "request/spec.h"
#include "server/cache/memory_layer.h"
#include "server/link/completion_source.h"

#include <event2/event.h>

struct flight;

struct asker_list {
    TAILQ_HEAD(asker_head, asker) head;
    struct asker *next; /* next in a walk; stays valid when the waiter is freed */
    uint32_t n;
};

struct asker {
    TAILQ_ENTRY(asker) link;
    struct asker_list *list;
    struct event_base *base;
    struct id_map *ids; /* the map that holds it while events are to come */
    uint64_t id;
    struct completion_events events;
    void *context;
    struct completion_terms terms;
    struct completion_origin origin;
    struct completion_lookups lookups; /* not yet reported to the owner */

    struct flight *flight; /* the flight that computes it; NULL: a cached response is served */
    const struct answer_writer *written; /* the flight's answer, if it records one */
    struct kept *kept; /* cached response that it reads */
    bool is_accepted; /* accepted by the flight that it joined */
    uint64_t engine_id; /* engine id of the computation; 0 if not reported */
    size_t cursor; /* number of delivered events */
    bool told_origin, told_accepted, told_events;
    bool behind; /* more is pending than the newest event; delivered in slices, as the owner's buffer has space */
    bool paced;
    bool is_busy, is_gone;
    bool has_spec, tried_again; /* spec: used to compute it alone if the flight that it joined fails */
    struct request_spec spec;
    uint64_t clock_us; /* paced: when the previous event was due */
    struct event *more;
};

void asker_list_init(struct asker_list *list);
void asker_move(struct asker *a, struct asker_list *to);
/* Walks over the waiters that are in the list at the start, while waiters come and go. Returns NULL at the end. */
struct asker *asker_walk(struct asker_list *list, bool first);

/* Records the lookup in their origins. */
void asker_looked(struct asker_list *list, const char *layer, uint64_t begun_ns, uint64_t ended_ns, bool found);

/* Reports changes of the origin to waiters that have received it. */
void asker_tell_again(struct asker_list *list);

/* The new waiter is in no list yet. Returns NULL if memory is short. */
struct asker *asker_new(struct event_base *base, struct id_map *ids, uint64_t id,
                        const struct completion_events *events, void *context);
/* Frees the waiter; no event follows. */
void asker_end(struct asker *a);

void asker_accepted(struct asker *a, uint64_t engine_id);
/* Delivers the events that are available and not yet delivered. all: ignores the space in the owner's buffer. The
 * waiter may be freed afterwards. */
void asker_tell(struct asker *a, bool all);
/* For a flight that records nothing; the last event ends the waiter. */
void asker_token(struct asker *a, const struct wire_token *token, bool of_prompt);
void asker_done(struct asker *a, const struct wire_done *done);
void asker_refused(struct asker *a, const struct wire_refuse *refuse);
void asker_lost(struct asker *a, const char *why);

#endif
