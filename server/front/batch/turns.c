#include "server/front/batch/turns.h"

#include "server/front/tenant/tenants.h"

#include <stdlib.h>

/* The share of the engine's sequence slots that held-back requests may use. */
#define SHARE_NUMERATOR 7u
#define SHARE_DENOMINATOR 8u
/* One in so many entries of its queue, which other front ends may fill too. */
#define QUEUE_SHARE 4u
/* Prompt tokens that may wait in the engine, in steps: the current step and the next one. */
#define STEPS_AHEAD 2u
/* Used if the engine does not report its limits. */
#define UNKNOWN_SEQS 64u
#define UNKNOWN_QUEUED 1024u
#define UNKNOWN_STEP_TOKENS 2048u
#define PAUSE_US 100000

struct line { /* one tenant's queue */
    TAILQ_HEAD(, turn) turns;
    TAILQ_ENTRY(line) link;
    uint64_t n_waiting; /* choices */
};

struct turns {
    struct event *go, *resume;
    /* Limits and counts in the engine: choices; choices of prompts without a first token; these prompts' tokens. */
    uint32_t max_choices, max_queued, max_tokens;
    uint64_t n_choices, n_queued, n_tokens; /* current counts */
    uint64_t limit; /* for n_choices: max_choices, or less after the engine's queue was full */
    uint64_t n_waiting; /* choices of all lines */
    TAILQ_HEAD(, turn) small;
    TAILQ_HEAD(, line) lines; /* lines with waiting turns; the next one comes first */
    struct line tenants[TENANTS_MAX];
};

static bool paused(const struct turns *t)
{
    return evtimer_pending(t->resume, NULL);
}

static bool has_space(const struct turns *t, const struct turn *turn)
{
    /* A prompt that is larger than the limit goes alone. */
    bool seqs = t->n_choices == 0 || t->n_choices + turn->n_choices <= t->limit;
    bool queue = t->n_queued == 0 || t->n_queued + turn->n_choices <= t->max_queued;
    bool tokens = t->n_tokens == 0 || t->n_tokens + turn->n_tokens <= t->max_tokens;
    return seqs && queue && tokens;
}

/* Returns the next turn and moves it to the end of its queue. NULL: no turn can go now. */
static struct turn *take_next(struct turns *t)
{
    struct turn *turn = TAILQ_FIRST(&t->small);
    if (turn) {
        TAILQ_REMOVE(&t->small, turn, link);
        TAILQ_INSERT_TAIL(&t->small, turn, link);
        return turn;
    }
    struct line *line = TAILQ_FIRST(&t->lines);
    turn = line ? TAILQ_FIRST(&line->turns) : NULL;
    if (!turn || !has_space(t, turn))
        return NULL;
    TAILQ_REMOVE(&line->turns, turn, link);
    TAILQ_INSERT_TAIL(&line->turns, turn, link);
    TAILQ_REMOVE(&t->lines, line, link);
    TAILQ_INSERT_TAIL(&t->lines, line, link);
    return turn;
}

static void on_go(evutil_socket_t fd, short what, void *context)
{
    struct turns *t = context;
    struct turn *turn;
    (void)fd;
    (void)what;
    while (!paused(t) && (turn = take_next(t)))
        turn->next(turn);
}

/* Runs later, once for several calls, because the caller is in the middle of something. */
static void go(struct turns *t)
{
    if (t->n_waiting > 0)
        event_active(t->go, EV_TIMEOUT, 0);
}

