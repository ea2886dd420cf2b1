#include "server/front/output/json_out.h"
#include "server/gateway/experiment/trial.h"
#include "server/gateway/lists.h"
#include "server/http/more_routes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Names of models and targets have no character that Prometheus escapes (models_file.h). */
static void row(struct buffer *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void row(struct buffer *o, const char *format, ...)
{
    char line[640];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof line)
        buffer_append(o, line, (size_t)n);
}

static void family(struct buffer *o, const char *name, const char *type, const char *help)
{
    row(o, "# HELP quire:gateway_%s %s\n# TYPE quire:gateway_%s %s\n", name, help, name, type);
}

/* ---- by model ------------------------------------------------------------------------------- */

static void put_counter(struct buffer *o, const struct pool *p, const char *name, const char *help, size_t offset)
{
    family(o, name, "counter", help);
    for (size_t i = 0; i < p->config->n_models; i++) {
        const struct pool_counts *c = p->models[i].counts;
        row(o, "quire:gateway_%s{model=\"%s\"} %llu\n", name, c->model,
            (unsigned long long)*(const uint64_t *)((const char *)c + offset));
    }
}

static void put_money(struct buffer *o, const struct pool *p, const char *name, const char *help, size_t offset)
{
    char money[LEDGER_MONEY_BYTES];
    family(o, name, "counter", help);
    for (size_t i = 0; i < p->config->n_models; i++) {
        const struct pool_counts *c = p->models[i].counts;
        ledger_money(*(const uint64_t *)((const char *)c + offset), money);
        row(o, "quire:gateway_%s{model=\"%s\"} %s\n", name, c->model, money);
    }
}

static void put_requests(struct buffer *o, const struct pool *p)
{
    family(o, "requests_total", "counter", "Requests that have ended, by model and result.");
    for (size_t i = 0; i < p->config->n_models; i++)
        for (int k = 0; k < POOL_N_RESULTS; k++)
            row(o, "quire:gateway_requests_total{model=\"%s\",result=\"%s\"} %llu\n", p->models[i].counts->model,
                pool_result_names[k], (unsigned long long)p->models[i].counts->n_requests[k]);
}

static void put_latency(struct buffer *o, const struct pool *p)
{
    static const char name[] = "quire:gateway_request_seconds";
    family(o, "request_seconds", "histogram", "Time of answered requests, retries included.");
    for (size_t i = 0; i < p->config->n_models; i++) {
        const struct pool_counts *c = p->models[i].counts;
        uint64_t n = 0;
        for (size_t k = 0; k < POOL_N_BUCKETS; k++) {
            n += c->buckets[k];
            row(o, "%s_bucket{model=\"%s\",le=\"%g\"} %llu\n", name, c->model, pool_buckets[k], (unsigned long long)n);
        }
        n += c->buckets[POOL_N_BUCKETS];
        row(o, "%s_bucket{model=\"%s\",le=\"+Inf\"} %llu\n", name, c->model, (unsigned long long)n);
        row(o, "%s_sum{model=\"%s\"} %.6f\n", name, c->model, c->seconds);
        row(o, "%s_count{model=\"%s\"} %llu\n", name, c->model, (unsigned long long)n);
    }
}

/* ---- by target ------------------------------------------------------------------------------ */

static uint64_t answered(const struct target_state *t)
{
    return t->n_answered;
}
static uint64_t failed(const struct target_state *t)
{
    return t->n_failed;
}
static uint64_t overloaded(const struct target_state *t)
{
    return t->n_overloaded;
}
static uint64_t cancelled(const struct target_state *t)
{
    return t->n_cancelled;
}
static uint64_t running(const struct target_state *t)
{
    return t->n_running;
}
static uint64_t outstanding(const struct target_state *t)
{
    return t->outstanding;
}
static uint64_t breaker(const struct target_state *t)
{
    return (uint64_t)t->breaker;
}
static uint64_t opened(const struct target_state *t)
{
    return t->n_opened;
}

