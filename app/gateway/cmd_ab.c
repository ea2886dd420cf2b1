/* quire ab report: whether the arms of an experiment differ by more than noise. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/unknown.h"
#include "app/gateway/ab_report.h"
#include "app/warm/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_URL "http://127.0.0.1:8000"

struct ab_command {
    const char *name; /* of the experiment; NULL: all */
    const char *url, *key, *log, *models, *metric;
    double alpha;
    bool json, url_given;
};

static int read_gateway(const struct ab_command *a, struct ab_list *out, struct quire_error *err)
{
    const struct cache_client_options options = {.url = a->url, .api_key = a->key};
    struct cache_client *client;
    json_t *reply = NULL;
    int status = cache_client_open(&options, &client, err);
    if (status != QUIRE_OK)
        return status;
    status = cache_client_call(client, "GET", "/gateway/experiments", NULL, &reply, err);
    if (status == QUIRE_OK)
        status = ab_read_reply(reply, out, err);
    json_decref(reply);
    cache_client_close(client);
    return status;
}

/* Reports the experiments, or the one with the name. */
static int report(const struct ab_command *a, const struct ab_list *list, const struct ab_settings *settings)
{
    json_t *all = json_array();
    char wrong[200];
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (a->name && strcmp(list->items[i].name, a->name) != 0)
            continue;
        n++;
        if (a->json)
            json_array_append_new(all, ab_report_json(&list->items[i], settings));
        else
            ab_report_print(&list->items[i], settings);
    }
    if (n > 0 && a->json)
        return command_print_json(json_pack("{s:o}", "experiments", all));
    json_decref(all);
    snprintf(wrong, sizeof wrong, a->name ? "there is no experiment \"%.128s\"" : "there is no experiment%.1s",
             a->name ? a->name : "");
    return n > 0 ? 0 : command_fail(1, wrong);
}

static int run(const struct ab_command *a)
{
    struct ab_list *list = calloc(1, sizeof *list);
    struct quire_error err = {.text = ""};
    enum gateway_metric metric = GATEWAY_ERRORS;
    while (a->metric && metric < GATEWAY_N_METRICS && strcmp(a->metric, gateway_metrics[metric].name) != 0)
        metric++;
    const struct ab_settings settings = {.alpha = a->alpha, .metric = a->metric ? &metric : NULL};
    int code;
    if (!list)
        return command_fail(1, "out of memory");
    if (metric == GATEWAY_N_METRICS)
        code = command_fail(2, "--metric must be errors, cancelled, ttft, latency, output_tokens, cached_tokens, "
                               "cache_hits or cost");
    else if ((a->log ? ab_read_log(a->log, a->models, list, &err) : read_gateway(a, list, &err)) != QUIRE_OK)
        code = command_fail(1, err.text);
    else
        code = report(a, list, &settings);
    ab_list_free(list);
    return code;
}

static const struct cli_command description = {
    .name = "ab",
    .usage = "quire ab report [EXPERIMENT] [options]",
    .about =
        "Compares each arm of an experiment (docs/guides/experiments.md) with the first one, and says whether a difference\n"
        "is more than noise: by a sequential test that is valid however often you look, with requests of one user counted\n"
        "as dependent. The statistics come from a running gateway, or from a log of --log-requests.",
    .examples = "examples:\n"
                "  quire ab report --url https://gateway.example.com\n"
                "  quire ab report chat --log gateway.log --models models.yaml --json",
};

static bool begin(struct ab_command *a, int argc, char **argv, int *code)
{
    const struct cli_option rows[] = {
        {.names = "url",
         .kind = CLI_STRING,
         .target = &a->url,
         .given = &a->url_given,
         .value = "URL",
         .help = "The gateway's URL. Default " DEFAULT_URL "."},
        {.names = "api-key",
         .kind = CLI_STRING,
         .target = &a->key,
         .value = "KEY",
         .help = "A key of the gateway. Default: $QUIRE_API_KEY."},
        {.names = "log",
         .kind = CLI_STRING,
         .target = &a->log,
         .value = "FILE",
         .help = "Read a log of --log-requests instead, as text or JSON. -: standard input. Needs --models."},
        {.names = "models",
         .kind = CLI_STRING,
         .target = &a->models,
         .value = "FILE",
         .help = "The models file of the time of the log. Requests of other settings are left out."},
        {.names = "metric",
         .kind = CLI_STRING,
         .target = &a->metric,
         .value = "NAME",
         .help = "The metric that was chosen before the experiment. Default: metric of the models file."},
        {.names = "alpha",
         .kind = CLI_F64,
         .target = &a->alpha,
         .min = 1e-6,
         .max = 0.5,
         .value = "X",
         .help = "The most false alarms. Default 0.05."},
        {.names = "json", .kind = CLI_FLAG, .target = &a->json, .help = "Print JSON."},
        {0},
    };
    struct cli_command command = description;
    command.options = rows;
    command.positionals[0] = &a->name;
    return command_begin(&command, argc, argv, code);
}

int command_ab(int argc, char **argv)
{
    struct ab_command a = {.url = DEFAULT_URL, .alpha = 0.05};
    const bool is_report = argc > 0 && strcmp(argv[0], "report") == 0;
    int code;
    if (argc > 0 && !is_report && argv[0][0] != '-') {
        struct unknown_name typed = unknown_begin(argc, argv);
        unknown_try(&typed, "report");
        return unknown_end(&typed, "action", "quire ab ");
    }
    if (!begin(&a, argc - is_report, argv + is_report, &code))
        return code;
    if (!is_report)
        return command_fail(2, "the action is missing; usage: quire ab report [EXPERIMENT]");
    if (!a.log != !a.models)
        return command_fail(2, "--log and --models belong together");
    if (a.log && a.url_given)
        return command_fail(2, "--log and --url exclude each other");
    if (!a.key)
        a.key = getenv("QUIRE_API_KEY");
    return run(&a);
}
