/* quire batch status, list and cancel: the batches of a running server. */
#include "app/batch/batch_status.h"

#include "app/command/command.h"
#include "app/warm/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_URL "http://127.0.0.1:8000"
#define PAGE 100 /* batches of each API in a list */
#define MAX_PATH 160

struct status_command {
    const char *url, *key, *action, *id;
    bool json;
};

/* ---- one batch of either API ---------------------------------------------------------------- */

struct shown {
    const char *id, *state;
    json_int_t total, succeeded, failed, input_tokens, output_tokens;
    double cost;
    char begun[24];
};

static json_int_t number(const json_t *of, const char *name)
{
    return json_integer_value(json_object_get(of, name));
}

static void read_begun(const json_t *batch, char out[24])
{
    const json_t *at = json_object_get(batch, "created_at");
    const time_t seconds = (time_t)json_integer_value(at);
    struct tm local;
    if (json_is_string(at))
        snprintf(out, 24, "%.16s", json_string_value(at));
    else if (localtime_r(&seconds, &local))
        strftime(out, 24, "%Y-%m-%dT%H:%M", &local);
}

static struct shown read_batch(const json_t *batch)
{
    const json_t *counts = json_object_get(batch, "request_counts"), *usage = json_object_get(batch, "usage");
    const bool is_messages = json_object_get(batch, "processing_status") != NULL;
    struct shown s = {.input_tokens = number(usage, "input_tokens"),
                      .output_tokens = number(usage, "output_tokens"),
                      .cost = json_number_value(json_object_get(usage, "cost"))};
    s.id = json_string_value(json_object_get(batch, "id"));
    s.state = json_string_value(json_object_get(batch, is_messages ? "processing_status" : "status"));
    s.succeeded = number(counts, is_messages ? "succeeded" : "completed");
    s.failed = is_messages ? number(counts, "errored") + number(counts, "canceled") + number(counts, "expired")
                           : number(counts, "failed");
    s.total = is_messages ? number(counts, "processing") + s.succeeded + s.failed : number(counts, "total");
    read_begun(batch, s.begun);
    return s;
}

/* Control characters of a server's reply must not reach a terminal. */
static void print_text(const char *text, int width)
{
    int n = 0;
    for (const char *at = text ? text : "-"; *at; at++, n++)
        putchar((unsigned char)*at < 0x20 || *at == 0x7f ? '?' : *at);
    printf("%*s", n < width ? width - n : 0, "");
}

static void print_head(void)
{
    printf("%-42s %-12s %16s %7s %12s %12s %10s  %s\n", "batch", "state", "lines", "failed", "in tokens", "out tokens",
           "cost", "begun");
}

static void print_row(const json_t *batch)
{
    const struct shown s = read_batch(batch);
    char lines[64];
    snprintf(lines, sizeof lines, "%lld of %lld", (long long)(s.succeeded + s.failed), (long long)s.total);
    print_text(s.id, 42);
    putchar(' ');
    print_text(s.state, 12);
    printf(" %16s %7lld %12lld %12lld %10.6g  ", lines, (long long)s.failed, (long long)s.input_tokens,
           (long long)s.output_tokens, s.cost);
    print_text(s.begun, 0);
    putchar('\n');
}

static void print_json(const json_t *value)
{
    char *text = json_dumps(value, JSON_INDENT(2));
    puts(text ? text : "null");
    free(text);
}

/* ---- actions -------------------------------------------------------------------------------- */