static void put_of_targets(struct buffer *o, const struct pool *p, const char *name, const char *label,
                           uint64_t (*value)(const struct target_state *t))
{
    for (size_t i = 0; i < p->config->n_models; i++)
        for (size_t k = 0; k < p->models[i].model->n_targets; k++)
            row(o, "quire:gateway_%s{model=\"%s\",target=\"%s\"%s} %llu\n", name, p->models[i].model->name,
                p->models[i].model->targets[k].name, label, (unsigned long long)value(p->models[i].states[k]));
}

static void put_targets(struct buffer *o, const struct pool *p)
{
    family(o, "attempts_total", "counter", "Calls to a target that have ended, by result.");
    put_of_targets(o, p, "attempts_total", ",result=\"answered\"", answered);
    put_of_targets(o, p, "attempts_total", ",result=\"failed\"", failed);
    put_of_targets(o, p, "attempts_total", ",result=\"overloaded\"", overloaded);
    put_of_targets(o, p, "attempts_total", ",result=\"cancelled\"", cancelled);
    family(o, "running", "gauge", "Calls to a target that run now.");
    put_of_targets(o, p, "running", "", running);
    family(o, "outstanding_tokens", "gauge", "Estimated tokens of a target's running calls.");
    put_of_targets(o, p, "outstanding_tokens", "", outstanding);
    family(o, "breaker", "gauge", "State of a target's circuit breaker: 0 closed, 1 open, 2 half open.");
    put_of_targets(o, p, "breaker", "", breaker);
    family(o, "breaker_opened_total", "counter", "How often a target's circuit breaker has opened.");
    put_of_targets(o, p, "breaker_opened_total", "", opened);
}

/* ---- by arm --------------------------------------------------------------------------------- */

/* A row for each arm of each experiment. */
static void put_of_arms(struct buffer *o, const struct pool *p, const char *name, const char *label,
                        uint64_t (*value)(const struct trial_arm *a))
{
    for (size_t i = 0; i < p->config->n_models; i++) {
        const struct trial *t = p->models[i].trial;
        for (uint32_t k = 0; t && k < t->n_arms; k++)
            row(o, "quire:gateway_experiment_%s{experiment=\"%s\",arm=\"%s\"%s} %llu\n", name,
                p->config->models[i].name, t->arms[k].name, label, (unsigned long long)value(&t->arms[k]));
    }
}

static void put_arm_seconds(struct buffer *o, const struct pool *p, const char *name, const char *help,
                            enum gateway_metric metric)
{
    char full[64];
    snprintf(full, sizeof full, "experiment_%s", name);
    family(o, full, "summary", help);
    for (size_t i = 0; i < p->config->n_models; i++) {
        const struct trial *t = p->models[i].trial;
        for (uint32_t k = 0; t && k < t->n_arms; k++) {
            const struct trial_cell *c = &t->arms[k].metrics[metric].all;
            row(o, "quire:gateway_%s_sum{experiment=\"%s\",arm=\"%s\"} %.6f\n", full, p->config->models[i].name,
                t->arms[k].name, (double)c->sum / 1e6);
            row(o, "quire:gateway_%s_count{experiment=\"%s\",arm=\"%s\"} %llu\n", full, p->config->models[i].name,
                t->arms[k].name, (unsigned long long)c->n);
        }
    }
}

static void put_arm_cost(struct buffer *o, const struct pool *p)
{
    char money[LEDGER_MONEY_BYTES];
    family(o, "experiment_cost_dollars_total", "counter", "Cost of an arm's requests.");
    for (size_t i = 0; i < p->config->n_models; i++) {
        const struct trial *t = p->models[i].trial;
        for (uint32_t k = 0; t && k < t->n_arms; k++) {
            ledger_money(t->arms[k].metrics[GATEWAY_COST].all.sum, money);
            row(o, "quire:gateway_experiment_cost_dollars_total{experiment=\"%s\",arm=\"%s\"} %s\n",
                p->config->models[i].name, t->arms[k].name, money);
        }
    }
}

