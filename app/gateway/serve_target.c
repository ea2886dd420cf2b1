#include "app/gateway/serve_target.h"

#include "app/companion/companion.h"
#include "app/flags/engine_flags.h"
#include "app/serve/engine_argv.h"
#include "app/serve/serve.h"
#include "app/serve/serve_check.h"
#include "app/serve/serve_state.h"
#include "server/front/front.h"
#include "server/http/local_listener.h"

#include <stdlib.h>
#include <string.h>

/* A server of its own, and the values of its options. */
struct serve_target {
    struct http_settings *http;
    struct serve_settings *says;
    struct engine_options *options;
    struct step_options *steps;
    struct engine_placement *placement;
    struct watching *watching;
    struct cache_flags *cache;
    struct companion_flags *companion;
    struct serve_flags flags;
    struct hub_model *model;
    struct serving_identity *identity;
    struct serve *serve;
    struct local_listener *listener;
};

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

static bool allocate(struct serve_target *t)
{
    t->http = calloc(1, sizeof *t->http);
    t->says = calloc(1, sizeof *t->says);
    t->options = calloc(1, sizeof *t->options);
    t->steps = calloc(1, sizeof *t->steps);
    t->placement = calloc(1, sizeof *t->placement);
    t->watching = calloc(1, sizeof *t->watching);
    t->cache = calloc(1, sizeof *t->cache);
    t->companion = calloc(1, sizeof *t->companion);
    t->model = calloc(1, sizeof *t->model);
    t->identity = calloc(1, sizeof *t->identity);
    t->serve = calloc(1, sizeof *t->serve);
    return t->http && t->says && t->options && t->steps && t->placement && t->watching && t->cache && t->companion &&
           t->model && t->identity && t->serve;
}

static void free_all(struct serve_target *t)
{
    free(t->http);
    free(t->says);
    free(t->options);
    free(t->steps);
    free(t->placement);
    free(t->watching);
    free(t->cache);
    free(t->companion);
    free(t->model);
    free(t->identity);
    free(t->serve);
    free(t->flags.engine_argv);
    free(t);
}

static void set_defaults(struct serve_target *t, const struct serve_target_options *o)
{
    *t->http = (struct http_settings){.host = "127.0.0.1", .max_connections = 65536};
    *t->says = (struct serve_settings){
        .given = o->dir,
        .specials_in_messages = QUIRE_SPECIALS_TEXT,
        .responses = {.max_bytes = FRONT_RESPONSES_BYTES, .ttl_s = FRONT_RESPONSES_TTL_S},
    };
    engine_options_default(t->options);
    step_options_default(t->steps);
    t->options->steps = t->steps;
    t->options->placement = t->placement;
    t->flags = (struct serve_flags){.http = t->http,
                                    .says = t->says,
                                    .options = t->options,
                                    .watching = t->watching,
                                    .cache = t->cache,
                                    .companion = t->companion};
}

/* The rows that may be written here come first, so that an engine's process gets its own. */
struct rows {
    struct cli_option all[SERVE_FLAGS_MAX + ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX + 1];
    bool given[ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX];
    size_t n_own, n;
};

static void fill_rows(struct serve_target *t, struct rows *r)
{
    const size_t n_all = serve_flags(&t->flags, r->all);
    r->n_own = 0;
    for (size_t i = 0; i < n_all; i++)
        if (r->all[i].kind == CLI_GROUP || is_here(r->all[i].names))
            r->all[r->n_own++] = r->all[i];
    r->n = r->n_own + engine_flags(t->options, r->all + r->n_own);
    r->n += watching_flags(t->watching, r->all + r->n);
    r->all[r->n] = (struct cli_option){0};
    cli_note_given(r->all + r->n_own, r->n - r->n_own, r->given);
}

static struct cli_command command_of(const struct rows *r)
{
    return (struct cli_command){.name = "serve", .usage = "options: {NAME: VALUE, ...}", .options = r->all};
}

