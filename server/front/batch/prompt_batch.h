/* The prompts of one request on their way through the source: submitted one by one in their turns, refused, lost, cancelled.
 *
 * The first prompt is taken or refused for all of them; the others go when it is their turn (turns.h). A source may answer,
 * and fail, within its submit(): what that ends waits until submit() has returned. Loop's thread.
 *
 * Who owns the request embeds a batch and, in each of its prompts, first, a batch_prompt; its table of completion_events has
 * the functions below for what is the same for all, and gets the batch_prompt as context.
 */
#ifndef QUIRE_FRONT_PROMPT_BATCH_H
#define QUIRE_FRONT_PROMPT_BATCH_H

#include "server/front/api/api_error.h"
#include "server/front/batch/turns.h"
#include "server/link/completion_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct served_model;
struct tenant;
struct prompt_batch;

struct batch_prompt {
    struct prompt_batch *batch;
    uint64_t source_id; /* the source's name for it, while it is live */
    struct turn_place place;
    uint32_t index; /* in the request */
    bool live; /* submitted, and events are to come */
    bool accepted, waits; /* waits: for its turn */
};

/* What the owner does; all set, but may_wait and on_taken. */
struct prompt_batch_calls {
    const struct completion_events *events;
    struct batch_prompt *(*prompt)(void *owner, size_t i);
    uint32_t (*n_tokens)(const struct batch_prompt *p);
    /* Builds the spec and calls prompt_batch_send(). */
    int (*submit)(struct batch_prompt *p, struct quire_error *err);
    /* The engine has no room for a prompt of a request that it has begun: false, it is not to wait. */
    bool (*may_wait)(const void *owner);
    /* Once for each prompt that was taken, and once, after the first. */
    void (*on_accepted)(struct batch_prompt *p, uint64_t engine_id);
    void (*on_taken)(void *owner);
    /* Nothing more comes of any prompt. */
    bool (*is_over)(const void *owner);
    /* The owner may be no more after these. */
    void (*complete)(void *owner);
    void (*fail)(void *owner, const struct api_error *e);
};

struct prompt_batch {
    struct served_model *served;
    const struct prompt_batch_calls *calls;
    void *owner;
    struct turn turn; /* of the prompts that wait */
    size_t n_prompts, n_accepted;
    size_t next; /* none before it waits */
    struct api_error *early; /* while a prompt is being submitted: where an error waits until that is done; else NULL */
    bool failed_early; /* it has one */
};

/* n_choices: of each prompt. is_small: it is not held back by others. Nothing is submitted. */
void prompt_batch_begin(struct prompt_batch *b, struct served_model *m, const struct prompt_batch_calls *calls,
                        void *owner, const struct tenant *tenant, size_t n_prompts, uint32_t n_choices, bool is_small);
/* Those after the first count as waiting. */
void prompt_batch_expect(struct prompt_batch *b);
/* Submits the first. The owner may be no more afterwards. */
void prompt_batch_start(struct prompt_batch *b);
/* For calls.submit(). */
int prompt_batch_send(struct batch_prompt *p, const struct request_spec *spec, const struct completion_terms *terms,
                      struct quire_error *err);
/* Within a submit() of the source: complete() and fail() wait. */
static inline bool prompt_batch_is_submitting(const struct prompt_batch *b)
{
    return b->early != NULL;
}
/* Fails the owner, now or when submit() has returned. */
void prompt_batch_fail(struct prompt_batch *b, const struct api_error *e);
/* QUIRE_IO of an engine that is away says when to come back. why: of the message. */
void prompt_batch_fail_with(struct prompt_batch *b, int status, const char *why);
/* Completes the owner if all is over, now or when submit() has returned. */
void prompt_batch_settle(struct prompt_batch *b);

/* The prompt's last event has come. */
void prompt_batch_over(struct batch_prompt *p);
/* Its first token has come: the next prompt's turn may be. */
void prompt_batch_began(struct batch_prompt *p);
void prompt_batch_cancel(struct batch_prompt *p);
/* All are cancelled, and none waits. Also of one that is all zero. */
void prompt_batch_end(struct prompt_batch *b);

/* For completion_events; context: a batch_prompt. */
void prompt_batch_on_accepted(void *context, uint64_t engine_id);
void prompt_batch_on_refused(void *context, const struct wire_refuse *refuse);
void prompt_batch_on_lost(void *context, const char *why);
/* True: the prompt has ended as it should. False: its owner was told of an error. */
bool prompt_batch_ended_well(struct batch_prompt *p, const struct wire_done *done);
/* For on_token where tokens do not matter. */
void prompt_batch_no_token(void *context, const struct wire_token *token);

#endif
