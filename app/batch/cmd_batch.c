/* quire batch: runs a file of requests on a model in this process. */
#include "app/batch/batch_status.h"
#include "app/batch/first_error.h"
#include "app/bulk/job.h"
#include "app/bulk/model_flags.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/command/log_format.h"
#include "app/command/unknown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OWN_ROWS 16
#define MAX_SEARCHED_BYTES ((uint64_t)256 << 20) /* of results, for the first error */
#define ALL ((1u << BULK_OUTCOMES) - 1)

struct batch_options {
    const char *input, *output, *errors, *model, *name;
    char default_output[4096], state[4096];
    uint32_t concurrency;
    bool json;
    struct model_flags of_model;
};

static const struct cli_command description = {
    .name = "batch",
    .usage = "quire batch FILE --model MODEL [options]",
    .about =
        "Runs every line of FILE as a request to MODEL, without a server (docs/guides/batches.md). FILE has the lines of\n"
        "OpenAI's batches ({\"custom_id\", \"method\": \"POST\", \"url\", \"body\"}; the urls /v1/chat/completions,\n"
        "/v1/completions, /v1/embeddings and /v1/responses) or of Anthropic's ({\"custom_id\", \"params\"}). The output\n"
        "has the results in the same order. Lines that begin alike run together, so that a shared prefix is computed\n"
        "once. A command that was killed or interrupted continues if it is run again.\n\n"
        "Exit status: 0: all lines succeeded; 3: complete, but lines failed; 75: interrupted by SIGINT or SIGTERM, run it\n"
        "again to continue; 1: failed; 2: the command line is wrong.\n\n"
        "The batches of a running server (quire serve --batch-dir):\n\n"
        "  quire batch status [ID] [options]\n"
        "  quire batch list [options]\n"
        "  quire batch cancel ID [options]",
    .examples =
        "examples:\n"
        "  quire batch requests.jsonl --model ./Qwen2.5-1.5B-Instruct\n"
        "  quire batch requests.jsonl -o results.jsonl --errors errors.jsonl --model Qwen/Qwen2.5-1.5B-Instruct\n"
        "  quire batch requests.jsonl --model ./model --served-model-name gpt-4o-mini --json",
    .foreign = foreign_flags,
};

static size_t own_rows(struct batch_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Batch:", .kind = CLI_GROUP},
        {.names = "model,m", .kind = CLI_STRING, .target = &o->model, .value = "MODEL", .common = true,
         .help = "Checkpoint directory, or the name of a downloaded model (quire pull)."},
        {.names = "output,o", .kind = CLI_STRING, .target = &o->output, .value = "FILE", .common = true,
         .help = "Write the results to this file when all lines have one. Default: FILE with .results.jsonl instead of "
                 ".jsonl. Until then they are in the SQLite file of this name with .state."},
        {.names = "errors", .kind = CLI_STRING, .target = &o->errors, .value = "FILE", .common = true,
         .help = "Write the results of failed lines to this file, and only those of the others to the output. Default: "
                 "the output has all."},
        {.names = "served-model-name", .kind = CLI_STRING, .target = &o->name, .value = "NAME", .common = true,
         .help = "Model name in the lines. Default: MODEL's name, or the directory's."},
        {.names = "concurrency", .kind = CLI_U32, .target = &o->concurrency, .min = 1, .max = 4096, .value = "N", .common = true,
         .help = "Maximum number of lines that run at a time. Default: 1.25 times --max-num-seqs, because the model "
                 "serves nothing else."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .common = true, .help = "Print the summary as JSON."},
        SERVING_LOG_FORMAT_OPTION,
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof *rows <= MAX_OWN_ROWS, "the table has space");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof *rows;
}

