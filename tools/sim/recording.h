/* A recording of a live server, for a simulation: the live course, reproduced by driving the scheduler with the
 * recorded times, and its requests, to be simulated with the cost model's times.
 *
 * With drafts, a prediction proposes the recorded drafts at the same number of tokens, and the recorded tokens decide
 * how many are accepted. At a position that the live run skipped because a draft covered it, the rest of that earlier
 * proposal counts.
 *
 * A prediction ignores: requests without a token; cancels (a cancelled answer ends at its recorded end); choices except
 * the first; the path of prompt logprobs; pins; changes of the policy. One thread at a time.
 */
#ifndef QUIRE_TOOLS_SIM_RECORDING_H
#define QUIRE_TOOLS_SIM_RECORDING_H

#include "engine/record/drive.h"
#include "tools/sim/metrics.h"

struct sim_recording {
    struct recording *file;
    const struct sched_config *config; /* of the recorded engine; borrows from file */
    struct recording_run run;
    struct sim_workload *workload; /* the caller's, as `live` */
    struct sim_result *live;
    uint64_t *offsets; /* [workload->n] of their submissions */
    struct sim_guess *guesses; /* of all requests; NULL without drafts */
};

/* *workload: the requests that got tokens, in order of submission; prompts are read from the file. *live: their live
 * course. QUIRE_INVALID: corrupt, or without served requests. A different decision is not an error: see run.agrees. Close
 * all three, also after an error: sim_workload_close(), sim_result_free(), sim_recording_close(). */
int sim_recording_open(const char *path, struct sim_recording *out, struct sim_workload *workload,
                       struct sim_result *live, struct quire_error *err);
void sim_recording_close(struct sim_recording *r);

#endif
