/* quire pull: downloads a model from a hub into the user's Hugging Face cache, where every command finds it by name. */
#include "base/clock.h"
#include "base/size.h"
#include "app/command/ask.h"
#include "app/command/cli.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/status_line.h"
#include "app/models/fetch.h"
#include "tools/hub/pull.h"
#include "tools/hub/store.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAW_EVERY_S 0.2
#define BAR 24
#define DEFAULT_STALL_S 10 /* huggingface_hub's */

struct meter { /* the progress bar */
    double drawn, rate; /* rate: recent bytes per second, smoothed over about five seconds */
    uint64_t before;
    bool is_tty, shown;
};

struct pull_command {
    const char *given, *token_file;
    struct cli_list include, exclude;
    uint32_t n_connections;
    bool json;
    bool asks; /* before the download */
    bool is_gguf; /* of one GGUF file, with its splits */
    struct hub_name name;
    char repo[HUB_PATH_BYTES];
    struct hub *hub;
    struct hub_list list;
    struct hub_pull *pull;
    struct meter meter;
    int lock;
    double began;
};

/* ---- the terminal ---- */

static void clear(struct meter *m)
{
    if (m->shown)
        status_line_clear();
    m->shown = false;
}

static void on_progress(void *context, const struct hub_pull *pull)
{
    struct pull_command *c = context;
    struct meter *m = &c->meter;
    double now = quire_now_s(), past = now - m->drawn;
    if (!m->is_tty || past < DRAW_EVERY_S)
        return;
    uint64_t total = hub_pull_total_bytes(pull), there = hub_pull_present_bytes(pull);
    uint64_t received = hub_pull_received_bytes(pull);
    double weight = m->rate > 0 ? past / (past + 5) : 1;
    char bar[BAR + 1], line[HUB_TYPED_BYTES + 256], rest[64] = "";
    if (m->drawn > 0)
        m->rate += weight * ((double)(received - m->before) / past - m->rate);
    m->before = received;
    m->drawn = now;
    if (total == 0)
        return;
    for (int i = 0; i < BAR; i++)
        bar[i] = (double)i < (double)there / (double)total * BAR ? '#' : ' ';
    bar[BAR] = 0;
    if (there == total)
        snprintf(rest, sizeof rest, ", checking");
    else if (m->rate > 0)
        snprintf(rest, sizeof rest, ", %s/s, %.0f s left", quire_size((uint64_t)m->rate).text,
                 (double)(total - there) / m->rate);
    snprintf(line, sizeof line, "%s [%s] %s of %s%s", c->name.text, bar, quire_size(there).text, quire_size(total).text,
             rest);
    status_line_draw(line);
    m->shown = true;
}

static void on_note(void *context, const char *text)
{
    struct pull_command *c = context;
    if (!c->meter.is_tty)
        return;
    clear(&c->meter);
    fprintf(stderr, "quire: %s\n", text);
}

static void on_wait(void *context)
{
    struct pull_command *c = context;
    fprintf(stderr, "quire: waiting for another quire pull of %s\n", c->name.text);
}

/* ---- the work ---- */

static int check_offline(struct quire_error *err)
{
    static const char *const on[] = {"1", "true", "yes", "on"};
    const char *value = getenv("HF_HUB_OFFLINE");
    for (size_t i = 0; value && i < sizeof on / sizeof *on; i++)
        if (strcasecmp(value, on[i]) == 0)
            return quire_fail(err, QUIRE_INVALID, "HF_HUB_OFFLINE is set, so nothing can be downloaded");
    return QUIRE_OK;
}

