/* A text cut into words, numbers and signs. Any bytes; any thread. */
#ifndef QUIRE_SIMILAR_TOKENS_H
#define QUIRE_SIMILAR_TOKENS_H

#include "server/similar/words.h"

#define TOKENS_MAX 512

enum token_kind {
    TOKEN_WORD,
    TOKEN_NUMBER,  /* in digits: "15", "1,000", "2026-11-23", "-3.5" */
    TOKEN_NAME,    /* an identifier, a URL, a word with digits in it */
    TOKEN_LITERAL, /* quoted text, or text after a colon or on a further line */
    TOKEN_SIGN,    /* + < = ( … */
    TOKEN_STOP,    /* the end of a sentence */
};

struct token {
    uint8_t kind;
    bool capital; /* begins with a capital letter */
    bool caps;    /* two capital letters and more, and no others */
    bool first;   /* of its sentence */
    struct word word; /* for TOKEN_WORD; concept: for every kind */
    uint64_t as_is;   /* hash of the lower-case word, without the tables */
    bool is_cased;    /* its capitals say something: "Mb", "fooBar", a single letter */
    bool is_symbol;   /* also if all words have capitals: "Mb" */
    uint64_t folded,
        cased; /* of a word in lower case, and as written; the first letter of a sentence counts as small */
    uint64_t bare;    /* word with "un-", "non-", "dis-", "in-" or "im-": meaning of the rest; otherwise 0 */
};

struct tokens {
    struct token items[TOKENS_MAX];
    size_t n;        /* as many as there were, at most TOKENS_MAX */
    bool too_many;   /* there were more */
    uint64_t plain;  /* of all of them */
    uint64_t cased;  /* the same, with the capitals that say something */
    uint32_t usual[N_LANGUAGES]; /* usual words of a language */
    uint8_t script;  /* of most letters; 0: Latin, or no letters */
};

void tokens_read(const char *text, size_t n, struct tokens *out);

#endif
