/* What the files of the front end share. Nothing outside server/front includes it. */
#ifndef QUIRE_FRONT_INTERNAL_H
#define QUIRE_FRONT_INTERNAL_H

#include "server/front/api/api_error.h"
#include "server/cache/response_cache.h"
#include "server/link/engine_client.h"
#include "server/front/front.h"
#include "server/front/model_facts.h"
#include "server/http/http.h"
#include "server/front/tenant/limits.h"
#include "server/front/observe/metrics.h"
#include "server/front/observe/otlp.h"
#include "server/front/observe/prefix_watch.h"
#include "server/front/body/params.h"
#include "server/front/body/request_job.h"
#include "server/front/output/reply_bytes.h"
#include "server/front/tenant/tenants.h"
#include "server/front/body/text_pool.h"
#include "server/front/observe/timing.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct api_dialect;
struct generation;
struct utility;
struct scrape;
struct turns;
struct command;
struct cache_clear;
struct pin;
struct vectors;
struct embedding;

struct front {
    struct event_base *base;
    struct http_server *http;
    struct http_server *watchers; /* NULL without a listener for metrics */
    struct text_pool *pool;
    const struct quire_text *text;

    struct engine_client *engine; /* NULL: none yet; gone ones stay until the next is set */
    struct completion_source source; /* what generations and pins ask */
    struct response_cache *cache; /* before the engine; NULL: none */
    bool share_answers;           /* of all tenants */
    bool compares;                /* questions, with those that were answered */
    struct cache_price price;     /* below 0: not said */
    bool chat_tells_time;         /* the chat template asks for the time: the same words are another prompt later */
    struct key256 prompt_identity; /* under which what is keyed by text is kept; constant */
    bool engine_ready;            /* handshake done and connection alive */
    bool engine_draining;         /* it takes nothing new */
    bool engine_seen;             /* it was ready once */
    uint64_t engine_returns_ms;   /* when one that is gone is expected; 0: nobody starts it again */
    uint32_t n_engine_restarts;
    bool engine_died;             /* it was in this process, which is about to end */
    const struct model_facts *facts; /* of the last engine that was ready; the loop's: others hold their own */
    struct front *beside;         /* front_pair(): the other of the two; NULL: there is one */
    bool is_second;               /* of the two, the one for vectors */
    bool has_told;                /* of the second: its engine answered when it was last asked, */
    struct wire_stats told;       /* this, less what lay in the frame */

    const char *const *allowed_origins, *const *allowed_hosts;
    size_t n_allowed_origins, n_allowed_hosts;
    struct tenants *tenants;
    bool tenant_metrics, log_requests;
    struct otlp *otlp;            /* NULL: no spans */
    struct blocker_names names;
    struct prefix_watch prefixes; /* of prompts */
    char **model_names;
    size_t n_model_names;
    char *model_root, *version, *fingerprint;
    int64_t created;              /* of the models: when the server began */
    enum quire_specials specials_in_messages;
    bool keeps_billing_header;
    enum tool_format tool_format; /* of this model's calls */
    bool is_tool_tag_special;     /* the tokenizer's decoder leaves the tag out where it leaves out special tokens */
    struct sampling_defaults sampling;
    uint32_t ping_ms, max_choices; /* max_choices: of a request */
    struct turns *turns;          /* of prompts that wait to be submitted */
    struct replies replies;       /* what they take */
    void (*on_engine_ready)(void *context);
    void (*on_engine_gone)(void *context, const char *why);
    bool (*on_engine_silent)(void *context);
    const char *(*why_engine_ended)(void *context);
    void *context;

    bool draining;
    struct metrics metrics, background; /* background: of requests that give way, which alarms are not for */
    TAILQ_HEAD(, generation) generations;
    TAILQ_HEAD(, utility) utilities;
    TAILQ_HEAD(, scrape) scrapes;
    TAILQ_HEAD(, command) commands; /* in the order in which the engine answers them */
    TAILQ_HEAD(, pin) pins;
    TAILQ_HEAD(, vectors) vectors;
    TAILQ_HEAD(, embedding) embeddings;
    TAILQ_HEAD(, cache_clear) clears;
};

