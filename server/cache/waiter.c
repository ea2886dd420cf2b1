#include "server/cache/waiter.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_US 2000  /* time of one slice of delivery, before other work of the loop */
#define EVENTS_A_LOOK 64 /* events between two checks of the clock and the owner's buffer */
#define SPACE_US 5000 /* until a client that reads slowly is looked at again */

/* ---- lists ---------------------------------------------------------------------------------- */

void waiter_list_init(struct waiter_list *list)
{
    TAILQ_INIT(&list->head);
    list->next = NULL;
    list->n = 0;
}

static void leave_list(struct waiter *a)
{
    struct waiter_list *list = a->list;
    if (!list)
        return;
    if (list->next == a)
        list->next = TAILQ_NEXT(a, link);
    TAILQ_REMOVE(&list->head, a, link);
    list->n--;
    a->list = NULL;
}

void waiter_move(struct waiter *a, struct waiter_list *to)
{
    leave_list(a);
    TAILQ_INSERT_TAIL(&to->head, a, link);
    to->n++;
    a->list = to;
}

struct waiter *waiter_walk(struct waiter_list *list, bool first)
{
    struct waiter *a = first ? TAILQ_FIRST(&list->head) : list->next;
    list->next = a ? TAILQ_NEXT(a, link) : NULL;
    return a;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

struct waiter *waiter_new(struct event_base *base, struct id_map *ids, uint64_t id,
                          const struct completion_terms *terms, const struct completion_events *events, void *context)
{
    struct waiter *a = calloc(1, sizeof *a);
    if (!a || id_map_add(ids, id, (uintptr_t)a)) {
        free(a);
        return NULL;
    }
    a->base = base;
    a->ids = ids;
    a->id = id;
    a->events = events;
    a->max_age_s = terms->max_age_s;
    a->cuts_alike = memcmp(&terms->cut, &(struct key256){0}, sizeof terms->cut) != 0;
    a->streams = terms->streams;
    a->context = context;
    return a;
}

void waiter_request_free(struct waiter_request *r)
{
    if (!r)
        return;
    if (r->spec)
        request_spec_free(r->spec);
    free(r->spec);
    free((char *)(uintptr_t)r->terms.question);
    free(r);
}

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "the response cache: out of memory");
}

/* The terms are the caller's, and so is their question. */
static bool copy_terms(struct completion_terms *out, const struct completion_terms *terms)
{
    *out = *terms;
    out->question = NULL;
    if (!terms->question || terms->n_question == 0)
        return true;
    char *question = malloc(terms->n_question);
    if (question)
        memcpy(question, terms->question, terms->n_question);
    out->question = question;
    return question != NULL;
}

int waiter_keep_request(struct waiter *a, const struct request_spec *spec, const struct completion_terms *terms,
                        struct quire_error *err)
{
    if (a->request)
        return QUIRE_OK;
    struct request_spec copy;
    int status = request_spec_copy(&copy, spec, err);
    if (status != QUIRE_OK)
        return status;
    struct waiter_request *r = calloc(1, sizeof *r);
    if (r)
        r->spec = malloc(sizeof *r->spec);
    if (!r || !r->spec || !copy_terms(&r->terms, terms)) {
        if (r) {
            free(r->spec);
            free(r);
        }
        request_spec_free(&copy);
        return no_memory(err);
    }
    *r->spec = copy;
    a->request = r;
    return QUIRE_OK;
}

static void free_idle(struct waiter *a)
{
    if (a->is_busy)
        return;
    if (a->cached)
        cached_leave(a->cached);
    if (a->more)
        event_free(a->more);
    waiter_request_free(a->request);
    free(a);
}

void waiter_end(struct waiter *a)
{
    if (a->is_gone)
        return;
    a->is_gone = true;
    leave_list(a);
    id_map_remove(a->ids, a->id);
    free_idle(a);
}

void waiter_looked(struct waiter_list *list, const char *layer, uint64_t begun_ns, uint64_t ended_ns, bool found)
{
    struct waiter *a;
    TAILQ_FOREACH(a, &list->head, link)
    completion_looked(&a->lookups, (struct completion_lookup){layer, begun_ns, ended_ns, found});
}

/* ---- telling -------------------------------------------------------------------------------- */

static void tell_origin(struct waiter *a)
{
    a->origin.again = a->told_origin;
    a->origin.lookups = &a->lookups;
    a->told_origin = true;
    if (a->events->on_origin)
        a->events->on_origin(a->context, &a->origin);
    a->lookups.n = 0;
}

static void begin(struct waiter *a)
{
    if (a->told_origin)
        return;
    tell_origin(a);
}

static void accept_now(struct waiter *a, uint64_t engine_id)
{
    begin(a);
    if (a->is_gone || a->told_accepted)
        return;
    a->told_accepted = true;
    a->events->on_accepted(a->context, engine_id);
}

/* Drafts, predictions and the account are not part of an answer. */
static struct wire_done done_of(const struct answer_ending *d)
{
    return (struct wire_done){.choice = d->choice,
                              .finish = d->finish,
                              .last = d->last,
                              .has_stop_token = d->has_stop_token,
                              .stop_token = d->stop_token,
                              .n_prompt = d->n_prompt,
                              .n_cached = d->n_cached,
                              .n_generated = d->n_generated,
                              .n_created = d->n_created};
}

