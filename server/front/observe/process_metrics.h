/* process_*: what Prometheus' own clients say of a process, without labels. Linux: from /proc. Any thread. */
#ifndef QUIRE_FRONT_PROCESS_METRICS_H
#define QUIRE_FRONT_PROCESS_METRICS_H

#include "server/front/output/json_out.h"

/* Appends them; what /proc does not tell is left out. */
void process_metrics_text(struct buffer *o);

#endif
