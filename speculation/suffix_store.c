#include "speculation/suffix_store.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK SUFFIX_BLOCK_TOKENS
#define NONE SUFFIX_NONE
#define AHEAD 8u /* tokens that are hashed while a cache miss of the table is served */
#define ENOUGH 3u
#define LONGEST (1u << (SUFFIX_LEVELS - 1))
/* Different grams per position, over all levels: 2.2 in prose, 3 in random tokens. The table has two entries per gram.
 */
#define GRAMS_A_PLACE 2u

struct suffix_block {
    uint32_t owner;      /* NONE: free */
    uint32_t prev, next; /* blocks of the same text; next also links free blocks */
    uint32_t birth;      /* increases with each allocated block: a later block has a larger one */
    uint32_t n;          /* tokens in it; all but the last block of a text are full */
    uint32_t newer;      /* in an answer's first block: the tenant's next answer */
};

struct suffix_domain {
    struct key256 key;
    uint32_t n_blocks;
    uint32_t next; /* next in its hash chain, or next free one */
};

static bool is_alive(const void *owner, uint16_t stamp, uint32_t at)
{
    const struct suffix_block *b = &((const struct suffix_store *)owner)->blocks[at / BLOCK];
    return b->owner != NONE && (uint16_t)b->birth == stamp;
}

static uint64_t own_blocks(uint32_t n_slots, uint64_t n_tokens)
{
    return n_tokens / BLOCK + n_slots; /* the last block of each sequence is not full */
}

static uint64_t block_bytes(void)
{
    return BLOCK * (sizeof(uint32_t) + sizeof(uint32_t[SUFFIX_LEVELS])) + sizeof(struct suffix_block);
}

static uint64_t history_blocks(uint64_t bytes)
{
    uint64_t n_grams = (uint64_t)BLOCK * GRAMS_A_PLACE,
             grams = gram_table_bytes(2 * n_grams) - gram_table_bytes(n_grams);
    return bytes / (block_bytes() + sizeof(struct suffix_domain) + sizeof(uint32_t) + grams);
}

uint64_t suffix_store_bytes(uint32_t n_slots, uint64_t n_own_tokens, uint64_t history_bytes)
{
    uint64_t n_own = own_blocks(n_slots, n_own_tokens), n_history = history_blocks(history_bytes);
    return (n_own + n_history) * block_bytes() + n_history * (sizeof(struct suffix_domain) + sizeof(uint32_t)) +
           gram_table_bytes((n_own + n_history) * BLOCK * GRAMS_A_PLACE);
}

/* Makes all blocks and domains free. */
static void clear(struct suffix_store *s)
{
    uint32_t n_blocks = s->n_own_blocks + s->n_history_blocks;
    for (uint32_t i = 0; i < n_blocks; i++)
        s->blocks[i] = (struct suffix_block){.owner = NONE, .next = i + 1};
    s->blocks[s->n_own_blocks - 1].next = NONE;
    s->free_own = 0;
    s->free_history = s->free_domain = NONE;
    s->n_free_history = s->n_history_blocks;
    if (s->n_history_blocks > 0) {
        s->blocks[n_blocks - 1].next = NONE;
        s->free_history = s->n_own_blocks;
        s->free_domain = 0;
    }
    for (uint32_t i = 0; i < s->n_history_blocks; i++) {
        s->domains[i].next = i + 1 < s->n_history_blocks ? i + 1 : NONE;
        s->domain_heads[i] = NONE;
    }
}

