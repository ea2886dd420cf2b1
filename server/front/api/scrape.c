/* /metrics: the engine is asked for its numbers, and all who wait get its next answer. */
#include "server/front/front_internal.h"

#include "server/front/output/turns.h"

#include <stdlib.h>

/* An engine in the middle of a long step answers late; the rest is worth more now. */
#define STATS_TIMEOUT_S 2

struct scrape {
    TAILQ_ENTRY(scrape) link;
    struct front *front;
    struct http_exchange *x;
    struct event *timeout;
};

static void scrape_free(struct scrape *s)
{
    TAILQ_REMOVE(&s->front->scrapes, s, link);
    if (s->timeout)
        event_free(s->timeout);
    free(s);
}

static void on_gone(void *context)
{
    scrape_free(context);
}

static void answer(struct front *f, struct http_exchange *x, const struct wire_stats *stats)
{
    struct buffer o = {0};
    struct otlp_counts otlp;
    if (f->otlp)
        otlp = otlp_counts(f->otlp);
    struct response_cache_stats cache;
    if (f->cache)
        response_cache_stats(f->cache, &cache);
    const struct metrics_about about = {.model = f->model_names[0],
                                        .beside = f->beside ? &f->beside->metrics : NULL,
                                        .beside_model = f->beside ? f->beside->model_names[0] : NULL,
                                        .tenants = f->tenant_metrics ? f->tenants : NULL,
                                        .n_connections = http_server_n_connections(f->http),
                                        .n_waiting = turns_n_all(f->turns),
                                        .otlp = f->otlp ? &otlp : NULL,
                                        .arithmetic = f->arithmetic,
                                        .cache = f->cache ? &cache : NULL,
                                        .price = f->price.out >= 0 ? &f->price : NULL,
                                        .max_model_len = f->max_model_len};
    metrics_text(&o, &f->metrics, stats, &about);
    http_reply(x, o.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

static void answer_one(struct scrape *s, const struct wire_stats *stats)
{
    struct front *f = s->front;
    struct http_exchange *x = s->x;
    scrape_free(s);
    answer(f, x, stats);
}

void scrapes_answer(struct front *f, const struct wire_stats *stats)
{
    struct scrape *s;
    while ((s = TAILQ_FIRST(&f->scrapes)))
        answer_one(s, stats);
}

static void on_timeout(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    answer_one(context, NULL);
}

void scrape_start(struct front *f, struct http_exchange *x)
{
    struct scrape *s = calloc(1, sizeof *s);
    if (s)
        s->timeout = event_new(f->base, -1, 0, on_timeout, s);
    uint32_t n_tenants = f->tenant_metrics ? tenants_n(f->tenants) : 0;
    if (!s || !s->timeout || !f->engine_ready || engine_client_ask_stats(f->engine, n_tenants) != QUIRE_OK) {
        if (s && s->timeout)
            event_free(s->timeout);
        free(s);
        answer(f, x, NULL);
        return;
    }
    const struct timeval tv = {.tv_sec = STATS_TIMEOUT_S};
    s->front = f;
    s->x = x;
    TAILQ_INSERT_TAIL(&f->scrapes, s, link);
    http_on_gone(x, on_gone, s);
    event_add(s->timeout, &tv);
}
