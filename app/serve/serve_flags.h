/* The command line of quire serve: its values, and its options but those of the engine. Main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_FLAGS_H
#define QUIRE_APP_SERVE_SERVE_FLAGS_H

#include "text/quire_chat.h"
#include "app/companion/companion.h"
#include "app/command/cli.h"
#include "app/serve/cache_flags.h"
#include "app/serve/serve_values.h"
#include "app/serving/bulk_flags.h"
#include "app/watch/watching.h"
#include "engine/options.h"
#include "server/front/front.h"
#include "server/http/address.h"

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
    const char *models_file; /* --models: another command serves it */
    const char *otlp_endpoint, *remote, *key_file, *tenants_file, *warm_file, *tool_call_parser, *reasoning_parser;
    enum quire_specials specials_in_messages;
    bool keeps_billing_header, flexible_whitespace, strict_fields, tenant_metrics, log_requests, disable_log_stats,
        pulls, verbose;
    struct cli_list api_keys, names, listen;
    char *environment_keys; /* holds the keys of api_keys if they come from the environment */
    uint32_t shutdown_timeout_s;
    struct front_responses responses;
    uint32_t restarts; /* maximum in a row; 0: the engine is in this process */
};

/* All values. The owner of the command line owns each part; they live longer than the server. */
struct serve_flags {
    struct http_settings *http;
    struct serve_settings *says;
    struct engine_options *options;
    struct watching *watching;
    struct cache_flags *cache;
    struct companion_flags *companion;
    struct bulk_settings *bulk; /* NULL: a target of a gateway, which has no batches of its own */
    char **engine_argv; /* arguments of the engine's process if it is separate; the owner frees the array */
};

#define SERVE_FLAGS_MAX (CACHE_FLAGS_MAX + COMPANION_FLAGS_MAX + BULK_FLAGS_MAX + 64)

/* The rows of the listener and its keys, and those of its connections: a gateway has them, too. */
size_t serve_http_flags(struct serve_flags *f, struct cli_option *out);
size_t serve_connection_flags(struct serve_flags *f, struct cli_option *out);
/* Writes the option rows to out[0..return value). */
size_t serve_flags(struct serve_flags *f, struct cli_option out[SERVE_FLAGS_MAX]);

#endif
