#include "server/gateway/complete/cache_routes.h"

#include "base/clock.h"
#include "server/front/output/json_out.h"
#include "server/gateway/complete/call.h"
#include "server/gateway/complete/cache_engines.h"
#include "server/gateway/upstream_json.h"
#include "server/http/http.h"

#include <stdio.h>
#include <stdlib.h>

/* A request whose reply needs those of the engines. */
struct cache_ask {
    struct complete *c;
    struct http_exchange *x;
    struct cache_engines_call *engines;
    uint64_t n_removed; /* entries removed from this process's own cache */
};

static void on_gone(void *context)
{
    struct cache_ask *ask = context;
    cache_engines_cancel(ask->engines);
    free(ask);
}

static void ask_engines(struct complete *c, struct http_exchange *x, uint64_t n_removed, const char *method,
                        const char *path,
                        void (*on_end)(void *context, const struct cache_engines_reply *replies, size_t n))
{
    struct api_error e;
    struct cache_ask *ask = calloc(1, sizeof *ask);
    struct cache_engines_call *engines;
    if (!ask) {
        api_no_memory(&e);
        api_error_reply(x, &e);
        return;
    }
    *ask = (struct cache_ask){.c = c, .x = x, .n_removed = n_removed};
    cache_engines_ask(&c->options, x, method, path, on_end, ask, &engines);
    if (!engines) /* ask is freed */
        return;
    ask->engines = engines;
    http_on_gone(x, on_gone, ask);
}

/* Ends the request. */
static void reply(struct cache_ask *ask, struct buffer *o)
{
    http_on_gone(ask->x, NULL, NULL);
    http_reply(ask->x, o->failed ? 503 : 200, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
    free(ask);
}

/* ---- stats ---------------------------------------------------------------------------------- */

static void put_number(struct buffer *o, const char *name, uint64_t value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_u64(o, value);
}

static void put_own(struct buffer *o, const struct complete *c)
{
    const struct answer_cache_stats s = answer_cache_stats(c->answers, quire_now_ms());
    const uint64_t n = c->n_hits + c->n_misses;
    char rate[40];
    snprintf(rate, sizeof rate, ",\"hit_rate\":%.6g", n ? (double)c->n_hits / (double)n : 0.0);
    json_out_raw(o, "{\"object\":\"cache.stats\"");
    put_number(o, "total_entries", s.n_entries);
    put_number(o, "valid_entries", s.n_entries - s.n_expired);
    put_number(o, "expired_entries", s.n_expired);
    put_number(o, "bytes", s.n_bytes);
    put_number(o, "evictions", s.n_evicted);
    put_number(o, "hits", c->n_hits);
    put_number(o, "misses", c->n_misses);
    put_number(o, "engine_hits", c->n_engine_hits);
    json_out_raw(o, rate);
}

/* An engine without a response cache is null. */
static void put_engine(struct buffer *o, const struct cache_engines_reply *r)
{
    struct upstream_json j;
    const bool is_json = r->status == 200 && upstream_json_open(r->body, r->n, "reply", &j, NULL) == QUIRE_OK;
    if (!is_json) {
        json_out_raw(o, "null");
        return;
    }
    const struct quire_value root = quire_doc_root(j.doc);
    buffer_append(o, root.text, root.n);
    upstream_json_close(&j);
}

static void on_stats(void *context, const struct cache_engines_reply *replies, size_t n)
{
    struct cache_ask *ask = context;
    struct buffer o = {0};
    put_own(&o, ask->c);
    json_out_raw(&o, ",\"engines\":[");
    for (size_t i = 0; i < n; i++) {
        json_out_raw(&o, i > 0 ? "," : "");
        put_engine(&o, &replies[i]);
    }
    json_out_raw(&o, "]}");
    reply(ask, &o);
}

void cache_stats(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear)
{
    (void)account, (void)may_clear;
    ask_engines(c, x, 0, "GET", "/cache/stats", on_stats);
}

/* ---- clear ---------------------------------------------------------------------------------- */

static uint64_t removed_of(const struct cache_engines_reply *r)
{
    struct upstream_json j;
    bool is_negative;
    uint64_t n = 0;
    if (upstream_json_open(r->body, r->n, "reply", &j, NULL) != QUIRE_OK)
        return 0;
    quire_value_integer(quire_value_member(quire_doc_root(j.doc), "removed"), &is_negative, &n);
    upstream_json_close(&j);
    return n;
}

static void on_clear(void *context, const struct cache_engines_reply *replies, size_t n)
{
    struct cache_ask *ask = context;
    struct buffer o = {0};
    struct api_error e;
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        ok &= replies[i].status == 200 || replies[i].status == 404; /* 404: it has no response cache */
        if (replies[i].status == 200)
            ask->n_removed += removed_of(&replies[i]);
    }
    if (!ok) {
        struct http_exchange *x = ask->x;
        http_on_gone(x, NULL, NULL);
        free(ask);
        api_fail(&e, 503, NULL, "cache_unavailable",
                 "the cache of an engine could not be cleared; the others are cleared");
        api_error_reply(x, &e);
        return;
    }
    json_out_raw(&o, "{\"cleared\":true,\"removed\":");
    json_out_u64(&o, ask->n_removed);
    json_out_raw(&o, "}");
    reply(ask, &o);
}

void cache_clear(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear)
{
    struct api_error e;
    (void)account;
    if (may_clear) {
        ask_engines(c, x, answer_cache_clear(c->answers), "POST", "/cache/clear", on_clear);
        return;
    }
    api_fail(&e, 403, NULL, "permission_denied",
             "this needs the key of an admin; without keys it is answered on the loopback address only, and to no web "
             "page");
    api_error_reply(x, &e);
}
