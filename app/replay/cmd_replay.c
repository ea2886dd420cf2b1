/* quire replay: compares the answers of a recording with those of this engine. */
#include "app/command/cli.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/progress.h"
#include "app/flags/engine_flags.h"
#include "app/models/cache.h"
#include "app/replay/replay.h"
#include "app/serving/grammars.h"
#include "app/serving/identity.h"
#include "base/encoding/json.h"
#include "engine/model/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const finish_names[] = {"stop", "length", "cancelled", "error", "refused"};
static const char *const what_names[] = {"token", "logprob", "length", "finish"};

static void describe(const struct replay_difference *d, char *out, size_t n)
{
    int at = snprintf(out, n, "request %" PRIu64 ", choice %u: ", d->request, d->choice);
    out += at;
    n -= (size_t)at;
    switch (d->what) {
    case REPLAY_TOKEN:
        snprintf(out, n, "position %u: token %u was recorded, token %u was computed", d->position, d->recorded,
                 d->replayed);
        break;
    case REPLAY_LOGPROB: snprintf(out, n, "the tokens are equal, but the bits of a logprob differ"); break;
    case REPLAY_LENGTH:
        snprintf(out, n, "position %u: %u tokens were recorded, %s", d->position, d->recorded,
                 d->replayed > d->recorded ? "more were computed" : "fewer came");
        break;
    case REPLAY_FINISH:
        snprintf(out, n, "the recorded answer ended by %s, the computed one by %s", finish_names[d->recorded],
                 finish_names[d->replayed]);
        break;
    }
}

static json_t *differences_json(const struct replay_report *r)
{
    char text[160];
    json_t *all = json_array();
    for (uint32_t i = 0; i < r->n_shown; i++) {
        const struct replay_difference *d = &r->shown[i];
        describe(d, text, sizeof text);
        json_t *one = json_pack("{s:I, s:i, s:s, s:s}", "request", (json_int_t)d->request, "choice", (int)d->choice,
                                "what", what_names[d->what], "text", text);
        if (one && (d->what == REPLAY_TOKEN || d->what == REPLAY_LENGTH))
            json_object_set_new(one, "position", json_integer(d->position));
        json_array_append_new(all, one);
    }
    return all;
}

static void print_left_out(const struct recording *recording)
{
    uint64_t n = recording_left_out(recording);
    const char *damage = recording_damage(recording);
    if (damage)
        printf("The recording is damaged: %s. Its last %" PRIu64 " bytes were ignored.\n", damage, n);
    else if (n)
        printf("The recording ends within a record: its last %" PRIu64 " bytes were ignored.\n", n);
}

/* Returns the exit status. */
static int report(const struct replay_report *r, const struct recording *recording, bool json)
{
    const int result = r->n_compared == 0 ? 2 : r->n_different > 0;
    char text[160];
    if (json) {
        int code = command_print_json(json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s?, s:I, s:I, s:o}", "requests", (json_int_t)r->n_requests,
            "compared", (json_int_t)r->n_compared, "cut", (json_int_t)r->n_cut, "without_answer",
            (json_int_t)r->n_without_answer, "choices", (json_int_t)r->n_choices, "tokens", (json_int_t)r->n_tokens,
            "different", (json_int_t)r->n_different, "bytes_left_out", (json_int_t)recording_left_out(recording),
            "damage", recording_damage(recording), "draft_tokens", (json_int_t)r->n_draft_tokens, "accepted_tokens",
            (json_int_t)r->n_accepted_tokens, "differences", differences_json(r)));
        return code ? code : result;
    }
    print_left_out(recording);
    printf("%" PRIu64 " requests: %" PRIu64 " compared (%" PRIu64 " of them up to their last recorded token), %" PRIu64
           " without an answer.\n",
           r->n_requests, r->n_compared, r->n_cut, r->n_without_answer);
    for (uint32_t i = 0; i < r->n_shown; i++) {
        describe(&r->shown[i], text, sizeof text);
        printf("  %s\n", text);
    }
    if (r->n_different > r->n_shown)
        printf("  and %" PRIu64 " more\n", r->n_different - r->n_shown);
    if (r->n_different && r->other_identity)
        printf(
            "The recorded engine had another identity_arithmetic: other weights, other settings of the model, or another "
            "arithmetic. (Identities of older releases do not cover the settings, and always differ.)\n");
    if (r->n_draft_tokens)
        printf("%" PRIu64 " drafts were verified, %" PRIu64 " of them accepted.\n", r->n_draft_tokens,
               r->n_accepted_tokens);
    if (r->n_compared == 0)
        printf("The recording has no answers to compare.\n");
    else if (r->n_different)
        printf("%" PRIu64 " of %" PRIu64 " choices differ.\n", r->n_different, r->n_choices);
    else
        printf("All %" PRIu64 " choices are equal: %" PRIu64 " tokens and every logprob bit.\n", r->n_choices,
               r->n_tokens);
    return result;
}

static void on_progress(void *context, uint64_t n_tokens)
{
    bench_progress_set(context, n_tokens);
}

