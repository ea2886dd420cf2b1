/* Where a prompt first differs from what was asked before: what keeps the prefix cache from finding the rest.
 *
 * The beginnings of the last prompts are kept, and a new one is compared with those of its cache domain. The one that it
 * shares most with says the place. Loop's thread.
 */
#ifndef QUIRE_FRONT_PREFIX_WATCH_H
#define QUIRE_FRONT_PREFIX_WATCH_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFIX_WATCH_PROMPTS 32
#define PREFIX_WATCH_TOKENS 4096 /* of each: 512 KiB in all, which a prompt is compared with in less than 0.1 ms */

struct prefix_watch {
    struct watched_prompt {
        struct key256 domain;
        uint32_t *ids; /* [n], malloc'd */
        size_t n;
        uint64_t used; /* 0: nothing is here */
    } prompts[PREFIX_WATCH_PROMPTS]; /* zero to begin */
    uint64_t clock;
};

/* Compares a prompt with those before it and keeps its beginning. True: *at is the token, from 0, at which it first
 * differs from the nearest one. False: it continues one, one continues it, there is none to compare it with, or no
 * difference within PREFIX_WATCH_TOKENS. */
bool prefix_watch_add(struct prefix_watch *w, const struct key256 *domain, const uint32_t *ids, size_t n, uint32_t *at);
void prefix_watch_free(struct prefix_watch *w);

#endif
