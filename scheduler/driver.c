#include "scheduler/driver.h"

#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>

struct sched_driver {
    struct sched *sched;
    const struct sched_driver_calls *calls;
    void *context;
    struct sched_step steps[PLAN_SLOTS_MAX - 1]; /* by slot */
    uint32_t n_slots, oldest, n_in_flight;
    struct sched_result *results; /* [max_num_seqs] each */
    bool *finished, *discarded;
    uint32_t *tokens;             /* [max_logit_rows] of the results */
};

int sched_driver_create(struct sched *s, const struct sched_driver_calls *calls, void *context,
                        struct sched_driver **out, struct quire_error *err)
{
    struct sched_driver *d = calloc(1, sizeof *d);
    size_t n = s->config->max_num_seqs;
    *out = NULL;
    if (!d)
        return quire_fail(err, QUIRE_NO_MEMORY, "steps: out of memory");
    d->sched = s;
    d->calls = calls;
    d->context = context;
    d->n_slots = s->config->overlap_depth + 1;
    d->results = calloc(n, sizeof *d->results);
    d->finished = calloc(n, sizeof *d->finished);
    d->discarded = calloc(n, sizeof *d->discarded);
    d->tokens = calloc(s->config->max_logit_rows, sizeof *d->tokens);
    if (!d->results || !d->finished || !d->discarded || !d->tokens) {
        sched_driver_destroy(d);
        return quire_fail(err, QUIRE_NO_MEMORY, "steps: out of memory");
    }
    *out = d;
    return QUIRE_OK;
}

void sched_driver_destroy(struct sched_driver *d)
{
    if (!d)
        return;
    free(d->results);
    free(d->finished);
    free(d->discarded);
    free(d->tokens);
    free(d);
}

uint32_t sched_driver_in_flight(const struct sched_driver *d)
{
    return d->n_in_flight;
}

static int launch(struct sched_driver *d, const struct sched_plan *plan, struct quire_error *err)
{
    uint32_t slot = (d->oldest + d->n_in_flight) % d->n_slots;
    d->steps[slot] = (struct sched_step){.plan = plan, .slot = slot};
    int status = d->calls->launch ? d->calls->launch(d->context, &d->steps[slot], err) : QUIRE_OK;
    if (status == QUIRE_OK)
        d->n_in_flight++;
    return status;
}

int sched_driver_plan(struct sched_driver *d, uint64_t now_us, const struct sched_plan **plan, struct quire_error *err)
{
    int status = sched_plan(d->sched, now_us, plan, err);
    if (status == QUIRE_OK && d->calls->planned)
        status = d->calls->planned(d->context, now_us, *plan, err);
    if (status == QUIRE_OK && (*plan)->n_rows > 0)
        status = launch(d, *plan, err);
    return status;
}

int sched_driver_commit(struct sched_driver *d, struct quire_error *err)
{
    const struct sched_step *step = &d->steps[d->oldest];
    if (d->n_in_flight == 0)
        return quire_fail(err, QUIRE_INVALID, "steps: no step is in flight");
    int status = d->calls->wait ? d->calls->wait(d->context, step, err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    uint32_t n = d->calls->take(d->context, step, d->results, d->tokens);
    status = sched_commit(d->sched, d->results, n, d->finished, d->discarded, err);
    if (status != QUIRE_OK)
        return status;
    const struct sched_committed committed = {
        .step = step, .n_results = n, .results = d->results, .finished = d->finished, .discarded = d->discarded};
    if (d->calls->committed)
        d->calls->committed(d->context, &committed);
    d->oldest = (d->oldest + 1) % d->n_slots;
    d->n_in_flight--;
    return QUIRE_OK;
}

void sched_driver_retire(struct sched_driver *d)
{
    uint32_t seq;
    while (sched_next_retired(d->sched, &seq))
        if (d->calls->retired)
            d->calls->retired(d->context, seq);
}

int sched_driver_set_cost(struct sched_driver *d, const struct sched_cost *cost, struct quire_error *err)
{
    int status = QUIRE_OK;
    while (status == QUIRE_OK && d->n_in_flight > 0)
        status = sched_driver_commit(d, err);
    return status == QUIRE_OK ? sched_set_cost(d->sched, cost, err) : status;
}

/* Returns whether at least half of the running sequences can be planned without the results of the steps in flight.
 * Sequences that wait for the host to see their tokens have been planned as far as possible, and skip a step while the
 * others continue. */
static bool most_run_ahead(const struct sched *s)
{
    uint32_t n_ahead = 0;
    for (uint32_t i = 0; i < s->n_listed; i++) {
        const struct sequence *q = &s->seqs[s->running[i]];
        n_ahead += !q->gates || q->n_planned < q->n_known;
    }
    return 2 * n_ahead >= s->n_listed;
}

int sched_driver_turn(struct sched_driver *d, uint64_t now_us, const struct sched_plan **plan, struct quire_error *err)
{
    int status = sched_driver_plan(d, now_us, plan, err);
    bool overlap = status == QUIRE_OK && (*plan)->n_rows > 0 && d->n_slots > 1 && most_run_ahead(d->sched);
    uint32_t leave = overlap ? d->n_slots - 1 : 0;
    while (status == QUIRE_OK && d->n_in_flight > leave)
        status = sched_driver_commit(d, err);
    if (status == QUIRE_OK)
        sched_driver_retire(d);
    return status;
}
