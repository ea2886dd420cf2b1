#include "client.h"

#include "engine/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct client {
    struct engine *engine;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct answer *answers;
    uint64_t next_id;
    bool pause, paused;
    uint64_t order_done;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "test client: %s: %s\n", what, why);
    abort();
}

static void *grow(void *p, size_t n)
{
    p = realloc(p, n);
    if (!p)
        fail("memory", "none left");
    return p;
}

static void record_add(struct record *r, const void *data, size_t n)
{
    if (n == 0)
        return;
    if (r->n + n > r->capacity) {
        r->capacity = 2 * r->capacity + n;
        r->bytes = grow(r->bytes, r->capacity);
    }
    memcpy(r->bytes + r->n, data, n);
    r->n += n;
}

static void record_event(struct record *r, const struct engine_event *e)
{
    record_add(r, &e->token, sizeof e->token);
    record_add(r, &e->position, sizeof e->position);
    if (!e->has_logprob)
        return;
    const struct engine_logprob *l = &e->logprob;
    record_add(r, &l->logprob, sizeof l->logprob);
    record_add(r, &l->rank, sizeof l->rank);
    record_add(r, &l->n_top, sizeof l->n_top);
    record_add(r, l->top_ids, l->n_top * sizeof *l->top_ids);
    record_add(r, l->top_logprobs, l->n_top * sizeof *l->top_logprobs);
}

/* ---- the sink -------------------------------------------------------------------------------- */

static struct answer *find(struct client *c, uint64_t id)
{
    for (struct answer *a = c->answers; a; a = a->next)
        if (a->id == id)
            return a;
    fail("sink", "an event of an unknown request");
    return NULL;
}

static void take_token(struct choice_answer *choice, const struct engine_event *e)
{
    size_t n = choice->n_tokens + 1;
    choice->tokens = grow(choice->tokens, n * sizeof *choice->tokens);
    choice->logprobs = grow(choice->logprobs, n * sizeof *choice->logprobs);
    choice->tokens[n - 1] = e->token;
    choice->logprobs[n - 1] = e->has_logprob ? e->logprob.logprob : 0;
    choice->n_tokens++;
    record_event(&choice->record, e);
}

static void take_done(struct answer *a, struct choice_answer *choice, const struct engine_event *e)
{
    choice->done = true;
    choice->finish = e->finish;
    choice->has_stop_token = e->has_stop_token;
    choice->stop_token = e->token;
    choice->n_cached = e->n_cached;
    choice->n_generated = e->n_generated;
    choice->n_cache_created = e->n_cache_created;
    choice->retry_after_ms = e->retry_after_ms;
    choice->account = *e->account;
    choice->status = e->status;
    choice->parameter = e->parameter;
    if (e->message)
        snprintf(choice->message, sizeof choice->message, "%s", e->message);
    if (e->n_generated != choice->n_tokens || e->n_prompt != a->n_prompt)
        fail("sink", "DONE counts other tokens than came");
    bool all = true;
    for (uint32_t i = 0; i < a->n; i++)
        all = all && a->choices[i].done;
    if (e->last != all)
        fail("sink", "`last` is not on the last DONE");
    a->over = e->last;
}

