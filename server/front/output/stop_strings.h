/* Stop strings over a stream of text pieces.
 *
 * A text ends where the first of the stop strings is complete; of several that complete at the
 * same place, the longest counts. That depends on the text alone, not on how it was cut into
 * tokens. Text that may be the beginning of a stop string is held back until it is known not to
 * be one. Texts and stop strings are UTF-8 and every piece ends between two characters, so every
 * cut does. One thread at a time.
 */
#ifndef QUIRE_FRONT_STOP_STRINGS_H
#define QUIRE_FRONT_STOP_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#define STOP_MAX_STRINGS 32
#define STOP_MAX_BYTES 512

struct stop_set {
    char *strings[STOP_MAX_STRINGS]; /* owned */
    size_t bytes[STOP_MAX_STRINGS];  /* 1..STOP_MAX_BYTES */
    size_t n, longest;
};
/* False: out of memory. The caller has checked the limits. */
bool stop_set_add(struct stop_set *set, const char *text, size_t n_bytes);
void stop_set_free(struct stop_set *set);

struct stop_holder { /* zero to begin */
    char *text;      /* held text, then what the last call gave out */
    size_t n, capacity, n_given;
};
void stop_holder_free(struct stop_holder *h);

/* Adds a piece. *out, *n_out: what may be shown now, valid until the next call on h. Returns the
 * index of the stop string that was found, with *out cut before it (after it when `include`), or
 * -1; -2: out of memory. Not `armed`: stop strings that are complete now do not count
 * (min_tokens). */
int stop_holder_push(struct stop_holder *h, const struct stop_set *set, bool armed, bool include, const char *piece,
                     size_t n_piece, const char **out, size_t *n_out);
/* The text is over: what was held back. */
void stop_holder_finish(struct stop_holder *h, const char **out, size_t *n_out);

#endif
