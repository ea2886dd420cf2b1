#include "app/gateway/ab_report.h"

#include "server/gateway/experiment/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The metric that decides; NULL: none does. */
static struct report_rule rule_of(const struct ab_experiment *e, const struct ab_settings *s)
{
    return (struct report_rule){s->alpha, s->metric ? s->metric : e->has_metric ? &e->metric : NULL};
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

static const char *verdict(const struct report_row *row, double alpha)
{
    const char *state = report_state(row, alpha);
    if (strcmp(state, "difference") == 0)
        return row->r.difference > 0 ? "HIGHER than the control" : "LOWER than the control";
    if (strcmp(state, "too_few_requests") == 0)
        return "too few requests";
    return strcmp(state, "too_few_users") == 0 ? "too few users" : "no difference found";
}

static void print_row(const struct ab_experiment *e, const struct report_row *row, double alpha)
{
    const double scale = report_units[row->metric].scale;
    const struct compare_result *r = &row->r;
    char name[40], arm[24], relative[24] = "", interval[48] = "-", p[16] = "-";
    snprintf(name, sizeof name, "%s%s, %s", row->is_chosen ? "* " : "  ", gateway_metrics[row->metric].name,
             report_units[row->metric].name);
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
           scale * r->control.mean, scale * r->arm.mean, relative, interval, p, verdict(row, alpha));
}

void ab_report_print(const struct ab_experiment *e, const struct ab_settings *s)
{
    const struct report_rule rule = rule_of(e, s);
    print_head(e);
    printf("\n%-24s %-16s %11s %11s %10s  %-26s %9s\n", "  metric", "arm", "control", "arm", "difference",
           "interval of it", "p");
    for (int chosen = 1; chosen >= 0; chosen--)
        for (int metric = 0; metric < GATEWAY_N_METRICS; metric++)
            for (uint32_t arm = 1; arm < e->trial->n_arms; arm++) {
                const struct report_row row = report_compare(e->trial, &rule, (enum gateway_metric)metric, arm);
                if (row.is_chosen == chosen)
                    print_row(e, &row, s->alpha);
            }
    const bool has_metric = rule.metric != NULL;
    printf("\nTest: " REPORT_TEST
           "; p is corrected for %s%u comparisons.\nFalse alarms: at most %g %% for %s, however often you "
           "look.\n\n",
           has_metric ? "all other metrics: " : "", (GATEWAY_N_METRICS - has_metric) * (e->trial->n_arms - 1),
           100 * s->alpha,
           has_metric ? "the metric with *, and as much for all others together" : "all metrics together");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

json_t *ab_report_json(const struct ab_experiment *e, const struct ab_settings *s)
{
    const struct report_rule rule = rule_of(e, s);
    json_t *arms = json_array(), *rows = report_comparisons_json(e->trial, &rule);
    for (uint32_t k = 0; k < e->trial->n_arms; k++)
        json_array_append_new(arms, json_pack("{s:s, s:s, s:I, s:I}", "arm", e->trial->arms[k].name, "model",
                                              e->models[k], "weight", (json_int_t)e->weights[k], "requests",
                                              (json_int_t)e->trial->arms[k].n_requests));
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:s, s:I, s:O, s:o, s:o}", "experiment", e->name, "run", e->trial->run,
                     "by", e->by_request ? "request" : "user", "since", (json_int_t)e->trial->since_s, "alpha",
                     s->alpha, "test", REPORT_TEST, "requests_of_other_runs", (json_int_t)e->n_other, "warnings",
                     e->warnings, "arms", arms, "comparisons", rows);
}
