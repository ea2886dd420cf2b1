#include "server/gateway/target/target.h"

#define MAX_TARGETS 64
#define MAX_REST_MS 60000
#define FIFTHS 5
#define FIRST_RETRIES 10
#define MAX_RETRIES 100

void target_init(struct target_state *t, uint32_t weight, uint32_t max_concurrent)
{
    *t = (struct target_state){.weight = weight ? weight : 1, .max_concurrent = max_concurrent};
}

static bool is_full(const struct target_state *t)
{
    return t->max_concurrent > 0 && t->n_running >= t->max_concurrent;
}

bool target_may(const struct target_state *t, uint64_t now_ms)
{
    if (is_full(t) || now_ms < t->rests_until_ms)
        return false;
    switch (t->breaker) {
    case TARGET_CLOSED: return true;
    case TARGET_OPEN: return now_ms >= t->opens_until_ms;
    case TARGET_HALF_OPEN: return !t->has_trial;
    }
    return false;
}

/* Whether a has less work for its weight. A count of tokens times a weight of at most 1,000 fits. */
static bool is_freer(const struct target_state *a, const struct target_state *b)
{
    return a->outstanding * b->weight < b->outstanding * a->weight;
}

int target_choose(const struct target_state *const *targets, uint32_t n, uint64_t tried, uint64_t now_ms,
                  uint32_t *turn)
{
    int best = -1;
    if (n == 0 || n > MAX_TARGETS)
        return -1;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = (*turn + k) % n;
        if (tried >> i & 1 || !target_may(targets[i], now_ms))
            continue;
        if (best < 0 || is_freer(targets[i], targets[best]))
            best = (int)i;
    }
    if (best >= 0)
        *turn = ((uint32_t)best + 1) % n;
    return best;
}

uint32_t target_returns_ms(const struct target_state *const *targets, uint32_t n, uint64_t now_ms)
{
    uint64_t soonest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct target_state *t = targets[i];
        uint64_t until = t->rests_until_ms;
        if (t->breaker == TARGET_OPEN && t->opens_until_ms > until)
            until = t->opens_until_ms;
        if (is_full(t) || until <= now_ms)
            continue; /* it waits for a request to end */
        if (soonest == 0 || until - now_ms < soonest)
            soonest = until - now_ms;
    }
    return soonest > UINT32_MAX ? UINT32_MAX : (uint32_t)soonest;
}

/* ---- the breaker ---------------------------------------------------------------------------- */

static void open_breaker(struct target_state *t, uint64_t now_ms)
{
    const uint32_t twice = t->open_ms > TARGET_MAX_OPEN_MS / 2 ? TARGET_MAX_OPEN_MS : 2 * t->open_ms;
    t->open_ms = t->open_ms == 0 ? TARGET_OPEN_MS : twice;
    t->opens_until_ms = now_ms + t->open_ms;
    t->breaker = TARGET_OPEN;
    t->has_trial = false;
    t->n_opened++;
}

static void close_breaker(struct target_state *t)
{
    t->breaker = TARGET_CLOSED;
    t->has_trial = false;
    t->results = t->n_results = t->n_in_a_row = 0;
}

static uint32_t n_failures(const struct target_state *t)
{
    return (uint32_t)__builtin_popcount(t->results);
}

static void note(struct target_state *t, bool failed)
{
    t->results = (t->results << 1 | failed) & ((1u << TARGET_RESULTS) - 1);
    t->n_results += t->n_results < TARGET_RESULTS;
    t->n_in_a_row = failed ? t->n_in_a_row + 1 : 0;
}

static bool must_open(const struct target_state *t)
{
    return t->n_in_a_row >= TARGET_TRIP_AFTER ||
           (t->n_results == TARGET_RESULTS && n_failures(t) * 2 >= TARGET_RESULTS);
}

static void answered(struct target_state *t, bool is_trial, uint32_t latency_ms)
{
    t->n_answered++;
    if (latency_ms > 0) /* rounded up, so that a small average still moves */
        t->latency_ms = t->latency_ms == 0 ? latency_ms
                                           : (uint32_t)(((uint64_t)t->latency_ms * 7 + latency_ms + 7) / 8);
    note(t, false);
    if (is_trial)
        close_breaker(t);
    if (t->breaker == TARGET_CLOSED)
        t->open_ms = 0;
}

static void overloaded(struct target_state *t, bool is_trial, uint32_t retry_ms, uint64_t now_ms)
{
    const uint32_t rest = retry_ms == 0 ? TARGET_REST_MS : retry_ms > MAX_REST_MS ? MAX_REST_MS : retry_ms;
    t->n_overloaded++;
    if (t->rests_until_ms < now_ms + rest)
        t->rests_until_ms = now_ms + rest;
    if (is_trial) /* it answers */
        close_breaker(t);
}

bool target_begin(struct target_state *t, uint64_t tokens, uint64_t now_ms)
{
    t->n_running++;
    t->outstanding += tokens;
    if (t->breaker == TARGET_OPEN && now_ms >= t->opens_until_ms)
        t->breaker = TARGET_HALF_OPEN;
    if (t->breaker != TARGET_HALF_OPEN || t->has_trial)
        return false;
    t->has_trial = true;
    return true;
}

void target_end(struct target_state *t, uint64_t tokens, bool is_trial, enum target_result result, uint32_t latency_ms,
                uint32_t retry_ms, uint64_t now_ms)
{
    t->n_running--;
    t->outstanding -= tokens;
    switch (result) {
    case TARGET_ANSWERED: answered(t, is_trial, latency_ms); break;
    case TARGET_OVERLOADED: overloaded(t, is_trial, retry_ms, now_ms); break;
    case TARGET_CANCELLED:
        t->n_cancelled++;
        if (is_trial) /* it says nothing: another request is the trial */
            t->has_trial = false;
        break;
    case TARGET_FAILED:
        t->n_failed++;
        note(t, true);
        if (is_trial || (t->breaker == TARGET_CLOSED && must_open(t)))
            open_breaker(t, now_ms);
        break;
    }
}

/* ---- probes --------------------------------------------------------------------------------- */

bool target_wants_probe(const struct target_state *t, uint64_t now_ms)
{
    return t->breaker != TARGET_CLOSED && !t->has_trial && now_ms - t->probed_ms >= TARGET_PROBE_MS;
}

void target_probing(struct target_state *t, uint64_t now_ms)
{
    t->probed_ms = now_ms;
}

void target_probed(struct target_state *t, bool is_well, uint64_t now_ms)
{
    if (t->breaker == TARGET_OPEN && is_well)
        t->breaker = TARGET_HALF_OPEN;
    else if (t->breaker == TARGET_HALF_OPEN && !is_well && !t->has_trial)
        open_breaker(t, now_ms);
}

/* ---- retries -------------------------------------------------------------------------------- */

void retry_budget_init(struct retry_budget *b)
{
    b->fifths = FIRST_RETRIES * FIFTHS;
}

void retry_budget_first(struct retry_budget *b)
{
    b->fifths += b->fifths < MAX_RETRIES * FIFTHS;
}

bool retry_budget_take(struct retry_budget *b)
{
    if (b->fifths < FIFTHS)
        return false;
    b->fifths -= FIFTHS;
    return true;
}
