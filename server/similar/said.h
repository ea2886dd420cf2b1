/* The meaning of a text: its words, numbers, names, units and signs in an order that does not depend on the
 * phrasing. guards.h defines when. Any thread. */
#ifndef QUIRE_SIMILAR_SAID_H
#define QUIRE_SIMILAR_SAID_H

#include "server/similar/tokens.h"

#define SAID_MAX TOKENS_MAX /* words and signs. A longer text is not understood, only compared */

enum said_kind { SAID_WORD, SAID_NUMBER, SAID_NAME, SAID_UNIT, SAID_NOT };

struct said_item {
    uint64_t hash;
    uint64_t bare; /* word with "un-", "non-", "dis-" or "in-": hash of the rest; otherwise 0 */
    uint8_t kind;
    uint8_t join;  /* said.c's */
    uint8_t form;  /* enum word_form; FORM_ANY of what is no word */
    bool is_cased; /* its capitals say something */
    uint64_t folded,
        cased; /* of a word: in lower case, and as written; 0 if the text has no words or all have capitals */
};

struct said {
    struct said_item items[SAID_MAX];
    size_t n;
    uint64_t plain;    /* hash of all words as written, and of their number */
    uint64_t cased;    /* the same with the capitals that say something */
    bool has_past;     /* a past tense or participle is among the items */
    uint32_t n_the;    /* how often "the" stands there */
    bool only_plain;   /* nothing else tells whether it says what another text says */
    uint32_t marks;    /* bits 1 << enum word_mark */
    uint32_t leans;    /* enum word_lean */
    uint64_t poles[2][MAX_POLES / 64]; /* by side */
    uint8_t language;  /* enum language */
    uint8_t script;    /* of most letters; 0: Latin, or no letters */
    uint64_t nots;     /* a sum over its negations; 0: none */
};

/* text: any bytes, n of them. */
void said_read(const char *text, size_t n, struct said *out);

#endif
