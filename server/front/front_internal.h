/* Declarations that the files of the front end share. Only server/front includes it. Loop's thread, except where
 * noted. */
#ifndef QUIRE_FRONT_INTERNAL_H
#define QUIRE_FRONT_INTERNAL_H

#include "server/front/api/api_error.h"
#include "server/cache/response_cache.h"
#include "server/front/front.h"
#include "server/front/served_model.h"
#include "server/front/model_list.h"
#include "server/http/http.h"
#include "server/front/tenant/limits.h"
#include "server/front/observe/metrics.h"
#include "server/front/observe/otlp.h"
#include "server/front/observe/prefix_watch.h"
#include "server/front/body/params.h"
#include "server/front/body/request_job.h"
#include "server/front/output/reply_bytes.h"
#include "server/front/tenant/tenants.h"
#include "server/front/text/text_pool.h"
#include "server/front/observe/timing.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct api_dialect;
struct generation_job;
struct generation;
struct utility;
struct scrape;
struct turns;
struct command;
struct grammar_pool;
struct cache_clear;
struct pin;
struct vectors;
struct embedding;

/* The state of the server that is common to all models. */
struct front {
    struct event_base *base;
    struct http_server *http;
    struct http_server *watchers; /* NULL without a listener for metrics */
    struct text_pool *pool;
    struct grammar_pool *grammars;
    TAILQ_HEAD(, served_model) models; /* the first is for routes without a model */
    const struct model_list *list; /* for threads of the pool */

    const char *const *allowed_origins, *const *allowed_hosts;
    size_t n_allowed_origins, n_allowed_hosts;
    struct tenants *tenants;
    bool tenant_metrics, log_requests;
    struct otlp *otlp;            /* NULL: no spans */
    char *version, *fingerprint;
    int64_t created;              /* creation time of the models: the start of the server */
    uint32_t ping_ms, max_choices; /* max_choices: of a request */
    struct replies *replies;      /* the memory of replies */
    bool draining;
    TAILQ_HEAD(, utility) utilities;
    TAILQ_HEAD(, scrape) scrapes;
    TAILQ_HEAD(, cache_clear) clears;
};

/* ---- ../front_models.c ---- */
#define FRONT_MAX_MODELS 64
/* Never NULL after a model was added. */
struct served_model *front_first_model(const struct front *f);
/* The model for the routes of vectors and scores. */
struct served_model *front_vectors_model(const struct front *f);
/* Rebuilds f->list. Returns false and changes nothing if memory is out or there are too many models. */
bool front_list_models(struct front *f);

/* ---- routes.c ---- */
extern const struct http_handler front_handler;         /* its context is the front */
extern const struct http_handler front_watcher_handler; /* likewise, for the listener for metrics */

/* ---- ../output/generation_end.c ---- */
/* Number of running requests, without background requests. */
uint64_t generation_n_live(const struct served_model *m);

/* ---- admission.c ---- */
/* Returns false with a 503 in e if requests cannot be accepted now. */
bool front_can_serve(const struct served_model *m, struct api_error *e);
/* The state in /health: ok, starting, draining, restarting, engine_unavailable or dead. */
const char *front_state(const struct served_model *m);
/* The tenant of the request's API key. NULL, with a 401 in e: no such key. */
struct tenant *front_tenant(const struct front *f, const struct http_exchange *x, struct api_error *e);
/* Returns whether the key is an admin's; without keys, whether the client is on this machine and no web page. */
bool front_is_admin(const struct front *f, const struct http_exchange *x);
/* The cache domain of a request, by its API key. */
struct key256 front_cache_domain(const struct front *f, const struct http_exchange *x);
/* Begins a request that uses the engine, after a check of the engine's state and the tenant's limits. NULL: an error
 * was already sent. Otherwise limits_end() must end it. */
struct tenant *front_begin(struct served_model *m, struct http_exchange *x);
/* The same for a request that may have a cached response: also succeeds while an engine that was ready before
 * restarts. A request without a cached response then ends with front_can_serve()'s error. */
struct tenant *front_begin_kept(struct served_model *m, struct http_exchange *x);
/* The error of a request that a source did not accept, or lost, with this status; e->why has details. For an engine
 * that is being restarted, it includes the time to retry. */
void front_failed_with(const struct served_model *m, int status, struct api_error *e);
/* Sends an error and ends the request that front_begin() began. Nothing else was done for it. */
void front_refuse(const struct front *f, struct http_exchange *x, struct tenant *tenant, const struct api_error *e);
/* The log's line for a request that was refused before it began; tenant NULL: unknown. */
void front_log_refused(const struct front *f, const struct http_exchange *x, const struct tenant *tenant,
                       const struct api_error *e);
/* Fills in the fields that charge the tenant. */
void front_bill(const struct tenant *tenant, struct request_spec *spec);

/* ---- engine_error.c ---- */
/* The client's error for a DONE with WIRE_FINISH_ERROR, and for a REFUSE. */
void front_failed(const struct wire_done *done, struct api_error *e);
void front_refused(const struct served_model *m, const struct wire_refuse *refuse, struct api_error *e);

/* ---- chat.c, completions.c, responses.c, messages/messages.c, tokenize.c: for jobs, on the pool ---- */
#define CHAT_MAX_MESSAGES 65536
/* Writes a list of text parts as one JSON string, one part per line, as in vLLM: templates expect strings. types ends
 * with NULL. Returns false with an error in e that names the field. */
