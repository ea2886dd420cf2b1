/* Submits the prompts of one request through the source: one by one in their turns, with refusals, losses and
 * cancellations.
 *
 * The engine accepts or refuses the first prompt for all of them. The others follow in their turns (turns.h). A source
 * may answer, and fail, within its submit(); the consequences wait until submit() has returned. Loop's thread.
 *
 * The owner of the request embeds a batch, and embeds a batch_prompt as the first member of each of its prompts. Its
 * table of completion_events uses the functions below for the common events, and its context is the batch_prompt.
 */
#ifndef QUIRE_FRONT_PROMPT_BATCH_H
#define QUIRE_FRONT_PROMPT_BATCH_H

#include "request/spec.h"
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
    bool live; /* submitted, and more events will come */
    bool accepted, waits; /* waits: for its turn */
};

/* The owner's functions; all set, except may_wait and on_taken. */
struct prompt_batch_calls {
    const struct completion_events *events;
    struct batch_prompt *(*prompt)(void *owner, size_t i);
    uint32_t (*n_tokens)(const struct batch_prompt *p);
    /* Builds the spec and calls prompt_batch_send(). */
    int (*submit)(struct batch_prompt *p, struct quire_error *err);
    /* Returns false if a prompt must not wait when the engine's queue is full for a request that has begun. NULL: it
     * may. */
    bool (*may_wait)(const void *owner);
    /* on_accepted: once for each prompt that the engine accepts. on_taken: once, after the first. */
    void (*on_accepted)(struct batch_prompt *p, uint64_t engine_id);
    void (*on_taken)(void *owner);
    /* Returns whether every prompt has ended. */
    bool (*is_over)(const void *owner);
    /* The owner may be freed after these. */
    void (*complete)(void *owner);
    void (*fail)(void *owner, const struct api_error *e);
};

struct prompt_batch {
    struct served_model *served;
    const struct prompt_batch_calls *calls;
    void *owner;
    struct turn turn; /* for the prompts that wait */
    size_t n_prompts, n_accepted;
    size_t next; /* no prompt before it waits */
    struct api_error *early; /* while a prompt is being submitted: holds an error until that is done; otherwise NULL */
    bool failed_early; /* early holds an error */
};

/* n_choices: of each prompt. is_small: the request is not held back. Submits nothing. */
void prompt_batch_begin(struct prompt_batch *b, struct served_model *m, const struct prompt_batch_calls *calls,
                        void *owner, const struct tenant *tenant, size_t n_prompts, uint32_t n_choices, bool is_small);
/* Counts the prompts after the first as waiting. */
void prompt_batch_expect(struct prompt_batch *b);
/* Submits the first prompt. The owner may be freed afterwards. */
void prompt_batch_start(struct prompt_batch *b);
/* Call it from calls.submit(). */
int prompt_batch_send(struct batch_prompt *p, const struct request_spec *spec, const struct completion_terms *terms,
                      struct quire_error *err);
/* Returns whether the source's submit() is running: complete() and fail() wait. */
static inline bool prompt_batch_is_submitting(const struct prompt_batch *b)
{
    return b->early != NULL;
}
/* Fails the owner, now or when submit() has returned. */
void prompt_batch_fail(struct prompt_batch *b, const struct api_error *e);
/* Fails the owner with a status. QUIRE_IO of an unavailable engine includes the time to retry. why: of the message. */
void prompt_batch_fail_with(struct prompt_batch *b, int status, const char *why);
/* Completes the owner if every prompt is over, now or when submit() has returned. */
void prompt_batch_settle(struct prompt_batch *b);

/* Call when the prompt's last event has come. */
void prompt_batch_over(struct batch_prompt *p);
/* Call when its first token has come: the next prompt's turn may come. */
void prompt_batch_began(struct batch_prompt *p);
void prompt_batch_cancel(struct batch_prompt *p);
/* Cancels all prompts, including the waiting ones. Also allowed for a batch that is all zero. */
void prompt_batch_end(struct prompt_batch *b);

/* For completion_events; context is a batch_prompt. */
void prompt_batch_on_accepted(void *context, uint64_t engine_id);
void prompt_batch_on_refused(void *context, const struct wire_refuse *refuse);
void prompt_batch_on_lost(void *context, const char *why);
/* Returns true if the prompt ended normally. Otherwise the owner's fail() was called or is pending. */
bool prompt_batch_ended_well(struct batch_prompt *p, const struct wire_done *done);
/* An on_token for requests that ignore tokens. */
void prompt_batch_no_token(void *context, const struct wire_token *token);

#endif
