/* Health probes of upstream servers whose breaker is not closed: GET {url}/models. Loop's thread. */
#ifndef QUIRE_GATEWAY_PROBE_H
#define QUIRE_GATEWAY_PROBE_H

#include "server/gateway/gateway_internal.h"

#define PROBE_MS 500 /* how often targets are looked at */

/* Begins the probes that are due. */
void probe_targets(struct gateway *g);
/* Cancels the probes that run. */
void probes_end(struct gateway *g);

#endif