static int open_hub(struct pull_command *c, struct quire_error *err)
{
    char token[HUB_TOKEN_BYTES];
    const char *endpoint = getenv("HF_ENDPOINT"), *stall = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    struct hub_options options = {.endpoint = endpoint && *endpoint ? endpoint : "https://huggingface.co",
                                  .token = token,
                                  .stall_s = DEFAULT_STALL_S};
    if (stall && *stall) {
        char *end;
        unsigned long s = strtoul(stall, &end, 10);
        if (*stall < '0' || *stall > '9' || *end || s < 1 || s > 3600)
            return quire_fail(err, QUIRE_INVALID, "HF_HUB_DOWNLOAD_TIMEOUT: must be 1 to 3600 seconds");
        options.stall_s = (uint32_t)s;
    }
    int status = hub_token_read(c->token_file, token, err);
    if (status == QUIRE_OK)
        status = hub_open(&options, &c->hub, err);
    explicit_bzero(token, sizeof token);
    return status;
}

/* The first kind of file that a checkpoint needs and the list does not have, or NULL. */
static const char *lacking(const struct hub_list *list)
{
    static const char *const needed[] = {"config.json", "tokenizer.json", "*.safetensors"};
    for (size_t i = 0; i < 3; i++)
        if (!hub_list_has(list, needed[i]) && !(i == 1 && hub_list_has(list, "tokenizer.model")))
            return needed[i];
    return NULL;
}