/* "requests.jsonl" becomes "requests.results.jsonl". */
static int name_files(struct batch_options *o, struct quire_error *err)
{
    static const char end[] = ".jsonl";
    size_t n = strlen(o->input);
    if (n > sizeof end - 1 && strcmp(o->input + n - (sizeof end - 1), end) == 0)
        n -= sizeof end - 1;
    if (!o->output) {
        if (n + 32 > sizeof o->default_output)
            return quire_fail(err, QUIRE_INVALID, "FILE: the path is too long");
        snprintf(o->default_output, sizeof o->default_output, "%.*s.results.jsonl", (int)n, o->input);
        o->output = o->default_output;
    }
    if (strcmp(o->output, o->input) == 0)
        return quire_fail(err, QUIRE_INVALID, "--output: is FILE itself");
    if (o->errors && (strcmp(o->errors, o->input) == 0 || strcmp(o->errors, o->output) == 0))
        return quire_fail(err, QUIRE_INVALID, "--errors: is FILE or the output");
    const char *option = "--output";
    int status = job_check_output(o->output, err);
    if (status == QUIRE_OK && o->errors) {
        option = "--errors";
        status = job_check_output(o->errors, err);
    }
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "%s", option);
        return status;
    }
    if (snprintf(o->state, sizeof o->state, "%s.state", o->output) >= (int)sizeof o->state)
        return quire_fail(err, QUIRE_INVALID, "--output: the path is too long");
    return QUIRE_OK;
}

/* Without a model, a FILE that does not exist may be an action. Returns the exit status. */
static int model_is_missing(const char *input)
{
    static const char *const actions[] = {"status", "list", "cancel"};
    struct suggest near = suggest_begin(input, strlen(input));
    for (size_t i = 0; i < 3; i++)
        suggest_try_list(&near, actions[i]);
    if (near.best && access(input, F_OK) != 0)
        return suggest_unknown(&near, "action", "quire batch ");
    return command_fail(2, "--model MODEL is missing; usage: quire batch FILE --model MODEL");
}

/* Reads the command line. Returns false with the exit status in *code if the command ends here. */
static bool begin(struct batch_options *o, int argc, char **argv, int *code)
{
    struct quire_error err;
    struct cli_option rows[MAX_OWN_ROWS];
    const size_t n = own_rows(o, rows);
    struct cli_command command = description;
    command.positionals[0] = &o->input;
    if (!model_flags_begin(&command, rows, n, argc, argv, &o->of_model, code))
        return false;
    if (!o->input || !o->model) {
        *code = o->input ? model_is_missing(o->input)
                         : command_fail(2, "FILE is missing; usage: quire batch FILE --model MODEL");
        return false;
    }
    *code = name_files(o, &err) == QUIRE_OK ? 0 : command_fail(2, err.text);
    return *code == 0;
}

/* ---- the summary ---------------------------------------------------------------------------- */

static void print_text(const struct batch_options *o, const struct job_report *r)
{
    const struct bulk_counts *c = &r->counts;
    const uint32_t n_failed = c->n_done - c->n[BULK_SUCCEEDED];
    const uint64_t tokens = r->new_input_tokens + r->new_output_tokens;
    const double s = r->elapsed_s > 0 ? r->elapsed_s : 1e-9;
    printf("%u of %u lines done: %u succeeded, %u failed", c->n_done, c->n_lines, c->n[BULK_SUCCEEDED], n_failed);
    if (r->n_resumed)
        printf("; %u of them in earlier runs", r->n_resumed);
    printf("\n%.1f s, %.1f lines/s, %.0f tokens/s (%.0f of answers)\n", r->elapsed_s, (c->n_done - r->n_resumed) / s,
           (double)tokens / s, (double)r->new_output_tokens / s);
    if (r->new_input_tokens)
        printf("%llu of %llu prompt tokens came from the prefix cache (%.0f %%)\n",
               (unsigned long long)r->new_cached_tokens, (unsigned long long)r->new_input_tokens,
               100 * (double)r->new_cached_tokens / (double)r->new_input_tokens);
    if (c->n_done < c->n_lines) {
        printf("interrupted; run the same command again to continue. The results so far are in %s\n", o->state);
        return;
    }
    printf("results: %s\n", o->output);
    if (o->errors && n_failed)
        printf("errors:  %s\n", o->errors);
}

