/* A flight: one computation and all its waiters.
 *
 * It records the events of the source below and delivers them to each waiter at the waiter's own pace, so that a
 * late waiter first receives the earlier events and then continues with the others. If no other request may join and
 * the answer is not cached, events are passed on without a record (writer is NULL). */
#include "server/cache/flight_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/cache/resume.h"

#include <stdlib.h>
#include <string.h>

#define SPACE_FOR_THE_END ((size_t)16 << 10) /* space of an answer that is reserved for the end of each choice */

void flight_cut(struct waiter *a, uint32_t choice)
{
    struct flight *f = a->flight;
    if (!f || !f->is_below || choice >= f->n || f->is_cut[choice])
        return;
    struct response_cache *c = f->cache;
    f->is_cut[choice] = true;
    f->is_cached = f->is_cached && a->cuts_alike;
    c->below.cancel(c->below.self, f->below_id, choice);
}

/* ---- it failed ------------------------------------------------------------------------------ */

/* A waiter that joined and has received nothing starts its own computation, because the first request may have had
 * less time or a lower priority. */
static bool ask_again(struct response_cache *c, struct waiter *a, const struct key256 *key, struct quire_error *err)
{
    if (!a->request || a->tried_again || a->told_events)
        return false;
    a->tried_again = true;
    a->flight = NULL;
    a->written = NULL;
    a->cursor = 0;
    a->behind = false;
    struct waiter_request *r = a->request;
    a->request = NULL;
    const bool ok = flight_ask(c, a, key, r->spec, &r->terms, err) == QUIRE_OK;
    waiter_request_free(r);
    return ok;
}

struct failure { /* one of these */
    const struct wire_refuse *refuse;
    const struct wire_done *done;
    const char *lost;
};

static void fail(struct flight *f, struct failure how)
{
    struct waiter *a;
    struct quire_error err;
    const struct key256 key = f->key;
    flight_hold(f);
    f->is_below = false;
    flight_go_direct(f);
    f->cache->counts.n_not_stored++;
    struct waiter_list all;
    waiter_list_init(&all);
    while ((a = TAILQ_FIRST(&f->waiters.head)))
        waiter_move(a, &all);
    while ((a = TAILQ_FIRST(&all.head))) {
        if (ask_again(f->cache, a, &key, &err))
            continue;
        if (how.refuse)
            waiter_refused(a, how.refuse);
        else if (how.done)
            waiter_done(a, how.done);
        else
            waiter_lost(a, how.lost);
    }
    flight_end(f);
    flight_release(f);
}

/* The source below still computes, and its events must not reach a flight that is over. */
static void fail_no_memory(struct flight *f)
{
    static const char why[] = "the response cache: out of memory";
    struct response_cache *c = f->cache;
    if (f->is_below)
        c->below.cancel(c->below.self, f->below_id, -1);
    fail(f, (struct failure){.refuse = &(struct wire_refuse){
                                 .status = QUIRE_NO_MEMORY, .message = why, .n_message = sizeof why - 1}});
}

/* ---- events of the source below --------------------------------------------------------------- */

static void tell_all(struct flight *f)
{
    for (struct waiter *a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false))
        if (!a->behind)
            waiter_tell(a, false);
}

/* It begins as an answer that is kept: from there on it is computed. */
static void tell_resumed(struct flight *f)
{
    struct answer_event e;
    size_t cursor = 0;
    struct cached *k = f->resumed;
    f->resumed = NULL;
    f->cache->counts.n_resumed++;
    f->cache->counts.n_tokens_resumed += k->answer.n_generated;
    while (answer_next(k->answer.events, &cursor, &e)) {
        if (e.kind != ANSWER_TOKEN)
            continue;
        f->n_tokens[0]++;
        answer_token(f->writer, &e.token, quire_now_us());
    }
    cached_leave(k);
    if (f->writer->bytes.failed)
        fail_no_memory(f);
    else
        tell_all(f);
}

static void on_accepted(void *context, uint64_t engine_id)
{
    struct flight *f = context;
    flight_hold(f);
    f->is_accepted = true;
    f->engine_id = engine_id;
    for (struct waiter *a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false))
        waiter_accepted(a, engine_id);
    if (f->resumed && f->writer && !f->is_over)
        tell_resumed(f);
    flight_release(f);
}

static void on_refused(void *context, const struct wire_refuse *refuse)
{
    fail(context, (struct failure){.refuse = refuse});
}

