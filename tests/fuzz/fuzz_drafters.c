/* Drafters: any order of sequences that begin, grow, are asked for and end, over few different tokens. They return
 * at most the requested number of drafts, read only existing tokens, return only tokens seen in the same domain, and
 * return the same for the same calls. The first byte is the drafter, each further one a call. */
#include "fuzz.h"

#include "speculation/ngram.h"
#include "speculation/suffix.h"

#include <stdlib.h>
#include <string.h>

#define N_SLOTS 3u
#define N_DOMAINS 3u
#define LEN 200u

struct sequence {
    uint32_t tokens[LEN], n, domain;
    bool is_running;
};

static int make(uint8_t kind, struct drafter **d)
{
    const struct ngram_config ngram = {.n_slots = N_SLOTS,
                                       .max_model_len = kind & 8 ? LEN : LEN / 2,
                                       .lookup_min = 1 + (kind >> 4 & 3),
                                       .lookup_max = 4 + (kind >> 6),
                                       .n_tokens = kind & 4 ? 64 : N_SLOTS * LEN};
    const struct suffix_config suffix = {.n_slots = N_SLOTS,
                                         .max_model_len = LEN,
                                         .n_tokens = kind & 4 ? 64 : N_SLOTS * LEN,
                                         .history_bytes = kind & 8 ? 100000 : 50000,
                                         .max_tree_depth = 1 + (kind >> 4),
                                         .max_cached_requests = kind & 4 ? 3 : 1000,
                                         .max_spec_factor = kind & 8 ? 1 : 4,
                                         .min_token_prob = 0.1f};
    switch (kind % 3) {
    case 0: return ngram_create(&ngram, d, NULL);
    case 1: return suffix_create(&suffix, d, NULL);
    default: return follow_create(N_SLOTS, d, NULL);
    }
}

/* Tokens in memory of their own, so that a read past them is seen. The expected text is another sequence's. */
static struct draft_text text_of(const struct sequence *q, const struct sequence *other)
{
    static struct key256 domains[N_DOMAINS];
    struct draft_text t = {.n_tokens = q->n,
                           .n_prompt = q->n / 2,
                           .domain = &domains[q->domain],
                           .tenant = q->domain,
                           .n_expected = other->n};
    uint32_t *tokens = malloc((q->n + 1) * sizeof *tokens), *expected = malloc((other->n + 1) * sizeof *expected);
    if (!tokens || !expected)
        abort();
    domains[q->domain].bytes[31] = (uint8_t)q->domain;
    t.tokens = memcpy(tokens + 1, q->tokens, q->n * sizeof *tokens);
    t.expected = memcpy(expected + 1, other->tokens, other->n * sizeof *expected);
    return t;
}

static void free_text(const struct draft_text *t)
{
    free((uint32_t *)t->tokens - 1);
    free((uint32_t *)t->expected - 1);
}

static void ask(struct drafter *const d[2], uint32_t slot, const struct sequence *q, const struct draft_text *t,
                uint32_t most, bool is_follow)
{
    uint32_t drafts[2][DRAFT_MAX];
    struct draft_ask a[2];
    for (int i = 0; i < 2; i++) {
        a[i] = (struct draft_ask){.slot = slot, .text = *t, .most = most, .drafts = drafts[i] + DRAFT_MAX - most};
        if (d[i]->ops->propose(d[i], &a[i], 1, NULL) || a[i].n > most)
            abort();
    }
    if (a[0].n != a[1].n || memcmp(a[0].drafts, a[1].drafts, a[0].n * sizeof(uint32_t)) != 0)
        abort();
    for (uint32_t i = 0; i < a[0].n && !is_follow; i++)
        if (a[0].drafts[i] / 4 != q->domain)
            abort();
}

/* It grows, by a pattern or not; tokens of a domain are its own. */
static void grow(struct sequence *q, bool is_pattern, uint32_t more)
{
    for (uint32_t i = 0; i <= 3 * more && q->n < LEN; i++)
        q->tokens[q->n++] = 4 * q->domain + (is_pattern ? i % (1 + more % 4) : i * more % 4);
}

static void call(struct drafter *const d[2], struct sequence *sequences, uint8_t byte, bool is_follow)
{
    uint32_t slot = byte % N_SLOTS, what = byte / N_SLOTS % 4, more = byte / N_SLOTS / 4;
    struct sequence *q = &sequences[slot];
    bool was_running = q->is_running;
    if (!was_running)
        *q = (struct sequence){.domain = more % N_DOMAINS, .is_running = true};
    if (!was_running || what < 2)
        grow(q, what == 0, more);
    struct draft_text t = text_of(q, &sequences[(slot + 1) % N_SLOTS]);
    if (was_running && what < 3)
        ask(d, slot, q, &t, 1 + more * 3, is_follow);
    for (int i = 0; i < 2; i++)
        if (!was_running)
            d[i]->ops->begin(d[i], slot, &t);
        else if (what == 3)
            d[i]->ops->end(d[i], slot, &t, more % 4);
    q->is_running = !was_running || what < 3;
    free_text(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct sequence sequences[N_SLOTS] = {0};
    struct drafter *d[2];
    if (n == 0)
        return 0;
    if (make(data[0], &d[0]) || make(data[0], &d[1]))
        abort();
    for (size_t i = 1; i < n; i++)
        call(d, sequences, data[i], data[0] % 3 == 2);
    d[0]->ops->destroy(d[0]);
    d[1]->ops->destroy(d[1]);
    return 0;
}
