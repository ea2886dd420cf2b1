#include "tools/cache/cmd_warm.h"

#include "base/clock.h"
#include "app/command/progress.h"
#include "tools/cache/requests_recording.h"
#include "app/warm/warm.h"
#include "tools/cache/warm_requests.h"
#include "app/command/cli.h"
#include "app/command/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct warm_command {
    const char *url, *api_key, *model, *file, *answers;
    struct warm_budget budget;
    bool json;
};

struct shown {
    struct bench_progress bar;
    const char *what;
    bool begun;
};

static void show(void *context, uint64_t done, uint64_t total)
{
    struct shown *s = context;
    if (!s->begun)
        bench_progress_begin(&s->bar, s->what, total);
    s->begun = true;
    bench_progress_set(&s->bar, done);
}

/* ---- prompts ---- */

static int warm_prompts(const struct warm_command *a, struct cache_client *client, struct quire_error *err)
{
    struct warm_report report;
    struct shown shown = {.what = "warming: tokens"};
    double began = quire_now_s();
    int status = warm_run(client, a->file, show, &shown, &report, err);
    if (shown.begun)
        bench_progress_end(&shown.bar);
    if (report.n_prompts > 0)
        printf("%zu prompts, %" PRIu64 " tokens, %" PRIu64 " of them already cached, in %.1f s\n", report.n_prompts,
               report.n_tokens, report.n_cached, quire_now_s() - began);
    return status;
}

/* ---- answers ---- */

static void print_forecast(const struct asked_requests *all, const struct warm_forecast *f)
{
    printf("%zu different requests; %zu are within the budget, requested %" PRIu64 " times: about %" PRIu64
           " tokens to compute, about %" PRIu64 " saved if they are requested as often again\n",
           all->n, f->n, f->n_asked, f->n_tokens, f->n_saved);
    fflush(stdout);
}

static void print_outcome(const struct warm_outcome *o)
{
    printf("%zu requests, %zu of them already cached: %" PRIu64 " prompt and %" PRIu64
           " generated tokens computed in %.1f s, including %.1f s of pauses; %" PRIu64
           " tokens saved if they are requested as often again\n",
           o->n_sent, o->n_cached, o->n_prompt, o->n_generated, o->seconds, o->paused_s, o->n_saved);
    if (o->n_refused > 0)
        printf("%zu were rejected, the first: %s\n", o->n_refused, o->why.text);
    if (o->end != WARM_DONE)
        printf("ended by --%s\n", o->end == WARM_TOKENS ? "budget-tokens" : "budget-seconds");
}

static int print_json(const struct asked_requests *all, const struct warm_forecast *f, const struct warm_outcome *o)
{
    return command_print_json(json_pack(
        "{s:I, s:{s:I,s:I,s:I,s:I}, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "requests", (json_int_t)all->n,
        "expected", "requests", (json_int_t)f->n, "asked", (json_int_t)f->n_asked, "tokens", (json_int_t)f->n_tokens,
        "tokens_saved", (json_int_t)f->n_saved, "ended", warm_end_name(o->end), "sent", (json_int_t)o->n_sent, "kept",
        (json_int_t)o->n_cached, "refused", (json_int_t)o->n_refused, "prompt_tokens", (json_int_t)o->n_prompt,
        "completion_tokens", (json_int_t)o->n_generated, "tokens_saved", (json_int_t)o->n_saved, "seconds", o->seconds,
        "paused_seconds", o->paused_s));
}

static int warm_asked(const struct warm_command *a, struct cache_client *client, struct quire_error *err)
{
    struct asked_requests all;
    struct warm_outcome outcome = {.end = WARM_DONE};
    struct shown shown = {.what = "warming: requests"};
    int status = requests_are_recorded(a->answers) ? requests_of_recording(a->answers, &all, err)
                                                   : requests_read(a->answers, &all, err);
    if (status == QUIRE_OK) {
        requests_settle(&all);
        const struct warm_forecast forecast = warm_forecast(&all, &a->budget);
        if (!a->json)
            print_forecast(&all, &forecast);
        status = warm_requests(client, &all, &a->budget, show, &shown, &outcome, err);
        if (shown.begun)
            bench_progress_end(&shown.bar);
        if (a->json && status == QUIRE_OK)
            print_json(&all, &forecast, &outcome);
        else if (!a->json && outcome.n_sent > 0)
            print_outcome(&outcome);
    }
    requests_free(&all);
    return status;
}

