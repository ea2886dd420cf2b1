/* The steps of a recorded server, for a cost model of the server as it really ran: with its front end, its clients and
 * other programs of the machine.
 *
 * A step's time is from its plan to the next plan. Left out are steps with copies of blocks, and the last one before
 * the engine was idle, whose end is unknown. No global state; any thread.
 */
#ifndef QUIRE_TOOLS_BENCH_RECORDED_H
#define QUIRE_TOOLS_BENCH_RECORDED_H

#include "tools/bench/lib/cost_fit.h"

/* In the order in which they ran. The caller frees *samples. QUIRE_INVALID: not a consistent recording, or it has no
 * step. */
int bench_recorded_steps(const char *path, struct cost_sample **samples, size_t *n, struct quire_error *err);

#endif
