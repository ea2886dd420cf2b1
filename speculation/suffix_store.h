/* The memory of suffix decoding: texts in blocks of tokens, and for each position the previous one after the same
 * tokens. Texts belong to owners: running sequences, whose blocks are a pool of their own, and domains.
 *
 * A position is the number of a token: block x 64 + offset. One thread at a time; private to suffix.c.
 */
#ifndef QUIRE_SPECULATION_SUFFIX_STORE_H
#define QUIRE_SPECULATION_SUFFIX_STORE_H

#include "base/hash.h"
#include "speculation/gram_table.h"

#define SUFFIX_BLOCK_TOKENS 64u
#define SUFFIX_LEVELS 4u /* runs of 1, 2, 4 and 8 tokens have links; longer runs are searched among those of 8 */
#define SUFFIX_PLACES 16u /* positions considered for a run */
#define SUFFIX_TENANTS 1024u /* further tenants share an account */
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
    uint32_t *domain_heads;        /* [n_history_blocks] hash chains */
    /* keys of the hash: clients choose their domains with cache_salt and must not be able to build long chains */
    uint64_t secrets[4];
    struct gram_table grams;
    struct suffix_account accounts[SUFFIX_TENANTS];
    uint32_t free_own, free_history, free_domain; /* chains */
    uint32_t n_free_history, n_answers, n_born;
};

/* A text that grows at its end. owner: a slot, or the result of suffix_store_domain(). */
struct suffix_text {
    uint32_t owner;
    uint32_t first, last; /* blocks */
    uint32_t n_tokens;
};

uint64_t suffix_store_bytes(uint32_t n_slots, uint64_t n_own_tokens, uint64_t history_bytes);
int suffix_store_create(struct suffix_store *s, uint32_t n_slots, uint64_t n_own_tokens, uint64_t history_bytes,
                        struct quire_error *err);
void suffix_store_free(struct suffix_store *s);

/* Appends tokens[text->n_tokens … n) of a running sequence, as far as its pool has blocks. tokens: the whole text. */
void suffix_store_append(struct suffix_store *s, struct suffix_text *text, const uint32_t *tokens, uint32_t n);
void suffix_store_release(struct suffix_store *s, struct suffix_text *text);

/* Stores an answer. If it is larger than an eighth of the history, only its beginning is stored. */
void suffix_store_learn(struct suffix_store *s, const struct key256 *domain, uint32_t tenant, uint32_t max_answers,
                        const uint32_t *tokens, uint32_t n);
/* Returns the owner, or SUFFIX_NONE for an unknown domain. */
uint32_t suffix_store_domain(const struct suffix_store *s, const struct key256 *domain);

/* The last tokens of a text, hashed for a search in one owner's texts. */
struct suffix_runs {
    uint32_t owner, n_levels;
    uint64_t hashes[SUFFIX_LEVELS];
};
/* last: [n_last] */
void suffix_store_hash(const struct suffix_store *s, uint32_t owner, const uint32_t *last, uint32_t n_last,
                       struct suffix_runs *runs);

struct suffix_place {
    uint32_t at;
    uint32_t n_agree; /* agreeing tokens before it, except for one edit; <= n_last */
};
/* The latest positions after the last tokens of a level, latest first: at most SUFFIX_PLACES. */
uint32_t suffix_store_seen(const struct suffix_store *s, const struct suffix_runs *runs, uint32_t level,
                           const uint32_t *last, uint32_t n_last, struct suffix_place *places);
/* The next position; SUFFIX_NONE: end of the text. */
uint32_t suffix_store_next(const struct suffix_store *s, uint32_t at);

#endif
