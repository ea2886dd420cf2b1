/* The key of a cached response: SHA-256 over everything that its bits depend on, and over the group of clients that
 * may receive it. Pure; any thread. */
#ifndef QUIRE_CACHE_KEY_H
#define QUIRE_CACHE_KEY_H

#include "base/hash.h"
#include "request/spec.h"
#include "server/link/completion_source.h"

#include <stdbool.h>

/* Answers to longer prompts and lists are not cached, because hashing more takes 2 ms of the loop. */
#define CACHE_KEY_MAX_BYTES ((size_t)512 << 10)

/* identity: the engine's (engine/identity.h). False: the request is too long. */
bool cache_key(const struct key256 *identity, const struct request_spec *spec, const struct completion_terms *terms,
               struct key256 *out);
/* Whether the answer is drawn, and from no seed. */
static inline bool cache_is_unseeded(const struct request_spec *spec)
{
    return spec->temperature > 0 && !spec->has_seed;
}
#endif
