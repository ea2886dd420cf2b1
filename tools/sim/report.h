/* The results of a simulation as one HTML page: plots as inline SVG, and the numbers. It has no script and no external
 * resource, so it opens from a file and can be sent. Any thread. */
#ifndef QUIRE_TOOLS_SIM_REPORT_H
#define QUIRE_TOOLS_SIM_REPORT_H

#include "tools/sim/metrics.h"

/* QUIRE_IO names the file. */
int sim_report_write(const char *path, const struct sim_metrics *m, const char *policy, struct quire_error *err);

#endif
