/* quire serve: the OpenAI front end, with an engine in this process or elsewhere, on one event loop. */
#include "text/quire_chat.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/flags/engine_flags.h"
#include "app/serve/engine_argv.h"
#include "app/serve/serve.h"
#include "app/serve/serve_check.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Without its options and its positional. */
static const struct cli_command description = {
    .name = "serve",
    .usage = "quire serve MODEL [options]",
    .about = "Serves MODEL over the APIs of OpenAI, Anthropic, Ollama and llama.cpp, with a web page at /ui.\n"
             "MODEL is a Hugging Face checkpoint directory or the name of a downloaded model (quire pull).\n"
             "SIGTERM finishes running requests (--shutdown-timeout); a second SIGTERM ends the server at once.",
    .examples = "examples:\n"
                "  quire serve ./Qwen2.5-1.5B-Instruct\n"
                "  quire serve Qwen/Qwen2.5-1.5B-Instruct\n"
                "  quire serve ./model --host 0.0.0.0 --api-key \"$KEY\" --served-model-name chat\n"
                "  quire serve ./model --engine unix:/run/quire/engine.sock",
    .first_names = FOREIGN_MODEL_NAMES,
    .foreign = foreign_flags,
};

/* Reads and checks the command line, and the keys of the environment. Returns false with the exit status in *code if
 * the command ends here. */
static bool begin(struct serve_flags *f, int argc, char **argv, int *code)
{
    struct cli_option rows[SERVE_FLAGS_MAX + ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX + 1];
    bool given[ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX] = {false};
    struct serve_settings *says = f->says;
    struct quire_error err;
    const size_t n_own = serve_flags(f, rows);
    size_t n = n_own + engine_flags(f->options, rows + n_own);
    n += watching_flags(f->watching, rows + n);
    rows[n] = (struct cli_option){0};
    cli_note_given(rows + n_own, n - n_own, given);
    struct cli_command command = description;
    command.options = rows;
    command.positionals[0] = &says->given;
    if (!command_begin(&command, argc, argv, code))
        return false;
    quire_log_set_verbose(says->verbose);
    if (serve_check(f, cli_first_given(rows + n_own, n - n_own), &err) != QUIRE_OK) {
        *code = command_fail(2, err.text);
        return false;
    }
    if (!says->remote && command_as_rank(says->given, f->options, code))
        return false;
    if (!says->tenants_file && serve_keys_of_environment(&says->api_keys, &says->environment_keys, &err) != QUIRE_OK) {
        *code = command_fail(2, err.text);
        return false;
    }
    if (says->restarts &&
        engine_argv_make(says, &command, argc, argv, rows + n_own, n - n_own, &f->engine_argv, &err) != QUIRE_OK) {
        *code = command_fail(1, err.text);
        return false;
    }
    return true;
}

/* Whether the command line is that of a gateway. */
static bool has_models_file(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--models") == 0 || strncmp(argv[i], "--models=", 9) == 0)
            return true;
    return false;
}

int command_serve(int argc, char **argv)
{
    if (has_models_file(argc, argv))
        return command_serve_models(argc, argv);
    struct http_settings http = {.host = "127.0.0.1", .port = 8000, .max_connections = 4096};
    struct serve_settings says = {
        .specials_in_messages = QUIRE_SPECIALS_TEXT,
        .responses = {.max_bytes = FRONT_RESPONSES_BYTES, .ttl_s = FRONT_RESPONSES_TTL_S},
    };
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    struct watching watching = {0};
    struct cache_flags cache = {0};
    struct companion_flags companion = {0};
    struct bulk_settings bulk = {0};
    struct serve_flags flags = {.http = &http,
                                .says = &says,
                                .options = &options,
                                .watching = &watching,
                                .cache = &cache,
                                .companion = &companion,
                                .bulk = &bulk};
    struct quire_error err;
    int code;
    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    if (begin(&flags, argc, argv, &code) && serve_run(&flags, &code, &err) != QUIRE_OK)
        code = command_fail(1, err.text);
    free(flags.engine_argv);
    free(says.environment_keys);
    return code;
}