static void on_lost(void *context, const char *why)
{
    fail(context, (struct failure){.lost = why});
}

static void take_token(struct flight *f, const struct wire_token *token, bool of_prompt)
{
    if (!of_prompt && (token->choice >= f->n || f->is_cut[token->choice]))
        return; /* on its way when the choice was cut */
    flight_hold(f);
    if (!of_prompt)
        f->n_tokens[token->choice]++;
    if (f->writer && f->writer->bytes.n > ANSWER_MAX_BYTES - SPACE_FOR_THE_END)
        flight_go_direct(f);
    if (!f->writer) {
        for (struct waiter *a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false))
            waiter_token(a, token, of_prompt);
    } else {
        if (of_prompt)
            answer_prompt_logprob(f->writer, token, quire_now_us());
        else
            answer_token(f->writer, token, quire_now_us());
        if (f->writer->bytes.failed)
            fail_no_memory(f);
        else
            tell_all(f);
    }
    flight_release(f);
}

static void on_token(void *context, const struct wire_token *token)
{
    take_token(context, token, false);
}

static void on_prompt_logprob(void *context, const struct wire_token *token)
{
    take_token(context, token, true);
}

static void keep(struct flight *f, struct cached *k, uint32_t ttl_s)
{
    struct response_cache *c = f->cache;
    struct answer_store *store = c->store;
    const uint64_t n = k->answer.n_generated;
    c->counts.n_stored++;
    /* One that may not be given again in this process' time has no place in its memory. */
    if (!f->is_unseeded || c->unseeded)
        memory_layer_add(c->memory, k);
    if (store)
        store->ops->put(store, f->key, (const uint8_t *)k->bytes.data, k->bytes.n, k->answer.created_s, ttl_s,
                        n > UINT32_MAX ? UINT32_MAX : (uint32_t)n, f->domain);
    if (f->has_any_length)
        resume_keep(c->memory, k, &f->any_length, cache_wall_ms());
    if (f->question && f->question->similar)
        similar_keep(c->similar, f->question->similar, &f->key, k->expires_ms);
}

/* The last choice is over, and written down. */
static void finish(struct flight *f)
{
    struct response_cache *c = f->cache;
    const int64_t now_ms = cache_wall_ms();
    const uint32_t ttl_s = f->ttl_s ? f->ttl_s : c->ttl_s;
    struct answer answer;
    struct buffer bytes;
    struct cached *k = NULL;
    f->is_below = false;
    flight_unlist(f);
    if (answer_end(f->writer, now_ms / 1000, f->is_unseeded, &bytes, &answer))
        k = cached_new(&bytes, &answer, now_ms + (int64_t)ttl_s * 1000);
    if (!k) {
        fail_no_memory(f);
        return;
    }
    if (f->is_cached && !flight_is_cleared(f))
        keep(f, k, ttl_s);
    else
        c->counts.n_not_stored++;
    flight_hand_over(f, k, false);
    cached_leave(k);
    flight_end(f);
}

static void hand_on_done(struct flight *f, const struct wire_done *done)
{
    if (done->last) {
        f->is_below = false;
        f->cache->counts.n_not_stored++;
    }
    for (struct waiter *a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false))
        waiter_done(a, done);
    if (done->last && !f->is_over)
        flight_end(f);
}

/* A waiter that has received nothing may start again after an error, as after a rejection. */
static bool is_first_word(const struct flight *f, const struct wire_done *done)
{
    return done->finish >= WIRE_FINISH_CANCELLED && done->last && f->writer && f->writer->n_generated == 0 &&
           f->waiters.n > 1;
}

