/* An answer that ended at its request's max_tokens begins every longer answer to the same prompt. Its tokens are
 * reused, and the rest is computed after them as if they belonged to the prompt. The bits are the same, because a
 * token depends only on the tokens before it and their absolute positions (numerics.md §13). Private to
 * server/cache.
 */
#ifndef QUIRE_CACHE_RESUME_H
#define QUIRE_CACHE_RESUME_H

#include "server/cache/cache_key.h"
#include "server/cache/memory_layer.h"

/* The name of all answers to it, however long. False: what its tokens were drawn by counts generated tokens (penalties,
 * min_tokens, bad_words, a grammar), has several choices or no seed. */
bool resume_key(const struct key256 *identity, const struct request_spec *spec, const struct completion_terms *terms,
                struct key256 *out);
/* Finds that answer, shorter than the requested one may become. Returns NULL if it does not exist. The result is
 * borrowed. */
struct cached *resume_find(struct memory_layer *m, const struct key256 *name, const struct request_spec *spec,
                           int64_t now_ms);
/* One may be resumed from here on; the longest is. */
void resume_keep(struct memory_layer *m, struct cached *k, const struct key256 *name, int64_t now_ms);

/* Makes a spec with these tokens after the prompt, and the rest of the length to generate. `prompt` is malloc'd;
 * everything else is borrowed from spec. Returns false if memory is short. */
bool resume_spec(const struct cached *k, const struct request_spec *spec, struct request_spec *out, uint32_t **prompt);

#endif
