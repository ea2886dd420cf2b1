/* The source below a cache, which does what the test says. Each test file has its own. */
#ifndef QUIRE_TESTS_CACHE_FLIGHT_BELOW_H
#define QUIRE_TESTS_CACHE_FLIGHT_BELOW_H

#include "server/link/completion_source.h"
#include "tests/cache/cache_unit_test.h"

#include <string.h>

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

#endif
