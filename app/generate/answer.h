/* One answer at a time: submits a prompt, streams the text to standard output and keeps it. Main thread, on the loop. */
#ifndef QUIRE_APP_GENERATE_ANSWER_H
#define QUIRE_APP_GENERATE_ANSWER_H

#include "app/generate/flags.h"
#include "app/generate/local_engine.h"
#include "app/generate/screen.h"
#include "base/buffer.h"
#include "base/hash.h"

#include <event2/event.h>

struct answer {
    struct event_base *base; /* borrowed, as the next two */
    const struct local_engine *engine;
    const struct request_flags *flags;
    const char *grammar; /* in normal form, or NULL */
    struct screen screen;
    struct buffer text; /* of the last answer */
    size_t n_shown; /* bytes of the text; the rest may be the begin of a stop text */
    struct quire_detok *detok;
    uint64_t source_id; /* of the current request */
    uint32_t n_prompt, n_generated, n_drafted, n_accepted;
    double started, first_token, last_token;
    struct quire_sha256_state hash; /* of the tokens and the bits of their logprobs, with --verbose */
    bool running, interrupted; /* interrupted: answer_interrupt() ended it */
    bool is_cut; /* the context, or --max-tokens, was full */
    int status;
    struct quire_error err;
};

/* Answers a prompt of fewer tokens than the context has. Returns when the answer is complete or ended by one of the
 * functions below. The reason of an error is in a->err. */
int answer_run(struct answer *a, const uint32_t *ids, size_t n_ids);
void answer_close(struct answer *a);
/* The engine is gone. */
void answer_fail(struct answer *a, const char *why);
/* Cancels the request and keeps the partial text. */
void answer_interrupt(struct answer *a);

/* Prints the number of tokens and the times on standard error. */
void answer_print_speed(const struct answer *a);

#endif
