/* quire route explain: the decision of a route, without a server. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/unknown.h"
#include "server/gateway/route/route.h"

#include <stdio.h>
#include <string.h>

struct explain {
    const char *prompt, *file, *model, *user, *request_id;
    bool json;
};

static const char *const complexities[] = {
    [ROUTE_SIMPLE] = "simple", [ROUTE_MODERATE] = "moderate", [ROUTE_COMPLEX] = "complex"};

/* The model that is asked for: --model, or the file's first with the rule of complexity or an experiment. */
static const char *asked_model(const struct explain *a, const struct gateway_config *config)
{
    for (size_t i = 0; i < config->n_models && !a->model; i++)
        if (config->models[i].route.kind == GATEWAY_ROUTE_COMPLEXITY ||
            config->models[i].route.kind == GATEWAY_ROUTE_EXPERIMENT)
            return config->models[i].name;
    return a->model;
}

static int choose(const struct explain *a, const struct gateway_config *config, struct route_choice *out,
                  struct quire_error *err)
{
    const char *asked = asked_model(a, config);
    if (!asked)
        return quire_fail(err, QUIRE_INVALID, "%s: no model has route: complexity or experiment; name one with --model",
                          a->file);
    const struct route_question q = {.asked = asked,
                                     .n_asked = strlen(asked),
                                     .prompt = a->prompt,
                                     .n_prompt = strlen(a->prompt),
                                     .user = a->user,
                                     .n_user = a->user ? strlen(a->user) : 0,
                                     .request_id = a->request_id};
    if (!route_choose(config, &q, NULL, out))
        return quire_fail(err, QUIRE_INVALID, "--model %s: is not a model of %s", asked, a->file);
    if (out->arm == ROUTE_NO_ARM)
        return QUIRE_OK;
    const struct gateway_model *m = &config->models[out->experiment];
    if (!a->request_id && (m->route.experiment->by_request || !a->user))
        return quire_fail(err, QUIRE_INVALID, "%s is an experiment, and its arm depends on %s", m->name,
                          m->route.experiment->by_request ? "the request: name its id with --request-id"
                                                          : "the user: name one with --user");
    return QUIRE_OK;
}

/* config, choice: NULL without a file. */
static int print(const struct explain *a, const struct route_reading *r, const struct gateway_config *config,
                 const struct route_choice *choice)
{
    const char *complexity = complexities[r->complexity], *model = config ? config->models[choice->model].name : NULL;
    const char *why = choice ? choice->why : NULL;
    const bool has_arm = choice && choice->arm != ROUTE_NO_ARM;
    const struct gateway_model *experiment = has_arm ? &config->models[choice->experiment] : NULL;
    const char *arm = has_arm ? experiment->route.experiment->arms[choice->arm].name : NULL;
    if (a->json) {
        json_t *json = json_pack("{s:s, s:i, s:s?, s:s?, s:s?}", "complexity", complexity, "words", (int)r->n_words,
                                 "indicator", r->indicator, "model", model, "why", why);
        if (json && has_arm)
            json_object_update_new(json, json_pack("{s:s, s:s, s:i}", "experiment", experiment->name, "arm", arm,
                                                   "bucket", (int)choice->bucket));
        return command_print_json(json);
    }
    printf("complexity  %s\nwords       %u\nindicator   %s\n", complexity, r->n_words,
           r->indicator ? r->indicator : "none");
    if (model)
        printf("model       %s (%s)\n", model, why);
    if (has_arm)
        printf("experiment  %s\narm         %s\nbucket      %u\n", experiment->name, arm, choice->bucket);
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
    const int code = status == QUIRE_OK ? print(a, &reading, config, &choice) : command_fail(1, err.text);
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
         .help = "The model that is asked for. Default: the file's first with route: complexity or experiment."},
        {.names = "user",
         .kind = CLI_STRING,
         .target = &a.user,
         .value = "USER",
         .common = true,
         .help = "The user who asks, for an experiment by user."},
        {.names = "request-id",
         .kind = CLI_STRING,
         .target = &a.request_id,
         .value = "ID",
         .common = true,
         .help = "The request's id, for an experiment by request, or for a request without a user."},
        {.names = "json", .kind = CLI_FLAG, .target = &a.json, .common = true, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "route",
        .usage = "quire route explain PROMPT [options]",
        .about =
            "Prints how the rule of complexity (docs/reference/models-file.md) reads a prompt: its class, its number of\n"
            "words, and the words that decided. With --models, also the model that answers, and the arm of an experiment.",
        .examples = "examples:\n"
                    "  quire route explain \"What is a KV cache?\"\n"
                    "  quire route explain \"Compare TCP and QUIC step by step\" --models models.yaml\n"
                    "  quire route explain Hello --models models.yaml --model chat --user alice",
        .options = rows,
        .positionals = {&a.prompt},
    };
    const bool is_explain = argc > 0 && strcmp(argv[0], "explain") == 0;
    if (argc > 0 && !is_explain && argv[0][0] != '-') {
        struct unknown_name typed = unknown_begin(argc, argv);
        unknown_try(&typed, "explain");
        return unknown_end(&typed, "action", "quire route ");
    }
    if (!command_begin(&command, argc - is_explain, argv + is_explain, &code))
        return code;
    if (!is_explain || !a.prompt)
        return command_fail(2, "PROMPT is missing; usage: quire route explain PROMPT");
    return explain(&a);
}
