#include "server/gateway/probe.h"

#include "base/clock.h"

#include <stdio.h>

#define TIMEOUT_MS 5000
#define MAX_URL 2048
#define MAX_REPLY_BYTES ((uint64_t)4 << 20)

static void on_head(void *context, int status)
{
    struct pool_target *t = context;
    /* 404 also says that the server is there. */
    target_probed(&t->state, status < 500, quire_now_ms());
}

static void on_body(void *context, const char *bytes, size_t n)
{
    (void)context;
    (void)bytes;
    (void)n;
}

static void on_end(void *context, enum remote_end end, const char *why)
{
    struct pool_target *t = context;
    (void)why;
    t->probe = NULL;
    if (end == REMOTE_UNREACHED || end == REMOTE_TIMEOUT)
        target_probed(&t->state, false, quire_now_ms());
}

static void probe(struct gateway *g, struct pool_target *t, const struct gateway_target *settings, uint64_t now)
{
    static const struct remote_events events = {on_head, on_body, on_end};
    char url[MAX_URL], bearer[1100];
    const char *headers[1] = {bearer};
    snprintf(url, sizeof url, "%s/models", settings->place);
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", settings->key ? settings->key : "");
    const struct remote_request q = {.method = "GET",
                                     .url = url,
                                     .headers = headers,
                                     .n_headers = settings->key ? 1 : 0,
                                     .connect_ms = TIMEOUT_MS,
                                     .first_byte_ms = TIMEOUT_MS,
                                     .silence_ms = TIMEOUT_MS,
                                     .max_reply_bytes = MAX_REPLY_BYTES};
    target_probing(&t->state, now);
    if (remote_begin(g->remote, &q, &events, t, &t->probe, NULL) != QUIRE_OK)
        t->probe = NULL;
}

bool probe_targets(struct gateway *g)
{
    const uint64_t now = quire_now_ms();
    bool has_more = false;
    for (size_t i = 0; i < g->pool->config->n_models; i++) {
        const struct pool_model *m = &g->pool->models[i];
        for (size_t k = 0; k < m->model->n_targets; k++) {
            struct pool_target *t = m->targets[k];
            if (m->model->targets[k].kind != GATEWAY_TARGET_URL || t->state.breaker == TARGET_CLOSED)
                continue;
            has_more = true;
            if (!t->probe && target_wants_probe(&t->state, now))
                probe(g, t, &m->model->targets[k], now);
        }
    }
    return has_more;
}

void probes_end(struct gateway *g)
{
    for (size_t i = 0; i < g->pool->config->n_models; i++)
        for (size_t k = 0; k < g->pool->models[i].model->n_targets; k++) {
            struct pool_target *t = g->pool->models[i].targets[k];
            if (t->probe)
                remote_cancel(t->probe);
            t->probe = NULL;
        }
}
