#include "app/gateway/models_summary.h"

#include "server/gateway/account/ledger.h"
#include "server/gateway/experiment/variables.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {
    [GATEWAY_TARGET_MODEL] = "model", [GATEWAY_TARGET_ENGINE] = "engine", [GATEWAY_TARGET_URL] = "url"};

/* Dollars for 1,000 tokens. */
static const char *price_text(uint64_t picodollars, char out[LEDGER_MONEY_BYTES])
{
    ledger_money(picodollars * 1000, out);
    return out;
}

/* ---- a table -------------------------------------------------------------------------------- */

static void print_target(const struct gateway_target *t)
{
    printf("  %-6s %s", kinds[t->kind], t->place);
    if (strcmp(t->name, t->place) != 0)
        printf("  name %s", t->name);
    if (t->upstream_model)
        printf("  model %s", t->upstream_model);
    if (t->key)
        printf("  with a key");
    if (t->weight != 1)
        printf("  weight %u", t->weight);
    if (t->max_concurrent)
        printf("  at most %u at a time", t->max_concurrent);
    putchar('\n');
    for (size_t i = 0; i < t->n_options; i++)
        printf("%s%s%s", i ? " " : "         ", t->options[i], i + 1 == t->n_options ? "\n" : "");
}

static void print_names(const char *what, const struct gateway_config *config, const uint32_t *models, uint32_t n)
{
    printf("  %s ", what);
    for (uint32_t i = 0; i < n; i++)
        printf("%s%s", i ? ", " : "", config->models[models[i]].name);
    putchar('\n');
}

static void print_experiment(const struct gateway_config *config, const struct gateway_model *m)
{
    const struct gateway_experiment *e = m->route.experiment;
    const uint32_t model = (uint32_t)(m - config->models);
    char run[VARIABLES_RUN_BYTES];
    variables_run(config, model, run);
    printf("  route  experiment by %s, metric %s, run %s\n", e->by_request ? "request" : "user",
           e->has_metric ? gateway_metrics[e->metric].name : "not chosen", run);
    for (uint32_t i = 0; i < e->n_arms; i++) {
        struct buffer names = {0};
        const uint32_t n = variables_differ(config, model, i, &names);
        printf("  arm    %s: %s, weight %u%s%s\n", e->arms[i].name, config->models[e->arms[i].model].name,
               e->arms[i].weight, n > 0 ? "; differs in " : "", n > 0 && buffer_text(&names) ? names.data : "");
        buffer_free(&names);
    }
}

static void print_model(const struct gateway_config *config, const struct gateway_model *m)
{
    char in[LEDGER_MONEY_BYTES], cached[LEDGER_MONEY_BYTES], out[LEDGER_MONEY_BYTES];
    printf("%s", m->name);
    for (size_t i = 0; i < m->n_aliases; i++)
        printf("%s%s", i ? ", " : "  also ", m->aliases[i]);
    putchar('\n');
    if (m->route.kind == GATEWAY_ROUTE_COMPLEXITY)
        printf("  route  complexity: simple %s, moderate %s, complex %s\n", config->models[m->route.simple].name,
               config->models[m->route.moderate].name, config->models[m->route.complex].name);
    if (m->route.kind == GATEWAY_ROUTE_LATENCY)
        print_names("route  latency: the fastest of", config, m->route.among, m->route.n_among);
    if (m->route.kind == GATEWAY_ROUTE_EXPERIMENT)
        print_experiment(config, m);
    for (size_t i = 0; i < m->n_targets; i++)
        print_target(&m->targets[i]);
    if (m->price.is_set)
        printf("  price  %s input, %s cached input, %s output (dollars for 1,000 tokens)\n",
               price_text(m->price.input, in), price_text(m->price.cached_input, cached),
               price_text(m->price.output, out));
    if (m->max_tokens)
        printf("  limit  %u tokens of an answer\n", m->max_tokens);
    if (m->batching.max_batch_size)
        printf("  batch  %u requests, %u ms\n", m->batching.max_batch_size, m->batching.max_wait_ms);
    if (m->n_fallback)
        print_names("then  ", config, m->fallback, m->n_fallback);
}

