/* The experiments of the gateway in its log, in its ledger and at GET /gateway/experiments and /gateway/experiments/report. Loop's thread. */
#ifndef QUIRE_GATEWAY_TRIALS_H
#define QUIRE_GATEWAY_TRIALS_H

#include "server/gateway/gateway_internal.h"

/* Logs what a new pool does to experiments: those that begin, begin anew or end, and arms that differ in more than one variable.
 * before: the pool that it follows; NULL: the start. */
void trials_log(const struct pool *before, const struct pool *after);
/* After the start: continues with the statistics that the ledger's file has, if their run is the same. */
void trials_restore(struct gateway *g);
/* Writes to the ledger the statistics that have changed. */
void trials_save(struct gateway *g);
void list_experiments(struct gateway *g, struct http_exchange *x);
/* Replies what `quire ab report --json` prints for alpha 0.05: the comparisons of each experiment, without the statistics. */
void report_experiments(struct gateway *g, struct http_exchange *x);

#endif
