#include "server/front/batch/prompt_batch.h"

#include "server/front/front_internal.h"

#include <stdio.h>

static size_t index_of_waiting(const struct prompt_batch *b, size_t from)
{
    while (from < b->n_prompts && !b->calls->prompt(b->owner, from)->waits)
        from++;
    return from;
}

static void say_next(struct prompt_batch *b)
{
    b->turn.n_tokens = b->turn.n_waiting > 0 ? b->calls->n_tokens(b->calls->prompt(b->owner, b->next)) : 0;
}

/* ---- failing -------------------------------------------------------------------------------- */

void prompt_batch_fail(struct prompt_batch *b, const struct api_error *e)
{
    if (!b->early) {
        b->calls->fail(b->owner, e);
        return;
    }
    for (size_t i = 0; i < b->n_prompts; i++)
        prompt_batch_cancel(b->calls->prompt(b->owner, i));
    *b->early = *e;
    b->failed_early = true;
}

void prompt_batch_fail_with(struct prompt_batch *b, int status, const char *why)
{
    struct api_error e;
    snprintf(e.why.text, sizeof e.why.text, "%s", why);
    front_failed_with(b->served, status, &e);
    prompt_batch_fail(b, &e);
}

void prompt_batch_settle(struct prompt_batch *b)
{
    if (!b->early && b->calls->is_over(b->owner))
        b->calls->complete(b->owner);
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* A prompt of an accepted request waits for its turn, possibly again. */
static void wait_for_turn(struct prompt_batch *b, size_t i)
{
    b->calls->prompt(b->owner, i)->waits = true;
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
    if (b->n_accepted == 0 || upstream_state(b->served->upstream) == UPSTREAM_DRAINING || b->failed_early ||
        (b->calls->may_wait && !b->calls->may_wait(b->owner)))
        return false;
    turns_refused(b->served->turns, &p->place);
    wait_for_turn(b, p->index);
    turns_wait(b->served->turns, &b->turn);
    return true;
}

/* The owner may be freed afterwards. */
static void submit_one(struct prompt_batch *b, struct batch_prompt *p)
{
    struct api_error e;
    b->early = &e;
    int status = b->calls->submit(p, &e.why);
    b->early = NULL;
    if (status == QUIRE_EXHAUSTED && try_later(p))
        return;
    if (status != QUIRE_OK)
        front_failed_with(b->served, status, &e);
    if (status != QUIRE_OK || b->failed_early)
        b->calls->fail(b->owner, &e);
    else
        prompt_batch_settle(b);
}

static void on_turn(struct turn *turn)
{
    struct prompt_batch *b = (struct prompt_batch *)((char *)turn - offsetof(struct prompt_batch, turn));
    struct batch_prompt *p = b->calls->prompt(b->owner, b->next);
    p->waits = false;
    b->next = index_of_waiting(b, b->next);
    turn->n_waiting--;
    say_next(b);
    turns_wait(b->served->turns, turn);
    submit_one(b, p);
}

/* ---- the batch ------------------------------------------------------------------------------ */

void prompt_batch_begin(struct prompt_batch *b, struct served_model *m, const struct prompt_batch_calls *calls,
                        void *owner, const struct tenant *tenant, size_t n_prompts, uint32_t n_choices, bool is_small)
{
    *b = (struct prompt_batch){.served = m, .calls = calls, .owner = owner, .n_prompts = n_prompts, .next = n_prompts};
    b->turn = (struct turn){
        .tenant = tenant ? tenant->index : 0, .is_small = is_small, .n_choices = n_choices, .next = on_turn};
    for (size_t i = 0; i < n_prompts; i++)
        *calls->prompt(owner, i) = (struct batch_prompt){.batch = b, .index = (uint32_t)i};
}

void prompt_batch_expect(struct prompt_batch *b)
{
    turns_expect(b->served->turns, &b->turn, (uint32_t)b->n_prompts - 1);
}

void prompt_batch_start(struct prompt_batch *b)
{
    submit_one(b, b->calls->prompt(b->owner, 0));
}

int prompt_batch_send(struct batch_prompt *p, const struct request_spec *spec, const struct completion_terms *terms,
                      struct quire_error *err)
{
    struct prompt_batch *b = p->batch;
    const struct completion_source *source = &b->served->source;
    p->live = true;
    turns_take(b->served->turns, &b->turn, &p->place, spec->n_prompt);
    int status = source->submit(source->self, spec, terms, b->calls->events, p, &p->source_id, err);
    if (status != QUIRE_OK)
        prompt_batch_over(p);
    return status;
}

void prompt_batch_over(struct batch_prompt *p)
{
    p->live = false;
    turns_leave(p->batch->served->turns, &p->place);
}

void prompt_batch_began(struct batch_prompt *p)
{
    turns_began(p->batch->served->turns, &p->place);
}

void prompt_batch_cancel(struct batch_prompt *p)
{
    const struct completion_source *source = &p->batch->served->source;
    if (p->live)
        source->cancel(source->self, p->source_id, -1);
    prompt_batch_over(p);
}

void prompt_batch_end(struct prompt_batch *b)
{
    if (!b->served)
        return;
    b->turn.n_waiting = 0;
    turns_wait(b->served->turns, &b->turn);
    for (size_t i = 0; i < b->n_prompts; i++)
        prompt_batch_cancel(b->calls->prompt(b->owner, i));
}

/* ---- events of the source ---- */

void prompt_batch_on_accepted(void *context, uint64_t engine_id)
{
    struct batch_prompt *p = context;
    struct prompt_batch *b = p->batch;
    if (p->accepted)
        return;
    p->accepted = true;
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

void prompt_batch_on_refused(void *context, const struct wire_refuse *refuse)
{
    struct batch_prompt *p = context;
    struct api_error e;
    p->live = false;
    if (refuse->status == QUIRE_EXHAUSTED && try_later(p))
        return;
    front_refused(p->batch->served, refuse, &e);
    prompt_batch_fail(p->batch, &e);
}

void prompt_batch_on_lost(void *context, const char *why)
{
    struct batch_prompt *p = context;
    p->live = false;
    prompt_batch_fail_with(p->batch, QUIRE_IO, why);
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

void prompt_batch_no_token(void *context, const struct wire_token *token)
{
    (void)context;
    (void)token;
}
