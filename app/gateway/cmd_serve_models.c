/* quire serve --models FILE: a gateway over the models of a file. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/log_format.h"
#include "app/gateway/gateway_run.h"
#include "app/serve/serve_check.h"
#include "app/serving/signals.h"

#include <stdlib.h>
#include <string.h>

/* Without its options. */
static const struct cli_command description = {
    .name = "serve --models",
    .usage = "quire serve --models FILE [options]",
    .about =
        "Serves the models of FILE over one address (docs/guides/gateway.md): each from an engine in this process, from\n"
        "engines elsewhere, or from OpenAI-compatible upstream servers. SIGHUP reads the file again, without an end of\n"
        "running requests. SIGTERM finishes running requests (--shutdown-timeout) and ends the server.\n"
        "\"options\" of a target in the file are the engine's options of quire serve MODEL.",
    .examples = "examples:\n"
                "  quire check models.yaml\n"
                "  quire serve --models models.yaml --port 8000\n"
                "  quire serve --models models.yaml --host 0.0.0.0 --ledger accounts.db --log-requests",
};

#define MAX_ROWS 64

static size_t own_rows(struct gateway_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Gateway:", .kind = CLI_GROUP},
        {.names = "models", .kind = CLI_STRING, .target = &f->serve->says->models_file, .value = "FILE", .common = true,
         .help = "Serve the models of this file (docs/reference/models-file.md). SIGHUP reads it again."},
        {.names = "ledger", .kind = CLI_STRING, .target = &f->ledger_file, .value = "FILE", .common = true,
         .help = "Keep keys, budgets and usage in this SQLite file. Default: in memory, until the end of the process."},
        {.names = "upstream-timeout", .kind = CLI_U32, .target = &f->upstream_timeout_s, .min = 1, .max = 86400, .value = "SECONDS",
         .common = true,
         .help = "Time limit for an upstream server's first byte, and for each pause in its reply. Then another target "
                 "is used, or the request fails. Default 600."},
        {.names = "log-requests", .kind = CLI_FLAG, .target = &f->serve->says->log_requests, .common = true,
         .help = "Log one line per request, never its text. The line has model, target, route, tokens, cost and times."},
        SERVING_LOG_FORMAT_OPTION,
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof *rows;
}

static bool begin(struct gateway_flags *f, int argc, char **argv, int *code)
{
    struct cli_option rows[MAX_ROWS];
    struct quire_error err;
    size_t n = own_rows(f, rows);
    n += serve_http_flags(f->serve, rows + n);
    n += serve_connection_flags(f->serve, rows + n);
    n += bulk_flags(f->serve->bulk, rows + n);
    rows[n] = (struct cli_option){0};
    struct cli_command command = description;
    command.options = rows;
    if (!command_begin(&command, argc, argv, code))
        return false;
    int status = serve_check_http(f->serve, &err);
    if (status == QUIRE_OK && !f->serve->says->tenants_file)
        status = serve_keys_of_environment(&f->serve->says->api_keys, &f->serve->says->environment_keys, &err);
    if (status != QUIRE_OK)
        *code = command_fail(2, err.text);
    return status == QUIRE_OK;
}

int command_serve_models(int argc, char **argv)
{
    struct http_settings http = {.host = "127.0.0.1", .port = 8000, .max_connections = 4096};
    struct serve_settings says = {0};
    struct bulk_settings bulk = {0};
    struct serve_flags serve = {.http = &http, .says = &says, .bulk = &bulk};
    struct gateway_flags flags = {.serve = &serve, .upstream_timeout_s = 600};
    struct quire_error err;
    int code;
    if (begin(&flags, argc, argv, &code) && gateway_run(&flags, &code, &err) != QUIRE_OK)
        code = command_fail(1, err.text);
    free(says.environment_keys);
    return code;
}
