/* A generating request from its text work to the end of its reply.
 *
 * text pool → one SUBMIT per prompt → events → reply. The first prompt's SUBMIT is accepted or refused for all of
 * them; the others follow in their turns (turns.h). It belongs to its exchange: it ends with the reply, or when the
 * client disconnects, and then all its work is cancelled. A dialect defines how an API writes requests and replies;
 * everything else is common. Private to generation*.c and reply*.c. Loop's thread.
 */
#ifndef QUIRE_FRONT_GENERATION_H
#define QUIRE_FRONT_GENERATION_H

#include "server/front/output/choice.h"
#include "server/front/batch/prompt_batch.h"
#include "server/front/front_internal.h"
#include "server/front/observe/trace_context.h"

struct generation;
struct gen_prompt;

/* Tokens with their text. Without tokens: text that was held back until the end. */
struct gen_piece {
    const struct choice_token *tokens;
    uint32_t n_tokens; /* 1, or up to stream_interval in a stream */
    const char *text;
    size_t n_text;
};

struct api_dialect {
    const char *id_prefix; /* beginning of a reply's id, before the request's name */
    /* On the text pool: fills in the job from a request's body. */
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    /* Builds g->head, which events and replies share, from the job. */
    void (*begin)(struct generation *g, const struct request_job *j);
    /* A stream's events for each choice: open() writes the events before its first token (a second call does nothing),
     * then come its tokens and its end. */
    void (*open)(struct generation *g, struct gen_prompt *p, struct choice *c);
    void (*token)(struct generation *g, struct gen_prompt *p, struct choice *c, const struct gen_piece *piece);
    void (*finish)(struct generation *g, struct gen_prompt *p, struct choice *c);
    /* The end of all choices, or the end of the stream by an error. */
    void (*end)(struct generation *g);
    void (*error)(struct generation *g, const struct api_error *e);
    /* For a reply that is not streamed: collect() keeps a token, whole() writes the reply into o. */
    void (*collect)(struct generation *g, struct choice *c, const struct gen_piece *piece);
    void (*whole)(struct generation *g, struct buffer *o);
};

struct gen_prompt {
    struct batch_prompt batch; /* first member, for the batch */
    struct generation *g;
    struct request_item item; /* the text is kept only for echo */
    uint32_t max_tokens;
    bool opened;
    uint64_t submitted_us;
    uint64_t engine_id; /* the engine's own id, as in its recordings; 0: unknown */
    uint32_t n_cached, n_created;
    struct choice *choices; /* params.spec.n of them */
    /* Logprobs of the prompt, for echo and prompt_logprobs. */
    struct logprobs_arrays arrays;
    struct buffer prompt_logprobs;
};

/* Reports from the response cache about a request. */
struct generation_cache {
    uint32_t n_told, n_kept; /* prompts whose origin is known; those of them with a cached response */
    uint32_t n_drafted, n_similar; /* n_told's with a draft from a similar question, and n_kept's with its answer */
    float similarity; /* of the first prompt */
    uint32_t age_s; /* of the oldest answer */
    bool unseeded;
    const char *layer; /* for the first prompt; NULL: unknown */
    bool has_key;
    struct key256 key; /* for the first prompt's answer */
};

struct generation {
    TAILQ_ENTRY(generation) link;
    struct served_model *served;
    struct http_exchange *x;
    const struct api_dialect *dialect;
    char route[64]; /* the path, for the log */
    struct params params;
    const struct model_facts *facts; /* facts about the engine at its arrival; holds a reference */
    struct choice_rules rules;
    struct tenant *tenant; /* the client's tenant */
    uint32_t n_queued; /* choices without a token yet: they count in the tenant's queue */
    bool admin; /* may see other tenants' names */
    struct key256 cache_domain;
    struct question question; /* of the only prompt */
    struct completion_terms terms; /* for the response cache; except is_bounded, which is set for each prompt */
    struct generation_cache cache;
    bool has_alias; /* a cached reply to the same words may be found by it */
    struct key256 alias;
    struct timing timing;
    struct trace_context context; /* from the caller, or begun here for the spans */
    uint32_t header_deadline_ms;
    bool header_timing;
    struct params_cache header_cache;
    struct request_job *job; /* while it is in the pool */
    struct gen_prompt *prompts;
    const char *prompt_name; /* the field with the prompts, for errors; static */
    size_t n_prompts;
    struct request_item prediction; /* expected answer of the only prompt. Its ids go to the engine */
    struct reply_room room;
    struct prompt_batch batch;
    char id[96];
    struct buffer head; /* the beginning of every reply, or of its object: {"id":...,"model":"..." */
    struct buffer event; /* the event being written */
    struct buffer early; /* events made before the stream has begun */
    struct buffer shown; /* the output of a stream with an alias, in generation_alias.c's form */
    bool begun; /* the stream's headers were sent */
    uint64_t n_events; /* for dialects that number them */
    struct event *ping;
    uint64_t last_write_us;
};

/* Its name: the client's, from the body or the header, or one made here. generation_end.c. */
const char *generation_name(const struct generation *g);

/* ---- generation_cache.c: what it sends to and reports about a source with cached responses ---- */

/* Reads Cache-Control. */
void generation_cache_header(const struct http_exchange *x, struct params_cache *cache);
/* Sets g->terms from the job; header: the request's. */
void generation_cache_begin(struct generation *g, struct request_job *j);
void generation_cache_origin(struct generation *g, const struct completion_origin *origin);
/* Writes x-quire-cache and related headers, before the reply begins. */
void generation_cache_say(const struct served_model *m, struct http_exchange *x, const struct generation_cache *c);

/* ---- generation_alias.c: cached replies to bodies in the same words ---- */

/* Ends a request that front_begin() began, with its cached reply or an error. Returns false if the reply is not
 * cached; has_alias: it may be cached later, under *alias. timing: the first lookup is recorded there; the caller sets
 * arrived_us. */
bool generation_alias_give(struct served_model *m, struct http_exchange *x, struct tenant *tenant,
                           const struct api_dialect *dialect, struct timing *timing, struct key256 *alias,
                           bool *has_alias);
/* Records events of the stream as they are written. */
void generation_alias_show(struct generation *g, const void *events, size_t n);
/* Caches the whole reply; NULL: it was a stream, and all of it was recorded. */
void generation_alias_keep(const struct generation *g, const struct buffer *body);

/* ---- generation_end.c: counters, log and spans at the end ---- */

/* The metrics that count it. */
struct metrics *generation_metrics(const struct generation *g);
/* Before a prompt is submitted: finds where it differs from earlier ones. */
void generation_watch_prefix(struct generation *g, const struct gen_prompt *p);
/* The prompt was accepted. */
void generation_prompt_taken(struct generation *g, const struct gen_prompt *p);
/* The engine's work for one choice is over. */
void generation_choice_over(struct generation *g, const struct gen_prompt *p, const struct choice *c,
                            const struct wire_account *account);
/* status: of the reply, or of the error that ended its stream; 499: the client disconnected. e: the reason of a
 * failure, or NULL. */
void generation_over(struct generation *g, int status, const struct api_error *e);

/* Keeps a prompt token's logprob for the reply; NULL: the first token, which has no logprob. reply_choices.c. */
void reply_prompt_logprob(struct generation *g, struct gen_prompt *p, const struct wire_token *token);
/* The bytes that they take in the reply so far. The reply repeats them for each choice. */
uint64_t reply_prompt_bytes(const struct generation *g, const struct gen_prompt *p);

#endif
