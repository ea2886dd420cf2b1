/* The memory of suffix decoding: texts in blocks of tokens, and for each place the one before it where the same tokens
 * went before. Texts belong to owners: running sequences, whose blocks are a pool of their own, and domains.
 *
 * A place is where a token lies: block x 64 + offset. One thread at a time; private to suffix.c.
 */
#ifndef QUIRE_SPECULATION_SUFFIX_STORE_H
#define QUIRE_SPECULATION_SUFFIX_STORE_H

#include "base/hash.h"
#include "speculation/gram_table.h"

#define SUFFIX_BLOCK_TOKENS 64u
#define SUFFIX_LEVELS 4u /* runs of 1, 2, 4 and 8 tokens are found at once; longer ones among those of 8 */
#define SUFFIX_PLACES 16u /* that are looked at for a run */
#define SUFFIX_TENANTS 1024u /* further ones share an account */
#define SUFFIX_NONE UINT32_MAX

static inline uint32_t suffix_level_tokens(uint32_t level)
{
    return 1u << level;
}

struct suffix_block;
struct suffix_domain;
struct suffix_account {
    uint32_t oldest, newest; /* answers, by their first blocks */
    uint32_t n_answers, n_blocks;
};

struct suffix_store {
    uint32_t n_slots, n_own_blocks, n_history_blocks; /* blocks of running sequences come first */
    uint32_t *tokens;                 /* [places] */
    uint32_t (*before)[SUFFIX_LEVELS]; /* [places] */
    struct suffix_block *blocks;
    struct suffix_domain *domains; /* [n_history_blocks]: each has a block */
    uint32_t *domain_heads;        /* [n_history_blocks] chains by hash */
    uint64_t secrets[4]; /* of that hash: clients choose their domains, by cache_salt, and shall not know chains */
    struct gram_table grams;
    struct suffix_account accounts[SUFFIX_TENANTS];
    uint32_t free_own, free_history, free_domain; /* chains */
    uint32_t n_free_history, n_answers, n_born;
};

/* A text that grows at its end; owner: a slot, or what suffix_store_domain() said. */
struct suffix_text {
    uint32_t owner;
    uint32_t first, last; /* blocks */
    uint32_t n_tokens;
};

uint64_t suffix_store_bytes(uint32_t n_slots, uint64_t n_own_tokens, uint64_t history_bytes);
int suffix_store_create(struct suffix_store *s, uint32_t n_slots, uint64_t n_own_tokens, uint64_t history_bytes,
                        struct quire_error *err);
void suffix_store_free(struct suffix_store *s);

/* A running sequence's, as far as its pool goes: tokens[text->n_tokens … n). tokens: the whole text. */
void suffix_store_append(struct suffix_store *s, struct suffix_text *text, const uint32_t *tokens, uint32_t n);
void suffix_store_release(struct suffix_store *s, struct suffix_text *text);

/* Of more tokens than an eighth of the history, the first. */
void suffix_store_learn(struct suffix_store *s, const struct key256 *domain, uint32_t tenant, uint32_t max_answers,
                        const uint32_t *tokens, uint32_t n);
/* The owner; SUFFIX_NONE: nothing is known of it. */
uint32_t suffix_store_domain(const struct suffix_store *s, const struct key256 *domain);

/* The last tokens of a text, as an owner's texts are searched for them. */
struct suffix_runs {
    uint32_t owner, n_levels;
    uint64_t hashes[SUFFIX_LEVELS];
};
/* last: [n_last] */
void suffix_store_hash(const struct suffix_store *s, uint32_t owner, const uint32_t *last, uint32_t n_last,
                       struct suffix_runs *runs);

struct suffix_place {
    uint32_t at;
    uint32_t n_agree; /* tokens before it that are the last of those that were looked for, one edit aside; <= n_last */
};
/* The latest places after the last tokens that a level has, the latest first: at most SUFFIX_PLACES. */
uint32_t suffix_store_seen(const struct suffix_store *s, const struct suffix_runs *runs, uint32_t level,
                           const uint32_t *last, uint32_t n_last, struct suffix_place *places);
/* The place after it; SUFFIX_NONE: the text ends. */
uint32_t suffix_store_next(const struct suffix_store *s, uint32_t at);

#endif