static int path_of(const struct status_command *a, const char *behind, char out[MAX_PATH], struct quire_error *err)
{
    const char *base = strncmp(a->id, "msgbatch_", 9) == 0 ? "/v1/messages/batches" : "/v1/batches";
    const size_t n = strspn(a->id, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (a->id[n] || n == 0 || n > 64)
        return quire_fail(err, QUIRE_INVALID, "\"%.60s\" is not the id of a batch; quire batch list prints all ids",
                          a->id);
    snprintf(out, MAX_PATH, "%s/%s%s", base, a->id, behind);
    return QUIRE_OK;
}

static int one(const struct status_command *a, struct cache_client *c, struct quire_error *err)
{
    const bool cancels = strcmp(a->action, "cancel") == 0;
    char path[MAX_PATH];
    json_t *reply = NULL, *body = cancels ? json_object() : NULL;
    int status = path_of(a, cancels ? "/cancel" : "", path, err);
    if (status == QUIRE_OK)
        status = cache_client_call(c, cancels ? "POST" : "GET", path, body, &reply, err);
    json_decref(body);
    if (status != QUIRE_OK)
        return status;
    if (a->json) {
        print_json(reply);
    } else {
        print_head();
        print_row(reply);
    }
    json_decref(reply);
    return QUIRE_OK;
}

static int list(const struct status_command *a, struct cache_client *c, struct quire_error *err)
{
    static const char *const apis[] = {"/v1/batches", "/v1/messages/batches"};
    json_t *all = json_array();
    int status = all ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < 2 && status == QUIRE_OK; i++) {
        char path[MAX_PATH];
        json_t *reply = NULL;
        snprintf(path, sizeof path, "%s?limit=%d", apis[i], PAGE);
        status = cache_client_call(c, "GET", path, NULL, &reply, err);
        if (status == QUIRE_OK)
            json_array_extend(all, json_object_get(reply, "data"));
        json_decref(reply);
    }
    if (status == QUIRE_OK && a->json)
        print_json(all);
    if (status == QUIRE_OK && !a->json) {
        const json_t *batch;
        size_t i;
        print_head();
        json_array_foreach(all, i, batch)
        {
            print_row(batch);
        }
    }
    json_decref(all);
    return status;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int run(const struct status_command *a, struct quire_error *err)
{
    const struct cache_client_options o = {.url = a->url ? a->url : DEFAULT_URL, .api_key = a->key, .model = ""};
    struct cache_client *c;
    int status = cache_client_open(&o, &c, err);
    if (status != QUIRE_OK)
        return status;
    status = a->id ? one(a, c, err) : list(a, c, err);
    cache_client_close(c);
    return status;
}

bool batch_status_has(const char *action)
{
    return strcmp(action, "status") == 0 || strcmp(action, "list") == 0 || strcmp(action, "cancel") == 0;
}

int command_batch_status(int argc, char **argv)
{
    struct status_command a = {.key = getenv("QUIRE_API_KEY")};
    struct quire_error err;
    int code;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "url", .kind = CLI_STRING, .target = &a.url, .value = "URL", .common = true,
         .help = "Address of the server. Default " DEFAULT_URL "."},
        {.names = "api-key", .kind = CLI_STRING, .target = &a.key, .value = "KEY", .common = true,
         .help = "Key of the tenant whose batches these are. Default: $QUIRE_API_KEY."},
        {.names = "json", .kind = CLI_FLAG, .target = &a.json, .common = true, .help = "Print the server's JSON."},
        {0},
    };
    /* clang-format on */
    const struct cli_command command = {
        .name = "batch",
        .usage = "quire batch status [ID] | list | cancel ID [options]",
        .about =
            "Shows the batches of a running server (quire serve --batch-dir), or cancels one. Without an ID it lists the\n"
            "newest 100 of each API.",
        .examples = "examples:\n"
                    "  quire batch status --url http://127.0.0.1:8000\n"
                    "  quire batch status batch_0123456789abcdef0123456789abcdef --json\n"
                    "  quire batch cancel msgbatch_0123456789abcdef0123456789abcdef",
        .options = rows,
        .positionals = {&a.action, &a.id},
    };
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (strcmp(a.action, "cancel") == 0 && !a.id)
        return command_fail(2, "quire batch cancel needs the ID of a batch");
    if (strcmp(a.action, "list") == 0 && a.id)
        return command_fail(2, "quire batch list takes no ID: quire batch status ID shows one");
    return run(&a, &err) == QUIRE_OK ? 0 : command_fail(1, err.text);
}
