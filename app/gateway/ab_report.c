#include "app/gateway/ab_report.h"

#include "server/gateway/experiment/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define TEST "mixture sequential probability ratio test (mSPRT), valid at every look"

/* ---- comparisons ---------------------------------------------------------------------------- */

struct row {
    enum gateway_metric metric;
    uint32_t arm;
    bool is_chosen; /* the metric that decides */
    uint32_t n_comparisons; /* of its family */
    double p; /* corrected */
    struct compare_result r; /* in units of the metric; the interval is corrected */
};

/* What people read instead of the gateway's whole numbers. */
static const struct {
    const char *unit;
    double scale;
} shown[GATEWAY_N_METRICS] = {
    [GATEWAY_ERRORS] = {"%", 100},     [GATEWAY_CANCELLED] = {"%", 100},        [GATEWAY_TTFT] = {"ms", 1e-3},
    [GATEWAY_LATENCY] = {"ms", 1e-3},  [GATEWAY_OUTPUT_TOKENS] = {"tokens", 1}, [GATEWAY_CACHED_TOKENS] = {"tokens", 1},
    [GATEWAY_CACHE_HITS] = {"%", 100}, [GATEWAY_COST] = {"$", 1e-12},
};

static struct row compare(const struct ab_experiment *e, const struct ab_settings *s, enum gateway_metric metric,
                          uint32_t arm)
{
    const bool has_metric = s->metric || e->has_metric;
    const enum gateway_metric chosen = s->metric ? *s->metric : e->metric;
    struct row row = {.metric = metric, .arm = arm, .is_chosen = has_metric && chosen == metric};
    const uint32_t n_metrics = row.is_chosen ? 1 : GATEWAY_N_METRICS - has_metric;
    row.n_comparisons = n_metrics * (e->trial->n_arms - 1);
    compare_sums(&e->trial->arms[0].metrics[metric], &e->trial->arms[arm].metrics[metric], s->alpha / row.n_comparisons,
                 &row.r);
    row.p = fmin(1, row.r.p * row.n_comparisons);
    return row;
}

/* "difference", "no_difference", "too_few_requests", "too_few_users". */
static const char *state_of(const struct row *row, const struct ab_settings *s)
{
    const bool is_small = row->r.control.n < COMPARE_MIN_REQUESTS || row->r.arm.n < COMPARE_MIN_REQUESTS;
    if (!row->r.is_valid)
        return is_small ? "too_few_requests" : "too_few_users";
    return row->p <= s->alpha ? "difference" : "no_difference";
}

/* ---- a table -------------------------------------------------------------------------------- */