void models_summary_print(const struct gateway_config *config)
{
    for (size_t i = 0; i < config->n_models; i++)
        print_model(config, &config->models[i]);
    for (size_t i = 0; i < config->n_overrides; i++)
        printf("tenant %s: %s instead of %s\n", config->overrides[i].tenant,
               config->models[config->overrides[i].model].name, config->overrides[i].asked);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *names_json(const struct gateway_config *config, const uint32_t *models, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(config->models[models[i]].name));
    return list;
}

static json_t *texts_json(const char *const *texts, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(texts[i]));
    return list;
}

static json_t *target_json(const struct gateway_target *t)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:b, s:i, s:i, s:o}", "name", t->name, "kind", kinds[t->kind], "place",
                     t->place, "upstream_model", t->upstream_model, "has_key", t->key != NULL, "weight", (int)t->weight,
                     "max_concurrent", (int)t->max_concurrent, "options", texts_json(t->options, t->n_options));
}

static json_t *experiment_json(const struct gateway_config *config, const struct gateway_route *r)
{
    const struct gateway_experiment *e = r->experiment;
    json_t *arms = json_array();
    for (uint32_t i = 0; i < e->n_arms; i++)
        json_array_append_new(arms, json_pack("{s:s, s:s, s:i}", "arm", e->arms[i].name, "model",
                                              config->models[e->arms[i].model].name, "weight", (int)e->arms[i].weight));
    return json_pack("{s:s, s:s, s:s?, s:o}", "rule", "experiment", "by", e->by_request ? "request" : "user", "metric",
                     e->has_metric ? gateway_metrics[e->metric].name : NULL, "arms", arms);
}

static json_t *route_json(const struct gateway_config *config, const struct gateway_route *r)
{
    if (r->kind == GATEWAY_ROUTE_COMPLEXITY)
        return json_pack("{s:s, s:s, s:s, s:s}", "rule", "complexity", "simple", config->models[r->simple].name,
                         "moderate", config->models[r->moderate].name, "complex", config->models[r->complex].name);
    if (r->kind == GATEWAY_ROUTE_LATENCY)
        return json_pack("{s:s, s:o}", "rule", "latency", "among", names_json(config, r->among, r->n_among));
    return r->kind == GATEWAY_ROUTE_EXPERIMENT ? experiment_json(config, r) : json_null();
}

/* Decimal texts: a JSON number would pass through binary fractions. */
static json_t *price_json(const struct gateway_price *p)
{
    char in[LEDGER_MONEY_BYTES], cached[LEDGER_MONEY_BYTES], out[LEDGER_MONEY_BYTES];
    return p->is_set ? json_pack("{s:s, s:s, s:s}", "input", price_text(p->input, in), "cached_input",
                                 price_text(p->cached_input, cached), "output", price_text(p->output, out))
                     : json_null();
}

static json_t *model_json(const struct gateway_config *config, const struct gateway_model *m)
{
    json_t *targets = json_array();
    for (size_t i = 0; i < m->n_targets; i++)
        json_array_append_new(targets, target_json(&m->targets[i]));
    return json_pack("{s:s, s:o, s:o, s:s?, s:o, s:o, s:o, s:i, s:i}", "name", m->name, "aliases",
                     texts_json(m->aliases, m->n_aliases), "targets", targets, "tokenizer", m->tokenizer, "route",
                     route_json(config, &m->route), "fallback", names_json(config, m->fallback, m->n_fallback),
                     "price_per_1k", price_json(&m->price), "avg_latency_ms", (int)m->avg_latency_ms, "max_tokens",
                     (int)m->max_tokens);
}

json_t *models_summary_json(const struct gateway_config *config)
{
    json_t *models = json_array(), *overrides = json_array();
    for (size_t i = 0; i < config->n_models; i++)
        json_array_append_new(models, model_json(config, &config->models[i]));
    for (size_t i = 0; i < config->n_overrides; i++)
        json_array_append_new(overrides, json_pack("{s:s, s:s, s:s}", "tenant", config->overrides[i].tenant, "model",
                                                   config->overrides[i].asked, "instead",
                                                   config->models[config->overrides[i].model].name));
    return json_pack("{s:o, s:o}", "models", models, "overrides", overrides);
}
