/* process_*: the metrics that Prometheus' own clients export for a process, without labels. Linux: from /proc. Any
 * thread. */
#ifndef QUIRE_FRONT_PROCESS_METRICS_H
#define QUIRE_FRONT_PROCESS_METRICS_H

#include "server/front/output/json_out.h"

/* Appends them; omits values that /proc does not provide. */
void process_metrics_text(struct buffer *o);

#endif