/* ---- the command line ---- */

#define FLAGS_MAX 10

/* Writes the option rows, with a terminating one. */
static void own_flags(struct warm_command *a, struct cli_option out[FLAGS_MAX])
{
    const struct cli_option rows[] = {
        {.names = "file",
         .kind = CLI_STRING,
         .target = &a->file,
         .value = "FILE",
         .help = "Prompts, one JSON object per line: {\"prompt\" or \"messages\", \"value\"}."},
        {.names = "answers",
         .kind = CLI_STRING,
         .target = &a->answers,
         .value = "FILE",
         .help = "Requests to send: a recording (--record), or JSON lines with a body of /v1/chat/completions or "
                 "/v1/completions, or with {\"path\", \"body\", \"count\"}."},
        {.names = "budget-tokens",
         .kind = CLI_U64,
         .target = &a->budget.tokens,
         .min = 1,
         .value = "N",
         .help = "With --answers: stop after this many computed tokens. Default: no limit."},
        {.names = "budget-seconds",
         .kind = CLI_F64,
         .target = &a->budget.seconds,
         .min = 0.001,
         .value = "S",
         .help = "With --answers: stop after this time, including pauses. Default: no limit."},
        {.names = "json", .kind = CLI_FLAG, .target = &a->json, .help = "With --answers: print one JSON object."},
        {.names = "api-key",
         .kind = CLI_STRING,
         .target = &a->api_key,
         .value = "KEY",
         .help = "Bearer token. Cached prefixes and responses are shared within one key only. Default: "
                 "$OPENAI_API_KEY."},
        {.names = "model",
         .kind = CLI_STRING,
         .target = &a->model,
         .value = "NAME",
         .help = "Name of the served model. Default: the request's model, or the server's first."},
        {.names = NULL},
    };
    _Static_assert(sizeof rows / sizeof rows[0] <= FLAGS_MAX, "raise FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
}

int cache_warm(int argc, char **argv)
{
    struct warm_command a = {.url = NULL};
    struct cache_client *client;
    struct quire_error err;
    struct cli_option rows[FLAGS_MAX];
    own_flags(&a, rows);
    const struct cli_command command = {
        .name = "cache",
        .usage = "quire cache warm URL --file PROMPTS.jsonl | --answers FILE [options]",
        .about =
            "--file computes the prompts of a file into the server's prefix cache, at lower priority than live traffic,\n"
            "in the order of value times tokens. --answers sends earlier requests again, so that their responses are\n"
            "cached, too: each different request once, in the order of frequency times cost, and only while the server\n"
            "has no other requests.",
        .examples = "examples:\n  quire cache warm http://127.0.0.1:8000 --file prompts.jsonl\n"
                    "  quire cache warm http://127.0.0.1:8000 --answers day.rec --budget-seconds 600",
        .options = rows,
        .positionals = {&a.url}};
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!a.url)
        return command_fail(2, "URL is missing; usage: quire cache warm http://HOST:PORT");
    if (!a.file == !a.answers)
        return command_fail(2, "--file PROMPTS.jsonl or --answers FILE is missing");
    if (!a.api_key)
        a.api_key = getenv("OPENAI_API_KEY");
    const struct cache_client_options options = {.url = a.url, .api_key = a.api_key, .model = a.model};
    if (cache_client_open(&options, &client, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    int status = a.answers ? warm_asked(&a, client, &err) : warm_prompts(&a, client, &err);
    cache_client_close(client);
    return status == QUIRE_OK ? 0 : command_fail(1, err.text);
}
