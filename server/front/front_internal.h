/* What the files of the front end share. Nothing outside server/front includes it. */
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

/* What the server has, whatever models it answers with. */
struct front {
    struct event_base *base;
    struct http_server *http;
    struct http_server *watchers; /* NULL without a listener for metrics */
    struct text_pool *pool;
    TAILQ_HEAD(, served_model) models; /* the first is for routes that name none */
    const struct model_list *list; /* of them, as the pool's threads get it */

    const char *const *allowed_origins, *const *allowed_hosts;
    size_t n_allowed_origins, n_allowed_hosts;
    struct tenants *tenants;
    bool tenant_metrics, log_requests;
    struct otlp *otlp;            /* NULL: no spans */
    char *version, *fingerprint;
    int64_t created;              /* of the models: when the server began */
    uint32_t ping_ms, max_choices; /* max_choices: of a request */
    struct replies *replies;      /* what they take */
    bool draining;
    TAILQ_HEAD(, utility) utilities;
    TAILQ_HEAD(, scrape) scrapes;
    TAILQ_HEAD(, cache_clear) clears;
};

/* ---- ../front_models.c ---- */
#define FRONT_MAX_MODELS 64
/* Never NULL once one was added. */
struct served_model *front_first_model(const struct front *f);
/* The one that answers the routes of vectors and scores. */
struct served_model *front_vectors_model(const struct front *f);
/* Makes f->list anew. False, and nothing changes: no memory, or too many. */
bool front_list_models(struct front *f);

/* ---- routes.c ---- */
extern const struct http_handler front_handler;         /* its context is the front */
extern const struct http_handler front_watcher_handler; /* likewise, of the listener for metrics */

/* ---- ../output/generation_end.c ---- */
/* Requests under way that do not give way to others. */
uint64_t generation_n_live(const struct served_model *m);

/* ---- admission.c ---- */
/* False, with a 503 in e: requests cannot be taken now. */
bool front_can_serve(const struct served_model *m, struct api_error *e);
/* What /health says: ok, starting, draining, restarting, engine_unavailable or dead. */
const char *front_state(const struct served_model *m);
/* Whose API key the request has. NULL, with a 401 in e: nobody's. */
struct tenant *front_tenant(const struct front *f, const struct http_exchange *x, struct api_error *e);
/* An admin's key; where no keys are asked for, a client on this machine. */
bool front_is_admin(const struct front *f, const struct http_exchange *x);
/* The cache domain of a request, by its API key. */
struct key256 front_cache_domain(const struct front *f, const struct http_exchange *x);
/* A request that costs something begins: the engine takes it, and its tenant's limits do. NULL: it
 * was answered. Else limits_end() ends it. */
struct tenant *front_begin(struct served_model *m, struct http_exchange *x);
/* The same of a request that may have a kept answer: also while an engine that was there is started again. What is not kept
 * ends with front_can_serve()'s error then. */
struct tenant *front_begin_kept(struct served_model *m, struct http_exchange *x);
/* The error of a request that a source did not take, or lost, with this status; e->why says more. One that is being started
 * again says when to come back. */
void front_failed_with(const struct served_model *m, int status, struct api_error *e);
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
void front_refused(const struct served_model *m, const struct wire_refuse *refuse, struct api_error *e);

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
void generation_start(struct served_model *m, struct http_exchange *x, const struct api_dialect *dialect);
/* Ends all of them with an error. */
void generations_end(struct served_model *m, const struct api_error *e);

/* ---- tokenize.c ---- */
void tokenize_start(struct served_model *m, struct http_exchange *x);
void detokenize_start(struct served_model *m, struct http_exchange *x);
/* Text work of another route: put writes the reply to what read has read, on the pool. counts_only: of text, the number
 * of its tokens is all it needs. */
void utility_start(struct served_model *m, struct http_exchange *x,
                   bool (*read)(struct request_job *j, const struct quire_doc *body),
                   void (*put)(struct buffer *o, const struct request_job *j), bool counts_only);
/* Ends all of them with an error. */
void utilities_end(struct front *f, const struct api_error *e);

/* ---- messages.c ---- */
void messages_count_start(struct served_model *m, struct http_exchange *x);

/* ---- pins.c ---- */
void pin_start(struct served_model *m, struct http_exchange *x);
void pins_end(struct served_model *m, const struct api_error *e);

/* ---- cache_routes.c ---- */
void cache_stats_start(struct served_model *m, struct http_exchange *x);
void cache_clear_start(struct served_model *m, struct http_exchange *x);
/* Whether x is an admin's, and answers are kept. False: it was answered. */
bool cache_may(const struct served_model *m, struct http_exchange *x);
/* None will be answered any more; the exchanges are gone. */
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
/* None of this process' own texts gets a vector any more. */
void embeddings_end(struct served_model *m);

/* ---- command.c ---- */
void unpin_start(struct served_model *m, struct http_exchange *x);
void policy_start(struct served_model *m, struct http_exchange *x);
/* The answer to the oldest command. refuse NULL: it is done. */
void commands_answer(struct served_model *m, const struct wire_refuse *refuse);
/* None will be answered any more. */
void commands_end(struct served_model *m);

/* ---- ui.c ---- */
void root_start(struct served_model *m, struct http_exchange *x);
void ui_start(struct served_model *m, struct http_exchange *x);

/* ---- openapi.c ---- */
void openapi_start(struct served_model *m, struct http_exchange *x);

/* ---- scrape.c ---- */
/* stats NULL: the engine did not answer. */
typedef void (*scrape_answer)(struct served_model *m, struct http_exchange *x, const struct wire_stats *stats);
/* Answers when the engine has told its numbers, or in time without. */
void scrape_ask(struct served_model *m, struct http_exchange *x, scrape_answer answer);
/* Asks the engine for its numbers, unless that is under way. False: there is no engine. */
bool scrapes_question(struct served_model *m);
void scrape_start(struct served_model *m, struct http_exchange *x);
/* stats NULL: there will be none. */
void scrapes_answer(struct served_model *m, const struct wire_stats *stats);

#endif
