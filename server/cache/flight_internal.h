/* State of a flight (flight.c), shared by the files that handle it. Private to flight*.c. Loop's thread. */
#ifndef QUIRE_CACHE_FLIGHT_INTERNAL_H
#define QUIRE_CACHE_FLIGHT_INTERNAL_H

#include "server/cache/cache_internal.h"

/* The question of a request, which others may ask in other words. */
struct flight_question {
    char *text;
    size_t n;
    struct key256 around; /* digest of everything else in the request */
    bool is_compared, is_drafted;
    struct similar_ask *similar; /* a search for a similar question is in progress, or has its vector. NULL: no
                                  * search */
    struct similar_match match;
};

struct flight {
    struct response_cache *cache;
    struct key256 key;
    struct waiter_list waiters;
    struct answer_writer *writer; /* owned; the record. NULL: events are passed on without one */
    uint64_t below_id, engine_id;
    struct store_lookup *lookup;
    uint64_t looked_ns;
    struct request_spec *spec; /* owned, while the store is asked; NULL afterwards */
    uint32_t n, max_tokens, tenant; /* the spec's, as is_background */
    struct key256 domain;
    struct flight_question *question; /* owned; NULL: the request has none */
    struct key256 any_length; /* has_any_length: what the answer may be resumed by */
    struct cached *resumed; /* the beginning of the answer, with one reader until it has been delivered; or NULL */
    uint32_t n_prompt;
    uint32_t ttl_s;
    uint64_t n_clears; /* the cache's n_clears when the flight began */
    bool is_background, is_looking, is_below, is_accepted, is_over;
    bool is_listed, is_cached, is_unseeded, is_unbounded, has_any_length;
    unsigned n_busy; /* it is freed when this is 0 */
    bool is_cut[REQUEST_MAX_CHOICES];
    uint32_t n_tokens[REQUEST_MAX_CHOICES];
};

/* ---- flight_state.c ---- */

/* Returns NULL if memory is short. looks: the request may be answered from the cache, so others may join it. */
struct flight *flight_new(struct response_cache *c, const struct key256 *key, const struct request_spec *spec,
                          const struct completion_terms *terms, bool looks);
/* A flight that may be joined, or NULL. A background flight is joined by background requests only, because a
 * foreground request must not wait for a computation of lower priority. */
struct flight *flight_find(const struct response_cache *c, const struct key256 *key, bool background);
/* No later request joins it. */
void flight_unlist(struct flight *f);
/* The cache was cleared since the flight began. Its results must not be cached. */
bool flight_is_cleared(const struct flight *f);
/* The age up to which its first waiter accepts an answer; 0: any. */
uint32_t flight_max_age(const struct flight *f);

/* Ends a flight, and frees it unless somebody holds it. */
void flight_end(struct flight *f);
void flight_hold(struct flight *f);
/* Frees a flight that has ended. */
void flight_release(struct flight *f);
void flight_drop_spec(struct flight *f);
void flight_drop_question(struct flight *f);

/* Stops recording and delivers the recorded events to all waiters at once. */
void flight_go_direct(struct flight *f);
/* Delivers the rest of the answer from a cached response. k has one reader, the caller. all: the waiters have
 * received nothing yet. */
void flight_hand_over(struct flight *f, struct cached *k, bool all);

/* ---- flight_question.c ---- */

/* Extracts the question of a request, and a digest of everything else in it. If memory is short, the question is not
 * compared. */
void flight_question_take(struct flight *f, const struct request_spec *spec, const struct completion_terms *terms);
/* Whether the computation waits until the search for a similar question has ended. */
bool flight_question_holds(const struct flight *f);
/* Whether the answer to another question may be served for this one. */
bool flight_question_fits(struct flight *f, const struct answer *answer);
/* Serves k, the answer to a similar question, to all waiters, and ends the flight. */
void flight_question_serve(struct flight *f, struct cached *k);
/* Uses the first choice of an answer as the prediction of this one. If memory is short, no prediction is made. */
void flight_question_predict(struct flight *f, const struct answer *answer);

#endif
