#include "speculation/length.h"

#include <stdlib.h>
#include <string.h>

/* ---- cost of steps --------------------------------------------------------------------------- */

/* Widths are distinguished about as far as costs differ: kernels work in blocks of a few tokens. */
static const uint16_t bounds[] = {1,  2,  3,  4,  5,   6,   8,   10,  12,  16,  20,  24,   32,   40,
                                  48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 2048, UINT16_MAX};
#define N_BOUNDS (sizeof bounds / sizeof bounds[0])

/* Used while the cost of wider steps is unknown: the fixed part of a step costs as much as 15 tokens. */
#define FIXED_TOKENS 15.0
/* A step that another process delayed has little weight. */
#define MAX_RATIO 2.0
/* How far the other widths follow a timed one: contexts grow, clocks change. */
#define DRIFT 0.02
/* After this many narrower steps, a wide one may have become cheaper, and it would never be tried again. */
#define FORGET_AFTER 512u

struct width {
    double n_tokens, us; /* means; us 0: never timed */
    uint32_t n, unseen;  /* number of timed steps; narrower steps since the last one */
};

struct lengths {
    struct length_odds shared[LENGTH_N_SOURCES];
    struct width widths[N_BOUNDS];
    uint32_t max_items;
    struct candidate {
        float chance, next;
        uint32_t item, n;
    } *heap; /* [max_items] */
};

static uint32_t width_of(uint32_t n_tokens)
{
    uint32_t i = 0;
    while (bounds[i] < n_tokens && i + 1 < N_BOUNDS)
        i++;
    return i;
}

/* Known widths in ascending order: a wider step is never assumed to be cheaper. */
struct curve {
    uint32_t n;
    double n_tokens[N_BOUNDS], us[N_BOUNDS];
};

static void curve_of(const struct lengths *l, struct curve *c)
{
    c->n = 0;
    for (uint32_t i = 0; i < N_BOUNDS; i++) {
        const struct width *w = &l->widths[i];
        if (w->us == 0)
            continue;
        c->n_tokens[c->n] = w->n_tokens;
        c->us[c->n] = c->n > 0 && c->us[c->n - 1] > w->us ? c->us[c->n - 1] : w->us;
        c->n++;
    }
}

/* Extrapolates from the first or last point. */
static double beyond(const struct curve *c, uint32_t i, double n_tokens)
{
    double slope = c->us[i] / (c->n_tokens[i] + FIXED_TOKENS), least = slope / 8;
    if (i > 0) {
        slope = (c->us[i] - c->us[i - 1]) / (c->n_tokens[i] - c->n_tokens[i - 1]);
        slope = slope > least ? slope : least;
        slope = slope < c->us[i] / c->n_tokens[i] ? slope : c->us[i] / c->n_tokens[i];
    }
    return c->us[i] + slope * (n_tokens - c->n_tokens[i]);
}

static double curve_us(const struct curve *c, double n_tokens)
{
    uint32_t i = 0;
    if (c->n == 0) /* in units of a step of one token */
        return (n_tokens + FIXED_TOKENS) / (1 + FIXED_TOKENS);
    while (i + 1 < c->n && c->n_tokens[i + 1] <= n_tokens)
        i++;
    if (i + 1 == c->n || n_tokens < c->n_tokens[0])
        return beyond(c, i, n_tokens);
    double part = (n_tokens - c->n_tokens[i]) / (c->n_tokens[i + 1] - c->n_tokens[i]);
    return c->us[i] + part * (c->us[i + 1] - c->us[i]);
}

double lengths_us(const struct lengths *l, uint32_t n_tokens)
{
    struct curve c;
    curve_of(l, &c);
    return c.n > 0 ? curve_us(&c, n_tokens) : 0;
}

static void forget_wider(struct lengths *l, uint32_t than)
{
    l->widths[than].unseen = 0;
    for (uint32_t i = than + 1; i < N_BOUNDS; i++)
        if (l->widths[i].us > 0 && ++l->widths[i].unseen > FORGET_AFTER)
            l->widths[i] = (struct width){0};
}

void lengths_timed(struct lengths *l, uint32_t n_tokens, double us)
{
    uint32_t at = width_of(n_tokens);
    struct width *w = &l->widths[at];
    if (!(us > 0) || n_tokens == 0)
        return;
    if (w->us == 0) {
        *w = (struct width){.n_tokens = n_tokens, .us = us, .n = 1};
        forget_wider(l, at);
        return;
    }
    double ratio = us / w->us, part = w->n < 8 ? 1.0 / ++w->n : 0.125;
    ratio = ratio > MAX_RATIO ? MAX_RATIO : ratio < 1 / MAX_RATIO ? 1 / MAX_RATIO : ratio;
    for (uint32_t i = 0; i < N_BOUNDS; i++)
        l->widths[i].us *= 1 + (i == at ? part : DRIFT) * (ratio - 1);
    w->n_tokens += part * (n_tokens - w->n_tokens);
    forget_wider(l, at);
}

