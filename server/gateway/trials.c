#include "server/gateway/trials.h"

#include "base/log.h"
#include "server/front/output/json_out.h"
#include "server/gateway/account/ledger_state.h"
#include "server/gateway/experiment/report.h"
#include "server/gateway/experiment/trial_bytes.h"

#include <stdlib.h>
#include <string.h>

/* ---- the log -------------------------------------------------------------------------------- */

static const struct trial *find(const struct pool *p, const char *name)
{
    const struct gateway_model *m = p ? models_file_find(p->config, name, strlen(name)) : NULL;
    return m ? p->models[m - p->config->models].trial : NULL;
}

static void log_begin(const struct pool *p, size_t i, const struct trial *before)
{
    const struct gateway_model *m = &p->config->models[i];
    char warning[VARIABLES_WARNING_BYTES];
    if (before == p->models[i].trial)
        return;
    if (before)
        quire_log(
            QUIRE_LOG_WARN, "gateway",
            "experiment %s begins anew as run %s, because its arms have changed; the statistics of %llu requests of run "
            "%s are dropped",
            m->name, p->models[i].trial->run, (unsigned long long)trial_requests(before), before->run);
    else
        quire_log(QUIRE_LOG_INFO, "gateway", "experiment %s: run %s, %u arms", m->name, p->models[i].trial->run,
                  m->route.experiment->n_arms);
    for (uint32_t arm = 1; arm < m->route.experiment->n_arms; arm++)
        if (variables_warn(p->config, (uint32_t)i, arm, warning))
            quire_log(QUIRE_LOG_WARN, "gateway", "%s", warning);
}

void trials_log(const struct pool *before, const struct pool *after)
{
    for (size_t i = 0; i < after->config->n_models; i++)
        if (after->models[i].trial)
            log_begin(after, i, find(before, after->config->models[i].name));
    for (size_t i = 0; before && i < before->config->n_models; i++)
        if (before->models[i].trial && !find(after, before->config->models[i].name))
            quire_log(QUIRE_LOG_WARN, "gateway", "experiment %s has ended; the statistics of %llu requests are dropped",
                      before->config->models[i].name, (unsigned long long)trial_requests(before->models[i].trial));
}

/* ---- the ledger ----------------------------------------------------------------------------- */

void trials_restore(struct gateway *g)
{
    for (size_t i = 0; i < g->pool->config->n_models; i++) {
        struct trial *t = g->pool->models[i].trial;
        const char *name = g->pool->config->models[i].name;
        struct buffer bytes = {0};
        if (!t || !ledger_take_state(g->options.ledger, name, &bytes))
            continue;
        if (trial_from_bytes(t, bytes.data, bytes.n))
            quire_log(QUIRE_LOG_INFO, "gateway", "experiment %s continues with the %llu requests of the ledger", name,
                      (unsigned long long)trial_requests(t));
        else
            quire_log(
                QUIRE_LOG_WARN, "gateway",
                "experiment %s begins anew as run %s: the ledger has the statistics of other arms, which are dropped",
                name, t->run);
        t->n_saved = trial_requests(t);
        buffer_free(&bytes);
    }
}

void trials_save(struct gateway *g)
{
    for (size_t i = 0; g->pool && i < g->pool->config->n_models; i++) {
        struct trial *t = g->pool->models[i].trial;
        struct buffer bytes = {0};
        if (!t || trial_requests(t) == t->n_saved)
            continue;
        trial_to_bytes(t, &bytes);
        if (!bytes.failed)
            ledger_put_state(g->options.ledger, g->pool->config->models[i].name, bytes.data, bytes.n);
        t->n_saved = trial_requests(t);
        buffer_free(&bytes);
    }
}

/* ---- GET /gateway/experiments --------------------------------------------------------------- */

static void put_text(struct buffer *o, const char *name, const char *value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_text_or_null(o, value);
}

static void put_number(struct buffer *o, const char *name, uint64_t value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_u64(o, value);
}

static void put_buckets(struct buffer *o, const char *name, const struct trial_cell *cells, bool is_sum)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":[");
    for (size_t i = 0; i < ASSIGN_BUCKETS; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, is_sum ? cells[i].sum : cells[i].n);
    }
    json_out_raw(o, "]");
}

/* The sum of squares is a text: it may have 39 digits. */
static void put_metric(struct buffer *o, enum gateway_metric metric, const struct trial_sums *s)
{
    char squares[TRIAL_SQUARES_BYTES];
    trial_squares_text(s->squares, squares);
    json_out_text(o, gateway_metrics[metric].name);
    json_out_raw(o, ":{\"unit\":");
    json_out_text(o, gateway_metrics[metric].unit);
    put_number(o, "n", s->all.n);
    put_number(o, "sum", s->all.sum);
    put_text(o, "sum_squares", squares);
    put_buckets(o, "bucket_n", s->buckets, false);
    put_buckets(o, "bucket_sum", s->buckets, true);
    json_out_raw(o, "}");
}

