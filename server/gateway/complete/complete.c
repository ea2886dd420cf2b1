#include "server/gateway/complete/complete.h"

#include "base/clock.h"
#include "server/gateway/complete/cache_routes.h"
#include "server/gateway/complete/call.h"
#include "server/gateway/complete/completion.h"
#include "server/http/http.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct service_route {
    const char *path, *method;
    void (*start)(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear);
};

/* ---- events --------------------------------------------------------------------------------- */

static void on_bury(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    calls_bury(context);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    calls_tick(context);
}

int complete_open(struct event_base *base, const struct complete_options *options, struct complete **out,
                  struct quire_error *err)
{
    struct complete *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->base = base;
    c->options = *options;
    TAILQ_INIT(&c->calls);
    TAILQ_INIT(&c->ended);
    c->bury = evtimer_new(base, on_bury, c);
    c->tick = evtimer_new(base, on_tick, c);
    int status = c->bury && c->tick ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = answer_cache_open(0, 0, 0, &c->answers, err);
    if (status != QUIRE_OK) {
        complete_close(c);
        return status;
    }
    *out = c;
    return QUIRE_OK;
}

void complete_close(struct complete *c)
{
    if (!c)
        return;
    calls_end_all(c);
    answer_cache_close(c->answers);
    if (c->bury)
        event_free(c->bury);
    if (c->tick)
        event_free(c->tick);
    free(c);
}

/* ---- questions ------------------------------------------------------------------------------ */

/* Counts the cost of a new answer as saved. */
static void hit(struct complete *c, struct http_exchange *x, struct ledger_account *account,
                const struct cached_completion *a, uint64_t begun_us)
{
    const struct completion_reply r = {
        .content = a->text, .n_content = a->n, .cost = "", .latency_us = quire_now_us() - begun_us};
    const struct ledger_usage usage = {
        .input = a->input, .output = a->output, .from_cache = true, .cache_layer = "response"};
    struct buffer o = {0};
    c->n_hits++;
    ledger_charge(c->options.ledger, account, a->model, 0, a->cost, &usage, (int64_t)time(NULL));
    completion_put(&o, &r);
    http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

static void refuse(struct http_exchange *x, struct question *q, const struct api_error *e)
{
    question_free(q);
    api_error_reply(x, e);
}

static void start_complete(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear)
{
    const uint64_t begun_us = quire_now_us();
    const struct cached_completion *answer = NULL;
    struct question q;
    struct key256 key;
    struct api_error e;
    size_t n;
    (void)may_clear;
    const char *body = http_body(x, &n);
    bool ok = question_read(&q, body, n, &e);
    const bool is_kept = ok && q.use_cache && !q.is_stream;
    if (is_kept && question_key(&q, ledger_tenant_name(account), &key) != QUIRE_OK)
        ok = api_no_memory(&e);
    if (!ok) {
        refuse(x, &q, &e);
        return;
    }
    if (is_kept)
        answer = answer_cache_find(c->answers, &key, quire_now_ms());
    if (answer) {
        question_free(&q);
        hit(c, x, account, answer, begun_us);
    } else {
        call_begin(c, x, &q, is_kept ? &key : NULL);
    }
}

/* Whether a page of another origin loads the URL as an image or a frame. Browsers send no Origin then, and a GET needs no
 * other permission of the server. */
static bool is_embedded(const struct http_exchange *x)
{
    const char *site = http_header(x, "Sec-Fetch-Site");
    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0 && !http_header(x, "Origin");
}

static void start_stream(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear)
{
    struct question q = {0};
    struct api_error e;
    (void)account, (void)may_clear;
    if (is_embedded(x)) {
        api_fail(&e, 403, NULL, "permission_denied", "a page of another origin may not load this URL");
        refuse(x, &q, &e);
    } else if (question_query(&q, http_query(x), &e))
        call_begin(c, x, &q, NULL);
    else
        refuse(x, &q, &e);
}

uint64_t complete_clear(struct complete *c)
{
    return answer_cache_clear(c->answers);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static const struct service_route routes[] = {
    {"/complete", "POST", start_complete},
    {"/stream", "GET", start_stream},
    {"/cache/stats", "GET", cache_stats},
    {"/cache/clear", "POST", cache_clear},
};

static const struct service_route *route_of(const char *path)
{
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strlen(routes[i].path) == n && memcmp(routes[i].path, path, n) == 0)
            return &routes[i];
    return NULL;
}

const char *complete_method(const char *path)
{
    const struct service_route *route = route_of(path);
    return route ? route->method : NULL;
}

void complete_start(struct complete *c, struct http_exchange *x, struct ledger_account *account, bool may_clear)
{
    route_of(http_path(x))->start(c, x, account, may_clear);
}
