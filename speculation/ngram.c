#include "speculation/ngram.h"

#include "speculation/gram_table.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD 8u /* tokens that are hashed while a cache miss of the table is served */
#define HOLD 2u

/* Positions of all slots are numbers of one space, with max_model_len positions for each sequence that ever began. A
 * position therefore identifies entries of a sequence that has left. After 2^32 positions, numbers repeat; a wrong
 * entry is then detected by its tokens, like any other. */
struct slot {
    uint32_t base; /* position of token 0 */
    uint32_t n_known; /* all grams before this token are in the table */
    uint32_t held, n_held; /* the last proposed position, and the number of tokens at that time; 0: none */
    bool is_used;
};

struct ngram {
    struct drafter drafter;
    struct ngram_config config;
    struct gram_table table;
    struct slot *slots;
    uint32_t next_base;
};

static bool is_alive(const void *owner, uint16_t stamp, uint32_t at)
{
    const struct ngram *d = owner;
    const struct slot *s = &d->slots[stamp];
    return s->is_used && at - s->base < d->config.max_model_len;
}

/* hashes[n - lookup_min] of the last n tokens before `end`. Returns the number of hashes, which is smaller near the
 * beginning. */
static uint32_t hash_grams(const struct ngram *d, const struct slot *s, const uint32_t *tokens, uint32_t end,
                           uint64_t hashes[NGRAM_MAX_LOOKUP])
{
    uint32_t longest = end < d->config.lookup_max ? end : d->config.lookup_max, n_hashes = 0;
    uint64_t hash = gram_hash_begin(s->base);
    for (uint32_t n = 1; n <= longest; n++) {
        hash = gram_hash_add(hash, tokens[end - n]);
        if (n >= d->config.lookup_min) {
            hashes[n_hashes] = gram_hash_end(hash, n);
            gram_table_prefetch(&d->table, hashes[n_hashes++]);
        }
    }
    return n_hashes;
}

/* Adds grams that are followed by a token. Works on several tokens at once, so that cache misses of the table overlap
 * with hashing. */
static void learn(struct ngram *d, uint32_t slot, const struct draft_text *t)
{
    struct slot *s = &d->slots[slot];
    uint32_t end = t->n_tokens < d->config.max_model_len ? t->n_tokens : d->config.max_model_len;
    end = end > s->n_known + DRAFT_AT_ONCE ? s->n_known + DRAFT_AT_ONCE : end;
    uint64_t hashes[AHEAD][NGRAM_MAX_LOOKUP];
    uint32_t n[AHEAD];
    while (s->n_known < end) {
        uint32_t n_places = end - s->n_known < AHEAD ? end - s->n_known : AHEAD;
        for (uint32_t i = 0; i < n_places; i++)
            n[i] = hash_grams(d, s, t->tokens, s->n_known + i, hashes[i]);
        for (uint32_t i = 0; i < n_places; i++, s->n_known++)
            for (uint32_t j = 0; j < n[i]; j++)
                gram_table_put(&d->table, hashes[i][j], (uint16_t)slot, s->base + s->n_known);
    }
}

static bool agrees(const struct draft_text *t, uint32_t at, uint32_t n)
{
    return at >= n && at < t->n_tokens &&
           memcmp(t->tokens + at - n, t->tokens + t->n_tokens - n, n * sizeof *t->tokens) == 0;
}

/* The current position of the last proposal, give or take a token or two; GRAM_NONE: the text has left it. */
static uint32_t hold(const struct ngram *d, const struct slot *s, const struct draft_text *t)
{
    uint32_t there = s->held + (t->n_tokens - s->n_held), n = d->config.lookup_min;
    for (uint32_t i = 0; s->n_held > 0 && i <= HOLD; i++) {
        if (there >= i && agrees(t, there - i, n))
            return there - i;
        if (agrees(t, there + i, n))
            return there + i;
    }
    return GRAM_NONE;
}

/* The position after an earlier occurrence of the last tokens; GRAM_NONE: there is no earlier one. */
static uint32_t find(const struct ngram *d, const struct slot *s, const struct draft_text *t)
{
    uint64_t hashes[NGRAM_MAX_LOOKUP];
    for (uint32_t i = hash_grams(d, s, t->tokens, t->n_tokens, hashes); i-- > 0;) {
        uint32_t n = d->config.lookup_min + i, found = gram_table_find(&d->table, hashes[i]), at = found - s->base;
        if (found != GRAM_NONE && agrees(t, at, n))
            return at;
    }
    return GRAM_NONE;
}

static void begin(struct drafter *drafter, uint32_t slot, const struct draft_text *text)
{
    struct ngram *d = (struct ngram *)drafter;
    d->slots[slot] = (struct slot){.base = d->next_base, .is_used = true};
    d->next_base += d->config.max_model_len;
    learn(d, slot, text);
}

static int propose(struct drafter *drafter, struct draft_ask *asks, uint32_t n, struct quire_error *err)
{
    struct ngram *d = (struct ngram *)drafter;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_ask *a = &asks[i];
        learn(d, a->slot, &a->text);
        struct slot *s = &d->slots[a->slot];
        uint32_t at = hold(d, s, &a->text);
        at = at == GRAM_NONE ? find(d, s, &a->text) : at;
        if (at != GRAM_NONE) {
            s->held = at;
            s->n_held = a->text.n_tokens;
        }
        for (a->n = 0; at != GRAM_NONE && a->n < a->most; a->n++, at++)
            a->drafts[a->n] = at < a->text.n_tokens ? a->text.tokens[at] : a->drafts[at - a->text.n_tokens];
    }
    return QUIRE_OK;
}

static void end(struct drafter *drafter, uint32_t slot, const struct draft_text *text, bool is_answer)
{
    (void)text;
    (void)is_answer;
    ((struct ngram *)drafter)->slots[slot].is_used = false;
}

static void destroy(struct drafter *drafter)
{
    struct ngram *d = (struct ngram *)drafter;
    gram_table_free(&d->table);
    free(d->slots);
    free(d);
}

static const struct drafter_ops ops = {
    .name = "ngram", .begin = begin, .propose = propose, .end = end, .destroy = destroy};

static uint64_t n_grams(const struct ngram_config *c)
{
    uint64_t most = (uint64_t)c->n_slots * c->max_model_len;
    return (c->n_tokens < most ? c->n_tokens : most) * (c->lookup_max - c->lookup_min + 1);
}

uint64_t ngram_bytes(const struct ngram_config *c)
{
    return sizeof(struct ngram) + c->n_slots * sizeof(struct slot) + gram_table_bytes(n_grams(c));
}

int ngram_create(const struct ngram_config *config, struct drafter **out, struct quire_error *err)
{
    if (config->n_slots == 0 || config->n_slots > 65536 || config->lookup_min == 0 ||
        config->lookup_min > config->lookup_max || config->lookup_max > NGRAM_MAX_LOOKUP)
        return quire_fail(err, QUIRE_INVALID,
                          "drafts: prompt_lookup_min must be 1 or more, prompt_lookup_max at least"
                          " that and at most %u",
                          NGRAM_MAX_LOOKUP);
    struct ngram *d = calloc(1, sizeof *d);
    if (!d)
        return quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    d->drafter.ops = &ops;
    d->config = *config;
    d->table.is_alive = is_alive;
    d->table.owner = d;
    d->slots = calloc(config->n_slots, sizeof *d->slots);
    int status = d->slots ? gram_table_create(&d->table, n_grams(config), err)
                          : quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    if (status != QUIRE_OK) {
        destroy(&d->drafter);
        return status;
    }
    *out = &d->drafter;
    return QUIRE_OK;
}
