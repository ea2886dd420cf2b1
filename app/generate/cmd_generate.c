/* quire generate: one answer, or a chat, on this terminal. */
#include "text/quire_chat.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/flags/engine_flags.h"
#include "app/generate/answer.h"
#include "app/generate/local_engine.h"
#include "app/generate/prompt_line.h"
#include "app/models/cache.h"
#include "app/models/fetch.h"
#include "base/encoding/json.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct generate {
    const struct request_flags *flags;
    struct event_base *base;
    struct local_engine *engine;
    struct event *signals[2];
    json_t *messages; /* the chat so far */
    struct answer answer; /* the current one */
    bool stopped; /* SIGTERM; SIGINT stops only the current answer */
};

static int render(struct generate *g, const char *prompt, char **out, size_t *n)
{
    json_t *message = json_pack("{s:s, s:s}", "role", "user", "content", prompt);
    if (!message)
        return quire_fail(&g->answer.err, QUIRE_INVALID, "the prompt is not UTF-8");
    if (g->flags->system && json_array_size(g->messages) == 0)
        json_array_append_new(g->messages, json_pack("{s:s, s:s}", "role", "system", "content", g->flags->system));
    json_array_append_new(g->messages, message);
    char *json = json_dumps(g->messages, JSON_COMPACT);
    if (!json)
        return quire_fail(&g->answer.err, QUIRE_NO_MEMORY, "out of memory");
    const struct quire_chat chat = {.messages_json = json, .add_generation_prompt = true};
    int status = quire_text_chat(local_engine_text(g->engine), &chat, out, n, NULL, &g->answer.err);
    free(json);
    return status;
}

/* Answers one prompt and adds question and answer to the chat's messages. */
static int answer(struct generate *g, const char *prompt)
{
    struct answer *a = &g->answer;
    bool chat = !g->flags->raw && quire_text_has_chat(local_engine_text(g->engine));
    char *rendered = NULL;
    size_t n = strlen(prompt);
    int status = chat ? render(g, prompt, &rendered, &n) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = answer_run(a, rendered ? rendered : prompt, n, !chat);
    free(rendered);
    if (status != QUIRE_OK || g->stopped)
        return status;
    /* The chat keeps the partial text of a stopped answer. A question without any answer is removed. */
    if (chat && a->interrupted && a->text.n == 0)
        json_array_remove(g->messages, json_array_size(g->messages) - 1);
    else if (chat)
        json_array_append_new(g->messages,
                              json_pack("{s:s, s:s}", "role", "assistant", "content", buffer_text(&a->text)));
    if (g->flags->json) {
        json_t *o = json_pack("{s:s, s:i, s:i}", "text", buffer_text(&a->text), "prompt_tokens", (int)a->n_prompt,
                              "completion_tokens", (int)a->n_generated);
        json_dumpf(o, stdout, JSON_COMPACT);
        json_decref(o);
    }
    putchar('\n');
    fflush(stdout);
    answer_print_speed(a);
    return QUIRE_OK;
}

/* One message after the other. Ctrl-C discards the line, and a second one ends the chat. */
static int chat_on_terminal(struct generate *g)
{
    struct prompt_line *prompt;
    const char *line;
    bool tty = isatty(STDIN_FILENO), asked = false;
    int status = prompt_line_open("> ", &prompt, &g->answer.err);
    if (tty)
        fprintf(stderr, "Type a message. Ctrl-C stops an answer; Ctrl-D, or Ctrl-C twice, ends the chat.\n");
    while (status == QUIRE_OK && !g->stopped) {
        if (tty)
            fputc('\n', stderr);
        enum prompt_line_end end = prompt_line_next(prompt, &line);
        if (end == PROMPT_END || (end == PROMPT_INTERRUPTED && (asked || !tty)))
            break;
        asked = end == PROMPT_INTERRUPTED;
        if (asked)
            fprintf(stderr, "\n(Ctrl-C again ends the chat)");
        else if (line[strspn(line, " \t")])
            status = answer(g, line);
    }
    if (tty)
        fputc('\n', stderr);
    prompt_line_close(prompt);
    return status;
}

/* ---- begin and end ---- */

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct generate *g = context;
    (void)what;
    g->stopped = number == SIGTERM;
    answer_interrupt(&g->answer);
}

static int watch_signals(struct generate *g)
{
    static const int numbers[2] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        g->signals[i] = evsignal_new(g->base, numbers[i], on_signal, g);
        if (!g->signals[i] || evsignal_add(g->signals[i], NULL) != 0)
            return quire_fail(&g->answer.err, QUIRE_INTERNAL, "signals cannot be watched");
    }
    return QUIRE_OK;
}

static void on_closed(void *context, const char *why)
{
    answer_fail(&((struct generate *)context)->answer, why);
}

static int open_all(struct generate *g, const struct engine_options *options)
{
    g->base = event_base_new();
    g->messages = json_array();
    if (!g->base || !g->messages)
        return quire_fail(&g->answer.err, QUIRE_NO_MEMORY, "out of memory");
    int status = local_engine_open(g->base, options, on_closed, g, &g->engine, &g->answer.err);
    if (status != QUIRE_OK)
        return status;
    g->answer.base = g->base;
    g->answer.engine = g->engine;
    g->answer.flags = g->flags;
    return watch_signals(g);
}

