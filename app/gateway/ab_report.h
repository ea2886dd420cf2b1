/* The report of `quire ab report`, as a table or JSON. Main thread. */
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