static void sink(void *context, const struct engine_event *events, size_t n_events)
{
    struct client *c = context;
    pthread_mutex_lock(&c->mutex);
    while (c->pause) {
        c->paused = true;
        pthread_cond_broadcast(&c->changed);
        pthread_cond_wait(&c->changed, &c->mutex);
    }
    c->paused = false;
    for (size_t i = 0; i < n_events; i++) {
        const struct engine_event *e = &events[i];
        if (e->kind == ENGINE_EVENT_ORDER) {
            c->order_done = e->order;
            continue;
        }
        struct answer *a = find(c, e->request);
        struct choice_answer *choice = &a->choices[e->choice];
        if (a->over || choice->done)
            fail("sink", "an event after DONE");
        if (e->kind == ENGINE_EVENT_TOKEN) {
            take_token(choice, e);
        } else if (e->kind == ENGINE_EVENT_DONE) {
            take_done(a, choice, e);
        } else {
            if (e->position != ++a->n_prompt_logprobs || e->choice != 0)
                fail("sink", "prompt logprobs out of order");
            a->prompt_logprobs[e->position] = e->logprob.logprob;
            record_event(&a->prompt_record, e);
        }
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- open, close ----------------------------------------------------------------------------- */

int rank_main(void)
{
    struct quire_error err;
    if (engine_work(NULL, NULL, NULL, &err) == QUIRE_OK)
        return 0;
    fprintf(stderr, "rank: %s\n", err.text);
    return 1;
}

struct client *client_try_open(const char *model, const struct engine_options *options, struct quire_error *err)
{
    struct client *c = calloc(1, sizeof *c);
    struct engine_options o = *options;
    if (!c)
        fail("memory", "none left");
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->next_id = CLIENT_FIRST_ID;
    o.model_dir = model;
#ifdef TEST_DEVICE /* in builds for a device */
    if (!o.device || strcmp(o.device, "auto") == 0)
        o.device = TEST_DEVICE;
#endif
    if (engine_open(&o, sink, c, &c->engine, err) != QUIRE_OK) {
        client_close(c);
        return NULL;
    }
    return c;
}

struct client *client_open(const char *model, const struct engine_options *options)
{
    struct quire_error err;
    struct client *c = client_try_open(model, options, &err);
    if (!c)
        fail(model, err.text);
    return c;
}

void client_stop_engine(struct client *c)
{
    engine_close(c->engine);
    c->engine = NULL;
}

void client_close(struct client *c)
{
    client_stop_engine(c);
    for (struct answer *a = c->answers, *next; a; a = next) {
        next = a->next;
        for (uint32_t i = 0; i < a->n; i++) {
            free(a->choices[i].tokens);
            free(a->choices[i].logprobs);
            free(a->choices[i].record.bytes);
        }
        free(a->prompt_logprobs);
        free(a->prompt_record.bytes);
        free(a);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

struct engine *client_engine(struct client *c)
{
    return c->engine;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct answer *client_try(struct client *c, const struct request_spec *request, int *status, uint32_t *retry_after_ms,
                          struct quire_error *err)
{
    struct answer *a = calloc(1, sizeof *a);
    if (!a)
        fail("memory", "none left");
    struct request_spec copy;
    if (request_spec_copy(&copy, request, err))
        fail("memory", "none left");
    pthread_mutex_lock(&c->mutex);
    a->id = c->next_id++;
    a->n = request->n <= 128 ? request->n : 0;
    a->n_prompt = request->n_prompt;
    a->prompt_logprobs = calloc((size_t)request->n_prompt + 1, sizeof *a->prompt_logprobs);
    a->next = c->answers;
    c->answers = a;
    pthread_mutex_unlock(&c->mutex);
    *status = engine_submit(c->engine, a->id, &copy, retry_after_ms, err);
    if (*status == QUIRE_OK)
        return a;
    pthread_mutex_lock(&c->mutex);
    struct answer **at = &c->answers;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    pthread_mutex_unlock(&c->mutex);
    free(a->prompt_logprobs);
    free(a);
    return NULL;
}

struct answer *client_submit(struct client *c, const struct request_spec *request)
{
    struct quire_error err;
    int status;
    struct answer *a = client_try(c, request, &status, NULL, &err);
    if (!a)
        fail("submit", err.text);
    return a;
}

static void timed_wait(struct client *c, const char *what)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 120;
    if (pthread_cond_timedwait(&c->changed, &c->mutex, &t) != 0)
        fail(what, "nothing for two minutes");
}

void client_wait(struct client *c, const struct answer *a)
{
    pthread_mutex_lock(&c->mutex);
    while (!a->over)
        timed_wait(c, "wait");
    pthread_mutex_unlock(&c->mutex);
}

void client_wait_tokens(struct client *c, const struct answer *a, uint32_t n)
{
    pthread_mutex_lock(&c->mutex);
    while (!a->over && a->choices[0].n_tokens < n)
        timed_wait(c, "wait for tokens");
    pthread_mutex_unlock(&c->mutex);
}

void client_pause(struct client *c)
{
    pthread_mutex_lock(&c->mutex);
    c->pause = true;
    pthread_mutex_unlock(&c->mutex);
}

void client_wait_paused(struct client *c)
{
    pthread_mutex_lock(&c->mutex);
    while (!c->paused)
        timed_wait(c, "wait for the pause");
    pthread_mutex_unlock(&c->mutex);
}

void client_wait_order(struct client *c, uint64_t order)
{
    pthread_mutex_lock(&c->mutex);
    while (c->order_done < order)
        timed_wait(c, "wait for an order");
    pthread_mutex_unlock(&c->mutex);
}

void client_resume(struct client *c)
{
    pthread_mutex_lock(&c->mutex);
    c->pause = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

void client_predict(struct client *c, const struct answer *a, const uint32_t *tokens, uint32_t n)
{
    uint32_t *ours = malloc((n + 1) * sizeof *ours);
    struct quire_error err;
    if (!ours)
        abort();
    memcpy(ours, tokens, n * sizeof *ours);
    if (engine_predict(c->engine, a->id, ours, n, &err) != QUIRE_OK)
        abort();
}

struct answer *client_ask_late(struct client *c, const struct request_spec *request, const uint32_t *tokens, uint32_t n)
{
    client_pause(c);
    struct answer *a = client_submit(c, request);
    client_wait_paused(c);
    client_predict(c, a, tokens, n);
    client_resume(c);
    client_wait(c, a);
    return a;
}

struct answer *client_ask(struct client *c, const struct request_spec *request)
{
    struct answer *a = client_submit(c, request);
    client_wait(c, a);
    return a;
}

struct engine_stats client_idle_stats(struct client *c)
{
    struct engine_stats stats;
    for (int tries = 0; tries < 20000; tries++) {
        engine_stats(c->engine, &stats);
        if (stats.n_running == 0 && stats.n_waiting == 0)
            return stats;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail("stats", "never idle");
    return stats;
}

struct recorded record_entry(const struct record *r, uint32_t index, uint32_t n_top)
{
    struct recorded out;
    size_t n_list = n_top * sizeof(uint32_t), size = 5 * sizeof(uint32_t) + 2 * n_list;
    if ((index + 1) * size > r->n)
        fail("record", "is shorter");
    const unsigned char *at = r->bytes + index * size;
    memcpy(&out.token, at, sizeof out.token);
    memcpy(&out.position, at + 4, sizeof out.position);
    memcpy(&out.logprob, at + 8, sizeof out.logprob);
    memcpy(&out.rank, at + 12, sizeof out.rank);
    memcpy(&out.n_top, at + 16, sizeof out.n_top);
    memcpy(out.ids, at + 20, n_list);
    memcpy(out.logprobs, at + 20 + n_list, n_list);
    if (out.n_top != n_top)
        fail("record", "has another number of best tokens");
    return out;
}

bool records_equal(const struct record *a, const struct record *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->bytes, b->bytes, a->n) == 0);
}

bool answers_equal(const struct answer *a, const struct answer *b)
{
    bool equal = a->n == b->n && records_equal(&a->prompt_record, &b->prompt_record);
    for (uint32_t i = 0; equal && i < a->n; i++)
        equal = a->choices[i].finish == b->choices[i].finish &&
                records_equal(&a->choices[i].record, &b->choices[i].record);
    return equal;
}

struct request_spec client_request(const uint32_t *prompt, uint32_t n_prompt, uint32_t max_tokens)
{
    struct request_spec r;
    request_spec_default(&r);
    r.prompt = prompt;
    r.n_prompt = n_prompt;
    r.max_tokens = max_tokens;
    r.temperature = 0;
    return r;
}

struct request_spec client_varied_request(uint32_t i, const uint32_t *prompt, uint32_t n_prompt)
{
    struct request_spec r = client_request(prompt, n_prompt, 30 + i);
    r.n = i % 4 == 1 ? 3 : 1;
    r.temperature = i % 3 ? 1.2f : 0;
    r.has_seed = true;
    r.seed = i;
    r.top_p = i % 5 == 2 ? 0.8f : 1;
    r.n_logprobs = (int32_t)(i % 4);
    r.n_prompt_logprobs = i % 6 == 3 ? 1 : -1;
    r.ignore_eos = true;
    r.min_tokens = i % 6 == 4 ? 12 : 0;
    return r;
}

void client_random_prompt(uint32_t *out, uint32_t n, uint32_t n_vocab, uint64_t seed)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        out[i] = (uint32_t)((x >> 33) % n_vocab);
    }
}