/* ---- routes.c ---- */
extern const struct http_handler front_handler;         /* its context is the front */
extern const struct http_handler front_watcher_handler; /* likewise, of the listener for metrics */

/* ---- ../output/generation_end.c ---- */
/* Requests under way that do not give way to others. */
uint64_t generation_n_live(const struct front *f);

/* ---- admission.c ---- */
/* False, with a 503 in e: requests cannot be taken now. */
bool front_can_serve(const struct front *f, struct api_error *e);
/* What /health says: ok, starting, draining, restarting, engine_unavailable or dead. */
const char *front_state(const struct front *f);
/* Whether it is one of the served names. Any thread. */
bool front_has_model(const struct front *f, const char *name);
/* The served name for what a request asks for (NULL: the first). NULL, with a 404 in e: there is none; with a 400: the
 * model beside it has it, which this route is not for. facts: of f's model, as the caller has them. Any thread. */
const char *front_model_name(const struct front *f, const struct model_facts *facts, const char *asked,
                             struct api_error *e);
/* Whose API key the request has. NULL, with a 401 in e: nobody's. */
struct tenant *front_tenant(const struct front *f, const struct http_exchange *x, struct api_error *e);
/* An admin's key; where no keys are asked for, a client on this machine. */
bool front_is_admin(const struct front *f, const struct http_exchange *x);
/* The cache domain of a request, by its API key. */
struct key256 front_cache_domain(const struct front *f, const struct http_exchange *x);
/* A request that costs something begins: the engine takes it, and its tenant's limits do. NULL: it
 * was answered. Else limits_end() ends it. */
struct tenant *front_begin(struct front *f, struct http_exchange *x);
/* The same of a request that may have a kept answer: also while an engine that was there is started again. What is not kept
 * ends with front_can_serve()'s error then. */
struct tenant *front_begin_kept(struct front *f, struct http_exchange *x);
/* The error of a request that a source did not take, or lost, with this status; e->why says more. One that is being started
 * again says when to come back. */
void front_failed_with(const struct front *f, int status, struct api_error *e);
/* Ends with an error what front_begin() let begin, and nothing has come of. */
void front_refuse(const struct front *f, struct http_exchange *x, struct tenant *tenant, const struct api_error *e);
/* The log's line for a request that was refused before it began; tenant NULL: not known. */
void front_log_refused(const struct front *f, const struct http_exchange *x, const struct tenant *tenant,
                       const struct api_error *e);
/* Fills in the fields that say who pays. */
void front_bill(const struct tenant *tenant, struct request_spec *spec);

/* ---- engine_error.c ---- */
/* What a DONE with WIRE_FINISH_ERROR, and a REFUSE, mean to a client. */
void front_failed(const struct wire_done *done, struct api_error *e);
void front_refused(const struct front *f, const struct wire_refuse *refuse, struct api_error *e);

/* ---- chat.c, completions.c, responses.c, messages.c, tokenize.c: for request_job, on the pool ---- */
#define CHAT_MAX_MESSAGES 65536
/* A list of text parts as one JSON string, its parts on lines of their own, as vLLM does it: templates know strings.
 * types ends with NULL. False: e says what is wrong with the field. */
bool chat_put_parts(struct buffer *o, struct quire_value parts, const char *const *types, const char *field,
                    struct api_error *e);
/* The beginning of a message, up to its content; o is an array that was begun. */
void chat_put_message(struct buffer *o, const char *role);
/* An array of messages as a template takes them, which came from the field of this (static) name. What is in the buffer
 * is the job's then. */
