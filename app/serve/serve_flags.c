#include "app/serve/serve_flags.h"

#include "app/command/log_format.h"
#include "app/serving/signals.h"
#include "app/watch/log_stats.h"

#include <string.h>

size_t serve_http_flags(struct serve_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "HTTP:", .kind = CLI_GROUP},
        {.names = "host", .kind = CLI_STRING, .target = &f->http->host, .value = "HOST",
         .common = true, .help = "Listen on this address; default 127.0.0.1, this machine only. 0.0.0.0 listens on all interfaces."},
        {.names = "port", .kind = CLI_U32, .target = &f->http->port, .max = 65535, .value = "N",
         .common = true, .help = "Listen on this port; default 8000, 0 for any free port. The log shows the port."},
        {.names = "ssl-certfile,ssl-cert-file", .kind = CLI_STRING, .target = &f->http->cert_file, .value = "FILE",
         .common = true, .help = "Serve HTTPS with this certificate (PEM, with its chain). SIGHUP reloads it."},
        {.names = "ssl-keyfile,ssl-key-file", .kind = CLI_STRING, .target = &f->http->tls_key_file, .value = "FILE",
         .common = true, .help = "Private key of the certificate, not encrypted. Default: the key in the certificate's file."},
        {.names = "allowed-origins", .kind = CLI_LIST, .target = &f->http->origins, .value = "ORIGIN",
         .help = "Allow web pages from this origin to use the API (CORS); * for all. May be repeated. Default: the "
                 "server's own pages only."},
        {.names = "allowed-hosts", .kind = CLI_LIST, .target = &f->http->hosts, .value = "NAME",
         .help = "Without keys, on a loopback address: further host names, in addition to localhost, that browsers "
                 "may use; * for all. May be repeated."},
        {.names = "api-key", .kind = CLI_LIST, .target = &f->says->api_keys, .value = "KEY",
         .common = true, .help = "Require one of these keys as bearer token. May be repeated. Default: $QUIRE_API_KEY, separated by "
                 "commas; other users of this machine cannot read it from the command line."},
        {.names = "tenants", .kind = CLI_STRING, .target = &f->says->tenants_file, .value = "FILE",
          .help = "Read keys, weights, classes and limits from this file. SIGHUP reloads it. See "
                 "docs/reference/http-api.md."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t observation_flags(struct serve_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "tenant-metrics", .kind = CLI_FLAG, .target = &f->says->tenant_metrics,
         .help = "Also export metrics per tenant on /metrics."},
        {.names = "metrics-listen", .kind = CLI_STRING, .target = &f->http->metrics_listen, .value = "ADDRESS",
         .help = "Also serve /metrics and /health, and nothing else, on HOST:PORT without a key. For Prometheus and "
                 "probes, on an address that clients do not reach."},
        {.names = "log-requests,enable-log-requests", .kind = CLI_FLAG, .target = &f->says->log_requests,
         .common = true,
         .help = "Log one line per generating request, never its text. The line has ids, tenant, status, tokens and "
                 "times."},
        {.names = "verbose,v", .kind = CLI_FLAG, .target = &f->says->verbose,
         .help = "Log every detail of the start, such as the GEMM form and the identity of the arithmetic."},
        log_stats_option(&f->says->disable_log_stats),
        SERVING_LOG_FORMAT_OPTION,
        {.names = "otlp-endpoint,otlp-traces-endpoint", .kind = CLI_STRING, .target = &f->says->otlp_endpoint, .value = "URL",
         .help = "Send a span for each generating request to this OpenTelemetry collector over HTTP, such as "
                 "http://HOST:4318. Continues the traces of callers (traceparent)."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t model_flags(struct serve_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "warm", .kind = CLI_STRING, .target = &f->says->warm_file, .value = "FILE",
         .help = "Fill the prefix cache at start with the prompts of this file, at lower priority than live traffic "
                 "(quire cache warm --help). With --api-key: for the first key."},
        {.names = "pull", .kind = CLI_FLAG, .target = &f->says->pulls,
         .common = true, .help = "Download MODEL first if it is missing (quire pull)."},
        {.names = "models", .kind = CLI_STRING, .target = &f->says->models_file, .value = "FILE",
         .common = true, .help = "Serve the models of this file instead of MODEL, from engines and upstream servers "
                 "(docs/guides/gateway.md). Its own options: quire serve --models FILE --help."},
        {.names = "max-choices-per-request", .kind = CLI_U32, .target = &f->http->max_choices, .min = 1, .max = 65536, .value = "N",
         .help = "Maximum number of choices (prompts x n) of one request. They wait in the server and go to the "
                 "engine as its queue allows. Default 4096."},
        {.names = "served-model-name,alias,a", .kind = CLI_LIST, .target = &f->says->names, .value = "NAME",
         .common = true, .help = "Model name for requests; may be repeated. Default: MODEL's name, or the directory's."},
        {.names = "tool-call-parser", .kind = CLI_STRING, .target = &f->says->tool_call_parser, .value = "NAME",
         .help = "Format of the model's tool calls: auto, hermes (also Qwen), llama3_json, llama4_pythonic, pythonic, mistral, "
                 "qwen3_coder, deepseek_v3, deepseek_v31, glm45, kimi_k2, openai, or none to leave them in the text. Default "
                 "auto: detected from the chat template."},
        {.names = "reasoning-parser", .kind = CLI_STRING, .target = &f->says->reasoning_parser, .value = "NAME",
         .help = "Format of the model's reasoning: auto, deepseek_r1, qwen3, glm45, openai_gptoss, or none to leave it in the "
                 "text. Default auto: detected from the chat template."},
        {.names = "structured-outputs-config", .kind = CLI_PARSED, .parse = serve_parse_structured_outputs, .target = &f->says->flexible_whitespace, .value = "JSON",
         .help = "Structured outputs, as in vLLM. '{\"disable_any_whitespace\": false}' lets JSON answers have white "
                 "space; by default they are compact. Any \"backend\" of vLLM is accepted: llguidance does the work."},
        {.names = "response-store", .kind = CLI_STRING, .target = &f->says->responses.path, .value = "FILE",
         .help = "Keep the responses of /v1/responses in this SQLite file, also for the next start. Default: in memory."},
        {.names = "response-store-size", .kind = CLI_BYTES, .target = &f->says->responses.max_bytes, .max = 1099511627776.0, .value = "SIZE",
         .help = "Maximum size of the stored responses of /v1/responses; the least recently used are removed first. With "
                 "keys, a key has at most a quarter. Default 64M; 0 stores nothing."},
        {.names = "response-store-ttl", .kind = CLI_U32, .target = &f->says->responses.ttl_s, .min = 1, .max = 31536000, .value = "SECONDS",
         .help = "Remove a stored response that was not used for so long. Default 86400."},
        {.names = "special-tokens-in-messages", .kind = CLI_PARSED, .parse = serve_parse_specials, .target = &f->says->specials_in_messages, .value = "text|encode|refuse",
         .help = "How to treat special tokens such as <|im_end|> in messages: as text, as tokens (encode), or reply "
                 "400 (refuse). Default text."},
        {.names = "strict-fields", .kind = CLI_FLAG, .target = &f->says->strict_fields,
         .help = "Reject a request with a field that the server does not know, a role that the API does not have, or tools "
                 "that the chat template cannot show: 400, with the field. Default: a header x-quire-warning and a line of the "
                 "log."},
        {.names = "keep-billing-header", .kind = CLI_FLAG, .target = &f->says->keeps_billing_header,
         .help = "Keep the line \"x-anthropic-billing-header: ...\" in system prompts of /v1/messages. It changes with each "
                 "request and defeats the prefix cache. Default: the line is removed."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

size_t serve_connection_flags(struct serve_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Connection limits:", .kind = CLI_GROUP},
        {.names = "max-connections", .kind = CLI_U32, .target = &f->http->max_connections, .min = 1, .max = 1000000, .value = "N",
         .help = "Maximum number of open connections; default 4096. At the limit, the server closes the connection "
                 "that has waited longest for a request or the rest of one."},
        {.names = "max-connections-per-address", .kind = CLI_U32, .target = &f->http->max_connections_per_address, .min = 1, .max = 1000000, .value = "N",
         .help = "Maximum number of connections of one IPv4 address or one IPv6 /64. Default: half of "
                 "--max-connections."},
        {.names = "trusted-proxies", .kind = CLI_LIST, .target = &f->http->proxies, .value = "CIDR,...",
         .help = "Addresses and networks of proxies, which have no limit per address. May be repeated."},
        {.names = "max-body-size", .kind = CLI_BYTES, .target = &f->http->max_body_bytes, .min = 1024, .max = 4294967296.0, .value = "SIZE",
         .help = "Maximum size of a request body, such as 64M. All bodies together may have 16 times this size. "
                 "Default 16M."},
        {.names = "header-timeout", .kind = CLI_U32, .target = &f->http->header_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for the headers of a request. Default 15."},
        {.names = "body-timeout", .kind = CLI_U32, .target = &f->http->body_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for the body, in addition to the time it needs at 16 KiB/s. Default 30."},
        {.names = "keep-alive-timeout", .kind = CLI_U32, .target = &f->http->idle_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for the next request on a connection. Use a longer time than the proxy in front. "
                 "Default 75."},
        {.names = "write-timeout", .kind = CLI_U32, .target = &f->http->write_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .help = "Time limit for a client to read some of its reply. Default 60."},
        serving_shutdown_option(&f->says->shutdown_timeout_s),
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t engine_process_flags(struct serve_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Engine process:", .kind = CLI_GROUP},
        serve_restart_option(&f->says->restarts),
        {.names = "engine", .kind = CLI_STRING, .target = &f->says->remote, .value = "ADDRESS",
         .common = true,
         .help = "Use the engine at unix:PATH or tcp:HOST:PORT (quire engine). The server waits until it is "
                 "available. It reads only the tokenizer and the configuration of MODEL."},
        {.names = "listen", .kind = CLI_LIST, .target = &f->says->listen, .value = "ADDRESS",
         .help = "Let other front ends use this engine, too. May be repeated."},
        {.names = "engine-key-file", .kind = CLI_STRING, .target = &f->says->key_file, .value = "PATH",
         .help = "File with the secret shared with engines or front ends at tcp: addresses."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

size_t serve_flags(struct serve_flags *f, struct cli_option out[SERVE_FLAGS_MAX])
{
    size_t n = serve_http_flags(f, out);
    n += observation_flags(f, out + n);
    n += model_flags(f, out + n);
    n += serve_connection_flags(f, out + n);
    if (f->bulk)
        n += bulk_flags(f->bulk, out + n);
    n += engine_process_flags(f, out + n);
    n += cache_flags(f->cache, out + n);
    return n + companion_flags(f->companion, out + n);
}
