/* /metrics and /cache/stats: the engine is asked for its numbers, and all who wait get its next answer. Where there are two, the second is
 * asked before the first: what it told is kept, since an answer holds only while it is being read. */
#include "server/front/front_internal.h"

#include "server/front/output/turns.h"

#include <stdlib.h>

/* An engine in the middle of a long step answers late; the rest is worth more now. */
#define STATS_TIMEOUT_S 2
#define SECOND_TIMEOUT_S 1 /* of the engine beside it, before that */

struct scrape {
    TAILQ_ENTRY(scrape) link;
    struct front *front;
    struct http_exchange *x;
    struct event *timeout;
    scrape_answer answer;
    bool waits_second;
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

static void answer_metrics(struct front *f, struct http_exchange *x, const struct wire_stats *stats)
{
    struct buffer o = {0};
    struct otlp_counts otlp;
    if (f->otlp)
        otlp = otlp_counts(f->otlp);
    struct response_cache_stats cache;
    if (f->cache)
        response_cache_stats(f->cache, &cache);
    struct wire_stats second;
    if (f->beside && f->beside->has_told) {
        second = f->beside->told;
        second.n_waiting += (uint32_t)turns_n_all(f->beside->turns);
    }
    const struct metrics_about about = {.model = f->model_names[0],
                                        .background = &f->background,
                                        .beside = f->beside ? &f->beside->metrics : NULL,
                                        .beside_model = f->beside ? f->beside->model_names[0] : NULL,
                                        .beside_stats = f->beside && f->beside->has_told ? &second : NULL,
                                        .tenants = f->tenant_metrics ? f->tenants : NULL,
                                        .n_engine_restarts = f->n_engine_restarts,
                                        .n_connections = http_server_n_connections(f->http),
                                        .n_waiting = turns_n_all(f->turns),
                                        .otlp = f->otlp ? &otlp : NULL,
                                        .arithmetic = f->facts->arithmetic,
                                        .cache = f->cache ? &cache : NULL,
                                        .price = f->price.out >= 0 ? &f->price : NULL,
                                        .max_model_len = f->facts->max_model_len};
    metrics_text(&o, &f->metrics, stats, &about);
    http_reply(x, o.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

static void answer_one(struct scrape *s, const struct wire_stats *stats)
{
    struct front *f = s->front;
    struct http_exchange *x = s->x;
    const scrape_answer answer = s->answer;
    scrape_free(s);
    answer(f, x, stats);
}

static void wait_for(struct scrape *s, time_t seconds)
{
    const struct timeval tv = {.tv_sec = seconds};
    event_add(s->timeout, &tv);
}

bool scrapes_question(struct front *f)
{
    uint32_t n_tenants = f->tenant_metrics ? tenants_n(f->tenants) : 0;
    return f->engine_ready && engine_client_ask_stats(f->engine, n_tenants) == QUIRE_OK;
}

static void ask_first(struct scrape *s)
{
    s->waits_second = false;
    if (scrapes_question(s->front))
        wait_for(s, STATS_TIMEOUT_S);
    else
        answer_one(s, NULL);
}

static struct scrape *next_that_waits(struct front *f, bool for_second)
{
    struct scrape *s;
    TAILQ_FOREACH(s, &f->scrapes, link)
    {
        if (s->waits_second == for_second)
            break;
    }
    return s;
}

/* Its names and lists lie in the frame. */
static void keep(struct front *f, const struct wire_stats *stats)
{
    f->has_told = stats != NULL;
    if (!stats)
        return;
    f->told = (struct wire_stats){.n_running = stats->n_running,
                                  .n_waiting = stats->n_waiting,
                                  .n_waiting_tokens = stats->n_waiting_tokens,
                                  .kv_usage = stats->kv_usage,
                                  .n_prompt_tokens = stats->n_prompt_tokens,
                                  .n_steps = stats->n_steps,
                                  .n_blocks = stats->n_blocks,
                                  .n_blocks_leaked = stats->n_blocks_leaked,
                                  .n_refused = stats->n_refused,
                                  .token_budget = stats->token_budget};
}

void scrapes_answer(struct front *f, const struct wire_stats *stats)
{
    struct scrape *s;
    if (f->is_second)
        keep(f, stats);
    while ((s = next_that_waits(f->is_second ? f->beside : f, f->is_second))) {
        if (f->is_second)
            ask_first(s);
        else
            answer_one(s, stats);
    }
}

static void on_timeout(evutil_socket_t fd, short what, void *context)
{
    struct scrape *s = context;
    (void)fd;
    (void)what;
    if (s->waits_second) {
        s->front->beside->has_told = false;
        ask_first(s);
    } else {
        answer_one(s, NULL);
    }
}

void scrape_ask(struct front *f, struct http_exchange *x, scrape_answer answer)
{
    struct scrape *s = calloc(1, sizeof *s);
    if (s)
        s->timeout = event_new(f->base, -1, 0, on_timeout, s);
    if (!s || !s->timeout) {
        free(s);
        answer(f, x, NULL);
        return;
    }
    s->front = f;
    s->answer = answer;
    s->x = x;
    TAILQ_INSERT_TAIL(&f->scrapes, s, link);
    http_on_gone(x, on_gone, s);
    s->waits_second = answer == answer_metrics && f->beside && scrapes_question(f->beside);
    if (s->waits_second)
        wait_for(s, SECOND_TIMEOUT_S);
    else
        ask_first(s);
}

void scrape_start(struct front *f, struct http_exchange *x)
{
    scrape_ask(f, x, answer_metrics);
}
