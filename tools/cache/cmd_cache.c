/* quire cache: pins and fills the prefix cache of a running server, and manages its cached responses. */
#include "base/file.h"
#include "app/command/cli.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/unknown.h"
#include "tools/cache/answers.h"
#include "tools/cache/cmd_calibrate.h"
#include "tools/cache/cmd_warm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)16 << 20)
#define MAX_TTL_S 86400

struct cache_command {
    const char *url, *api_key, *model, *file;
    uint32_t ttl_s;
    bool json;
};

/* ---- pin ---- */

static int read_text(const char *path, struct buffer *text, struct quire_error *err)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", path);
    int status = buffer_read(text, f, MAX_FILE_BYTES, path, err);
    if (f != stdin)
        fclose(f);
    return status;
}

/* {"prompt"} for a text file, {"messages"} for a .json file. */
static int read_prompt(const char *path, json_t **out, struct quire_error *err)
{
    struct buffer text = {0};
    size_t n_path = strlen(path);
    json_t *value = NULL;
    bool is_json = n_path >= 5 && strcmp(path + n_path - 5, ".json") == 0;
    int status = read_text(path, &text, err);
    if (status == QUIRE_OK && is_json)
        status = quire_json_parse(text.data, text.n, 64, path, &value, err);
    else if (status == QUIRE_OK && !(value = json_stringn(text.data, text.n)))
        status = quire_fail(err, QUIRE_INVALID, "%s: is not UTF-8 text", path);
    buffer_free(&text);
    *out = status == QUIRE_OK ? json_pack("{s:o}", is_json ? "messages" : "prompt", value) : NULL;
    return status;
}

static int pin(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    json_t *body, *reply = NULL;
    int status = read_prompt(a->file, &body, err);
    if (status != QUIRE_OK)
        return status;
    json_object_set_new(body, "ttl_seconds", json_integer(a->ttl_s));
    status = cache_client_call(client, "POST", "/v1/cache/pins", body, &reply, err);
    if (status == QUIRE_OK)
        printf("%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
               " tokens are pinned for %u s after their last use; %" JSON_INTEGER_FORMAT " were cached\n",
               json_integer_value(json_object_get(reply, "pinned_tokens")),
               json_integer_value(json_object_get(reply, "prompt_tokens")), a->ttl_s,
               json_integer_value(json_object_get(reply, "cached_tokens")));
    json_decref(reply);
    json_decref(body);
    return status;
}

/* ---- unpin ---- */

static int unpin(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    json_t *reply = NULL;
    (void)a;
    int status = cache_client_call(client, "DELETE", "/v1/cache/pins", NULL, &reply, err);
    if (status == QUIRE_OK)
        puts("the pins of this key are removed");
    json_decref(reply);
    return status;
}

/* ---- answers ---- */

static int stats(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    return answers_stats(client, a->json, err);
}

static int clear(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    (void)a;
    return answers_clear(client, err);
}

static int inspect(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    (void)a;
    return answers_inspect(client, err);
}

static int export_answers(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    return answers_export(client, a->file, err);
}

static int import_answers(const struct cache_command *a, struct cache_client *client, struct quire_error *err)
{
    return answers_import(client, a->file, err);
}

/* ---- the command line ---- */

static const struct {
    const char *name, *usage, *about, *example;
    const char *file_help; /* of --file; NULL: the action has no file */
    bool has_ttl;
    int (*run)(const struct cache_command *a, struct cache_client *client, struct quire_error *err);
} actions[] = {
    {"pin", "quire cache pin URL --file FILE [options]",
     "Computes a prompt and pins its blocks in the server's prefix cache, for the given key.",
     "examples:\n  quire cache pin http://127.0.0.1:8000 --file system-prompt.txt --ttl 3600",
     "The prompt: text, - for standard input, or NAME.json with a list of messages.", true, pin},
    {"unpin", "quire cache unpin URL [options]", "Removes all pins of the given key.",
     "examples:\n  quire cache unpin http://127.0.0.1:8000", NULL, false, unpin},
    {"stats", "quire cache stats URL [options]",
     "Prints the counters of the server's response cache (docs/guides/caching.md).",
     "examples:\n  quire cache stats http://127.0.0.1:8000", NULL, false, stats},
    {"clear", "quire cache clear URL [options]", "Deletes every cached response of the server. Needs an admin's key.",
     "examples:\n  quire cache clear http://127.0.0.1:8000", NULL, false, clear},
    {"inspect", "quire cache inspect URL [options]",
     "Lists the cached responses in the server's memory: key, age, remaining lifetime, number of times served, "
     "tokens, bytes.\nNeeds an admin's key.",
     "examples:\n  quire cache inspect http://127.0.0.1:8000", NULL, false, inspect},
    {"export", "quire cache export URL --file FILE [options]",
     "Writes the cached responses in the server's memory to a file. Needs an admin's key, because the file contains "
     "users'\nanswers.",
     "examples:\n  quire cache export http://127.0.0.1:8000 --file answers.jsonl", "The file; - for standard output.",
     false, export_answers},
    {"import", "quire cache import URL --file FILE [options]",
     "Imports cached responses from such a file if the engine computes the same bits. Needs an admin's key.",
     "examples:\n  quire cache import http://127.0.0.1:8000 --file answers.jsonl", "The file; - for standard input.",
     false, import_answers},
};
#define N_ACTIONS (sizeof actions / sizeof actions[0])

