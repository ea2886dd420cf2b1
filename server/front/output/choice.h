/* One choice of a reply: generated tokens become text, until it stops.
 *
 * Text is held back while it is an incomplete character or may be the beginning of a stop string. Loop's thread.
 */
#ifndef QUIRE_FRONT_CHOICE_H
#define QUIRE_FRONT_CHOICE_H

#include "server/front/output/json_out.h"
#include "server/front/output/logprobs.h"
#include "server/front/body/params.h"
#include "server/front/messages/reply_blocks.h"
#include "server/front/output/stop_strings.h"
#include "server/front/responses/reply_items.h"
#include "server/front/tools/answer_parts.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stdint.h>

/* Shared by all choices of a request. */
struct choice_rules {
    const struct quire_text *text;
    const struct params *params;
    const uint32_t *eos; /* from the model */
    uint32_t n_eos;
};

/* A generated token, and the number of characters of text before it, if the request has logprobs. */
struct choice_token {
    struct wire_token token;
    uint64_t offset;
};
/* The tokens that a stream has not shown yet: stream_interval. */
struct choice_waiting {
    struct choice_token *tokens;
    uint32_t n_tokens, capacity;
    struct buffer text;
};

enum choice_finish { CHOICE_RUNS, CHOICE_STOP, CHOICE_LENGTH };

/* What chat completions collect of a choice, if the reply is not streamed. */
struct choice_chat {
    struct buffer logprobs;
    struct answer_parts shown; /* what the parser found */
};

/* The parts that llama.cpp's completions collect of a choice. */
struct choice_llama_cpp {
    struct buffer probabilities; /* if the reply is not streamed */
    bool has_new_line;
};

/* The form of a dialect's choices: the one part of a choice that belongs to that dialect alone. */
enum choice_form { CHOICE_CHAT, CHOICE_COMPLETION, CHOICE_MESSAGE, CHOICE_RESPONSE, CHOICE_LLAMA_CPP };

/* What the reply's dialect collects of a choice: of a reply that is not streamed, or to repeat it at a stream's end. */
struct choice_parts {
    struct buffer text, token_ids;
    bool opened; /* streamed: its first event was sent */
    struct answer_parser answer; /* not for completions */
    /* Only the one of the choice's form is set. It lies in an array of all choices of its prompt, as the parts do. */
    struct choice_chat *chat;
    struct logprobs_arrays *arrays; /* of completions */
    struct reply_blocks *blocks; /* of Messages */
    struct reply_items *items; /* of Responses */
    struct choice_llama_cpp *llama_cpp;
};

struct choice {
    uint32_t index; /* in the reply */
    struct choice_decoder *decoder; /* private to choice.c; from choice_open() to choice_settle() */
    uint32_t n_tokens; /* generated until it stopped */
    uint32_t n_reasoning; /* tokens of them that belong to the reasoning */
    uint64_t n_chars; /* characters so far, including held-back text */
    uint64_t offset; /* with logprobs: characters of text before the last token's */
    enum choice_finish finish;
    int stop_string; /* index, or -1 */
    int64_t stop_token; /* id of one of the request's stop_token_ids, or -1 */
    bool over_in_engine;
    uint32_t n_drafted, n_accepted, n_predicted, n_predicted_right; /* as in struct wire_done */
    uint64_t first_token_us, last_token_us; /* 0: no token came */
    bool shown; /* streamed: its first token was sent */
    struct choice_waiting waiting;
    struct choice_parts *parts;
};

/* n choices of one prompt, the first with this index. NULL: out of memory. */
struct choice *choice_list_new(uint32_t n, uint32_t first, enum choice_form form, const struct choice_rules *rules);
void choice_list_free(struct choice *choices, uint32_t n); /* NULL is allowed */
/* Call it before the first token. prompt: for the detokenizer's context. QUIRE_NO_MEMORY. */
int choice_open(struct choice *c, const struct choice_rules *rules, const uint32_t *prompt, size_t n_prompt,
                struct quire_error *err);
/* Call it after the last token: frees the state for its text. */
void choice_settle(struct choice *c);
/* Frees its text and its parts. */
void choice_close(struct choice *c);
/* The bytes of a reply that it holds. */
uint64_t choice_bytes(const struct choice *c);

/* Adds a token. *text: the text that may be shown now, valid until the next call on c. c->finish reports whether the
 * choice is over; choice_tail() then returns the rest of the text. */
int choice_token(struct choice *c, const struct choice_rules *rules, uint32_t token, const char **text, size_t *n_text,
                 struct quire_error *err);
/* Returns the held-back text. Call it once, after the last token. */
int choice_tail(struct choice *c, const struct choice_rules *rules, const char **text, size_t *n_text,
                struct quire_error *err);

#endif