static json_t *summary(const struct batch_options *o, const struct job_report *r)
{
    const struct bulk_counts *c = &r->counts;
    const bool is_done = c->n_done == c->n_lines;
    const double s = r->elapsed_s > 0 ? r->elapsed_s : 1e-9;
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:s?}", "complete", is_done, "lines",
                     (json_int_t)c->n_lines, "succeeded", (json_int_t)c->n[BULK_SUCCEEDED], "failed",
                     (json_int_t)(c->n_done - c->n[BULK_SUCCEEDED]), "resumed", (json_int_t)r->n_resumed,
                     "input_tokens", (json_int_t)r->new_input_tokens, "cached_tokens", (json_int_t)r->new_cached_tokens,
                     "output_tokens", (json_int_t)r->new_output_tokens, "elapsed_s", r->elapsed_s, "lines_per_second",
                     (c->n_done - r->n_resumed) / s, "tokens_per_second",
                     (double)(r->new_input_tokens + r->new_output_tokens) / s, is_done ? "output" : "state",
                     is_done ? o->output : o->state, "errors", is_done ? o->errors : NULL);
}

/* A script that sees a status other than 0 finds the reason on standard error. */
static int exit_status(const struct batch_options *o, const struct bulk_counts *c)
{
    const uint32_t n_failed = c->n_done - c->n[BULK_SUCCEEDED];
    char why[256], text[sizeof o->state + sizeof why + 128];
    if (c->n_done < c->n_lines)
        return command_fail(JOB_EXIT_INTERRUPTED, "interrupted; run the same command again to continue");
    if (n_failed == 0)
        return 0;
    const char *path = o->errors ? o->errors : o->output;
    batch_first_error(path, MAX_SEARCHED_BYTES, why, sizeof why);
    snprintf(text, sizeof text, "%u of %u lines failed; their errors are in %s%s%s", n_failed, c->n_lines, path,
             why[0] ? "; the first: " : "", why);
    return command_fail(JOB_EXIT_FAILED_LINES, text);
}

static int tell(const struct batch_options *o, const struct job *job)
{
    struct job_report r;
    int code = 0;
    job_report(job, &r);
    if (o->json)
        code = command_print_json(summary(o, &r));
    else if (print_text(o, &r), fflush(stdout) != 0)
        code = command_fail(1, "the summary cannot be written");
    return code ? code : exit_status(o, &r.counts);
}

/* ---- running -------------------------------------------------------------------------------- */

static int write_results(const struct batch_options *o, struct job *job, struct quire_error *err)
{
    const unsigned good = 1u << BULK_SUCCEEDED;
    int status = job_write(job, o->errors ? good : ALL, o->output, err);
    if (status == QUIRE_OK && o->errors)
        status = job_write(job, ALL & ~good, o->errors, err);
    return status;
}

static int run(const struct batch_options *o, struct place *place, int *code, struct quire_error *err)
{
    const struct job_options options = {
        .place = place, .input = o->input, .state = o->state, .what = "lines", .concurrency = o->concurrency};
    struct job *job;
    int status = job_open(&options, &job, err);
    if (status != QUIRE_OK)
        return status;
    status = job_run(job, err);
    const bool is_done = status == QUIRE_OK;
    if (is_done)
        status = write_results(o, job, err);
    else if (status == QUIRE_EXHAUSTED)
        status = QUIRE_OK;
    if (status == QUIRE_OK)
        *code = tell(o, job);
    job_close(job, is_done && status == QUIRE_OK);
    return status;
}

int command_batch(int argc, char **argv)
{
    struct batch_options *o = calloc(1, sizeof *o);
    struct place *place = NULL;
    struct quire_error err;
    int code;
    if (argc > 0 && batch_status_has(argv[0])) {
        free(o);
        return command_batch_status(argc, argv);
    }
    if (!o)
        return command_fail(1, "out of memory");
    if (begin(o, argc, argv, &code)) {
        const struct place_options where = {.model = o->model,
                                            .name = o->name,
                                            .options = (const char *const *)o->of_model.options,
                                            .n_options = o->of_model.n};
        int status = place_open(&where, &place, &err);
        if (status == QUIRE_OK)
            status = run(o, place, &code, &err);
        if (status != QUIRE_OK)
            code = command_fail(1, err.text);
        fflush(stdout);
        place_close(place);
    }
    model_flags_end(&o->of_model);
    free(o);
    return code;
}
