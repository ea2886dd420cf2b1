/* quire route explain: the decision of a route, without a server. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "server/gateway/route/route.h"

#include <stdio.h>
#include <string.h>

struct explain {
    const char *prompt, *file, *model;
    bool json;
};

static const char *const complexities[] = {
    [ROUTE_SIMPLE] = "simple", [ROUTE_MODERATE] = "moderate", [ROUTE_COMPLEX] = "complex"};

/* The model that is asked for: --model, or the file's first with the rule of complexity. */
static const char *asked_model(const struct explain *a, const struct gateway_config *config)
{
    for (size_t i = 0; i < config->n_models && !a->model; i++)
        if (config->models[i].route.kind == GATEWAY_ROUTE_COMPLEXITY)
            return config->models[i].name;
    return a->model;
}

static int choose(const struct explain *a, const struct gateway_config *config, struct route_choice *out,
                  struct quire_error *err)
{
    const char *asked = asked_model(a, config);
    if (!asked)
        return quire_fail(err, QUIRE_INVALID, "%s: no model has route: complexity; name one with --model", a->file);
    if (!route_choose(config, asked, strlen(asked), NULL, a->prompt, strlen(a->prompt), NULL, out))
        return quire_fail(err, QUIRE_INVALID, "--model %s: is not a model of %s", asked, a->file);
    return QUIRE_OK;
}

/* model, why: NULL without a file. */
static int print(const struct explain *a, const struct route_reading *r, const char *model, const char *why)
{
    const char *complexity = complexities[r->complexity];
    if (a->json)
        return command_print_json(json_pack("{s:s, s:i, s:s?, s:s?, s:s?}", "complexity", complexity, "words",
                                            (int)r->n_words, "indicator", r->indicator, "model", model, "why", why));
    printf("complexity  %s\nwords       %u\nindicator   %s\n", complexity, r->n_words,
           r->indicator ? r->indicator : "none");
    if (model)
        printf("model       %s (%s)\n", model, why);
    return 0;
}

static int explain(const struct explain *a)
{
    const struct gateway_config *config = NULL;
    struct route_reading reading;
    struct route_choice choice;
    struct quire_error err;
    route_read(a->prompt, strlen(a->prompt), &reading);
    if (!a->file)
        return print(a, &reading, NULL, NULL);
    int status = models_file_read(a->file, &config, &err);
    if (status == QUIRE_OK)
        status = choose(a, config, &choice, &err);
    const int code = status == QUIRE_OK ? print(a, &reading, config->models[choice.model].name, choice.why)
                                        : command_fail(1, err.text);
    models_file_release(config);
    return code;
}

int command_route(int argc, char **argv)
{
    struct explain a = {0};
    int code;
    const struct cli_option rows[] = {
        {.names = "models",
         .kind = CLI_STRING,
         .target = &a.file,
         .value = "FILE",
         .common = true,
         .help = "Also print the model that this models file selects."},
        {.names = "model",
         .kind = CLI_STRING,
         .target = &a.model,
         .value = "NAME",
         .common = true,
         .help = "The model that is asked for. Default: the file's first with route: complexity."},
        {.names = "json", .kind = CLI_FLAG, .target = &a.json, .common = true, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "route",
        .usage = "quire route explain PROMPT [options]",
        .about =
            "Prints how the rule of complexity (docs/reference/models-file.md) reads a prompt: its class, its number of\n"
            "words, and the words that decided.",
        .examples = "examples:\n"
                    "  quire route explain \"What is a KV cache?\"\n"
                    "  quire route explain \"Compare TCP and QUIC step by step\" --models models.yaml",
        .options = rows,
        .positionals = {&a.prompt},
    };
    const bool is_explain = argc > 0 && strcmp(argv[0], "explain") == 0;
    if (argc > 0 && !is_explain && argv[0][0] != '-') {
        fprintf(stderr, "quire: unknown action \"quire route %.64s\"; use quire route explain PROMPT\n", argv[0]);
        return 2;
    }
    if (!command_begin(&command, argc - is_explain, argv + is_explain, &code))
        return code;
    if (!is_explain || !a.prompt)
        return command_fail(2, "PROMPT is missing; usage: quire route explain PROMPT");
    return explain(&a);
}
