#include "server/cache/cache_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- counting ------------------------------------------------------------------------------- */

void response_cache_stats(const struct response_cache *c, struct response_cache_stats *out)
{
    struct similar_stats similar;
    struct store_stats store;
    *out = (struct response_cache_stats){.layers[CACHE_MEMORY] = memory_layer_counts(c->memory, cache_wall_ms()),
                                         .layers[CACHE_STORE].stats = c->counts.store};
    memcpy(out->n_guarded, c->counts.n_guarded, sizeof out->n_guarded);
#define ROW(member, ...) out->member = c->counts.member;
    CACHE_STATS_ROWS(ROW)
#undef ROW
    verifier_counts(c->verifier, &out->n_verified, &out->n_differing);
    if (response_cache_store_stats(c, &store))
        out->layers[CACHE_STORE] = (struct cache_layer){.name = c->store->ops->name,
                                                        .stats = c->counts.store,
                                                        .n_entries = store.n_entries,
                                                        .n_expired = store.n_expired,
                                                        .n_bytes = store.n_bytes,
                                                        .n_evicted = store.n_evicted};
    if (response_cache_similar_stats(c, &similar))
        out->layers[CACHE_SEMANTIC] = similar.layer;
}

bool response_cache_store_stats(const struct response_cache *c, struct store_stats *out)
{
    *out = (struct store_stats){0};
    if (c->store)
        c->store->ops->stats(c->store, out);
    return c->store != NULL;
}

bool response_cache_similar_stats(const struct response_cache *c, struct similar_stats *out)
{
    if (c->similar)
        similar_stats(c->similar, out);
    return c->similar != NULL;
}

/* ---- as a source ---------------------------------------------------------------------------- */

static int cache_submit(void *self, const struct request_spec *spec, const struct completion_terms *terms,
                        const struct completion_events *events, void *context, uint64_t *source_id,
                        struct quire_error *err)
{
    struct response_cache *c = self;
    struct key256 key;
    if (!terms || spec->wants_vector || !c->has_identity || (terms->no_cache && terms->no_store) ||
        !cache_key(&c->identity, spec, terms, &key))
        return c->below.submit(c->below.self, spec, terms, events, context, source_id, err);
    struct waiter *a = waiter_new(c->base, &c->waiters, OUR_ID | c->next_id, terms, events, context);
    if (!a)
        return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    c->next_id++;
    *source_id = a->id;
    int status = flight_ask(c, a, &key, spec, terms, err);
    if (status != QUIRE_OK)
        waiter_end(a);
    return status;
}

static void cache_cancel(void *self, uint64_t source_id, int64_t choice)
{
    struct response_cache *c = self;
    if (!(source_id & OUR_ID)) {
        c->below.cancel(c->below.self, source_id, choice);
        return;
    }
    struct waiter *a = (struct waiter *)id_map_find(&c->waiters, source_id);
    if (!a)
        return;
    if (choice < 0)
        flight_leave(a);
    else
        flight_cut(a, (uint32_t)choice);
}

struct completion_source response_cache_source(struct response_cache *c)
{
    return (struct completion_source){.self = c, .submit = cache_submit, .cancel = cache_cancel};
}

/* ---- replies ---------------------------------------------------------------------------------- */

bool response_cache_find_reply(struct response_cache *c, const struct key256 *alias, struct cached_reply *out)
{
    const uint64_t begun_ns = quire_now_ns();
    const int64_t now = cache_wall_ms();
    const struct rendering *r = c->has_identity ? memory_layer_rendering(c->memory, alias, now) : NULL;
    if (!r || verifier_is_due(c->verifier)) /* the answer itself is looked for later: that is counted */
        return false;
    verifier_pass(c->verifier);
    const struct answer *answer = &r->cached->answer;
    const int64_t age = hit_age(answer, now / 1000);
    *out = (struct cached_reply){.bytes = r->bytes,
                                 .n = r->n,
                                 .n_prompt = answer->n_prompt,
                                 .n_cached = answer->n_cached,
                                 .age_s = age > UINT32_MAX ? UINT32_MAX : (uint32_t)age,
                                 .unseeded = answer->unseeded};
    hit_count_memory(c, r->cached);
    memory_layer_looked(c->memory, true, (double)(quire_now_ns() - begun_ns) * 1e-9);
    return true;
}

