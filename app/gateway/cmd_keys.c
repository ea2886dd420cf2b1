/* quire keys: issues, rotates, revokes and lists the keys of a running gateway by its admin API. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/unknown.h"
#include "app/warm/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_URL "http://127.0.0.1:8000"
#define MAX_GRACE_S (90 * 86400)

struct keys_command {
    const char *url, *admin_key, *what; /* what: the key's name or id */
    const char *organisation, *tenant, *budget;
    uint32_t grace_s;
    bool json;
};

static const char *text_of(const json_t *key, const char *field)
{
    const char *text = json_string_value(json_object_get(key, field));
    return text ? text : "-";
}

/* Control characters of a server's reply must not reach a terminal. */
static void print_text(const char *text, int width)
{
    int n = 0;
    for (; *text; text++, n++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    for (; n < width; n++)
        putchar(' ');
    putchar(' ');
}

static void print_time(const json_t *key, const char *field)
{
    const json_t *value = json_object_get(key, field);
    const time_t at = (time_t)json_integer_value(value);
    struct tm utc;
    char text[32] = "-";
    if (json_is_integer(value) && gmtime_r(&at, &utc))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
    print_text(text, 16);
}

/* ---- actions -------------------------------------------------------------------------------- */

static int path_of(const struct keys_command *a, const char *action, char out[128], struct quire_error *err)
{
    const size_t n = strspn(a->what, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (a->what[n] || n == 0 || n > 64)
        return quire_fail(err, QUIRE_INVALID, "\"%.40s\" is not the id of a key; quire keys list prints all ids",
                          a->what);
    snprintf(out, 128, "/admin/keys/%s%s", a->what, action);
    return QUIRE_OK;
}

static int told(const struct keys_command *a, json_t *reply)
{
    if (a->json)
        return command_print_json(json_incref(reply));
    printf("id   %s\nkey  %s\nThe key is not shown again.\n", text_of(reply, "id"), text_of(reply, "key"));
    return 0;
}

static int issue(const struct keys_command *a, struct cache_client *client, json_t **reply, struct quire_error *err)
{
    json_t *body = json_pack("{s:s}", "name", a->what);
    if (!body)
        return quire_fail(err, QUIRE_INVALID, "NAME is not UTF-8 text");
    if (a->organisation)
        json_object_set_new(body, "organisation", json_string(a->organisation));
    if (a->tenant)
        json_object_set_new(body, "tenant", json_string(a->tenant));
    if (a->budget)
        json_object_set_new(body, "budget", json_string(a->budget));
    const int status = cache_client_call(client, "POST", "/admin/keys", body, reply, err);
    json_decref(body);
    return status == QUIRE_OK ? told(a, *reply) : status;
}

static int rotate(const struct keys_command *a, struct cache_client *client, json_t **reply, struct quire_error *err)
{
    char path[128];
    int status = path_of(a, "/rotate", path, err);
    json_t *body = json_pack("{s:i}", "grace_seconds", (int)a->grace_s);
    if (status == QUIRE_OK)
        status = cache_client_call(client, "POST", path, body, reply, err);
    json_decref(body);
    return status == QUIRE_OK ? told(a, *reply) : status;
}

static int revoke(const struct keys_command *a, struct cache_client *client, json_t **reply, struct quire_error *err)
{
    char path[128];
    int status = path_of(a, "", path, err);
    if (status == QUIRE_OK)
        status = cache_client_call(client, "DELETE", path, NULL, reply, err);
    if (status != QUIRE_OK || a->json)
        return status == QUIRE_OK ? command_print_json(json_incref(*reply)) : status;
    printf("%s is revoked\n", text_of(*reply, "id"));
    return QUIRE_OK;
}

static int list(const struct keys_command *a, struct cache_client *client, json_t **reply, struct quire_error *err)
{
    size_t i;
    const json_t *key;
    const int status = cache_client_call(client, "GET", "/admin/keys", NULL, reply, err);
    if (status != QUIRE_OK || a->json)
        return status == QUIRE_OK ? command_print_json(json_incref(*reply)) : status;
    puts(
        "id                   name                 organisation     tenant           created          last used        revoked");
    json_array_foreach(json_object_get(*reply, "data"), i, key)
    {
        print_text(text_of(key, "id"), 20);
        print_text(text_of(key, "name"), 20);
        print_text(text_of(key, "organisation"), 16);
        print_text(text_of(key, "tenant"), 16);
        print_time(key, "created");
        print_time(key, "last_used");
        print_time(key, "revoked");
        putchar('\n');
    }
    return QUIRE_OK;
}

/* ---- the command line ----------------------------------------------------------------------- */

static const struct {
    const char *name, *usage, *about, *example;
    const char *what; /* the positional argument; NULL: none */
    int (*run)(const struct keys_command *a, struct cache_client *client, json_t **reply, struct quire_error *err);
} actions[] = {
    {"issue", "quire keys issue NAME [options]",
     "Issues a key and prints it, once. The gateway stores only its hash. From the first key on, every request needs one.",
     "examples:\n  quire keys issue \"CI of acme\" --organisation acme --tenant ci --budget 2.50", "NAME", issue},
    {"rotate", "quire keys rotate ID [options]",
     "Replaces a key by another one and prints it, once. The old key stays valid for --grace seconds.",
     "examples:\n  quire keys rotate key_0123456789abcdef --grace 3600", "ID", rotate},
    {"revoke", "quire keys revoke ID [options]", "Revokes a key. Requests that are running continue.",
     "examples:\n  quire keys revoke key_0123456789abcdef", "ID", revoke},
    {"list", "quire keys list [options]", "Lists all keys with their tenants, and when they were used last.",
     "examples:\n  quire keys list --url https://gateway.example.com", NULL, list},
};
#define N_ACTIONS (sizeof actions / sizeof actions[0])

static size_t make_rows(size_t action, struct keys_command *a, struct cli_option *rows)
{
    size_t n = 0;
    rows[n++] = (struct cli_option){.names = "url",
                                    .kind = CLI_STRING,
                                    .target = &a->url,
                                    .value = "URL",
                                    .help = "The gateway's URL. Default " DEFAULT_URL "."};
    rows[n++] = (struct cli_option){.names = "admin-key",
                                    .kind = CLI_STRING,
                                    .target = &a->admin_key,
                                    .value = "KEY",
                                    .help = "The key of an admin. Default: $QUIRE_ADMIN_KEY."};
    if (actions[action].run == issue) {
        rows[n++] = (struct cli_option){.names = "organisation",
                                        .kind = CLI_STRING,
                                        .target = &a->organisation,
                                        .value = "NAME",
                                        .help = "Organisation of the tenant. Default: default."};
        rows[n++] = (struct cli_option){.names = "tenant",
                                        .kind = CLI_STRING,
                                        .target = &a->tenant,
                                        .value = "NAME",
                                        .help = "Tenant whose requests the key makes. Default: default."};
        rows[n++] = (struct cli_option){.names = "budget",
                                        .kind = CLI_STRING,
                                        .target = &a->budget,
                                        .value = "DOLLARS",
                                        .help = "The most that the key may spend in a day of UTC. Default: no limit."};
    }
    if (actions[action].run == rotate)
        rows[n++] = (struct cli_option){.names = "grace",
                                        .kind = CLI_U32,
                                        .target = &a->grace_s,
                                        .max = MAX_GRACE_S,
                                        .value = "SECONDS",
                                        .help = "How long the old key stays valid. Default 86400, one day."};
    rows[n++] = (struct cli_option){.names = "json", .kind = CLI_FLAG, .target = &a->json, .help = "Print JSON."};
    rows[n] = (struct cli_option){0};
    return n;
}

static int run_action(size_t action, int argc, char **argv)
{
    struct keys_command a = {.url = DEFAULT_URL, .grace_s = 86400};
    struct cli_option rows[8];
    struct cache_client *client;
    struct quire_error err = {.text = ""};
    json_t *reply = NULL;
    char missing[128];
    int code;
    make_rows(action, &a, rows);
    struct cli_command command = {.name = "keys",
                                  .usage = actions[action].usage,
                                  .about = actions[action].about,
                                  .examples = actions[action].example,
                                  .options = rows};
    if (actions[action].what)
        command.positionals[0] = &a.what;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    snprintf(missing, sizeof missing, "%s is missing; usage: %s", actions[action].what ? actions[action].what : "",
             actions[action].usage);
    if (actions[action].what && !a.what)
        return command_fail(2, missing);
    if (!a.admin_key)
        a.admin_key = getenv("QUIRE_ADMIN_KEY");
    const struct cache_client_options options = {.url = a.url, .api_key = a.admin_key};
    if (cache_client_open(&options, &client, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    const int status = actions[action].run(&a, client, &reply, &err);
    json_decref(reply);
    cache_client_close(client);
    if (status != QUIRE_OK && err.text[0])
        return command_fail(1, err.text);
    return status == QUIRE_OK ? 0 : 1;
}

int command_keys(int argc, char **argv)
{
    for (size_t i = 0; argc > 0 && i < N_ACTIONS; i++)
        if (strcmp(argv[0], actions[i].name) == 0)
            return run_action(i, argc - 1, argv + 1);
    const bool help = argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
    if (argc > 0 && !help) {
        struct unknown_name typed = unknown_begin(argc, argv);
        for (size_t i = 0; i < N_ACTIONS; i++)
            unknown_try(&typed, actions[i].name);
        return unknown_end(&typed, "action", "quire keys ");
    }
    puts("usage: quire keys ACTION [options]\n");
    for (size_t i = 0; i < N_ACTIONS; i++)
        printf("  %s\n", actions[i].usage);
    puts("\nManages the API keys of a running gateway (quire serve --models).\n\n"
         "examples:\n"
         "  quire keys issue \"CI of acme\" --organisation acme --tenant ci --budget 2.50\n"
         "  quire keys rotate key_0123456789abcdef --grace 3600\n"
         "  quire keys revoke key_0123456789abcdef\n"
         "  quire keys list\n\n"
         "quire keys ACTION --help lists the options.");
    return help ? 0 : 2;
}
