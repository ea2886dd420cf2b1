/* One choice in its grammar: the tokens that may come next, and those that must.
 *
 * The crew works on a constraint while a batch is open (constraints.h). Otherwise it is the engine thread's. The token
 * after n tokens of an answer depends on the grammar and these n tokens alone.
 */
#ifndef QUIRE_ENGINE_CONSTRAINT_H
#define QUIRE_ENGINE_CONSTRAINT_H

#include "engine/grammars.h"
#include "kernels/args/sample.h"

/* As many as a row of a step has drafts, at most. */
#define CONSTRAINT_MAX_FORCED 64u

struct constraint {
    const struct engine_grammars *grammars;
    void *grammar; /* the request's */
    void *matcher; /* NULL until it is first needed: opening it is work for the crew */
    bool over;     /* the answer is complete */
    uint32_t n_taken; /* tokens of the last constraint_take() up to where it was over */
    bool has_proposed; /* the drafts of its next row are forced tokens */
    uint32_t n_forced;
    uint32_t forced[CONSTRAINT_MAX_FORCED]; /* the tokens that must come next */
    int status; /* QUIRE_OK, or why the answer cannot go on */
    struct quire_error error;
};

void constraint_free(struct constraint *x);

/* Tokens of an answer, and drafts that follow them in memory. */
struct constraint_text {
    const uint32_t *tokens;
    uint32_t n_tokens, n_drafts;
};
/* Appends n sampled tokens of the answer, up to the one that completes it, n_taken in all. If the grammar is too complex
 * after a later one than the first, that one counts as not sampled: a step without drafts does not have it yet. */
void constraint_take(struct constraint *x, const struct constraint_text *before, const struct k_sample_result *results,
                     uint32_t n);
/* Whether the answer was complete after the first n of these tokens. */
bool constraint_is_over(const struct constraint *x, uint32_t n);
/* How many of n drafts after the text's tokens the grammar allows, one after the other. */
uint32_t constraint_allows(struct constraint *x, const struct constraint_text *text, const uint32_t *drafts,
                           uint32_t n);

/* The restriction of one draw. */
struct constraint_draw {
    int64_t only; /* the token that must be drawn; -1: see mask */
    const uint32_t *mask; /* NULL: not known. The draw, and those after it, must count as rejected */
};
/* The restrictions of the next token and of the token after each draft; also without the tokens of a mask that
 * rows[i] forbids. out: [n_drafts + 1]. words: [n_drafts + 1][words of a mask]. A draft after which the grammar is too
 * complex does not end the answer, because it may be wrong: the draws after it are not known. */
void constraint_draws(struct constraint *x, const struct constraint_text *text, const struct k_sample_row *rows,
                      uint32_t n_vocab, uint32_t *words, struct constraint_draw *out);

#endif
