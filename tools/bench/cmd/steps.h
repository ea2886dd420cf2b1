/* Steps of a known shape, run on an engine in this process and timed.
 *
 * A scene is sent as requests: first those that decode, all of which have begun before the prompts come. Their contexts
 * are prefixes that bench_steps_fill() has computed once and the prefix cache holds, so that a step at a long context
 * costs no long prompt. While a wave is submitted the engine is held between two steps, so that the same scene gives the
 * same steps every time.
 *
 * Drafts are the answers themselves, which a run without drafts has told: all are right, so that a scene's steps are known
 * beforehand. Right or wrong, a draft costs the same. Of scenes that differ in their drafts alone the one with most is best
 * run first: its answers serve the others.
 *
 * A step's time is from its plan to the next plan: the host's share is in it, as it is in what a server's clients see.
 * Left out are steps that the engine was held in, the last before it goes idle, and the first of a scene when all decode in
 * it, which reads from memory what then lies in caches.
 *
 * One thread calls. What the engine's own thread reports is gathered inside.
 */
#ifndef QUIRE_TOOLS_BENCH_STEPS_H
#define QUIRE_TOOLS_BENCH_STEPS_H

#include "engine/engine.h"
#include "engine/plan.h"
#include "tools/bench/lib/cost_fit.h"

#define BENCH_MAX_DRAFTS 16u /* of a row */

struct bench_steps;

/* Options as given, but for the watch that is added and drafts, which are as many as a scene says. They need prefix caching. */
int bench_steps_open(const struct engine_options *options, uint64_t seed, struct bench_steps **out,
                     struct quire_error *err);
void bench_steps_close(struct bench_steps *b); /* NULL is fine */
const struct engine_info *bench_steps_info(const struct bench_steps *b);

/* Computes prefix i, n_tokens of random ids, which a whole number of blocks hold; *seconds is what it took. */
int bench_steps_fill(struct bench_steps *b, uint32_t i, uint32_t n_tokens, double *seconds, struct quire_error *err);

struct bench_scene {
    uint32_t n_decode, decode_context; /* request i of these begins with so much of prefix i */
    uint32_t n_drafts; /* of each that decodes; then there are no prompts */
    uint32_t n_prompts, prompt_context; /* request i of these: of prefix n_decode + i */
    uint32_t prompt_len; /* of each prompt, past its context */
    uint32_t n_steps; /* in which all that decode do so, before the prompts come; >= 1,
                                           and the first is left out */
};
/* Runs it once. `index` names the scene's steps among those of others. */
int bench_steps_run(struct bench_steps *b, uint32_t index, const struct bench_scene *scene, struct quire_error *err);

/* What was measured, one entry for each step of each scene, by scene. Steps that a scene did not give with one shape in
 * every run are left out. */
struct bench_step {
    uint32_t scene;
    uint32_t n_runs;
    struct cost_sample median;
    double halves_us[2]; /* medians of every other run; equal when there was one run */
};
/* The caller frees *out. */
int bench_steps_medians(const struct bench_steps *b, struct bench_step **out, size_t *n, struct quire_error *err);

#endif
