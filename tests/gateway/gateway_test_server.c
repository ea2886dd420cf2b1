/* A gateway over upstream servers only: `gateway_test_server FILE [TIMEOUT_MS]` prints its port and serves until SIGTERM.
 * SIGHUP reads the file again. */
#include "base/hash.h"
#include "server/front/tenant/tenants.h"
#include "server/gateway/gateway.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char *path;
static struct gateway *g;
static struct event_base *base;

static void on_reload(evutil_socket_t fd, short what, void *context)
{
    const struct gateway_config *config;
    struct quire_error err;
    (void)fd, (void)what, (void)context;
    if (models_file_read(path, &config, &err) != QUIRE_OK || gateway_use(g, config, &err) != QUIRE_OK)
        fprintf(stderr, "%s\n", err.text);
    else
        models_file_release(config);
}

static void on_idle(void *context)
{
    (void)context;
    event_base_loopbreak(base);
}

static void on_term(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what, (void)context;
    gateway_drain(g, on_idle, NULL);
}

int main(int argc, char **argv)
{
    static const struct http_limits limits = {.max_head_bytes = 32768,
                                              .max_body_bytes = 16 << 20,
                                              .max_all_bodies_bytes = 256 << 20,
                                              .max_pending_bytes = 1 << 20,
                                              .max_connections = 4096,
                                              .max_connections_per_address = 4096,
                                              .head_timeout_ms = 15000,
                                              .body_timeout_ms = 30000,
                                              .idle_timeout_ms = 75000,
                                              .write_timeout_ms = 60000};
    const struct gateway_config *config;
    struct quire_error err;
    struct gateway_options options = {
        .host = "127.0.0.1", .limits = &limits, .log_requests = getenv("LOG") != NULL, .version = "test"};
    signal(SIGPIPE, SIG_IGN);
    path = argv[1];
    options.upstream_timeout_ms = argc > 2 ? (uint32_t)atoi(argv[2]) : 5000;
    base = event_base_new();
    if (quire_hash_init() != 0 || tenants_from_keys(NULL, 0, 0, &options.tenants, &err) != QUIRE_OK ||
        ledger_open(base, NULL, &options.ledger, &err) != QUIRE_OK ||
        models_file_read(path, &config, &err) != QUIRE_OK ||
        gateway_open(base, &options, config, &g, &err) != QUIRE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    models_file_release(config);
    struct event *hup = evsignal_new(base, SIGHUP, on_reload, NULL), *term = evsignal_new(base, SIGTERM, on_term, NULL);
    event_add(hup, NULL);
    event_add(term, NULL);
    printf("%u\n", gateway_port(g));
    fflush(stdout);
    event_base_dispatch(base);
    gateway_close(g);
    event_free(hup);
    event_free(term);
    ledger_close(options.ledger);
    tenants_free(options.tenants);
    event_base_free(base);
    return 0;
}
