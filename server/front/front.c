#include "server/front/front_internal.h"

#include "base/clock.h"
#include "base/encoding/json.h"
#include "base/log.h"
#include "server/front/grammar/grammar_pool.h"
#include "server/front/responses/response_store.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_THREADS 2
#define GRAMMAR_THREADS 2
#define MAX_HEAD_BYTES 32768
#define MAX_PENDING_BYTES ((size_t)1 << 20)
#define LARGE_BYTES (1 << 20)
/* 1,024 overflowed when 30,000 connections came within 8 s: clients that connect during an overflow are delayed by a
 * second. */
#define BACKLOG 4096
#define MAX_WATCHERS 64 /* connections to the listener for metrics */

/* ---- opening and closing -------------------------------------------------------------------- */

static int copy_options(struct front *f, const struct front_options *o)
{
    f->allowed_origins = o->allowed_origins;
    f->n_allowed_origins = o->n_allowed_origins;
    f->allowed_hosts = o->allowed_hosts;
    f->n_allowed_hosts = o->n_allowed_hosts;
    f->tenants = o->tenants;
    f->is_private = o->is_private;
    f->more = o->more;
    f->tenant_metrics = o->tenant_metrics;
    f->log_requests = o->log_requests;
    f->strict_fields = o->strict_fields;
    field_log_init(&f->field_log);
    f->ping_ms = o->ping_ms ? o->ping_ms : 15000;
    f->max_choices = o->max_choices ? o->max_choices : 4096;
    f->created = (int64_t)time(NULL);
    f->version = strdup(o->version ? o->version : "");
    f->replies = calloc(1, sizeof *f->replies);
    size_t n = strlen("quire-") + (f->version ? strlen(f->version) : 0) + 1;
    f->fingerprint = malloc(n);
    if (!f->version || !f->replies || !f->fingerprint)
        return QUIRE_NO_MEMORY;
    memcpy(f->fingerprint, "quire-", 6);
    memcpy(f->fingerprint + 6, f->version, n - 6);
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

static struct http_limits limits_of(const struct front_options *o)
{
    const size_t max_body = o->max_body_bytes ? o->max_body_bytes : (size_t)16 << 20;
    return (struct http_limits){
        .max_head_bytes = MAX_HEAD_BYTES,
        .max_body_bytes = max_body,
        .max_streamed_bytes = o->max_streamed_bytes,
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
    /* A write to a client that has disconnected must be an error, not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    /* Sets jansson's hash seed once, before other threads could. */
    json_object_seed(0);
    /* Returns the memory of bodies and long texts to the system when they are freed. By default, glibc raises the
     * threshold to 32 MiB with the first of them and keeps them all: eight simultaneous chats of 16 MiB then took 363
     * MiB instead of 227, and 123 remained. The heap is not trimmed at its default of 128 KiB: with it, encoding 64
     * KiB of prose took 34 ms, and 27 ms with 8 MiB. */
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BYTES);
}

/* If requests need keys, a tenant has at most a quarter: otherwise one could push out all others' responses. */
static int open_responses(struct front *f, const struct front_responses *o, struct quire_error *err)
{
    const struct response_store_options options = {
        .path = o->path,
        .max_bytes = o->max_bytes,
        .max_tenant_bytes = tenants_ask_key(f->tenants) ? o->max_bytes / 4 : o->max_bytes,
        .ttl_s = o->ttl_s,
    };
    return response_store_open(&options, &f->responses, err);
}

static int open_parts(struct front *f, const struct front_options *o, struct quire_error *err)
{
    const struct http_limits limits = limits_of(o);
    int status = QUIRE_OK;
    if (copy_options(f, o) != QUIRE_OK)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && o->otlp_endpoint)
        status = otlp_open(o->otlp_endpoint, f->version, &f->otlp, err);
    if (status == QUIRE_OK && o->responses.max_bytes > 0)
        status = open_responses(f, &o->responses, err);
    if (status == QUIRE_OK)
        status = text_pool_open(f->base, TEXT_THREADS, &f->pool, err);
    if (status == QUIRE_OK)
        status = grammar_pool_open(f->base, GRAMMAR_THREADS, &f->grammars, err);
    if (status == QUIRE_OK && o->is_private)
        status = http_server_open_private(f->base, &limits, &front_handler, f, &f->http, err);
    else if (status == QUIRE_OK)
        status = http_server_open(f->base, o->host, o->port, o->backlog ? o->backlog : BACKLOG, &limits, &front_handler,
                                  f, &f->http, err);
    if (status == QUIRE_OK && o->metrics)
        status = open_watchers(f, o->metrics, &limits, err);
    return status;
}

int front_create(struct event_base *base, const struct front_options *o, struct front **out, struct quire_error *err)
{
    *out = NULL;
    struct front *f = calloc(1, sizeof *f);
    if (!f)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    f->base = base;
    TAILQ_INIT(&f->models);
    TAILQ_INIT(&f->utilities);
    TAILQ_INIT(&f->scrapes);
    TAILQ_INIT(&f->clears);
    TAILQ_INIT(&f->stored);
    prepare_process();
    int status = open_parts(f, o, err);
    if (status != QUIRE_OK) {
        front_destroy(f);
        return status;
    }
    *out = f;
    http_server_use_tls(f->http, o->tls);
    if (!tenants_ask_key(f->tenants) && !http_server_is_local(f->http))
        quire_log(
            QUIRE_LOG_WARN, "server",
            "every machine that reaches %s port %u may use the model without a key: set --api-key or --tenants, or "
            "leave --host at 127.0.0.1",
            o->host ? o->host : "0.0.0.0", http_server_port(f->http));
    return QUIRE_OK;
}

void front_destroy(struct front *f)
{
    struct served_model *m;
    if (!f)
        return;
    /* Closes connections first: this cancels the requests behind them. */
    http_server_close(f->http);
    http_server_close(f->watchers);
    cache_clears_end(f);
    f->draining = true;
    TAILQ_FOREACH(m, &f->models, link)
    {
        commands_end(m);
        embeddings_end(m);
    }
    text_pool_close(f->pool);
    grammar_pool_close(f->grammars);
    while ((m = TAILQ_FIRST(&f->models))) {
        TAILQ_REMOVE(&f->models, m, link);
        served_model_free(m);
    }
    response_store_close(f->responses);
    otlp_close(f->otlp);
    model_list_release(f->list);
    free(f->replies);
    free(f->version);
    free(f->fingerprint);
    free(f);
}

uint16_t front_port(const struct front *f)
{
    return http_server_port(f->http);
}

int front_accept(struct front *f, int fd)
{
    return http_server_adopt(f->http, fd);
}

uint16_t front_metrics_port(const struct front *f)
{
    return f->watchers ? http_server_port(f->watchers) : 0;
}

void front_cancel(struct front *f)
{
    struct api_error e;
    api_fail(&e, 503, NULL, "server_draining",
             "the server is shutting down, and the request was not done in the time that was left");
    e.retry_ms = 1000;
    struct served_model *m;
    TAILQ_FOREACH(m, &f->models, link)
    {
        served_model_end_requests(m, &e);
    }
    utilities_end(f, &e);
    stored_requests_end(f, &e);
}

void front_drain(struct front *f, void (*on_idle)(void *context), void *context)
{
    const struct served_model *m;
    f->draining = true;
    TAILQ_FOREACH(m, &f->models, link)
    {
        upstream_drain(m->upstream);
    }
    http_server_on_idle(f->http, on_idle, context);
    http_server_drain(f->http);
}
