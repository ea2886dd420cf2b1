/* The state of one target and the choice among a model's targets: outstanding work, weights, health, circuit breaker,
 * retries. Pure: the caller provides the time, in milliseconds of a monotonic clock. Loop's thread.
 *
 * Breaker: CLOSED serves. After TARGET_TRIP_AFTER failures in a row, or when half of the last TARGET_RESULTS results or
 * more are failures, it is OPEN for open_ms, which doubles up to TARGET_MAX_OPEN_MS. Then, or as soon as a probe finds
 * the target well, it is HALF_OPEN: one trial request closes or opens it. A probe alone does not close it, because a
 * server that lists its models may still fail to answer. Failures are what says nothing good about the target: no
 * connection, a timeout, 5xx, an invalid or cut reply. 429 is overload: the target rests for its Retry-After, and the
 * breaker does not count it.
 */
#ifndef QUIRE_GATEWAY_TARGET_H
#define QUIRE_GATEWAY_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#define TARGET_TRIP_AFTER 3
#define TARGET_RESULTS 20
#define TARGET_OPEN_MS 1000 /* the first length of OPEN */
#define TARGET_MAX_OPEN_MS 60000
#define TARGET_REST_MS 1000 /* after an overload that says no time */
#define TARGET_PROBE_MS 2000 /* between two probes */

enum target_breaker { TARGET_CLOSED, TARGET_OPEN, TARGET_HALF_OPEN };
enum target_result { TARGET_ANSWERED, TARGET_FAILED, TARGET_OVERLOADED, TARGET_CANCELLED };

struct target_state {
    uint32_t weight, max_concurrent; /* from the file; 0: no limit */
    uint32_t n_running;
    uint64_t outstanding;    /* tokens: estimated prompt + expected answer of running requests */
    enum target_breaker breaker;
    bool has_trial;          /* of HALF_OPEN: it runs */
    uint32_t n_in_a_row;     /* failures */
    uint32_t results;        /* the last n_results as bits, the newest lowest; 1: failed */
    uint32_t n_results;
    uint64_t opens_until_ms, rests_until_ms, probed_ms;
    uint32_t open_ms;        /* the current length of OPEN; 0: answered since the last one */
    uint32_t latency_ms;     /* moving average (1/8) of answered requests; 0: none yet */
    uint64_t n_answered, n_failed, n_overloaded, n_cancelled, n_opened;
};

void target_init(struct target_state *t, uint32_t weight, uint32_t max_concurrent);
/* Whether a request may go to it now. */
bool target_may(const struct target_state *t, uint64_t now_ms);
/* The target with the least outstanding tokens for its weight among those that may serve now and are not in the set
 * `tried` (bit i: targets[i]). Ties go round. n is at most 64. Returns -1: none. */
int target_choose(const struct target_state *const *targets, uint32_t n, uint64_t tried, uint64_t now_ms,
                  uint32_t *turn);
/* Milliseconds until one of them may serve again, at least 1; 0: unknown. */
uint32_t target_returns_ms(const struct target_state *const *targets, uint32_t n, uint64_t now_ms);

/* Begins a request. Returns whether it is the trial of HALF_OPEN. */
bool target_begin(struct target_state *t, uint64_t tokens, uint64_t now_ms);
/* tokens, is_trial: of target_begin(). latency_ms: of TARGET_ANSWERED, 0: not
 * counted. retry_ms: of TARGET_OVERLOADED, 0: not said. */
void target_end(struct target_state *t, uint64_t tokens, bool is_trial, enum target_result result, uint32_t latency_ms,
                uint32_t retry_ms, uint64_t now_ms);
/* Whether a probe is due: the target is not CLOSED, and the last probe was TARGET_PROBE_MS ago. */
bool target_wants_probe(const struct target_state *t, uint64_t now_ms);
/* A probe begins. */
void target_probing(struct target_state *t, uint64_t now_ms);
/* The result of a probe. */
void target_probed(struct target_state *t, bool is_well, uint64_t now_ms);

/* Retries of the whole gateway: each first attempt adds a fifth of a retry, up to 100; each retry takes one. */
struct retry_budget {
    uint32_t fifths;
};
void retry_budget_init(struct retry_budget *b); /* begins with 10 retries */
void retry_budget_first(struct retry_budget *b);
bool retry_budget_take(struct retry_budget *b);

#endif
