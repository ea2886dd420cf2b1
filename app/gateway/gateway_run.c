#include "app/gateway/gateway_run.h"

#include "app/gateway/engines.h"
#include "app/serve/serve_access.h"
#include "app/serving/descriptors.h"
#include "app/serving/notify.h"
#include "app/serving/server_list.h"
#include "app/serving/signals.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/bulk/bulk.h"
#include "server/gateway/gateway.h"

#include <signal.h>
#include <string.h>

#define MAX_HEAD_BYTES 32768
#define MAX_PENDING_BYTES ((size_t)1 << 20)
#define MAX_BODY_BYTES ((size_t)16 << 20)
#define MAX_BODIES ((size_t)16)

struct running {
    struct gateway_flags *flags;
    struct event_base *base;
    struct serve_access access;
    struct serving_signals *signals;
    struct event *hangup;
    struct ledger *ledger;
    struct engines *engines;
    struct bulk *bulk;
    uint32_t n_unfinished; /* batches, once it drains */
    struct gateway *gateway;
    struct server_entry *entry; /* its row of quire ps */
};

/* ---- signals -------------------------------------------------------------------------------- */

static void on_idle(void *context)
{
    event_base_loopbreak(((struct running *)context)->base);
}

static void on_drain(void *context)
{
    struct running *r = context;
    notify_stopping();
    r->n_unfinished = bulk_stop(r->bulk);
    gateway_drain(r->gateway, on_idle, r);
}

static void on_give_up(void *context)
{
    struct running *r = context;
    gateway_cancel(r->gateway);
    engines_cancel(r->engines);
}

/* "FILE:LINE:COLUMN: ...", as the file's own errors. */
static void name_file(struct quire_error *err, const char *path)
{
    struct quire_error said = *err;
    quire_fail(err, QUIRE_INVALID, "%s:%.400s", path, said.text);
}

static int use_file(struct running *r, struct quire_error *err)
{
    const struct gateway_config *config;
    int status = models_file_read(r->flags->serve->says->models_file, &config, err);
    if (status != QUIRE_OK)
        return status;
    status = engines_use(r->engines, config, true, err);
    if (status != QUIRE_OK)
        name_file(err, r->flags->serve->says->models_file);
    if (status == QUIRE_OK)
        status = gateway_use(r->gateway, config, err);
    models_file_release(config);
    return status;
}

