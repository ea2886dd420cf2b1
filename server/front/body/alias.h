/* Which bodies ask the same in the same words: a digest that neither the order of members nor blanks move. Who has seen a
 * body before need not render its template and encode its text again. Any thread. */
#ifndef QUIRE_FRONT_ALIAS_H
#define QUIRE_FRONT_ALIAS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>

#define ALIAS_MAX_BODY ((size_t)64 << 10) /* reading it and hashing it take less than a millisecond of the loop */

/* Adds the body to what is hashed. False: it is none, too long, or says something of how this one request is
 * to be served, which others in the same words might not. */
bool alias_add_body(struct quire_sha256_state *s, const char *text, size_t n);

#endif