static void tell_event(struct waiter *a, const struct answer_event *e)
{
    struct wire_done done;
    a->told_events = true;
    switch (e->kind) {
    case ANSWER_TOKEN: a->events->on_token(a->context, &e->token); return;
    case ANSWER_PROMPT_LOGPROB: a->events->on_prompt_logprob(a->context, &e->token); return;
    case ANSWER_DONE:
        /* An id whose last event has come is ignored. */
        if (e->done.last)
            waiter_end(a);
        done = done_of(&e->done);
        a->events->on_done(a->context, &done);
        return;
    }
}

static void on_more(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    waiter_tell(context, false);
}

/* Without a timer there is no later. */
static bool later(struct waiter *a, uint64_t in_us)
{
    const struct timeval tv = {.tv_sec = (time_t)(in_us / 1000000), .tv_usec = (suseconds_t)(in_us % 1000000)};
    if (!a->more)
        a->more = evtimer_new(a->base, on_more, a);
    return a->more && event_add(a->more, &tv) == 0;
}

/* Whether the event is due now; otherwise it is delivered later. */
static bool is_due(struct waiter *a, const struct answer_event *e, uint64_t *looked_us, uint32_t *n_told)
{
    if (a->clock_us > 0) {
        const uint64_t now = quire_now_us(), due = a->clock_us + e->pause_us;
        if (due > now && later(a, due - now))
            return false;
        a->clock_us = due;
    }
    if (++*n_told % EVENTS_A_LOOK != 1)
        return true;
    if (a->events->has_space && !a->events->has_space(a->context) && later(a, SPACE_US))
        return false;
    const uint64_t now = quire_now_us();
    if (*looked_us == 0)
        *looked_us = now;
    return now - *looked_us < SLICE_US || !later(a, 0);
}

static struct answer_events events_of(const struct waiter *a)
{
    if (a->cached)
        return a->cached->answer.events;
    return a->written ? answer_so_far(a->written) : (struct answer_events){0};
}

static void deliver(struct waiter *a, bool all)
{
    struct answer_event e;
    uint64_t looked_us = 0;
    uint32_t n_told = 0;
    while (!a->is_gone) {
        size_t next = a->cursor;
        if (!answer_next(events_of(a), &next, &e)) {
            a->behind = false;
            break;
        }
        if (a->behind && !all && !is_due(a, &e, &looked_us, &n_told))
            break;
        a->cursor = next;
        tell_event(a, &e);
    }
}

static void release(struct waiter *a, bool was_busy)
{
    a->is_busy = was_busy;
    if (a->is_gone)
        free_idle(a);
}

void waiter_tell(struct waiter *a, bool all)
{
    if (a->is_busy)
        return; /* the caller that is delivering to it continues */
    a->is_busy = true;
    if (a->cached)
        accept_now(a, 0);
    deliver(a, all);
    release(a, false);
}

void waiter_tell_accepted(struct waiter *a, uint64_t engine_id)
{
    const bool was_busy = a->is_busy;
    a->is_busy = true;
    accept_now(a, engine_id);
    if (!was_busy)
        deliver(a, false);
    release(a, was_busy);
}

/* ---- telling what is not written down ------------------------------------------------------- */

static void hold(struct waiter *a)
{
    a->is_busy = true;
    begin(a);
}

void waiter_tell_again(struct waiter_list *list)
{
    for (struct waiter *a = waiter_walk(list, true); a; a = waiter_walk(list, false)) {
        const bool was_busy = a->is_busy;
        a->is_busy = true;
        if (a->told_origin && a->lookups.n > 0)
            tell_origin(a);
        release(a, was_busy);
    }
}

void waiter_accepted(struct waiter *a, uint64_t engine_id)
{
    const bool was_busy = a->is_busy;
    a->is_busy = true;
    accept_now(a, engine_id);
    release(a, was_busy);
}

void waiter_token(struct waiter *a, const struct wire_token *token, bool of_prompt)
{
    const bool was_busy = a->is_busy;
    hold(a);
    a->told_events = true;
    if (!a->is_gone && of_prompt)
        a->events->on_prompt_logprob(a->context, token);
    else if (!a->is_gone)
        a->events->on_token(a->context, token);
    release(a, was_busy);
}

void waiter_done(struct waiter *a, const struct wire_done *done)
{
    const bool was_busy = a->is_busy;
    hold(a);
    a->told_events = true;
    if (!a->is_gone) {
        if (done->last)
            waiter_end(a);
        a->events->on_done(a->context, done);
    }
    release(a, was_busy);
}

void waiter_refused(struct waiter *a, const struct wire_refuse *refuse)
{
    const bool was_busy = a->is_busy;
    const struct wire_done error = {.finish = WIRE_FINISH_ERROR,
                                    .last = true,
                                    .message = refuse->message,
                                    .n_message = refuse->n_message,
                                    .parameter = refuse->parameter,
                                    .n_parameter = refuse->n_parameter,
                                    .status = refuse->status,
                                    .retry_after_ms = refuse->retry_after_ms};
    hold(a);
    if (!a->is_gone) {
        waiter_end(a);
        /* A waiter that was reported as accepted can no longer be rejected. */
        if (a->told_accepted)
            a->events->on_done(a->context, &error);
        else
            a->events->on_refused(a->context, refuse);
    }
    release(a, was_busy);
}

void waiter_lost(struct waiter *a, const char *why)
{
    const bool was_busy = a->is_busy;
    hold(a);
    if (!a->is_gone) {
        waiter_end(a);
        a->events->on_lost(a->context, why);
    }
    release(a, was_busy);
}