static void on_hangup(evutil_socket_t number, short what, void *context)
{
    struct running *r = context;
    struct quire_error err;
    (void)number;
    (void)what;
    if (use_file(r, &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "gateway", "%s was reloaded", r->flags->serve->says->models_file);
    else
        quire_log(QUIRE_LOG_ERROR, "gateway", "the models are unchanged: %s", err.text);
}

static int begin_signals(struct running *r, struct quire_error *err)
{
    const struct serving_drain drain = {on_drain, on_give_up, r, r->flags->serve->says->shutdown_timeout_s};
    r->hangup = evsignal_new(r->base, SIGHUP, on_hangup, r);
    if (!r->hangup || evsignal_add(r->hangup, NULL) != 0)
        return quire_fail(err, QUIRE_INTERNAL, "signals cannot be watched");
    return serving_signals_begin(r->base, &drain, &r->signals, err);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static uint32_t ms_or(uint32_t seconds, uint32_t otherwise_ms)
{
    return seconds > 0 ? 1000 * seconds : otherwise_ms;
}

static struct http_limits limits_of(const struct http_settings *h)
{
    const size_t body = h->max_body_bytes ? h->max_body_bytes : MAX_BODY_BYTES;
    return (struct http_limits){
        .max_head_bytes = MAX_HEAD_BYTES,
        .max_body_bytes = body,
        .max_streamed_bytes = BULK_MAX_UPLOAD_BYTES,
        .max_all_bodies_bytes = MAX_BODIES * body,
        .max_pending_bytes = MAX_PENDING_BYTES,
        .max_connections = h->max_connections,
        .max_connections_per_address = h->max_connections_per_address,
        .trusted = h->networks,
        .n_trusted = h->n_networks,
        .head_timeout_ms = ms_or(h->header_timeout_s, 15000),
        .body_timeout_ms = ms_or(h->body_timeout_s, 30000),
        .idle_timeout_ms = ms_or(h->idle_timeout_s, 75000),
        .write_timeout_ms = ms_or(h->write_timeout_s, 60000),
    };
}

static int open_gateway(struct running *r, const struct gateway_config *config, struct quire_error *err)
{
    const struct http_settings *h = r->flags->serve->http;
    const struct http_limits limits = limits_of(h);
    const struct gateway_options options = {
        .host = h->host,
        .port = (uint16_t)h->port,
        .tls = r->access.tls,
        .limits = &limits,
        .pages = {.origins = h->origins.items,
                  .n_origins = h->origins.n,
                  .hosts = h->hosts.items,
                  .n_hosts = h->hosts.n},
        .tenants = r->access.tenants,
        .ledger = r->ledger,
        .engines = {engines_socket, engines_has_chat, r->engines},
        .log_requests = r->flags->serve->says->log_requests,
        .version = QUIRE_VERSION,
        .upstream_timeout_ms = 1000 * r->flags->upstream_timeout_s,
        .more = bulk_routes(r->bulk),
    };
    return gateway_open(r->base, &options, config, &r->gateway, err);
}

static int open_bulk(struct running *r, struct quire_error *err)
{
    const struct bulk_options o = {
        .settings = r->flags->serve->bulk, .tenants = r->access.tenants, .on_notice = bulk_flags_on_notice};
    return bulk_open(r->base, &o, &r->bulk, err);
}

static int open_all(struct running *r, const struct gateway_config *config, struct quire_error *err)
{
    serving_allow_descriptors(3 *
                              r->flags->serve->http->max_connections); /* a client, a target, an engine's front end */
    int status = serve_access_open(r->base, r->flags->serve, &r->access, err);
    if (status == QUIRE_OK)
        status = ledger_open(r->base, r->flags->ledger_file, &r->ledger, err);
    if (status == QUIRE_OK)
        status = engines_begin(r->base, r->access.tenants, &r->engines, err);
    if (status == QUIRE_OK && engines_use(r->engines, config, false, err) != QUIRE_OK) {
        name_file(err, r->flags->serve->says->models_file);
        status = QUIRE_INVALID;
    }
    if (status == QUIRE_OK)
        status = open_bulk(r, err);
    if (status == QUIRE_OK)
        status = open_gateway(r, config, err);
    if (status == QUIRE_OK)
        status = bulk_start(r->bulk, gateway_inside(r->gateway), err);
    if (status == QUIRE_OK)
        status = begin_signals(r, err);
    return status;
}

/* The gateway first: its requests end before the engines'. */
static void close_all(struct running *r)
{
    server_list_withdraw(r->entry);
    serving_signals_end(r->signals);
    bulk_stop(r->bulk);
    gateway_close(r->gateway);
    bulk_close(r->bulk);
    engines_close(r->engines);
    ledger_close(r->ledger);
    reload_end(r->access.reload);
    tls_free(r->access.tls);
    tenants_free(r->access.tenants);
    if (r->hangup)
        event_free(r->hangup);
    if (r->base)
        event_base_free(r->base);
}

static void announce(struct running *r, const char *host)
{
    char address[300];
    snprintf(address, sizeof address, strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u",
             r->access.tls ? "https" : "http", host, gateway_port(r->gateway));
    r->entry = server_list_announce("serve", r->flags->serve->says->models_file, address);
}

static void log_ready(struct running *r, const struct gateway_config *config, double started)
{
    const char *host = r->flags->serve->http->host ? r->flags->serve->http->host : "127.0.0.1";
    quire_log(QUIRE_LOG_INFO, "gateway", "%zu models ready on %s://%s:%u/v1 after %.2f s", config->n_models,
              r->access.tls ? "https" : "http", host, gateway_port(r->gateway), quire_now_s() - started);
    announce(r, strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : host);
    notify_ready();
}

int gateway_run(struct gateway_flags *flags, int *exit_code, struct quire_error *err)
{
    struct running r = {.flags = flags};
    const struct gateway_config *config = NULL;
    const double started = quire_now_s();
    *exit_code = 0;
    int status = models_file_read(flags->serve->says->models_file, &config, err);
    if (status != QUIRE_OK)
        return status;
    signal(SIGPIPE, SIG_IGN);
    r.base = event_base_new();
    status = r.base ? open_all(&r, config, err)
                    : quire_fail(err, QUIRE_INTERNAL, "libevent cannot create an event loop");
    if (status == QUIRE_OK) {
        log_ready(&r, config, started);
        event_base_dispatch(r.base);
        *exit_code = engines_died(r.engines);
        if (*exit_code == 0 && r.n_unfinished > 0)
            *exit_code = BULK_EXIT_UNFINISHED;
    }
    models_file_release(config);
    close_all(&r);
    return status;
}
