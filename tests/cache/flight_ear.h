/* A client of a cache, which writes down what it receives. */
#ifndef QUIRE_TESTS_CACHE_FLIGHT_EAR_H
#define QUIRE_TESTS_CACHE_FLIGHT_EAR_H

#include "server/link/completion_source.h"
#include "tests/cache/cache_unit_test.h"

#include <stdio.h>
#include <string.h>

struct ear {
    struct completion_source source;
    uint64_t id;
    char said[64];
    enum completion_from from;
    const char *layer;
    uint32_t n_accepted, n_done, n_refused, n_lost, finish;
    uint32_t leave_after, cut_after; /* tokens; 0: never */
    uint32_t n_tokens;
    bool is_full, leaves_again; /* leaves_again: it cancels at the second report of its origin */
    float similarity;
    uint32_t n_origins, n_lookups;
};

static struct key256 asked_key; /* of the last */

static inline void on_origin(void *context, const struct completion_origin *origin)
{
    struct ear *e = context;
    assert_int_equal(e->n_accepted, origin->again);
    assert_int_equal(e->n_origins, origin->again);
    e->n_origins++;
    e->n_lookups += origin->lookups->n;
    e->from = origin->from;
    e->similarity = origin->similarity;
    asked_key = origin->key;
    e->layer = origin->layer;
    if (origin->again && e->leaves_again)
        e->source.cancel(e->source.self, e->id, -1);
}

static inline void on_accepted(void *context, uint64_t engine_id)
{
    (void)engine_id;
    assert_non_null(((struct ear *)context)->layer);
    ((struct ear *)context)->n_accepted++;
}

static inline void on_refused(void *context, const struct wire_refuse *refuse)
{
    (void)refuse;
    assert_int_equal(((struct ear *)context)->n_accepted, 0);
    ((struct ear *)context)->n_refused++;
}

static inline void on_token(void *context, const struct wire_token *token)
{
    struct ear *e = context;
    if (e->n_tokens < 20)
        snprintf(e->said + strlen(e->said), 4, "%u", token->token);
    e->n_tokens++;
    if (e->n_tokens == e->leave_after)
        e->source.cancel(e->source.self, e->id, -1);
    else if (e->n_tokens == e->cut_after)
        e->source.cancel(e->source.self, e->id, token->choice);
}

static inline void on_done(void *context, const struct wire_done *done)
{
    struct ear *e = context;
    e->n_done++;
    e->finish = done->finish;
    e->source.cancel(e->source.self, e->id, -1); /* has no effect on a request whose last event has come */
}

static inline void on_lost(void *context, const char *why)
{
    (void)why;
    ((struct ear *)context)->n_lost++;
}

static inline bool has_space(void *context)
{
    return !((struct ear *)context)->is_full;
}

static const struct completion_events events = {.on_origin = on_origin,
                                                .has_space = has_space,
                                                .on_accepted = on_accepted,
                                                .on_refused = on_refused,
                                                .on_token = on_token,
                                                .on_prompt_logprob = on_token,
                                                .on_done = on_done,
                                                .on_lost = on_lost};

#endif