static void put_arm(struct buffer *o, const struct gateway_config *config, const struct gateway_arm *arm,
                    const struct trial_arm *counts)
{
    json_out_raw(o, "{\"arm\":");
    json_out_text(o, arm->name);
    put_text(o, "model", config->models[arm->model].name);
    put_number(o, "weight", arm->weight);
    put_number(o, "requests", counts->n_requests);
    json_out_raw(o, ",\"metrics\":{");
    for (int i = 0; i < GATEWAY_N_METRICS; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        put_metric(o, (enum gateway_metric)i, &counts->metrics[i]);
    }
    json_out_raw(o, "}}");
}

static void put_experiment(struct buffer *o, const struct gateway_config *config, uint32_t model, const struct trial *t)
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    char warning[VARIABLES_WARNING_BYTES];
    bool first = true;
    json_out_raw(o, "{\"experiment\":");
    json_out_text(o, config->models[model].name);
    put_text(o, "by", e->by_request ? "request" : "user");
    put_text(o, "metric", e->has_metric ? gateway_metrics[e->metric].name : NULL);
    put_text(o, "run", t->run);
    put_number(o, "since", (uint64_t)t->since_s);
    json_out_raw(o, ",\"warnings\":[");
    for (uint32_t i = 1; i < e->n_arms; i++) {
        if (!variables_warn(config, model, i, warning))
            continue;
        json_out_raw(o, first ? "" : ",");
        json_out_text(o, warning);
        first = false;
    }
    json_out_raw(o, "],\"arms\":[");
    for (uint32_t i = 0; i < e->n_arms; i++) {
        json_out_raw(o, i > 0 ? "," : "");
        put_arm(o, config, &e->arms[i], &t->arms[i]);
    }
    json_out_raw(o, "]}");
}

void list_experiments(struct gateway *g, struct http_exchange *x)
{
    const struct pool *p = g->pool;
    struct buffer o = {0};
    bool first = true;
    json_out_raw(&o, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < p->config->n_models; i++) {
        if (!p->models[i].trial)
            continue;
        json_out_raw(&o, first ? "" : ",");
        put_experiment(&o, p->config, i, p->models[i].trial);
        first = false;
    }
    json_out_raw(&o, "]}");
    http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

/* ---- GET /gateway/experiments/report -------------------------------------------------------- */

static json_t *report_arms(const struct gateway_config *config, const struct gateway_experiment *e,
                           const struct trial *t)
{
    json_t *arms = json_array();
    for (uint32_t i = 0; i < e->n_arms; i++)
        json_array_append_new(arms,
                              json_pack("{s:s, s:s, s:I, s:I}", "arm", e->arms[i].name, "model",
                                        config->models[e->arms[i].model].name, "weight", (json_int_t)e->arms[i].weight,
                                        "requests", (json_int_t)t->arms[i].n_requests));
    return arms;
}

static json_t *report_warnings(const struct gateway_config *config, uint32_t model)
{
    char warning[VARIABLES_WARNING_BYTES];
    json_t *warnings = json_array();
    for (uint32_t i = 1; i < config->models[model].route.experiment->n_arms; i++)
        if (variables_warn(config, model, i, warning))
            json_array_append_new(warnings, json_string(warning));
    return warnings;
}

static json_t *report_of(const struct gateway_config *config, uint32_t model, const struct trial *t)
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    const struct report_rule rule = {REPORT_ALPHA, e->has_metric ? &e->metric : NULL};
    return json_pack("{s:s, s:s, s:s?, s:s, s:I, s:f, s:s, s:o, s:o, s:o}", "experiment", config->models[model].name,
                     "by", e->by_request ? "request" : "user", "metric",
                     e->has_metric ? gateway_metrics[e->metric].name : NULL, "run", t->run, "since",
                     (json_int_t)t->since_s, "alpha", rule.alpha, "test", REPORT_TEST, "warnings",
                     report_warnings(config, model), "arms", report_arms(config, e, t), "comparisons",
                     report_comparisons_json(t, &rule));
}

void report_experiments(struct gateway *g, struct http_exchange *x)
{
    const struct pool *p = g->pool;
    json_t *all = json_array(), *reply = NULL;
    char *text = NULL;
    bool failed = false;
    for (uint32_t i = 0; i < p->config->n_models; i++)
        if (p->models[i].trial)
            failed |= json_array_append_new(all, report_of(p->config, i, p->models[i].trial)) != 0;
    reply = json_pack("{s:s, s:o}", "object", "list", "data", all);
    if (reply && !failed)
        text = json_dumps(reply, JSON_COMPACT | JSON_REAL_PRECISION(9));
    http_reply(x, text ? 200 : 503, "application/json", text, text ? strlen(text) : 0);
    free(text);
    json_decref(reply);
}
