/* One answer at a time: submits a prompt, streams the text to standard output and keeps it. Main thread, on the loop. */
#ifndef QUIRE_APP_GENERATE_ANSWER_H
#define QUIRE_APP_GENERATE_ANSWER_H

#include "app/generate/local_engine.h"
#include "base/buffer.h"

#include <event2/event.h>

/* The request's part of the command line. */
struct request_flags {
    const char *prompt, *prompt_option, *system; /* prompt_option: of --prompt */
    uint32_t max_tokens, top_k;
    double temperature, top_p;
    bool has_temperature, has_top_p, has_top_k;
    bool raw, json;
};

struct answer {
    struct event_base *base; /* borrowed, as the next two */
    const struct local_engine *engine;
    const struct request_flags *flags;
    struct buffer text; /* of the last answer; the owner frees it */
    struct quire_detok *detok;
    uint64_t source_id; /* of the current request */
    uint32_t n_prompt, n_generated, n_drafted, n_accepted;
    double started, first_token;
    bool running, interrupted; /* interrupted: answer_interrupt() ended it */
    int status;
    struct quire_error err;
};

/* Returns when the answer is complete or ended by one of the functions below. The reason of an error is in a->err.
 * is_plain: the text is not a rendered chat, so the tokenizer adds its own special tokens. */
int answer_run(struct answer *a, const char *prompt, size_t n, bool is_plain);
/* The engine is gone. */
void answer_fail(struct answer *a, const char *why);
/* Cancels the request and keeps the partial text. */
void answer_interrupt(struct answer *a);

/* Prints the number of tokens and the times on standard error. */
void answer_print_speed(const struct answer *a);

#endif
