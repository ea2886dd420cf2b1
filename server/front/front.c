#include "server/front/front_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "server/front/output/turns.h"
#include "server/front/prompt_identity.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_THREADS 2
#define MAX_HEAD_BYTES 32768
#define MAX_PENDING_BYTES ((size_t)1 << 20)
#define LARGE_BYTES (1 << 20)
/* 1,024 overflowed when 30,000 connections came within 8 s: whoever knocks then is a second late. */
#define BACKLOG 4096
#define MAX_WATCHERS 64 /* connections to the listener for metrics */

/* ---- the engine ----------------------------------------------------------------------------- */

/* Once for each engine. */
static void say_arithmetic(const struct front *f, const struct wire_hello *hello)
{
    char text[WIRE_MAX_TEXT + 1];
    if (hello->n_arithmetic == 0)
        return;
    snprintf(text, sizeof text, "%.*s", (int)hello->n_arithmetic, hello->arithmetic);
    for (char *at = text; (at = strchr(at, '\n'));)
        *at = at[1] ? ' ' : '\0';
    quire_log(QUIRE_LOG_INFO, "server", "identity_arithmetic %s: %s", f->facts->arithmetic, text);
}

/* NULL: nothing that this engine computes may be used again, because it does not tell its identity, or because its bits depend
 * on what else it serves. */
static const struct key256 *identity_of(const struct wire_hello *hello)
{
    static const char off[] = "\ninvariance=off\n";
    const size_t n = sizeof off - 1;
    const bool is_off = memmem(hello->arithmetic, hello->n_arithmetic, off, n) != NULL;
    return hello->n_arithmetic == 0 || is_off ? NULL : &hello->identity_arithmetic;
}

static void on_ready(void *context, const struct wire_hello *hello)
{
    struct front *f = context;
    const struct model_facts *facts = model_facts_of(hello);
    if (!facts) {
        engine_client_give_up(f->engine, "there is no memory for what the engine says of its model");
        return;
    }
    model_facts_release(f->facts);
    f->facts = facts;
    turns_set_engine(f->turns, hello->max_num_seqs, hello->max_queued_requests, hello->max_num_batched_tokens);
    say_arithmetic(f, hello);
    if (f->cache) {
        response_cache_set_below(f->cache, engine_client_source(f->engine), identity_of(hello), hello->vocab_size);
        f->source = response_cache_source(f->cache);
    }
    f->engine_ready = f->engine_seen = true;
    f->engine_returns_ms = 0;
    if (f->on_engine_ready)
        f->on_engine_ready(f->context);
}

static void on_stats(void *context, const struct wire_stats *stats)
{
    scrapes_answer(context, stats);
}

static void on_control(void *context, const struct wire_refuse *refuse)
{
    commands_answer(context, refuse);
}

static void on_engine_drain(void *context)
{
    struct front *f = context;
    f->engine_draining = true;
}

static void on_closed(void *context, const char *why)
{
    struct front *f = context;
    f->engine_ready = f->engine_draining = false;
    scrapes_answer(f, NULL);
    commands_end(f);
    if (f->on_engine_gone)
        f->on_engine_gone(f->context, why);
}

static bool on_silent(void *context)
{
    const struct front *f = context;
    return f->on_engine_silent && f->on_engine_silent(f->context);
}

static const char *why_ended(void *context)
{
    const struct front *f = context;
    return f->why_engine_ended ? f->why_engine_ended(f->context) : NULL;
}

