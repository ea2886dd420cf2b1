#include "engine/grammar/constraint.h"

#include <math.h>
#include <string.h>

void constraint_free(struct constraint *x)
{
    if (x->matcher)
        x->grammars->close(x->matcher);
    x->matcher = NULL;
}

static bool is_open(struct constraint *x)
{
    if (x->status == QUIRE_OK && !x->matcher)
        x->status = x->grammars->open(x->grammar, &x->matcher, &x->error);
    return x->status == QUIRE_OK;
}

void constraint_take(struct constraint *x, const uint32_t *tokens, uint32_t n)
{
    x->n_taken = x->n_forced = 0;
    if (!is_open(x))
        return;
    while (x->n_taken < n && !x->over && x->status == QUIRE_OK) {
        x->status = x->grammars->accept(x->matcher, tokens[x->n_taken], &x->error);
        x->n_taken += x->status == QUIRE_OK;
        if (x->status == QUIRE_OK)
            x->status = x->grammars->is_over(x->matcher, &x->over, &x->error);
    }
    if (x->status == QUIRE_OK && !x->over)
        x->status = x->grammars->forced(x->matcher, x->forced, CONSTRAINT_MAX_FORCED, &x->n_forced, &x->error);
}

uint32_t constraint_allows(struct constraint *x, const uint32_t *drafts, uint32_t n)
{
    uint32_t n_allowed = 0;
    if (is_open(x))
        x->status = x->grammars->check(x->matcher, drafts, n, &n_allowed, &x->error);
    return x->status == QUIRE_OK ? n_allowed : 0;
}

/* The row's own rules for a token: allowed_token_ids, logit_bias, bad_words. */
static bool row_forbids(const struct k_sample_row *row, uint32_t token)
{
    if (row->mask && !(row->mask[token / 32] >> token % 32 & 1u))
        return true;
    for (uint32_t i = 0; i < row->n_biases; i++)
        if (row->biases[i].id == token)
            return row->biases[i].bias == -INFINITY;
    return false;
}

static void set_draw(struct constraint *x, const struct k_sample_row *row, uint32_t n_vocab, uint32_t *words,
                     struct constraint_draw *out)
{
    const uint32_t n_words = (n_vocab + 31) / 32;
    uint32_t only, n_only = 0;
    x->status = x->grammars->forced(x->matcher, &only, 1, &n_only, &x->error);
    if (x->status != QUIRE_OK)
        return;
    if (n_only == 1 && !row_forbids(row, only)) {
        out->only = only;
        return;
    }
    if (n_only == 1)
        memset(words, 0, n_words * sizeof *words);
    else
        x->status = x->grammars->mask(x->matcher, words, &x->error);
    for (uint32_t i = 0; row->mask && i < n_words; i++)
        words[i] &= row->mask[i];
    out->mask = words;
}

void constraint_draws(struct constraint *x, const uint32_t *drafts, uint32_t n_drafts,
                      const struct k_sample_row *rows, uint32_t n_vocab, uint32_t *words, struct constraint_draw *out)
{
    const size_t n_words = (n_vocab + 31) / 32;
    uint32_t n_walked = 0;
    for (uint32_t i = 0; i <= n_drafts; i++)
        out[i] = (struct constraint_draw){.only = -1};
    for (uint32_t i = 0; is_open(x); i++) {
        set_draw(x, &rows[i], n_vocab, words + i * n_words, &out[i]);
        if (i == n_drafts || x->status != QUIRE_OK || constraint_allows(x, &drafts[i], 1) == 0)
            break;
        x->status = x->grammars->accept(x->matcher, drafts[i], &x->error);
        n_walked += x->status == QUIRE_OK;
    }
    if (n_walked > 0 && x->status == QUIRE_OK)
        x->status = x->grammars->rollback(x->matcher, n_walked, &x->error);
}
