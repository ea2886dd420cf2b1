/* The steps of a recorded server, for a cost model of it as it really ran: beside its own front end, its clients and
 * whatever else the machine did.
 *
 * A step's time is from its plan to the next plan. Left out are steps with copies of blocks, and the last before the engine
 * was idle: nothing says when it ended. No global state; any thread.
 */
#ifndef QUIRE_TOOLS_BENCH_RECORDED_H
#define QUIRE_TOOLS_BENCH_RECORDED_H

#include "tools/bench/lib/cost_fit.h"

/* In the order in which they ran. The caller frees *samples. QUIRE_INVALID: not a recording that can be followed, or it has
 * no step. */
int bench_recorded_steps(const char *path, struct cost_sample **samples, size_t *n, struct quire_error *err);

#endif