int front_set_engine(struct front *f, const struct front_engine *engine, struct quire_error *err)
{
    static const struct engine_client_events events = {on_ready,  on_stats,  on_control, on_engine_drain,
                                                       on_closed, on_silent, why_ended};
    struct wire_hello ours = {
        .version = WIRE_VERSION,
        .identity_text = engine->identity_text,
        .identity_config = engine->identity_config,
        .identity_generation = engine->identity_generation,
        .model = engine->model,
        .n_model = strlen(engine->model),
        .arithmetic = engine->law,
        .n_arithmetic = engine->law ? strlen(engine->law) : 0,
    };
    struct api_error e;
    snprintf(e.why.text, sizeof e.why.text, "the engine was replaced");
    api_fail_status(&e, QUIRE_IO, NULL);
    generations_end(f, &e);
    pins_end(f, &e);
    vectors_end(f, &e);
    embeddings_end(f);
    commands_end(f);
    engine_client_close(f->engine);
    f->engine = NULL;
    f->engine_ready = f->engine_draining = false;
    int status = engine_client_open(f->base, engine->stream, &ours, engine->key_file, &events, f, &f->engine, err);
    f->source = engine_client_source(f->engine);
    if (f->engine && f->cache && f->engine_seen) { /* what is kept is given until it is there */
        response_cache_await_below(f->cache, f->source);
        f->source = response_cache_source(f->cache);
    }
    return status;
}

bool front_engine_spoke(const struct front *f)
{
    return f->engine && engine_client_spoke(f->engine);
}

struct completion_source front_source(const struct front *f)
{
    return f->source;
}