/* ---- value of drafts ------------------------------------------------------------------------- */

#define MEMORY 0.8f         /* of a sequence, from row to row: five rows count */
#define SHARED_MEMORY 0.95f /* of a source: twenty rows count */
#define PRIOR 0.5f          /* weight of a source's prior, in rows */
#define LEAST_CHANCE 0.03f  /* below it, a draft is not worth its bookkeeping, whatever steps cost */
#define LEAST_GAIN 1.01     /* a smaller gain of a step may as well be a loss */
#define FIRST_PAUSE 8u
/* per step, about, if there are no drafts to be had: each call costs one or two microseconds */
#define VAIN_QUESTIONS 8u
/* share of the running sequences that may try again in one step; otherwise all that paused together would */
#define TRIES_SHARE 16u
#define MAX_PAUSE 256u
/* A sequence whose drafts are at least this good pauses because of the cost of steps; trying a draft would give no
 * information about that. */
#define TRIED_BELOW 0.7f

static void begin_pause(struct draft_length *q, uint32_t pause, uint32_t n_rows)
{
    q->wait = (uint16_t)pause;
    q->paused_rows = (uint16_t)(n_rows < UINT16_MAX ? n_rows : UINT16_MAX);
}

static void refuse(struct draft_length *q, uint32_t n_rows)
{
    q->pause = (uint16_t)(q->pause == 0 ? FIRST_PAUSE : q->pause < MAX_PAUSE ? 2 * q->pause : MAX_PAUSE);
    q->tries = false;
    begin_pause(q, q->pause, n_rows);
}

static void count(struct length_odds *o, float memory, uint32_t n_drafts, uint32_t n_right)
{
    uint32_t next = n_right > 0 ? n_right - 1 + (n_right < n_drafts) : 0;
    o->first = o->first * memory + 1;
    o->first_right = o->first_right * memory + (n_right > 0);
    if (n_right == 0)
        return;
    o->next = o->next * memory + (float)next;
    o->next_right = o->next_right * memory + (float)(n_right - 1);
}

static float chance(float n, float right, float prior)
{
    return (right + PRIOR * prior) / (n + PRIOR);
}

static float shared_first(const struct length_odds *o)
{
    return o->first_right / o->first;
}

static float shared_next(const struct length_odds *o)
{
    return o->next_right / o->next;
}

void lengths_verified(struct lengths *l, struct draft_length *q, uint32_t source, uint32_t n_drafts, uint32_t n_right)
{
    if (n_drafts == 0)
        return;
    count(&l->shared[source], SHARED_MEMORY, n_drafts, n_right);
    if (q->tries && n_right > 0)
        q->odds[source] = (struct length_odds){0}; /* odds of the time before the pause are outdated */
    count(&q->odds[source], MEMORY, n_drafts, n_right);
    if (n_right > 0)
        q->pause = 0;
    else if (q->tries)
        refuse(q, q->paused_rows);
    q->tries = false;
}

/* ---- pauses ---------------------------------------------------------------------------------- */

bool length_is_due(struct draft_length *q, uint32_t n_rows)
{
    if (q->wait == 0)
        return true;
    if (4 * (uint64_t)n_rows <= 3 * (uint64_t)q->paused_rows) /* another load: the cost of steps has changed */
        q->wait = 1;
    q->tries = --q->wait == 0 && q->pause > 0;
    return q->wait == 0;
}

void length_had_none(struct draft_length *q, uint32_t n_rows)
{
    if (q->n_empty < FIRST_PAUSE)
        q->n_empty++;
    else if (n_rows >= VAIN_QUESTIONS)
        begin_pause(q, n_rows / VAIN_QUESTIONS, n_rows);
}

bool length_is_idle(const struct draft_length *q)
{
    return q->wait > 0 || q->n_empty == FIRST_PAUSE;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->chance != b->chance ? a->chance > b->chance : a->n != b->n ? a->n < b->n : a->item < b->item;
}

static void sift(struct candidate *heap, uint32_t n, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &heap[at]))
            return;
        struct candidate c = heap[at];
        heap[at] = heap[child];
        heap[child] = c;
    }
}

