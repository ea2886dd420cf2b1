/* Steps of a known shape, run on an engine in this process and timed.
 *
 * A scene is sent as requests: first those that decode, all of which have begun before the prompts arrive. Their
 * contexts are prefixes that bench_steps_fill() has computed once and the prefix cache holds, so a step at a long
 * context needs no long prompt. While a wave is submitted, the engine is held between two steps, so that the same scene
 * gives the same steps every time.
 *
 * Drafts are the answers themselves, from an earlier run without drafts: all are accepted, so a scene's steps are known
 * in advance. A rejected draft costs the same as an accepted one. Of scenes that differ only in their drafts, run the
 * one with most first: its answers serve the others.
 *
 * A step in which the engine was held is left out; step_times.h has the definition of a step's time.
 *
 * One thread calls. Reports of the engine's own thread are collected inside.
 */
#ifndef QUIRE_TOOLS_BENCH_STEPS_H
#define QUIRE_TOOLS_BENCH_STEPS_H

#include "engine/info.h"
#include "engine/plan.h"
#include "tools/bench/steps/step_times.h"

#define BENCH_MAX_DRAFTS 16u /* of a row */

struct bench_steps;

/* Uses the given options, plus an observer and the drafts of each scene. They need prefix caching. */
int bench_steps_open(const struct engine_options *options, uint64_t seed, struct bench_steps **out,
                     struct quire_error *err);
void bench_steps_close(struct bench_steps *b); /* NULL is allowed */
const struct engine_info *bench_steps_info(const struct bench_steps *b);

/* Computes prefix i, n_tokens of random ids, a whole number of blocks; *seconds is its time. */
int bench_steps_fill(struct bench_steps *b, uint32_t i, uint32_t n_tokens, double *seconds, struct quire_error *err);

struct bench_scene {
    uint32_t n_decode, decode_context; /* request i of these begins with this much of prefix i */
    uint32_t n_drafts; /* of each decoding request; then there are no prompts */
    uint32_t n_prompts, prompt_context; /* request i of these: of prefix n_decode + i */
    uint32_t prompt_len; /* of each prompt, after its context */
    uint32_t n_steps; /* steps with all decoding requests before the prompts arrive; >= 1, and the first is left out */
};
/* Runs it once. `index` identifies the scene's steps. */
int bench_steps_run(struct bench_steps *b, uint32_t index, const struct bench_scene *scene, struct quire_error *err);

/* The medians of all runs so far (step_times.h). The caller frees *out. QUIRE_NO_MEMORY. */
int bench_steps_medians(const struct bench_steps *b, struct bench_step **out, size_t *n, struct quire_error *err);

#endif