static uint64_t arm_ok(const struct trial_arm *a)
{
    return a->metrics[GATEWAY_LATENCY].all.n;
}
static uint64_t arm_errors(const struct trial_arm *a)
{
    return a->metrics[GATEWAY_ERRORS].all.sum;
}
static uint64_t arm_cancelled(const struct trial_arm *a)
{
    return a->metrics[GATEWAY_CANCELLED].all.sum;
}
static uint64_t arm_output(const struct trial_arm *a)
{
    return a->metrics[GATEWAY_OUTPUT_TOKENS].all.sum;
}
static uint64_t arm_cached(const struct trial_arm *a)
{
    return a->metrics[GATEWAY_CACHED_TOKENS].all.sum;
}
static uint64_t arm_hits(const struct trial_arm *a)
{
    return a->metrics[GATEWAY_CACHE_HITS].all.sum;
}

static void put_arms(struct buffer *o, const struct pool *p)
{
    family(o, "experiment_requests_total", "counter", "Requests of an arm that have ended, by result.");
    put_of_arms(o, p, "requests_total", ",result=\"ok\"", arm_ok);
    put_of_arms(o, p, "requests_total", ",result=\"error\"", arm_errors);
    put_of_arms(o, p, "requests_total", ",result=\"cancelled\"", arm_cancelled);
    put_arm_seconds(o, p, "ttft_seconds", "Time to the first token of an arm's streams.", GATEWAY_TTFT);
    put_arm_seconds(o, p, "latency_seconds", "Time of an arm's answered requests.", GATEWAY_LATENCY);
    family(o, "experiment_generated_tokens_total", "counter", "Tokens of an arm's answers.");
    put_of_arms(o, p, "generated_tokens_total", "", arm_output);
    family(o, "experiment_cached_prompt_tokens_total", "counter",
           "Prompt tokens of an arm's requests that a target had cached.");
    put_of_arms(o, p, "cached_prompt_tokens_total", "", arm_cached);
    family(o, "experiment_cache_hits_total", "counter", "Requests of an arm that a response cache answered.");
    put_of_arms(o, p, "cache_hits_total", "", arm_hits);
    put_arm_cost(o, p);
}

static bool has_experiments(const struct pool *p)
{
    for (size_t i = 0; i < p->config->n_models; i++)
        if (p->models[i].trial)
            return true;
    return false;
}

void list_metrics(struct gateway *g, struct http_exchange *x)
{
    const struct pool *p = g->pool;
    struct buffer o = {0};
    put_requests(&o, p);
    put_latency(&o, p);
    put_counter(&o, p, "retries_total", "Attempts after the first one of a request.",
                offsetof(struct pool_counts, n_retries));
    put_counter(&o, p, "fallbacks_total", "Requests that went on to another model.",
                offsetof(struct pool_counts, n_fallbacks));
    put_counter(&o, p, "prompt_tokens_total", "Prompt tokens, as the targets report them.",
                offsetof(struct pool_counts, n_input));
    put_counter(&o, p, "cached_prompt_tokens_total", "Prompt tokens that a target had cached.",
                offsetof(struct pool_counts, n_cached_input));
    put_counter(&o, p, "generated_tokens_total", "Generated tokens, as the targets report them.",
                offsetof(struct pool_counts, n_output));
    put_money(&o, p, "cost_dollars_total", "Cost of the requests.", offsetof(struct pool_counts, cost));
    put_money(&o, p, "saved_dollars_total", "Cost that cached answers have saved.",
              offsetof(struct pool_counts, saved));
    put_targets(&o, p);
    if (has_experiments(p))
        put_arms(&o, p);
    if (g->options.more)
        g->options.more->put_metrics(g->options.more->context, &o);
    http_reply(x, o.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}