bool chat_put_parts(struct buffer *o, struct quire_value parts, const char *const *types, const char *field,
                    struct api_error *e);
/* Writes the beginning of a message, up to its content; o holds an unfinished array. */
void chat_put_message(struct buffer *o, const char *role);
/* Takes over an array of messages in the form of a template. It came from the field of this (static) name. The job
 * then owns the buffer's content. */
bool chat_take(struct request_job *j, struct buffer *messages, const char *name);
/* Only messages, tools and kwargs. */
bool chat_read_messages(struct request_job *j, const struct quire_doc *body);
bool chat_read(struct generation_job *g, const struct quire_doc *body);
/* The model's output is parsed for calls if the prompt lists tools (checked; may be empty). choice: of a chat. */
bool chat_use_tools(struct generation_job *g, struct quire_value tools, struct quire_value choice, bool parallel);
/* How reasoning is found in the answer. A grammar holds from the first token, so such an answer has none. */
void chat_choose_reasoning(struct generation_job *g);
/* A text, or a list of ids. */
bool completions_take_prompt(struct request_job *j, struct quire_value prompt, struct request_item *item);
bool completions_read(struct generation_job *g, const struct quire_doc *body);
bool responses_read(struct generation_job *g, const struct quire_doc *body);
bool messages_read(struct generation_job *g, const struct quire_doc *body);
/* Reads only the fields of the prompt. */
bool messages_count_read(struct request_job *j, const struct quire_doc *body);
bool tokenize_read(struct request_job *j, const struct quire_doc *body);
bool detokenize_read(struct request_job *j, const struct quire_doc *body);

/* ---- reply_*.c: described in generation.h ---- */
extern const struct api_dialect api_chat, api_completions, api_responses, api_messages;

/* ---- generation.c ---- */
void generation_start(struct served_model *m, struct http_exchange *x, const struct api_dialect *dialect);
/* Ends all of them with an error. */
void generations_end(struct served_model *m, const struct api_error *e);

/* ---- tokenize.c ---- */
void tokenize_start(struct served_model *m, struct http_exchange *x);
void detokenize_start(struct served_model *m, struct http_exchange *x);
/* A route that only needs text work. Both functions run on the pool. */
struct utility_calls {
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    void (*put)(struct buffer *o, const struct request_job *j); /* writes the reply */
    bool counts_only; /* it only needs the number of tokens of a text */
};
void utility_start(struct served_model *m, struct http_exchange *x, const struct utility_calls *calls);
/* Ends all of them with an error. */
void utilities_end(struct front *f, const struct api_error *e);

/* ---- messages/messages.c ---- */
void messages_count_start(struct served_model *m, struct http_exchange *x);

/* ---- pins.c ---- */
void pin_start(struct served_model *m, struct http_exchange *x);
void pins_end(struct served_model *m, const struct api_error *e);

/* ---- cache_routes.c ---- */
void cache_stats_start(struct served_model *m, struct http_exchange *x);
void cache_clear_start(struct served_model *m, struct http_exchange *x);
/* Returns whether x comes from an admin and the response cache is on. Otherwise an error was already sent. */
bool cache_may(const struct served_model *m, struct http_exchange *x);
/* Frees the pending requests without replies; their exchanges are gone. */
void cache_clears_end(struct front *f);

/* ---- cache_entries.c ---- */
void cache_entries_start(struct served_model *m, struct http_exchange *x);
void cache_import_start(struct served_model *m, struct http_exchange *x);

/* ---- vectors/vectors.c ---- */
void embeddings_start(struct served_model *m, struct http_exchange *x);
void score_start(struct served_model *m, struct http_exchange *x);
void rerank_start(struct served_model *m, struct http_exchange *x);
/* Ends all of them with an error. */
void vectors_end(struct served_model *m, const struct api_error *e);
/* ---- vectors/embed_question.c ---- */
/* Ends the embedding of this process' own texts without a vector. */
void embeddings_end(struct served_model *m);

/* ---- command.c ---- */
void unpin_start(struct served_model *m, struct http_exchange *x);
void policy_start(struct served_model *m, struct http_exchange *x);
/* Answers the oldest command. refuse NULL: it was executed. */
void commands_answer(struct served_model *m, const struct wire_refuse *refuse);
/* Answers the pending commands with an error: the engine is unavailable. */
void commands_end(struct served_model *m);

/* ---- ui.c ---- */
void root_start(struct served_model *m, struct http_exchange *x);
void ui_start(struct served_model *m, struct http_exchange *x);

/* ---- openapi.c ---- */
void openapi_start(struct served_model *m, struct http_exchange *x);

/* ---- scrape.c ---- */
/* stats NULL: the engine did not answer. */
typedef void (*scrape_answer)(struct served_model *m, struct http_exchange *x, const struct wire_stats *stats);
/* Calls answer with the engine's next statistics, or without them after a timeout. */
void scrape_ask(struct served_model *m, struct http_exchange *x, scrape_answer answer);
/* Requests statistics from the engine, unless a request is in flight. Returns false without an engine. */
bool scrapes_question(struct served_model *m);
void scrape_start(struct served_model *m, struct http_exchange *x);
/* stats NULL: none will come. */
void scrapes_answer(struct served_model *m, const struct wire_stats *stats);

#endif
