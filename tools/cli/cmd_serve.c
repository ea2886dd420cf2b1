/* quire serve: the OpenAI front end, with an engine in this process or elsewhere, on one event loop. Main thread. */
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/info.h"
#include "engine/plan.h"
#include "server/daemon/daemon.h"
#include "server/front/api/cors.h"
#include "server/front/api/foreign.h"
#include "server/link/upstream.h"
#include "server/front/front.h"
#include "server/http/address.h"
#include "server/http/tls.h"
#include "tools/beside/beside.h"
#include "tools/cache/cache_flags.h"
#include "tools/cli/command.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_flags.h"
#include "tools/cli/foreign_flags.h"
#include "tools/cli/watch/loading.h"
#include "tools/cli/watch/log_stats.h"
#include "tools/cli/serve_values.h"
#include "tools/cli/serving.h"
#include "tools/hub/cache.h"
#include "tools/cli/notify.h"
#include "tools/cache/warm.h"
#include "tools/cli/watch/watching.h"
#include "engine/engine.h"
#include "engine/model/describe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The listener for clients and the limits of their connections. */
struct http_settings {
    const char *host, *metrics_listen, *cert_file, *tls_key_file;
    char metrics_host[SERVE_HOST_BYTES];
    struct front_listen metrics; /* parsed metrics_listen */
    struct cli_list origins, hosts, proxies;
    struct http_network networks[CLI_MAX_LIST]; /* parsed proxies */
    size_t n_networks;
    uint32_t port;
    uint64_t max_body_bytes;
    uint32_t max_choices, max_connections, max_connections_per_address, header_timeout_s, body_timeout_s,
        idle_timeout_s, write_timeout_s;
};

/* The server's other options, without its engine's. */
struct serve_settings {
    const char *given; /* MODEL, as typed */
    const char *otlp_endpoint, *remote, *key_file, *tenants_file, *warm_file, *tool_call_parser;
    enum quire_specials specials_in_messages;
    bool keeps_billing_header, tenant_metrics, log_requests, disable_log_stats;
    struct cli_list api_keys, names, listen;
    char *environment_keys; /* holds the keys of api_keys if they come from the environment */
    uint32_t shutdown_timeout_s;
    uint32_t restarts; /* maximum in a row; 0: the engine is in this process */
};

struct serve {
    /* from the command line */
    struct http_settings *http;
    struct serve_settings *says;
    struct engine_options *options;
    struct watching *watching;
    struct cache_flags *cache_flags;
    struct beside_flags *beside_flags;
    char **engine_argv; /* arguments of the engine's process if it is separate */

    struct event_base *base;
    struct hub_model *model;
    struct serving_identity *identity;
    struct serving_signals *signals;
    struct serving_death *death;
    struct quire_text *text;
    struct sampling_defaults sampling;
    struct daemon *daemon; /* NULL with --engine */
    struct engine *engine; /* NULL with --engine */
    struct log_stats *log_stats;
    struct tls *tls; /* NULL: plain HTTP */
    struct tenants *tenants;
    uint32_t weights[TENANTS_MAX]; /* weights of the tenants, for the engine */
    struct response_cache *cache; /* NULL: off */
    struct front *front;
    struct served_model *served;
    struct beside *beside; /* NULL without --embedding-model */
    struct warming *warming; /* NULL without --warm, and before the engine is available */
    struct event *reload; /* NULL if nothing can be reloaded */
    bool draining;
    int exit_code;
    double started;
};

/* ---- warming ---- */

/* Once, at lower priority than live traffic. A failure does not stop the server. */
static void begin_warming(struct serve *s, const char *host)
{
    char url[300];
    struct quire_error err;
    if (!s->says->warm_file)
        return;
    snprintf(url, sizeof url, strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", s->tls ? "https" : "http", host,
             front_port(s->front));
    const char *key = s->says->api_keys.n > 0 ? s->says->api_keys.items[0] : NULL;
    if (warming_begin(url, key, s->says->warm_file, &s->warming, &err) != QUIRE_OK)
        quire_log(QUIRE_LOG_ERROR, "server", "--warm: %s", err.text);
}

static void on_beside_gone(void *context)
{
    struct serve *s = context;
    if (s->draining)
        return;
    s->exit_code = 1;
    event_base_loopbreak(s->base);
}

/* ---- availability of the engine ---- */

