/* Health probes of upstream servers whose breaker is not closed: GET {url}/models. Loop's thread. */
#ifndef QUIRE_GATEWAY_PROBE_H
#define QUIRE_GATEWAY_PROBE_H

#include "server/gateway/gateway_internal.h"

/* Begins the probes that are due. Returns whether a later call may have others to begin. */
bool probe_targets(struct gateway *g);
/* Cancels the probes that run. */
void probes_end(struct gateway *g);

#endif
