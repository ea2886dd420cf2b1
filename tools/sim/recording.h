/* A recording of a live server as a simulation sees it: what happened, by forcing its times upon the scheduler, and its
 * requests, to be simulated with the cost model's times instead.
 *
 * With drafts a prediction proposes what was proposed where a request had as many tokens, and so much of it is right as was
 * what came. Where the live one never stood, because it had accepted that place, the rest of the proposal before it counts.
 *
 * What a prediction leaves out: requests that got no token; cancels (a cancelled answer ends where it ended); choices but
 * the first; the way prompt logprobs go; pins; changes of the policy on the way. One thread at a time.
 */
#ifndef QUIRE_TOOLS_SIM_RECORDING_H
#define QUIRE_TOOLS_SIM_RECORDING_H

#include "engine/record/drive.h"
#include "tools/sim/metrics.h"

struct sim_recording {
    struct recording *file;
    struct recording_run run;
    struct sim_workload workload; /* the requests that got tokens, in the order of submission */
    struct sim_result live; /* what happened to them */
    uint64_t *offsets; /* [workload.n] of their submissions */
    struct sim_guess *guesses; /* of all requests; NULL when there were no drafts */
    struct sched_config config; /* of the recorded engine; borrows from file */
};

/* QUIRE_INVALID: broken, or nothing was served. A decision that differs is no error here: run.agrees. Freed by
 * sim_recording_close(), also after a failure. */
int sim_recording_open(const char *path, struct sim_recording *out, struct quire_error *err);
void sim_recording_close(struct sim_recording *r);

#endif
