/* The facts of a generating request at its end, whatever the origin of its answer: for its line in the log, its spans
 * and its metrics. The code that answered the request fills this in, independently of the three. Loop's thread.
 */
#ifndef QUIRE_FRONT_FINISHED_H
#define QUIRE_FRONT_FINISHED_H

#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "server/front/observe/timing.h"
#include "server/front/observe/trace_context.h"
#include "server/front/tenant/tenants.h"

#include <stdbool.h>
#include <stdint.h>

struct served_model;
struct tenant;
struct request_spec;

/* Times are on the clock of struct timing; 0: not reached. Pointers are borrowed. */
struct finished_request {
    /* The client. */
    struct served_model *served;
    const struct tenant *tenant;
    const char *name, *route; /* name: the client's name for it */
    const char *client;       /* its address, for the log */
    struct trace_context *context; /* begun here, if the caller began no trace and spans are sent */
    /* The request. spec NULL: unknown, because the body was not read or was invalid. */
    const struct request_spec *spec;
    uint32_t max_tokens; /* of its first prompt */
    /* The result. */
    const char *finish, *error; /* error: its code, or NULL */
    int status; /* status of the reply, or of the error that ended its stream; 499: the client disconnected */
    const char *cache_layer; /* the layer that answered, or "" for a miss; NULL: no lookup */
    /* n_most: the largest number of a choice */
    uint64_t n_prompt, n_cached, n_generated, n_most, n_choices, n_drafted, n_accepted;
    struct answer_counts answers; /* of all choices */
    const struct timing *timing; /* now_us: its end */
    uint64_t queued_until_us, first_us, last_us, engine_id;
};

static inline uint64_t facts_since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? now_us - then_us : 0;
}

/* Counts it if it was answered, logs it and sends its spans, as configured. */
void finished_request_say(struct finished_request *f);

/* Logs one line. finished_log.c. */
void finished_request_log(const struct finished_request *f);
/* Sends a span for the request and one for each of its parts to the collector. finished_spans.c. */
void finished_request_send_spans(const struct finished_request *f);

#endif
