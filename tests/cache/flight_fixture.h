/* A cache whose source below is controlled by a test, and clients of that cache. */
#ifndef QUIRE_TESTS_CACHE_FLIGHT_FIXTURE_H
#define QUIRE_TESTS_CACHE_FLIGHT_FIXTURE_H

#include "server/cache/answer.h"
#include "server/cache/response_cache.h"
#include "tests/cache/cache_unit_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the source below: does what the test says ---------------------------------------------- */

#define MOST 8
static struct asked {
    struct completion_events events;
    void *context;
    bool cancelled, refuses;
    int64_t cut;
    uint64_t keep_us, keep_name;
    uint32_t max_tokens, n_prompt, n_prediction, prediction[8]; /* the prediction came after it */
} asked[MOST];
static uint64_t n_asked;
static bool is_away;

static inline int below_submit(void *self, const struct request_spec *spec, const struct completion_terms *terms,
                               const struct completion_events *events, void *context, uint64_t *id,
                               struct quire_error *err)
{
    (void)self;
    (void)terms;
    if (is_away)
        return quire_fail(err, QUIRE_IO, "away");
    assert_true(n_asked < MOST);
    asked[n_asked] = (struct asked){.events = *events, .context = context, .cut = -1, .max_tokens = spec->max_tokens};
    asked[n_asked].n_prompt = spec->n_prompt;
    asked[n_asked].keep_us = spec->keep_us;
    asked[n_asked].keep_name = spec->keep_name;
    assert_int_equal(spec->n_given, 0);
    assert_int_equal(spec->n_prediction, 0);
    *id = ++n_asked;
    return QUIRE_OK;
}

static inline bool below_predict(void *self, uint64_t id, const uint32_t *tokens, uint32_t n)
{
    (void)self;
    assert_true(id >= 1 && id <= n_asked && !asked[id - 1].cancelled && asked[id - 1].n_prediction == 0 && n <= 8);
    if (asked[id - 1].refuses)
        return false;
    asked[id - 1].n_prediction = n;
    memcpy(asked[id - 1].prediction, tokens, n * sizeof *tokens);
    return true;
}

static struct reported {
    uint64_t n; /* reports */
    uint32_t n_served, served[3 * 64]; /* of the last */
} reported;

static inline bool below_report_hits(void *self, const uint32_t *served, uint32_t n_served)
{
    (void)self;
    if (is_away)
        return false;
    assert_in_range(n_served, 1, 64);
    reported.n++;
    reported.n_served = n_served;
    memcpy(reported.served, served, 3 * n_served * sizeof *served);
    return true;
}

static inline void below_cancel(void *self, uint64_t id, int64_t choice)
{
    (void)self;
    assert_true(id >= 1 && id <= n_asked && !asked[id - 1].cancelled);
    if (choice < 0)
        asked[id - 1].cancelled = true;
    else
        asked[id - 1].cut = choice;
}

static const struct completion_source below = {
    .submit = below_submit, .predict = below_predict, .report_hits = below_report_hits, .cancel = below_cancel};

static inline void say(uint64_t i, uint32_t token)
{
    if (!asked[i].cancelled)
        asked[i].events.on_token(asked[i].context, &(struct wire_token){.token = token});
}

static inline void end(uint64_t i, uint32_t finish, uint32_t n_generated)
{
    const struct wire_done done = {.finish = finish,
                                   .last = true,
                                   .n_prompt = asked[i].n_prompt,
                                   .n_generated = n_generated,
                                   .status = QUIRE_EXHAUSTED};
    if (!asked[i].cancelled)
        asked[i].events.on_done(asked[i].context, &done);
}

/* ---- clients ------------------------------------------------------------------------------ */

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

static struct event_base *base;
static struct response_cache *cache;
static const struct key256 identity = {{1}};

static inline void open_cache(struct response_cache_options options)
{
    struct quire_error err;
    base = event_base_new();
    n_asked = 0;
    is_away = false;
    reported = (struct reported){.n = 0};
    assert_int_equal(response_cache_open(base, &options, &cache, &err), QUIRE_OK);
    response_cache_set_below(cache, below, &identity, 100);
}

static inline void close_cache(void)
{
    response_cache_close(cache);
    event_base_free(base);
}

static uint32_t max_tokens = 4;
static bool in_background;

static inline int ask_with(struct ear *e, const struct completion_terms *terms)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct request_spec spec;
    struct quire_error err;
    request_spec_default(&spec);
    spec.prompt = prompt;
    spec.n_prompt = 3;
    spec.max_tokens = max_tokens;
    spec.background = in_background;
    spec.temperature = 0;
    e->source = response_cache_source(cache);
    return e->source.submit(e->source.self, &spec, terms, &events, e, &e->id, &err);
}

static inline void ask(struct ear *e)
{
    assert_int_equal(ask_with(e, &(struct completion_terms){.is_bounded = true}), QUIRE_OK);
}

static inline void turn(void)
{
    event_base_loop(base, EVLOOP_NONBLOCK);
}

static inline void on_cleared(void *context, bool ok, uint64_t n_removed)
{
    (void)n_removed;
    assert_true(ok);
    *(bool *)context = true;
}

#endif
