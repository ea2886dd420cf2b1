#include "server/gateway/experiment/report.h"

#include <math.h>

const struct report_unit report_units[GATEWAY_N_METRICS] = {
    [GATEWAY_ERRORS] = {"%", 100},     [GATEWAY_CANCELLED] = {"%", 100},        [GATEWAY_TTFT] = {"ms", 1e-3},
    [GATEWAY_LATENCY] = {"ms", 1e-3},  [GATEWAY_OUTPUT_TOKENS] = {"tokens", 1}, [GATEWAY_CACHED_TOKENS] = {"tokens", 1},
    [GATEWAY_CACHE_HITS] = {"%", 100}, [GATEWAY_COST] = {"$", 1e-12},
};

struct report_row report_compare(const struct trial *t, const struct report_rule *rule, enum gateway_metric metric,
                                 uint32_t arm)
{
    struct report_row row = {.metric = metric, .arm = arm, .is_chosen = rule->metric && *rule->metric == metric};
    const uint32_t n_metrics = row.is_chosen ? 1 : GATEWAY_N_METRICS - (rule->metric ? 1 : 0);
    row.n_comparisons = n_metrics * (t->n_arms - 1);
    compare_sums(&t->arms[0].metrics[metric], &t->arms[arm].metrics[metric], rule->alpha / row.n_comparisons, &row.r);
    row.p = fmin(1, row.r.p * row.n_comparisons);
    return row;
}

const char *report_state(const struct report_row *row, double alpha)
{
    const bool is_small = row->r.control.n < COMPARE_MIN_REQUESTS || row->r.arm.n < COMPARE_MIN_REQUESTS;
    if (!row->r.is_valid)
        return is_small ? "too_few_requests" : "too_few_users";
    return row->p <= alpha ? "difference" : "no_difference";
}

static json_t *side_json(const struct compare_arm *a, double scale)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "n", a->n, "mean", scale * a->mean, "deviation", scale * a->deviation,
                     "effective_buckets", a->n_buckets);
}

static json_t *row_json(const struct trial *t, const struct report_row *row, double alpha)
{
    const double scale = report_units[row->metric].scale;
    const struct compare_result *r = &row->r;
    json_t *json = json_pack("{s:s, s:s, s:s, s:b, s:i, s:s, s:o, s:o}", "metric", gateway_metrics[row->metric].name,
                             "unit", report_units[row->metric].name, "arm", t->arms[row->arm].name, "is_chosen",
                             row->is_chosen, "n_comparisons", (int)row->n_comparisons, "state",
                             report_state(row, alpha), "control", side_json(&r->control, scale), "arm_values",
                             side_json(&r->arm, scale));
    if (json && r->is_valid)
        json_object_update_new(json, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "difference", scale * r->difference,
                                               "standard_error", scale * r->error, "low", scale * r->low, "high",
                                               scale * r->high, "p", r->p, "p_corrected", row->p));
    return json;
}

json_t *report_comparisons_json(const struct trial *t, const struct report_rule *rule)
{
    json_t *rows = json_array();
    for (int metric = 0; metric < GATEWAY_N_METRICS; metric++)
        for (uint32_t arm = 1; arm < t->n_arms; arm++) {
            const struct report_row row = report_compare(t, rule, (enum gateway_metric)metric, arm);
            json_array_append_new(rows, row_json(t, &row, rule->alpha));
        }
    return rows;
}
