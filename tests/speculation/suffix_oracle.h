/* What a suffix tree over some texts would propose that looked beyond an edit, by looking at every place of them. */
#ifndef QUIRE_TESTS_SPECULATION_SUFFIX_ORACLE_H
#define QUIRE_TESTS_SPECULATION_SUFFIX_ORACLE_H

#include "speculation/suffix.h"

struct oracle_text {
    const uint32_t *tokens;
    uint32_t n;
};

struct oracle_guess {
    uint32_t tokens[DRAFT_MAX], n;
    double worth;
};

/* Improves *best by what the texts say. ends_count: a text's end counts as a continuation of its own. */
void oracle_guess(const struct suffix_config *config, const struct oracle_text *texts, uint32_t n_texts,
                  const uint32_t *last, uint32_t n_last, uint32_t most, int ends_count, struct oracle_guess *best);

#endif
