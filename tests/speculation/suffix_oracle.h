/* The drafts of a suffix tree over some texts that looks beyond an edit, computed by a search of every position. */
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

/* Improves *best with the texts. ends_count: a text's end counts as a different continuation. */
void oracle_guess(const struct suffix_config *config, const struct oracle_text *texts, uint32_t n_texts,
                  const uint32_t *last, uint32_t n_last, uint32_t most, int ends_count, struct oracle_guess *best);

#endif
