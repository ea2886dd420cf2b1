#include "speculation/drafter.h"

#include <stdlib.h>

/* The position of an answer in its expected text.
 *
 * While they agree, the position advances by one with each token. At a mismatch, every position nearby gets a score.
 * The score weighs the number of tokens before it that agree with the answer's last ones against the distance from the
 * aligned position. That position assumes that the disagreeing tokens replaced, or were inserted into, the same number
 * of tokens, whichever is nearer. One more agreeing token outweighs four times the distance. If no tokens agree, the
 * tokens count as replaced, so after one other token the text continues at once. Positions far away are searched piece
 * by piece at each mismatch, round-robin.
 *
 * A position found this way is tentative until SURE tokens in a row have agreed; distances are measured from the last
 * sure position. After LOST tokens without one, nothing is proposed where fewer than SURE tokens agree.
 */
#define SURE 3u
#define LOST 8u
#define NEAR 128u  /* positions searched before and after the aligned one */
#define FAR 1024u  /* positions searched elsewhere per mismatch */
#define MOST_AGREE 16u /* upper bound of the count */
#define AT_ONCE \
    1024u  /* compared tokens of an answer: the expected text may arrive late, and 1,000 tokens take a millisecond */

struct state {
    uint32_t n_seen;             /* tokens of the answer that have been compared */
    uint32_t at;                 /* position of its next token */
    uint32_t n_agreed;           /* agreeing tokens in a row before it */
    uint32_t sure_seen, sure_at; /* both, at the last SURE agreement; before that, the start */
    uint32_t far_at;             /* the next far position to search */
};

struct follow {
    struct drafter drafter;
    struct state slots[];
};

/* The best position so far. */
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

/* The answer's position if every token since the last sure one replaced one token. */
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

/* Searches positions in [from, to] that follow a token equal to the answer's last one. */
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

/* Called when the answer's last token differs from the expected one. */
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

/* Returns false if more of the answer remains to be followed. */
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
