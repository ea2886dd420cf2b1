/* Texts and sequences for the tests of drafters. */
#ifndef QUIRE_TESTS_SPECULATION_DRAFTER_FIXTURE_H
#define QUIRE_TESTS_SPECULATION_DRAFTER_FIXTURE_H

#include "speculation/drafter.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) * below >> 31);
}

static inline struct draft_text text_of(const uint32_t *tokens, uint32_t n_prompt, uint32_t n_tokens)
{
    static const struct key256 nobody;
    return (struct draft_text){.tokens = tokens, .n_tokens = n_tokens, .n_prompt = n_prompt, .domain = &nobody};
}

/* What a drafter says to one sequence. The drafts lie at the end of an allocation, where a sanitizer sees one too many. */
static inline uint32_t ask_one(struct drafter *d, uint32_t slot, const struct draft_text *text, uint32_t most,
                               uint32_t out[DRAFT_MAX])
{
    struct draft_ask a = {.slot = slot, .text = *text, .most = most, .drafts = malloc(most * sizeof *a.drafts)};
    assert_non_null(a.drafts);
    assert_int_equal(d->ops->propose(d, &a, 1, NULL), QUIRE_OK);
    assert_true(a.n <= most);
    memcpy(out, a.drafts, a.n * sizeof *a.drafts);
    free(a.drafts);
    return a.n;
}

#endif
