/* One call to one target for a request: sends it the body, follows its reply, and says how it ended. Loop's thread.
 *
 * It holds back what a stream sends before its first token: after a failure another target can then answer.
 * After the first token, each piece of the reply passes at once. Every event that passes is whole and valid: an upstream
 * server's garbage ends the attempt.
 */
#ifndef QUIRE_GATEWAY_ATTEMPT_H
#define QUIRE_GATEWAY_ATTEMPT_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "server/gateway/gateway_internal.h"
#include "server/gateway/relay/body.h"
#include "server/gateway/relay/dialect.h"
#include "server/gateway/relay/events.h"
#include "server/gateway/relay/repeat.h"
#include "server/gateway/relay/shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_exchange;

enum attempt_result {
    ATTEMPT_ANSWERED,   /* the reply is whole */
    ATTEMPT_REJECTED,   /* a 4xx that is the client's: it passes */
    ATTEMPT_TOO_LONG,   /* the same, because the context is too long: a fallback may take it */
    ATTEMPT_OVERLOADED, /* 429 */
    ATTEMPT_UNREACHED,  /* nothing was sent */
    ATTEMPT_LACKS,      /* a 404 or 405 without an error object: another target may have the route */
    ATTEMPT_FULL,       /* the gateway has no room for the reply */
    ATTEMPT_FAILED,     /* no reply, or one that is wrong */
};

struct attempt_end {
    enum attempt_result result;
    int status;            /* of the reply; 0: none */
    struct api_error e;    /* unless answered */
    struct buffer *reply;  /* a whole reply, or the body of a 4xx; may be taken; empty if it was streamed */
    uint32_t retry_ms;     /* of an overload; 0: not said */
};

struct attempt_events {
    /* Bytes of a stream, for the client. The first call has the first token or the end. */
    void (*on_text)(void *context, const char *bytes, size_t n);
    /* The last call. */
    void (*on_end)(void *context, struct attempt_end *end);
};

/* How the reply is read. */
struct attempt_stream {
    struct events_splitter splitter;
    struct repeat *repeat; /* owned */
    struct dialect dialect;
};

struct attempt {
    struct gateway *g;
    const struct attempt_events *events;
    void *context;
    const struct gateway_model *model;
    const struct gateway_target *settings;
    const struct relay_body *request;
    const struct http_exchange *x;
    const char *path;

    struct remote_call *call; /* NULL: not running, or the call is that of a batch */
    struct shared_member *seat; /* owned; NULL: in no batch */
    struct buffer body;       /* for the target: the call borrows it */
    struct buffer reply;      /* a whole reply, or what a stream holds back */
    struct attempt_stream *stream; /* owned */
    struct events_usage usage;
    int status;
    bool is_events;    /* the reply is a stream */
    bool adds_usage;   /* its usage event is not for the client */
    bool has_token, is_done, has_ended;
    bool is_full;     /* there was no room for its reply */
    bool is_complete; /* the last event has come: what follows is dropped */
    char why[256];     /* "": the stream was right so far */
    char layer[16];    /* of the cache that answered, or "" */
    uint64_t n_events;  /* with a token */
    uint64_t n_counted; /* bytes in the gateway's count of whole replies */
    TAILQ_ENTRY(attempt) link; /* of those that have ended */
};

/* What a request tells every attempt. */
struct attempt_request {
    const struct http_exchange *x; /* its headers and its id */
    const char *path;
    const struct relay_body *body;
};

/* Begins. a: zeroed. i: the target's index in the model. Returns false with an error in e if it cannot begin; no event follows.
 * Below 500, and with 501, the request is at fault and not the target. */
bool attempt_begin(struct attempt *a, struct gateway *g, const struct attempt_request *request,
                   const struct pool_model *model, uint32_t i, const struct attempt_events *events, void *context,
                   struct api_error *e);
/* No event comes any more; the memory is freed with attempt_free(). */
void attempt_cancel(struct attempt *a);
/* Not from within its events, if the call was cancelled in them: the call may still read the body. */
void attempt_free(struct attempt *a);
/* Whether a cache of the target answered: the answer costs nothing. */
bool attempt_is_cached(const struct attempt *a);
/* Appends data, whose facts these are, with the cost of the request so far in its usage. facts->n_usage is not 0. */
void attempt_put_cost(const struct attempt *a, const char *data, size_t n, const struct events_facts *facts,
                      struct buffer *out);
/* Whether the target is an engine of this gateway, and not an upstream server. */
static inline bool attempt_is_engine(const struct attempt *a)
{
    return a->settings->kind != GATEWAY_TARGET_URL;
}
/* Adds the headers of the target's reply that are for the client. Of an upstream server these are only the warnings of
 * a Quire: 9 of them, as many as it sends, in printable ASCII. */
void attempt_headers(const struct attempt *a, struct http_exchange *x);

#endif
