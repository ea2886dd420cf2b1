/* Stages of a pipeline on the virtual clock: how long a step keeps the first one, and from when on the others are free for the
 * next. As the engine has them (docs/parallel.md, "Stages"):
 *
 *   A step goes through the stages in model_stage_micros() micro-batches. Handing one on takes both its stages, so that a
 *   stage that is done waits until the next one is. A step with logits is over when rank 0 has them, one without when the first
 *   stage has handed on its last micro-batch. The first stage begins a step once all stages are through with the one before the
 *   last: that far it may be ahead.
 *
 * What a micro-batch takes of a stage is the cost model's, of all layers, times the stage's share; logits are the last one's.
 * Plain arithmetic; any thread on its own state.
 */
#ifndef QUIRE_TOOLS_SIM_STAGES_H
#define QUIRE_TOOLS_SIM_STAGES_H

#include "scheduler/cost.h"
#include "scheduler/scheduler.h"

#define SIM_MAX_STAGES 8

struct sim_stages {
    uint32_t n; /* below 2: there is one */
    uint32_t micro_batch_tokens; /* at least */
    double share[SIM_MAX_STAGES]; /* of the layers; 1 in all */
    double call_us; /* of what is handed on, and back to rank 0: a call, */
    double token_us, logit_us; /* and each token's residual stream or row of logits */
};

struct sim_stage_clock {
    const struct sim_stages *stages;
    const struct sched_cost *cost;
    double free_us[SIM_MAX_STAGES]; /* when each stage can take the next micro-batch */
    double over_us[2]; /* when the last two steps had left the last stage, the older one first */
};

/* Both stay the caller's. */
void sim_stages_begin(struct sim_stage_clock *clock, const struct sim_stages *stages, const struct sched_cost *cost);

/* The plan is told at now_us. Returns when it is over for rank 0. */
double sim_stages_step(struct sim_stage_clock *clock, const struct sched_plan *plan, double now_us);

#endif
