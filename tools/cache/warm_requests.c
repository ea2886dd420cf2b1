#include "tools/cache/warm_requests.h"

#include "base/clock.h"

#include <time.h>

#define LOOK_S 0.1 /* between two looks at the server's load */

const char *warm_end_name(enum warm_end end)
{
    static const char *const names[] = {"done", "budget_tokens", "budget_seconds"};
    return names[end];
}

struct warm_forecast warm_forecast(const struct asked_requests *all, const struct warm_budget *budget)
{
    struct warm_forecast f = {0};
    for (; f.n < all->n && (budget->tokens == 0 || f.n_tokens < budget->tokens); f.n++) {
        const struct asked_request *r = &all->items[f.n];
        f.n_asked += r->count;
        f.n_tokens += request_cost(r);
        f.n_saved += r->count * request_cost(r);
    }
    return f;
}

struct warming_run {
    struct cache_client *client;
    const struct warm_budget *budget;
    struct warm_outcome *out;
    double began_s, looked_s; /* looked_s: the last time without load; 0: never */
};

static bool time_is_over(const struct warming_run *w)
{
    return w->budget->seconds > 0 && quire_now_s() >= w->began_s + w->budget->seconds;
}

/* Waits until there are no other requests. QUIRE_EXHAUSTED: the time limit is reached. */
static int wait_for_quiet(struct warming_run *w, struct quire_error *err)
{
    const struct timespec nap = {.tv_nsec = (long)(LOOK_S * 1e9)};
    if (w->looked_s > 0 && quire_now_s() - w->looked_s < LOOK_S)
        return QUIRE_OK;
    for (double since = quire_now_s();;) {
        json_t *stats;
        int status = cache_client_call(w->client, "GET", "/cache/stats", NULL, &stats, err);
        if (status != QUIRE_OK)
            return status;
        json_int_t n_live = json_integer_value(json_object_get(stats, "live_requests"));
        json_decref(stats);
        w->looked_s = quire_now_s();
        if (n_live == 0)
            return QUIRE_OK;
        nanosleep(&nap, NULL);
        w->out->paused_s += quire_now_s() - since;
        since = quire_now_s();
        if (time_is_over(w))
            return quire_fail(err, QUIRE_EXHAUSTED, "the time limit is reached");
    }
}

/* A request that the server rejects is skipped. */
static int ask(struct warming_run *w, const struct asked_request *r, struct quire_error *err)
{
    struct warm_outcome *o = w->out;
    json_t *reply, *body = json_copy(r->body);
    if (!body)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    json_object_set_new(body, "background", json_true());
    int status = cache_client_call(w->client, "POST", r->path, body, &reply, err);
    json_decref(body);
    if (status == QUIRE_INVALID) {
        if (o->n_refused++ == 0)
            o->why = *err;
        return QUIRE_OK;
    }
    if (status != QUIRE_OK)
        return status;
    const json_t *usage = json_object_get(reply, "usage");
    uint64_t n_prompt = (uint64_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
    uint64_t n_generated = (uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    bool kept = cache_client_was_kept(w->client);
    json_decref(reply);
    o->n_sent++;
    o->n_cached += kept;
    o->n_prompt += kept ? 0 : n_prompt;
    o->n_generated += kept ? 0 : n_generated;
    o->n_saved += r->count * (n_prompt + n_generated);
    return QUIRE_OK;
}

static int run(struct warming_run *w, const struct asked_requests *all,
               void (*progress)(void *context, uint64_t done, uint64_t total), void *context, struct quire_error *err)
{
    struct warm_outcome *o = w->out;
    for (size_t i = 0; i < all->n; i++) {
        if (w->budget->tokens > 0 && o->n_prompt + o->n_generated >= w->budget->tokens) {
            o->end = WARM_TOKENS;
            return QUIRE_OK;
        }
        int status = wait_for_quiet(w, err);
        if (status == QUIRE_OK)
            status = ask(w, &all->items[i], err);
        if (status == QUIRE_EXHAUSTED && time_is_over(w)) {
            o->end = WARM_SECONDS;
            return QUIRE_OK;
        }
        if (status != QUIRE_OK)
            return status;
        if (progress)
            progress(context, i + 1, all->n);
    }
    return QUIRE_OK;
}

int warm_requests(struct cache_client *client, const struct asked_requests *all, const struct warm_budget *budget,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  struct warm_outcome *out, struct quire_error *err)
{
    struct warming_run w = {.client = client, .budget = budget, .out = out, .began_s = quire_now_s()};
    *out = (struct warm_outcome){.end = WARM_DONE};
    cache_client_set_deadline(client, budget->seconds > 0 ? w.began_s + budget->seconds : 0);
    int status = run(&w, all, progress, context, err);
    out->seconds = quire_now_s() - w.began_s;
    if (status == QUIRE_OK && out->n_sent == 0 && out->n_refused > 0)
        return quire_fail(err, QUIRE_INVALID, "the server rejected all of them: %s", out->why.text);
    return status;
}
