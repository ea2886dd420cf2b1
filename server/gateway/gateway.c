#include "server/gateway/gateway.h"

#include "base/log.h"
#include "server/gateway/complete/complete.h"
#include "server/gateway/door.h"
#include "server/gateway/gateway_internal.h"
#include "server/gateway/pass.h"
#include "server/gateway/probe.h"
#include "server/gateway/relay/shared.h"
#include "server/gateway/trials.h"
#include "server/http/local_listener.h"

#include <stdlib.h>
#include <time.h>

#define BACKLOG 4096

/* ---- events --------------------------------------------------------------------------------- */

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct gateway *g = context;
    (void)fd;
    (void)what;
    g->tick_ms = 0;
    const uint32_t ms = relay_tick(g);
    if (ms > 0)
        gateway_wants_tick(g, ms);
}

static void on_bury(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    relay_bury(context);
}

static void on_save(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    trials_save(context);
}

static void on_probe(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    if (probe_targets(context))
        gateway_wants_probe(context);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void on_inside(void *context, int fd)
{
    struct gateway *g = context;
    http_server_adopt(g->inside, fd);
}

static const char *engine_of(void *context, size_t number)
{
    const struct gateway *g = context;
    return pass_socket(g, g->pool, number);
}

static int open_service(struct gateway *g, struct quire_error *err)
{
    struct complete_options o = {.remote = g->remote, .ledger = g->options.ledger, .engine = engine_of, .context = g};
    int status = http_server_open_private(g->base, g->options.limits, &gateway_handler, g, &g->inside, err);
    if (status == QUIRE_OK)
        status = local_listener_open(g->base, on_inside, g, &g->inside_listener, err);
    if (status != QUIRE_OK)
        return status;
    o.socket = local_listener_name(g->inside_listener);
    return complete_open(g->base, &o, &g->complete, err);
}

static int open_parts(struct gateway *g, const struct gateway_config *config, struct quire_error *err)
{
    const struct gateway_options *o = &g->options;
    g->tick = evtimer_new(g->base, on_tick, g);
    g->bury = evtimer_new(g->base, on_bury, g);
    g->probe = evtimer_new(g->base, on_probe, g);
    g->save = evtimer_new(g->base, on_save, g);
    if (!g->tick || !g->bury || !g->probe || !g->save)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = pool_open(config, NULL, &g->pool, err);
    if (status == QUIRE_OK)
        status = remote_open(g->base, &g->remote, err);
    if (status == QUIRE_OK)
        status = shared_open(g->base, &g->shared, err);
    if (status == QUIRE_OK)
        status = http_server_open(g->base, o->host, o->port, BACKLOG, o->limits, &gateway_handler, g, &g->http, err);
    if (status == QUIRE_OK)
        status = open_service(g, err);
    return status;
}

int gateway_open(struct event_base *base, const struct gateway_options *options, const struct gateway_config *config,
                 struct gateway **out, struct quire_error *err)
{
    *out = NULL;
    struct gateway *g = calloc(1, sizeof *g);
    if (!g)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    g->base = base;
    g->options = *options;
    g->created = (int64_t)time(NULL);
    TAILQ_INIT(&g->relays);
    TAILQ_INIT(&g->ended);
    retry_budget_init(&g->retries);
    int status = open_parts(g, config, err);
    if (status != QUIRE_OK) {
        gateway_close(g);
        return status;
    }
    http_server_use_tls(g->http, options->tls);
    if (!door_asks_key(g) && !http_server_is_local(g->http))
        quire_log(QUIRE_LOG_WARN, "gateway",
                  "every client that reaches %s port %u may use the models, because no key is required: use --api-key, "
                  "--tenants or quire keys, or leave --host at 127.0.0.1",
                  options->host ? options->host : "0.0.0.0", http_server_port(g->http));
    trials_log(NULL, g->pool);
    trials_restore(g);
    *out = g;
    return QUIRE_OK;
}

void gateway_close(struct gateway *g)
{
    if (!g)
        return;
    http_server_close(g->http); /* ends the relays of its exchanges */
    complete_close(g->complete);
    local_listener_close(g->inside_listener);
    http_server_close(g->inside);
    relay_bury(g);
    trials_save(g);
    if (g->pool)
        probes_end(g);
    shared_close(g->shared);
    remote_close(g->remote);
    pool_release(g->pool);
    if (g->tick)
        event_free(g->tick);
    if (g->save)
        event_free(g->save);
    if (g->bury)
        event_free(g->bury);
    if (g->probe)
        event_free(g->probe);
    free(g);
}

const char *gateway_inside(const struct gateway *g)
{
    return local_listener_name(g->inside_listener);
}

uint16_t gateway_port(const struct gateway *g)
{
    return http_server_port(g->http);
}

int gateway_use(struct gateway *g, const struct gateway_config *config, struct quire_error *err)
{
    struct pool *pool;
    int status = pool_open(config, g->pool, &pool, err);
    if (status != QUIRE_OK)
        return status;
    trials_save(g);
    trials_log(g->pool, pool);
    probes_end(g); /* they belong to the old pool's targets */
    pool_release(g->pool);
    g->pool = pool;
    complete_clear(g->complete);
    return QUIRE_OK;
}

void gateway_drain(struct gateway *g, void (*on_idle)(void *context), void *context)
{
    g->draining = true;
    http_server_on_idle(g->http, on_idle, context);
    http_server_drain(g->http);
}

void gateway_cancel(struct gateway *g)
{
    relay_end_all(g, "the server is shutting down, and the request was not done in the time that was left");
}
