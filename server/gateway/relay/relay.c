#include "server/gateway/relay/relay.h"

#include "base/clock.h"
#include "server/gateway/relay/relay_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PING_MS 15000
#define PAUSED_TICK_MS 10
#define TICK_MS 1000

static const struct {
    const char *path;
    enum relay_api api;
} routes[] = {
    {"/v1/chat/completions", RELAY_CHAT},
    {"/v1/completions", RELAY_COMPLETIONS},
    {"/v1/responses", RELAY_RESPONSES},
    {"/v1/messages", RELAY_MESSAGES},
    {"/v1/messages/count_tokens", RELAY_COUNT_TOKENS},
    {"/v1/embeddings", RELAY_EMBEDDINGS},
    {"/v1/score", RELAY_OTHER},
    {"/score", RELAY_OTHER},
    {"/v1/rerank", RELAY_OTHER},
    {"/v2/rerank", RELAY_OTHER},
    {"/rerank", RELAY_OTHER},
    {"/tokenize", RELAY_OTHER},
    {"/detokenize", RELAY_OTHER},
    {"/v1/cache/pins", RELAY_OTHER},
};

static void next_attempt(struct relay *r);

/* The number of the route; -1: none. A slash at the end is ignored. */
static int route_of(const char *path)
{
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strlen(routes[i].path) == n && memcmp(routes[i].path, path, n) == 0)
            return (int)i;
    return -1;
}

