#include "server/gateway/relay/relay_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/front/tenant/limits.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- before --------------------------------------------------------------------------------- */

/* An engine's front end applies the limits itself, and the tenant's struct is the same. */
bool bill_limits(struct relay *r, struct api_error *e)
{
    const uint64_t now_us = quire_now_us();
    if (r->is_limited || !r->tenant)
        return true;
    if (!limits_begin(r->tenant, now_us, e))
        return false;
    r->is_limited = true;
    return limits_prompt(r->tenant, relay_body_prompt_tokens(r->body), now_us, e);
}

bool bill_admit(struct relay *r, struct api_error *e)
{
    const char *warning = NULL;
    const int64_t now_s = (int64_t)time(NULL);
    if (ledger_admit(r->g->options.ledger, r->account, now_s, &warning, e)) {
        if (warning)
            snprintf(r->budget_warning, sizeof r->budget_warning, "%s", warning);
        return true;
    }
    r->is_over_budget = true;
    return candidates_may(r) || candidates_next(r, "budget");
}

/* ---- after ---------------------------------------------------------------------------------- */

/* Of a whole answer without usage: four bytes for a token. */
static struct ledger_usage estimate(const struct relay *r, const struct attempt *a)
{
    const bool has_text = r->body->api < RELAY_COUNT_TOKENS;
    struct ledger_usage u = {0};
    if (has_text || r->body->api == RELAY_EMBEDDINGS)
        u.input = relay_body_prompt_tokens(r->body);
    if (has_text)
        u.output = a->reply.n / 4 + 1;
    return u;
}

/* What the client received, where the target did not say it: a token for each event. */
static struct ledger_usage usage_of(const struct relay *r, const struct attempt *a)
{
    struct ledger_usage u = {0};
    if (!a)
        return u;
    if (a->usage.is_set)
        u = (struct ledger_usage){
            .input = a->usage.input, .cached_input = a->usage.cached_input, .output = a->usage.output};
    else if (a->has_ended && !a->is_events)
        u = estimate(r, a);
    if (a->usage.output == 0 && a->n_events > 0) {
        u.output = a->n_events;
        if (!a->usage.is_set)
            u.input = relay_body_prompt_tokens(r->body);
    }
    if (attempt_is_cached(a)) {
        u.from_cache = true;
        u.cache_layer = strcmp(a->layer, "semantic") == 0 ? "semantic" : "exact";
    }
    return u;
}

static enum pool_result result_of(int status)
{
    if (status == 0)
        return POOL_CANCELLED;
    if (status == 429)
        return POOL_OVERLOADED;
    return status < 400 ? POOL_OK : status < 500 ? POOL_CLIENT_ERROR : POOL_ERROR;
}

struct bill {
    struct ledger_usage usage;
    uint64_t cost, saved;
    double seconds;
    uint64_t total_us, ttft_us; /* ttft_us 0: not a stream, or no token */
    int status;
    bool is_counted; /* by the experiment */
};

/* A request counts at its arm whichever model answered in the end. Limits and budgets of the payer do not. */
static void count_arm(const struct relay *r, struct bill *b)
{
    const struct relay_part *p = r->part;
    const struct trial_outcome o = {.status = b->status,
                                    .total_us = b->total_us,
                                    .ttft_us = b->ttft_us,
                                    .output = b->usage.output,
                                    .cached_input = b->usage.cached_input,
                                    .cost = b->cost,
                                    .from_cache = b->usage.from_cache};
    struct trial_request request;
    const bool has_answer = r->body->api < RELAY_COUNT_TOKENS || r->body->api == RELAY_EMBEDDINGS;
    const bool is_own_limit = b->status == 429 && r->n_attempts == 0;
    b->is_counted = p && has_answer && !is_own_limit && trial_read(&o, p->bucket, &request);
    if (!b->is_counted)
        return;
    trial_add(p->experiment->trial, p->arm, &request, (int64_t)time(NULL));
    gateway_wants_save(r->g);
}

