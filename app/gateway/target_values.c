#include "app/gateway/target_values.h"

#include <stdlib.h>
#include <string.h>

/* Options of the gateway, or of the process. */
static const char *const not_here[] = {
    "host",
    "port",
    "ssl-certfile",
    "ssl-keyfile",
    "allowed-origins",
    "allowed-hosts",
    "api-key",
    "tenants",
    "pull",
    "verbose",
    "warm",
    "models",
    "metrics-listen",
    "tenant-metrics",
    "log-format",
    "served-model-name",
    "engine",
    "engine-key-file",
    "max-connections",
    "max-connections-per-address",
    "trusted-proxies",
    "header-timeout",
    "body-timeout",
    "keep-alive-timeout",
    "write-timeout",
    "shutdown-timeout",
};

static bool is_here(const char *names)
{
    const size_t n = strcspn(names, ",");
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++)
        if (strlen(not_here[i]) == n && memcmp(not_here[i], names, n) == 0)
            return false;
    return true;
}

static bool allocate(struct target_values *v)
{
    v->http = calloc(1, sizeof *v->http);
    v->says = calloc(1, sizeof *v->says);
    v->options = calloc(1, sizeof *v->options);
    v->steps = calloc(1, sizeof *v->steps);
    v->placement = calloc(1, sizeof *v->placement);
    v->watching = calloc(1, sizeof *v->watching);
    v->cache = calloc(1, sizeof *v->cache);
    v->companion = calloc(1, sizeof *v->companion);
    return v->http && v->says && v->options && v->steps && v->placement && v->watching && v->cache && v->companion;
}

static void set_defaults(struct target_values *v, const char *dir)
{
    *v->http = (struct http_settings){.host = "127.0.0.1", .max_connections = 65536};
    *v->says = (struct serve_settings){
        .given = dir,
        .specials_in_messages = QUIRE_SPECIALS_TEXT,
        .responses = {.max_bytes = FRONT_RESPONSES_BYTES, .ttl_s = FRONT_RESPONSES_TTL_S},
    };
    engine_options_default(v->options);
    step_options_default(v->steps);
    v->options->steps = v->steps;
    v->options->placement = v->placement;
    v->flags = (struct serve_flags){.http = v->http,
                                    .says = v->says,
                                    .options = v->options,
                                    .watching = v->watching,
                                    .cache = v->cache,
                                    .companion = v->companion};
}

struct target_values *target_values_create(const char *dir)
{
    struct target_values *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    if (!allocate(v)) {
        target_values_destroy(v);
        return NULL;
    }
    set_defaults(v, dir);
    return v;
}

void target_values_destroy(struct target_values *v)
{
    if (!v)
        return;
    free(v->flags.engine_argv);
    free(v->http);
    free(v->says);
    free(v->options);
    free(v->steps);
    free(v->placement);
    free(v->watching);
    free(v->cache);
    free(v->companion);
    free(v);
}

/* The rows that may be written here come first, so that an engine's process gets its own. */
void target_values_rows(struct target_values *v, struct target_rows *r)
{
    const size_t n_all = serve_flags(&v->flags, r->all);
    memset(r->given, 0, sizeof r->given);
    r->n_own = 0;
    for (size_t i = 0; i < n_all; i++)
        if (r->all[i].kind == CLI_GROUP || is_here(r->all[i].names))
            r->all[r->n_own++] = r->all[i];
    r->n = r->n_own + engine_flags(v->options, r->all + r->n_own);
    r->n += watching_flags(v->watching, r->all + r->n);
    r->all[r->n] = (struct cli_option){0};
    cli_note_given(r->all + r->n_own, r->n - r->n_own, r->given);
}