bool relay_has_path(const char *path)
{
    return route_of(path) >= 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The attempt's memory is freed later: it may be in use by the call that ended it. */
static void drop_attempt(struct relay *r)
{
    struct attempt *a = r->now.attempt;
    if (!a)
        return;
    attempt_cancel(a);
    TAILQ_INSERT_TAIL(&r->g->ended, a, link);
    event_active(r->g->bury, EV_TIMEOUT, 0);
    r->now.attempt = NULL;
}

static void free_relay(struct relay *r)
{
    drop_attempt(r);
    TAILQ_REMOVE(&r->g->relays, r, link);
    pool_target_release(r->now.target);
    pool_release(r->pool);
    relay_body_free(r->body);
    free(r->body);
    free(r->part);
    free(r);
}

/* The target's state after the attempt. */
static void settle(struct relay *r, enum target_result result, uint32_t retry_ms)
{
    struct relay_try *now = &r->now;
    const uint64_t now_ms = quire_now_ms();
    if (now->tokens == 0)
        return; /* settled before */
    /* Only answers say how long a model takes to answer. */
    const bool counts = result == TARGET_ANSWERED && r->body->api < RELAY_COUNT_TOKENS;
    const uint32_t latency_ms = counts ? (uint32_t)(now_ms - now->begun_ms) + 1 : 0;
    target_end(&now->target->state, now->tokens, now->is_trial, result, latency_ms, retry_ms, now_ms);
    now->tokens = 0;
    if (result == TARGET_FAILED)
        gateway_wants_probe(r->g);
}

static void fail(struct relay *r, const struct api_error *e)
{
    const struct attempt *a = r->reply.has_text ? r->now.attempt : NULL;
    bill_end(r, a, e->status, e);
    client_error(r, e);
    free_relay(r);
}

static void on_gone(void *context)
{
    struct relay *r = context;
    settle(r, TARGET_CANCELLED, 0);
    bill_end(r, r->now.attempt, 0, NULL);
    free_relay(r);
}

/* ---- an attempt's end ----------------------------------------------------------------------- */

static void answered(struct relay *r, struct attempt_end *end)
{
    struct attempt *a = r->now.attempt;
    struct buffer with = {0};
    struct events_facts facts;
    bill_end(r, a, 200, NULL);
    if (a->is_events) {
        client_end_stream(r);
        free_relay(r);
        return;
    }
    events_read(end->reply->data, end->reply->n, &facts, NULL);
    if (facts.n_usage > 0 && a->usage.is_set && a->model->price.is_set) {
        attempt_put_cost(a, end->reply->data, end->reply->n, &facts, &with);
        if (!with.failed) {
            client_whole(r, end->status, &with);
            buffer_free(&with);
            free_relay(r);
            return;
        }
        buffer_free(&with);
    }
    client_whole(r, end->status, end->reply);
    free_relay(r);
}

/* A 4xx passes as it is, unless it has another API's form. */
static void rejected(struct relay *r, struct attempt_end *end)
{
    const bool is_own = r->now.attempt->settings->kind != GATEWAY_TARGET_URL || !api_is_anthropic(r->path);
    if (!is_own || r->reply.has_begun || end->reply->n == 0) {
        fail(r, &end->e);
        return;
    }
    bill_end(r, NULL, end->status, &end->e);
    client_whole(r, end->status, end->reply);
    free_relay(r);
}

static void on_attempt_end(void *context, struct attempt_end *end)
{
    struct relay *r = context;
    const bool is_engine = r->now.attempt->settings->kind != GATEWAY_TARGET_URL;
    switch (end->result) {
    case ATTEMPT_ANSWERED:
        settle(r, TARGET_ANSWERED, 0);
        answered(r, end);
        return;
    case ATTEMPT_REJECTED:
        settle(r, TARGET_ANSWERED, 0);
        rejected(r, end);
        return;
    case ATTEMPT_TOO_LONG:
        settle(r, TARGET_ANSWERED, 0);
        if (r->reply.has_text || !candidates_next(r, "context too long")) {
            rejected(r, end);
            return;
        }
        break;
    case ATTEMPT_OVERLOADED: /* an engine's may be a limit of this client alone: it does not rest */
        settle(r, TARGET_OVERLOADED, is_engine ? 1 : end->retry_ms);
        break;
    case ATTEMPT_FULL:
        settle(r, TARGET_CANCELLED, 0);
        fail(r, &end->e);
        return;
    case ATTEMPT_LACKS: settle(r, TARGET_CANCELLED, 0); break;
    case ATTEMPT_UNREACHED:
    case ATTEMPT_FAILED: settle(r, TARGET_FAILED, 0); break;
    }
    r->last = end->e;
    if (r->reply.has_text) {
        fail(r, &end->e);
        return;
    }
    /* Nothing was sent to a target that was not reached, so another one costs nobody more work. */
    if (end->result != ATTEMPT_UNREACHED && end->result != ATTEMPT_TOO_LONG && !retry_budget_take(&r->g->retries)) {
        fail(r, &end->e);
        return;
    }
    candidates_model(r)->counts->n_retries++;
    drop_attempt(r);
    next_attempt(r);
}

static void on_attempt_text(void *context, const char *bytes, size_t n)
{
    struct relay *r = context;
    if (r->reply.first_us == 0)
        r->reply.first_us = quire_now_us();
    client_text(r, bytes, n);
    if (r->reply.is_paused || http_stream_has_space(r->x))
        return;
    r->reply.is_paused = true;
    remote_pause(r->now.attempt->call, true);
    gateway_wants_tick(r->g, PAUSED_TICK_MS);
}

/* ---- an attempt's beginning ----------------------------------------------------------------- */

/* The error when no target may be used now. */
static void none_left(struct relay *r, struct api_error *e)
{
    const struct pool_model *m = candidates_model(r);
    if (r->last.status > 0) {
        *e = r->last;
        return;
    }
    const uint32_t ms = target_returns_ms(m->states, (uint32_t)m->model->n_targets, quire_now_ms());
    api_fail(e, 503, NULL, "target_unavailable", "no target of the model %.100s can take the request now",
             m->model->name);
    e->retry_ms = ms > 0 ? ms : 1000;
}

static const char *why_next(const struct relay *r)
{
    if (r->last.status == 0)
        return "no target";
    return r->last.status == 429 ? "overload" : "error";
}

/* Index of the target for the next attempt, of the current candidate or a later one; -1: none. */
static int choose_target(struct relay *r)
{
    for (;;) {
        struct pool_model *m = candidates_model(r);
        const int i = target_choose(m->states, (uint32_t)m->model->n_targets, r->tried, quire_now_ms(), &m->turn);
        if (i >= 0 || !candidates_next(r, why_next(r)))
            return i;
    }
}

/* Returns false with the error if the attempt could not begin. */
static bool begin_attempt(struct relay *r, int i, struct api_error *e)
{
    static const struct attempt_events events = {on_attempt_text, on_attempt_end};
    struct pool_model *m = candidates_model(r);
    const struct attempt_request request = {.x = r->x, .path = r->path, .body = r->body};
    struct attempt *a = calloc(1, sizeof *a);
    if (!a)
        return api_no_memory(e);
    pool_target_release(r->now.target);
    r->now = (struct relay_try){.attempt = a,
                                .target = pool_target_hold(m->targets[i]),
                                .tokens = relay_body_prompt_tokens(r->body) + relay_body_answer_tokens(r->body),
                                .begun_ms = quire_now_ms()};
    r->now.is_trial = target_begin(&r->now.target->state, r->now.tokens, r->now.begun_ms);
    r->shown = &m->model->targets[i];
    r->n_attempts++;
    r->tried |= (uint64_t)1 << i;
    return attempt_begin(a, r->g, &request, m, (uint32_t)i, &events, r, e);
}

static bool is_over_limit(const struct relay *r, struct api_error *e)
{
    const struct gateway_model *m = candidates_model(r)->model;
    if (m->max_tokens == 0 || r->body->n_max_tokens <= m->max_tokens)
        return false;
    api_bad(e, r->body->max_tokens_name, "%llu is above the limit of the model %.100s, %u",
            (unsigned long long)r->body->n_max_tokens, m->name, m->max_tokens);
    return true;
}

static void next_attempt(struct relay *r)
{
    struct api_error e;
    for (;;) {
        const int i = choose_target(r);
        if (i < 0) {
            none_left(r, &e);
            break;
        }
        if (is_over_limit(r, &e))
            break;
        const bool is_url = candidates_model(r)->model->targets[i].kind == GATEWAY_TARGET_URL;
        if (is_url && !bill_limits(r, &e))
            break;
        if (begin_attempt(r, i, &e))
            return;
        r->last = e;
        settle(r, e.status < 500 || e.status == 501 ? TARGET_CANCELLED : TARGET_FAILED, 0);
        drop_attempt(r);
        if (e.status < 500)
            break;
    }
    fail(r, &e);
}

/* ---- public --------------------------------------------------------------------------------- */

static bool has_routes(const struct gateway_config *config)
{
    for (size_t i = 0; i < config->n_models; i++)
        if (config->models[i].route.kind != GATEWAY_ROUTE_NONE)
            return true;
    return false;
}

void relay_begin(struct gateway *g, struct http_exchange *x, struct ledger_account *account, struct tenant *tenant)
{
    struct api_error e;
    size_t n;
    char *text = http_take_body(x, &n);
    struct relay *r = calloc(1, sizeof *r);
    if (r)
        r->body = calloc(1, sizeof *r->body);
    if (!r || !r->body) {
        free(r);
        free(text);
        api_no_memory(&e);
        api_error_reply(x, &e);
        return;
    }
    const int route = route_of(http_path(x));
    r->g = g;
    r->x = x;
    r->pool = pool_hold(g->pool);
    r->account = account;
    r->tenant = tenant;
    r->begun_us = quire_now_us();
    r->reply.wrote_ms = r->begun_us / 1000;
    snprintf(r->path, sizeof r->path, "%s", routes[route].path);
    snprintf(r->request_id, sizeof r->request_id, "%s", http_request_id(x));
    http_client(x, r->client);
    TAILQ_INSERT_TAIL(&g->relays, r, link);
    http_on_gone(x, on_gone, r);
    const bool good = relay_body_read(r->body, routes[route].api, text, n, has_routes(r->pool->config), &e) &&
                      candidates_find(r, &e) && bill_admit(r, &e);
    if (!good) {
        fail(r, &e);
        return;
    }
    retry_budget_first(&g->retries);
    if (r->body->is_stream)
        gateway_wants_tick(g, TICK_MS);
    next_attempt(r);
}

uint32_t relay_tick(struct gateway *g)
{
    const uint64_t now = quire_now_ms();
    uint32_t next = 0;
    struct relay *r;
    TAILQ_FOREACH(r, &g->relays, link)
    {
        if (r->body->is_stream && next == 0)
            next = TICK_MS;
        if (r->body->is_stream && now - r->reply.wrote_ms >= PING_MS && !r->reply.is_paused)
            client_ping(r, now);
        if (!r->reply.is_paused)
            continue;
        if (http_stream_has_space(r->x)) {
            r->reply.is_paused = false;
            if (r->now.attempt && r->now.attempt->call)
                remote_pause(r->now.attempt->call, false);
        } else {
            next = PAUSED_TICK_MS;
        }
    }
    return next;
}

void relay_end_all(struct gateway *g, const char *why)
{
    struct relay *r;
    struct api_error e;
    while ((r = TAILQ_FIRST(&g->relays))) {
        api_fail(&e, 503, NULL, "server_draining", "%s", why);
        e.retry_ms = 1000;
        settle(r, TARGET_CANCELLED, 0);
        fail(r, &e);
    }
}

void relay_bury(struct gateway *g)
{
    struct attempt *a;
    while ((a = TAILQ_FIRST(&g->ended))) {
        TAILQ_REMOVE(&g->ended, a, link);
        attempt_free(a);
        free(a);
    }
}
