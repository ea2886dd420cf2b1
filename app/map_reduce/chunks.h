/* Cuts a text into chunks of a number of tokens, with an overlap. Pure, but for the function that counts tokens.
 *
 * Chunks are pieces of the text as it is, so that no character is lost or changed where two tokens meet. A cut is at the end
 * of a paragraph if one is near, else of a sentence, a word, or a character.
 */
#ifndef QUIRE_APP_MAP_REDUCE_CHUNKS_H
#define QUIRE_APP_MAP_REDUCE_CHUNKS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct chunk {
    size_t at, n_bytes;
    uint32_t n_tokens;
};

struct chunker {
    uint32_t max_tokens; /* of a chunk */
    uint32_t overlap; /* at most so many tokens of a chunk's end begin the next one; below max_tokens / 2 */
    int (*count)(void *context, const char *text, size_t n_bytes, uint32_t *n_tokens, struct quire_error *err);
    void *context;
};

/* text: UTF-8. *out: malloc'd, [*n]; an empty text has no chunks. QUIRE_INVALID: a character alone has more tokens than
 * max_tokens. Other failures are those of count(). */
int chunks_cut(const struct chunker *c, const char *text, size_t n_bytes, struct chunk **out, size_t *n,
               struct quire_error *err);

#endif