static void on_done(void *context, const struct wire_done *done)
{
    struct flight *f = context;
    struct wire_done said = *done;
    const bool sane = done->choice < f->n;
    const bool cut = sane && f->is_cut[done->choice];
    flight_hold(f);
    if (f->question && f->question->is_drafted)
        similar_drafted(f->cache->similar, f->question->match.similarity, done->n_predicted, done->n_predicted_right);
    if (is_first_word(f, done)) {
        fail(f, (struct failure){.done = done});
    } else if (!f->writer || !sane || (done->finish >= WIRE_FINISH_CANCELLED && !cut)) {
        f->is_cached = false;
        flight_go_direct(f);
        hand_on_done(f, done);
    } else {
        /* Shorter than was asked: a limit that the request did not set. */
        if (done->finish == WIRE_FINISH_LENGTH && !cut &&
            (f->is_unbounded || f->n_tokens[done->choice] < f->max_tokens))
            f->is_cached = false;
        said.n_generated = f->n_tokens[done->choice];
        said.n_prompt = f->n_prompt;
        if (said.n_cached > f->n_prompt)
            said.n_cached = f->n_prompt;
        if (said.n_created > f->n_prompt)
            said.n_created = f->n_prompt;
        if (cut) { /* how far it had come by then is chance */
            said.finish = WIRE_FINISH_CANCELLED;
            said.has_stop_token = false;
            said.stop_token = 0;
        }
        answer_done(f->writer, &said, quire_now_us());
        if (f->writer->bytes.failed)
            fail_no_memory(f);
        else if (done->last)
            finish(f);
        else
            tell_all(f);
    }
    flight_release(f);
}

static const struct completion_events events = {
    .on_accepted = on_accepted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_done = on_done,
    .on_lost = on_lost,
};

/* ---- asking --------------------------------------------------------------------------------- */

static bool serve_from_memory(struct response_cache *c, struct waiter *a, const struct key256 *key,
                              const struct request_spec *spec)
{
    const uint64_t begun_ns = quire_now_ns();
    const int64_t now_ms = cache_wall_ms();
    struct cached *k = memory_layer_find(c->memory, key, now_ms);
    if (k && (!hit_fits(&k->answer, spec) || !hit_is_young(&k->answer, a->max_age_s, now_ms / 1000)))
        k = NULL;
    const uint64_t ended_ns = quire_now_ns();
    memory_layer_looked(c->memory, k, (double)(ended_ns - begun_ns) * 1e-9);
    completion_looked(&a->lookups, (struct completion_lookup){"memory", begun_ns, ended_ns, k});
    if (!k)
        return false;
    hit_count_memory(c, k);
    hit_begin(c, a, &k->answer, "memory");
    a->cached = k;
    cached_read(k);
    verifier_served(c->verifier, k, spec);
    waiter_move(a, &c->replays);
    waiter_tell(a, false);
    return true;
}

static int join(struct flight *f, struct waiter *a, const struct request_spec *spec,
                const struct completion_terms *terms, struct quire_error *err)
{
    int status = waiter_keep_request(a, spec, terms, err);
    if (status != QUIRE_OK)
        return status;
    f->cache->counts.n_joined++;
    a->origin = (struct completion_origin){.from = COMPLETION_JOINED, .layer = "flight", .key = f->key};
    a->flight = f;
    a->written = f->writer;
    a->behind = true;
    if (!terms->no_store && terms->ttl_s > f->ttl_s)
        f->ttl_s = terms->ttl_s;
    waiter_move(a, &f->waiters);
    if (f->is_accepted)
        waiter_tell_accepted(a, f->engine_id);
    else
        waiter_tell(a, false);
    return QUIRE_OK;
}

/* An answer that is kept begins this one: then only what follows it is computed. */
static void resume(struct flight *f, const struct request_spec *spec)
{
    struct response_cache *c = f->cache;
    if (!f->has_any_length || !f->writer || flight_is_cleared(f))
        return;
    const uint64_t begun_ns = quire_now_ns();
    f->resumed = resume_find(c->memory, &f->any_length, spec, cache_wall_ms());
    waiter_looked(&f->waiters, "beginning", begun_ns, quire_now_ns(), f->resumed);
    if (!f->resumed)
        return;
    cached_read(f->resumed);
    memory_layer_use(c->memory, f->resumed);
}

/* To the source below. */
static int submit_below(struct flight *f, const struct request_spec *spec, struct quire_error *err)
{
    struct response_cache *c = f->cache;
    struct request_spec asked = *spec;
    uint32_t *prompt = NULL;
    if (f->resumed && !resume_spec(f->resumed, spec, &asked, &prompt))
        return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    const uint32_t ttl_s = f->ttl_s ? f->ttl_s : c->ttl_s;
    hit_mark(&f->key, f->is_cached ? ttl_s : 0, &asked);
    hit_report_send(c->hit_report);
    int status = c->below.submit(c->below.self, &asked, NULL, &events, f, &f->below_id, err);
    free(prompt);
    return status;
}

