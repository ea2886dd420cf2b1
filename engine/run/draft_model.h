/* A small model that guesses what the large one will say: a drafter with weights, a KV cache and a forward pass of its
 * own, on the same backend.
 *
 * Its KV cache is the last group of the engine's: blocks, prefixes, preemption and the host tier are the scheduler's
 * affair as those of any group. What lies in a block is kept count of here, since the draft model may come later
 * than the model, or never, to a position: of each block, how many leading positions it has computed. A count begins
 * at 0 when the model computes a block's first position, and travels with the block to the host tier and back. Whatever
 * were wrong with a count, or with the K and V themselves, could only make guesses worse: what is said is decided by the
 * model alone.
 *
 * After a step each sequence that is asked for has its new tokens computed, all in one pass, and the first guess drawn;
 * then a pass for each further guess, of one token a sequence. A pass of many tokens, such as of a new prompt, is no
 * larger than a step: who does not fit has no guesses yet, and goes on after the next step. Guesses are drawn
 * by the request's own rules with the seed, position and choice that the model's draw will have, so that also sampled
 * ones agree as often as the two models do. For penalties and bad words the tokens count that are known, not
 * the guesses before.
 *
 * The positions of guesses lie in the sequence's own blocks as far as it has some, then in blocks behind the group's
 * that each slot has for itself, since the scheduler gives none for what is only guessed. When such positions turn out right
 * their block is copied to the sequence's.
 *
 * Engine thread only.
 */
#ifndef QUIRE_ENGINE_DRAFT_MODEL_H
#define QUIRE_ENGINE_DRAFT_MODEL_H

#include "base/status.h"
#include "engine/plan.h"
#include "memory/kv_cache.h"
#include "scheduler/scheduler.h"
#include "speculation/drafter.h"

struct engine;
struct engine_options;
struct draft_model;

/* What it keeps count of in host memory, by the engine's plan: part of draft_bytes there. */
uint64_t draft_model_host_bytes(const struct engine_plan *plan);

/* In the order of an engine's opening. Into e->draft_model, which stays NULL without such a method: config.json and the
 * weights' headers, checked against the model's; e->desc and the backend are there. */
int draft_model_prepare(struct engine *e, const struct engine_options *o, struct quire_error *err);
/* As the engine's plan is to know it; NULL without one. Borrows. */
const struct engine_draft *draft_model_about(const struct draft_model *d);
/* The weights, if there is one. */
int draft_model_bind(struct engine *e, struct quire_error *err);
/* The weights and the passes, by engine_plan_of_draft(). */
int draft_model_open(struct engine *e, const struct engine_plan *plan, bool graphs, struct quire_error *err);
void draft_model_close(struct draft_model *d); /* NULL is fine */

/* What a pass of one token a sequence took of late, in microseconds: of one draft more for everybody. */
double draft_model_us(const struct draft_model *d);
/* The engine's own: destroying it does nothing. */
struct drafter *draft_model_drafter(struct draft_model *d);

/* A step's copies to and from the host tier: those of its group. */
int draft_model_move(struct draft_model *d, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err);
/* A row of the model's was launched. */
void draft_model_launched(struct draft_model *d, const struct sched_row *row);

#endif
