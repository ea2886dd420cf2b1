/* quire list: the downloaded models. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/models/scan.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *format_of(const struct hub_row *row)
{
    return row->is_gguf ? "gguf" : "safetensors";
}

static json_t *rows_json(const struct hub_rows *rows)
{
    json_t *models = json_array();
    for (size_t i = 0; i < rows->n; i++) {
        const struct hub_row *r = &rows->items[i];
        json_array_append_new(models, json_pack("{s:s, s:s, s:s, s:s, s:s*, s:I, s:I, s:b, s:s*}", "name", r->typed,
                                                "model", r->name, "revision", r->revision, "commit", r->commit,
                                                "quantization", r->quant[0] ? r->quant : NULL, "bytes",
                                                (json_int_t)r->bytes, "modified", (json_int_t)r->changed, "complete",
                                                r->missing[0] == 0, "missing", r->missing[0] ? r->missing : NULL));
    }
    return models;
}

static void print_table(const struct hub_rows *rows)
{
    size_t width = strlen("NAME");
    for (size_t i = 0; i < rows->n; i++)
        if (strlen(rows->items[i].typed) > width)
            width = strlen(rows->items[i].typed);
    printf("%-*s  %10s  %-11s  %s\n", (int)width, "NAME", "SIZE", "FORMAT", "MODIFIED");
    for (size_t i = 0; i < rows->n; i++) {
        const struct hub_row *r = &rows->items[i];
        char day[32] = "";
        struct tm local;
        if (localtime_r(&r->changed, &local))
            strftime(day, sizeof day, "%Y-%m-%d %H:%M", &local);
        printf("%-*s  %10s  %-11s  %s%s%s\n", (int)width, r->typed, quire_size(r->bytes).text, format_of(r), day,
               r->missing[0] ? "  incomplete: " : "", r->missing);
    }
}

int command_list(int argc, char **argv)
{
    bool json = false;
    struct hub_rows rows;
    struct quire_error err;
    char root[HUB_PATH_BYTES];
    const struct cli_option options[] = {
        {.names = "json", .kind = CLI_FLAG, .target = &json, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "list",
        .usage = "quire list [options]",
        .about =
            "Lists the models in the Hugging Face cache, with the names that other commands take. Sizes are those of\n"
            "the files; revisions of one model may share files.",
        .examples = "examples:\n"
                    "  quire list\n"
                    "  quire list --json",
        .options = options,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (hub_cache_root(root, &err) != QUIRE_OK || hub_scan(&rows, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    if (json)
        code = command_print_json(json_pack("{s:s, s:o}", "cache", root, "models", rows_json(&rows)));
    else if (rows.n)
        print_table(&rows);
    else
        fprintf(stderr, "quire: no models in %s; to download one: quire pull Qwen/Qwen2.5-1.5B-Instruct\n", root);
    hub_rows_free(&rows);
    return code;
}