static int launch(struct flight *f, const struct request_spec *spec, struct quire_error *err)
{
    struct response_cache *c = f->cache;
    c->counts.n_computed++;
    const struct flight_question *q = f->question;
    if (f->writer)
        answer_begin(f->writer, f->key, spec->n,
                     q ? (struct answer_question){q->text, q->n} : (struct answer_question){0}, quire_now_us());
    f->is_below = true;
    int status = submit_below(f, spec, err);
    if (status != QUIRE_OK)
        f->is_below = false;
    return status;
}

static void launch_later(struct flight *f)
{
    struct quire_error err;
    flight_hold(f);
    int status = launch(f, f->spec, &err);
    flight_drop_spec(f);
    if (status != QUIRE_OK)
        fail(f, (struct failure){.refuse = &(struct wire_refuse){
                                     .status = (uint32_t)status, .message = err.text, .n_message = strlen(err.text)}});
    flight_release(f);
}

/* ---- similar questions ----------------------------------------------------------------------- */

/* k: the answer to a similar question; NULL if none was found. If the computation has not started, k may be served
 * as the answer. Otherwise, or if serving is not allowed, k becomes the draft of the computation. */
static void similar_found(struct flight *f, struct cached *k)
{
    flight_hold(f);
    const bool waits = f->is_looking;
    f->is_looking = false;
    if (k && waits && flight_question_fits(f, &k->answer)) {
        flight_question_serve(f, k);
    } else {
        if (waits)
            launch_later(f);
        if (k && !f->is_over)
            flight_question_predict(f, &k->answer);
        if (!f->is_over)
            waiter_tell_again(&f->waiters);
    }
    flight_release(f);
}

static void on_similar_looked(void *context, enum store_found found, const uint8_t *bytes, size_t n, int64_t created_s,
                              int64_t expires_s, uint64_t hits)
{
    struct flight *f = context;
    const struct store_entry entry = {bytes, n, expires_s, hits};
    (void)created_s;
    f->lookup = NULL;
    struct cached *k = found == STORE_FOUND ? hit_found(f->cache, &f->question->match.answer, &entry, NULL, 0) : NULL;
    waiter_looked(&f->waiters, f->cache->store->ops->name, f->looked_ns, quire_now_ns(), k);
    if (k && !flight_is_cleared(f))
        memory_layer_add(f->cache->memory, k);
    if (!k && found != STORE_AWAY)
        similar_remove(f->cache->similar, &f->question->match.answer);
    similar_found(f, k);
    if (k)
        cached_leave(k);
}

/* The nearest question that was answered, if one is near; its answer may have gone by now. */
static void on_similar(void *context, const struct similar_match *match)
{
    struct flight *f = context;
    struct response_cache *c = f->cache;
    const struct similar_times t = similar_ask_times(f->question->similar);
    waiter_looked(&f->waiters, "embedding", t.begun_ns, t.embedded_ns, t.looked_ns > 0);
    if (t.looked_ns > 0)
        waiter_looked(&f->waiters, "similar", t.embedded_ns, t.looked_ns, match);
    f->looked_ns = quire_now_ns();
    struct cached *k = match && !flight_is_cleared(f) ? memory_layer_find(c->memory, &match->answer, cache_wall_ms())
                                                      : NULL;
    if (match)
        waiter_looked(&f->waiters, "memory", f->looked_ns, quire_now_ns(), k);
    if (match)
        f->question->match = *match;
    f->looked_ns = quire_now_ns();
    if (match && !k && c->store && TAILQ_EMPTY(&c->clearings))
        f->lookup = c->store->ops->get(c->store, match->answer, on_similar_looked, f);
    if (f->lookup)
        return;
    if (match && !k && !c->store)
        similar_remove(c->similar, &match->answer);
    if (k)
        cached_read(k);
    similar_found(f, k);
    if (k)
        cached_leave(k);
}

/* A similar question is looked for: before anything is computed where that may spare it, else meanwhile. */
static bool look_similar(struct flight *f, bool is_before)
{
    struct flight_question *q = f->question;
    if (!q || !q->is_compared || flight_question_holds(f) != is_before)
        return false;
    q->similar = similar_ask(f->cache->similar, &q->around, q->text, q->n, f->tenant, on_similar, f);
    f->is_looking = is_before && q->similar;
    return q->similar != NULL;
}

