/* quire engine: an engine behind sockets, without HTTP or text. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/command/log_format.h"
#include "app/engine/child.h"
#include "app/flags/engine_flags.h"
#include "app/models/cache.h"
#include "app/serving/death.h"
#include "app/serving/grammars.h"
#include "app/serving/identity.h"
#include "app/serving/listen.h"
#include "app/serving/notify.h"
#include "app/serving/server_list.h"
#include "app/serving/shares.h"
#include "app/serving/signals.h"
#include "app/watch/loading.h"
#include "app/watch/log_stats.h"
#include "app/watch/watching.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "server/daemon/daemon.h"
#include "server/front/tenant/tenants.h"
#include "server/link/supervisor.h"

#include <stdio.h>
#include <string.h>

struct engine_command {
    struct event_base *base;
    struct daemon *daemon;
    struct engine *engine;
    struct serving_grammars *grammars;
    struct log_stats *log_stats;
    struct serving_signals *signals;
    struct serving_death *death;
    struct watching watching;
    struct hub_model model;
    const char *key_file, *tenants_file;
    struct sched_tenant shares[TENANTS_MAX]; /* of tenants, by index */
    struct cli_list listen;
    uint32_t shutdown_timeout_s;
    bool disable_log_stats;
    struct server_entry *entry; /* its row of quire ps */
    struct engine_child *child; /* NULL, or quire serve handles signals and ends this process */
};

#define LAST_WORDS_MS 100 /* time for a failed child engine: its front end sends the reason to pending requests */

static void on_drain(void *context)
{
    notify_stopping();
    daemon_drain(((struct engine_command *)context)->daemon);
}

static void on_idle(void *context)
{
    event_base_loopbreak(((struct engine_command *)context)->base);
}

/* Front ends see the closed connection and report it to pending requests. */
static void on_give_up(void *context)
{
    event_base_loopbreak(((struct engine_command *)context)->base);
}

/* At once: closing takes up to half a second while ranks end, and front ends would use the engine meanwhile. */
static void on_died(void *context, const char *why)
{
    const struct timeval soon = {.tv_usec = LAST_WORDS_MS * 1000};
    struct engine_command *c = context;
    daemon_engine_died(c->daemon, why);
    if (c->child)
        event_base_loopexit(c->base, &soon);
}

/* Front ends send the tenant of a request. The engine needs the tenants' weights itself. */
static int read_weights(struct engine_command *c, struct engine_options *options, struct quire_error *err)
{
    struct tenants *tenants;
    int status = c->tenants_file ? tenants_from_file(c->tenants_file, 0, &tenants, err)
                                 : tenants_from_keys(NULL, 0, 0, &tenants, err);
    if (status != QUIRE_OK)
        return status;
    tenant_shares(tenants, c->shares);
    tenants_free(tenants);
    options->steps->policy_options.n_tenants = TENANTS_MAX;
    options->steps->policy_options.tenants = c->shares;
    return QUIRE_OK;
}

/* The engine opens the tokenizer only when a request brings a grammar. */
static int begin_grammars(struct engine_command *c, struct engine_options *options, struct quire_error *err)
{
    struct model_config *config;
    struct sampling_defaults ignored;
    int status = model_describe(options->model_dir, &config, &ignored, err);
    if (status == QUIRE_OK)
        status = serving_grammars_begin(options->model_dir, config, &c->grammars, err);
    model_config_free(config);
    if (status == QUIRE_OK)
        options->grammars = serving_grammars_engine(c->grammars);
    return status;
}

static int open_all(struct engine_command *c, struct engine_options *options, struct quire_error *err)
{
    struct serving_identity identity;
    int status = engine_child_join(&c->child, err);
    if (status == QUIRE_OK)
        status = read_weights(c, options, err);
    if (status == QUIRE_OK)
        status = serving_identity_read(options->model_dir, &identity, err);
    if (status == QUIRE_OK)
        status = begin_grammars(c, options, err);
    if (status != QUIRE_OK)
        return status;
    c->base = event_base_new();
    if (!c->base)
        return quire_fail(err, QUIRE_INTERNAL, "libevent cannot create an event loop");
    const struct daemon_options daemon_options = {
        .identity_text = identity.text,
        .identity_config = identity.config,
        .identity_generation = identity.generation,
        .model = c->model.name,
        .on_idle = on_idle,
        .context = c,
    };
    const struct recorder_about about = {.model = c->model.name, .config_sha256 = identity.config};
    if ((status = daemon_create(c->base, &daemon_options, &c->daemon, err)) != QUIRE_OK ||
        (status = watching_begin(&c->watching, &about, options, err)) != QUIRE_OK ||
        (status = serving_death_begin(c->base, on_died, c, &c->death, err)) != QUIRE_OK ||
        (status = watching_add(&c->watching, options, serving_death_watch(c->death), err)) != QUIRE_OK ||
        (status = loading_engine_open(options, daemon_sink, c->daemon, &c->engine, err)) != QUIRE_OK)
        return status;
    if ((status = serving_death_mind(c->death, c->engine, err)) != QUIRE_OK)
        return status;
    daemon_set_engine(c->daemon, c->engine);
    daemon_set_shadow(c->daemon, c->watching.shadow);
    for (size_t i = 0; i < c->listen.n; i++)
        if ((status = daemon_listen(c->daemon, c->listen.items[i], c->key_file, err)) != QUIRE_OK)
            return status;
    if (c->child)
        return engine_child_serve(c->child, c->base, c->daemon, err);
    const struct serving_drain drain = {on_drain, on_give_up, c, c->shutdown_timeout_s};
    return serving_signals_begin(c->base, &drain, &c->signals, err);
}

