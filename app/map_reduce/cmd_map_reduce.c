/* quire map-reduce: a prompt over long texts in chunks, and another over the results. */
#include "app/bulk/job.h"
#include "app/bulk/model_flags.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/command/log_format.h"
#include "app/map_reduce/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OWN_ROWS 16
#define DEFAULT_OVERLAP 100
#define DEFAULT_MAX_TOKENS 512

struct map_reduce_options {
    struct cli_list files;
    const char *model, *name, *url, *api_key;
    struct work_options work;
    bool json;
    struct model_flags of_model;
};

static const struct cli_command description = {
    .name = "map-reduce",
    .usage = "quire map-reduce --map PROMPT --reduce PROMPT --model MODEL FILE... [options]",
    .about =
        "Cuts text files (UTF-8, at most 64) into chunks, runs the prompt of --map over each, joins the results (\"Item 1\n"
        "result:\" ...), and runs the prompt of --reduce over them (docs/guides/map-reduce.md). Results that do not fit into\n"
        "one prompt are reduced as a tree. Prints the last answer. The model is loaded here, or at a server (--url). A\n"
        "command that was killed or interrupted continues if it is run again in the same folder.\n\n"
        "Exit status: 0: done; 75: interrupted by SIGINT or SIGTERM, run it again to continue; 1: failed; 2: the command\n"
        "line is wrong.",
    .examples =
        "examples:\n"
        "  quire map-reduce --map \"Summarize:\" --reduce \"Combine:\" --model ./model book.txt\n"
        "  quire map-reduce --map \"List the risks in: {text}\" --reduce \"Merge:\" --url http://host:8000 *.txt",
    .foreign = foreign_flags,
};

static size_t own_rows(struct map_reduce_options *o, struct cli_option *out)
{
    struct work_options *w = &o->work;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Map-reduce:", .kind = CLI_GROUP},
        {.names = "map", .kind = CLI_STRING, .target = &w->map, .value = "PROMPT", .common = true,
         .help = "Prompt for each chunk. The chunk takes the place of {text}, or follows it after a blank line."},
        {.names = "reduce", .kind = CLI_STRING, .target = &w->reduce, .value = "PROMPT", .common = true,
         .help = "Prompt for the joined results, in the same way."},
        {.names = "model,m", .kind = CLI_STRING, .target = &o->model, .value = "MODEL", .common = true,
         .help = "Checkpoint directory, or the name of a downloaded model (quire pull). With --url: the name in requests, by "
                 "default the server's first model."},
        {.names = "url", .kind = CLI_STRING, .target = &o->url, .value = "URL", .common = true,
         .help = "Use this server instead, such as http://HOST:8000. It needs /v1/chat/completions and /tokenize, as Quire and "
                 "vLLM have them."},
        {.names = "api-key", .kind = CLI_STRING, .target = &o->api_key, .value = "KEY",
         .help = "Bearer token for --url. Default: $OPENAI_API_KEY, which other users of this machine cannot read from the "
                 "command line."},
        {.names = "chunk-tokens", .kind = CLI_U32, .target = &w->chunk_tokens, .min = 1, .max = 10000000, .value = "N", .common = true,
         .help = "Maximum number of tokens of a chunk. Default 2000, or what fits into the context."},
        {.names = "overlap", .kind = CLI_U32, .target = &w->overlap, .max = 1000000, .value = "N", .common = true,
         .help = "Maximum number of tokens of a chunk's end that begin the next chunk, too. Default 100."},
        {.names = "max-tokens", .kind = CLI_U32, .target = &w->max_tokens, .min = 1, .max = 1000000, .value = "N", .common = true,
         .help = "Maximum number of tokens of each answer. Default 512."},
        {.names = "concurrency", .kind = CLI_U32, .target = &w->concurrency, .min = 1, .max = 4096, .value = "N", .common = true,
         .help = "Maximum number of requests at a time. Default: 10 with --url, because others use the server, too; else 1.25 "
                 "times --max-num-seqs."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .common = true, .help = "Print the answer and the summary as JSON."},
        SERVING_LOG_FORMAT_OPTION,
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof *rows <= MAX_OWN_ROWS, "the table has space");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof *rows;
}

