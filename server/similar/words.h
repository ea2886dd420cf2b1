/* The meanings of single words for the guards: function words, synonyms, opposites, units, numbers, languages. Any
 * thread; the index of the tables is built at the first call. */
#ifndef QUIRE_SIMILAR_WORDS_H
#define QUIRE_SIMILAR_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum word_flag {
    WORD_FRAME = 1 << 0,        /* has no meaning: "the", "is", "please" */
    WORD_ARTICLE = 1 << 1,      /* and does not separate its neighbours */
    WORD_COMMAND = 1 << 2,      /* has no meaning at the beginning: "explain", "I would like to know" */
    WORD_GREETING = 1 << 3,     /* the same, of a sentence of its own too */
    WORD_NOT = 1 << 4,          /* all that have this are one concept */
    WORD_NOT_ITSELF = 1 << 15,  /* but those that have this, too: "never", "without" */
    WORD_ABOUT_WORDS = 1 << 5,  /* a text with it is about words: "translate", "spell" */
    WORD_UNIT = 1 << 6,
    WORD_AFTER_NUMBER = 1 << 7, /* a unit behind a number only: "m" */
    WORD_NUMBER = 1 << 8,       /* value; 100 and more multiply */
    WORD_AUXILIARY = 1 << 9,    /* at the beginning it makes a yes-or-no question */
    WORD_OF = 1 << 10,          /* X of Y: Y X */
    WORD_AND = 1 << 11,         /* X and Y: Y and X */
    WORD_TO = 1 << 12,
    WORD_FROM = 1 << 13,
    WORD_OPENS = 1 << 14,    /* a new group begins behind it: "compare" */
    WORD_BEFORE_OF = 1 << 16, /* has no meaning before "of" or "about": "an explanation of", "the concept of" */
    WORD_LETTERED = 1 << 17,  /* a letter behind it is no word: "vitamin a" */
    WORD_PHRASAL = 1 << 18,   /* a preposition behind it says something: "look for", "look at" */
    WORD_PREPOSITION = 1 << 19,
    WORD_KEPT = 1 << 20,      /* its ending is part of it: "glasses" */
    WORD_PAST = 1 << 21,      /* a past tense or participle that no ending shows: "went" */
    WORD_AGENT = 1 << 22,     /* a noun for what a verb says in any tense: "inventor", "invented" */
    WORD_CASED = 1 << 23,     /* another word with a capital: "polish", "Polish" */
    WORD_ANY = 1 << 24,       /* has no meaning after a command: "list some" */
    WORD_SAME_EITHER_WAY = 1 << 25, /* the items that it joins may change order: "A vs B" */
};

/* Words that count once, wherever they appear. */
enum word_mark {
    MARK_WHO = 1,
    MARK_WHEN,
    MARK_WHERE,
    MARK_WHY,
    MARK_HOW,
    MARK_YES_NO,
    MARK_OR,
    MARK_FROM,
    MARK_BY,
    MARK_SUMMARY,
    MARK_CAN,
    MARK_WOULD,
    MARK_COULD,
    MARK_MAY,
    MARK_MIGHT,
    MARK_THIS,
    MARK_THAT,
    MARK_SOME,
    MARK_ANY,
    MARK_BEING,
    MARK_BEEN,
    MARK_HAVE_TO,
    N_MARKS
};

/* The form of a verb, or of a noun derived from one. */
enum word_form {
    FORM_BASE,
    FORM_PAST, /* "owned", "went"; a participle, too */
    FORM_ING,  /* "meditating" */
    FORM_NOUN, /* "meditation" */
    FORM_ANY,  /* of WORD_AGENT */
};

/* Properties that a text may leave open. Two texts disagree if each has one that the other does not have. */
enum word_lean {
    LEAN_PAST = 1 << 0,
    LEAN_PRESENT = 1 << 1,
    LEAN_FUTURE = 1 << 2,
    LEAN_SELF = 1 << 3,
    LEAN_OTHER = 1 << 4,
    LEAN_IN = 1 << 5,
    LEAN_ON = 1 << 6,
    LEAN_AT = 1 << 7,
    LEAN_FOR = 1 << 8,
    LEAN_ABOUT = 1 << 9,
    LEAN_WITH = 1 << 10,
    LEAN_AS = 1 << 11,
    LEAN_INTO = 1 << 12,
    LEAN_BE = 1 << 13,
    LEAN_HAVE = 1 << 14,
};
#define LEAN_TENSES (LEAN_PAST | LEAN_PRESENT | LEAN_FUTURE)
#define LEAN_PERSONS (LEAN_SELF | LEAN_OTHER)
#define LEAN_VERBS (LEAN_BE | LEAN_HAVE)
#define LEAN_PREPOSITIONS (LEAN_IN | LEAN_ON | LEAN_AT | LEAN_FOR | LEAN_ABOUT | LEAN_WITH | LEAN_AS | LEAN_INTO)

enum language {
    LANGUAGE_NONE,
    LANGUAGE_ENGLISH,
    LANGUAGE_GERMAN,
    LANGUAGE_FRENCH,
    LANGUAGE_SPANISH,
    LANGUAGE_ITALIAN,
    LANGUAGE_PORTUGUESE,
    LANGUAGE_DUTCH,
    N_LANGUAGES
};

#define WORD_MAX_BYTES 48
#define MAX_POLES 192

struct word {
    uint64_t concept; /* equal for words that say the same */
    uint32_t flags;
    uint16_t leans;
    uint8_t mark;     /* 0: none */
    uint8_t pole;     /* 0, or the number of its pair of opposites, below MAX_POLES */
    bool other_side;  /* of pole */
    uint8_t form;     /* enum word_form */
    uint8_t language; /* the language, other than English, in which it is a common word */
    uint64_t value;   /* of WORD_NUMBER */
};

/* Hash of the bytes; never 0. kind separates words of several kinds. */
uint64_t word_hash(char kind, const char *text, size_t n);

/* text: lower case, 1 to WORD_MAX_BYTES bytes. A word that no table has is its own concept, without its ending. */
struct word word_look_up(const char *text, size_t n);

/* Cuts English endings off: "meditating" and "meditation" become "meditat". in place; the length that is left. */
size_t word_stem(char *text, size_t n);

#endif