int suffix_store_create(struct suffix_store *s, uint32_t n_slots, uint64_t n_own_tokens, uint64_t history_bytes,
                        struct quire_error *err)
{
    uint64_t n_own = own_blocks(n_slots, n_own_tokens), n_history = history_blocks(history_bytes);
    uint64_t n_blocks = n_own + n_history;
    memset(s, 0, sizeof *s);
    s->grams.is_alive = is_alive;
    s->grams.owner = s;
    if (n_blocks > UINT32_MAX / BLOCK || n_blocks + n_slots >= NONE)
        return quire_fail(err, QUIRE_INVALID, "drafts: history and running sequences are more than 4 billion tokens");
    quire_random(s->secrets, sizeof s->secrets);
    s->n_slots = n_slots;
    s->n_own_blocks = (uint32_t)n_own;
    s->n_history_blocks = (uint32_t)n_history;
    s->tokens = malloc(n_blocks * BLOCK * sizeof *s->tokens);
    s->before = malloc(n_blocks * BLOCK * sizeof *s->before);
    s->blocks = malloc(n_blocks * sizeof *s->blocks);
    if (n_history > 0) {
        s->domains = malloc(n_history * sizeof *s->domains);
        s->domain_heads = malloc(n_history * sizeof *s->domain_heads);
    }
    if (!s->tokens || !s->before || !s->blocks || (n_history > 0 && (!s->domains || !s->domain_heads)))
        return quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    clear(s);
    return gram_table_create(&s->grams, n_blocks * BLOCK * GRAMS_A_PLACE, err);
}

void suffix_store_free(struct suffix_store *s)
{
    free(s->tokens);
    free(s->before);
    free(s->blocks);
    free(s->domains);
    free(s->domain_heads);
    gram_table_free(&s->grams);
}

/* ---- texts ---- */

void suffix_store_hash(const struct suffix_store *s, uint32_t owner, const uint32_t *last, uint32_t n_last,
                       struct suffix_runs *runs)
{
    uint64_t hash = gram_hash_begin(owner);
    runs->owner = owner;
    runs->n_levels = 0;
    for (uint32_t i = 1; i <= LONGEST && i <= n_last; i++) {
        hash = gram_hash_add(hash, last[n_last - i]);
        if (i == suffix_level_tokens(runs->n_levels)) {
            gram_table_prefetch(&s->grams, runs->hashes[runs->n_levels++] = gram_hash_end(hash, i));
        }
    }
}

/* Takes a block from the chain, which is not empty. */
static void add_block(struct suffix_store *s, uint32_t *chain, struct suffix_text *text)
{
    uint32_t i = *chain;
    *chain = s->blocks[i].next;
    s->blocks[i] = (struct suffix_block){
        .owner = text->owner, .prev = text->last, .next = NONE, .birth = ++s->n_born, .newer = NONE};
    if (text->last != NONE)
        s->blocks[text->last].next = i;
    else
        text->first = i;
    text->last = i;
}

/* Adds tokens up to n to the text's last block, which has space for them. */
static void add_tokens(struct suffix_store *s, struct suffix_text *text, const uint32_t *tokens, uint32_t n)
{
    struct suffix_block *b = &s->blocks[text->last];
    struct suffix_runs runs[AHEAD];
    while (text->n_tokens < n) {
        uint32_t n_runs = n - text->n_tokens < AHEAD ? n - text->n_tokens : AHEAD;
        for (uint32_t i = 0; i < n_runs; i++)
            suffix_store_hash(s, text->owner, tokens, text->n_tokens + i, &runs[i]);
        for (uint32_t i = 0; i < n_runs; i++) {
            uint32_t at = text->last * BLOCK + b->n++;
            s->tokens[at] = tokens[text->n_tokens++];
            for (uint32_t j = 0; j < runs[i].n_levels; j++)
                s->before[at][j] = gram_table_put(&s->grams, runs[i].hashes[j], (uint16_t)b->birth, at);
        }
    }
}

/* Adds tokens up to n, as far as blocks are available. */
static void extend(struct suffix_store *s, uint32_t *chain, struct suffix_text *text, const uint32_t *tokens,
                   uint32_t n)
{
    while (text->n_tokens < n) {
        uint32_t left = BLOCK - text->n_tokens % BLOCK;
        if (left == BLOCK) {
            if (*chain == NONE)
                return;
            add_block(s, chain, text);
        }
        add_tokens(s, text, tokens, n - text->n_tokens < left ? n : text->n_tokens + left);
    }
}

void suffix_store_append(struct suffix_store *s, struct suffix_text *text, const uint32_t *tokens, uint32_t n)
{
    extend(s, &s->free_own, text, tokens, n);
}

