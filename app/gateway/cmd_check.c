/* quire check: reads a models file as `quire serve --models` would, without starting anything. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/gateway/engines.h"
#include "app/gateway/models_summary.h"
#include "server/gateway/experiment/variables.h"

#include <stdio.h>

/* An engine elsewhere does not tell its tokenizer: quire serve rejects a model that does not name one. */
static void warn_of_tokenizers(const char *path, const struct gateway_config *config)
{
    for (size_t i = 0; i < config->n_models; i++) {
        const struct gateway_model *m = &config->models[i];
        for (size_t j = 0; j < m->n_targets && !m->tokenizer; j++) {
            const struct gateway_target *t = &m->targets[j];
            if (t->kind != GATEWAY_TARGET_ENGINE)
                continue;
            fprintf(stderr,
                    "quire: warning: %s:%u:%u: model %s: tokenizer: is missing; quire serve needs the directory of the "
                    "model for an engine at an address\n",
                    path, t->line, t->column, m->name);
            break;
        }
    }
}

static void warn_of_variables(const char *path, const struct gateway_config *config)
{
    char warning[VARIABLES_WARNING_BYTES];
    for (uint32_t i = 0; i < config->n_models; i++) {
        const struct gateway_experiment *e = config->models[i].route.experiment;
        for (uint32_t k = 1; e && k < e->n_arms; k++)
            if (variables_warn(config, i, k, warning))
                fprintf(stderr, "quire: warning: %s:%u:%u: %s\n", path, e->arms[k].line, e->arms[k].column, warning);
    }
}

int command_check(int argc, char **argv)
{
    const char *path = NULL;
    bool json = false;
    const struct gateway_config *config;
    struct quire_error err;
    char wrong[720];
    int code;
    const struct cli_option rows[] = {
        {.names = "json", .kind = CLI_FLAG, .target = &json, .common = true, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "check",
        .usage = "quire check FILE [options]",
        .about =
            "Checks the file of `quire serve --models FILE` and prints its models, targets, routes and prices. An error\n"
            "names the line, the column and the field, or the option of an engine. Arms of an experiment that differ in more\n"
            "than one variable are a warning. Environment variables and key files that the file names are read, too. Nothing\n"
            "is started, and no target is contacted.",
        .examples = "examples:\n  quire check models.yaml\n  quire check models.yaml --json",
        .options = rows,
        .positionals = {&path},
    };
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!path)
        return command_fail(2, "FILE is missing; usage: quire check FILE");
    if (models_file_read(path, &config, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    if (engines_check(config, &err) != QUIRE_OK) {
        models_file_release(config);
        snprintf(wrong, sizeof wrong, "%.200s:%.500s", path, err.text);
        return command_fail(1, wrong);
    }
    code = 0;
    warn_of_tokenizers(path, config);
    warn_of_variables(path, config);
    if (json)
        code = command_print_json(models_summary_json(config));
    else
        models_summary_print(config);
    models_file_release(config);
    return code;
}
