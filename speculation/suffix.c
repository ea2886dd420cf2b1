#include "speculation/suffix.h"

#include "speculation/suffix_store.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of the prompt stored before a learned answer, so that its first tokens can be found. */
#define LEAD_TOKENS 16u

struct suffix {
    struct drafter drafter;
    struct suffix_config config;
    struct suffix_store store;
    struct suffix_text *texts; /* [n_slots] */
};

/* Drafts, and the expected number of accepted ones: the sum of their probabilities. */
struct guess {
    uint32_t tokens[DRAFT_MAX];
    uint32_t n;
    float worth;
};

/* The positions that still agree with the drafted tokens. */
struct voters {
    uint32_t at[SUFFIX_PLACES];
    uint32_t n;
};

/* Returns the votes for the most frequent next token; ties go to the token with the latest position. */
static uint32_t vote(const struct suffix_store *s, const struct voters *v, uint32_t *token)
{
    uint32_t tokens[SUFFIX_PLACES], votes[SUFFIX_PLACES], n = 0, best = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t t = s->tokens[v->at[i]], j = 0;
        while (j < n && tokens[j] != t)
            j++;
        if (j == n) {
            tokens[n] = t;
            votes[n++] = 0;
        }
        votes[j]++;
    }
    for (uint32_t j = 1; j < n; j++)
        if (votes[j] > votes[best])
            best = j;
    *token = tokens[best];
    return votes[best];
}

/* Advances the positions that voted for the token. An answer that ended there counts as a different continuation; own
 * text is unknown beyond its end. Returns the number of positions that count. */
static uint32_t follow_votes(const struct suffix_store *s, struct voters *v, uint32_t token, bool ends_count)
{
    uint32_t n = 0, n_ended = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (s->tokens[v->at[i]] != token)
            continue;
        uint32_t next = suffix_store_next(s, v->at[i]);
        if (next == SUFFIX_NONE)
            n_ended++;
        else
            v->at[n++] = next;
    }
    v->n = n;
    return n + (ends_count ? n_ended : 0);
}

/* The most frequent path from the positions where n_agree tokens or more agree. */
static void walk(const struct suffix *d, const struct suffix_place *places, uint32_t n_places, uint32_t n_agree,
                 uint32_t most, bool ends_count, struct guess *best)
{
    struct voters v = {.n = 0};
    struct guess g = {.n = 0};
    float chance = 1;
    for (uint32_t i = 0; i < n_places; i++)
        if (places[i].n_agree >= n_agree)
            v.at[v.n++] = places[i].at;
    for (uint32_t n_counted = v.n; v.n > 0 && g.n < most;) {
        uint32_t token;
        chance *= (float)vote(&d->store, &v, &token) / (float)n_counted;
        if (chance < d->config.min_token_prob)
            break;
        g.tokens[g.n++] = token;
        g.worth += chance;
        n_counted = follow_votes(&d->store, &v, token, ends_count);
    }
    if (g.worth > best->worth)
        *best = g;
}

/* Maximum drafts after this many agreeing tokens. */
static uint32_t most_after(const struct suffix *d, uint32_t n_agree, uint32_t most)
{
    float factor = d->config.max_spec_factor * (float)n_agree;
    return factor < (float)most ? (uint32_t)factor : most;
}

/* Tries each length of the run at which the number of positions changes, from the longest to the shortest, until the
 * rest cannot be better. */
static void guess_from(const struct suffix *d, const struct suffix_runs *runs, const uint32_t *last, uint32_t n_last,
                       uint32_t most, struct guess *best)
{
    struct suffix_place places[SUFFIX_PLACES];
    bool ends_count = runs->owner >= d->store.n_slots;
    for (uint32_t level = SUFFIX_LEVELS; level-- > 0;) {
        if ((float)most_after(d, n_last, most) <= best->worth)
            return;
        uint32_t n = suffix_store_seen(&d->store, runs, level, last, n_last, places);
        for (uint32_t length, longest = n_last; n > 0; longest = length - 1) {
            length = 0;
            for (uint32_t i = 0; i < n; i++)
                if (places[i].n_agree <= longest && places[i].n_agree > length)
                    length = places[i].n_agree;
            if ((float)most_after(d, length, most) <= best->worth)
                break;
            walk(d, places, n, length, most_after(d, length, most), ends_count, best);
        }
    }
}

static void take_in(struct suffix *d, uint32_t slot, const struct draft_text *t)
{
    uint32_t n = d->texts[slot].n_tokens + DRAFT_AT_ONCE;
    suffix_store_append(&d->store, &d->texts[slot], t->tokens, t->n_tokens < n ? t->n_tokens : n);
}