/* Returns what is wrong; NULL: nothing. */
static const char *check(const struct map_reduce_options *o)
{
    if (!o->work.map || !o->work.reduce)
        return o->work.map ? "--reduce PROMPT is missing" : "--map PROMPT is missing";
    if (o->files.n == 0)
        return "FILE is missing; usage: quire map-reduce --map PROMPT --reduce PROMPT --model MODEL FILE...";
    if (!o->model && !o->url)
        return "--model MODEL is missing; or --url URL of a server";
    if (o->url && o->of_model.n)
        return "options of the model are for --model; with --url the server has its own";
    if (o->work.chunk_tokens && 2 * (uint64_t)o->work.overlap >= o->work.chunk_tokens)
        return "--overlap: must be below half of --chunk-tokens";
    return NULL;
}

static bool begin(struct map_reduce_options *o, int argc, char **argv, int *code)
{
    struct cli_option rows[MAX_OWN_ROWS];
    const size_t n = own_rows(o, rows);
    struct cli_command command = description;
    command.arguments = &o->files;
    if (!model_flags_begin(&command, rows, n, argc, argv, &o->of_model, code))
        return false;
    const char *why = check(o);
    if (why)
        *code = command_fail(2, why);
    if (!o->api_key)
        o->api_key = getenv("OPENAI_API_KEY");
    o->work.model = o->url ? o->model : NULL;
    o->work.files = o->files.items;
    o->work.n_files = o->files.n;
    return !why;
}

static int tell(const struct map_reduce_options *o, const char *answer, const struct work_report *r)
{
    if (o->json)
        return command_print_json(json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "answer", answer, "files", (json_int_t)o->files.n,
            "chunks", (json_int_t)r->n_chunks, "stages", (json_int_t)r->n_stages, "resumed", (json_int_t)r->n_resumed,
            "cut_answers", (json_int_t)r->n_cut, "input_tokens", (json_int_t)r->input_tokens, "cached_tokens",
            (json_int_t)r->cached_tokens, "output_tokens", (json_int_t)r->output_tokens, "elapsed_s", r->elapsed_s));
    puts(answer);
    fprintf(
        stderr,
        "quire: %u chunks, %u stages, %u requests in %.1f s; %llu of %llu prompt tokens came from the prefix cache\n",
        r->n_chunks, r->n_stages, r->n_requests, r->elapsed_s, (unsigned long long)r->cached_tokens,
        (unsigned long long)r->input_tokens);
    if (r->n_cut)
        fprintf(stderr, "quire: warning: %u answers reached --max-tokens %u and are cut\n", r->n_cut,
                o->work.max_tokens);
    return 0;
}

static int run(struct map_reduce_options *o, struct place *place)
{
    struct work_report report;
    struct quire_error err;
    char *answer;
    o->work.place = place;
    const int status = work_run(&o->work, &answer, &report, &err);
    int code;
    if (status == QUIRE_OK)
        code = tell(o, answer, &report);
    else if (status == QUIRE_EXHAUSTED)
        code = command_fail(JOB_EXIT_INTERRUPTED, "interrupted; run the same command again in this folder to continue");
    else
        code = command_fail(1, err.text);
    free(answer);
    return code;
}

int command_map_reduce(int argc, char **argv)
{
    struct map_reduce_options o = {.work = {.overlap = DEFAULT_OVERLAP, .max_tokens = DEFAULT_MAX_TOKENS}};
    struct place *place = NULL;
    struct quire_error err;
    int code;
    if (!begin(&o, argc, argv, &code)) {
        model_flags_end(&o.of_model);
        return code;
    }
    const struct place_options where = {.model = o.model,
                                        .options = (const char *const *)o.of_model.options,
                                        .n_options = o.of_model.n,
                                        .url = o.url,
                                        .api_key = o.url ? o.api_key : NULL};
    code = place_open(&where, &place, &err) == QUIRE_OK ? run(&o, place) : command_fail(1, err.text);
    fflush(stdout);
    place_close(place);
    model_flags_end(&o.of_model);
    return code;
}
