/* /metrics and /cache/stats: requests statistics from the engine; all waiting requests get its next answer. With two
 * engines, the second gets its request before the first. Its answer is copied, since an answer is valid only while it
 * is being read. */
#include "server/front/front_internal.h"

#include "server/front/batch/turns.h"
#include "server/http/more_routes.h"
#include "text/quire_grammar.h"

#include <stdlib.h>

/* An engine in the middle of a long step answers late; the other numbers are worth more now. */
#define STATS_TIMEOUT_S 2
#define SECOND_TIMEOUT_S 1 /* for the engine of the companion model, before that */

struct scrape {
    TAILQ_ENTRY(scrape) link;
    struct served_model *served;
    struct http_exchange *x;
    struct event *timeout;
    scrape_answer answer;
    bool waits_second;
};

static void scrape_free(struct scrape *s)
{
    TAILQ_REMOVE(&s->served->front->scrapes, s, link);
    if (s->timeout)
        event_free(s->timeout);
    free(s);
}

static void on_gone(void *context)
{
    scrape_free(context);
}

/* Returns the model that computes vectors, unless it is this one. */
static struct served_model *second_of(const struct served_model *m)
{
    struct served_model *second = front_vectors_model(m->front);
    return second != m ? second : NULL;
}

static void answer_metrics(struct served_model *m, struct http_exchange *x, const struct wire_stats *stats)
{
    struct buffer o = {0};
    struct otlp_counts otlp;
    if (m->front->otlp)
        otlp = otlp_counts(m->front->otlp);
    struct response_cache_stats cache;
    struct similar_stats similar;
    struct store_stats store;
    struct cache_figures figures = {.cache = &cache, .price = m->price};
    if (m->cache) {
        response_cache_stats(m->cache, &cache);
        figures.similar = response_cache_similar_stats(m->cache, &similar) ? &similar : NULL;
        figures.store = response_cache_store_stats(m->cache, &store) ? &store : NULL;
    }
    struct quire_grammars_stats grammars = {0};
    if (m->config->grammars)
        quire_grammars_stats(m->config->grammars, &grammars);
    struct wire_stats second;
    const struct served_model *companion = second_of(m);
    const bool has_told = companion && companion->told;
    if (has_told) {
        second = *companion->told;
        second.n_waiting += (uint32_t)turns_n_all(companion->turns);
    }
    const struct metrics_about about = {.model = m->config->names[0],
                                        .background = m->background,
                                        .companion = companion ? companion->counts : NULL,
                                        .companion_model = companion ? companion->config->names[0] : NULL,
                                        .companion_stats = has_told ? &second : NULL,
                                        .tenants = m->front->tenant_metrics ? m->front->tenants : NULL,
                                        .n_engine_restarts = upstream_n_restarts(m->upstream),
                                        .n_connections = http_server_n_connections(m->front->http),
                                        .n_waiting = turns_n_all(m->turns),
                                        .otlp = m->front->otlp ? &otlp : NULL,
                                        .arithmetic = m->facts->arithmetic,
                                        .cache = m->cache ? &figures : NULL,
                                        .n_given_up = grammars.given_up,
                                        .n_given_up_now = grammars.given_up_now,
                                        .max_model_len = m->facts->max_model_len};
    metrics_text(&o, m->counts, stats, &about);
    if (m->front->more)
        m->front->more->put_metrics(m->front->more->context, &o);
    http_reply(x, o.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

static void answer_one(struct scrape *s, const struct wire_stats *stats)
{
    struct served_model *m = s->served;
    struct http_exchange *x = s->x;
    const scrape_answer answer = s->answer;
    scrape_free(s);
    answer(m, x, stats);
}

static void wait_for(struct scrape *s, time_t seconds)
{
    const struct timeval tv = {.tv_sec = seconds};
    event_add(s->timeout, &tv);
}

bool scrapes_question(struct served_model *m)
{
    uint32_t n_tenants = m->front->tenant_metrics ? tenants_n(m->front->tenants) : 0;
    return upstream_ask_stats(m->upstream, n_tenants) == QUIRE_OK;
}

static void ask_first(struct scrape *s)
{
    s->waits_second = false;
    if (scrapes_question(s->served))
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

static void forget(struct served_model *m)
{
    free(m->told);
    m->told = NULL;
}

/* Copies only the rows: texts and lists point into the frame. */
static void keep(struct served_model *m, const struct wire_stats *stats)
{
    if (!stats) {
        forget(m);
        return;
    }
    if (!m->told && !(m->told = malloc(sizeof *m->told)))
        return;
    *m->told = (struct wire_stats){.n_running = 0};
#define COPY(member, ...) m->told->member = stats->member;
    STATS_ROWS(COPY)
#undef COPY
}

void scrapes_answer(struct served_model *m, const struct wire_stats *stats)
{
    struct scrape *s;
    const bool is_second = m != front_first_model(m->front);
    if (is_second)
        keep(m, stats);
    while ((s = next_that_waits(m->front, is_second))) {
        if (is_second)
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
        forget(second_of(s->served));
        ask_first(s);
    } else {
        answer_one(s, NULL);
    }
}

void scrape_ask(struct served_model *m, struct http_exchange *x, scrape_answer answer)
{
    struct scrape *s = calloc(1, sizeof *s);
    if (s)
        s->timeout = event_new(m->front->base, -1, 0, on_timeout, s);
    if (!s || !s->timeout) {
        free(s);
        answer(m, x, NULL);
        return;
    }
    s->served = m;
    s->answer = answer;
    s->x = x;
    TAILQ_INSERT_TAIL(&m->front->scrapes, s, link);
    http_on_gone(x, on_gone, s);
    struct served_model *second = second_of(m);
    s->waits_second = answer == answer_metrics && second && scrapes_question(second);
    if (s->waits_second)
        wait_for(s, SECOND_TIMEOUT_S);
    else
        ask_first(s);
}

void scrape_start(struct served_model *m, struct http_exchange *x)
{
    scrape_ask(m, x, answer_metrics);
}
