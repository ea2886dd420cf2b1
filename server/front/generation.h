/* A completion or chat request from its text work to the end of its reply.
 *
 * text pool → one SUBMIT per prompt → events → reply. It belongs to its
 * exchange: it ends with the reply, or when the client goes away, and everything it began is
 * cancelled. Private to generation*.c and reply.c. Loop's thread.
 */
#ifndef QUIRE_FRONT_GENERATION_H
#define QUIRE_FRONT_GENERATION_H

#include "server/front/choice.h"
#include "server/front/front_internal.h"

struct gen_prompt {
    struct generation *g;
    struct request_item item;  /* text only where it is echoed */
    uint32_t max_tokens;
    uint64_t engine_id;
    bool live;                /* submitted, and events are to come */
    bool accepted;
    uint32_t n_cached, n_created;
    struct choice *choices;   /* params.submit.n of them */
    /* Of the prompt, for echo and prompt_logprobs. */
    struct logprobs_arrays arrays;
    struct json_out prompt_logprobs;
    struct quire_detok *detok;
    uint64_t n_chars;
};

struct generation {
    TAILQ_ENTRY(generation) link;
    struct front *front;
    struct http_exchange *x;
    bool chat;
    struct params params;
    struct choice_rules rules;
    struct tenant *tenant;     /* who pays */
    bool admin;                /* may be told who others are */
    struct key256 domain;      /* of the cache */
    struct trace trace;
    uint32_t header_deadline_ms;
    bool header_trace;
    struct request_job *job;   /* while it is in the pool */
    struct gen_prompt *prompts;
    size_t n_prompts, n_accepted, n_open;
    char id[96];
    struct json_out head;     /* how every event and reply begins: {"id":...,"model":"..." */
    struct json_out event;    /* the one being written */
    struct json_out early;    /* events made before the stream has begun */
    bool begun;               /* the stream's headers are out */
    struct event *ping;
    uint64_t last_write_us;
};

/* ---- reply.c: what is written ---- */

bool reply_begin(struct generation *g, const char *model); /* builds g->head */
/* A stream's events. */
void reply_open(struct generation *g, struct gen_prompt *p, struct choice *c);
/* token NULL: text that no token of its own came with. offset: characters before it. */
void reply_token(struct generation *g, struct gen_prompt *p, struct choice *c,
                 const struct wire_token *token, uint64_t offset, const char *text,
                 size_t n_text);
void reply_finish(struct generation *g, struct gen_prompt *p, struct choice *c);
void reply_end(struct generation *g);
void reply_error(struct generation *g, const struct api_error *e);
/* A reply that is not streamed: collects a token, and writes it all into o. */
void reply_collect(struct generation *g, struct gen_prompt *p, struct choice *c,
                   const struct wire_token *token, uint64_t offset, const char *text,
                 size_t n_text);
void reply_whole(struct generation *g, struct json_out *o);
/* A prompt token's logprob; NULL for the first, which has none. */
void reply_prompt_logprob(struct generation *g, struct gen_prompt *p,
                          const struct wire_token *token);

#endif
