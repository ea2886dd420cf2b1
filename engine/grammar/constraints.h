/* The grammars of an engine's requests: compiled beside the engine thread, and turned into the masks of each step by a
 * crew of threads while the step runs.
 *
 * A step opens two batches in turn. constraints_draw() for each row whose token is drawn, constraints_start() before
 * the step is computed, constraints_ready() before it is sampled. When its tokens are there, constraints_take() for
 * each row and constraints_taken() before they become events. Engine thread, except for what says otherwise.
 *
 * The masks of a step, one for each logit row, are allocated when the engine is opened: 19 KB each for a vocabulary of
 * 152,000.
 */
#ifndef QUIRE_ENGINE_CONSTRAINTS_H
#define QUIRE_ENGINE_CONSTRAINTS_H

#include "engine/grammar/compiler.h"
#include "engine/grammar/constraint.h"

struct constraints;

struct constraints_options {
    const struct engine_grammars *grammars;
    uint32_t n_vocab, max_rows /* of logits in a step */, max_seqs, n_threads;
    void (*compiled)(void *context); /* compiler.h: changed */
    void *context;
};

/* Host memory, to the byte: all that constraints_create() allocates, except for the threads' stacks. */
uint64_t constraints_bytes(uint32_t n_vocab, uint32_t max_rows, uint32_t max_seqs);
int constraints_create(const struct constraints_options *options, struct constraints **out, struct quire_error *err);
void constraints_destroy(struct constraints *c); /* NULL is fine */

struct compiler *constraints_compiler(const struct constraints *c); /* any thread */
const struct engine_grammars *constraints_grammars(const struct constraints *c);

/* Adds a row of the next step: its n_drafts + 1 sampler rows from `at` on, of all the step's `rows`. The tokens must stay
 * in place until constraints_ready(). */
void constraints_draw(struct constraints *c, struct constraint *x, const struct constraint_text *text,
                      struct k_sample_row *rows, uint32_t at);
void constraints_start(struct constraints *c);
/* Completes the sampler's rows. A row whose grammar failed reports some token; its constraint has the status. */
void constraints_ready(struct constraints *c);
/* Whether this sampler row, of a restricted row, must count as rejected: it reports some token. */
bool constraints_rejects(const struct constraints *c, uint32_t at);

/* Adds the sampled tokens of a row, which must stay in place until constraints_taken(). */
void constraints_take(struct constraints *c, struct constraint *x, const struct constraint_text *before,
                      const struct k_sample_result *results, uint32_t n);
void constraints_taken(struct constraints *c);

struct constraints_stats {
    uint64_t n_masks; /* sampler rows that were restricted */
    uint64_t work_us; /* of all threads, on masks and on tokens */
    uint64_t waited_us; /* of the engine thread, until they were ready */
};
struct constraints_stats constraints_stats(const struct constraints *c);

#endif
