/* Submits the prompts of one request through the source: one by one in their turns, with refusals, losses and
 * cancellations.
 *
 * The engine accepts or refuses the first prompt for all of them. The others follow in their turns (turns.h). A source
 * may answer, and fail, within its submit(); the consequences wait until submit() has returned. Loop's thread.
 *
 * The owner of the request embeds a batch, and embeds a batch_prompt as the first member of each of its prompts, which
 * lie in one array. The batch receives the source's events and passes the owner those that it has a function for.
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
struct early_error; /* private to prompt_batch.c */

struct batch_prompt {
    struct prompt_batch *batch;
    uint64_t source_id; /* the source's name for it, while it is live */
    struct turn_place place;
    uint32_t n_tokens; /* of the prompt; set by the owner before prompt_batch_begin() */
    bool live; /* submitted, and more events will come */
    bool accepted, waits; /* waits: for its turn */
};

/* The owner's functions. Only submit, on_done, complete and fail must be set; without its function an event is
 * ignored. */
struct prompt_batch_calls {
    size_t prompt_bytes; /* size of the owner's struct whose first member is the batch_prompt */
    /* Builds the spec and calls prompt_batch_send(). */
    int (*submit)(struct batch_prompt *p, struct quire_error *err);
    /* Returns false if a prompt must not wait when the engine's queue is full for a request that has begun. NULL: it
     * may. */
    bool (*may_wait)(const void *owner);
    /* on_accepted: once for each prompt that the engine accepts. on_taken: once, after the first. */
    void (*on_accepted)(struct batch_prompt *p, uint64_t engine_id);
    void (*on_taken)(void *owner);
    /* As in struct completion_events. */
    void (*on_origin)(struct batch_prompt *p, const struct completion_origin *origin);
    bool (*has_space)(const struct batch_prompt *p);
    void (*on_token)(struct batch_prompt *p, const struct wire_token *token);
    void (*on_prompt_logprob)(struct batch_prompt *p, const struct wire_token *token);
    void (*on_vector)(struct batch_prompt *p, const struct wire_vector *vector);
    /* A choice has ended; prompt_batch_ended_well() says how. Returns false if it failed the batch. After the last
     * choice of a prompt, the prompt is over. */
    bool (*on_done)(struct batch_prompt *p, const struct wire_done *done);
    /* Every prompt is over; an error ended the request. The owner may be freed after these. */
    void (*complete)(void *owner);
    void (*fail)(void *owner, const struct api_error *e);
};

struct prompt_batch {
    struct served_model *served;
    const struct prompt_batch_calls *calls;
    void *owner;
    struct batch_prompt *prompts; /* the first; calls->prompt_bytes apart */
    struct turn turn; /* for the prompts that wait */
    size_t n_prompts, n_accepted, n_over;
    size_t next; /* no prompt before it waits */
    struct early_error
        *early; /* while a prompt is being submitted: holds an error until that is done; otherwise NULL */
};

/* prompts: the owner's array, at its first batch_prompt. n_choices: of each prompt. Submits nothing. */
void prompt_batch_begin(struct prompt_batch *b, struct served_model *m, const struct prompt_batch_calls *calls,
                        void *owner, const struct tenant *tenant, struct batch_prompt *prompts, size_t n_prompts,
                        uint32_t n_choices);
/* Returns whether the request is so small that its prompts are not held back. */
static inline bool prompt_batch_is_small(const struct prompt_batch *b)
{
    return b->turn.is_small;
}
/* Counts the prompts after the first as waiting. */
void prompt_batch_expect(struct prompt_batch *b);
/* Submits the first prompt. The owner may be freed afterwards. */
void prompt_batch_start(struct prompt_batch *b);
/* Call it from calls.submit(). The spec borrows its prompt.
 *
 * In one process, a prompt's ids are copied three times on their way to a step: from the tokenizer's pieces into an
 * item (text_work.c), into a SUBMIT frame (wire/stream.c), and out of the frame (request/codec.c). The engine moves the
 * last copy to the scheduler's sequence; only further choices copy it again. A frame of more than 256 KiB is also
 * copied when it is read. Through a socket, the system's two copies replace the one into the frame. A source with
 * cached answers keeps another copy while a lookup or an earlier request may have the answer. */
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
/* Returns true if the choice ended normally. Otherwise the owner's fail() was called or is pending. */
bool prompt_batch_ended_well(struct batch_prompt *p, const struct wire_done *done);
/* Ends one choice of a prompt in the source; its on_done still comes. */
void prompt_batch_cancel_choice(struct batch_prompt *p, uint32_t choice);
/* Cancels all prompts, including the waiting ones. Also allowed for a batch that is all zero. */
void prompt_batch_end(struct prompt_batch *b);

#endif
