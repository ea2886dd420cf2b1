#include "server/front/batch/prompt_batch.h"

#include "server/front/front_internal.h"

#include <stdio.h>

struct early_error {
    bool failed;
    struct api_error error; /* if failed */
};

static struct batch_prompt *prompt_at(const struct prompt_batch *b, size_t i)
{
    return (struct batch_prompt *)((char *)b->prompts + i * b->calls->prompt_bytes);
}

static size_t index_of_waiting(const struct prompt_batch *b, size_t from)
{
    while (from < b->n_prompts && !prompt_at(b, from)->waits)
        from++;
    return from;
}

static void say_next(struct prompt_batch *b)
{
    b->turn.n_tokens = b->turn.n_waiting > 0 ? prompt_at(b, b->next)->n_tokens : 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The prompt's last event has come, or none will. */
static void leave(struct batch_prompt *p)
{
    p->live = false;
    turns_leave(p->batch->served->turns, &p->place);
}

static void cancel(struct batch_prompt *p)
{
    const struct completion_source *source = &p->batch->served->source;
    if (p->live)
        source->cancel(source->self, p->source_id, -1);
    leave(p);
}

void prompt_batch_fail(struct prompt_batch *b, const struct api_error *e)
{
    if (!b->early) {
        b->calls->fail(b->owner, e);
        return;
    }
    for (size_t i = 0; i < b->n_prompts; i++)
        cancel(prompt_at(b, i));
    b->early->failed = true;
    b->early->error = *e;
}

void prompt_batch_fail_with(struct prompt_batch *b, int status, const char *why)
{
    struct api_error e;
    snprintf(e.why.text, sizeof e.why.text, "%s", why);
    front_failed_with(b->served, status, &e);
    prompt_batch_fail(b, &e);
}

/* Completes the owner if every prompt is over, now or when submit() has returned. */
static void settle(struct prompt_batch *b)
{
    if (!b->early && b->n_over == b->n_prompts)
        b->calls->complete(b->owner);
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* A prompt of an accepted request waits for its turn, possibly again. */
static void wait_for_turn(struct prompt_batch *b, size_t i)
{
    prompt_at(b, i)->waits = true;
    if (i < b->next)
        b->next = i;
    b->turn.n_waiting++;
    say_next(b);
}

/* Returns whether the prompt waits again: the engine's queue is full of other requests, but it has already accepted
 * prompts of this one. */
static bool try_later(struct batch_prompt *p)
{
    struct prompt_batch *b = p->batch;
    if (b->n_accepted == 0 || upstream_state(b->served->upstream) == UPSTREAM_DRAINING ||
        (b->early && b->early->failed) || (b->calls->may_wait && !b->calls->may_wait(b->owner)))
        return false;
    turns_refused(b->served->turns, &p->place);
    wait_for_turn(b, (size_t)((char *)p - (char *)b->prompts) / b->calls->prompt_bytes);
    turns_wait(b->served->turns, &b->turn);
    return true;
}

/* The owner may be freed afterwards. */
static void submit_one(struct prompt_batch *b, struct batch_prompt *p)
{
    struct early_error early = {.failed = false};
    struct api_error e;
    b->early = &early;
    int status = b->calls->submit(p, &e.why);
    const bool waits = status == QUIRE_EXHAUSTED && try_later(p);
    b->early = NULL;
    if (waits)
        return;
    if (status != QUIRE_OK)
        front_failed_with(b->served, status, &e);
    if (status != QUIRE_OK || early.failed)
        b->calls->fail(b->owner, status != QUIRE_OK ? &e : &early.error);
    else
        settle(b);
}

static void on_turn(struct turn *turn)
{
    struct prompt_batch *b = (struct prompt_batch *)((char *)turn - offsetof(struct prompt_batch, turn));
    struct batch_prompt *p = prompt_at(b, b->next);
    p->waits = false;
    b->next = index_of_waiting(b, b->next);
    turn->n_waiting--;
    say_next(b);
    turns_wait(b->served->turns, turn);
    submit_one(b, p);
}

/* ---- events of the source ---- */

static void on_accepted(void *context, uint64_t engine_id)
{
    struct batch_prompt *p = context;
    struct prompt_batch *b = p->batch;
    if (p->accepted)
        return;
    p->accepted = true;
    if (b->calls->on_accepted)
        b->calls->on_accepted(p, engine_id);
    if (b->n_accepted++ > 0)
        return;
    for (size_t i = 1; i < b->n_prompts; i++)
        wait_for_turn(b, i);
    if (b->n_prompts > 1)
        turns_wait(b->served->turns, &b->turn);
    if (b->calls->on_taken)
        b->calls->on_taken(b->owner);
}

static void on_refused(void *context, const struct wire_refuse *refuse)
{
    struct batch_prompt *p = context;
    struct api_error e;
    p->live = false;
    if (refuse->status == QUIRE_EXHAUSTED && try_later(p))
        return;
    front_refused(p->batch->served, refuse, &e);
    prompt_batch_fail(p->batch, &e);
}

static void on_lost(void *context, const char *why)
{
    struct batch_prompt *p = context;
    p->live = false;
    prompt_batch_fail_with(p->batch, QUIRE_IO, why);
}

static void on_origin(void *context, const struct completion_origin *origin)
{
    struct batch_prompt *p = context;
    if (p->batch->calls->on_origin)
        p->batch->calls->on_origin(p, origin);
}

static bool has_space(void *context)
{
    const struct batch_prompt *p = context;
    return !p->batch->calls->has_space || p->batch->calls->has_space(p);
}

static void on_token(void *context, const struct wire_token *token)
{
    struct batch_prompt *p = context;
    turns_began(p->batch->served->turns, &p->place); /* the next prompt's turn may come */
    if (p->batch->calls->on_token)
        p->batch->calls->on_token(p, token);
}

static void on_prompt_logprob(void *context, const struct wire_token *token)
{
    struct batch_prompt *p = context;
    if (p->batch->calls->on_prompt_logprob)
        p->batch->calls->on_prompt_logprob(p, token);
}

static void on_vector(void *context, const struct wire_vector *vector)
{
    struct batch_prompt *p = context;
    p->batch->calls->on_vector(p, vector);
}

static void on_done(void *context, const struct wire_done *done)
{
    struct batch_prompt *p = context;
    struct prompt_batch *b = p->batch;
    if (done->last)
        leave(p);
    if (!b->calls->on_done(p, done) || !done->last)
        return;
    b->n_over++;
    settle(b);
}

#define EVENTS \
    .on_origin = on_origin, .has_space = has_space, .on_accepted = on_accepted, .on_refused = on_refused, \
    .on_token = on_token, .on_prompt_logprob = on_prompt_logprob, .on_done = on_done, .on_lost = on_lost

/* A vector for an owner without on_vector is a fault of the source, which the source's own side must see. */
static const struct completion_events *events_of(const struct prompt_batch *b)
{
    static const struct completion_events without = {EVENTS};
    static const struct completion_events with = {EVENTS, .on_vector = on_vector};
    return b->calls->on_vector ? &with : &without;
}

/* ---- the batch ------------------------------------------------------------------------------ */

void prompt_batch_begin(struct prompt_batch *b, struct served_model *m, const struct prompt_batch_calls *calls,
                        void *owner, const struct tenant *tenant, struct batch_prompt *prompts, size_t n_prompts,
                        uint32_t n_choices)
{
    *b = (struct prompt_batch){
        .served = m, .calls = calls, .owner = owner, .prompts = prompts, .n_prompts = n_prompts, .next = n_prompts};
    b->turn = (struct turn){.tenant = tenant ? tenant->index : 0,
                            .is_small = n_prompts == 1 || n_prompts * n_choices <= TURNS_SMALL,
                            .n_choices = n_choices,
                            .next = on_turn};
    for (size_t i = 0; i < n_prompts; i++) {
        struct batch_prompt *p = prompt_at(b, i);
        *p = (struct batch_prompt){.batch = b, .n_tokens = p->n_tokens};
    }
}

void prompt_batch_expect(struct prompt_batch *b)
{
    turns_expect(b->served->turns, &b->turn, (uint32_t)b->n_prompts - 1);
}

void prompt_batch_start(struct prompt_batch *b)
{
    submit_one(b, prompt_at(b, 0));
}

int prompt_batch_send(struct batch_prompt *p, const struct request_spec *spec, const struct completion_terms *terms,
                      struct quire_error *err)
{
    struct prompt_batch *b = p->batch;
    const struct completion_source *source = &b->served->source;
    p->live = true;
    turns_take(b->served->turns, &b->turn, &p->place, spec->n_prompt);
    int status = source->submit(source->self, spec, terms, events_of(b), p, &p->source_id, err);
    if (status != QUIRE_OK)
        leave(p);
    return status;
}

void prompt_batch_cancel_choice(struct batch_prompt *p, uint32_t choice)
{
    const struct completion_source *source = &p->batch->served->source;
    source->cancel(source->self, p->source_id, choice);
}

void prompt_batch_end(struct prompt_batch *b)
{
    if (!b->served)
        return;
    b->turn.n_waiting = 0;
    turns_wait(b->served->turns, &b->turn);
    for (size_t i = 0; i < b->n_prompts; i++)
        cancel(prompt_at(b, i));
}

bool prompt_batch_ended_well(struct batch_prompt *p, const struct wire_done *done)
{
    struct api_error e;
    if (done->finish < WIRE_FINISH_CANCELLED)
        return true;
    if (done->finish == WIRE_FINISH_CANCELLED) {
        prompt_batch_fail_with(p->batch, QUIRE_IO, "the engine cancelled the request");
    } else {
        front_failed(done, &e);
        prompt_batch_fail(p->batch, &e);
    }
    return false;
}
