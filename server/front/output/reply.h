/* A reply while it is written, and the dialect that writes it: an API's form of requests and replies.
 *
 * A dialect sees the request's fields and what has been generated so far, not how: the engine's and the cache's part
 * stay in generation.h. An event of the reply that depends on another fact needs that fact here. Private to
 * generation*.c and reply*.c. Loop's thread.
 */
#ifndef QUIRE_FRONT_REPLY_H
#define QUIRE_FRONT_REPLY_H

#include "server/front/body/generation_job.h"
#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"
#include "server/front/output/choice.h"

struct generation_account;
struct reply;
struct reply_prompt;

/* Tokens with their text. Without tokens: text that was held back until the end. */
struct gen_piece {
    const struct choice_token *tokens;
    uint32_t n_tokens; /* 1, or up to stream_interval in a stream */
    const char *text;
    size_t n_text;
};

struct api_dialect {
    enum choice_form form; /* of its choices */
    const char *id_prefix; /* beginning of a reply's id, before the request's name */
    const char *stream_type; /* media type of a stream; NULL: events */
    /* On the text pool: fills in the job from a request's body. */
    bool (*read)(struct generation_job *j, const struct quire_doc *body);
    const struct field_shape *shape; /* the body's; NULL: its fields are not checked */
    /* Builds r->head, which events and replies share, from the job. */
    void (*begin)(struct reply *r, const struct generation_job *j);
    /* A stream's events for each choice: open() writes the events before its first token (a second call does nothing),
     * then come its tokens and its end. */
    void (*open)(struct reply *r, struct reply_prompt *p, struct choice *c);
    void (*token)(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece);
    void (*finish)(struct reply *r, struct reply_prompt *p, struct choice *c);
    /* The end of all choices, or the end of the stream by an error. */
    void (*end)(struct reply *r);
    void (*error)(struct reply *r, const struct api_error *e);
    /* Emits an event without content into a silent stream. NULL: a comment. */
    void (*ping)(struct reply *r);
    /* For a reply that is not streamed: collect() keeps a token, whole() writes the reply into o. */
    void (*collect)(struct reply *r, struct choice *c, const struct gen_piece *piece);
    void (*whole)(struct reply *r, struct buffer *o);
};

/* A prompt with its choices, as the reply shows it. */
struct reply_prompt {
    struct request_item item; /* the text is kept only for echo; the ids until the engine has them, or for the reply */
    struct choice *choices; /* params->spec->n of them */
    uint32_t n_cached, n_created; /* tokens, as in struct wire_done */
    /* Logprobs of the prompt, for echo and prompt_logprobs. */
    struct logprobs_arrays arrays;
    struct buffer prompt_logprobs;
};

struct reply {
    struct http_exchange *x;
    const struct api_dialect *dialect;
    const struct served_model *served;
    const struct params *params; /* the request's fields */
    const struct generation_account *account; /* for quire_trace */
    struct reply_prompt *prompts; /* owned */
    size_t n_prompts;
    size_t n_prediction; /* tokens of the request's prediction, cut to the context */
    bool is_similar; /* it is the answer to a similar question */
    char id[96];
    struct buffer head; /* the beginning of every reply, or of its object: {"id":...,"model":"..." */
    struct buffer fields; /* the fields that the reply has, in the dialect's form; empty: all */
    struct buffer event; /* the event being written */
    struct buffer early; /* events made before the stream has begun */
    bool begun; /* the stream's headers were sent */
    uint64_t n_events; /* for dialects that number them */
    struct reply_budget budget;
    struct buffer *record; /* the stream's events in generation_alias.c's form; NULL: not recorded */
};

/* Tokens of all prompts and choices. The cache's counts are known at the end. */
struct reply_usage {
    uint64_t n_prompt, n_generated;
    uint64_t n_reasoning; /* tokens of the answer that belong to the reasoning */
    uint64_t n_cached; /* tokens of the prompt that were found in the prefix cache */
    uint64_t n_created; /* tokens of the prompt that were added to it */
    uint64_t n_accepted, n_rejected; /* the prediction's tokens: in the answer, and proposed but rejected */
};
struct reply_usage reply_usage(const struct reply *r);

struct logprobs_style reply_logprobs_style(const struct reply *r, int32_t n_top);

/* Writes the logprobs of a piece's tokens, as chat entries separated by commas. */
void reply_put_logprobs(struct buffer *o, const struct reply *r, const struct gen_piece *piece);

/* Sends r->event, or keeps it until the stream begins. */
void reply_emit(struct reply *r);

/* An event with a name, as in Responses and Messages: event: TYPE, data: {"type":TYPE ... }. */
void reply_begin_event(struct reply *r, const char *type);
void reply_end_event(struct reply *r);

/* How long a choice took: from the end of the queue to its first token, and from there to its last token so far; and the
 * request from its arrival to its end, 0 before. In generation_end.c, which knows the account. The time in the queue is
 * known when the engine's work is over. */
struct reply_times {
    uint64_t prompt_us, generated_us, total_us;
};
struct reply_times reply_times(const struct reply *r, const struct choice *c);

/* ,"quire_trace":{...}. In generation_end.c, which knows the account. */
void reply_put_timing(struct buffer *o, const struct reply *r);

/* Keeps a prompt token's logprob; NULL: the first token, which has no logprob. reply_choices.c. */
void reply_prompt_logprob(struct reply *r, struct reply_prompt *p, const struct wire_token *token);
/* The bytes that they take in the reply so far. The reply repeats them for each choice. */
uint64_t reply_prompt_bytes(const struct reply *r, const struct reply_prompt *p);

#endif
