/* Texts and sequences for the tests of drafters. */
#ifndef QUIRE_TESTS_SPECULATION_DRAFTER_FIXTURE_H
#define QUIRE_TESTS_SPECULATION_DRAFTER_FIXTURE_H

#include "speculation/drafter.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
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

/* The drafts of a drafter for one sequence. They are at the end of an allocation, so that a sanitizer detects one too
 * many. */
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

/* Words and punctuation of a page in tests/speculation/pages, each with its own number. */
static inline uint32_t read_page(const char *name, uint32_t *tokens, uint32_t most)
{
    char path[512];
    uint32_t n = 0, word = 0;
    int c;
    snprintf(path, sizeof path, "%s/tests/speculation/pages/%s.txt", QUIRE_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while (n < most && (c = fgetc(f)) != EOF) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_') {
            word = word * 31 + (uint32_t)c;
            continue;
        }
        if (word)
            tokens[n++] = word;
        word = 0;
        if (c != ' ' && n < most)
            tokens[n++] = (uint32_t)c;
    }
    fclose(f);
    return n;
}

/* A long prompt of different tokens, whose last three occur far back in it. */
static inline void takes_in_a_long_prompt(struct drafter *d)
{
    enum { N = 3 * DRAFT_AT_ONCE };
    uint32_t *tokens = malloc(N * sizeof *tokens), out[DRAFT_MAX];
    assert_non_null(tokens);
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = i;
    memcpy(tokens + N - 3, tokens + 2 * DRAFT_AT_ONCE + 100, 3 * sizeof *tokens);
    struct draft_text t = text_of(tokens, N, N);
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 2, out), 0);
    assert_int_equal(ask_one(d, 0, &t, 2, out), 2);
    assert_int_equal(out[1], 2 * DRAFT_AT_ONCE + 104);
    d->ops->end(d, 0, &t, true);
    d->ops->destroy(d);
    free(tokens);
}

#endif
