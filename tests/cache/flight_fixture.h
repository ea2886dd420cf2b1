/* A cache whose source below is controlled by a test, and clients of that cache. */
#ifndef QUIRE_TESTS_CACHE_FLIGHT_FIXTURE_H
#define QUIRE_TESTS_CACHE_FLIGHT_FIXTURE_H

#include "server/cache/answer.h"
#include "server/cache/response_cache.h"
#include "tests/cache/cache_unit_test.h"
#include "tests/cache/flight_below.h"
#include "tests/cache/flight_ear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