bool response_cache_is_paced(const struct response_cache *c)
{
    return c->replay_pace;
}

void response_cache_keep_reply(struct response_cache *c, const struct key256 *key, const struct key256 *alias,
                               const void *bytes, size_t n)
{
    struct cached *k = memory_layer_find(c->memory, key, cache_wall_ms());
    if (k)
        memory_layer_attach(c->memory, k, alias, bytes, n);
}

/* ---- listing ---------------------------------------------------------------------------------- */

struct listing {
    void (*each)(void *context, const struct cached_answer *k);
    void *context;
};

static void list_one(void *context, const struct cached *k)
{
    const struct listing *listing = context;
    const struct answer *a = &k->answer;
    const struct cached_answer listed = {.key = a->key,
                                         .bytes = (const uint8_t *)k->bytes.data,
                                         .n = k->bytes.n,
                                         .created_s = a->created_s,
                                         .expires_s = k->expires_ms / 1000,
                                         .n_hits = k->n_hits,
                                         .n_generated = a->n_generated,
                                         .n_prompt = a->n_prompt,
                                         .unseeded = a->unseeded};
    listing->each(listing->context, &listed);
}

size_t response_cache_list(const struct response_cache *c, size_t from, size_t max_bytes,
                           void (*each)(void *context, const struct cached_answer *k), void *context)
{
    struct listing listing = {each, context};
    return memory_layer_list(c->memory, from, max_bytes, list_one, &listing);
}

bool response_cache_import(struct response_cache *c, const void *bytes, size_t n, int64_t expires_s)
{
    const int64_t now = cache_wall_ms() / 1000;
    struct answer answer;
    struct key256 key;
    struct buffer copy = {0};
    if (!answer_key(bytes, n, &key) || answer_check(bytes, n, &key, c->n_vocab, &answer, NULL) != QUIRE_OK ||
        !answer_is_timely(answer.created_s, expires_s, now) || (answer.unseeded && !c->unseeded) ||
        buffer_append(&copy, bytes, n))
        return false;
    answer_moved(&answer, bytes, copy.data);
    struct cached *k = cached_new(&copy, &answer, expires_s * 1000);
    if (!k)
        return false;
    memory_layer_add(c->memory, k);
    const int64_t created_s = answer.created_s > 0 && answer.created_s < now ? answer.created_s : now;
    const int64_t ttl_s = expires_s - created_s;
    if (c->store)
        c->store->ops->put(c->store, key, (const uint8_t *)k->bytes.data, k->bytes.n, created_s,
                           ttl_s < UINT32_MAX ? (uint32_t)ttl_s : UINT32_MAX, (uint32_t)answer.n_generated,
                           (struct key256){{0}});
    cached_leave(k);
    return true;
}

/* ---- clearing ------------------------------------------------------------------------------- */

struct clearing {
    TAILQ_ENTRY(clearing) link;
    struct response_cache *cache;
    void (*done)(void *context, bool ok, uint64_t n_removed);
    void *context;
    uint64_t n_removed;
};

static void clearing_free(struct clearing *clearing)
{
    TAILQ_REMOVE(&clearing->cache->clearings, clearing, link);
    free(clearing);
}

/* Entries in memory are mostly in the store too. */
static void on_cleared(void *context, bool ok, uint64_t n_removed)
{
    const struct clearing clearing = *(struct clearing *)context;
    clearing_free(context);
    clearing.done(clearing.context, ok, clearing.n_removed > n_removed ? clearing.n_removed : n_removed);
}