static int run_action(size_t action, int argc, char **argv)
{
    struct cache_command a = {.ttl_s = 300};
    struct cli_option rows[6];
    struct cache_client *client;
    struct quire_error err;
    size_t n = 0;
    if (actions[action].file_help)
        rows[n++] = (struct cli_option){
            .names = "file", .kind = CLI_STRING, .target = &a.file, .value = "FILE", .help = actions[action].file_help};
    if (actions[action].has_ttl)
        rows[n++] = (struct cli_option){.names = "ttl",
                                        .kind = CLI_U32,
                                        .target = &a.ttl_s,
                                        .min = 1,
                                        .max = MAX_TTL_S,
                                        .value = "SECONDS",
                                        .help = "How long the prefix stays pinned after its last use. Default 300."};
    rows[n++] = (struct cli_option){
        .names = "api-key",
        .kind = CLI_STRING,
        .target = &a.api_key,
        .value = "KEY",
        .help = "Bearer token. Prefixes are shared within one key only. Default: $OPENAI_API_KEY."};
    if (actions[action].run == stats)
        rows[n++] = (struct cli_option){
            .names = "json", .kind = CLI_FLAG, .target = &a.json, .help = "Print JSON instead of a table."};
    rows[n++] = (struct cli_option){.names = "model",
                                    .kind = CLI_STRING,
                                    .target = &a.model,
                                    .value = "NAME",
                                    .help = "Name of the served model. Default: the server's first."};
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {.name = "cache",
                                        .usage = actions[action].usage,
                                        .about = actions[action].about,
                                        .examples = actions[action].example,
                                        .options = rows,
                                        .positionals = {&a.url}};
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!a.url)
        return command_fail(2, "URL is missing; usage: quire cache ACTION http://HOST:PORT");
    if (actions[action].file_help && !a.file)
        return command_fail(2, "--file FILE is missing");
    if (!a.api_key)
        a.api_key = getenv("OPENAI_API_KEY");
    const struct cache_client_options options = {.url = a.url, .api_key = a.api_key, .model = a.model};
    if (cache_client_open(&options, &client, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    int status = actions[action].run(&a, client, &err);
    cache_client_close(client);
    return status == QUIRE_OK ? 0 : command_fail(1, err.text);
}

int command_cache(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "calibrate") == 0)
        return cache_calibrate(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "warm") == 0)
        return cache_warm(argc - 1, argv + 1);
    for (size_t i = 0; argc > 0 && i < N_ACTIONS; i++)
        if (strcmp(argv[0], actions[i].name) == 0)
            return run_action(i, argc - 1, argv + 1);
    bool help = argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
    if (argc > 0 && !help) {
        struct unknown_name typed = unknown_begin(argc, argv);
        for (size_t i = 0; i < N_ACTIONS; i++)
            unknown_try(&typed, actions[i].name);
        unknown_try(&typed, "warm");
        unknown_try(&typed, "calibrate");
        return unknown_end(&typed, "action", "quire cache ");
    }
    puts("usage: quire cache ACTION URL [options]\n");
    for (size_t i = 0; i < N_ACTIONS; i++)
        printf("  %s\n", actions[i].usage);
    puts("  quire cache warm URL --file PROMPTS.jsonl | --answers FILE [options]");
    puts("  quire cache calibrate PAIRS.jsonl --embedding-model MODEL | --url URL [options]");
    puts(
        "\nPins prefixes in the prefix cache of a running server and fills it (docs/reference/http-api.md), and manages its\n"
        "cached responses (docs/guides/caching.md).\n\n"
        "examples:\n"
        "  quire cache pin http://127.0.0.1:8000 --file system-prompt.txt --ttl 3600\n"
        "  quire cache warm http://127.0.0.1:8000 --file prompts.jsonl\n"
        "  quire cache warm http://127.0.0.1:8000 --answers day.rec --budget-seconds 600\n"
        "  quire cache unpin http://127.0.0.1:8000\n"
        "  quire cache stats http://127.0.0.1:8000\n"
        "  quire cache calibrate pairs.jsonl --embedding-model sentence-transformers/all-MiniLM-L6-v2\n\n"
        "quire cache ACTION --help lists the options.");
    return help ? 0 : 2;
}