void front_set_source(struct front *f, struct completion_source source)
{
    f->source = source;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static int copy_options(struct front *f, const struct front_options *o)
{
    f->text = o->text;
    f->allowed_origins = o->allowed_origins;
    f->n_allowed_origins = o->n_allowed_origins;
    f->allowed_hosts = o->allowed_hosts;
    f->n_allowed_hosts = o->n_allowed_hosts;
    f->tenants = o->tenants;
    f->tenant_metrics = o->tenant_metrics;
    f->log_requests = o->log_requests;
    f->cache = o->cache;
    f->share_answers = o->share_answers;
    f->compares = o->compares;
    f->price = o->price ? *o->price : (struct cache_price){-1, -1, -1};
    f->sampling = o->sampling;
    f->specials_in_messages = o->specials_in_messages;
    f->keeps_billing_header = o->keeps_billing_header;
    f->ping_ms = o->ping_ms ? o->ping_ms : 15000;
    f->max_choices = o->max_choices ? o->max_choices : 4096;
    f->on_engine_ready = o->on_engine_ready;
    f->on_engine_gone = o->on_engine_gone;
    f->on_engine_silent = o->on_engine_silent;
    f->why_engine_ended = o->why_engine_ended;
    f->context = o->context;
    f->created = (int64_t)time(NULL);
    f->model_root = strdup(o->model_root ? o->model_root : o->model_names[0]);
    f->version = strdup(o->version ? o->version : "");
    size_t n = strlen("quire-") + (f->version ? strlen(f->version) : 0) + 1;
    f->fingerprint = malloc(n);
    f->facts = model_facts_unknown();
    f->model_names = calloc(o->n_model_names, sizeof *f->model_names);
    if (!f->model_root || !f->version || !f->facts || !f->fingerprint || !f->model_names)
        return QUIRE_NO_MEMORY;
    memcpy(f->fingerprint, "quire-", 6);
    memcpy(f->fingerprint + 6, f->version, n - 6);
    for (size_t i = 0; i < o->n_model_names; i++, f->n_model_names++)
        if (!(f->model_names[i] = strdup(o->model_names[i])))
            return QUIRE_NO_MEMORY;
    return QUIRE_OK;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

static int open_watchers(struct front *f, const struct front_listen *where, const struct http_limits *limits,
                         struct quire_error *err)
{
    struct http_limits few = *limits;
    few.max_connections = MAX_WATCHERS;
    few.max_connections_per_address = MAX_WATCHERS;
    few.max_body_bytes = 0;
    return http_server_open(f->base, where->host, where->port, MAX_WATCHERS, &few, &front_watcher_handler, f,
                            &f->watchers, err);
}

/* How this model writes its calls: as is said, or as its chat template shows it. */
static int choose_tool_format(struct front *f, const char *name, struct quire_error *err)
{
    bool is_auto = !name || strcmp(name, "auto") == 0;
    f->tool_format = TOOL_NONE;
    if (!is_auto && !tool_format_find(name, &f->tool_format))
        return quire_fail(err, QUIRE_INVALID,
                          "tool-call-parser: there is no \"%s\"; there are auto, none, hermes and"
                          " llama3_json",
                          name);
    for (int i = TOOL_HERMES; is_auto && i <= TOOL_LLAMA3_JSON && f->tool_format == TOOL_NONE; i++)
        if (quire_text_chat_mentions(f->text, tool_format_tag((enum tool_format)i)))
            f->tool_format = (enum tool_format)i;
    const char *tag = tool_format_tag(f->tool_format);
    if (!tag)
        return QUIRE_OK;
    uint32_t *ids;
    size_t n_ids, n_text;
    char *text;
    int status = quire_text_encode(f->text, tag, strlen(tag), false, &ids, &n_ids, err);
    if (status != QUIRE_OK)
        return status;
    status = quire_text_decode(f->text, ids, n_ids, true, &text, &n_text, err);
    free(ids);
    if (status != QUIRE_OK)
        return status;
    f->is_tool_tag_special = n_text != strlen(tag);
    free(text);
    return QUIRE_OK;
}

static struct http_limits limits_of(const struct front_options *o)
{
    const size_t max_body = o->max_body_bytes ? o->max_body_bytes : (size_t)16 << 20;
    return (struct http_limits){
        .max_head_bytes = MAX_HEAD_BYTES,
        .max_body_bytes = max_body,
        .max_all_bodies_bytes = o->max_body_bytes ? 16 * max_body : (size_t)FRONT_BODIES_BYTES,
        .max_pending_bytes = MAX_PENDING_BYTES,
        .max_connections = or_default(o->max_connections, 4096),
        .max_connections_per_address = o->max_connections_per_address,
        .trusted = o->trusted_proxies,
        .n_trusted = o->n_trusted_proxies,
        .head_timeout_ms = or_default(o->head_timeout_ms, 15000),
        .body_timeout_ms = or_default(o->body_timeout_ms, 30000),
        .idle_timeout_ms = or_default(o->idle_timeout_ms, 75000),
        .write_timeout_ms = or_default(o->write_timeout_ms, 60000),
    };
}

static void prepare_process(void)
{
    /* Writing to a client that has gone must be an error, not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    /* jansson's hash seed is set once, before threads could. */
    json_object_seed(0);
    /* Copies of bodies and of long texts go back to the system as they are freed. Left to itself glibc raises the bound
     * to 32 MiB with the first of them and keeps them all: eight chats of 16 MiB at once then took 363 MiB instead of
     * 227, and left 123. A heap is not given back by its default of 128 KiB: encoding 64 KiB of prose took 34 ms so, and
     * 27 with 8 MiB. */
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BYTES);
}

static int open_parts(struct front *f, const struct front_options *o, struct quire_error *err)
{
    const struct http_limits limits = limits_of(o);
    int status = QUIRE_OK;
    if (copy_options(f, o) != QUIRE_OK)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && o->otlp_endpoint)
        status = otlp_open(o->otlp_endpoint, f->version, &f->otlp, err);
    if (status == QUIRE_OK)
        status = choose_tool_format(f, o->tool_call_parser, err);
    f->prompt_identity = prompt_identity(o->text, &o->sampling, o->specials_in_messages, (int)f->tool_format);
    f->chat_tells_time = quire_text_chat_mentions(o->text, "strftime_now");
    if (status == QUIRE_OK)
        status = text_pool_open(f->base, TEXT_THREADS, &f->pool, err);
    if (status == QUIRE_OK)
        status = turns_open(f->base, &f->turns, err);
    if (status == QUIRE_OK && !o->no_listener)
        status = http_server_open(f->base, o->host, o->port, o->backlog ? o->backlog : BACKLOG, &limits, &front_handler,
                                  f, &f->http, err);
    if (status == QUIRE_OK && o->metrics)
        status = open_watchers(f, o->metrics, &limits, err);
    return status;
}

