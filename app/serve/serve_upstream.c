#include "app/serve/serve_upstream.h"

#include "app/serving/notify.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/front/front_model.h"
#include "server/link/upstream.h"

#include <stdio.h>
#include <string.h>

/* Once, at lower priority than live traffic. A failure does not stop the server. */
static void begin_warming(struct serve *s, const char *host)
{
    char url[300];
    struct quire_error err;
    if (!s->flags->says->warm_file)
        return;
    snprintf(url, sizeof url, strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", s->tls ? "https" : "http", host,
             front_port(s->front));
    const char *key = s->flags->says->api_keys.n > 0 ? s->flags->says->api_keys.items[0] : NULL;
    if (warming_begin(url, key, s->flags->says->warm_file, &s->warming, &err) != QUIRE_OK)
        quire_log(QUIRE_LOG_ERROR, "server", "--warm: %s", err.text);
}

/* An address of this machine for a server that listens on all of them. */
static const char *reachable_host(const char *host)
{
    if (!host || strcmp(host, "0.0.0.0") == 0)
        return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

static void announce(struct serve *s, const char *host)
{
    char address[300];
    snprintf(address, sizeof address, strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", s->tls ? "https" : "http",
             host, front_port(s->front));
    s->entry = server_list_announce("serve", s->flags->says->names.items[0], address);
}

/* A server that other machines reach without a key has a warning already. */
static void log_access(const struct serve *s)
{
    const struct serve_settings *says = s->flags->says;
    if (says->tenants_file)
        quire_log(QUIRE_LOG_INFO, "server", "requests need a key of %s", says->tenants_file);
    else if (says->api_keys.n > 0)
        quire_log(QUIRE_LOG_INFO, "server", "requests need the API key%s",
                  says->environment_keys ? " of QUIRE_API_KEY" : "");
    else
        quire_log(QUIRE_LOG_INFO, "server", "requests need no key (--api-key)");
}

static void on_engine_ready(void *context, bool is_first)
{
    struct serve *s = context;
    const char *host = s->flags->http->host ? s->flags->http->host : "127.0.0.1";
    if (!is_first) {
        quire_log(QUIRE_LOG_INFO, "server", "%s%sthe engine is available again", s->within ? s->within : "",
                  s->within ? ": " : "");
        return;
    }
    if (s->within) {
        quire_log(QUIRE_LOG_INFO, "server", "%s: %s is ready after %.2f s", s->within, s->model->name,
                  quire_now_s() - s->started);
        return;
    }
    log_access(s);
    quire_log(QUIRE_LOG_INFO, "server", "%s ready on %s://%s:%u/v1 after %.2f s; /ui has chat and charts; Ctrl-C stops",
              s->flags->says->names.items[0], s->tls ? "https" : "http", host, front_port(s->front),
              quire_now_s() - s->started);
    if (s->flags->http->metrics_listen)
        quire_log(QUIRE_LOG_INFO, "server", "metrics and health, without a key, on port %u (%s)",
                  front_metrics_port(s->front), s->flags->http->metrics_listen);
    announce(s, reachable_host(s->flags->http->host));
    notify_ready();
    begin_warming(s, reachable_host(host));
}

static void on_engine_awaited(void *context, const char *why)
{
    const struct serve *s = context;
    if (s->within) {
        quire_log(QUIRE_LOG_WARN, "server", "%s: waiting for the engine at %s: %s; requests to it get 503 until then",
                  s->within, s->flags->says->remote, why);
        return;
    }
    quire_log(QUIRE_LOG_WARN, "server", "waiting for the engine at %s: %s; port %u answers 503 until it is available",
              s->flags->says->remote, why, front_port(s->front));
}

/* The server cannot continue. */
static void on_engine_lost(void *context, const char *what, const char *why)
{
    struct serve *s = context;
    s->exit_code = 1;
    if (s->draining)
        return;
    quire_log(QUIRE_LOG_ERROR, "server", "%s%s%s%s%s", s->within ? s->within : "", s->within ? ": " : "", what,
              why[0] ? ": " : "", why);
    if (!s->within) /* a gateway has other targets */
        event_base_loopbreak(s->base);
}

static void on_engine_ended_badly(void *context)
{
    ((struct serve *)context)->exit_code = 1;
}

int serve_connect_engine(struct serve *s, struct quire_error *err)
{
    struct upstream *upstream = served_model_upstream(s->served);
    struct wire_stream *ends[2];
    const struct upstream_identity identity = {.model = s->model->name,
                                               .text = s->identity->text,
                                               .config = s->identity->config,
                                               .generation = s->identity->generation,
                                               .arithmetic = s->identity->numerics,
                                               .key_file = s->flags->says->key_file};
    const struct upstream_owner owner = {.ready = on_engine_ready,
                                         .waiting = on_engine_awaited,
                                         .lost = on_engine_lost,
                                         .ended_badly = on_engine_ended_badly,
                                         .context = s};
    upstream_set_identity(upstream, &identity, &owner);
    if (s->flags->says->remote)
        return upstream_connect(upstream, s->flags->says->remote, err);
    if (s->flags->says->restarts)
        return upstream_supervise(upstream, s->flags->engine_argv, s->flags->says->restarts, err);
    int status = wire_stream_pair(s->base, ends, err);
    if (status != QUIRE_OK)
        return status;
    status = own_engine_connect(s->engine, ends[0], err);
    if (status != QUIRE_OK) {
        wire_stream_close(ends[1]);
        return status;
    }
    return upstream_attach(upstream, ends[1], err);
}