bool chat_take(struct request_job *j, struct buffer *messages, const char *name);
/* Messages, tools and kwargs only. */
bool chat_read_messages(struct request_job *j, const struct quire_doc *body);
bool chat_read(struct request_job *j, const struct quire_doc *body);
/* A text, or a list of ids. */
bool completions_take_prompt(struct request_job *j, struct quire_value prompt, struct request_item *item);
bool completions_read(struct request_job *j, const struct quire_doc *body);
bool responses_read(struct request_job *j, const struct quire_doc *body);
bool messages_read(struct request_job *j, const struct quire_doc *body);
/* What has the prompt in it only. */
bool messages_count_read(struct request_job *j, const struct quire_doc *body);
bool tokenize_read(struct request_job *j, const struct quire_doc *body);
bool detokenize_read(struct request_job *j, const struct quire_doc *body);

/* ---- reply_*.c: generation.h says what they are ---- */
extern const struct api_dialect api_chat, api_completions, api_responses, api_messages;

/* ---- generation.c ---- */
void generation_start(struct front *f, struct http_exchange *x, const struct api_dialect *dialect);
/* Ends all of them with an error. */
void generations_end(struct front *f, const struct api_error *e);

/* ---- tokenize.c ---- */
void tokenize_start(struct front *f, struct http_exchange *x);
void detokenize_start(struct front *f, struct http_exchange *x);
/* Text work of another route: put writes the reply to what read has read, on the pool. counts_only: of text, the number
 * of its tokens is all it needs. */
void utility_start(struct front *f, struct http_exchange *x,
                   bool (*read)(struct request_job *j, const struct quire_doc *body),
                   void (*put)(struct buffer *o, const struct request_job *j), bool counts_only);
/* Ends all of them with an error. */
void utilities_end(struct front *f, const struct api_error *e);

/* ---- messages.c ---- */
void messages_count_start(struct front *f, struct http_exchange *x);

/* ---- pins.c ---- */
void pin_start(struct front *f, struct http_exchange *x);
void pins_end(struct front *f, const struct api_error *e);

/* ---- cache_routes.c ---- */
void cache_stats_start(struct front *f, struct http_exchange *x);
void cache_clear_start(struct front *f, struct http_exchange *x);
/* Whether x is an admin's, and answers are kept. False: it was answered. */
bool cache_may(const struct front *f, struct http_exchange *x);
/* None will be answered any more; the exchanges are gone. */
void cache_clears_end(struct front *f);

/* ---- cache_entries.c ---- */
void cache_entries_start(struct front *f, struct http_exchange *x);
void cache_import_start(struct front *f, struct http_exchange *x);

/* ---- vectors/vectors.c ---- */
void embeddings_start(struct front *f, struct http_exchange *x);
void score_start(struct front *f, struct http_exchange *x);
void rerank_start(struct front *f, struct http_exchange *x);
/* Ends all of them with an error. */
void vectors_end(struct front *f, const struct api_error *e);
/* ---- vectors/embed_question.c ---- */
/* None of this process' own texts gets a vector any more. */
void embeddings_end(struct front *f);

/* ---- command.c ---- */
void unpin_start(struct front *f, struct http_exchange *x);
void policy_start(struct front *f, struct http_exchange *x);
/* The answer to the oldest command. refuse NULL: it is done. */
void commands_answer(struct front *f, const struct wire_refuse *refuse);
/* None will be answered any more. */
void commands_end(struct front *f);

/* ---- ui.c ---- */
void root_start(struct front *f, struct http_exchange *x);
void ui_start(struct front *f, struct http_exchange *x);

/* ---- openapi.c ---- */
void openapi_start(struct front *f, struct http_exchange *x);

/* ---- scrape.c ---- */
/* stats NULL: the engine did not answer. */
typedef void (*scrape_answer)(struct front *f, struct http_exchange *x, const struct wire_stats *stats);
/* Answers when the engine has told its numbers, or in time without. */
void scrape_ask(struct front *f, struct http_exchange *x, scrape_answer answer);
/* Asks the engine for its numbers, unless that is under way. False: there is no engine. */
bool scrapes_question(struct front *f);
void scrape_start(struct front *f, struct http_exchange *x);
/* stats NULL: there will be none. */
void scrapes_answer(struct front *f, const struct wire_stats *stats);

#endif
