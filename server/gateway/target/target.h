/* The state of one target and the choice among a model's targets: outstanding work, weights, health, circuit breaker,
 * retries. Pure: the caller provides the time, in milliseconds of a monotonic clock. Loop's thread.
 *
 * Breaker: CLOSED serves. After `trip_after` failures in a row, or when half of the last 20 results or more are failures,
 * it is OPEN for open_ms, which doubles up to 60 s. Then it is HALF_OPEN: one trial request, or a probe, closes or
 * opens it. Failures are what says nothing good about the target: no connection, a timeout, 5xx, an invalid or cut
 * reply. 429 is overload: the target rests for its Retry-After, and the breaker does not count it.
 */
#ifndef QUIRE_GATEWAY_TARGET_H
#define QUIRE_GATEWAY_TARGET_H

#include <stdbool.h>
#include <stdint.h>

enum target_breaker { TARGET_CLOSED, TARGET_OPEN, TARGET_HALF_OPEN };
enum target_result { TARGET_ANSWERED, TARGET_FAILED, TARGET_OVERLOADED, TARGET_CANCELLED };

struct target_state {
    uint32_t weight, max_concurrent; /* from the file */
    uint32_t n_running;
    uint64_t outstanding;    /* tokens: estimated prompt + expected answer of running requests */
    enum target_breaker breaker;
    bool has_trial;          /* of HALF_OPEN: it runs */
    uint32_t n_in_a_row;     /* failures */
    uint32_t results;        /* the last n_results (at most 20) as bits, the newest lowest; 1: failed */
    uint32_t n_results;
    uint64_t opens_until_ms, rests_until_ms;
    uint32_t open_ms;        /* the current length of OPEN */
    uint32_t latency_ms;     /* moving average (1/8) of answered requests; 0: none yet */
    uint64_t n_answered, n_failed, n_overloaded, n_opened;
};

void target_init(struct target_state *t, uint32_t weight, uint32_t max_concurrent);
/* The target with the least outstanding tokens for its weight among those that may serve now and are not in the set
 * `tried` (bit i: targets[i]). Ties go round. Returns -1: none. */
int target_choose(const struct target_state *const *targets, uint32_t n, uint64_t tried, uint64_t now_ms,
                  uint32_t *turn);
/* Milliseconds until one of them may serve again; 0: unknown. */
uint32_t target_returns_ms(const struct target_state *const *targets, uint32_t n, uint64_t now_ms);

void target_begin(struct target_state *t, uint64_t tokens, uint64_t now_ms);
/* tokens: as passed to target_begin(). retry_ms: of TARGET_OVERLOADED, 0: not said. */
void target_end(struct target_state *t, uint64_t tokens, enum target_result result, uint32_t latency_ms,
                uint32_t retry_ms, uint64_t now_ms);
/* The result of a health probe. */
void target_probed(struct target_state *t, bool is_well, uint64_t now_ms);
/* Whether a probe is due: an open target's time is over. */
bool target_wants_probe(const struct target_state *t, uint64_t now_ms);

/* Retries of the whole gateway: each first attempt adds a fifth of a retry, up to 100; each retry takes one. */
struct retry_budget {
    uint32_t fifths;
};
void retry_budget_init(struct retry_budget *b); /* begins with 10 retries */
void retry_budget_first(struct retry_budget *b);
bool retry_budget_take(struct retry_budget *b);

#endif
