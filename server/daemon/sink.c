/* Encodes the engine's events into the queues of their connections. Runs on the engine's thread. */
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"
#include "server/wire/encode.h"

#include <string.h>
#include <unistd.h>

static void token_of(const struct engine_event *event, struct wire_token *out)
{
    out->choice = event->choice;
    out->token = event->token;
    out->has_logprob = event->has_logprob;
    if (!event->has_logprob)
        return;
    out->logprob = event->logprob.logprob;
    out->rank = event->logprob.rank;
    out->n_top = event->logprob.n_top < WIRE_MAX_TOP ? event->logprob.n_top : WIRE_MAX_TOP;
    if (out->n_top) {
        memcpy(out->top_ids, event->logprob.top_ids, out->n_top * sizeof out->top_ids[0]);
        memcpy(out->top_logprobs, event->logprob.top_logprobs, out->n_top * sizeof out->top_logprobs[0]);
    }
}

/* Encodes one frame from the leading events of the same kind and request. Returns the number of events. */
static size_t put_tokens(struct buffer *b, uint64_t wire_id, const struct engine_event *events, size_t n_events)
{
    uint16_t type = events[0].kind == ENGINE_EVENT_TOKEN ? WIRE_TOKENS : WIRE_PROMPT_LOGPROBS;
    size_t mark, n = 0;
    if (wire_tokens_begin(b, type, wire_id, &mark))
        return 1;
    do {
        struct wire_token token;
        token_of(&events[n], &token);
        if (wire_tokens_add(b, &token))
            break;
        n++;
    } while (n < n_events && events[n].kind == events[0].kind && events[n].request == events[0].request &&
             b->n - mark + WIRE_MAX_TOKEN_RECORD <= WIRE_HEADER_BYTES + WIRE_MAX_EVENT_BODY);
    wire_tokens_end(b, mark);
    return n ? n : 1;
}

static uint32_t finish_of(enum engine_finish finish)
{
    switch (finish) {
    case ENGINE_FINISH_STOP: return WIRE_FINISH_STOP;
    case ENGINE_FINISH_LENGTH: return WIRE_FINISH_LENGTH;
    case ENGINE_FINISH_CANCELLED: return WIRE_FINISH_CANCELLED;
    case ENGINE_FINISH_ERROR:
    case ENGINE_FINISH_REFUSED: break;
    }
    return WIRE_FINISH_ERROR;
}

static struct wire_account account_of(const struct engine_account *a)
{
    return (struct wire_account){
        .queue_nothing_us = a->queue_nothing_us,
        .queue_budget_us = a->queue_budget_us,
        .queue_seqs_us = a->queue_seqs_us,
        .queue_blocks_us = a->queue_blocks_us,
        .queue_batch_us = a->queue_batch_us,
        .queue_prefix_us = a->queue_prefix_us,
        .preempted_us = a->preempted_us,
        .blocker = a->blocker,
        .blocker_tenant = a->blocker_tenant,
        .n_overtaken = a->n_overtaken,
        .n_chunks = a->n_chunks,
        .n_preemptions = a->n_preemptions,
        .n_loaded = a->n_loaded,
        .n_recomputed = a->n_recomputed,
    };
}

static void put_done(struct buffer *b, uint64_t wire_id, const struct engine_event *event)
{
    static const char refused[] = "the scheduling policy gave the request up: it cannot be served in "
                                  "the time it has";
    struct wire_done done = {
        .choice = event->choice,
        .finish = finish_of(event->finish),
        .last = event->last,
        .has_stop_token = event->has_stop_token,
        .stop_token = event->token,
        .n_prompt = event->n_prompt,
        .n_cached = event->n_cached,
        .n_generated = event->n_generated,
        .message = event->message,
        .n_message = event->message ? strlen(event->message) : 0,
        .n_created = event->n_cache_created,
        .n_drafted = event->n_drafted,
        .n_accepted = event->n_accepted,
        .n_predicted = event->n_predicted,
        .n_predicted_right = event->n_predicted_right,
    };
    if (event->account)
        done.account = account_of(event->account);
    if (event->finish == ENGINE_FINISH_ERROR) {
        done.status = (uint32_t)event->status;
        done.parameter = event->parameter;
        done.n_parameter = event->parameter ? strlen(event->parameter) : 0;
    }
    if (event->finish == ENGINE_FINISH_REFUSED) {
        done.status = QUIRE_EXHAUSTED;
        done.retry_after_ms = event->retry_after_ms;
        if (!event->message) {
            done.message = refused;
            done.n_message = sizeof refused - 1;
        }
    }
    wire_put_done(b, wire_id, &done);
}

static void put_vector(struct buffer *b, uint64_t wire_id, const struct engine_event *event)
{
    const struct wire_vector vector = {.numbers = event->vector, .n_values = event->n_vector};
    wire_put_vector(b, wire_id, &vector);
}

/* Locked. Encodes one or more events for a request's client. Returns the number of events. */
static size_t deliver(struct daemon *d, const struct engine_event *events, size_t n_events)
{
    const struct engine_event *event = &events[0];
    struct live_request *request = request_by_engine_id(&d->requests, event->request);
    if (!request)
        return 1;
    struct connection *c = request->connection;
    size_t n = 1;
    if (c && !c->overflowed) {
        /* The first events may come before engine_submit() returns on the loop. */
        if (!request->accepted)
            wire_put_accept(&c->pending, request->wire_id, request->engine_id);
        request->accepted = true;
        if (event->kind == ENGINE_EVENT_DONE)
            put_done(&c->pending, request->wire_id, event);
        else if (event->kind == ENGINE_EVENT_VECTOR)
            put_vector(&c->pending, request->wire_id, event);
        else
            n = put_tokens(&c->pending, request->wire_id, events, n_events);
        queue_changed(c);
    }
    if (event->kind == ENGINE_EVENT_DONE && event->last)
        request_remove(&d->requests, c ? &c->requests : NULL, request);
    return n;
}

void daemon_sink(void *context, const struct engine_event *events, size_t n_events)
{
    struct daemon *d = context;
    pthread_mutex_lock(&d->mutex);
    for (size_t i = 0; i < n_events;) {
        if (events[i].kind == ENGINE_EVENT_ORDER)
            control_carried_out(d, events[i++].order);
        else
            i += deliver(d, events + i, n_events - i);
    }
    /* Also wake the loop when the last request of a closed connection ends: the daemon may be idle now. */
    bool wake = !d->wake_sent && (d->first_dirty || d->requests.n_live == 0);
    d->wake_sent |= wake;
    pthread_mutex_unlock(&d->mutex);
    if (wake) {
        uint64_t one = 1;
        ssize_t written = write(d->wake_fd, &one, sizeof one);
        (void)written; /* a full eventfd wakes the loop as well */
    }
}