static void on_looked(void *context, enum store_found found, const uint8_t *bytes, size_t n, int64_t created_s,
                      int64_t expires_s, uint64_t hits)
{
    struct flight *f = context;
    struct response_cache *c = f->cache;
    (void)created_s; /* the answer says it itself */
    f->lookup = NULL;
    f->is_looking = false;
    cache_observe(&c->counts.store.latency, (double)(quire_now_ns() - f->looked_ns) * 1e-9);
    struct cached *k = found == STORE_FOUND ? hit_found(c, &f->key, &(struct store_entry){bytes, n, expires_s, hits},
                                                        f->spec, flight_max_age(f))
                                            : NULL;
    waiter_looked(&f->waiters, c->store->ops->name, f->looked_ns, quire_now_ns(), k);
    if (!k) {
        c->counts.store.n_misses++;
        if (look_similar(f, true))
            return;
        flight_hold(f);
        launch_later(f);
        if (!f->is_over)
            look_similar(f, false);
        flight_release(f);
        return;
    }
    flight_hold(f);
    c->counts.store.n_hits++;
    c->store->ops->hit(c->store, f->key);
    flight_unlist(f);
    if (!flight_is_cleared(f))
        memory_layer_add(c->memory, k);
    for (struct waiter *a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false)) {
        hit_count(c, &k->answer);
        hit_begin(c, a, &k->answer, c->store->ops->name);
    }
    flight_hand_over(f, k, true);
    cached_leave(k);
    flight_end(f);
    flight_release(f);
}

/* Queries the store. Returns false if no store exists or it cannot be queried. */
static bool look_store(struct flight *f)
{
    struct response_cache *c = f->cache;
    struct answer_store *store = c->store;
    /* During a clear the store is not queried, because it would still find the old entries. */
    if (!store || !TAILQ_EMPTY(&c->clearings))
        return false;
    c->counts.store.n_lookups++;
    f->looked_ns = quire_now_ns();
    f->lookup = store->ops->get(store, f->key, on_looked, f);
    f->is_looking = f->lookup != NULL;
    c->counts.store.n_misses += !f->is_looking;
    return f->is_looking;
}

/* Starts the slow lookups before anything is computed. Returns false if no lookup is needed. */
static bool look(struct flight *f, const struct request_spec *spec)
{
    struct request_spec copy;
    if ((!f->cache->store && !flight_question_holds(f)) || request_spec_copy(&copy, spec, NULL) != QUIRE_OK)
        return false;
    f->spec = malloc(sizeof *f->spec);
    if (!f->spec) {
        request_spec_free(&copy);
        return false;
    }
    *f->spec = copy;
    if (look_store(f) || look_similar(f, true))
        return true;
    flight_drop_spec(f);
    return false;
}

static int begin(struct response_cache *c, struct waiter *a, const struct key256 *key, const struct request_spec *spec,
                 const struct completion_terms *terms, bool looks, struct quire_error *err)
{
    struct flight *f = flight_new(c, key, spec, terms, looks);
    if (!f)
        return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
    waiter_move(a, &f->waiters);
    a->origin = (struct completion_origin){.from = COMPLETION_COMPUTED, .layer = "", .key = *key};
    a->flight = f;
    a->written = f->writer;
    f->n_prompt = spec->n_prompt;
    f->has_any_length = resume_key(&c->identity, spec, terms, &f->any_length);
    if (looks)
        resume(f, spec);
    if (looks)
        flight_question_take(f, spec, terms);
    if (looks && look(f, spec))
        return QUIRE_OK;
    flight_hold(f);
    int status = launch(f, spec, err);
    if (status != QUIRE_OK) {
        waiter_move(a, &c->replays);
        a->flight = NULL;
        a->written = NULL;
        flight_end(f);
    }
    if (!f->is_over)
        look_similar(f, false);
    flight_release(f);
    return status;
}

int flight_ask(struct response_cache *c, struct waiter *a, const struct key256 *key, const struct request_spec *spec,
               const struct completion_terms *terms, struct quire_error *err)
{
    const bool looks = !terms->no_cache && (!cache_is_unseeded(spec) || c->unseeded);
    struct flight *f = looks ? flight_find(c, key, spec->background) : NULL;
    if (looks && serve_from_memory(c, a, key, spec))
        return QUIRE_OK;
    if (f && !(f->is_looking && a->max_age_s > 0))
        return join(f, a, spec, terms, err);
    return begin(c, a, key, spec, terms, looks, err);
}
