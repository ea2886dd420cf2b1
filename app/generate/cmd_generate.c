/* quire generate, and quire run, which downloads first: one answer, or a chat, on this terminal. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/flags/engine_flags.h"
#include "app/generate/chat.h"
#include "app/models/cache.h"
#include "app/models/fetch.h"
#include "app/serving/grammars.h"
#include "base/file.h"
#include "engine/model/describe.h"
#include "text/quire_grammar_normal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_STDIN_BYTES ((size_t)16 << 20)
#define MAX_SCHEMA_BYTES ((size_t)1 << 20)

struct generate {
    struct event_base *base;
    struct local_engine *engine;
    struct serving_grammars *grammars; /* NULL without --json-schema */
    char *grammar; /* in normal form */
    struct event *signals[2];
    struct chat *chat; /* borrowed */
};

/* ---- begin and end ---- */

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct generate *g = context;
    (void)what;
    g->chat->stopped = number == SIGTERM;
    answer_interrupt(g->chat->answer);
}

static int watch_signals(struct generate *g)
{
    static const int numbers[2] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        g->signals[i] = evsignal_new(g->base, numbers[i], on_signal, g);
        if (!g->signals[i] || evsignal_add(g->signals[i], NULL) != 0)
            return quire_fail(&g->chat->answer->err, QUIRE_INTERNAL, "signals cannot be watched");
    }
    return QUIRE_OK;
}

static void on_closed(void *context, const char *why)
{
    answer_fail(((struct generate *)context)->chat->answer, why);
}

/* --json-schema in the engine's form. */
static int use_schema(struct generate *g, struct engine_options *options, struct quire_error *err)
{
    const char *given = g->chat->flags->json_schema;
    struct model_config *config = NULL;
    struct sampling_defaults ignored;
    struct buffer text = {0};
    FILE *file = *given == '@' ? fopen(given + 1, "re") : NULL;
    size_t n;
    if (*given == '@' && !file)
        return quire_fail(err, QUIRE_NOT_FOUND, "--json-schema: %.300s: cannot be opened: %m", given + 1);
    int status = file ? buffer_read(&text, file, MAX_SCHEMA_BYTES, given + 1, err)
                      : buffer_append(&text, given, strlen(given));
    if (file)
        fclose(file);
    const struct quire_grammar_source source = {
        .form = QUIRE_FORM_JSON_SCHEMA, .text = text.data, .n_bytes = text.n, .whitespace = QUIRE_WHITESPACE_COMPACT};
    if (status == QUIRE_OK && (status = quire_grammar_normal(&source, &g->grammar, &n, err)) != QUIRE_OK) {
        if (!file && access(given, R_OK) == 0)
            quire_fail(err, status, "%.200s is a file: write @%.200s", given, given);
        quire_error_prefix(err, "--json-schema%s%.300s", file ? " " : "", file ? given : "");
    }
    buffer_free(&text);
    if (status == QUIRE_OK)
        status = model_describe(options->model_dir, &config, &ignored, err);
    if (status == QUIRE_OK)
        status = serving_grammars_begin(options->model_dir, config, &g->grammars, err);
    model_config_free(config);
    if (status == QUIRE_OK)
        options->grammars = serving_grammars_engine(g->grammars);
    return status;
}

static int open_all(struct generate *g, struct engine_options *options)
{
    struct answer *a = g->chat->answer;
    g->base = event_base_new();
    if (!g->base)
        return quire_fail(&a->err, QUIRE_NO_MEMORY, "out of memory");
    int status = conversation_open(&g->chat->conversation, g->chat->flags->system, &a->err);
    if (status == QUIRE_OK && g->chat->flags->json_schema)
        status = use_schema(g, options, &a->err);
    if (status == QUIRE_OK)
        status = local_engine_open(g->base, options, on_closed, g, &g->engine, &a->err);
    if (status != QUIRE_OK)
        return status;
    a->base = g->base;
    a->engine = g->engine;
    a->flags = g->chat->flags;
    a->grammar = g->grammar;
    return watch_signals(g);
}

static void close_all(struct generate *g)
{
    for (int i = 0; i < 2; i++)
        if (g->signals[i])
            event_free(g->signals[i]);
    local_engine_close(g->engine);
    serving_grammars_end(g->grammars);
    free(g->grammar);
    if (g->base)
        event_base_free(g->base);
    chat_close(g->chat);
}

/* Standard input that is a file or a pipe is the prompt, or follows PROMPT. Others, such as a service's socket, may never
 * end, and count only if nothing else is the prompt. */
static int read_stdin(struct generate *g, struct buffer *prompt)
{
    struct stat info;
    struct buffer text = {0};
    const bool has_prompt = g->chat->flags->prompt != NULL;
    if (has_prompt)
        buffer_append(prompt, g->chat->flags->prompt, strlen(g->chat->flags->prompt));
    if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &info) != 0 ||
        (has_prompt && !S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)))
        return QUIRE_OK;
    int status = buffer_read(&text, stdin, MAX_STDIN_BYTES, "standard input", &g->chat->answer->err);
    while (text.n > 0 && text.data[text.n - 1] == '\n')
        text.n--;
    if (has_prompt && text.n > 0)
        buffer_append(prompt, "\n\n", 2);
    buffer_append(prompt, text.data, text.n);
    buffer_free(&text);
    return status;
}

static void warn_about_template(const struct generate *g, bool is_chat)
{
    const struct chat *c = g->chat;
    if (!is_chat && !c->flags->raw && !chat_has_template(c))
        fprintf(stderr, "quire: %s has no chat template: it continues the text as it is\n", c->model_name);
    if (c->flags->system && *c->flags->system && !chat_has_template(c))
        fputs("quire: --system has no effect without a chat template\n", stderr);
}

