/* Earliest deadline first, for the first token. The deadline is the request's own, or its class's target after its
 * arrival. A request without either is ordered as if its target were ageing_us, and is never rejected. A request can
 * therefore be overtaken only by requests that arrive before its deadline.
 *
 * Earliest deadline first is optimal while all deadlines can be met. Beyond that, it serves the request that is nearly
 * late, then the next one, and all are late. The remedy is to reject requests that cannot be in time: at submission, if
 * the waiting requests before it take too long, and again when its turn comes and the time is too short for its own
 * prompt. The first check saves the client the wait, the second saves the machine the work. The first check therefore
 * counts only requests that are certain to be before it, at the recent speed, and decides doubtful cases in favour of
 * the request.
 *
 * A sequence that has generated tokens has met its deadline or missed it. It is ordered before all prompts, by age:
 * preempting it would waste work and stall an answer that is being read. If blocks are short, the prompt with the
 * latest deadline is preempted.
 *
 * The exception is a deadline that would be missed for want of a seat or of blocks. Once half of the time to it has
 * passed in vain, or no more is left than it may take, and it can still be met, a running sequence has to wait: a prompt
 * that has the time, or else the youngest that generates. That one then waits as if it came at this moment without a
 * deadline, so it is overtaken only by requests with deadlines within the next ageing_us.
 */
#include "scheduler/policies/policies.h"

#include <stddef.h>
#include <stdlib.h>

#define DEFAULT_AGEING_US 10000000u
/* An earlier retry would be useless. */
#define LEAST_RETRY_US 1000000u
#define MOST_RETRY_US 3600000000u
/* A measured speed, over steps of all kinds, may be wrong by this factor without a rejection. The prediction of a cost
 * model is used as it is. */
#define DOUBT 2
/* Prompt tokens after which earlier cache hits count half. */
#define MEMORY 1000000

struct edf {
    uint64_t ageing_us;
    uint64_t class_ttft_us[SCHED_MAX_CLASSES];
    double n_computed, n_cached; /* recent prompt tokens */
};

static int create(const struct sched_policy_options *options, void **state, struct quire_error *err)
{
    struct edf *e = calloc(1, sizeof *e);
    if (!e)
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    e->ageing_us = options->ageing_us ? options->ageing_us : DEFAULT_AGEING_US;
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        e->class_ttft_us[i] = options->class_ttft_us[i];
    *state = e;
    return QUIRE_OK;
}

static uint64_t deadline_of(const struct edf *e, const struct sched_candidate *c)
{
    uint64_t ttft_us = e->class_ttft_us[c->class_index];
    if (c->deadline_us > 0 || ttft_us == 0)
        return c->deadline_us;
    return sched_later(c->arrival_us, 1, ttft_us);
}

static uint64_t rank(void *state, const struct sched_candidate *c)
{
    const struct edf *e = state;
    if (c->n_known > c->n_prompt)
        return c->lost_seat_us > 0 ? sched_later(c->lost_seat_us, 1, e->ageing_us) : 0;
    uint64_t deadline = deadline_of(e, c);
    if (deadline == 0)
        deadline = sched_later(c->arrival_us, 1, e->ageing_us);
    return deadline > c->arrival_us ? deadline : c->arrival_us;
}

/* ---- refusals ---- */

/* Share of prompt tokens that is computed, not found in the cache. */
static double computed_share(const struct edf *e)
{
    double n = e->n_computed + e->n_cached;
    return n > 0 ? e->n_computed / n : 1;
}

/* Minimum time from now to the first token. */
static double needed_us(const struct edf *e, const struct sched_candidate *c, const struct sched_load *load)
{
    double pace = load->us_per_token / DOUBT, own = pace * c->n_prompt;
    if (load->prefill_us > 0) {
        own = load->prefill_us;
        if (pace > own / c->n_prompt)
            pace = own / c->n_prompt;
    }
    return computed_share(e) * (pace * (double)load->n_tokens_before + own);
}

/* A sequence that generates has no deadline any more. A prompt's deadline must leave time for both. */
static bool can_wait(const struct edf *e, const struct sched_candidate *c, double others_us, double us_per_token,
                     uint64_t now_us)
{
    uint64_t deadline = deadline_of(e, c);
    if (c->n_known > c->n_prompt || deadline == 0)
        return true;
    return (double)now_us + DOUBT * (others_us + us_per_token * c->n_prompt) < (double)deadline;
}

static bool takes_seat(const void *state, const struct sched_candidate *waiting, const struct sched_candidate *running,
                       const struct sched_load *load)
{
    const struct edf *e = state;
    uint64_t deadline = deadline_of(e, waiting);
    if (deadline <= load->now_us || deadline <= waiting->arrival_us || waiting->n_known > waiting->n_prompt)
        return false;
    double left_us = (double)(deadline - load->now_us), needed = needed_us(e, waiting, load);
    if (needed > left_us || (left_us > DOUBT * needed && left_us > (double)(deadline - waiting->arrival_us) / 2))
        return false;
    return can_wait(e, running, needed, needed / waiting->n_prompt, load->now_us);
}

static uint64_t refuse(void *state, const struct sched_candidate *c, const struct sched_load *load)
{
    const struct edf *e = state;
    uint64_t deadline = deadline_of(e, c);
    if (deadline == 0 || c->background)
        return 0;
    double late_us = (double)load->now_us + needed_us(e, c, load) - (double)deadline;
    if (late_us <= 0)
        return 0;
    /* Retry when the requests before it are fewer by the excess. */
    if (late_us < LEAST_RETRY_US)
        return LEAST_RETRY_US;
    return late_us < MOST_RETRY_US ? (uint64_t)late_us : MOST_RETRY_US;
}

static void served(void *state, const struct sched_candidate *c, const struct sched_service *service)
{
    struct edf *e = state;
    (void)c;
    if (service->n_prompt + service->n_cached == 0)
        return;
    e->n_computed += service->n_prompt;
    e->n_cached += service->n_cached;
    if (e->n_computed + e->n_cached > MEMORY) {
        e->n_computed /= 2;
        e->n_cached /= 2;
    }
}

const struct sched_policy sched_policy_edf = {
    .name = "edf",
    .about = "earliest deadline of the first token first; rejects requests that would miss it",
    .ranks_running = true,
    .create = create,
    .destroy = free,
    .rank = rank,
    .served = served,
    .refuse = refuse,
    .takes_seat = takes_seat,
};
