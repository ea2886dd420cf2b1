#include "server/gateway/lists.h"

#include "base/clock.h"
#include "server/front/output/json_out.h"

#include <stdlib.h>
#include <string.h>

static void reply_json(struct http_exchange *x, int status, struct buffer *o)
{
    http_reply(x, o->failed ? 503 : status, "application/json", o->data, o->failed ? 0 : o->n);
    buffer_free(o);
}

/* ---- models --------------------------------------------------------------------------------- */

/* As of the engines alone: an upstream server does not say it. false if a chat may come to an engine that refuses it. */
static void put_has_chat(struct buffer *o, const struct gateway *g, const struct gateway_model *m)
{
    const struct gateway_private *engines = &g->options.engines;
    size_t n = 0, n_with = 0;
    for (size_t i = 0; i < m->n_targets; i++)
        if (m->targets[i].kind != GATEWAY_TARGET_URL) {
            n++;
            n_with += engines->has_chat(engines->context, m, &m->targets[i]);
        }
    if (n)
        json_out_raw(o, n_with == n ? ",\"has_chat_template\":true" : ",\"has_chat_template\":false");
}

static void put_model(struct buffer *o, const struct gateway *g, const char *id, const struct gateway_model *m)
{
    json_out_raw(o, "{\"id\":");
    json_out_text(o, id);
    json_out_raw(o, ",\"object\":\"model\",\"created\":");
    json_out_i64(o, g->created);
    json_out_raw(o, ",\"owned_by\":\"quire\",\"root\":");
    json_out_text(o, m->name);
    json_out_raw(o, ",\"parent\":null,\"permission\":[]");
    put_has_chat(o, g, m);
    json_out_raw(o, "}");
}

void list_models(struct gateway *g, struct http_exchange *x)
{
    const struct gateway_config *config = g->pool->config;
    struct buffer o = {0};
    json_out_raw(&o, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < config->n_models; i++) {
        const struct gateway_model *m = &config->models[i];
        if (i > 0)
            json_out_raw(&o, ",");
        put_model(&o, g, m->name, m);
        for (size_t k = 0; k < m->n_aliases; k++) {
            json_out_raw(&o, ",");
            put_model(&o, g, m->aliases[k], m);
        }
    }
    json_out_raw(&o, "]}");
    reply_json(x, 200, &o);
}

/* Decodes the escapes that a path still contains: "%2F" is "/". In place. */
static void decode_rest(char *text)
{
    char *out = text;
    while (*text) {
        bool slash = strncasecmp(text, "%2f", 3) == 0, percent = strncmp(text, "%25", 3) == 0;
        *out++ = slash ? '/' : *text;
        text += slash || percent ? 3 : 1;
    }
    *out = '\0';
}

void list_model(struct gateway *g, struct http_exchange *x)
{
    struct buffer o = {0};
    struct api_error e;
    char *id = strdup(http_path(x) + strlen("/v1/models/"));
    if (!id) {
        api_no_memory(&e);
        api_error_reply(x, &e);
        return;
    }
    decode_rest(id);
    const struct gateway_model *m = models_file_find(g->pool->config, id, strlen(id));
    if (m) {
        put_model(&o, g, id, m);
        reply_json(x, 200, &o);
    } else {
        api_fail(&e, 404, "model", "model_not_found", "the model '%.200s' does not exist: GET /v1/models lists all",
                 id);
        api_error_reply(x, &e);
    }
    free(id);
}

/* ---- health --------------------------------------------------------------------------------- */

static const char *state_of(const struct target_state *t, uint64_t now_ms)
{
    if (t->breaker == TARGET_OPEN)
        return "down";
    if (t->breaker == TARGET_HALF_OPEN)
        return "trial";
    if (now_ms < t->rests_until_ms)
        return "resting";
    return target_may(t, now_ms) ? "up" : "full";
}

/* Whether a target of the model is not known to be down. A full one is only busy. */
static bool is_up(const struct pool_model *m)
{
    for (size_t i = 0; i < m->model->n_targets; i++)
        if (m->states[i]->breaker == TARGET_CLOSED)
            return true;
    return m->model->n_targets == 0;
}

