/* Declarations that the files of the front end share: the state of the server and its models; and, because nearly all
 * of them start or refuse requests, those of api/admission.h, api/starts.h and request_readers.h. Only server/front
 * includes it. Loop's thread, except where noted. */
#ifndef QUIRE_SERVER_FRONT_FRONT_INTERNAL_H
#define QUIRE_SERVER_FRONT_FRONT_INTERNAL_H

#include "server/cache/response_cache.h"
#include "server/front/api/admission.h"
#include "server/front/api/api_error.h"
#include "server/front/api/starts.h"
#include "server/front/body/params.h"
#include "server/front/body/request_job.h"
#include "server/front/fields/field_report.h"
#include "server/front/front.h"
#include "server/front/model_list.h"
#include "server/front/observe/metrics.h"
#include "server/front/observe/otlp.h"
#include "server/front/observe/prefix_watch.h"
#include "server/front/observe/timing.h"
#include "server/front/output/reply_bytes.h"
#include "server/front/request_readers.h"
#include "server/front/served_model.h"
#include "server/front/tenant/limits.h"
#include "server/front/tenant/tenants.h"
#include "server/front/text/text_pool.h"
#include "server/http/http.h"

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
struct stored_request;
struct more_routes;
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
    bool tenant_metrics, log_requests, strict_fields;
    struct field_log field_log;
    const struct more_routes *more; /* NULL: none */
    bool is_private; /* its clients are in this process, and have checked keys */
    struct otlp *otlp; /* NULL: no spans */
    char *version, *fingerprint;
    int64_t created; /* creation time of the models: the start of the server */
    uint32_t ping_ms, max_choices; /* max_choices: of a request */
    struct replies *replies; /* the memory of replies */
    struct response_store *responses; /* NULL: nothing is stored */
    bool draining;
    TAILQ_HEAD(, utility) utilities;
    TAILQ_HEAD(, scrape) scrapes;
    TAILQ_HEAD(, cache_clear) clears;
    TAILQ_HEAD(, stored_request) stored;
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
extern const struct http_handler front_handler; /* its context is the front */
extern const struct http_handler front_watcher_handler; /* likewise, for the listener for metrics */

#endif