static void close_all(struct engine_command *c)
{
    serving_signals_end(c->signals);
    log_stats_end(c->log_stats);
    engine_close(c->engine);
    serving_grammars_end(c->grammars);
    watching_end(&c->watching);
    daemon_close(c->daemon);
    serving_death_end(c->death);
    engine_child_end(c->child);
    if (c->base)
        event_base_free(c->base);
}

static size_t own_flags(struct engine_command *c, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Addresses:", .kind = CLI_GROUP},
        {.names = "listen", .kind = CLI_LIST, .target = &c->listen, .value = "ADDRESS",
         .common = true, .help = "Listen on unix:PATH (only your user may connect) or tcp:HOST:PORT (needs --engine-key-file). May "
                 "be repeated."},
        {.names = "engine-key-file", .kind = CLI_STRING, .target = &c->key_file, .value = "PATH",
         .common = true, .help = "File with the secret shared with front ends. It is never sent over the wire."},
        {.names = "tenants", .kind = CLI_STRING, .target = &c->tenants_file, .value = "FILE",
         .common = true, .help = "Read the weights of tenants from this file. It is the front ends' file "
                 "(docs/reference/http-api.md). Default: equal weights."},
        log_stats_option(&c->disable_log_stats),
        SERVING_LOG_FORMAT_OPTION,
        serving_shutdown_option(&c->shutdown_timeout_s),
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static int run(struct engine_command *c, struct engine_options *options, struct quire_error *err)
{
    int status = open_all(c, options, err);
    if (status == QUIRE_OK && !c->disable_log_stats)
        status = log_stats_begin(c->base, c->engine, LOG_STATS_EVERY_MS, &c->log_stats, err);
    if (status == QUIRE_OK) {
        const struct engine_info *info = engine_info(c->engine);
        quire_log(QUIRE_LOG_INFO, "engine", "%s on %s; GEMM form: %s; %s", info->desc->config->architecture,
                  info->device_why, info->gemms, info->placement);
        if (info->desc->config->multimodal[0])
            quire_log(QUIRE_LOG_INFO, "engine", "the text part of %s: images and audio are not supported",
                      info->desc->config->multimodal);
        for (size_t i = 0; daemon_address(c->daemon, i); i++)
            quire_log(QUIRE_LOG_INFO, "engine", "ready on %s after %.2f s", daemon_address(c->daemon, i),
                      info->open_seconds);
        c->entry = daemon_address(c->daemon, 0)
                       ? server_list_announce("engine", c->model.name, daemon_address(c->daemon, 0))
                       : NULL;
        notify_ready();
        event_base_dispatch(c->base);
        server_list_withdraw(c->entry);
        serving_death_leave(c->death);
    }
    c->watching.fails = status != QUIRE_OK;
    return status;
}

int command_engine(int argc, char **argv)
{
    struct engine_command c = {0};
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    struct cli_option rows[ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX + 10];
    struct quire_error err;

    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    size_t n = own_flags(&c, rows);
    n += engine_flags(&options, rows + n);
    n += watching_flags(&c.watching, rows + n);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "engine",
        .usage = "quire engine MODEL --listen ADDRESS [options]",
        .about =
            "Runs an engine for MODEL and serves it over Quire's socket protocol (docs/reference/protocol.md). MODEL is\n"
            "a Hugging Face checkpoint directory or the name of a downloaded model (quire pull). Front ends connect\n"
            "with: quire serve MODEL --engine ADDRESS",
        .examples = "examples:\n"
                    "  quire engine ./model --listen unix:/run/quire/engine.sock\n"
                    "  quire engine ./model --listen tcp:0.0.0.0:7777 --engine-key-file /etc/quire/key",
        .options = rows,
        .positionals = {&options.model_dir},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!options.model_dir)
        return command_fail(2, "MODEL is missing; usage: quire engine MODEL --listen ADDRESS");
    if (c.listen.n == 0 && !supervisor_is_child())
        return command_fail(2, "--listen is missing: give --listen unix:PATH or --listen tcp:HOST:PORT");
    if (serving_check_listen(c.listen.items, c.listen.n, c.key_file, &err) != QUIRE_OK)
        return command_fail(2, err.text);

    if (command_as_rank(options.model_dir, &options, &code))
        return code;
    if (hub_model_find(options.model_dir, false, &c.model, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    options.model_dir = c.model.dir;

    int status = run(&c, &options, &err);
    bool died = serving_death_was(c.death);
    close_all(&c);
    return status == QUIRE_OK ? died : command_fail(1, err.text);
}
