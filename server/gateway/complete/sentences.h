/* Cuts a text that arrives in pieces into sentences. A sentence ends at ". ", "! ", "? ", ".\n", "!\n" or "?\n", which
 * belong to it, so that all sentences together are the text. Pure; one thread for each buffer.
 */
#ifndef QUIRE_GATEWAY_SENTENCES_H
#define QUIRE_GATEWAY_SENTENCES_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

#define SENTENCES_MAX_BYTES 65536 /* a longer text without an end is cut after the piece that made it longer */

struct sentences { /* zeroed: empty */
    struct buffer text;
    size_t begin, looked; /* the start of the next sentence; its end is not before `looked` */
};

/* QUIRE_NO_MEMORY. Invalidates what sentences_next() returned. */
int sentences_add(struct sentences *s, const char *text, size_t n);
/* The next whole sentence, borrowed until the next call. is_end: no piece follows, so the rest is one too. Returns
 * false if no sentence is whole. */
bool sentences_next(struct sentences *s, bool is_end, const char **text, size_t *n);
void sentences_free(struct sentences *s);

#endif
