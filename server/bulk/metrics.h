/* The metrics of batches for /metrics. Loop's thread. */
#ifndef QUIRE_BULK_METRICS_H
#define QUIRE_BULK_METRICS_H

#include "base/buffer.h"

/* For struct more_routes; context: the bulk. */
void bulk_put_metrics(void *context, struct buffer *o);

#endif
