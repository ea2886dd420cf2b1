/* One question on its way to a model and back. Private to this folder. Loop's thread. */
#ifndef QUIRE_GATEWAY_COMPLETE_CALL_H
#define QUIRE_GATEWAY_COMPLETE_CALL_H

#include "server/gateway/complete/answer_cache.h"
#include "server/gateway/complete/complete.h"
#include "server/gateway/complete/question.h"

#include <sys/queue.h>

struct call;

struct complete {
    struct event_base *base;
    struct complete_options options;
    struct answer_cache *answers;
    uint64_t n_hits, n_engine_hits, n_misses;
    TAILQ_HEAD(call_list, call) calls;
    struct call_list ended; /* freed by `bury`, outside the callbacks in which they ended */
    struct event *bury, *tick; /* tick: looks whether paused calls may go on */
};

/* Takes the question, also on failure, which is replied to. key: under which the answer is cached; NULL: not at all. */
void call_begin(struct complete *c, struct http_exchange *x, struct question *q, const struct key256 *key);
void calls_bury(struct complete *c);
/* Resumes paused calls whose clients have read on. */
void calls_tick(struct complete *c);
void calls_end_all(struct complete *c);

#endif