int front_create(struct event_base *base, const struct front_options *o, struct front **out, struct quire_error *err)
{
    *out = NULL;
    if (o->n_model_names == 0)
        return quire_fail(err, QUIRE_INVALID, "a model needs a name to be served under");
    struct front *f = calloc(1, sizeof *f);
    if (!f)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    f->base = base;
    TAILQ_INIT(&f->generations);
    TAILQ_INIT(&f->utilities);
    TAILQ_INIT(&f->scrapes);
    TAILQ_INIT(&f->commands);
    TAILQ_INIT(&f->pins);
    TAILQ_INIT(&f->vectors);
    TAILQ_INIT(&f->embeddings);
    TAILQ_INIT(&f->clears);
    metrics_init(&f->metrics);
    metrics_init(&f->background);
    prepare_process();
    int status = open_parts(f, o, err);
    if (status != QUIRE_OK) {
        front_destroy(f);
        return status;
    }
    *out = f;
    if (o->no_listener)
        return QUIRE_OK;
    http_server_use_tls(f->http, o->tls);
    if (!tenants_ask_key(f->tenants) && !http_server_is_local(f->http))
        quire_log(QUIRE_LOG_WARN, "server",
                  "whoever can reach %s port %u may use the model, and nobody is asked for a key: give --api-key or "
                  "--tenants, or leave --host at 127.0.0.1",
                  o->host ? o->host : "0.0.0.0", http_server_port(f->http));
    return QUIRE_OK;
}

void front_destroy(struct front *f)
{
    if (!f)
        return;
    /* Connections go first: what they wait for is cancelled with them. */
    http_server_close(f->http);
    http_server_close(f->watchers);
    commands_end(f);
    cache_clears_end(f);
    text_pool_close(f->pool);
    turns_close(f->turns);
    engine_client_close(f->engine);
    otlp_close(f->otlp);
    prefix_watch_free(&f->prefixes);
    for (size_t i = 0; i < f->n_model_names; i++)
        free(f->model_names[i]);
    free(f->model_names);
    free(f->model_root);
    free(f->version);
    free(f->fingerprint);
    model_facts_release(f->facts);
    free(f);
}

void front_pair(struct front *f, struct front *vectors)
{
    f->beside = vectors;
    vectors->beside = f;
    vectors->is_second = true;
}

uint16_t front_port(const struct front *f)
{
    return http_server_port(f->http);
}

uint16_t front_metrics_port(const struct front *f)
{
    return f->watchers ? http_server_port(f->watchers) : 0;
}

void front_engine_returns(struct front *f, uint32_t in_ms)
{
    f->engine_returns_ms = quire_now_ms() + in_ms;
    f->n_engine_restarts++;
}

bool front_engine_answers(struct front *f)
{
    const bool moved = !f->engine_ready || engine_client_moved(f->engine);
    scrapes_question(f);
    return moved;
}

void front_engine_give_up(struct front *f, const char *why)
{
    if (f->engine)
        engine_client_give_up(f->engine, why);
}

void front_engine_died(struct front *f)
{
    f->engine_died = true;
}

void front_cancel(struct front *f)
{
    struct api_error e;
    api_fail(&e, 503, NULL, "server_draining",
             "the server is shutting down, and the request was not done in the time that was left");
    e.retry_ms = 1000;
    generations_end(f, &e);
    pins_end(f, &e);
    vectors_end(f, &e);
    if (f->beside)
        vectors_end(f->beside, &e);
    utilities_end(f, &e);
}

void front_drain(struct front *f, void (*on_idle)(void *context), void *context)
{
    f->draining = true;
    if (f->beside)
        f->beside->draining = true;
    http_server_on_idle(f->http, on_idle, context);
    http_server_drain(f->http);
}
