/* Do two questions ask the same? A guard stands before an answer that was given to a similar question.
 *
 * No cosine tells "turn on" from "turn off" or 15 mg from 50, so what two texts say is compared as words: each is taken
 * apart into what it says (said.h), and whatever one of them says and the other does not is a difference. The tables
 * only ever permit: they know words that say nothing ("please", "tell me about", "what is") and words that say the same
 * ("benefits", "advantages"). A word that no table knows differs from every other word, so most gaps in the tables cost a
 * computation and no wrong answer. The rest is order: the same words in another order ask something else, unless
 * it is an order that says the same ("A's B" and "the B of A", "between A and B" and "between B and A"). "A and B" alone
 * keeps its order: what is to be done first may be said first.
 *
 * Also compared are the forms of verbs (tense, voice, progressive), "this", "some", "any" and modal verbs, and capitals
 * where they say something: units ("Mb", "MB"), options ("-d", "-D"), identifiers, single letters, and words such as
 * "polish" and "Polish".
 *
 * In English only is one sentence known in other words. Texts in other languages, of more than SAID_MAX words, about words
 * ("translate", "what does … mean") or without any word that says something are the same where they have the same words
 * in the same order.
 *
 * Pure functions of two texts, any thread. Texts may hold any bytes; time is linear in their lengths, nothing is
 * allocated, about 160 KiB of stack. Words are compared by 64-bit hashes that are no secret: who makes two of his own
 * texts collide is given his own answer.
 */
#ifndef QUIRE_SIMILAR_GUARDS_H
#define QUIRE_SIMILAR_GUARDS_H

#include <stddef.h>

enum guard {
    GUARD_NONE,      /* they ask the same, as far as is known */
    GUARD_NUMBERS,   /* 15, 50; dates and versions */
    GUARD_NAMES,     /* capitalised words, identifiers, options, URLs, what is quoted */
    GUARD_UNITS,     /* mg, g; Mb, MB; °C, °F; dollars, euros */
    GUARD_NEGATION,  /* not, never, without; happy, unhappy */
    GUARD_POLARITY,  /* on, off; is, was; owns, owned; hired, was hired; my, your */
    GUARD_DIRECTION, /* from A to B, from B to A; the same words in another order */
    GUARD_LANGUAGE,
    GUARD_WORDS, /* any other word that only one of them has; who, when, where, why, how; this, some, any; can, may */
    N_GUARDS
};

/* The first guard of the table above that holds them to be different, languages before all others. */
enum guard guard_differs(const char *a, size_t n_a, const char *b, size_t n_b);

/* "none", "numbers", …: for metrics. Static. */
const char *guard_name(enum guard guard);

#endif