static void on_engine_ready(void *context, bool is_first)
{
    struct serve *s = context;
    const char *host = s->http->host && strcmp(s->http->host, "0.0.0.0") != 0 ? s->http->host : "127.0.0.1";
    if (!is_first) {
        quire_log(QUIRE_LOG_INFO, "server", "the engine is available again");
        return;
    }
    quire_log(QUIRE_LOG_INFO, "server", "%s ready on %s://%s:%u/v1 after %.2f s; /ui has chat and charts",
              s->says->names.items[0], s->tls ? "https" : "http", host, front_port(s->front),
              quire_now_s() - s->started);
    if (s->http->metrics_listen)
        quire_log(QUIRE_LOG_INFO, "server", "metrics and health, without a key, on port %u (%s)",
                  front_metrics_port(s->front), s->http->metrics_listen);
    notify_ready();
    begin_warming(s, host);
}

static void on_engine_awaited(void *context, const char *why)
{
    const struct serve *s = context;
    quire_log(QUIRE_LOG_WARN, "server", "waiting for the engine at %s: %s; port %u answers 503 until it is available",
              s->says->remote, why, front_port(s->front));
}

/* The server cannot continue. */
static void on_engine_lost(void *context, const char *what, const char *why)
{
    struct serve *s = context;
    s->exit_code = 1;
    if (s->draining)
        return;
    quire_log(QUIRE_LOG_ERROR, "server", "%s%s%s", what, why[0] ? ": " : "", why);
    event_base_loopbreak(s->base);
}

static void on_engine_ended_badly(void *context)
{
    ((struct serve *)context)->exit_code = 1;
}

/* The command line quire engine MODEL, with the engine's options of this command line. */
static int write_engine_argv(struct serve *s, const struct cli_command *command, int argc, char **argv,
                             const struct cli_option *rows, size_t n_rows, struct quire_error *err)
{
    static char quire[] = "quire", engine[] = "engine", listen[] = "--listen", key[] = "--engine-key-file",
                tenants[] = "--tenants", silent[] = "--disable-log-stats", json[] = "--log-format=json", end[] = "--";
    char **to = s->engine_argv = calloc((size_t)argc + 2 * s->says->listen.n + 16, sizeof *to);
    if (!to)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *to++ = quire;
    *to++ = engine;
    to += cli_pick(command, argc, argv, rows, n_rows, to);
    for (size_t i = 0; i < s->says->listen.n; i++) {
        *to++ = listen;
        *to++ = (char *)(uintptr_t)s->says->listen.items[i];
    }
    if (s->says->key_file) {
        *to++ = key;
        *to++ = (char *)(uintptr_t)s->says->key_file;
    }
    if (s->says->tenants_file) {
        *to++ = tenants;
        *to++ = (char *)(uintptr_t)s->says->tenants_file;
    }
    if (s->says->disable_log_stats)
        *to++ = silent;
    if (quire_log_format() == QUIRE_LOG_AS_JSON)
        *to++ = json;
    *to++ = end;
    *to = (char *)(uintptr_t)s->says->given;
    return QUIRE_OK;
}

/* ---- drain ---- */

static void on_front_idle(void *context)
{
    event_base_loopbreak(((struct serve *)context)->base);
}

static void on_drain(void *context)
{
    struct serve *s = context;
    s->draining = true;
    notify_stopping();
    warming_stop(s->warming);
    front_drain(s->front, on_front_idle, s);
}

static void on_give_up(void *context)
{
    front_cancel(((struct serve *)context)->front);
}

static void on_engine_died(void *context, const char *why)
{
    struct serve *s = context;
    (void)why; /* pending requests get the reason from the engine */
    if (s->served)
        upstream_fail(served_model_upstream(s->served), serving_death_hangs(s->death));
}

/* ---- tenants ---- */