static void begin(struct drafter *drafter, uint32_t slot, const struct draft_text *text)
{
    struct suffix *d = (struct suffix *)drafter;
    d->texts[slot] = (struct suffix_text){.owner = slot, .first = SUFFIX_NONE, .last = SUFFIX_NONE};
    take_in(d, slot, text);
}

static int propose(struct drafter *drafter, struct draft_ask *asks, uint32_t n, struct quire_error *err)
{
    struct suffix *d = (struct suffix *)drafter;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_ask *a = &asks[i];
        const struct draft_text *t = &a->text;
        struct guess best = {.n = 0};
        uint32_t n_last = t->n_tokens < d->config.max_tree_depth ? t->n_tokens : d->config.max_tree_depth;
        const uint32_t *last = t->tokens + t->n_tokens - n_last;
        uint32_t domain = suffix_store_domain(&d->store, t->domain);
        struct suffix_runs own, others;
        suffix_store_hash(&d->store, a->slot, last, n_last, &own);
        if (domain != SUFFIX_NONE)
            suffix_store_hash(&d->store, domain, last, n_last, &others);
        take_in(d, a->slot, t);
        guess_from(d, &own, last, n_last, a->most, &best);
        if (domain != SUFFIX_NONE)
            guess_from(d, &others, last, n_last, a->most, &best);
        a->n = best.n;
        memcpy(a->drafts, best.tokens, best.n * sizeof *a->drafts);
    }
    return QUIRE_OK;
}

static void end(struct drafter *drafter, uint32_t slot, const struct draft_text *t, bool is_answer)
{
    struct suffix *d = (struct suffix *)drafter;
    suffix_store_release(&d->store, &d->texts[slot]);
    if (!is_answer || t->n_tokens == t->n_prompt)
        return;
    uint32_t from = t->n_prompt < LEAD_TOKENS ? 0 : t->n_prompt - LEAD_TOKENS;
    suffix_store_learn(&d->store, t->domain, t->tenant, d->config.max_cached_requests, t->tokens + from,
                       t->n_tokens - from);
}

static void destroy(struct drafter *drafter)
{
    struct suffix *d = (struct suffix *)drafter;
    suffix_store_free(&d->store);
    free(d->texts);
    free(d);
}

static const struct drafter_ops ops = {
    .name = "suffix", .begin = begin, .propose = propose, .end = end, .destroy = destroy};

static uint64_t own_tokens(const struct suffix_config *c)
{
    uint64_t most = (uint64_t)c->n_slots * c->max_model_len;
    return c->n_tokens < most ? c->n_tokens : most;
}

static uint64_t history_bytes(const struct suffix_config *c)
{
    return c->max_cached_requests > 0 ? c->history_bytes : 0;
}

uint64_t suffix_bytes(const struct suffix_config *c)
{
    return sizeof(struct suffix) + c->n_slots * sizeof(struct suffix_text) +
           suffix_store_bytes(c->n_slots, own_tokens(c), history_bytes(c));
}

static int check(const struct suffix_config *c, struct quire_error *err)
{
    if (c->n_slots == 0)
        return quire_fail(err, QUIRE_INVALID, "drafts: n_sequences must not be 0");
    if (c->max_tree_depth == 0 || c->max_tree_depth > SUFFIX_MAX_DEPTH)
        return quire_fail(err, QUIRE_INVALID, "drafts: suffix_decoding_max_tree_depth must be 1 to %u",
                          SUFFIX_MAX_DEPTH);
    if (!(c->max_spec_factor >= 0))
        return quire_fail(err, QUIRE_INVALID, "drafts: suffix_decoding_max_spec_factor must be 0 or more");
    if (!(c->min_token_prob >= 0 && c->min_token_prob <= 1))
        return quire_fail(err, QUIRE_INVALID, "drafts: suffix_decoding_min_token_prob must be 0 to 1");
    return QUIRE_OK;
}

int suffix_create(const struct suffix_config *config, struct drafter **out, struct quire_error *err)
{
    int status = check(config, err);
    if (status != QUIRE_OK)
        return status;
    struct suffix *d = calloc(1, sizeof *d);
    if (!d)
        return quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    d->drafter.ops = &ops;
    d->config = *config;
    d->texts = calloc(config->n_slots, sizeof *d->texts);
    status = d->texts ? suffix_store_create(&d->store, config->n_slots, own_tokens(config), history_bytes(config), err)
                      : quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    if (status != QUIRE_OK) {
        destroy(&d->drafter);
        return status;
    }
    *out = &d->drafter;
    return QUIRE_OK;
}
