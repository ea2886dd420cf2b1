/* The report of `quire ab report`: each arm against the first one, metric by metric. Main thread.
 *
 * p values are corrected by Bonferroni: those of the metric that was chosen in advance for the number of its comparisons (arms
 * without the first), those of the other metrics for the number of all their comparisons. So the chance of a false alarm is at
 * most alpha for the chosen metric, and at most alpha for all others together, however often someone looks.
 */
#ifndef QUIRE_APP_GATEWAY_AB_REPORT_H
#define QUIRE_APP_GATEWAY_AB_REPORT_H

#include "app/gateway/ab_data.h"

struct ab_settings {
    double alpha;
    const enum gateway_metric *metric; /* instead of the experiment's; NULL: that one */
};

void ab_report_print(const struct ab_experiment *e, const struct ab_settings *settings);
/* NULL: no memory. */
json_t *ab_report_json(const struct ab_experiment *e, const struct ab_settings *settings);

#endif
