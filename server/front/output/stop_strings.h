/* Stop strings over a stream of text pieces.
 *
 * A text ends where the first of the stop strings is complete. If several complete at the same position, the longest
 * counts. This depends on the text alone, not on how it is split into tokens. Text that may begin a stop string is
 * held back until this is decided. Texts and stop strings are UTF-8 and every piece ends between two characters, so
 * every cut does too. One thread at a time.
 */
#ifndef QUIRE_FRONT_STOP_STRINGS_H
#define QUIRE_FRONT_STOP_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#define STOP_MAX_STRINGS 32
#define STOP_MAX_BYTES 512

struct stop_set { /* of at least one string */
    char *strings[STOP_MAX_STRINGS]; /* owned */
    size_t bytes[STOP_MAX_STRINGS];  /* 1..STOP_MAX_BYTES */
    size_t n, longest;
};
/* Adds to *set, or makes it from NULL. Returns false if memory is out. The caller has checked the limits. */
bool stop_set_add(struct stop_set **set, const char *text, size_t n_bytes);
void stop_set_free(struct stop_set *set); /* NULL is allowed */

struct stop_holder { /* all zero at first */
    char *text;      /* held text, after the text that the last call released */
    size_t n, capacity, n_given;
};
void stop_holder_free(struct stop_holder *h);

/* Adds a piece. set: NULL: no stop strings. *out, *n_out: the text that may be shown now, valid until the next call on h. Returns the index of the
 * stop string that was found, with *out cut before it (after it if `include`), or -1; -2: out of memory. Without
 * `armed`, stop strings that are complete now do not count (min_tokens). */
int stop_holder_push(struct stop_holder *h, const struct stop_set *set, bool armed, bool include, const char *piece,
                     size_t n_piece, const char **out, size_t *n_out);
/* Call it at the end of the text. *out is the held-back text. */
void stop_holder_finish(struct stop_holder *h, const char **out, size_t *n_out);

#endif
