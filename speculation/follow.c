#include "speculation/drafter.h"

#include <stdlib.h>

/* Where an answer stands in the text that is expected of it.
 *
 * As long as they agree, one place further with each token. At a token that is another, every place near by is weighed:
 * how many tokens before it are the answer's last ones, against how far it is from where it would be had as many tokens
 * been replaced as did not agree, or had they been put in (whichever is nearer). A token more that agrees outweighs four
 * times the distance, and with none that agree they were replaced: after one other token the text goes on at once. Far
 * away, a piece of the text is looked through at each such token, round and round.
 *
 * A place that was found so is a guess until SURE tokens in a row have agreed; distances are measured from where that was
 * last so. After LOST tokens without, nothing is proposed where fewer than SURE agree. */
#define SURE 3u
#define LOST 8u
#define NEAR 128u  /* places looked at before and after the aligned one */
#define FAR 1024u  /* places looked at elsewhere */
#define MOST_AGREE 16u /* more is not counted */
#define AT_ONCE \
    1024u  /* tokens of an answer are compared: what is expected may come late, and 1,000 are a millisecond */

struct state {
    uint32_t n_seen;             /* tokens of the answer that have been compared */
    uint32_t at;                 /* the place of its next one */
    uint32_t n_agreed;           /* of those before it, in a row */
    uint32_t sure_seen, sure_at; /* both, when SURE had agreed; else where they began */
    uint32_t far_at;             /* the next far place to be looked at */
};

struct follow {
    struct drafter drafter;
    struct state slots[];
};

/* The best place so far. */
struct choice {
    uint32_t at, n_agree;
    int32_t weight;
};

static uint32_t n_agree(const struct draft_text *t, uint32_t n_answer, uint32_t at)
{
    const uint32_t *answer = t->tokens + t->n_prompt;
    uint32_t n = 0, most = at < n_answer ? at : n_answer;
    if (most > MOST_AGREE)
        most = MOST_AGREE;
    while (n < most && t->expected[at - 1 - n] == answer[n_answer - 1 - n])
        n++;
    return n;
}

/* The answer's place, had every token since it was sure been replaced by one other. */
static uint32_t aligned(const struct state *s, const struct draft_text *t)
{
    uint64_t at = (uint64_t)s->sure_at + (s->n_seen - s->sure_seen);
    return at < t->n_expected ? (uint32_t)at : t->n_expected;
}

/* 0, 1, 2, 2, 3, 3, 3, 3, 4, ...: how often a distance can be halved. */
static int32_t halvings(uint32_t distance)
{
    return distance ? 32 - __builtin_clz(distance) : 0;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

/* Places of [from, to], after a token that is the answer's last. */
static void look(const struct state *s, const struct draft_text *t, uint32_t from, uint32_t to, struct choice *best)
{
    uint32_t last = t->tokens[t->n_prompt + s->n_seen - 1], end = to < t->n_expected ? to : t->n_expected;
    for (uint32_t at = from ? from : 1; at <= end; at++) {
        if (t->expected[at - 1] != last)
            continue;
        uint32_t n = n_agree(t, s->n_seen, at);
        uint32_t replaced = distance(at, aligned(s, t)), put_in = distance(at, s->sure_at + n);
        int32_t weight = 2 * (int32_t)n - halvings(replaced < put_in ? replaced : put_in);
        if (weight > best->weight)
            *best = (struct choice){.at = at, .n_agree = n, .weight = weight};
    }
}

/* The answer's last token was not the expected one. */
static void realign(struct state *s, const struct draft_text *t)
{
    uint32_t near = aligned(s, t);
    struct choice best = {.at = near, .weight = 0};
    look(s, t, near > NEAR ? near - NEAR : 0, near + NEAR, &best);
    if (near > s->sure_at + NEAR)
        look(s, t, s->sure_at, s->sure_at + NEAR, &best);
    if (s->n_seen - s->sure_seen >= LOST) {
        s->far_at = s->far_at < t->n_expected ? s->far_at : 0;
        look(s, t, s->far_at, s->far_at + FAR, &best);
        s->far_at += FAR;
    }
    s->at = best.at;
    s->n_agreed = best.n_agree;
}

/* False: there is more of it. */
static bool follow_answer(struct state *s, const struct draft_text *t)
{
    const uint32_t *answer = t->tokens + t->n_prompt, n_answer = t->n_tokens - t->n_prompt;
    const uint32_t end = n_answer - s->n_seen > AT_ONCE ? s->n_seen + AT_ONCE : n_answer;
    while (s->n_seen < end) {
        uint32_t token = answer[s->n_seen++];
        if (s->at < t->n_expected && t->expected[s->at] == token) {
            s->at++;
            s->n_agreed++;
        } else {
            realign(s, t);
        }
        if (s->n_agreed >= SURE) {
            s->sure_seen = s->n_seen;
            s->sure_at = s->at;
        }
    }
    return end == n_answer;
}

static void begin(struct drafter *d, uint32_t slot, const struct draft_text *text)
{
    (void)text;
    ((struct follow *)d)->slots[slot] = (struct state){0};
}

static int propose(struct drafter *d, struct draft_ask *asks, uint32_t n, struct quire_error *err)
{
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_ask *a = &asks[i];
        struct state *s = &((struct follow *)d)->slots[a->slot];
        a->n = 0;
        if (a->text.n_expected == 0)
            continue;
        if (!follow_answer(s, &a->text) || (s->n_seen - s->sure_seen > LOST && s->n_agreed < SURE))
            continue;
        while (a->n < a->most && s->at + a->n < a->text.n_expected) {
            a->drafts[a->n] = a->text.expected[s->at + a->n];
            a->n++;
        }
    }
    return QUIRE_OK;
}

static void end(struct drafter *d, uint32_t slot, const struct draft_text *text, bool is_answer)
{
    (void)d;
    (void)slot;
    (void)text;
    (void)is_answer;
}

static void destroy(struct drafter *d)
{
    free(d);
}

static const struct drafter_ops ops = {
    .name = "prediction", .begin = begin, .propose = propose, .end = end, .destroy = destroy};

uint64_t follow_bytes(uint32_t n_slots)
{
    return sizeof(struct follow) + (uint64_t)n_slots * sizeof(struct state);
}

int follow_create(uint32_t n_slots, struct drafter **out, struct quire_error *err)
{
    struct follow *f = calloc(1, follow_bytes(n_slots));
    if (!f)
        return quire_fail(err, QUIRE_NO_MEMORY, "drafts: out of memory");
    f->drafter.ops = &ops;
    *out = &f->drafter;
    return QUIRE_OK;
}
