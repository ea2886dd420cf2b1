/* Decides whether two questions mean the same. A guard must agree before the answer to a similar question is served.
 *
 * No cosine separates "turn on" from "turn off" or 15 mg from 50, so the texts are compared as words. Each is
 * reduced to its meaning (said.h), and any item that only one text has is a difference. The tables can only permit:
 * they list words without meaning ("please", "tell me about", "what is") and words with equal meaning ("benefits",
 * "advantages"). A word outside the tables differs from every other word, so most gaps in the tables cause a
 * computation and no wrong answer. Order counts: the same words in another order form another question, unless both
 * orders have the same meaning ("A's B" and "the B of A", "between A and B" and "between B and A"). "A and B" alone
 * keeps its order, because the first may be meant to happen first.
 *
 * The comparison includes the forms of verbs (tense, voice, progressive), "this", "some", "any" and modal verbs, and
 * capitals with meaning: units ("Mb", "MB"), options ("-d", "-D"), identifiers, single letters, and words such as
 * "polish" and "Polish".
 *
 * Paraphrases are recognised in English only. Some texts must have the same words in the same order: texts in other
 * languages, texts of more than SAID_MAX words, texts about words ("translate", "what does … mean"), and texts
 * without any meaningful word.
 *
 * Pure functions of two texts, any thread. Texts may hold any bytes; time is linear in their lengths, nothing is
 * allocated, about 160 KiB of stack. Words are compared by public 64-bit hashes. A client that makes two of its own
 * texts collide only receives its own answer.
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