void list_health(struct gateway *g, struct http_exchange *x)
{
    struct buffer o = {0};
    bool all = true;
    for (size_t i = 0; i < g->pool->config->n_models; i++)
        all &= is_up(&g->pool->models[i]);
    const char *status = g->draining ? "draining" : all ? "ok" : "degraded";
    json_out_raw(&o, "{\"status\":");
    json_out_text(&o, status);
    json_out_raw(&o, ",\"models\":{");
    bool first = true;
    for (size_t i = 0; i < g->pool->config->n_models; i++) {
        const struct pool_model *m = &g->pool->models[i];
        if (m->model->n_targets == 0)
            continue;
        json_out_raw(&o, first ? "" : ",");
        json_out_text(&o, m->model->name);
        json_out_raw(&o, is_up(m) ? ":\"ok\"" : ":\"down\"");
        first = false;
    }
    json_out_raw(&o, "}}");
    if (!all || g->draining)
        http_add_header(x, "Retry-After", "1");
    reply_json(x, all && !g->draining ? 200 : 503, &o);
}

void list_live(struct gateway *g, struct http_exchange *x)
{
    struct buffer o = {0};
    (void)g;
    json_out_raw(&o, "{\"status\":\"ok\"}");
    reply_json(x, 200, &o);
}

void list_version(struct gateway *g, struct http_exchange *x)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"version\":");
    json_out_text(&o, g->options.version);
    json_out_raw(&o, "}");
    reply_json(x, 200, &o);
}

/* ---- targets -------------------------------------------------------------------------------- */

static void put_number(struct buffer *o, const char *name, uint64_t value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_u64(o, value);
}

static void put_target(struct buffer *o, const struct pool_model *m, size_t i, uint64_t now_ms)
{
    static const char *const kinds[] = {
        [GATEWAY_TARGET_MODEL] = "model", [GATEWAY_TARGET_ENGINE] = "engine", [GATEWAY_TARGET_URL] = "url"};
    static const char *const breakers[] = {
        [TARGET_CLOSED] = "closed", [TARGET_OPEN] = "open", [TARGET_HALF_OPEN] = "half_open"};
    const struct gateway_target *settings = &m->model->targets[i];
    const struct target_state *t = m->states[i];
    char money[LEDGER_MONEY_BYTES], saved[LEDGER_MONEY_BYTES];
    ledger_money(m->targets[i]->cost, money);
    ledger_money(m->targets[i]->saved, saved);
    json_out_raw(o, "{\"model\":");
    json_out_text(o, m->model->name);
    json_out_raw(o, ",\"target\":");
    json_out_text(o, settings->name);
    json_out_raw(o, ",\"kind\":");
    json_out_text(o, kinds[settings->kind]);
    json_out_raw(o, ",\"place\":");
    json_out_text(o, settings->place);
    json_out_raw(o, ",\"state\":");
    json_out_text(o, state_of(t, now_ms));
    json_out_raw(o, ",\"breaker\":");
    json_out_text(o, breakers[t->breaker]);
    put_number(o, "weight", t->weight);
    put_number(o, "running", t->n_running);
    put_number(o, "max_concurrent", t->max_concurrent);
    put_number(o, "outstanding", t->outstanding);
    put_number(o, "latency_ms", t->latency_ms);
    put_number(o, "answered", t->n_answered);
    put_number(o, "failed", t->n_failed);
    put_number(o, "overloaded", t->n_overloaded);
    put_number(o, "cancelled", t->n_cancelled);
    put_number(o, "opened", t->n_opened);
    put_number(o, "input_tokens", m->targets[i]->n_input);
    put_number(o, "cached_input_tokens", m->targets[i]->n_cached_input);
    json_out_raw(o, ",\"cost\":");
    json_out_raw(o, money);
    json_out_raw(o, ",\"saved\":");
    json_out_raw(o, saved);
    json_out_raw(o, "}");
}

void list_targets(struct gateway *g, struct http_exchange *x)
{
    struct buffer o = {0};
    const uint64_t now_ms = quire_now_ms();
    bool first = true;
    json_out_raw(&o, "[");
    for (size_t i = 0; i < g->pool->config->n_models; i++) {
        const struct pool_model *m = &g->pool->models[i];
        for (size_t k = 0; k < m->model->n_targets; k++) {
            json_out_raw(&o, first ? "" : ",");
            put_target(&o, m, k, now_ms);
            first = false;
        }
    }
    json_out_raw(&o, "]");
    reply_json(x, 200, &o);
}
