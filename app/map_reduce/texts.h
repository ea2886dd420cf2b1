/* A list of texts: chunks, prompts, results. Owns them. One thread. */
#ifndef QUIRE_APP_MAP_REDUCE_TEXTS_H
#define QUIRE_APP_MAP_REDUCE_TEXTS_H

#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

struct texts { /* zero it to begin */
    struct buffer *items; /* [n] */
    size_t n, capacity;
};

/* Adds an empty one; NULL if memory is short. Earlier results are invalid afterwards. */
struct buffer *texts_add(struct texts *t);
void texts_free(struct texts *t);

/* Appends a prompt with a text in it: at "{text}", or after a blank line. */
void texts_fill(struct buffer *out, const char *prompt, const char *text, size_t n);
/* Appends "Item N result:", a line end, and the text; before it a blank line unless out is empty. */
void texts_join(struct buffer *out, size_t number, const struct buffer *text);

#endif