static uint32_t fill_heap(struct lengths *l, const struct length_item *items, uint32_t n)
{
    uint32_t n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct length_odds *own = &items[i].q->odds[items[i].source], *shared = &l->shared[items[i].source];
        float first = chance(own->first, own->first_right, shared_first(shared));
        float next = chance(own->next, own->next_right, shared_next(shared));
        if (items[i].q->tries && first < TRIED_BELOW)
            first = 1, next = 0;
        if (items[i].n_offered > 0 && !items[i].waits)
            l->heap[n_heap++] = (struct candidate){.chance = first, .next = next, .item = i};
    }
    for (uint32_t i = n_heap / 2; i-- > 0;)
        sift(l->heap, n_heap, i);
    return n_heap;
}

/* Takes the most likely draft and replaces it by the next one of its sequence. Returns false if no draft is worth
 * considering. */
static bool take(struct lengths *l, const struct length_item *items, uint32_t *n_heap, struct candidate *out)
{
    if (*n_heap == 0 || l->heap[0].chance < LEAST_CHANCE)
        return false;
    struct candidate *top = &l->heap[0];
    *out = *top;
    top->chance *= top->next;
    if (++top->n == items[top->item].n_offered)
        *top = l->heap[--*n_heap];
    sift(l->heap, *n_heap, 0);
    return true;
}

/* Number of drafts, in this order, that make the best step. Also writes the expected outcome. */
static uint32_t best_end(struct lengths *l, const struct length_item *items, uint32_t n, uint32_t room, double draft_us,
                         struct length_reason *r)
{
    struct curve curve;
    struct candidate c;
    uint32_t best = 0, depth = 0, n_heap = fill_heap(l, items, n);
    curve_of(l, &curve);
    double right = 0, us = curve_us(&curve, r->n_rows), most = r->n_rows / us * LEAST_GAIN;
    r->us_without = r->us_with = curve.n > 0 ? us : 0;
    for (uint32_t t = 1; t <= room && take(l, items, &n_heap, &c); t++) {
        right += c.chance;
        depth = c.n + 1 > depth ? c.n + 1 : depth;
        us = curve_us(&curve, (double)r->n_rows + t) + depth * draft_us;
        if ((r->n_rows + right) / us <= most)
            continue;
        most = (r->n_rows + right) / us;
        best = t;
        r->us_with = curve.n > 0 ? us : 0;
        r->n_right = right;
    }
    return best;
}

void lengths_choose(struct lengths *l, struct length_item *items, uint32_t n, uint32_t n_rows, uint32_t room,
                    double draft_us, struct length_reason *reason)
{
    struct candidate c;
    *reason = (struct length_reason){.n_rows = n_rows > n ? n_rows : n, .n_items = n};
    uint32_t n_tries = 1 + n_rows / TRIES_SHARE;
    for (uint32_t i = 0; i < n; i++) {
        bool tries = items[i].q->tries && items[i].n_offered > 0;
        items[i].n = 0;
        items[i].waits = tries && n_tries == 0;
        n_tries -= tries && n_tries > 0;
        reason->n_offered += items[i].n_offered;
    }
    reason->n_chosen = best_end(l, items, n, room, draft_us, reason);
    uint32_t n_heap = fill_heap(l, items, n);
    for (uint32_t t = 0; t < reason->n_chosen && take(l, items, &n_heap, &c); t++)
        items[c.item].n++;
    for (uint32_t i = 0; i < n; i++) {
        items[i].q->n_empty = 0;
        if (items[i].n == 0 && items[i].n_offered > 0 && !items[i].waits)
            refuse(items[i].q, n_rows);
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

uint64_t lengths_bytes(uint32_t max_items)
{
    return sizeof(struct lengths) + max_items * sizeof(struct candidate);
}

int lengths_create(const struct length_config *config, uint32_t max_items, struct lengths **out,
                   struct quire_error *err)
{
    struct lengths *l = calloc(1, lengths_bytes(max_items));
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "speculation: out of memory");
    l->max_items = max_items;
    l->heap = (struct candidate *)(l + 1);
    for (uint32_t s = 0; s < LENGTH_N_SOURCES; s++)
        l->shared[s] = (struct length_odds){
            .first = 1, .first_right = config->first[s], .next = 1, .next_right = config->next[s]};
    for (uint32_t i = 0; i < config->n_points; i++)
        lengths_timed(l, config->points[i].n_tokens, config->points[i].us);
    *out = l;
    return QUIRE_OK;
}

void lengths_destroy(struct lengths *l)
{
    free(l);
}
