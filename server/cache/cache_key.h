/* Under what an answer is kept: SHA-256 of all that its bits depend on, and of who may be given it. Pure; any thread. */
#ifndef QUIRE_CACHE_KEY_H
#define QUIRE_CACHE_KEY_H

#include "base/hash.h"
#include "request/spec.h"
#include "server/link/completion_source.h"

#include <stdbool.h>

/* Of a prompt and lists that are longer nothing is kept: hashing so much takes 2 ms of the loop. */
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