void response_cache_clear(struct response_cache *c, void (*done)(void *context, bool ok, uint64_t n_removed),
                          void *context)
{
    const uint64_t n = memory_layer_clear(c->memory);
    if (c->similar)
        similar_clear(c->similar);
    hit_report_add(c->hit_report, &(struct key256){{0}}, 0);
    c->n_clears++;
    struct clearing *clearing = c->store ? malloc(sizeof *clearing) : NULL;
    if (!clearing) {
        done(context, c->store == NULL, n);
        return;
    }
    *clearing = (struct clearing){.cache = c, .done = done, .context = context, .n_removed = n};
    TAILQ_INSERT_TAIL(&c->clearings, clearing, link);
    c->store->ops->clear(c->store, on_cleared, clearing);
}

/* ---- opening and closing -------------------------------------------------------------------- */

#define CLOSE_WAIT_MS 5000 /* for what was put to be acknowledged */

static void close_store(struct response_cache *c, uint32_t wait_ms)
{
    if (c->store)
        c->store->ops->close(c->store, wait_ms);
    c->store = NULL;
    while (!TAILQ_EMPTY(&c->clearings)) /* no callback will report that they are done */
        clearing_free(TAILQ_FIRST(&c->clearings));
}

static void on_differing(void *context, struct cached *k)
{
    struct response_cache *c = context;
    if (c->store)
        c->store->ops->remove(c->store, k->answer.key);
    if (c->similar)
        similar_remove(c->similar, &k->answer.key);
    memory_layer_remove(c->memory, k);
}

int response_cache_open(struct event_base *base, const struct response_cache_options *o, struct response_cache **out,
                        struct quire_error *err)
{
    struct response_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    c->base = base;
    c->ttl_s = o->ttl_s ? o->ttl_s : RESPONSE_CACHE_TTL_S;
    c->unseeded = o->unseeded;
    c->replay_pace = o->replay_pace;
    c->open_store = o->open_store;
    c->store_context = o->context;
    waiter_list_init(&c->replays);
    TAILQ_INIT(&c->clearings);
    c->verifier = verifier_new(
        &(struct verifier_options){.share = o->verify, .below = &c->below, .on_differing = on_differing, .context = c});
    c->hit_report = hit_report_new(base, &c->below);
    int status = c->verifier && c->hit_report
                     ? memory_layer_open(o->max_entries ? o->max_entries : RESPONSE_CACHE_ENTRIES,
                                         o->max_bytes ? o->max_bytes : RESPONSE_CACHE_BYTES, &c->memory, err)
                     : quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    if (status != QUIRE_OK) {
        response_cache_close(c);
        return status;
    }
    *out = c;
    return QUIRE_OK;
}

void response_cache_close(struct response_cache *c)
{
    if (!c)
        return;
    verifier_free(c->verifier);
    hit_report_free(c->hit_report);
    similar_close(c->similar);
    close_store(c, CLOSE_WAIT_MS);
    memory_layer_close(c->memory);
    id_map_free(&c->waiters);
    id_map_free(&c->flights);
    free(c);
}

void response_cache_compare(struct response_cache *c, struct similar *similar)
{
    similar_close(c->similar);
    c->similar = similar;
    if (similar && c->was_told)
        similar_answered_by(similar, &c->identity);
}

void response_cache_await_below(struct response_cache *c, struct completion_source below)
{
    verifier_stop(c->verifier);
    c->below = below;
}

bool response_cache_is_of(const struct response_cache *c, const struct key256 *identity)
{
    return identity && c->was_told && memcmp(identity, &c->identity, sizeof *identity) == 0;
}

void response_cache_set_below(struct response_cache *c, struct completion_source below, const struct key256 *identity,
                              uint32_t n_vocab)
{
    const bool is_another = identity && (!c->was_told || memcmp(identity, &c->identity, sizeof *identity) != 0);
    verifier_stop(c->verifier);
    c->below = below;
    c->has_identity = identity != NULL;
    c->n_vocab = n_vocab;
    if (!is_another)
        return;
    c->was_told = true;
    c->identity = *identity;
    memory_layer_clear(c->memory);
    hit_report_drop(c->hit_report);
    close_store(c, 0); /* the loop goes on, and those answers are no longer requested */
    if (c->open_store)
        c->store = c->open_store(c->store_context, identity);
    if (c->similar)
        similar_answered_by(c->similar, identity);
}
