/* Finds where a prompt first differs from earlier prompts: from there on, the prefix cache finds no match.
 *
 * It keeps the beginnings of the last prompts, and compares a new prompt with those of its cache domain. The prompt
 * with the longest common beginning determines the position. Loop's thread.
 */
#ifndef QUIRE_FRONT_PREFIX_WATCH_H
#define QUIRE_FRONT_PREFIX_WATCH_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFIX_WATCH_PROMPTS 32
/* For each prompt: 512 KiB in all. Comparing a prompt with them takes less than 0.1 ms. */
#define PREFIX_WATCH_TOKENS 4096

struct prefix_watch {
    struct watched_prompt {
        struct key256 domain;
        uint32_t *ids; /* [n], malloc'd */
        size_t n;
        uint64_t used; /* 0: the entry is empty */
    } prompts[PREFIX_WATCH_PROMPTS]; /* all zero at first */
    uint64_t clock;
};

/* Compares a prompt with earlier ones and keeps its beginning. Returns true with *at: the token, from 0, at which it
 * first differs from the nearest one. Returns false if one prompt continues the other, if no prompt can be compared,
 * or if they do not differ within PREFIX_WATCH_TOKENS. */
bool prefix_watch_add(struct prefix_watch *w, const struct key256 *domain, const uint32_t *ids, size_t n, uint32_t *at);
void prefix_watch_free(struct prefix_watch *w);

#endif
