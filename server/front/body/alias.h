/* A digest of requests with the same words: the order of members and white space do not change it. A repeated body
 * need not be rendered by the template and encoded again. Any thread. */
#ifndef QUIRE_FRONT_ALIAS_H
#define QUIRE_FRONT_ALIAS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>

#define ALIAS_MAX_BODY ((size_t)64 << 10) /* reading and hashing it takes less than a millisecond of the loop */

/* Adds the body to the hash. Returns false if the body is invalid or too long, or has a field about how this one
 * request is served, which others with the same words may not share. */
bool alias_add_body(struct quire_sha256_state *s, const char *text, size_t n);

#endif