/* Names and values. */
static int read_options(struct serve_target *t, const struct serve_target_options *o, struct rows *r,
                        struct quire_error *err)
{
    enum cli_help help = CLI_HELP_NONE;
    fill_rows(t, r);
    const struct cli_command command = command_of(r);
    int status = cli_parse(&command, (int)o->n_options, (char **)(uintptr_t)o->options, &help, err);
    if (status == QUIRE_OK && help != CLI_HELP_NONE)
        status = quire_fail(err, QUIRE_INVALID, "help is not an option of a target");
    return status;
}

static int parse(struct serve_target *t, const struct serve_target_options *o, struct quire_error *err)
{
    struct rows *r = calloc(1, sizeof *r);
    char **argv = (char **)(uintptr_t)o->options;
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = read_options(t, o, r, err);
    const struct cli_command command = command_of(r);
    if (status == QUIRE_OK) {
        t->says->remote = o->address;
        t->says->key_file = o->key_file;
        t->says->names.items[t->says->names.n++] = o->model;
        status = serve_check(&t->flags, cli_first_given(r->all + r->n_own, r->n - r->n_own), err);
    }
    if (status == QUIRE_OK && t->says->restarts)
        status = engine_argv_make(t->says, &command, (int)o->n_options, argv, r->all + r->n_own, r->n - r->n_own,
                                  &t->flags.engine_argv, err);
    free(r);
    return status;
}

static void on_client(void *context, int fd)
{
    const struct serve_target *t = context;
    front_accept(t->serve->front, fd);
}

/* *out is NULL after a failure. */
static int begin(const struct serve_target_options *o, struct serve_target **out, struct quire_error *err)
{
    struct serve_target *t = *out = calloc(1, sizeof *t);
    if (t && allocate(t)) {
        set_defaults(t, o);
        return QUIRE_OK;
    }
    if (t)
        free_all(t);
    *out = NULL;
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

int serve_target_check(const struct serve_target_options *o, struct quire_error *err)
{
    struct serve_target *t;
    int status = begin(o, &t, err);
    if (status != QUIRE_OK)
        return status;
    struct rows *r = calloc(1, sizeof *r);
    status = r ? read_options(t, o, r, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    free(r);
    free_all(t);
    return status;
}

int serve_target_open(struct event_base *base, const struct serve_target_options *o, struct serve_target **out,
                      struct quire_error *err)
{
    struct serve_target *t;
    int status = begin(o, out, err);
    if (status != QUIRE_OK)
        return status;
    t = *out;
    *t->serve = (struct serve){.within = o->name,
                               .flags = &t->flags,
                               .model = t->model,
                               .identity = t->identity,
                               .base = base,
                               .tenants = o->tenants};
    status = parse(t, o, err);
    if (status == QUIRE_OK)
        status = hub_model_find(o->dir, o->address != NULL, t->model, err);
    t->options->model_dir = t->model->dir;
    if (status == QUIRE_OK)
        status = serve_open(t->serve, err);
    if (status == QUIRE_OK && t->serve->engine)
        status = own_engine_log(t->serve->engine, !t->says->disable_log_stats, err);
    if (status == QUIRE_OK)
        status = local_listener_open(base, on_client, t, &t->listener, err);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    t->watching->fails = true;
    serve_target_close(t);
    *out = NULL;
    return status;
}

const char *serve_target_socket(const struct serve_target *t)
{
    return local_listener_name(t->listener);
}

bool serve_target_died(const struct serve_target *t)
{
    own_engine_leave(t->serve->engine);
    return own_engine_died(t->serve->engine) || companion_died(t->serve->companion);
}

void serve_target_cancel(struct serve_target *t)
{
    front_cancel(t->serve->front);
}

void serve_target_close(struct serve_target *t)
{
    if (!t)
        return;
    local_listener_close(t->listener);
    serve_close(t->serve);
    free_all(t);
}
