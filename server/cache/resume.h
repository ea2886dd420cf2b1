/* An answer that ended where its request's max_tokens did begins every longer answer to the same prompt: its tokens are taken
 * as they are, and what follows is computed behind them, as if they were of the prompt. The same bits, since a token depends on
 * the tokens before it and their absolute positions alone (numerics.md §13). Private to server/cache.
 */
#ifndef QUIRE_CACHE_RESUME_H
#define QUIRE_CACHE_RESUME_H

#include "server/cache/cache_key.h"
#include "server/cache/memory_layer.h"

/* The name of all answers to it, however long. False: what its tokens were drawn by counts generated tokens (penalties,
 * min_tokens, bad_words), has several choices or no seed. */
bool resume_key(const struct key256 *identity, const struct request_spec *spec, const struct completion_terms *terms,
                struct key256 *out);
/* That answer, shorter than this one may become. NULL: there is none. Borrowed. */
struct kept *resume_find(struct memory_layer *m, const struct key256 *name, const struct request_spec *spec,
                         int64_t now_ms);
/* One may be resumed from here on; the longest is. */
void resume_keep(struct memory_layer *m, struct kept *k, const struct key256 *name, int64_t now_ms);

/* The prompt with these tokens behind it, and what is left to generate. `prompt` is malloc'd, all else borrowed of spec.
 * False: out of memory. */
bool resume_spec(const struct kept *k, const struct request_spec *spec, struct request_spec *out, uint32_t **prompt);

#endif