/* Control characters of a server's reply must not reach a terminal. */
static void print_text(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void print_head(const struct ab_experiment *e)
{
    char since[32] = "no request yet";
    struct tm utc;
    const time_t at = (time_t)e->trial->since_s;
    size_t i;
    const json_t *warning;
    if (at > 0 && gmtime_r(&at, &utc))
        strftime(since, sizeof since, "since %Y-%m-%d %H:%M UTC", &utc);
    printf("experiment ");
    print_text(e->name);
    printf("  by %s, run ", e->by_request ? "request" : "user");
    print_text(e->trial->run);
    printf(", %s\n", since);
    for (uint32_t k = 0; k < e->trial->n_arms; k++) {
        printf("  arm ");
        print_text(e->trial->arms[k].name);
        printf(": model ");
        print_text(e->models[k]);
        printf(", weight %u, %llu requests%s\n", e->weights[k], (unsigned long long)e->trial->arms[k].n_requests,
               k == 0 ? " (the control)" : "");
    }
    if (e->n_other > 0)
        printf("  %llu requests of other runs are left out: the arms had other settings\n",
               (unsigned long long)e->n_other);
    json_array_foreach(e->warnings, i, warning)
    {
        printf("  warning: ");
        print_text(json_string_value(warning));
        putchar('\n');
    }
}

static const char *verdict(const struct row *row, const struct ab_settings *s)
{
    const char *state = state_of(row, s);
    if (strcmp(state, "difference") == 0)
        return row->r.difference > 0 ? "HIGHER than the control" : "LOWER than the control";
    if (strcmp(state, "too_few_requests") == 0)
        return "too few requests";
    return strcmp(state, "too_few_users") == 0 ? "too few users" : "no difference found";
}

static void print_row(const struct ab_experiment *e, const struct row *row, const struct ab_settings *s)
{
    const double scale = shown[row->metric].scale;
    const struct compare_result *r = &row->r;
    char name[40], arm[24], relative[24] = "", interval[48] = "-", p[16] = "-";
    snprintf(name, sizeof name, "%s%s, %s", row->is_chosen ? "* " : "  ", gateway_metrics[row->metric].name,
             shown[row->metric].unit);
    snprintf(arm, sizeof arm, "%.20s", e->trial->arms[row->arm].name);
    if (r->is_valid && r->control.mean != 0)
        snprintf(relative, sizeof relative, "%+.1f %%", 100 * r->difference / r->control.mean);
    if (r->is_valid) {
        snprintf(interval, sizeof interval, "%+.4g to %+.4g", scale * r->low, scale * r->high);
        snprintf(p, sizeof p, "%.3g", row->p);
    }
    printf("%-24s ", name);
    print_text(arm);
    printf("%*s %11.5g %11.5g %10s  %-26s %9s  %s\n", (int)(16 - (strlen(arm) < 16 ? strlen(arm) : 16)), "",
           scale * r->control.mean, scale * r->arm.mean, relative, interval, p, verdict(row, s));
}

void ab_report_print(const struct ab_experiment *e, const struct ab_settings *s)
{
    print_head(e);
    printf("\n%-24s %-16s %11s %11s %10s  %-26s %9s\n", "  metric", "arm", "control", "arm", "difference",
           "interval of it", "p");
    for (int chosen = 1; chosen >= 0; chosen--)
        for (int metric = 0; metric < GATEWAY_N_METRICS; metric++)
            for (uint32_t arm = 1; arm < e->trial->n_arms; arm++) {
                const struct row row = compare(e, s, (enum gateway_metric)metric, arm);
                if (row.is_chosen == chosen)
                    print_row(e, &row, s);
            }
    const bool has_metric = s->metric || e->has_metric;
    printf(
        "\nTest: " TEST "; p is corrected for %s%u comparisons.\nFalse alarms: at most %g %% for %s, however often you "
        "look.\n\n",
        has_metric ? "all other metrics: " : "", (GATEWAY_N_METRICS - has_metric) * (e->trial->n_arms - 1),
        100 * s->alpha, has_metric ? "the metric with *, and as much for all others together" : "all metrics together");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *side_json(const struct compare_arm *a, double scale)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "n", a->n, "mean", scale * a->mean, "deviation", scale * a->deviation,
                     "effective_buckets", a->n_buckets);
}

static json_t *row_json(const struct ab_experiment *e, const struct row *row, const struct ab_settings *s)
{
    const double scale = shown[row->metric].scale;
    const struct compare_result *r = &row->r;
    json_t *json = json_pack("{s:s, s:s, s:s, s:b, s:i, s:s, s:o, s:o}", "metric", gateway_metrics[row->metric].name,
                             "unit", shown[row->metric].unit, "arm", e->trial->arms[row->arm].name, "is_chosen",
                             row->is_chosen, "n_comparisons", (int)row->n_comparisons, "state", state_of(row, s),
                             "control", side_json(&r->control, scale), "arm_values", side_json(&r->arm, scale));
    if (json && r->is_valid)
        json_object_update_new(json, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "difference", scale * r->difference,
                                               "standard_error", scale * r->error, "low", scale * r->low, "high",
                                               scale * r->high, "p", r->p, "p_corrected", row->p));
    return json;
}

json_t *ab_report_json(const struct ab_experiment *e, const struct ab_settings *s)
{
    json_t *arms = json_array(), *rows = json_array();
    for (uint32_t k = 0; k < e->trial->n_arms; k++)
        json_array_append_new(arms, json_pack("{s:s, s:s, s:I, s:I}", "arm", e->trial->arms[k].name, "model",
                                              e->models[k], "weight", (json_int_t)e->weights[k], "requests",
                                              (json_int_t)e->trial->arms[k].n_requests));
    for (int metric = 0; metric < GATEWAY_N_METRICS; metric++)
        for (uint32_t arm = 1; arm < e->trial->n_arms; arm++) {
            const struct row row = compare(e, s, (enum gateway_metric)metric, arm);
            json_array_append_new(rows, row_json(e, &row, s));
        }
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:s, s:I, s:O, s:o, s:o}", "experiment", e->name, "run", e->trial->run,
                     "by", e->by_request ? "request" : "user", "since", (json_int_t)e->trial->since_s, "alpha",
                     s->alpha, "test", TEST, "requests_of_other_runs", (json_int_t)e->n_other, "warnings", e->warnings,
                     "arms", arms, "comparisons", rows);
}