/* One answer, or a chat. */
static int converse(struct generate *g, bool *is_chat)
{
    struct buffer prompt = {0};
    *is_chat = !g->chat->flags->prompt && isatty(STDIN_FILENO);
    warn_about_template(g, *is_chat);
    if (*is_chat)
        return chat_on_terminal(g->chat);
    int status = read_stdin(g, &prompt);
    const char *text = status == QUIRE_OK ? buffer_text(&prompt) : NULL;
    if (status == QUIRE_OK && !text)
        status = quire_fail(&g->chat->answer->err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = chat_answer(g->chat, text);
    buffer_free(&prompt);
    return status;
}

static const struct cli_command generate_description = {
    .name = "generate",
    .usage = "quire generate MODEL [PROMPT] [options]",
    .about =
        "Answers PROMPT with MODEL and streams the answer. MODEL is a Hugging Face checkpoint directory or the name\n"
        "of a downloaded model (quire pull). Without PROMPT, it starts a chat; Ctrl-C stops an answer,\n"
        "Ctrl-D ends the chat.",
    .examples = "examples:\n"
                "  quire generate ./model \"What is 12 plus 30?\" --temperature 0\n"
                "  quire generate ./model                      chat\n"
                "  cat notes.txt | quire generate ./model \"Summarize this\"\n"
                "  quire generate ./model \"Once upon\" --raw --max-tokens 50",
    .first_names = FOREIGN_MODEL_NAMES,
    .foreign = foreign_flags,
};

static const struct cli_command run_description = {
    .name = "run",
    .usage = "quire run MODEL [PROMPT] [options]",
    .about = "Chats with MODEL, or answers PROMPT. MODEL is ORG/NAME[:QUANT] on the Hugging Face hub, its address, a\n"
             "checkpoint directory or a GGUF file. A model that is not in the cache is downloaded first; on a\n"
             "terminal, it asks before that.",
    .examples = "examples:\n"
                "  quire run Qwen/Qwen2.5-1.5B-Instruct\n"
                "  quire run hf.co/Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M\n"
                "  quire run ./model \"What is 12 plus 30?\"",
    .first_names = FOREIGN_MODEL_NAMES ",hf,hf-repo,hfr", /* llama.cpp downloads, too */
    .foreign = foreign_flags,
};

/* False with the exit status in *code: the command line is wrong. */
static bool check_line(const struct engine_options *options, struct request_flags *flags, bool pulls, int *code)
{
    const char *wrong = NULL;
    if (!options->model_dir)
        wrong = pulls ? "MODEL is missing; usage: quire run MODEL [PROMPT]"
                      : "MODEL is missing; usage: quire generate MODEL [PROMPT]";
    else if (flags->prompt && flags->prompt_option)
        wrong = "--prompt: PROMPT is already set by an argument";
    else if (strcmp(options->steps->batching, "static") == 0)
        wrong = "--batching static waits for a full batch, but generate runs one request at a time: leave it out";
    if (flags->prompt_option)
        flags->prompt = flags->prompt_option;
    if (wrong)
        *code = command_fail(2, wrong);
    return !wrong;
}

static int run(const struct cli_command *description, int argc, char **argv)
{
    const bool pulls = description == &run_description;
    struct request_flags flags;
    struct answer last = {.status = QUIRE_INTERNAL};
    struct chat chat = {.flags = &flags, .answer = &last};
    struct generate g = {.chat = &chat};
    struct quire_error *err = &last.err;
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    struct hub_model model;
    struct cli_option rows[ENGINE_FLAGS_MAX + REQUEST_FLAGS_MAX + 2];
    bool yes = false, is_chat = false;

    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    options.max_num_seqs = 1;
    request_flags_default(&flags);
    size_t n = request_flags(&flags, rows);
    if (pulls)
        rows[n++] = (struct cli_option){.names = "yes,y",
                                        .kind = CLI_FLAG,
                                        .target = &yes,
                                        .common = true,
                                        .help = "Download a missing model without a question."};
    n += engine_flags(&options, rows + n);
    rows[n] = (struct cli_option){0};
    struct cli_command command = *description;
    command.options = rows;
    command.positionals[0] = &options.model_dir;
    command.positionals[1] = &flags.prompt;
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!check_line(&options, &flags, pulls, &code))
        return code;
    int status = pulls ? hub_model_fetch(options.model_dir, !yes, false, &model, err)
                       : hub_model_find(options.model_dir, false, &model, err);
    if (status != QUIRE_OK && flags.prompt && hub_model_find(flags.prompt, true, &model, NULL) == QUIRE_OK)
        return command_fail(2, "PROMPT is a model: the two are swapped; write MODEL first");
    if (status != QUIRE_OK)
        return command_fail(1, err->text);
    options.model_dir = model.dir;

    chat.model_name = model.name;
    status = open_all(&g, &options);
    if (status == QUIRE_OK)
        status = converse(&g, &is_chat);
    const bool was_interrupted = last.interrupted;
    if (status != QUIRE_OK)
        command_fail(1, err->text);
    close_all(&g);
    return status != QUIRE_OK ? 1 : !is_chat && was_interrupted ? 130 : 0; /* 130: the shell's status after SIGINT */
}

int command_generate(int argc, char **argv)
{
    return run(&generate_description, argc, argv);
}

int command_run(int argc, char **argv)
{
    return run(&run_description, argc, argv);
}