static void close_all(struct generate *g)
{
    for (int i = 0; i < 2; i++)
        if (g->signals[i])
            event_free(g->signals[i]);
    local_engine_close(g->engine);
    json_decref(g->messages);
    if (g->base)
        event_base_free(g->base);
    buffer_free(&g->answer.text);
}

static size_t own_flags(struct request_flags *f, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Request:", .kind = CLI_GROUP},
        {.names = "prompt,p", .kind = CLI_STRING, .target = &f->prompt_option, .value = "TEXT",
         .common = true, .help = "The prompt, instead of the second argument."},
        {.names = "system,sys,system-prompt", .kind = CLI_STRING, .target = &f->system, .value = "TEXT",
         .common = true, .help = "Put this system message before the first question."},
        {.names = "raw", .kind = CLI_FLAG, .target = &f->raw,
         .common = true, .help = "Continue the prompt without the model's chat template."},
        {.names = "max-tokens,n,n-predict,predict,max-new-tokens", .kind = CLI_U32, .target = &f->max_tokens, .min = 1, .max = 4294967295.0, .value = "N",
         .common = true, .help = "Maximum length of an answer. Default: until the model stops or the context is full."},
        {.names = "temperature,temp", .kind = CLI_F64, .target = &f->temperature, .given = &f->has_temperature,
         .max = 100, .value = "X",
         .common = true, .help = "Sampling temperature; 0 is greedy. Default: the value in generation_config.json, else 1."},
        {.names = "top-p", .kind = CLI_F64, .target = &f->top_p, .given = &f->has_top_p, .max = 1, .value = "X",
         .common = true, .help = "Nucleus sampling: cumulative probability of the candidates. Default: the value in "
                 "generation_config.json, else 1."},
        {.names = "top-k", .kind = CLI_U32, .target = &f->top_k, .given = &f->has_top_k, .value = "N",
         .common = true, .help = "Number of candidates; 0 disables the limit. Default: the value in generation_config.json, else 0."},
        {.names = "json", .kind = CLI_FLAG, .target = &f->json,
         .common = true, .help = "Print one JSON object when the answer is complete."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static const struct cli_command generate_description = {
    .name = "generate",
    .usage = "quire generate MODEL [PROMPT] [options]",
    .about =
        "Answers PROMPT with MODEL and streams the answer. MODEL is a Hugging Face checkpoint directory or the name\n"
        "of a downloaded model (quire pull). Without PROMPT, it starts a chat with one message per line; Ctrl-C\n"
        "stops an answer, Ctrl-D ends the chat.",
    .examples = "examples:\n"
                "  quire generate ./model \"What is 12 plus 30?\" --temperature 0\n"
                "  quire generate ./model                      chat\n"
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
    .first_names = FOREIGN_MODEL_NAMES,
    .foreign = foreign_flags,
};

static int run(const struct cli_command *description, int argc, char **argv)
{
    const bool pulls = description == &run_description;
    struct request_flags flags = {.prompt = NULL};
    struct generate g = {.flags = &flags, .answer = {.status = QUIRE_INTERNAL}};
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    struct hub_model model;
    struct cli_option rows[ENGINE_FLAGS_MAX + 16];
    bool yes = false;

    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    options.max_num_seqs = 1;
    size_t n = own_flags(&flags, rows);
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
    if (!options.model_dir)
        return command_fail(2, pulls ? "MODEL is missing; usage: quire run MODEL [PROMPT]"
                                     : "MODEL is missing; usage: quire generate MODEL [PROMPT]");
    if (flags.prompt && flags.prompt_option)
        return command_fail(2, "--prompt: PROMPT is already set by an argument");
    if (flags.prompt_option)
        flags.prompt = flags.prompt_option;
    if (strcmp(steps.batching, "static") == 0)
        return command_fail(
            2, "--batching static waits for a full batch, but generate runs one request at a time: leave it out");

    int status = pulls ? hub_model_fetch(options.model_dir, !yes, false, &model, &g.answer.err)
                       : hub_model_find(options.model_dir, false, &model, &g.answer.err);
    if (status != QUIRE_OK && flags.prompt && hub_model_find(flags.prompt, true, &model, NULL) == QUIRE_OK)
        return command_fail(2, "PROMPT is a model: the two are swapped; write MODEL first");
    if (status != QUIRE_OK)
        return command_fail(1, g.answer.err.text);
    options.model_dir = model.dir;

    status = open_all(&g, &options);
    if (status == QUIRE_OK)
        status = flags.prompt ? answer(&g, flags.prompt) : chat_on_terminal(&g);
    close_all(&g);
    if (status != QUIRE_OK)
        return command_fail(1, g.answer.err.text);
    return flags.prompt && g.answer.interrupted ? 130 : 0; /* the shell's status of a program ended by SIGINT */
}

int command_generate(int argc, char **argv)
{
    return run(&generate_description, argc, argv);
}

int command_run(int argc, char **argv)
{
    return run(&run_description, argc, argv);
}
