/* The results of a simulation as one page of HTML: plots as inline SVG and the numbers beside them, no script, no resource
 * from elsewhere, so that it opens from a file and can be sent to somebody. */
#ifndef QUIRE_TOOLS_SIM_REPORT_H
#define QUIRE_TOOLS_SIM_REPORT_H

#include "tools/sim/metrics.h"

/* QUIRE_IO names the file. */
int sim_report_write(const char *path, const struct sim_metrics *m, const char *policy, struct quire_error *err);

#endif
