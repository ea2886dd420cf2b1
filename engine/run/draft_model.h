/* A small model that drafts for the large one: a drafter with its own weights, KV cache and forward pass on the same
 * backend.
 *
 * Its KV cache is the last group of the engine's cache. The scheduler manages its blocks, prefixes, preemption and
 * host tier like those of any group. This file counts the computed leading positions of each block, because the
 * draft model may reach a position later than the model, or never. A count begins at 0 when the model computes a
 * block's first position, and travels with the block to the host tier and back. An error in a count, or in K and V,
 * could only make guesses worse. The model alone decides the answer.
 *
 * After a step, one pass computes the new tokens of each queried sequence and draws its first guess. Each further
 * guess takes a pass of one token per sequence. A pass of many tokens, such as for a new prompt, is no larger than a
 * step. A sequence that does not fit has no guesses yet and continues after the next step. Guesses are drawn by the
 * request's own rules with the seed, position and choice of the model's later draw, so that sampled guesses also
 * agree as often as the two models do. Penalties and bad words count the known tokens, not the earlier guesses.
 *
 * The positions of guesses lie in the sequence's own blocks as far as it has them, then in blocks after the group's
 * that belong to each slot, because the scheduler allocates no blocks for guesses. If such positions turn out right,
 * their block is copied to the sequence's.
 *
 * Engine thread only.
 */
#ifndef QUIRE_ENGINE_DRAFT_MODEL_H
#define QUIRE_ENGINE_DRAFT_MODEL_H

#include "base/status.h"
#include "engine/plan.h"
#include "memory/kv_cache.h"
#include "scheduler/types/plan.h"
#include "speculation/drafter.h"

struct engine;
struct engine_options;
struct draft_model;

/* Host memory for its counts, by the engine's plan; included in draft_bytes there. */
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

/* Recent time of a pass of one token per sequence, in microseconds: the price of one more draft for all sequences. */
double draft_model_us(const struct draft_model *d);
/* The engine's own: destroying it does nothing. */
struct drafter *draft_model_drafter(struct draft_model *d);

/* A step's copies to and from the host tier: those of its group. */
int draft_model_move(struct draft_model *d, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err);
/* A row of the model's was launched. */
void draft_model_launched(struct draft_model *d, const struct sched_row *row);

#endif
