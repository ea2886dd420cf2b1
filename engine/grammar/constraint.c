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

bool constraint_is_over(const struct constraint *x, uint32_t n)
{
    return x->over && x->n_taken == n;
}

/* After drafts that were too much: the state after the answer's tokens alone. */
static void start_again(struct constraint *x, const struct constraint_text *text)
{
    constraint_free(x);
    x->status = QUIRE_OK;
    for (uint32_t i = 0; is_open(x) && i < text->n_tokens; i++)
        x->status = x->grammars->accept(x->matcher, text->tokens[i], &x->error);
}

static void take(struct constraint *x, const struct k_sample_result *results, uint32_t n)
{
    while (x->n_taken < n && !x->over && x->status == QUIRE_OK) {
        x->status = x->grammars->accept(x->matcher, results[x->n_taken].token, &x->error);
        if (x->status != QUIRE_OK)
            return;
        x->n_taken++;
        x->status = x->grammars->is_over(x->matcher, &x->over, &x->error);
    }
    if (x->status == QUIRE_OK && !x->over)
        x->status = x->grammars->forced(x->matcher, x->forced, CONSTRAINT_MAX_FORCED, &x->n_forced, &x->error);
}

void constraint_take(struct constraint *x, const struct constraint_text *before, const struct k_sample_result *results,
                     uint32_t n)
{
    x->n_taken = x->n_forced = 0;
    if (!is_open(x))
        return;
    take(x, results, n);
    if (x->status == QUIRE_OK || x->n_taken == 0 || n == 1)
        return;
    n = x->n_taken;
    x->n_taken = x->n_forced = 0;
    start_again(x, before);
    take(x, results, n);
}

uint32_t constraint_allows(struct constraint *x, const struct constraint_text *text, const uint32_t *drafts, uint32_t n)
{
    uint32_t n_allowed = 0;
    if (n == 0 || !is_open(x))
        return 0;
    x->status = x->grammars->check(x->matcher, drafts, n, &n_allowed, &x->error);
    if (x->status == QUIRE_OK)
        return n_allowed;
    start_again(x, text);
    return 0;
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

/* Accepts a draft. False: the draws after it are not known. */
static bool step_over(struct constraint *x, uint32_t draft)
{
    uint32_t n_ok = 0;
    if (x->status == QUIRE_OK)
        x->status = x->grammars->check(x->matcher, &draft, 1, &n_ok, &x->error);
    if (n_ok == 1)
        x->status = x->grammars->accept(x->matcher, draft, &x->error);
    return n_ok == 1 && x->status == QUIRE_OK;
}

void constraint_draws(struct constraint *x, const struct constraint_text *text, const struct k_sample_row *rows,
                      uint32_t n_vocab, uint32_t *words, struct constraint_draw *out)
{
    const size_t n_words = (n_vocab + 31) / 32;
    uint32_t n_walked = 0;
    for (uint32_t i = 0; i <= text->n_drafts; i++)
        out[i] = (struct constraint_draw){.only = -1};
    if (!is_open(x))
        return;
    set_draw(x, &rows[0], n_vocab, words, &out[0]);
    if (x->status != QUIRE_OK)
        return;
    while (n_walked < text->n_drafts && step_over(x, text->tokens[text->n_tokens + n_walked])) {
        n_walked++;
        set_draw(x, &rows[n_walked], n_vocab, words + n_walked * n_words, &out[n_walked]);
    }
    if (n_walked > 0 && x->status == QUIRE_OK)
        x->status = x->grammars->rollback(x->matcher, n_walked, &x->error);
    if (x->status != QUIRE_OK)
        start_again(x, text);
}
