/* A generating request from its text work to the end of its reply.
 *
 * text pool → one SUBMIT per prompt → events → reply. The first prompt's SUBMIT is taken or refused for all of them;
 * the others go when it is their turn (turns.h). It belongs to its
 * exchange: it ends with the reply, or when the client goes away, and everything it began is
 * cancelled. How its API spells requests and replies is its dialect's; all else is the same for
 * all of them. Private to generation*.c and reply*.c. Loop's thread.
 */
#ifndef QUIRE_FRONT_GENERATION_H
#define QUIRE_FRONT_GENERATION_H

#include "server/front/output/choice.h"
#include "server/front/batch/prompt_batch.h"
#include "server/front/front_internal.h"
#include "server/front/observe/trace_context.h"

struct generation;
struct gen_prompt;

/* Tokens with their text. Without tokens: text that was held back to the end. */
struct gen_piece {
    const struct choice_token *tokens;
    uint32_t n_tokens; /* 1, or up to stream_interval in a stream */
    const char *text;
    size_t n_text;
};

struct api_dialect {
    const char *id_prefix; /* of a reply's id, before the request's */
    /* On the text pool: fills in the job from a request's body. */
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    /* Builds g->head, which events and replies share, of what the job has read. */
    void (*begin)(struct generation *g, const struct request_job *j);
    /* A stream's events, of each choice: what comes before its first token; more than once is as
     * once. Then its tokens, and its end. */
    void (*open)(struct generation *g, struct gen_prompt *p, struct choice *c);
    void (*token)(struct generation *g, struct gen_prompt *p, struct choice *c, const struct gen_piece *piece);
    void (*finish)(struct generation *g, struct gen_prompt *p, struct choice *c);
    /* The end of all choices, or of the stream by an error. */
    void (*end)(struct generation *g);
    void (*error)(struct generation *g, const struct api_error *e);
    /* A reply that is not streamed: keeps a token, and writes it all into o. */
    void (*collect)(struct generation *g, struct choice *c, const struct gen_piece *piece);
    void (*whole)(struct generation *g, struct buffer *o);
};

struct gen_prompt {
    struct batch_prompt batch; /* first: the batch's view */
    struct generation *g;
    struct request_item item;  /* text only where it is echoed */
    uint32_t max_tokens;
    bool opened;
    uint64_t submitted_us;
    uint64_t engine_id;       /* the engine's own, as in its recordings; 0: not told */
    uint32_t n_cached, n_created;
    struct choice *choices;   /* params.spec.n of them */
    /* Of the prompt, for echo and prompt_logprobs. */
    struct logprobs_arrays arrays;
    struct buffer prompt_logprobs;
};

/* What sources that keep answers have said of it. */
struct generation_cache {
    uint32_t n_told, n_kept; /* prompts of which it is known whether their answer was kept; those */
    uint32_t n_drafted, n_similar; /* n_told's whose draft, n_kept's whose answer is a similar question's */
    float similarity; /* of the first's */
    uint32_t age_s; /* of the oldest */
    bool unseeded;
    const char *layer; /* of the first; NULL: not told */
    bool has_key;
    struct key256 key; /* of the first's answer */
};

struct generation {
    TAILQ_ENTRY(generation) link;
    struct served_model *served;
    struct http_exchange *x;
    const struct api_dialect *dialect;
    char route[64];            /* the path, for the log */
    struct params params;
    const struct model_facts *facts; /* of the engine that was there when it came; held */
    struct choice_rules rules;
    struct tenant *tenant;     /* who pays */
    uint32_t n_queued;         /* choices without a token yet: part of the tenant's queue */
    bool admin;                /* may be told who others are */
    struct key256 cache_domain;
    struct question question; /* the one prompt's */
    struct completion_terms terms; /* of answers that are kept; but for is_bounded, which is a prompt's */
    struct generation_cache cache;
    bool has_alias; /* a reply in the same words may be found by it */
    struct key256 alias;
    struct timing timing;
    struct trace_context context; /* of the caller, or begun here for the spans */
    uint32_t header_deadline_ms;
    bool header_timing;
    struct params_cache header_cache;
    struct request_job *job;   /* while it is in the pool */
    struct gen_prompt *prompts;
    const char *prompt_name;   /* the field that held them, for errors; static */
    size_t n_prompts, n_open;
    struct request_item prediction; /* of the first prompt's answer: there is no other then. Its ids go to the engine */
    struct reply_room room;
    struct prompt_batch batch; /* once something is to be computed */
    char id[96];
    struct buffer head; /* how every reply, or its object, begins: {"id":...,"model":"..." */
    struct buffer event; /* the one being written */
    struct buffer early; /* events made before the stream has begun */
    struct buffer shown; /* what was written of a stream that has an alias, in generation_alias.c's form */
    bool begun; /* the stream's headers are out */
    uint64_t n_events; /* for dialects that number them */
    struct event *ping;
    uint64_t last_write_us;
};

/* The client's name for it, from the body or the header, or one made here. generation_end.c. */
const char *generation_name(const struct generation *g);

/* ---- generation_cache.c: what it says to a source that keeps answers, and says of it ---- */

/* Cache-Control. */
void generation_cache_header(const struct http_exchange *x, struct params_cache *cache);
/* Makes g->terms of what it has read; header: of the request. */
void generation_cache_begin(struct generation *g, struct request_job *j);
void generation_cache_origin(struct generation *g, const struct completion_origin *origin);
/* x-quire-cache and its kin, before the reply begins. */
void generation_cache_say(const struct served_model *m, struct http_exchange *x, const struct generation_cache *c);

/* ---- generation_alias.c: replies to bodies in the same words ---- */

/* What front_begin() let begin is answered, or refused, if its reply is kept. False: it is not; has_alias: its reply may
 * be, under this. timing: its first lookup is noted there; arrived_us is set by the caller. */
bool generation_alias_give(struct served_model *m, struct http_exchange *x, struct tenant *tenant,
                           const struct api_dialect *dialect, struct timing *timing, struct key256 *alias,
                           bool *has_alias);
/* Events of the stream, as they are written. */
void generation_alias_show(struct generation *g, const void *events, size_t n);
/* The whole reply to it; NULL: it was a stream, and all of it was shown. */
void generation_alias_keep(const struct generation *g, const struct buffer *body);

/* ---- generation_end.c: what is counted, logged and traced when it is over ---- */

/* What counts it. */
struct metrics *generation_metrics(const struct generation *g);
/* Before a prompt is submitted: where it differs from those before it. */
void generation_watch_prefix(struct generation *g, const struct gen_prompt *p);
/* The prompt was taken. */
void generation_prompt_taken(struct generation *g, const struct gen_prompt *p);
/* One choice's engine work is over. */
void generation_choice_over(struct generation *g, const struct gen_prompt *p, const struct choice *c,
                            const struct wire_account *account);
/* status: of the reply, or of the error that ended its stream; 499: the client left. e: why it failed, or NULL. */
void generation_over(struct generation *g, int status, const struct api_error *e);

/* A prompt token's logprob, kept for the reply; NULL for the first, which has none.
 * reply_choices.c. */
void reply_prompt_logprob(struct generation *g, struct gen_prompt *p, const struct wire_token *token);
/* What they take in the reply by now, which has them once for each choice. */
uint64_t reply_prompt_bytes(const struct generation *g, const struct gen_prompt *p);

#endif
