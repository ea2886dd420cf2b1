/* One choice in its grammar: the tokens that may come next, and those that must.
 *
 * The crew works on a constraint while a batch is open (constraints.h). Otherwise it is the engine thread's. The token
 * after n tokens of an answer depends on the grammar and these n tokens alone.
 */
#ifndef QUIRE_ENGINE_CONSTRAINT_H
#define QUIRE_ENGINE_CONSTRAINT_H

#include "engine/grammars.h"
#include "kernels/kernels.h"

/* As many as a row of a step has drafts, at most. */
#define CONSTRAINT_MAX_FORCED 64u

struct constraint {
    const struct engine_grammars *grammars;
    void *grammar; /* the request's */
    void *matcher; /* NULL until it is first needed: opening it is work for the crew */
    bool over;     /* the answer is complete */
    uint32_t n_taken; /* tokens of the last constraint_take() up to where it was over */
    uint32_t n_forced;
    uint32_t forced[CONSTRAINT_MAX_FORCED]; /* the tokens that must come next */
    int status; /* QUIRE_OK, or why the answer cannot go on */
    struct quire_error error;
};

void constraint_free(struct constraint *x);

/* Appends tokens of the answer, up to the one that completes it. */
void constraint_take(struct constraint *x, const uint32_t *tokens, uint32_t n);
/* How many of these drafts the grammar allows, one after the other. */
uint32_t constraint_allows(struct constraint *x, const uint32_t *drafts, uint32_t n);

/* The restriction of one draw. */
struct constraint_draw {
    int64_t only;         /* the token that must be drawn; -1: see mask */
    const uint32_t *mask; /* NULL: what is drawn does not matter, because a token before it will be rejected */
};
/* The restrictions of the next token and of the token after each draft; also without the tokens of a mask that
 * rows[i] forbids. out: [n_drafts + 1]. words: [n_drafts + 1][words of a mask]. */
void constraint_draws(struct constraint *x, const uint32_t *drafts, uint32_t n_drafts,
                      const struct k_sample_row *rows, uint32_t n_vocab, uint32_t *words, struct constraint_draw *out);

#endif
