/* The name that a person probably meant: the nearest of a set by edit distance. Owns nothing; borrows the names. Any
 * thread. */
#ifndef QUIRE_BASE_ENCODING_SUGGEST_H
#define QUIRE_BASE_ENCODING_SUGGEST_H

#include <stddef.h>

struct suggest {
    const char *typed, *best; /* best: NULL if no name is near enough */
    size_t n_typed, n_best;
    unsigned distance; /* of best */
};

/* Short names must match better than long ones: one edit up to 4 bytes, two up to 7, otherwise three. */
struct suggest suggest_begin(const char *typed, size_t n);
/* A name that begins with at least three typed bytes is near, too, and a
 * name that contains six or more. The first of equally near names is best. Names of
 * one or two bytes are never suggested. */
void suggest_try(struct suggest *s, const char *name, size_t n);
/* Tries each name of a list like "port,p"; NULL is allowed. */
void suggest_try_list(struct suggest *s, const char *names);

#endif
