/* One request that was asked of the cache, while its owner is to be told something: from an answer that is kept, or from one
 * that is being written. Private to server/cache. Loop's thread.
 *
 * An owner may cancel any request, its own too, from within an event: an asker that is being told is freed when that
 * returns (is_gone).
 */
#ifndef QUIRE_CACHE_ASKER_H
#define QUIRE_CACHE_ASKER_H

#include "base/id_map.h"
#include "server/cache/memory_layer.h"
#include "server/link/completion_source.h"

#include <event2/event.h>

struct flight;

struct asker_list {
    TAILQ_HEAD(asker_head, asker) head;
    struct asker *next; /* of a walk: stays right when it goes */
    uint32_t n;
};

struct asker {
    TAILQ_ENTRY(asker) link;
    struct asker_list *list;
    struct event_base *base;
    struct id_map *ids; /* where it stands while events are to come */
    uint64_t id;
    struct completion_events events;
    void *context;
    struct completion_terms terms;
    struct completion_origin origin;
    struct completion_lookups lookups; /* that its owner has not been told of */

    struct flight *flight; /* that computes it; NULL: it is kept */
    const struct answer_writer *written; /* of the flight, where it writes */
    struct kept *kept; /* read by it */
    bool is_accepted; /* by the flight that it joined */
    uint64_t engine_id; /* of that; 0: not told */
    size_t cursor; /* events told */
    bool told_origin, told_accepted, told_events;
    bool behind; /* there is more to tell than what just came: in slices, as its owner has room */
    bool paced;
    bool is_busy, is_gone;
    bool has_spec, tried_again; /* spec: to compute it alone if the flight that it joined fails */
    struct request_spec spec;
    uint64_t clock_us; /* paced: when the event before was due */
    struct event *more;
};

void asker_list_init(struct asker_list *list);
void asker_move(struct asker *a, struct asker_list *to);
/* Walks over a list while askers come and go: what stands there at first. NULL: that was all. */
struct asker *asker_walk(struct asker_list *list, bool first);

/* For their origins. */
void asker_looked(struct asker_list *list, const char *layer, uint64_t begun_ns, uint64_t ended_ns, bool found);

/* Those who were told their origin are told what is new of it. */
void asker_tell_again(struct asker_list *list);

/* In no list yet. NULL: out of memory. */
struct asker *asker_new(struct event_base *base, struct id_map *ids, uint64_t id,
                        const struct completion_events *events, void *context);
/* No event comes any more. */
void asker_end(struct asker *a);

void asker_accepted(struct asker *a, uint64_t engine_id);
/* What is there and it was not told yet. all: whatever room its owner has. It may be no more afterwards. */
void asker_tell(struct asker *a, bool all);
/* Of a flight that writes nothing down; the last event ends it. */
void asker_token(struct asker *a, const struct wire_token *token, bool of_prompt);
void asker_done(struct asker *a, const struct wire_done *done);
void asker_refused(struct asker *a, const struct wire_refuse *refuse);
void asker_lost(struct asker *a, const char *why);

#endif