static void on_reload(evutil_socket_t number, short what, void *context)
{
    struct serve *s = context;
    struct quire_error err;
    (void)number;
    (void)what;
    if (s->says->tenants_file && tenants_reload(s->tenants, quire_now_us(), &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "server", "%s was reloaded", s->says->tenants_file);
    else if (s->says->tenants_file)
        quire_log(QUIRE_LOG_ERROR, "server", "the tenants are unchanged: %s", err.text);
    if (s->tls && tls_reload(s->tls, &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "server", "%s was reloaded", s->http->cert_file);
    else if (s->tls)
        quire_log(QUIRE_LOG_ERROR, "server", "the certificate is unchanged: %s", err.text);
}

static int open_reload(struct serve *s, struct quire_error *err)
{
    if (!s->says->tenants_file && !s->tls)
        return QUIRE_OK;
    s->reload = evsignal_new(s->base, SIGHUP, on_reload, s);
    return s->reload && evsignal_add(s->reload, NULL) == 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INTERNAL, "signals cannot be watched");
}

static int open_tenants(struct serve *s, struct quire_error *err)
{
    _Static_assert(TENANTS_MAX <= SCHED_MAX_TENANTS, "the engine counts every tenant");
    int status;
    if (s->says->tenants_file)
        status = tenants_from_file(s->says->tenants_file, quire_now_us(), &s->tenants, err);
    else
        status = tenants_from_keys(s->says->api_keys.items, s->says->api_keys.n, quire_now_us(), &s->tenants, err);
    if (status != QUIRE_OK)
        return status;
    tenants_weights(s->tenants, s->weights);
    /* Space for tenants that a reloaded file, or another front end, may name. */
    s->options->policy_options.n_tenants = TENANTS_MAX;
    s->options->policy_options.tenant_weights = s->weights;
    return QUIRE_OK;
}

/* ---- opening ---- */

static int open_engine(struct serve *s, struct quire_error *err)
{
    const struct daemon_options options = {.identity_text = s->identity->text,
                                           .identity_config = s->identity->config,
                                           .identity_generation = s->identity->generation,
                                           .model = s->model->name};
    const struct recorder_about about = {.model = s->model->name, .config_sha256 = s->identity->config};
    int status = daemon_create(s->base, &options, &s->daemon, err);
    if (status == QUIRE_OK)
        status = watching_begin(s->watching, &about, s->options, err);
    if (status == QUIRE_OK)
        status = serving_death_begin(s->base, on_engine_died, s, &s->death, err);
    if (status == QUIRE_OK)
        status = watching_add(s->watching, s->options, serving_death_watch(s->death), err);
    if (status == QUIRE_OK)
        status = loading_engine_open(s->options, daemon_sink, s->daemon, &s->engine, err);
    if (status == QUIRE_OK)
        status = serving_death_mind(s->death, s->engine, err);
    if (status == QUIRE_OK && s->watching->recorder && engine_info(s->engine)->vector_size > 0)
        status = quire_fail(err, QUIRE_UNSUPPORTED,
                            "--record: vectors are not recorded, and this model computes only vectors");
    if (status != QUIRE_OK)
        return status;
    daemon_set_engine(s->daemon, s->engine);
    daemon_set_shadow(s->daemon, s->watching->shadow);
    for (size_t i = 0; status == QUIRE_OK && i < s->says->listen.n; i++)
        status = daemon_listen(s->daemon, s->says->listen.items[i], s->says->key_file, err);
    return status;
}

/* Opens the weights and the tokenizer in parallel. */
static int open_model(struct serve *s, struct quire_error *err)
{
    struct serving_text_load *load;
    struct model_desc desc;
    struct quire_error text_err;
    int status = model_describe(s->options->model_dir, &desc, &s->sampling, err);
    if (status == QUIRE_OK)
        status = serving_identity_read(s->options->model_dir, s->identity, err);
    if (status == QUIRE_OK)
        status = serving_text_begin(s->options->model_dir, &load, err);
    if (status != QUIRE_OK)
        return status;
    if (!s->says->remote && !s->says->restarts)
        status = open_engine(s, err);
    int text_status = serving_text_join(load, &s->text, &text_err);
    if (status == QUIRE_OK && text_status != QUIRE_OK) {
        if (err)
            *err = text_err;
        return text_status;
    }
    if (status == QUIRE_OK && quire_text_n_ids(s->text) > desc.vocab_size)
        return quire_fail(err, QUIRE_INVALID, "tokenizer.json: has token id %u, but config.json: vocab_size is %u",
                          quire_text_n_ids(s->text) - 1, desc.vocab_size);
    return status;
}

/* --semantic-cache: uses vectors of the embedding model. */
static int compare_questions(struct serve *s, struct quire_error *err)
{
    struct similar_options options = s->cache_flags->similar;
    struct similar *similar;
    struct redis_url redis;
    char path[4096];
    options.threshold = (float)s->cache_flags->threshold;
    options.n_numbers = beside_vectors(s->beside, &options.identity);
    if (cache_flags_beside(s->cache_flags, ".vectors", path, sizeof path))
        options.path = path;
    if (cache_flags_redis(s->cache_flags, &redis))
        options.shared = &redis;
    int status = similar_open(s->base, &options, served_model_embedder(beside_model(s->beside)), &similar, err);
    if (status != QUIRE_OK)
        return status;
    response_cache_compare(s->cache, similar);
    if (options.mode == SIMILAR_ANSWER)
        quire_log(
            QUIRE_LOG_WARN, "server",
            "--semantic-mode answer: what was answered to a similar question is given as it is, and some of these "
            "answers are wrong (docs/guides/caching.md); with --semantic-mode draft none is");
    return status;
}

static int add_models(struct serve *s, struct quire_error *err)
{
    const struct served_model_options model = {
        .names = s->says->names.items,
        .n_names = s->says->names.n,
        .root = s->says->given,
        .text = s->text,
        .specials_in_messages = s->says->specials_in_messages,
        .keeps_billing_header = s->says->keeps_billing_header,
        .tool_call_parser = s->says->tool_call_parser,
        .sampling = s->sampling,
        .cache = s->cache,
        .price = s->cache_flags->price.out >= 0 ? &s->cache_flags->price : NULL,
        .share_answers = s->cache_flags->share_all,
        .compares = s->cache_flags->semantic_model != NULL,
    };
    int status = front_add_model(s->front, &model, &s->served, err);
    if (status != QUIRE_OK || !s->beside_flags->model)
        return status;
    if (s->engine && engine_info(s->engine)->vector_size > 0)
        return quire_fail(err, QUIRE_INVALID, "--embedding-model: %s is an embedding model, too: serve one of the two",
                          s->model->name);
    status = beside_open(s->base, s->beside_flags, s->options, s->front, &model, on_beside_gone, s, &s->beside, err);
    if (status == QUIRE_OK)
        status = beside_connect(s->beside, err);
    return status == QUIRE_OK && s->cache_flags->semantic_model ? compare_questions(s, err) : status;
}

static int open_front(struct serve *s, struct quire_error *err)
{
    const struct front_options options = {
        .metrics = s->http->metrics_listen ? &s->http->metrics : NULL,
        .host = s->http->host,
        .port = (uint16_t)s->http->port,
        .tls = s->tls,
        .allowed_origins = s->http->origins.items,
        .n_allowed_origins = s->http->origins.n,
        .allowed_hosts = s->http->hosts.items,
        .n_allowed_hosts = s->http->hosts.n,
        .tenants = s->tenants,
        .tenant_metrics = s->says->tenant_metrics,
        .log_requests = s->says->log_requests,
        .otlp_endpoint = s->says->otlp_endpoint,
        .version = QUIRE_VERSION,
        .max_body_bytes = s->http->max_body_bytes,
        .max_choices = s->http->max_choices,
        .max_connections = s->http->max_connections,
        .max_connections_per_address = s->http->max_connections_per_address,
        .trusted_proxies = s->http->networks,
        .n_trusted_proxies = s->http->n_networks,
        .head_timeout_ms = 1000 * s->http->header_timeout_s,
        .body_timeout_ms = 1000 * s->http->body_timeout_s,
        .idle_timeout_ms = 1000 * s->http->idle_timeout_s,
        .write_timeout_ms = 1000 * s->http->write_timeout_s,
    };
    serving_allow_descriptors(s->http->max_connections);
    int status = front_create(s->base, &options, &s->front, err);
    return status == QUIRE_OK ? add_models(s, err) : status;
}

static int connect_engine(struct serve *s, struct quire_error *err)
{
    struct upstream *upstream = served_model_upstream(s->served);
    struct wire_stream *ends[2];
    const struct upstream_identity identity = {.model = s->model->name,
                                               .text = s->identity->text,
                                               .config = s->identity->config,
                                               .generation = s->identity->generation,
                                               .arithmetic = s->identity->law,
                                               .key_file = s->says->key_file};
    const struct upstream_owner owner = {.ready = on_engine_ready,
                                         .waiting = on_engine_awaited,
                                         .lost = on_engine_lost,
                                         .ended_badly = on_engine_ended_badly,
                                         .context = s};
    upstream_set_identity(upstream, &identity, &owner);
    if (s->says->remote)
        return upstream_connect(upstream, s->says->remote, err);
    if (s->says->restarts)
        return upstream_supervise(upstream, s->engine_argv, s->says->restarts, err);
    int status = wire_stream_pair(s->base, ends, err);
    if (status != QUIRE_OK)
        return status;
    status = daemon_add_connection(s->daemon, ends[0], err);
    if (status != QUIRE_OK) {
        wire_stream_close(ends[1]);
        return status;
    }
    return upstream_attach(upstream, ends[1], err);
}

static int open_all(struct serve *s, struct quire_error *err)
{
    s->started = quire_now_s();
    s->base = event_base_new();
    if (!s->base)
        return quire_fail(err, QUIRE_INTERNAL, "libevent cannot create an event loop");
    if (s->says->names.n == 0)
        s->says->names.items[s->says->names.n++] = s->model->name;
    int status = open_tenants(s, err);
    if (status == QUIRE_OK && s->http->cert_file)
        status = tls_open(s->http->cert_file, s->http->tls_key_file, &s->tls, err);
    if (status == QUIRE_OK)
        status = open_reload(s, err);
    if (status == QUIRE_OK)
        status = cache_flags_begin(s->cache_flags, s->base, err);
    if (status == QUIRE_OK)
        status = open_model(s, err);
    if (status == QUIRE_OK && cache_flags_on(s->cache_flags))
        status = response_cache_open(s->base, &s->cache_flags->options, &s->cache, err);
    if (status == QUIRE_OK)
        status = open_front(s, err);
    if (status == QUIRE_OK)
        status = connect_engine(s, err);
    const struct serving_drain drain = {on_drain, on_give_up, s, s->says->shutdown_timeout_s};
    if (status == QUIRE_OK)
        status = serving_signals_begin(s->base, &drain, &s->signals, err);
    return status;
}

static void close_all(struct serve *s)
{
    serving_signals_end(s->signals);
    warming_end(s->warming);
    front_destroy(s->front);
    free(s->engine_argv);
    if (s->cache) /* vectors of the embedding model may still arrive */
        response_cache_compare(s->cache, NULL);
    beside_close(s->beside);
    response_cache_close(s->cache);
    log_stats_end(s->log_stats);
    engine_close(s->engine);
    watching_end(s->watching);
    daemon_close(s->daemon);
    serving_death_end(s->death);
    if (s->reload)
        event_free(s->reload);
    tls_free(s->tls);
    free(s->says->environment_keys);
    tenants_free(s->tenants);
    quire_text_close(s->text);
    if (s->base)
        event_base_free(s->base);
}

static void log_engine(const struct serve *s)
{
    if (!s->engine)
        return;
    const struct engine_info *info = engine_info(s->engine);
    const struct engine_plan *plan = info->plan;
    quire_log(QUIRE_LOG_INFO, "engine", "%s on %s; GEMM form: %s", info->desc->architecture, info->device_why,
              info->gemms);
    quire_log(QUIRE_LOG_INFO, "engine",
              "%s; KV cache %s in blocks of %u tokens, %s for everything else; context %u, %u sequences at once",
              info->placement, quire_size(plan->kv_bytes).text, plan->block_tokens,
              quire_size(plan->total_bytes - plan->kv_bytes).text, plan->max_model_len, plan->max_num_seqs);
}

static size_t http_flags(struct serve *s, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "HTTP:", .kind = CLI_GROUP},
        {.names = "host", .kind = CLI_STRING, .target = &s->http->host, .value = "HOST",
         .common = true, .help = "Listen on this address; default 127.0.0.1, this machine only. 0.0.0.0 listens on all interfaces."},
        {.names = "port", .kind = CLI_U32, .target = &s->http->port, .max = 65535, .value = "N",
         .common = true, .help = "Listen on this port; default 8000, 0 for any free port. The log shows the port."},
        {.names = "ssl-certfile", .kind = CLI_STRING, .target = &s->http->cert_file, .value = "FILE",
         .common = true, .help = "Serve HTTPS with this certificate (PEM, with its chain). SIGHUP reloads it."},
        {.names = "ssl-keyfile", .kind = CLI_STRING, .target = &s->http->tls_key_file, .value = "FILE",
         .common = true, .help = "Private key of the certificate, not encrypted. Default: the key in the certificate's file."},
        {.names = "allowed-origins", .kind = CLI_LIST, .target = &s->http->origins, .value = "ORIGIN",
         .help = "Allow web pages from this origin to use the API (CORS); * for all. May be repeated. Default: the "
                 "server's own pages only."},
        {.names = "allowed-hosts", .kind = CLI_LIST, .target = &s->http->hosts, .value = "NAME",
         .help = "Without keys, on a loopback address: further host names, in addition to localhost, that browsers "
                 "may use; * for all. May be repeated."},
        {.names = "api-key", .kind = CLI_LIST, .target = &s->says->api_keys, .value = "KEY",
         .common = true, .help = "Require one of these keys as bearer token. May be repeated. Default: $QUIRE_API_KEY, separated by "
                 "commas; other users of this machine cannot read it from the command line."},
        {.names = "tenants", .kind = CLI_STRING, .target = &s->says->tenants_file, .value = "FILE",
         .common = true, .help = "Read keys, weights, classes and limits from this file. SIGHUP reloads it. See "
                 "docs/reference/http-api.md."},
        {.names = "warm", .kind = CLI_STRING, .target = &s->says->warm_file, .value = "FILE",
         .help = "Fill the prefix cache at start with the prompts of this file, at lower priority than live traffic "
                 "(quire cache warm --help). With --api-key: for the first key."},
        {.names = "tenant-metrics", .kind = CLI_FLAG, .target = &s->says->tenant_metrics,
         .help = "Also export metrics per tenant on /metrics."},
        {.names = "metrics-listen", .kind = CLI_STRING, .target = &s->http->metrics_listen, .value = "ADDRESS",
         .help = "Also serve /metrics and /health, and nothing else, on HOST:PORT without a key. For Prometheus and "
                 "probes, on an address that clients do not reach."},
        {.names = "log-requests", .kind = CLI_FLAG, .target = &s->says->log_requests,
         .common = true,
         .help = "Log one line per generating request, never its text. The line has ids, tenant, status, tokens and "
                 "times."},
        log_stats_option(&s->says->disable_log_stats),
        SERVING_LOG_FORMAT_OPTION,
        {.names = "otlp-endpoint", .kind = CLI_STRING, .target = &s->says->otlp_endpoint, .value = "URL",
         .help = "Send a span for each generating request to this OpenTelemetry collector over HTTP, such as "
                 "http://HOST:4318. Continues the traces of callers (traceparent)."},
        {.names = "served-model-name", .kind = CLI_LIST, .target = &s->says->names, .value = "NAME",
         .common = true, .help = "Model name for requests; may be repeated. Default: MODEL's name, or the directory's."},
        {.names = "tool-call-parser", .kind = CLI_STRING, .target = &s->says->tool_call_parser, .value = "NAME",
         .help = "Format of the model's tool calls: auto, hermes (also Qwen), llama3_json, or none to leave them in "
                 "the text. Default auto: detected from the chat template."},
        {.names = "special-tokens-in-messages", .kind = CLI_PARSED, .parse = serve_parse_specials, .target = &s->says->specials_in_messages, .value = "text|encode|refuse",
         .help = "How to treat special tokens such as <|im_end|> in messages: as text, as tokens (encode), or reply "
                 "400 (refuse). Default text."},
        {.names = "keep-billing-header", .kind = CLI_FLAG, .target = &s->says->keeps_billing_header,
         .help = "Keep the line \"x-anthropic-billing-header: ...\" in system prompts of /v1/messages. It changes with each "
                 "request and defeats the prefix cache. Default: the line is removed."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t connection_flags(struct serve *s, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Connection limits:", .kind = CLI_GROUP},
        {.names = "max-connections", .kind = CLI_U32, .target = &s->http->max_connections, .min = 1, .max = 1000000, .value = "N",
         .help = "Maximum number of open connections; default 4096. At the limit, the server closes the connection "
                 "that has waited longest for a request or the rest of one."},
        {.names = "max-connections-per-address", .kind = CLI_U32, .target = &s->http->max_connections_per_address, .min = 1, .max = 1000000, .value = "N",
         .help = "Maximum number of connections of one IPv4 address or one IPv6 /64. Default: half of "
                 "--max-connections."},
        {.names = "trusted-proxies", .kind = CLI_LIST, .target = &s->http->proxies, .value = "CIDR,...",
         .help = "Addresses and networks of proxies, which have no limit per address. May be repeated."},
        {.names = "max-body-size", .kind = CLI_BYTES, .target = &s->http->max_body_bytes, .min = 1024, .max = 4294967296.0, .value = "SIZE",
         .help = "Maximum size of a request body, such as 64M. All bodies together may have 16 times this size. "
                 "Default 16M."},
        {.names = "max-choices-per-request", .kind = CLI_U32, .target = &s->http->max_choices, .min = 1, .max = 65536, .value = "N",
         .help = "Maximum number of choices (prompts x n) of one request. They wait in the server and go to the "
                 "engine as its queue allows. Default 4096."},
        {.names = "header-timeout", .kind = CLI_U32, .target = &s->http->header_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for the headers of a request. Default 15."},
        {.names = "body-timeout", .kind = CLI_U32, .target = &s->http->body_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for the body, in addition to the time it needs at 16 KiB/s. Default 30."},
        {.names = "keep-alive-timeout", .kind = CLI_U32, .target = &s->http->idle_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for the next request on a connection. Use a longer time than the proxy in front. "
                 "Default 75."},
        {.names = "write-timeout", .kind = CLI_U32, .target = &s->http->write_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for a client to read some of its reply. Default 60."},
        serving_shutdown_option(&s->says->shutdown_timeout_s),
        {.names = "Engine process:", .kind = CLI_GROUP},
        serve_restart_option(&s->says->restarts),
        {.names = "engine", .kind = CLI_STRING, .target = &s->says->remote, .value = "ADDRESS",
         .common = true,
         .help = "Use the engine at unix:PATH or tcp:HOST:PORT (quire engine). The server waits until it is "
                 "available. It reads only the tokenizer and the configuration of MODEL."},
        {.names = "listen", .kind = CLI_LIST, .target = &s->says->listen, .value = "ADDRESS",
         .help = "Let other front ends use this engine, too. May be repeated."},
        {.names = "engine-key-file", .kind = CLI_STRING, .target = &s->says->key_file, .value = "PATH",
         .help = "File with the secret shared with engines or front ends at tcp: addresses."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

/* Checks of several options together. of_engine: the first option on the command line that only an in-process engine
 * has, or NULL. */
static int check(struct serve *s, const char *of_engine, struct quire_error *err)
{
    const char *wrong = NULL;
    if (!s->says->given)
        wrong = "MODEL is missing; usage: quire serve MODEL [options]";
    else if (s->says->remote && s->says->listen.n > 0)
        wrong = "--listen needs an engine in this process; leave out --listen or --engine";
    else if (s->says->remote && strncmp(s->says->remote, "tcp:", 4) == 0 && !s->says->key_file)
        wrong = "--engine tcp:HOST:PORT needs --engine-key-file, the file with the secret shared with the engine";
    else if (s->says->remote && of_engine)
        return quire_fail(err, QUIRE_INVALID,
                          "--%.*s is for an engine in this process; with --engine, give it to quire engine",
                          (int)strcspn(of_engine, ","), of_engine);
    else if (s->says->remote && s->says->restarts)
        wrong = "--restart is for an engine of this server; with --engine, the server always waits for the engine";
    else if (s->says->warm_file && !s->options->prefix_caching)
        wrong = "--warm fills the prefix cache, which is off: leave out --no-enable-prefix-caching";
    else if (s->says->warm_file && s->says->tenants_file)
        wrong = "--warm fills the cache of one key; with --tenants, use quire cache warm --api-key KEY";
    else if (s->says->tenants_file && s->says->api_keys.n > 0)
        wrong = "--api-key cannot be used with --tenants, which lists all keys";
    else if (s->http->tls_key_file && !s->http->cert_file)
        wrong = "--ssl-keyfile needs --ssl-certfile, the certificate of the key";
    if (wrong)
        return quire_fail(err, QUIRE_INVALID, "%s", wrong);
    if (s->http->metrics_listen &&
        serve_metrics_listen(s->http->metrics_listen, s->http->metrics_host, &s->http->metrics, err) != QUIRE_OK)
        return QUIRE_INVALID;
    for (size_t i = 0; i < s->http->origins.n; i++)
        if (cors_check(s->http->origins.items[i], err) != QUIRE_OK) {
            quire_error_prefix(err, "--allowed-origins");
            return QUIRE_INVALID;
        }
    for (size_t i = 0; i < s->http->hosts.n; i++)
        if (foreign_check_host(s->http->hosts.items[i], err) != QUIRE_OK) {
            quire_error_prefix(err, "--allowed-hosts");
            return QUIRE_INVALID;
        }
    for (size_t i = 0; i < s->http->proxies.n; i++)
        if (http_networks_parse(s->http->proxies.items[i], s->http->networks, CLI_MAX_LIST, &s->http->n_networks,
                                err) != QUIRE_OK) {
            quire_error_prefix(err, "--trusted-proxies");
            return QUIRE_INVALID;
        }
    const char *semantic = s->cache_flags->semantic_model;
    if (semantic && s->beside_flags->model && strcmp(semantic, s->beside_flags->model) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--semantic-cache %s: --embedding-model is %s; both options must name the same model",
                          semantic, s->beside_flags->model);
    if (semantic)
        s->beside_flags->model = semantic;
    if (beside_check(s->beside_flags, err) != QUIRE_OK)
        return QUIRE_INVALID;
    if (cache_flags_check(s->cache_flags, err) != QUIRE_OK)
        return QUIRE_INVALID;
    return serving_check_listen(s->says->listen.items, s->says->listen.n, s->says->key_file, err);
}

static int run(struct serve *s, struct quire_error *err)
{
    int status = hub_model_find(s->says->given, s->says->remote != NULL, s->model, err);
    s->options->model_dir = s->model->dir;
    if (status == QUIRE_OK)
        status = open_all(s, err);
    if (status == QUIRE_OK && s->engine && !s->says->disable_log_stats)
        status = log_stats_begin(s->base, s->engine, LOG_STATS_EVERY_MS, &s->log_stats, err);
    if (status == QUIRE_OK) {
        log_engine(s);
        event_base_dispatch(s->base);
        serving_death_leave(s->death);
        if (serving_death_was(s->death) || beside_died(s->beside))
            s->exit_code = 1;
    }
    close_all(s);
    return status;
}

int command_serve(int argc, char **argv)
{
    struct http_settings http = {.host = "127.0.0.1", .port = 8000, .max_connections = 4096};
    struct serve_settings says = {.specials_in_messages = QUIRE_SPECIALS_TEXT};
    struct engine_options options;
    struct watching watching = {0};
    struct cache_flags cache = {0};
    struct beside_flags beside = {0};
    struct hub_model model = {0};
    struct serving_identity identity = {0};
    struct serve s = {.http = &http,
                      .says = &says,
                      .options = &options,
                      .watching = &watching,
                      .cache_flags = &cache,
                      .beside_flags = &beside,
                      .model = &model,
                      .identity = &identity};
    struct cli_option rows[ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX + CACHE_FLAGS_MAX + BESIDE_FLAGS_MAX + 60];
    struct quire_error err;
    bool given[ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX] = {false};

    engine_options_default(&options);
    size_t n = http_flags(&s, rows);
    n += connection_flags(&s, rows + n);
    n += cache_flags(&cache, rows + n);
    n += beside_flags(&beside, rows + n);
    const size_t n_own = n;
    n += engine_flags(&options, rows + n);
    n += watching_flags(&watching, rows + n);
    rows[n] = (struct cli_option){0};
    cli_note_given(rows + n_own, n - n_own, given);
    const struct cli_command command = {
        .name = "serve",
        .usage = "quire serve MODEL [options]",
        .about =
            "Serves MODEL over the OpenAI API (docs/reference/http-api.md), with a web page for chat and charts at /ui.\n"
            "MODEL is a Hugging Face checkpoint directory or the name of a downloaded model (quire pull;\n"
            "docs/start/models.md). SIGTERM finishes running requests (--shutdown-timeout) and ends the server; a\n"
            "second SIGTERM ends it at once.",
        .examples = "examples:\n"
                    "  quire serve ./Qwen2.5-1.5B-Instruct\n"
                    "  quire serve Qwen/Qwen2.5-1.5B-Instruct\n"
                    "  quire serve ./model --host 0.0.0.0 --api-key \"$KEY\" --served-model-name chat\n"
                    "  quire serve ./model --engine unix:/run/quire/engine.sock",
        .options = rows,
        .positionals = {&says.given},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (check(&s, cli_first_given(rows + n_own, n - n_own), &err) != QUIRE_OK)
        return command_fail(2, err.text);
    if (!says.remote && command_as_rank(says.given, &options, &code))
        return code;
    if (!says.tenants_file && serve_keys_of_environment(&says.api_keys, &says.environment_keys, &err) != QUIRE_OK) {
        free(says.environment_keys);
        return command_fail(2, err.text);
    }
    if (says.restarts && write_engine_argv(&s, &command, argc, argv, rows + n_own, n - n_own, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    return run(&s, &err) == QUIRE_OK ? s.exit_code : command_fail(1, err.text);
}
