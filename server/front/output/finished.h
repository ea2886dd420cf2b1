/* What is known of a generating request when it is over, wherever its answer came from: for its line in the log, its spans and
 * what is counted of it. Who answered it fills this in, and knows nothing of the three. Loop's thread.
 */
#ifndef QUIRE_FRONT_FINISHED_H
#define QUIRE_FRONT_FINISHED_H

#include "server/front/api/api_error.h"
#include "server/front/observe/timing.h"
#include "server/front/observe/trace_context.h"

#include <stdbool.h>
#include <stdint.h>

struct served_model;
struct tenant;
struct request_spec;
struct gen_prompt;

/* Times on the clock of struct timing; 0: it was not reached. Pointers are borrowed. */
struct finished_request {
    /* Who asked. */
    struct served_model *served;
    const struct tenant *tenant;
    const char *name, *route; /* name: the client's name for it */
    struct trace_context *context; /* begun here, where the caller began none and spans are sent */
    /* What for; spec NULL: it is not known, for the body was not read, or was not good. */
    const struct request_spec *spec;
    uint32_t max_tokens; /* of its first prompt */
    /* What came of it. */
    const char *finish, *error; /* error: its code; NULL */
    int status; /* of the reply, or of the error that ended its stream; 499: the client left */
    const char *cache_layer; /* that answered, or "" for none; NULL: nobody asked */
    uint64_t n_prompt, n_cached, n_generated, n_most, n_choices, n_drafted, n_accepted; /* n_most: of a choice */
    const struct timing *timing; /* now_us: its end */
    uint64_t queued_until_us, first_us, last_us, engine_id;
};

static inline uint64_t facts_since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? now_us - then_us : 0;
}

/* Counts it, if it was answered, logs it and sends its spans, as far as that is asked for. */
void finished_request_say(struct finished_request *f);

/* One line. finished_log.c. */
void finished_request_log(const struct finished_request *f);
/* A span for the request and one for each of its parts, to the collector. finished_spans.c. */
void finished_request_send_spans(const struct finished_request *f);

#endif
