/* The life of a flight: its place among those that may be joined, what it owns, its end, and where its waiters go. */
#include "server/cache/flight_internal.h"

#include "base/encoding/little_endian.h"

#include <stdlib.h>
#include <string.h>

static uint64_t flight_id(const struct key256 *key)
{
    return le_load_u64(key->bytes);
}

void flight_unlist(struct flight *f)
{
    if (f->is_listed)
        id_map_remove(&f->cache->flights, flight_id(&f->key));
    f->is_listed = false;
}

bool flight_is_cleared(const struct flight *f)
{
    return f->n_clears != f->cache->n_clears;
}

struct flight *flight_find(const struct response_cache *c, const struct key256 *key, bool background)
{
    struct flight *f = (struct flight *)id_map_find(&c->flights, flight_id(key));
    if (f && (flight_is_cleared(f) || (f->is_background && !background))) {
        flight_unlist(f);
        f = NULL;
    }
    return f && memcmp(f->key.bytes, key->bytes, sizeof key->bytes) == 0 ? f : NULL;
}

/* Copies the values of the spec that are needed later. */
static void keep_numbers(struct flight *f, const struct request_spec *spec)
{
    f->n = spec->n;
    f->max_tokens = spec->max_tokens;
    f->tenant = spec->tenant;
    f->is_background = spec->background;
}

void flight_drop_spec(struct flight *f)
{
    if (f->spec)
        request_spec_free(f->spec);
    free(f->spec);
    f->spec = NULL;
}

void flight_drop_question(struct flight *f)
{
    if (!f->question)
        return;
    similar_ask_free(f->question->similar);
    free(f->question->text);
    free(f->question);
    f->question = NULL;
}

static void drop_record(struct flight *f)
{
    if (f->writer)
        answer_drop(f->writer);
    free(f->writer);
    f->writer = NULL;
}

void flight_end(struct flight *f)
{
    flight_unlist(f);
    f->is_over = true;
    if (f->n_busy > 0)
        return;
    flight_drop_spec(f);
    if (f->lookup)
        f->cache->store->ops->cancel(f->cache->store, f->lookup);
    flight_drop_question(f);
    if (f->resumed)
        cached_leave(f->resumed);
    drop_record(f);
    free(f);
}

void flight_hold(struct flight *f)
{
    f->n_busy++;
}

void flight_release(struct flight *f)
{
    if (--f->n_busy == 0 && f->is_over)
        flight_end(f);
}

/* Ends a flight without waiters. */
static void abandon(struct flight *f)
{
    const struct response_cache *c = f->cache;
    if (f->is_below)
        c->below.cancel(c->below.self, f->below_id, -1);
    f->is_below = false;
    flight_end(f);
}

void flight_leave(struct waiter *a)
{
    struct flight *f = a->flight;
    waiter_end(a);
    if (f && f->waiters.n == 0 && !f->is_over)
        abandon(f);
}

void flight_go_direct(struct flight *f)
{
    struct waiter *a;
    flight_unlist(f);
    if (!f->writer)
        return;
    for (a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false))
        waiter_tell(a, true);
    drop_record(f);
    for (a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false))
        a->written = NULL;
}

void flight_hand_over(struct flight *f, struct cached *k, bool all)
{
    struct response_cache *c = f->cache;
    struct waiter *a;
    while ((a = TAILQ_FIRST(&f->waiters.head))) {
        waiter_move(a, &c->replays);
        a->flight = NULL;
        a->written = NULL;
        a->cached = k;
        cached_read(k);
        if (all || !a->behind)
            waiter_tell(a, false);
    }
}

uint32_t flight_max_age(const struct flight *f)
{
    return TAILQ_FIRST(&f->waiters.head)->max_age_s;
}

struct flight *flight_new(struct response_cache *c, const struct key256 *key, const struct request_spec *spec,
                          const struct completion_terms *terms, bool looks)
{
    struct flight *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->cache = c;
    f->key = *key;
    f->domain = terms->domain;
    f->ttl_s = terms->ttl_s;
    f->n_clears = c->n_clears;
    keep_numbers(f, spec);
    f->is_unseeded = cache_is_unseeded(spec);
    f->is_unbounded = !terms->is_bounded;
    f->is_cached = !terms->no_store && (!f->is_unseeded || c->unseeded || c->store);
    waiter_list_init(&f->waiters);
    f->writer = f->is_cached ? calloc(1, sizeof *f->writer) : NULL;
    if (f->is_cached && !f->writer) {
        free(f);
        return NULL;
    }
    f->is_listed = f->is_cached && looks && !id_map_find(&c->flights, flight_id(key)) &&
                   id_map_add(&c->flights, flight_id(key), (uintptr_t)f) == QUIRE_OK;
    return f;
}
