#include "engine/run/events.h"

#include <stdlib.h>

/* Events of the current step, in order, until they leave through the sink. */
struct events {
    size_t n, capacity;
    struct request *finished; /* whose last event is among them */
    struct request *over;     /* flushed and unknown to the scheduler: freed by events_reap() */
    struct engine_event items[];
};

/* Tokens, one DONE for each running sequence, and some cancels: a step that has more flushes
 * twice. */
int events_create(struct engine *e, struct quire_error *err)
{
    const size_t capacity = (size_t)e->plan->max_logit_rows + e->plan->max_num_seqs + 256;
    struct events *events = calloc(1, sizeof *events + capacity * sizeof events->items[0]);
    e->run->events = events;
    if (!events)
        return quire_fail(err, QUIRE_NO_MEMORY, "events: out of memory");
    events->capacity = capacity;
    return QUIRE_OK;
}

void events_destroy(struct events *events)
{
    free(events);
}

static inline struct engine_event *push(struct engine *e, enum engine_event_kind kind, const struct request *r,
                                        uint32_t choice)
{
    struct events *events = e->run->events;
    if (events->n == events->capacity)
        events_flush(e);
    struct engine_event *event = &events->items[events->n++];
    *event = (struct engine_event){.kind = kind, .request = r->engine_id, .choice = choice};
    return event;
}

static void set_logprob(struct engine_event *event, const struct k_sample_result *result)
{
    event->has_logprob = true;
    event->logprob = (struct engine_logprob){.logprob = result->logprob,
                                             .rank = result->rank,
                                             .n_top = result->n_top,
                                             .top_ids = result->top_ids,
                                             .top_logprobs = result->top_logprobs};
}

void event_token(struct engine *e, struct request *r, uint32_t choice, uint32_t position,
                 const struct k_sample_result *result)
{
    struct engine_event *event = push(e, ENGINE_EVENT_TOKEN, r, choice);
    event->token = result->token;
    event->position = position;
    if (r->spec->n_logprobs >= 0)
        set_logprob(event, result);
}

void event_prompt_logprob(struct engine *e, struct request *r, uint32_t position, const struct k_sample_result *result)
{
    struct engine_event *event = push(e, ENGINE_EVENT_PROMPT_LOGPROB, r, 0);
    event->token = result->token;
    event->position = position;
    set_logprob(event, result);
}

void event_vector(struct engine *e, struct request *r, const float *vector, uint32_t n)
{
    struct engine_event *event = push(e, ENGINE_EVENT_VECTOR, r, 0);
    event->vector = vector;
    event->n_vector = n;
}

/* The prompt's full blocks that choice 0 computed and published: the whole prompt except its hits. */
static uint32_t n_cache_created(const struct engine *e, const struct request *r, uint32_t choice, uint32_t n_cached)
{
    uint32_t n_full = r->spec->n_prompt / e->plan->block_tokens * e->plan->block_tokens;
    bool is_computed = r->prompt_counted || r->choices[choice].n_generated > 0;
    return e->info->prefix_caching && choice == 0 && is_computed && n_full > n_cached ? n_full - n_cached : 0;
}

static struct engine_account account_of(const struct engine *e, const struct request_choice *c)
{
    const struct sched_account a = sched_account(e->run->sched, c->seq);
    return (struct engine_account){
        .arrival_us = a.arrival_us,
        .admitted_us = a.admitted_us,
        .queue_nothing_us = a.queue_us[SCHED_SHORT_OF_NOTHING],
        .queue_budget_us = a.queue_us[SCHED_SHORT_OF_BUDGET],
        .queue_seqs_us = a.queue_us[SCHED_SHORT_OF_SEQS],
        .queue_blocks_us = a.queue_us[SCHED_SHORT_OF_BLOCKS],
        .queue_batch_us = a.queue_us[SCHED_SHORT_OF_BATCH],
        .queue_prefix_us = a.queue_us[SCHED_SHORT_OF_PREFIX],
        .preempted_us = a.preempted_us,
        .blocker = a.blocker ? c->blocker : 0,
        .blocker_tenant = a.blocker_tenant,
        .n_overtaken = a.n_overtaken,
        .n_chunks = a.n_chunks,
        .n_preemptions = a.n_preemptions,
        .n_cached = a.n_cached,
        .n_loaded = a.n_loaded,
        .n_recomputed = a.n_recomputed,
    };
}

void event_done(struct engine *e, struct request *r, uint32_t choice, enum engine_finish finish, int64_t stop_token)
{
    struct request_choice *c = &r->choices[choice];
    struct engine_event *event = push(e, ENGINE_EVENT_DONE, r, choice);
    c->done = true;
    c->finish = finish;
    r->n_open--;
    event->finish = finish;
    event->has_stop_token = stop_token >= 0;
    event->token = stop_token >= 0 ? (uint32_t)stop_token : 0;
    event->n_prompt = r->spec->n_prompt;
    event->n_cached = r->n_placed ? sched_cached_tokens(e->run->sched, c->seq) : 0;
    event->n_generated = c->n_generated;
    event->n_drafted = c->n_drafted;
    event->n_accepted = c->n_accepted;
    event->n_predicted = c->n_predicted;
    event->n_predicted_right = c->n_predicted_right;
    event->n_cache_created = n_cache_created(e, r, choice, event->n_cached);
    c->account = r->n_placed ? account_of(e, c) : (struct engine_account){.arrival_us = r->arrival_us};
    event->account = &c->account;
    if (finish == ENGINE_FINISH_REFUSED)
        event->retry_after_ms = r->retry_after_ms;
    event->last = r->n_open == 0;
    if (r->error.text[0])
        event->message = r->error.text;
    event->parameter = r->error.parameter;
    if (finish == ENGINE_FINISH_ERROR)
        event->status = r->status ? r->status : QUIRE_INTERNAL;
    if (finish != ENGINE_FINISH_REFUSED)
        e->run->report.n_finished++;
    if (event->last) {
        r->next = e->run->events->finished;
        e->run->events->finished = r;
    }
}

void request_left_scheduler(struct request *r)
{
    r->n_placed--;
    if (r->flushed && r->n_placed == 0)
        request_free(r);
}

void events_flush(struct engine *e)
{
    struct events *events = e->run->events;
    struct request *finished = events->finished;
    events->finished = NULL;
    for (struct request *r = finished; r; r = r->next)
        mailbox_forget(e->mailbox, r);
    if (events->n) {
        ENGINE_WATCH(e, events, events->items, events->n);
        e->sink.call(e->sink.context, events->items, events->n);
    }
    events->n = 0;
    for (struct request *r = finished, *next; r; r = next) {
        next = r->next;
        r->flushed = true;
        if (r->n_placed == 0) {
            r->next = events->over;
            events->over = r;
        }
    }
}

void event_order(struct engine *e, uint64_t order)
{
    const struct engine_event event = {.kind = ENGINE_EVENT_ORDER, .order = order};
    e->sink.call(e->sink.context, &event, 1);
}

void events_reap(struct engine *e)
{
    for (struct request *r = e->run->events->over, *next; r; r = next) {
        next = r->next;
        request_free(r);
    }
    e->run->events->over = NULL;
}
