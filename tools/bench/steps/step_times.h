/* The times of an engine's steps, as its observers report them: records the steps of each run of a scene, and gives the
 * medians over all runs.
 *
 * A step's time is from its plan to the next plan. On an engine that plans a step while one runs, it is from the
 * step's launch, or from the end of the previous step if that is later, to its end. Left out are steps that the caller
 * disturbed, the last before the engine is idle, and the first of a scene with only decodes, which reads from memory
 * what is in caches later.
 *
 * No lock of its own: the caller serializes the calls.
 */
#ifndef QUIRE_TOOLS_BENCH_STEP_TIMES_H
#define QUIRE_TOOLS_BENCH_STEP_TIMES_H

#include "engine/watch.h"
#include "tools/bench/lib/cost_fit.h"

struct bench_step_times;

/* NULL: memory is out. */
struct bench_step_times *bench_step_times_new(void);
void bench_step_times_free(struct bench_step_times *t); /* NULL is allowed */
/* Before the first step: whether the engine plans a step while one runs. */
void bench_step_times_overlap(struct bench_step_times *t, bool overlaps);

/* The next steps are not recorded; those in flight are forgotten. */
void bench_step_times_forget(struct bench_step_times *t);
/* The next steps are a run of the scene, until bench_step_times_stop(). */
void bench_step_times_record(struct bench_step_times *t, uint32_t scene);
void bench_step_times_stop(struct bench_step_times *t);

/* The reports of engine/watch.h. QUIRE_NO_MEMORY. */
int bench_step_times_planned(struct bench_step_times *t, uint64_t now_us, const struct sched_plan *plan,
                             struct quire_error *err);
int bench_step_times_committed(struct bench_step_times *t, const struct engine_watch_commit *commit,
                               struct quire_error *err);
/* Leaves out the newest step, because the caller delays the engine. */
void bench_step_times_disturb(struct bench_step_times *t);

struct bench_step { /* of a scene */
    uint32_t scene;
    uint32_t n_runs;
    struct cost_sample median;
    double halves_us[2]; /* medians of every other run; equal after a single run */
};
/* One entry for each step of each scene, by scene. Steps whose shape differs between runs are left out. The caller
 * frees *out. QUIRE_NO_MEMORY. */
int bench_step_times_medians(struct bench_step_times *t, struct bench_step **out, size_t *n, struct quire_error *err);

#endif