int turns_open(struct event_base *base, struct turns **out, struct quire_error *err)
{
    struct turns *t = *out = calloc(1, sizeof *t);
    if (!t)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    TAILQ_INIT(&t->small);
    TAILQ_INIT(&t->lines);
    for (uint32_t i = 0; i < TENANTS_MAX; i++)
        TAILQ_INIT(&t->tenants[i].turns);
    turns_set_engine(t, 0, 0, 0);
    t->go = event_new(base, -1, 0, on_go, t);
    t->resume = evtimer_new(base, on_go, t);
    return t->go && t->resume ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

void turns_close(struct turns *t)
{
    if (!t)
        return;
    if (t->go)
        event_free(t->go);
    if (t->resume)
        event_free(t->resume);
    free(t);
}

void turns_set_engine(struct turns *t, uint32_t max_seqs, uint32_t max_queued, uint32_t step_tokens)
{
    uint64_t seqs = max_seqs > 0 ? max_seqs : UNKNOWN_SEQS;
    t->limit = t->max_choices = (uint32_t)(seqs * SHARE_NUMERATOR / SHARE_DENOMINATOR);
    t->max_queued = (max_queued > 0 ? max_queued : UNKNOWN_QUEUED) / QUEUE_SHARE;
    t->max_tokens = STEPS_AHEAD * (step_tokens > 0 ? step_tokens : UNKNOWN_STEP_TOKENS);
}

/* ---- waiting turns ---- */

static void count(struct turns *t, struct turn *turn)
{
    uint32_t n = turn->n_waiting * turn->n_choices;
    t->tenants[turn->tenant].n_waiting += (uint64_t)n - turn->n_counted;
    t->n_waiting += (uint64_t)n - turn->n_counted;
    turn->n_counted = n;
}

void turns_wait(struct turns *t, struct turn *turn)
{
    struct line *line = &t->tenants[turn->tenant];
    bool queue = turn->n_waiting > 0 && !turn->queued, unqueue = turn->n_waiting == 0 && turn->queued;
    count(t, turn);
    if (queue && turn->is_small) {
        TAILQ_INSERT_TAIL(&t->small, turn, link);
    } else if (queue) {
        if (TAILQ_EMPTY(&line->turns))
            TAILQ_INSERT_TAIL(&t->lines, line, link);
        TAILQ_INSERT_TAIL(&line->turns, turn, link);
    } else if (unqueue && turn->is_small) {
        TAILQ_REMOVE(&t->small, turn, link);
    } else if (unqueue) {
        TAILQ_REMOVE(&line->turns, turn, link);
        if (TAILQ_EMPTY(&line->turns))
            TAILQ_REMOVE(&t->lines, line, link);
    }
    turn->queued = turn->n_waiting > 0;
    if (queue)
        go(t);
}

void turns_expect(struct turns *t, struct turn *turn, uint32_t n_prompts)
{
    turn->n_waiting = n_prompts;
    count(t, turn);
    turn->n_waiting = 0;
}

uint64_t turns_n_waiting(const struct turns *t, uint32_t tenant)
{
    return t->tenants[tenant].n_waiting;
}

uint64_t turns_n_all(const struct turns *t)
{
    return t->n_waiting;
}

/* ---- prompts in the engine ---- */

void turns_take(struct turns *t, const struct turn *turn, struct turn_place *place, uint32_t n_tokens)
{
    if (turn->is_small)
        return;
    *place = (struct turn_place){turn->n_choices, n_tokens};
    t->n_choices += place->n_choices;
    t->n_queued += place->n_choices;
    t->n_tokens += place->n_tokens;
}

void turns_began(struct turns *t, struct turn_place *place)
{
    if (place->n_tokens == 0)
        return;
    t->n_tokens -= place->n_tokens;
    t->n_queued -= place->n_choices;
    place->n_tokens = 0;
    go(t);
}

void turns_leave(struct turns *t, struct turn_place *place)
{
    if (place->n_choices == 0)
        return;
    turns_began(t, place);
    t->n_choices -= place->n_choices;
    place->n_choices = 0;
    if (t->limit < t->max_choices)
        t->limit++;
    evtimer_del(t->resume);
    go(t);
}

void turns_refused(struct turns *t, struct turn_place *place)
{
    const struct timeval wait = {.tv_usec = PAUSE_US};
    if (place->n_choices > 0) {
        turns_leave(t, place);
        t->limit = t->n_choices / 2;
    }
    evtimer_add(t->resume, &wait);
}
