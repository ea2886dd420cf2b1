/* The stages of a pipeline on the virtual clock: how long a step occupies the first one, and when the others are free
 * for the next step. The rules are the engine's (docs/guides/parallel-cpu.md, "Stages"):
 *
 *   A step passes through the stages in model_stage_micros() micro-batches. A transfer occupies both its stages, so a stage
 *   that is done waits until the next one is free. A step with logits ends when rank 0 has them, one without when the first
 *   stage has passed on its last micro-batch. The first stage starts a step when all stages have finished the step before the
 *   previous one: it may be that far ahead.
 *
 * The time of a micro-batch in a stage is the cost model's time for all layers, times the stage's share; logits count
 * for the last stage. Plain arithmetic; any thread on its own state.
 */
#ifndef QUIRE_TOOLS_SIM_STAGES_H
#define QUIRE_TOOLS_SIM_STAGES_H

#include "scheduler/cost.h"
#include "scheduler/scheduler.h"
#include "scheduler/types/plan.h"

#define SIM_MAX_STAGES 8

struct sim_stages {
    uint32_t n; /* below 2: a single stage */
    uint32_t micro_batch_tokens; /* at least */
    double share[SIM_MAX_STAGES]; /* of the layers; the sum is 1 */
    double call_us; /* transfer to the next stage, and back to rank 0: per call, */
    double token_us, logit_us; /* and per token's residual stream or row of logits */
};

struct sim_stage_clock {
    const struct sim_stages *stages;
    const struct sched_cost *cost;
    double free_us[SIM_MAX_STAGES]; /* when each stage can take the next micro-batch */
    double over_us[2]; /* when the last two steps left the last stage, the older one first */
};

/* Both remain the caller's. */
void sim_stages_begin(struct sim_stage_clock *clock, const struct sim_stages *stages, const struct sched_cost *cost);

/* The plan starts at now_us. Returns when it ends for rank 0. */
double sim_stages_step(struct sim_stage_clock *clock, const struct sched_plan *plan, double now_us);

#endif
