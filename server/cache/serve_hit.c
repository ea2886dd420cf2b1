/* Decides whether a cached response may be served to a request, and serves it. */
#include "server/cache/cache_internal.h"

#include <string.h>

bool hit_fits(const struct answer *answer, const struct request_spec *spec)
{
    return answer->n_choices == spec->n && answer->n_prompt == spec->n_prompt &&
           answer->n_generated <= (uint64_t)spec->max_tokens * spec->n;
}

int64_t hit_age(const struct answer *answer, int64_t now_s)
{
    return now_s > answer->created_s ? now_s - answer->created_s : 0;
}

bool hit_is_young(const struct answer *answer, uint32_t max_age_s, int64_t now_s)
{
    return max_age_s == 0 || hit_age(answer, now_s) < max_age_s; /* age in whole seconds, valid through the last one */
}

struct cached *hit_found(struct response_cache *c, const struct key256 *key, const struct store_entry *e,
                         const struct request_spec *spec, uint32_t max_age_s)
{
    struct answer answer;
    struct quire_error err;
    struct buffer copy = {0};
    const int64_t now = cache_wall_ms() / 1000;
    if (answer_check(e->bytes, e->n, key, c->n_vocab, &answer, &err) != QUIRE_OK ||
        (spec && !hit_fits(&answer, spec))) {
        c->counts.n_unsound++;
        c->store->ops->remove(c->store, *key);
        return NULL;
    }
    if (!answer_is_timely(answer.created_s, e->expires_s, now) || !hit_is_young(&answer, max_age_s, now) ||
        (answer.unseeded && !c->unseeded) || buffer_append(&copy, e->bytes, e->n))
        return NULL;
    answer_moved(&answer, e->bytes, copy.data);
    struct cached *k = cached_new(&copy, &answer, e->expires_s * 1000);
    if (k)
        k->n_hits = e->hits + 1;
    return k;
}

void hit_count(struct response_cache *c, const struct answer *answer)
{
    c->counts.n_prompt_tokens_saved += answer->n_prompt;
    c->counts.n_cached_tokens_saved += answer->n_cached;
    c->counts.n_tokens_saved += answer->n_generated;
    c->counts.seconds_saved += (double)answer->took_us * 1e-6;
    c->counts.n_unseeded_hits += answer->unseeded;
}

void hit_mark(const struct key256 *key, uint32_t ttl_s, struct request_spec *spec)
{
    spec->keep_us = (uint64_t)ttl_s * 1000000;
    spec->keep_name = hit_report_name(key);
}

void hit_count_memory(struct response_cache *c, struct cached *k)
{
    memory_layer_use(c->memory, k);
    hit_report_add(c->hit_report, &k->answer.key, k->n_hits);
    if (c->store)
        c->store->ops->hit(c->store, k->answer.key);
    hit_count(c, &k->answer);
}

void hit_begin(struct response_cache *c, struct waiter *a, const struct answer *answer, const char *layer)
{
    const int64_t age = hit_age(answer, cache_wall_ms() / 1000);
    a->origin = (struct completion_origin){.from = COMPLETION_CACHED,
                                           .layer = layer,
                                           .age_s = age > UINT32_MAX ? UINT32_MAX : (uint32_t)age,
                                           .unseeded = answer->unseeded,
                                           .key = answer->key};
    a->behind = true;
    a->clock_us = c->replay_pace && a->streams ? quire_now_us() : 0;
}