/* Returns the number of blocks. */
static uint32_t give_back(struct suffix_store *s, uint32_t *chain, uint32_t first)
{
    uint32_t n = 0;
    for (uint32_t i = first, next; i != NONE; i = next, n++) {
        next = s->blocks[i].next;
        s->blocks[i].owner = NONE;
        s->blocks[i].next = *chain;
        *chain = i;
    }
    return n;
}

void suffix_store_release(struct suffix_store *s, struct suffix_text *text)
{
    give_back(s, &s->free_own, text->first);
    text->first = text->last = NONE;
    text->n_tokens = 0;
}

/* ---- domains and answers ---- */

static uint32_t *chain_of(const struct suffix_store *s, const struct key256 *domain)
{
    uint64_t words[4], hash = 0;
    memcpy(words, domain->bytes, sizeof words);
    for (int i = 0; i < 4; i++)
        hash += (words[i] ^ words[i] >> 32) * s->secrets[i];
    return &s->domain_heads[(hash >> 32) * s->n_history_blocks >> 32];
}

static uint32_t find_domain(const struct suffix_store *s, const struct key256 *key)
{
    if (s->n_history_blocks == 0)
        return NONE;
    uint32_t d = *chain_of(s, key);
    while (d != NONE && memcmp(&s->domains[d].key, key, sizeof *key) != 0)
        d = s->domains[d].next;
    return d;
}

uint32_t suffix_store_domain(const struct suffix_store *s, const struct key256 *domain)
{
    uint32_t d = find_domain(s, domain);
    return d == NONE ? NONE : s->n_slots + d;
}

static uint32_t find_or_add_domain(struct suffix_store *s, const struct key256 *key)
{
    uint32_t d = find_domain(s, key);
    if (d != NONE)
        return d;
    d = s->free_domain;
    s->free_domain = s->domains[d].next;
    uint32_t *head = chain_of(s, key);
    s->domains[d] = (struct suffix_domain){.key = *key, .next = *head};
    *head = d;
    return d;
}

static void remove_domain(struct suffix_store *s, uint32_t d)
{
    uint32_t *link = chain_of(s, &s->domains[d].key);
    while (*link != d)
        link = &s->domains[*link].next;
    *link = s->domains[d].next;
    s->domains[d].next = s->free_domain;
    s->free_domain = d;
}

/* Evicts the oldest answer of the tenant that holds most of the scarce resource. */
static void forget_one(struct suffix_store *s, bool is_short_of_answers)
{
    struct suffix_account *most = &s->accounts[0];
    for (struct suffix_account *a = most + 1; a < s->accounts + SUFFIX_TENANTS; a++)
        if (is_short_of_answers ? a->n_answers > most->n_answers : a->n_blocks > most->n_blocks)
            most = a;
    uint32_t first = most->oldest, d = s->blocks[first].owner - s->n_slots;
    most->oldest = s->blocks[first].newer;
    uint32_t n = give_back(s, &s->free_history, first);
    most->n_answers--;
    most->n_blocks -= n;
    s->n_answers--;
    s->n_free_history += n;
    s->domains[d].n_blocks -= n;
    if (s->domains[d].n_blocks == 0)
        remove_domain(s, d);
}

void suffix_store_learn(struct suffix_store *s, const struct key256 *domain, uint32_t tenant, uint32_t max_answers,
                        const uint32_t *tokens, uint32_t n)
{
    struct suffix_account *a = &s->accounts[tenant % SUFFIX_TENANTS];
    uint32_t most = s->n_history_blocks / 8, n_blocks = n / BLOCK + (n % BLOCK != 0);
    if (most == 0 || n == 0 || max_answers == 0)
        return;
    if (n_blocks > most) {
        n_blocks = most;
        n = most * BLOCK;
    }
    while (s->n_answers >= max_answers || s->n_free_history < n_blocks)
        forget_one(s, s->n_answers >= max_answers);
    uint32_t d = find_or_add_domain(s, domain);
    struct suffix_text text = {.owner = s->n_slots + d, .first = NONE, .last = NONE};
    extend(s, &s->free_history, &text, tokens, n);
    if (a->n_answers++ == 0)
        a->oldest = text.first;
    else
        s->blocks[a->newest].newer = text.first;
    a->newest = text.first;
    a->n_blocks += n_blocks;
    s->domains[d].n_blocks += n_blocks;
    s->n_free_history -= n_blocks;
    s->n_answers++;
}