/* The file of the name's quantization, or the only GGUF file. */
static int choose_gguf(struct pull_command *c, struct quire_error *err)
{
    c->is_gguf = true;
    int status = hub_list_quant(&c->list, c->name.quant, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%s", c->name.text);
    return status;
}

/* Selects the files, and checks that they form a model. */
static int choose(struct pull_command *c, struct quire_error *err)
{
    const struct hub_patterns patterns = {c->include.items, c->exclude.items, c->include.n, c->exclude.n};
    int status = hub_get_list(c->hub, &c->name, on_note, c, &c->list, err);
    if (status != QUIRE_OK)
        return status;
    if (c->name.quant[0] && (patterns.n_include || patterns.n_exclude))
        return quire_fail(err, QUIRE_INVALID,
                          "--include and --exclude cannot be used with :%s, which selects a "
                          "file, too",
                          c->name.quant);
    if (c->name.quant[0])
        return choose_gguf(c, err);
    const char *lacks = c->include.n == 0 && c->exclude.n == 0 ? lacking(&c->list) : NULL;
    if (lacks && hub_list_has(&c->list, "*.gguf"))
        return choose_gguf(c, err);
    if (lacks)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%s has no %s, which Quire needs; nothing was downloaded (--include and --exclude select any "
                          "files)",
                          c->name.text, lacks);
    hub_list_select(&c->list, &patterns);
    if (c->list.n == 0)
        return quire_fail(err, QUIRE_NOT_FOUND,
                          "%s has no matching file (see --include and --exclude; files .bin and .pt are never "
                          "downloaded; select a .gguf file as ORG/NAME:Q4_K_M)",
                          c->name.text);
    return QUIRE_OK;
}

/* Without a terminal the command itself is the consent. */
static int ask(const struct pull_command *c, struct quire_error *err)
{
    char question[HUB_TYPED_BYTES + 64], typed[HUB_TYPED_BYTES];
    const uint64_t missing = hub_pull_total_bytes(c->pull) - hub_pull_present_bytes(c->pull);
    hub_name_typed(&c->name, typed);
    if (missing == 0)
        return QUIRE_OK;
    snprintf(question, sizeof question, "Download %s (%s)?", typed, quire_size(missing).text);
    switch (command_ask(question, true)) {
    case COMMAND_YES: return QUIRE_OK;
    case COMMAND_NO: return quire_fail(err, QUIRE_INVALID, "%s was not downloaded", typed);
    case COMMAND_NO_TERMINAL: break;
    }
    fprintf(stderr, "quire: downloading %s (%s)\n", typed, quire_size(missing).text);
    return QUIRE_OK;
}

static int bring(struct pull_command *c, struct quire_error *err)
{
    const struct hub_pull_options options = {.hub = c->hub,
                                             .name = &c->name,
                                             .list = &c->list,
                                             .repo = c->repo,
                                             .n_connections = c->n_connections,
                                             .note = on_note,
                                             .progress = on_progress,
                                             .context = c};
    int status = hub_pull_open(&options, &c->pull, err);
    if (status == QUIRE_OK)
        status = hub_pull_resolve(c->pull, err);
    if (status == QUIRE_OK)
        status = hub_store_check_space(c->repo, hub_pull_total_bytes(c->pull) - hub_pull_present_bytes(c->pull), err);
    clear(&c->meter); /* what was downloaded for the size */
    if (status == QUIRE_OK && c->asks)
        status = ask(c, err);
    if (status == QUIRE_OK)
        status = hub_pull_content(c->pull, err);
    for (size_t i = 0; status == QUIRE_OK && i < c->list.n; i++)
        status = hub_store_link(c->repo, c->list.commit, c->list.files[i], hub_pull_etag(c->pull, i), err);
    if (status == QUIRE_OK)
        status = hub_store_ref(c->repo, c->name.revision, c->list.commit, err);
    clear(&c->meter);
    return status;
}

static int run(struct pull_command *c, struct quire_error *err)
{
    c->began = quire_now_s();
    int status = check_offline(err);
    if (status == QUIRE_OK)
        status = open_hub(c, err);
    if (status == QUIRE_OK)
        status = hub_cache_repo(&c->name, c->repo, err);
    if (status == QUIRE_OK)
        status = choose(c, err);
    if (status == QUIRE_OK)
        status = hub_store_lock(c->repo, on_wait, c, &c->lock, err);
    return status == QUIRE_OK ? bring(c, err) : status;
}

static void print_json(const struct pull_command *c, const char *path)
{
    json_t *files = json_array();
    for (size_t i = 0; i < c->list.n; i++)
        json_array_append_new(files, json_string(c->list.files[i]));
    json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:f}", "model", c->name.text, "revision",
                            c->name.revision, "commit", c->list.commit, "path", path, "files", files, "bytes",
                            (json_int_t)hub_pull_total_bytes(c->pull), "downloaded_bytes",
                            (json_int_t)hub_pull_received_bytes(c->pull), "seconds", quire_now_s() - c->began);
    if (out) {
        json_dumpf(out, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(out);
}

/* Prints the snapshot's path for programs on standard output, and the rest for people. */
static int report(const struct pull_command *c)
{
    char path[2 * HUB_PATH_BYTES];
    struct quire_error missing;
    size_t n_hashed = hub_pull_n_hashed(c->pull);
    snprintf(path, sizeof path, "%s/snapshots/%s", c->repo, c->list.commit);
    if (c->json)
        print_json(c, path);
    else
        puts(path);
    fprintf(
        stderr, "quire: %s: %zu file%s, %s; %s downloaded in %.1f s; checked by SHA-256: %zu, by length only: %zu\n",
        c->name.text, c->list.n, c->list.n == 1 ? "" : "s", quire_size(hub_pull_total_bytes(c->pull)).text,
        quire_size(hub_pull_received_bytes(c->pull)).text, quire_now_s() - c->began, n_hashed, c->list.n - n_hashed);
    if (c->is_gguf || hub_snapshot_check(path, false, &missing) == QUIRE_OK)
        return 0;
    const bool by_patterns = c->include.n || c->exclude.n;
    fprintf(stderr,
            by_patterns ? "quire: %s was downloaded %s\n" : "quire: %s: the hub has it %s, so it does not run\n",
            c->name.text, missing.text);
    return by_patterns ? 0 : 1;
}

static void end(struct pull_command *c)
{
    hub_pull_close(c->pull);
    hub_list_free(&c->list);
    hub_close(c->hub);
    if (c->lock >= 0)
        close(c->lock);
}

int hub_fetch_config(const char *given, char dir[HUB_PATH_BYTES], struct quire_error *err)
{
    struct pull_command c = {.n_connections = 1, .lock = -1, .include = {{"config.json"}, 1}};
    int status = hub_name_parse(given, &c.name, err);
    c.name.quant[0] = '\0'; /* all quantizations have one config.json */
    if (status == QUIRE_OK)
        status = run(&c, err);
    if (status == QUIRE_OK && snprintf(dir, HUB_PATH_BYTES, "%s/snapshots/%s", c.repo, c.list.commit) >= HUB_PATH_BYTES)
        status = quire_fail(err, QUIRE_INVALID, "a path in the Hugging Face cache is too long");
    end(&c);
    return status;
}

int hub_model_fetch(const char *given, bool asks, bool without_weights, struct hub_model *out, struct quire_error *err)
{
    struct pull_command c = {.n_connections = 8, .lock = -1, .asks = asks, .meter = {.is_tty = status_line_possible()}};
    int status = hub_model_find(given, without_weights, out, err);
    if (status != QUIRE_NOT_FOUND || hub_name_parse(given, &c.name, NULL) != QUIRE_OK || !strchr(c.name.text, '/'))
        return status;
    status = run(&c, err);
    end(&c);
    return status == QUIRE_OK ? hub_model_find(given, without_weights, out, err) : status;
}

int command_pull(int argc, char **argv)
{
    struct pull_command c = {.n_connections = 8, .lock = -1, .meter = {.is_tty = status_line_possible()}};
    struct quire_error err;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Files:", .kind = CLI_GROUP},
        {.names = "include", .kind = CLI_LIST, .target = &c.include, .value = "PATTERN",
         .help = "Download only files that match one of these patterns. Default: " HUB_WANTED ". Files .bin and .pt are "
                 "never downloaded; :QUANT selects a GGUF file."},
        {.names = "exclude", .kind = CLI_LIST, .target = &c.exclude, .value = "PATTERN",
         .help = "Skip files that match one of these patterns."},
        {.names = "Download:", .kind = CLI_GROUP},
        {.names = "token-file", .kind = CLI_STRING, .target = &c.token_file, .value = "FILE",
         .help = "File with your account's token, for gated and private models. Default: HF_TOKEN, or the token that "
                 "`hf auth login` stored."},
        {.names = "parallel", .kind = CLI_U32, .target = &c.n_connections, .min = 1, .max = 64, .value = "N",
         .help = "Number of connections, for several parts of a file and several files at once. Default 8."},
        {.names = "json", .kind = CLI_FLAG, .target = &c.json,
         .help = "Print JSON instead of the snapshot's path."},
        {0},
    };
    /* clang-format on */
    const struct cli_command command = {
        .name = "pull",
        .usage = "quire pull ORG/NAME[:QUANT][@REVISION] [options]",
        .about =
            "Downloads a model from the Hugging Face hub, or from the hub at HF_ENDPOINT, into the Hugging Face\n"
            "cache, which vLLM, transformers and others share (docs/start/models.md). Every command then accepts\n"
            "ORG/NAME for MODEL. The hub's address of a model, such as hf.co/ORG/NAME:QUANT, is a name, too. The same\n"
            "command resumes an interrupted download. Files that are complete are not downloaded again.",
        .examples =
            "examples:\n"
            "  quire pull Qwen/Qwen2.5-1.5B-Instruct && quire serve Qwen/Qwen2.5-1.5B-Instruct\n"
            "  quire pull https://huggingface.co/Qwen/Qwen2.5-1.5B-Instruct\n"
            "  quire pull Qwen/Qwen2.5-1.5B-Instruct@main --parallel 16\n"
            "  quire pull Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M      the GGUF file of this quantization\n"
            "  HF_HOME=/data/hf quire pull meta-llama/Llama-3.2-1B --token-file ~/token\n"
            "  quire pull ORG/NAME --exclude \"*.safetensors\"      for a front end: no weights\n\n"
            "environment: HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME (location of the cache), HF_ENDPOINT (hub),\n"
            "HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE=1 (no downloads), HF_HUB_DOWNLOAD_TIMEOUT (seconds without\n"
            "data, default 10).",
        .options = rows,
        .positionals = {&c.given},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!c.given)
        return command_fail(2, "MODEL is missing; usage: quire pull ORG/NAME[:QUANT][@REVISION]");
    if (hub_name_parse(c.given, &c.name, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    int status = run(&c, &err);
    code = status == QUIRE_OK ? report(&c) : command_fail(1, err.text);
    end(&c);
    return code;
}
