/* Attempts that share one call: a model's `batch` in the models file. Loop's thread.
 *
 * Completions and embeddings for the same target that differ in their prompt or input only are collected
 * (batcher/collect.h), sent as one, and answered each with its own part. An error is that of each. An attempt that is
 * cancelled leaves its batch.
 */
#ifndef QUIRE_GATEWAY_SHARED_H
#define QUIRE_GATEWAY_SHARED_H

#include "base/buffer.h"
#include "server/gateway/batcher/collect.h"
#include "server/gateway/batcher/joined.h"
#include "server/gateway/remote/remote.h"

#include <event2/event.h>
#include <stdbool.h>

struct shared;
struct shared_call;

/* A member. Its owner keeps it, and the text of `body`, until on_end or shared_leave(). */
struct shared_member {
    void *owner;
    struct joined_body body;
    /* Sends the body of a batch for its first member; the call's events are those given. Returns false if it cannot
     * begin; why: for the log. */
    bool (*send)(struct shared_member *m, const struct buffer *body, const struct remote_events *events, void *context,
                 struct remote_call **call, struct quire_error *why);
    /* The last call. reply: the member's own, which it may take. wrong: "", or what is wrong with a reply of status
     * 200. */
    void (*on_end)(struct shared_member *m, enum remote_end how, const char *why, int status, struct buffer *reply,
                   const char *wrong);
    enum joined_kind kind;
    struct batch *batch; /* NULL: in no batch */
};

int shared_open(struct event_base *base, struct shared **out, struct quire_error *err);
/* Ends every call without an event. NULL is allowed. */
void shared_close(struct shared *s);
/* Joins a batch with the same key. Events come from the loop. Returns false if memory is short. */
bool shared_join(struct shared *s, struct shared_member *m, const struct key256 *key, struct batch_terms terms);
void shared_leave(struct shared *s, struct shared_member *m);

#endif