static void write_log(const struct relay *r, const struct bill *b, const struct api_error *e)
{
    char money[LEDGER_MONEY_BYTES];
    struct quire_log_field fields[25];
    size_t n = 0;
    const struct gateway_model *model = r->candidates.n > 0 ? candidates_model(r)->model : NULL;
    ledger_money(b->cost, money);
#define TEXT(key_, value) \
    fields[n++] = (struct quire_log_field) \
    { \
        .key = key_, .text = value \
    }
#define NUMBER(key_, value) \
    fields[n++] = (struct quire_log_field) \
    { \
        .key = key_, .number = (double)(value) \
    }
    TEXT("request_id", r->request_id);
    if (r->client[0])
        TEXT("client", r->client);
    TEXT("tenant", ledger_tenant_name(r->account));
    TEXT("route", r->path);
    NUMBER("status", b->status);
    if (e)
        TEXT("error", e->code ? e->code : "");
    if (model)
        TEXT("model", model->name);
    if (r->shown)
        TEXT("target", r->shown->name);
    if (r->candidates.why[0])
        TEXT("why", r->candidates.why);
    if (r->part) {
        TEXT("experiment", r->part->experiment->model->name);
        TEXT("arm", r->part->experiment->trial->arms[r->part->arm].name);
        TEXT("run", r->part->experiment->trial->run);
    }
    if (b->is_counted)
        NUMBER("bucket", r->part->bucket);
    if (b->usage.from_cache)
        TEXT("cache", b->usage.cache_layer);
    NUMBER("attempts", r->n_attempts);
    NUMBER("prompt_tokens", b->usage.input);
    NUMBER("cached_tokens", b->usage.cached_input);
    NUMBER("generated_tokens", b->usage.output);
    TEXT("cost", money);
    if (b->ttft_us > 0)
        NUMBER("ttft_ms", (double)b->ttft_us / 1000);
    NUMBER("total_ms", (double)b->total_us / 1000);
#undef TEXT
#undef NUMBER
    quire_log_fields(QUIRE_LOG_INFO, "gateway", fields, n, b->status ? "request" : "request; the client has gone");
}

static void end_limits(struct relay *r, const struct bill *b)
{
    if (!r->is_limited)
        return;
    const uint64_t now_us = quire_now_us();
    for (uint64_t i = 0; i < b->usage.output && i < 1u << 20; i++)
        limits_token(r->tenant, now_us);
    limits_end(r->tenant);
    r->is_limited = false;
}

static void count_target(struct pool_target *t, const struct bill *b)
{
    t->cost += b->cost;
    t->saved += b->saved;
    t->n_input += b->usage.input;
    t->n_cached_input += b->usage.from_cache ? b->usage.input : b->usage.cached_input;
}

void bill_end(struct relay *r, const struct attempt *a, int status, const struct api_error *e)
{
    struct bill b = {.usage = usage_of(r, a), .total_us = quire_now_us() - r->begun_us, .status = status};
    b.seconds = (double)b.total_us / 1e6;
    if (r->body->is_stream && r->reply.first_us > r->begun_us)
        b.ttft_us = r->reply.first_us - r->begun_us;
    struct pool_counts *counts = r->candidates.n > 0 ? candidates_model(r)->counts : NULL;
    if (counts) {
        const struct gateway_model *model = candidates_model(r)->model;
        struct ledger_usage asked = b.usage; /* as if no cache had answered */
        asked.from_cache = false;
        const uint64_t price = model->price.is_set ? ledger_cost(&model->price, &asked) : 0;
        if (b.usage.from_cache)
            b.saved = price;
        else
            b.cost = price;
        pool_count(counts, result_of(status), b.seconds);
        counts->n_input += b.usage.input;
        counts->n_cached_input += b.usage.cached_input;
        counts->n_output += b.usage.output;
        counts->cost += b.cost;
        counts->saved += b.saved;
        if (r->now.target)
            count_target(r->now.target, &b);
        if (a && (b.usage.input > 0 || b.usage.output > 0))
            ledger_charge(r->g->options.ledger, r->account, model->name, b.cost, b.saved, &b.usage,
                          (int64_t)time(NULL));
    }
    end_limits(r, &b);
    count_arm(r, &b);
    if (r->g->options.log_requests)
        write_log(r, &b, e);
}