/* The recording must be of this model. Its answers reveal other weights, its configuration is compared directly. */
static int check_model(const struct recording *recording, const char *model_dir, struct quire_error *err)
{
    struct serving_identity identity;
    const struct recording_header *h = recording_header(recording);
    int status = serving_identity_read(model_dir, &identity, err);
    if (status == QUIRE_OK && memcmp(&identity.config, &h->engine->config_sha256, sizeof identity.config) != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: its config.json is not that of the recorded model, \"%s\"",
                          model_dir, h->engine->model);
    return status;
}

/* The value of --speculative-config. */
struct guesses {
    bool given;
    struct speculative_config config;
};

static int parse_guesses(const char *text, void *target, struct quire_error *err)
{
    struct guesses *g = target;
    g->given = true;
    return speculative_flag_parse(text, &g->config, err);
}

/* The tokenizer is opened only if a request has a grammar. */
static int use_grammars(struct replay *replay, const char *model_dir, struct serving_grammars **out,
                        struct quire_error *err)
{
    struct model_config *config;
    struct sampling_defaults ignored;
    int status = model_describe(model_dir, &config, &ignored, err);
    if (status == QUIRE_OK)
        status = serving_grammars_begin(model_dir, config, out, err);
    model_config_free(config);
    if (status == QUIRE_OK)
        replay_use_grammars(replay, serving_grammars_engine(*out));
    return status;
}

struct options {
    struct guesses guesses;
    bool json, salvage;
};

static int run(const char *file, const char *model_dir, const struct options *options, int *code,
               struct quire_error *err)
{
    const struct guesses *guesses = &options->guesses;
    struct recording *recording;
    struct replay *replay = NULL;
    struct serving_grammars *grammars = NULL;
    struct replay_report done;
    struct bench_progress progress;
    int status = recording_open(file, &recording, err);
    if (status != QUIRE_OK)
        return status;
    if (options->salvage)
        recording_salvage(recording);
    status = check_model(recording, model_dir, err);
    if (status == QUIRE_OK)
        status = replay_open(recording, &replay, err);
    if (status == QUIRE_OK)
        status = use_grammars(replay, model_dir, &grammars, err);
    if (status == QUIRE_OK) {
        bench_progress_begin(&progress, "tokens", replay_n_tokens(replay));
        status = replay_run(replay, model_dir, guesses->given ? &guesses->config : NULL, on_progress, &progress, &done,
                            err);
        bench_progress_end(&progress);
    }
    if (status == QUIRE_OK)
        *code = report(&done, recording, options->json);
    replay_close(replay);
    serving_grammars_end(grammars);
    recording_close(recording);
    return status;
}

/* Most commands have MODEL first, so this order is accepted, too. */
static bool is_swapped(const char *file, const char *model)
{
    struct stat first, second;
    return stat(model, &second) == 0 && S_ISREG(second.st_mode) && !hub_is_gguf(model) &&
           (stat(file, &first) != 0 || S_ISDIR(first.st_mode) || hub_is_gguf(file));
}

int command_replay(int argc, char **argv)
{
    const char *file = NULL, *model_dir = NULL;
    struct hub_model model;
    struct quire_error err;
    struct options options = {0};
    int code;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Options:", .kind = CLI_GROUP},
        {.names = "speculative-config", .kind = CLI_PARSED, .parse = parse_guesses, .target = &options.guesses, .value = "JSON",
         .help = "Draft tokens as quire serve does with this option, and verify them. The answers have the same "
                 "bits. Default: one token at a time, also if the recording has drafts."},
        {.names = "salvage", .kind = CLI_FLAG, .target = &options.salvage,
         .help = "Compare the answers of a damaged recording up to its first wrong record. Every checksum covers the "
                 "one before it, so the records before that one are whole. Default: a damaged recording is an error."},
        {.names = "json", .kind = CLI_FLAG, .target = &options.json, .help = "Print JSON."},
        {0},
    };
    /* clang-format on */
    const struct cli_command command = {
        .name = "replay",
        .usage = "quire replay FILE MODEL [options]",
        .about =
            "Recomputes all answers in a recording (quire serve --record FILE) and compares every token and every\n"
            "logprob bit.\n\n"
            "An answer does not depend on other requests, so the requests run as fast as possible, not at their\n"
            "recorded times. A request that was cancelled, or running when the server was killed, is compared up to\n"
            "its last recorded token. MODEL is opened with the recorded device, arithmetic form, KV dtype, windows,\n"
            "lengths and blocks.\n\n"
            "Exit status: 0 all equal, 1 a difference or an error, 2 a wrong command line, or no answer to compare.",
        .examples =
            "examples:\n"
            "  quire serve ./model --record monday.rec      first, then:\n"
            "  quire replay monday.rec ./model\n"
            "  quire replay monday.rec ./model --speculative-config '{\"method\": \"ngram\"}'\n"
            "  quire sim --trace monday.rec --trace-format recording     the scheduler's decisions, without a model",
        .options = rows,
        .positionals = {&file, &model_dir},
    };
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!file || !model_dir)
        return command_fail(2, "FILE or MODEL is missing; usage: quire replay FILE MODEL");
    if (is_swapped(file, model_dir)) {
        const char *first = file;
        file = model_dir;
        model_dir = first;
    }
    if (hub_model_find(model_dir, false, &model, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    int status = run(file, model.dir, &options, &code, &err);
    return status == QUIRE_OK ? code : command_fail(1, err.text);
}
