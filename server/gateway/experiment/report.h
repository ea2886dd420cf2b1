/* The comparisons of an experiment's report: each arm against the first one, metric by metric. Pure.
 *
 * p values are corrected by Bonferroni: those of the metric that was chosen in advance for the number of its comparisons (arms
 * without the first), those of the other metrics for the number of all their comparisons. So the chance of a false alarm is at
 * most alpha for the chosen metric, and at most alpha for all others together, however often someone looks.
 */
#ifndef QUIRE_GATEWAY_REPORT_H
#define QUIRE_GATEWAY_REPORT_H

#include "server/gateway/experiment/compare.h"

#include <jansson.h>

#define REPORT_ALPHA 0.05
#define REPORT_TEST "mixture sequential probability ratio test (mSPRT), valid at every look"

struct report_rule {
    double alpha; /* in (0, 1) */
    const enum gateway_metric *metric; /* the one that decides; NULL: all share the false alarms */
};

struct report_row {
    enum gateway_metric metric;
    uint32_t arm;
    bool is_chosen; /* the metric that decides */
    uint32_t n_comparisons; /* of its family */
    double p; /* corrected */
    struct compare_result r; /* in the whole numbers of the trial; the interval is corrected */
};

/* Shown in place of the trial's whole numbers. */
struct report_unit {
    const char *name; /* "ms" */
    double scale;
};
extern const struct report_unit report_units[GATEWAY_N_METRICS];

/* arm: 1..n_arms - 1. */
struct report_row report_compare(const struct trial *t, const struct report_rule *rule, enum gateway_metric metric,
                                 uint32_t arm);

/* "difference", "no_difference", "too_few_requests" or "too_few_users". Static. */
const char *report_state(const struct report_row *row, double alpha);

/* All comparisons, in units for people. The arms have names. NULL: no memory. */
json_t *report_comparisons_json(const struct trial *t, const struct report_rule *rule);

#endif