/* ---- search ---- */

uint32_t suffix_store_next(const struct suffix_store *s, uint32_t at)
{
    const struct suffix_block *b = &s->blocks[at / BLOCK];
    if (at % BLOCK + 1 < b->n)
        return at + 1;
    return at % BLOCK + 1 == BLOCK && b->next != NONE ? b->next * BLOCK : NONE;
}

/* The position this many tokens earlier; SUFFIX_NONE: before the beginning of its text. */
static uint32_t back(const struct suffix_store *s, uint32_t at, uint32_t n)
{
    while (n > at % BLOCK) {
        uint32_t prev = s->blocks[at / BLOCK].prev;
        if (prev == NONE)
            return NONE;
        n -= at % BLOCK + 1;
        at = prev * BLOCK + BLOCK - 1;
    }
    return at - n;
}

/* Number of tokens before a position that agree with the given last ones. */
static uint32_t n_agree(const struct suffix_store *s, uint32_t at, const uint32_t *last, uint32_t n_last)
{
    uint32_t n = 0;
    while (n < n_last) {
        if (at % BLOCK == 0) {
            uint32_t prev = s->blocks[at / BLOCK].prev;
            if (prev == NONE)
                break;
            at = (prev + 1) * BLOCK;
        }
        if (s->tokens[--at] != last[n_last - 1 - n])
            break;
        n++;
    }
    return n;
}

/* The same for the tokens before one that was replaced, inserted or removed, if at least ENOUGH agree; n tokens agree
 * after it. */
static uint32_t n_agree_beyond(const struct suffix_store *s, uint32_t at, const uint32_t *last, uint32_t n_last,
                               uint32_t n)
{
    /* tokens skipped at the position, and in the last tokens */
    static const uint32_t skipped[][2] = {{1, 1}, {0, 1}, {1, 0}};
    uint32_t most = 0;
    for (uint32_t i = 0; i < 3 && n < n_last; i++) {
        uint32_t before = back(s, at, n + skipped[i][0]);
        uint32_t m = before == NONE ? 0 : n_agree(s, before, last, n_last - n - skipped[i][1]);
        most = m > most ? m : most;
    }
    return most >= ENOUGH ? n + most : n;
}

/* Returns whether the position still belongs to a text of this owner. */
static bool is_of(const struct suffix_store *s, uint32_t at, uint32_t owner)
{
    const struct suffix_block *b = &s->blocks[at / BLOCK];
    return b->owner == owner && at % BLOCK < b->n;
}

/* Prefetches the data of a position. */
static void prefetch(const struct suffix_store *s, uint32_t at)
{
    if (at == GRAM_NONE)
        return;
    __builtin_prefetch(&s->blocks[at / BLOCK]);
    __builtin_prefetch(&s->before[at]);
    __builtin_prefetch(&s->tokens[at]);
}

uint32_t suffix_store_seen(const struct suffix_store *s, const struct suffix_runs *runs, uint32_t level,
                           const uint32_t *last, uint32_t n_last, struct suffix_place *places)
{
    uint32_t n = 0, birth = UINT32_MAX;
    if (level >= runs->n_levels)
        return 0;
    /* A reused block may be anywhere in a chain, so each position must be older than the one before it. */
    for (uint32_t at = gram_table_find(&s->grams, runs->hashes[level]), next;
         n < SUFFIX_PLACES && at != GRAM_NONE && is_of(s, at, runs->owner); at = next) {
        const struct suffix_block *b = &s->blocks[at / BLOCK];
        if (n > 0 && (b->birth > birth || (b->birth == birth && at >= places[n - 1].at)))
            break;
        next = s->before[at][level];
        prefetch(s, next);
        birth = b->birth;
        uint32_t n_same = n_agree(s, at, last, n_last);
        if (n_same < suffix_level_tokens(level))
            break;
        places[n++] = (struct suffix_place){.at = at, .n_agree = n_agree_beyond(s, at, last, n_last, n_same)};
    }
    return n;
}
